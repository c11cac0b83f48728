"""The reference: a program evaluated slowly and obviously, in float64, uint8 in exact integers.

Everything fast is held against this. uint8 is rounded after each weighted axis; for floats their order does not matter
here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from polyphase import torch_private
from polyphase.errors import WrongInputError
from polyphase.sampling import formulas, pointwise, warps
from polyphase.sampling.apply import apply_axes, bordered
from polyphase.sampling.integers import stored
from polyphase.sampling.programs import Axes, Program
from polyphase.sampling.warps import Warp
from polyphase.sampling.windows import exact_arithmetic


def run(
    program: Program,
    image: Tensor,
    *,
    grid: Tensor | None = None,
    theta: Tensor | None = None,
    entries: Tensor | None = None,
    fields: Sequence[Tensor] = (),
    channels: Mapping[int, Tensor] | None = None,
    tensors: Mapping[int, Tensor] | None = None,
) -> Tensor:
    """The output for an image (N, C, spatial...): float64 where the program's target is floating, else the target."""
    _check_image(program, image, channels or {})
    loaded = pointwise.evaluate(program.prologue, image, channels, exact=True)
    if isinstance(program.sampler, Axes):
        sampled, border = apply_axes(loaded, program.sampler, exact_arithmetic(program.sampled), program.sampled)
        sampled = sampled if program.sampled.is_floating_point else stored(sampled, program.sampled)
    else:
        sampled, border = _sample_warp(program.sampler, loaded, grid, theta, entries, fields), None
    sampled = bordered(sampled, border, program.borders, stored=False)
    _check_tensors(sampled, tensors or {})
    result = pointwise.evaluate(program.epilogue, sampled, channels, tensors, exact=True)
    result = bordered(result, border, program.borders, stored=True)
    return result.contiguous(memory_format=memory_format(program.order, image))


def memory_format(order: str, image: Tensor) -> torch.memory_format:
    last = {4: torch.channels_last, 5: torch.channels_last_3d}.get(image.dim(), torch.contiguous_format)
    suggested = torch_private.suggest_memory_format(image)
    return {"preserve": suggested, "contiguous": torch.contiguous_format, "channels_last": last}[order]


def _sample_warp(
    warp: Warp,
    image: Tensor,
    grid: Tensor | None,
    theta: Tensor | None,
    entries: Tensor | None,
    fields: Sequence[Tensor],
) -> Tensor:
    batch, axes = image.shape[0], image.dim() - 2
    if warp.formula is not None:
        if entries is None or entries.shape != (batch, warp.formula.entries) or len(fields) != warp.formula.fields:
            raise WrongInputError(
                f"the program warps by {warp.formula}; entries are {_shape(entries)} with {len(fields)} fields, needed "
                f"are {(batch, warp.formula.entries)} and {warp.formula.fields}"
            )
        exact = [one.double() for one in fields]
        grid = formulas.coordinates(warp.formula, warp.size, entries.double(), exact, warp.align_corners)
    elif warp.source == "affine":
        if theta is None or theta.shape != (batch, axes, axes + 1) or len(warp.size) != axes:
            raise WrongInputError(
                f"the program warps to size {warp.size} by an affine matrix; theta is {_shape(theta)}, "
                f"needed is {(batch, axes, axes + 1)} and a size of {axes} numbers for this image"
            )
        grid = warps.affine_grid(theta.double(), warp.size, warp.align_corners)
    elif grid is None or grid.dim() != axes + 2 or grid.shape[0] != batch or grid.shape[-1] != axes:
        raise WrongInputError(f"the program warps by a grid; it is {_shape(grid)}, needed is ({batch}, *out, {axes})")
    rules = warp.mode, warp.taps_padding, warp.align_corners
    result = warps.sample(image, grid.double(), *rules, fill=warp.fill, fill_rule=warp.fill_rule)
    return result if image.dtype.is_floating_point else stored(result, image.dtype)


def _shape(tensor: Tensor | None) -> object:
    return None if tensor is None else tuple(tensor.shape)


def _check_tensors(sampled: Tensor, tensors: Mapping[int, Tensor]) -> None:
    for slot, tensor in tensors.items():
        if tensor.shape != sampled.shape:
            raise WrongInputError(f"tensor operand {slot} is {_shape(tensor)}; the output's shape is {_shape(sampled)}")


def _check_image(program: Program, image: Tensor, channels: Mapping[int, Tensor]) -> None:
    if image.dtype != program.source:
        raise WrongInputError(f"the image is {image.dtype}, the program was made for {program.source}: cast it")
    axes = (len(program.sampler.maps),) if isinstance(program.sampler, Axes) else (2, 3)
    if image.dim() - 2 not in axes:
        raise WrongInputError(f"the image is {_shape(image)}; it needs (N, C) and {axes[0]} spatial dimensions")
    for slot, vector in channels.items():
        if vector.shape != image.shape[1:2]:
            raise WrongInputError(f"vector operand {slot} is {_shape(vector)}; the image has {image.shape[1]} channels")
