"""The plain twins of the kernels: the same maps and warps by torch operations. They run where nothing can be built,
on any device."""

from __future__ import annotations

import torch
from torch import Tensor

from polyphase.cpu.layout import keeps_strides
from polyphase.sampling import warps
from polyphase.sampling.apply import apply_taps
from polyphase.sampling.axis_maps import AxisMap
from polyphase.sampling.evaluate import evaluate
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
