"""The plain twin of the kernels: the same maps by torch operations. Runs where nothing can be built, on any device."""

from __future__ import annotations

import torch
from torch import Tensor

from polyphase.cpu.layout import keeps_strides
from polyphase.sampling.apply import apply_taps
from polyphase.sampling.axis_maps import AxisMap
from polyphase.sampling.evaluate import evaluate
from polyphase.sampling.taps import transpose
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
