"""Taps: the banded matrix of one axis, as tables.

    out[i] = sum over k of weight[k, i] * input[index[k, i]]

The tap number k comes first, the output index i last: neighbouring outputs then lie side by side in memory, which is
the order in which both a vector unit and Inductor want to read them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from polyphase.sampling.core_aten import arange
from polyphase.sampling.steps import Size

#: ATen's limit for the number of bits after the binary point of a 16 bit weight.
MAX_PRECISION = 22


@dataclass(frozen=True, eq=False)
class Taps:
    """Invariants: `index` is within the axis, even where the weight is 0; a tap of weight 0 touches no value.

    weight: (K, out) in float32 or float64; int32 when quantised;
            None for one tap of weight 1 per output, which moves values of any dtype untouched.
    one:    what quantised weights stand over, a power of two (0-dim int32).
    border: (out,) 0 where the output is sampled, n where it is the program's n-th constant border.
    """

    in_size: Size
    index: Tensor
    weight: Tensor | None = None
    one: Tensor | None = None
    border: Tensor | None = None

    @property
    def out_size(self) -> Size:
        return self.index.shape[1]

    def rows(self, index: Tensor) -> Taps:
        """The taps followed by an index-only step: output i is what output `index[i]` was."""
        return replace(
            self,
            index=self.index[:, index],
            weight=None if self.weight is None else self.weight[:, index],
            border=None if self.border is None else self.border[index],
        )

    def reading(self, index: Tensor, in_size: Size) -> Taps:
        """The taps preceded by an index-only step: what they read as pixel j is pixel `index[j]` of the input."""
        return replace(self, index=index[self.index], in_size=in_size)

    def dense(self) -> Tensor:
        """The matrix itself, (out, in) in float64; rows of a constant border are zero."""
        weight = torch.ones_like(self.index) if self.weight is None else self.weight
        weight = weight.double()
        if self.one is not None:
            weight = weight / self.one
        if self.border is not None:
            weight = weight * (self.border == 0)
        matrix = weight.new_zeros(int(self.out_size), int(self.in_size))
        output = arange(matrix.shape[0], device=self.index.device).expand_as(self.index)
        return matrix.index_put_((output, self.index), weight, accumulate=True)


def identity(size: Size, device: torch.device | None = None) -> Taps:
    return Taps(size, arange(size, device=device)[None])


def quantise(taps: Taps, peak: Tensor | None = None) -> Taps:
    """16 bit weights as ATen makes them for uint8: one precision for the whole axis, the most bits after the binary
    point that its largest weight, `peak`, allows. So this comes before any crop or flip: the rows left would allow
    another. ATen's largest weight may be one that later taps, folded onto the same pixel, made smaller again."""
    assert taps.weight is not None
    assert taps.weight.dtype == torch.float64
    bits = arange(MAX_PRECISION, start=1, dtype=torch.float64, device=taps.weight.device)
    peak = taps.weight.amax() if peak is None else peak
    fits = torch.floor(0.5 + peak * torch.pow(2.0, bits)) < 2**15
    one = torch.pow(2.0, fits.sum(0).double())
    scaled = taps.weight * one
    rounded = torch.where(scaled < 0, scaled - 0.5, scaled + 0.5).to(torch.int32)  # half away from zero
    return replace(taps, weight=rounded, one=one.to(torch.int32))


def transpose(taps: Taps) -> Taps:
    """The adjoint map, as gather: input pixel j becomes an output, with one tap for each output that read it.

    Rows differ in length (1 to 65 for a replicate pad of 64); the short ones end in taps of weight 0. Works for any
    taps but needs their values; `windows.transposed_taps` is its twin that can be traced with symbolic sizes.
    """
    assert taps.one is None, "the adjoint of rounded arithmetic is not defined: transpose before quantising"
    matrix = taps.dense().T
    used = matrix != 0
    length = int(used.sum(1).max()) if matrix.numel() else 0
    order = torch.argsort(used.to(torch.int8), dim=1, descending=True, stable=True)[:, :length]
    weight = torch.take_along_dim(matrix, order, dim=1)
    dtype = torch.float64 if taps.weight is None else taps.weight.dtype
    return Taps(taps.out_size, order.T.contiguous(), weight.T.contiguous().to(dtype))
