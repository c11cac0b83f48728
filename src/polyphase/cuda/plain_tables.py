"""Tables of axes by the torch operations that the reference uses: the twin of what the launcher makes
(`packed_tables.py`)."""

from __future__ import annotations

import ctypes
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import TypeAlias

import torch
from torch import Tensor

from polyphase.cuda import packed_tables
from polyphase.cuda.packed_tables import PackedTable
from polyphase.kernels.devices import RULES
from polyphase.sampling.axis_maps import AxisMap
from polyphase.sampling.evaluate import evaluate
from polyphase.sampling.integers import SUMMED_IN
from polyphase.sampling.taps import Taps
from polyphase.sampling.windows import backward_arithmetic, eager_arithmetic

#: Windows may be so many times as wide as the taps in them; beyond that, taps are listed.
SPARSE = 4


@dataclass(frozen=True, eq=False)
class HostTable:
    """Of one axis, on the host. `weight` is None where every output that is no border has one tap of weight 1.

    Windows: `first` (out), weights (out, taps), 0 where an input is not read; every window lies inside the input.
    Lists: `index` is not None; `first` (out + 1) says where an output's taps begin, weights (taps of all).
    ascends: windows begin at inputs that do not descend; descends: that do not ascend.
    """

    in_size: int
    out_size: int
    first: Tensor
    taps: int
    weight: Tensor | None = None
    index: Tensor | None = None
    border: Tensor | None = None
    precision: int = 0
    ascends: bool = True
    descends: bool = False

    @property
    def has_weights(self) -> bool:
        return self.weight is not None

    def parts(self) -> tuple[bytes | None, ...]:
        """As bytes: first, index, weight and border."""
        parts = (self.first, self.index, self.weight, self.border)
        return tuple([None if one is None else tensor_bytes(one) for one in parts])

    def weighted(self, dtype: torch.dtype) -> HostTable:
        """With a weight of 1 for every output."""
        return replace(self, weight=torch.ones((self.out_size, 1), dtype=dtype))

    def reversed(self) -> HostTable:
        """For outputs walked along backwards."""
        assert self.index is None, "lists are walked along as they are"
        flipped = [None if one is None else turned(one) for one in (self.first, self.weight, self.border)]
        first, weight, border = flipped
        assert first is not None
        return HostTable(
            self.in_size,
            self.out_size,
            first,
            self.taps,
            weight,
            None,
            border,
            self.precision,
            self.descends,
            self.ascends,
        )


TableOnHost: TypeAlias = "HostTable | PackedTable"


def on_the_host() -> AbstractContextManager[object]:
    """Where torch makes tables, it does so on the host, whatever the user's default is. All else does without: under
    that, every call of torch takes some microseconds longer."""
    return nullcontext() if packed_tables.can_be_made() else torch.device("cpu")


def plain_host_table(axis_map: AxisMap, in_size: int, dtype: torch.dtype, transposed: bool) -> HostTable:
    arithmetic = (backward_arithmetic if transposed else eager_arithmetic)(dtype, RULES["cuda"])
    with torch.device("cpu"):  # whatever the user's default is
        taps = evaluate(axis_map, in_size, arithmetic)
        if taps.weight is None and not transposed:
            return _moves(taps)
        return _windows_or_lists(_read(taps, transposed), work_of(dtype))


def unpacked(table: TableOnHost) -> HostTable:
    if isinstance(table, HostTable):
        return table
    first, index, border = (_tensor(one, torch.int32) for one in (table.first, table.index, table.border))
    weight = _tensor(table.weight, table.work)
    assert first is not None
    if weight is not None and index is None:
        weight = weight.view(-1, table.taps)
    order = (table.precision, table.ascends, table.descends)
    return HostTable(table.in_size, table.out_size, first, table.taps, weight, index, border, *order)


def _tensor(data: bytes | None, dtype: torch.dtype) -> Tensor | None:
    if not data:
        return None if data is None else torch.empty(0, dtype=dtype, device="cpu")
    return torch.frombuffer(bytearray(data), dtype=dtype)


def tensor_bytes(tensor: Tensor) -> bytes:
    one = tensor.contiguous()
    return ctypes.string_at(one.data_ptr(), one.nbytes)


def work_of(dtype: torch.dtype) -> torch.dtype:
    if dtype == torch.uint8:
        return torch.int32
    return torch.float64 if dtype == torch.float64 else SUMMED_IN.get(dtype, torch.float32)


