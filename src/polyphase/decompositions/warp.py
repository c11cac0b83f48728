"""Decompositions of grid_sampler and its overloads for 2 and 3 axes, and of affine_grid_generator."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from polyphase.records.facts import HALF
from polyphase.sampling import warps
from polyphase.sampling.steps import Size
from polyphase.torch_private import OpOverload


def table() -> dict[OpOverload, Callable[..., Tensor]]:
    aten = torch.ops.aten
    return {
        aten.grid_sampler.default: grid_sampler,
        aten.grid_sampler_2d.default: grid_sampler,
        aten.grid_sampler_3d.default: grid_sampler,
        aten.affine_grid_generator.default: affine_grid_generator,
    }


def grid_sampler(
    input: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Tensor:
    """Half precision is computed in float32. The output is contiguous whatever the input, as eager's."""
    mode, padding = warps.MODES[interpolation_mode], warps.PADDINGS[padding_mode]
    result = warps.sample(input, _at_least_float32(grid), mode, padding, align_corners)
    return result.to(input.dtype).contiguous()


def affine_grid_generator(theta: Tensor, size: Sequence[Size], align_corners: bool) -> Tensor:
    return warps.affine_grid(_at_least_float32(theta), size[2:], align_corners).to(theta.dtype)


def _at_least_float32(tensor: Tensor) -> Tensor:
    return tensor.float() if tensor.dtype in HALF else tensor
