"""Decompositions of our own operators, for exported graphs that run where Polyphase is not installed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from polyphase.calls import plain_torch
from polyphase.calls.rules import rules_of
from polyphase.decompositions.memory_order import dense, memory_order, stride_order
from polyphase.records.layout import keeps_strides
from polyphase.sampling.apply import apply_taps
from polyphase.sampling.axis_maps import AxisMap, order_of_sums
from polyphase.sampling.evaluate import evaluate
from polyphase.sampling.integers import SUMMED_IN, stored
from polyphase.sampling.programs import adjoint_by_moving, forward_order
from polyphase.sampling.steps import Area, Nearest, Resize, Size
from polyphase.sampling.taps import Taps
from polyphase.sampling.templates import filled_maps
from polyphase.sampling.warps import Warp
from polyphase.sampling.windows import backward_arithmetic, eager_arithmetic, transposed_taps
from polyphase.torch_private import OpOverload


def table() -> dict[OpOverload, Callable[..., Any]]:
    """`warp_backward` stays whole: its kernel is not made of steps that a graph could have."""
    ours = torch.ops.polyphase
    return {ours.resample.default: resample, ours.warp.default: warp}


def warp(image: Tensor, coordinates: Tensor, *options: Any) -> Tensor:
    return plain_torch.warp(image, coordinates, Warp.of_options(*options))


def resample(
    image: Tensor,
    maps: str,
    sizes: Sequence[Size] | None,
    in_size: Sequence[Size] | None,
    transposed: bool,
    border: Any,
) -> Tensor:
    """The adjoint of reflect, replicate and circular pads stays whole: it is not made of symbolic sizes."""
    axis_maps = filled_maps(maps, sizes)
    moved = adjoint_by_moving(axis_maps) if transposed else axis_maps
    if moved is not None:
        return _mapped(image, moved, 0 if transposed else border)
    if not all(len(one.steps) == 1 and isinstance(one.steps[0], (Resize, Nearest, Area)) for one in axis_maps):
        return NotImplemented  # type: ignore[no-any-return]
    assert in_size is not None, "an adjoint goes to the sizes before the maps"
    arithmetic = backward_arithmetic(image.dtype, rules_of(image.device))
    order, first = memory_order(image), image.dim() - len(axis_maps)
    result = image.permute(order)
    for axis, (one, size) in enumerate(zip(axis_maps, in_size, strict=True)):
        step = one.steps[0]
        assert isinstance(step, (Resize, Nearest, Area))
        taps = transposed_taps(step, size, arithmetic, image.device)
        result = apply_taps(result, taps, order.index(first + axis))
    return dense(result.to(image.dtype), order)


def _mapped(image: Tensor, maps: tuple[AxisMap, ...], border: Any) -> Tensor:
    """One axis after the other, in memory order; uint8 as it is rounded."""
    arithmetic = eager_arithmetic(image.dtype, rules_of(image.device))
    order = stride_order(image) if keeps_strides(maps) else memory_order(image)
    if forward_order(maps) == "contiguous":
        order = list(range(image.dim()))
    first, result = image.dim() - len(maps), image.permute(order)
    if any(one.weighted for one in maps):
        result = result.to(SUMMED_IN.get(image.dtype, image.dtype))
    for axis in order_of_sums(maps, image.dtype):
        if not maps[axis].steps:
            continue
        dim = order.index(first + axis)
        taps = evaluate(maps[axis], result.shape[dim], arithmetic, image.device)
        result = _bordered(apply_taps(result, taps, dim), taps, dim, border)
    return dense(stored(result, image.dtype), order)


def _bordered(image: Tensor, taps: Taps, dim: int, border: Any) -> Tensor:
    if taps.border is None:
        return image
    along = taps.border.reshape([-1] + [1] * (image.dim() - 1 - dim))
    return torch.where(along > 0, torch.full((), border, dtype=image.dtype, device=image.device), image)
