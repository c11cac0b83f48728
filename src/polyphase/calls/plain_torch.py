"""The plain twins of the kernels: the same maps and warps by torch operations. They run where no kernel can be had, on
any device."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from polyphase.calls.rules import rules_of
from polyphase.records import operands
from polyphase.records.facts import HALF
from polyphase.sampling import formulas, pointwise, warps
from polyphase.sampling.apply import apply_axes, bordered
from polyphase.sampling.integers import SUMMED_IN, stored
from polyphase.sampling.programs import Axes, Program, moves_runs
from polyphase.sampling.steps import Flip, Pad, Slice
from polyphase.sampling.warps import Warp
from polyphase.sampling.windows import backward_arithmetic, eager_arithmetic


def run(program: Program, image: Tensor, *given: Tensor) -> Tensor:
    """A whole program. `given`: the coordinates of a warp, then operands as kernels take them. Where its elements lie
    is not the program's."""
    sampler = program.sampler
    if moves_runs(program):
        return _move_runs(program, image)
    coordinates, others = ((), given) if isinstance(sampler, Axes) else (given[:1], given[1:])
    split = len(others) - operands.fields_of(sampler)
    others, fields = others[:split], others[split:]
    channels, tensors = operands.by_slot(program, others)
    axes = program.axes(image.dim())
    vectors = {slot: one.reshape([-1] + [1] * axes) for slot, one in channels.items()}
    loaded = pointwise.evaluate(program.prologue, image, vectors)
    if isinstance(sampler, Axes):
        sampled, border = _sample(loaded, sampler)
    else:
        sampled, border = warp(loaded, coordinates[0], sampler, *fields, settled=True), None
    sampled = bordered(sampled, border, program.borders, stored=False)
    result = pointwise.evaluate(program.epilogue, sampled, vectors, tensors)
    return bordered(result, border, program.borders, stored=True)


def _move_runs(program: Program, image: Tensor) -> Tensor:
    """Moves runs of pixels by torch's own functions: nothing is as long as an axis."""
    assert isinstance(program.sampler, Axes), "a warp moves no runs"
    first = image.dim() - len(program.sampler.maps)
    for dim, one in enumerate(program.sampler.maps, start=first):
        for step in one.steps:
            match step:
                case Flip():
                    image = image.flip(dim)
                case Slice(start, stop, stride):
                    image = image[(slice(None),) * dim + (slice(start, stop, stride),)]
                case Pad(before, after):
                    amounts = [0, 0] * (image.dim() - 1 - dim) + [before, after]
                    image = torch.constant_pad_nd(image, amounts, program.borders[0].value)
    return image


def _sample(image: Tensor, axes: Axes) -> tuple[Tensor, Tensor | None]:
    arithmetic = (backward_arithmetic if axes.transposed else eager_arithmetic)(image.dtype, rules_of(image.device))
    wide = image.to(SUMMED_IN.get(image.dtype, image.dtype)) if axes.may_sum() else image
    result, border = apply_axes(wide, axes, arithmetic, image.dtype)
    return stored(result, image.dtype), border


def warp(image: Tensor, coordinates: Tensor, sampler: Warp, *fields: Tensor, settled: bool = False) -> Tensor:
    """`image` (N, C, spatial...) sampled at a grid (N, out..., axes), or where a matrix or a formula leads; contiguous.

    `settled`: as kernels sample. Derivatives are of what is not: with respect to positions, settled ones have none.
    """
    wide = coordinates.float() if coordinates.dtype in HALF else coordinates
    precision = wide.dtype if settled else None
    if SUMMED_IN.get(image.dtype) == torch.float64 and sampler.mode != "nearest":
        wide = wide.double()
    if sampler.source == "affine":
        wide = warps.affine_grid(wide, sampler.size, sampler.align_corners)
    elif sampler.formula is not None:
        wide = formulas.coordinates(sampler.formula, sampler.size, wide, fields, sampler.align_corners)
    rules = sampler.mode, sampler.taps_padding, sampler.align_corners
    result = warps.sample(image, wide, *rules, settled=precision, fill=sampler.fill, fill_rule=sampler.fill_rule)
    return stored(result, image.dtype).contiguous()


def warp_gradients(
    gradient: Tensor,
    image: Tensor,
    coordinates: Tensor,
    sampler: Warp,
    needed: tuple[bool, bool],
    fields: Sequence[Tensor] = (),
) -> tuple[Tensor | None, ...]:
    """Computes the gradients of the image, of the coordinates and of fields, None where not needed."""
    # Unlike torch.autograd.grad, this records below autograd too, where `accelerate()` is asked for gradients.
    with torch.enable_grad():
        given = [one.detach() for one in (image, coordinates, *fields)]
        _, of_all = torch.func.vjp(lambda one, at, *fields: warp(one, at, sampler, *fields), *given)
        of_image, *others = of_all(gradient)
    return of_image.contiguous() if needed[0] else None, *(one if needed[1] else None for one in others)
