"""The plain twins of the kernels: the same maps and warps by torch operations. They run where nothing can be built,
on any device."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from polyphase.cpu.layout import keeps_strides
from polyphase.sampling import pointwise, warps
from polyphase.sampling.apply import apply_taps
from polyphase.sampling.axis_maps import AxisMap
from polyphase.sampling.evaluate import evaluate
from polyphase.sampling.pointwise import Channel, Operand, operands_of
from polyphase.sampling.programs import Axes, Border, Program
from polyphase.sampling.taps import transpose
from polyphase.sampling.warps import Warp
from polyphase.sampling.windows import backward_arithmetic, eager_arithmetic


def resample(
    image: Tensor,
    maps: tuple[AxisMap, ...],
    *,
    transposed: bool = False,
    in_size: tuple[int, ...] = (),
    border: float | int | bool | complex = 0,
) -> Tensor:
    """The maps on the last dimensions, or their adjoint, which goes from the forward's output to its `in_size`."""
    arithmetic = backward_arithmetic(image.dtype) if transposed else eager_arithmetic(image.dtype)
    first, result = image.dim() - len(maps), image
    outside = torch.zeros((), dtype=torch.bool)
    for axis in reversed(range(len(maps))) if image.dtype == torch.uint8 else range(len(maps)):
        taps = evaluate(maps[axis], in_size[axis] if transposed else image.shape[first + axis], arithmetic)
        result = apply_taps(result, transpose(taps) if transposed else taps, first + axis)
        if taps.border is not None and not transposed:
            outside = outside | (taps.border != 0).reshape([-1] + [1] * (len(maps) - 1 - axis))
    if not keeps_strides(maps):
        memory_format = torch._prims_common.suggest_memory_format(image)
        output = torch.empty(result.shape, dtype=image.dtype, memory_format=memory_format)
    else:
        output = torch.empty_like(image)
    return output.copy_(result).masked_fill_(outside, border)


def run(program: Program, image: Tensor, *given: Tensor) -> Tensor:
    """A whole program. `given`: the coordinates of a warp, then operands as kernels take them."""
    sampler = program.sampler
    coordinates, operands = ((), given) if isinstance(sampler, Axes) else (given[:1], given[1:])
    leaves = operands_of(program.prologue) + operands_of(program.epilogue)
    places = [sorted({leaf.slot for leaf in leaves if isinstance(leaf, kind)}) for kind in (Channel, Operand)]
    channels = dict(zip(places[0], operands, strict=False))
    tensors = dict(zip(places[1], operands[len(channels) :], strict=True))
    axes = len(sampler.maps) if isinstance(sampler, Axes) else image.dim() - 2
    vectors = {slot: one.reshape([-1] + [1] * axes) for slot, one in channels.items()}
    loaded = pointwise.evaluate(program.prologue, image, vectors)
    outside = None
    if isinstance(sampler, Axes):
        adjoint = bool(sampler.adjoint_of)
        sampled = resample(loaded, sampler.maps, transposed=adjoint, in_size=sampler.adjoint_of)
        if program.borders:
            outside = _borders(sampler.maps, image.shape[image.dim() - axes :])
    else:
        sampled = warp(loaded, coordinates[0], sampler)
    sampled = _bordered(sampled, outside, program.borders, stored=False)
    result = pointwise.evaluate(program.epilogue, sampled, vectors, tensors)
    return _bordered(result, outside, program.borders, stored=True)


def _borders(maps: tuple[AxisMap, ...], in_size: Sequence[int]) -> Tensor:
    """The number of the border each pixel belongs to, 0 for none: the greatest of its axes."""
    numbers = torch.zeros((), dtype=torch.int64)
    for back, (one, n) in enumerate(zip(reversed(maps), reversed(in_size), strict=True)):
        border = evaluate(one, n, eager_arithmetic(torch.float32)).border
        if border is not None:
            numbers = torch.maximum(numbers, border.long().reshape([-1] + [1] * back))
    return numbers


def _bordered(image: Tensor, outside: Tensor | None, borders: Sequence[Border], stored: bool) -> Tensor:
    for number, border in enumerate(borders, start=1):
        if outside is not None and border.stored == stored:
            value = pointwise.scalar_tensor(border.value, image.dtype, image.device)
            image = torch.where(outside == number, value, image)
    return image


def warp(image: Tensor, coordinates: Tensor, sampler: Warp) -> Tensor:
    """`image` (N, C, spatial...) sampled at a grid (N, out..., axes), or where an affine matrix leads; contiguous."""
    wide = coordinates.float() if coordinates.dtype in (torch.float16, torch.bfloat16) else coordinates
    if sampler.source == "affine":
        wide = warps.affine_grid(wide, sampler.size, sampler.align_corners)
    result = warps.sample(image, wide, sampler.mode, sampler.padding, sampler.align_corners)
    if image.dtype == torch.uint8 and sampler.mode != "nearest":
        result = torch.clamp(torch.round(result), 0, 255).nan_to_num(0.0)
    return result.to(image.dtype).contiguous()


def warp_gradients(
    gradient: Tensor, image: Tensor, coordinates: Tensor, sampler: Warp, needed: tuple[bool, bool]
) -> tuple[Tensor | None, Tensor | None]:
    """Of the image and of the coordinates, None where not needed."""
    with torch.enable_grad():
        leaves = [one.detach().requires_grad_(need) for one, need in zip((image, coordinates), needed, strict=True)]
        output = warp(leaves[0], leaves[1], sampler)
        wanted = [leaf for leaf in leaves if leaf.requires_grad]
        found = list(torch.autograd.grad(output, wanted, gradient, materialize_grads=True))
    return found.pop(0) if needed[0] else None, found.pop(0) if needed[1] else None