def _moves(taps: Taps) -> HostTable:
    first = taps.index[0] if taps.index.shape[0] else torch.zeros(taps.index.shape[1], dtype=torch.int64)
    steps = first.diff()
    return HostTable(
        int(taps.in_size),
        first.shape[0],
        first.to(torch.int32),
        1,
        border=_border(taps),
        ascends=bool((steps >= 0).all()),
        descends=bool((steps <= 0).all()),
    )


def _border(taps: Taps) -> Tensor | None:
    return None if taps.border is None or not bool(taps.border.any()) else taps.border.to(torch.int32)


@dataclass(frozen=True, eq=False)
class _Read:
    """What is read: by output, then by input. precision: of quantised weights."""

    in_size: int
    out_size: int
    output: Tensor
    index: Tensor
    weight: Tensor
    border: Tensor | None
    precision: int


def _read(taps: Taps, transposed: bool) -> _Read:
    weight = torch.ones_like(taps.index, dtype=torch.float64) if taps.weight is None else taps.weight
    reads = weight != 0
    if taps.border is not None:
        reads = reads & (taps.border == 0)
    output, tap = reads.T.nonzero().unbind(1)
    index, weight = taps.index[tap, output], weight[tap, output]
    sizes = int(taps.in_size), taps.index.shape[1]
    border = _border(taps)
    if transposed:
        output, index, sizes, border = index, output, (sizes[1], sizes[0]), None
    order = torch.argsort(output * sizes[0] + index)
    output, index, weight = output[order], index[order], weight[order]
    repeated = (output.diff() == 0) & (index.diff() == 0)
    if bool(repeated.any()):  # taps that were folded onto one pixel
        keys, where = torch.unique_consecutive(torch.stack((output, index)), dim=1, return_inverse=True)
        output, index = keys.unbind(0)
        weight = torch.zeros(keys.shape[1], dtype=weight.dtype).index_add_(0, where, weight)
    precision = 0 if taps.one is None else int(taps.one).bit_length() - 1
    return _Read(*sizes, output, index, weight, border, precision)


def _windows_or_lists(read: _Read, work: torch.dtype) -> HostTable:
    outputs = read.out_size
    count = torch.bincount(read.output, minlength=outputs)
    begin = torch.zeros(outputs + 1, dtype=torch.int64)
    torch.cumsum(count, 0, out=begin[1:])
    has = count > 0
    if not bool(has.any()):
        first = torch.zeros(outputs, dtype=torch.int32)
        weight = torch.zeros((outputs, 1), dtype=work)
        return HostTable(read.in_size, outputs, first, 1, weight, border=read.border, precision=read.precision)
    low, high = torch.zeros(outputs, dtype=torch.int64), torch.zeros(outputs, dtype=torch.int64)
    low[has], high[has] = read.index[begin[:-1][has]], read.index[begin[1:][has] - 1]
    width = int((high - low)[has].max()) + 1
    if width > SPARSE * int(count.max()) + SPARSE:
        return HostTable(
            read.in_size,
            outputs,
            begin.to(torch.int32),
            0,
            read.weight.to(work),
            read.index.to(torch.int32),
            read.border,
            read.precision,
            ascends=False,
        )
    # An output without taps begins where its neighbour does, so that windows still ascend or descend.
    known = has.nonzero()[:, 0]
    nearest = known[(torch.searchsorted(known, torch.arange(outputs), right=True) - 1).clamp(min=0)]
    first = _in_order(low[nearest], high[nearest], width).clamp(max=read.in_size - width)
    weight = torch.zeros((outputs, width), dtype=work)
    weight[read.output, read.index - first[read.output]] = read.weight.to(work)
    steps = first.diff()
    return HostTable(
        read.in_size,
        outputs,
        first.to(torch.int32),
        width,
        weight,
        None,
        read.border,
        read.precision,
        bool((steps >= 0).all()),
        bool((steps <= 0).all()),
    )


def _in_order(low: Tensor, high: Tensor, width: int) -> Tensor:
    """Where windows of a width begin: where an output's first tap has no weight, earlier, so that they ascend or
    descend; where that would take wider windows, at the first tap."""
    ascending, descending = turned(turned(low).cummin(0).values), low.cummin(0).values
    for first in (ascending, descending):
        if bool((high - first < width).all()):
            return first
    return low


def turned(table: Tensor) -> Tensor:
    """The last first. Not by torch.flip: under `accelerate()` that would be a call of ours."""
    return table[torch.arange(len(table) - 1, -1, -1)]
