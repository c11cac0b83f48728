"""The taps of an axis as bytes: the tables that kernels read, to be had without launching one."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from polyphase.sampling.axis_maps import AxisMap
from polyphase.sampling.evaluate import evaluate
from polyphase.sampling.taps import transpose
from polyphase.sampling.windows import DeviceRules, backward_arithmetic, eager_arithmetic


@dataclass(frozen=True)
class TapBytes:
    """`Taps` of core/abi.h: output i is the sum over t in [begin[i], begin[i + 1]) of weight[t] * input[index[t]].

    begin, index, border: int32. weight: float64; integers over 2^precision where quantised. border: empty, or for each
    output 0 or the number of its constant border, which has no taps. index_only: every other output has one tap of
    weight 1.
    """

    in_size: int
    begin: bytes
    index: bytes
    weight: bytes
    border: bytes
    precision: int
    index_only: bool


def tap_bytes(
    axis_map: AxisMap, in_size: int, dtype: torch.dtype, rules: DeviceRules, transposed: bool = False
) -> TapBytes:
    """Makes taps by torch operations, for images of a dtype: the plain twin of what a wing makes in C++."""
    forward = evaluate(axis_map, in_size, (backward_arithmetic if transposed else eager_arithmetic)(dtype, rules))
    taps = transpose(forward) if transposed else forward
    index, border = taps.index, taps.border
    weight = torch.ones_like(index) if taps.weight is None else taps.weight
    reads = weight != 0
    if border is not None:
        reads = reads & (border == 0)
    outputs, read = reads.T.nonzero().unbind(1)  # by output, then by tap
    begin = torch.zeros(index.shape[1] + 1, dtype=torch.int64)
    begin[1:] = torch.bincount(outputs, minlength=index.shape[1]).cumsum(0)
    precision = 0 if taps.one is None else int(taps.one).bit_length() - 1
    one_each = bool(((begin.diff() == 1) | (torch.tensor(False) if border is None else border != 0)).all())
    return TapBytes(
        int(taps.in_size),
        _as_bytes(begin, torch.int32),
        _as_bytes(index[read, outputs], torch.int32),
        _as_bytes(weight[read, outputs], torch.float64),
        b"" if border is None else _as_bytes(border, torch.int32),
        precision,
        forward.weight is None and one_each,
    )


def _as_bytes(values: Tensor, dtype: torch.dtype) -> bytes:
    return bytes(values.to(dtype).contiguous().view(torch.uint8).tolist())
