"""The tables of an axis on a device: windows of taps, or lists of them, made on the host and kept.

A table is made once for a map, a size and the arithmetic of a dtype, by the same torch operations that the reference
uses, and found again by these.
"""

from __future__ import annotations

import enum
import functools
import math
import struct
from dataclasses import dataclass, replace
from typing import ClassVar, TypeAlias

import torch
from torch import Tensor

from polyphase.cuda.memory import DeviceMemory, on_device
from polyphase.kernels.devices import RULES
from polyphase.sampling.axis_maps import AxisMap, AxisPath
from polyphase.sampling.evaluate import evaluate
from polyphase.sampling.integers import SUMMED_IN
from polyphase.sampling.steps import Resize, Step
from polyphase.sampling.taps import Taps
from polyphase.sampling.windows import backward_arithmetic, eager_arithmetic

#: Windows may be so many times as wide as the taps in them; beyond that, taps are listed.
SPARSE = 4

#: `TapRecipe` of tap_maker.h; and what a table that is made by it has before its first row, for the precision.
RECIPE_BYTES = 14 * 8
BEFORE_TABLE = 16
#: Outputs of a group, and bytes of a matrix of their weights: weight_matrices.h.
GROUP, MATRIX_BYTES = 16, 1024


class Form(enum.IntEnum):
    """How a table lies in memory: `TableForm` of tap_maker.h."""

    WINDOWS = 0
    IN_FOURS = 1
    ALONG_X = 2
    ALONG_Y = 3


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

    def reversed(self) -> HostTable:
        """For outputs walked along backwards."""
        assert self.index is None, "lists are walked along as they are"
        flipped = [None if one is None else _turned(one) for one in (self.first, self.weight, self.border)]
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


@dataclass(slots=True, eq=False)  # not frozen: there are two for every new size
class MadeTable:
    """Windows that are made on the device, by `TapRecipe` of tap_maker.h, which says what the numbers are."""

    in_size: int
    crop_first: int
    direction: int
    cropped: int
    resized: int
    cubic: bool
    begin: int
    step: int
    out_size: int
    taps: int
    quantised: bool
    form: Form = Form.WINDOWS
    index: ClassVar[None] = None
    border: ClassVar[None] = None
    has_weights: ClassVar[bool] = True

    @property
    def precision(self) -> int:
        """The table has it; matrices have 16 bits."""
        if self.in_matrices:
            return 16
        return -1 if self.quantised else 0

    @property
    def in_matrices(self) -> bool:
        return self.form in (Form.ALONG_X, Form.ALONG_Y)

    @property
    def ascends(self) -> bool:
        return self.direction * self.step > 0

    @property
    def descends(self) -> bool:
        return not self.ascends

    def reversed(self) -> MadeTable:
        return replace(self, begin=self.begin + self.step * (self.out_size - 1), step=-self.step)

    def widened(self, taps: int) -> MadeTable:
        return self if taps == self.taps else replace(self, taps=taps)

    @property
    def nbytes(self) -> int:
        if self.in_matrices:
            return matrix_bytes(self.out_size, self.taps)
        return table_bytes(self.out_size, self.taps * (2 if self.form is Form.IN_FOURS else 4))

    def addresses(self, at: int) -> tuple[int, int]:
        """Of the firsts and the weights, where the table lies at an address."""
        return at + BEFORE_TABLE, at + bytes_before_weights(self.out_size)

    def packed(self, at: int) -> bytes:
        """What makes it there."""
        numbers = (self.in_size, self.crop_first, self.direction, self.cropped, self.resized, self.cubic, self.begin)
        rest = (self.step, self.out_size, self.taps, self.quantised, self.form, *self.addresses(at))
        return struct.pack("=14q", *numbers, *rest)


def bytes_before_weights(out_size: int) -> int:
    return BEFORE_TABLE + (4 * out_size + 15) // 16 * 16


def table_bytes(out_size: int, bytes_of_row: int) -> int:
    """Of a table that is made on the device; `bytes_of_row`: of the weights of an output."""
    return bytes_before_weights(out_size) + (out_size * bytes_of_row + 15) // 16 * 16


def matrix_bytes(out_size: int, matrices: int) -> int:
    """Of one whose groups of outputs have so many matrices; what groups read takes no more room than the firsts."""
    return bytes_before_weights(out_size) + -(-out_size // GROUP) * matrices * MATRIX_BYTES


Table: TypeAlias = "HostTable | MadeTable"
Steps: TypeAlias = tuple[Step, ...]


def most_taps(in_size: int, out_size: int, cubic: bool) -> int:
    """Of an antialiased window. It begins and ends at whole numbers: rounding may move either by one, where the support
    is close to one."""
    return int((4 if cubic else 2) * max(in_size / out_size, 1.0) + 1e-4) + 1


def made_table(steps: Steps, in_size: int, dtype: torch.dtype) -> MadeTable | None:
    """None for steps that the device makes no tables of, or whose windows are wider than the axis."""
    path, resize = AxisPath.of(steps, in_size), next((one for one in steps if isinstance(one, Resize)), None)
    if path is None or resize is None or resize.filter not in ("bilinear", "bicubic"):
        return None
    if dtype == torch.float64 or dtype in SUMMED_IN:
        return None
    if not resize.antialias or resize.scale is not None or resize.align_corners:
        return None
    cubic = resize.filter == "bicubic"
    taps = most_taps(path.cropped, path.resized, cubic)
    if taps > in_size:
        return None
    return MadeTable(in_size, *path[:4], cubic, *path[4:], taps, dtype == torch.uint8)


@functools.lru_cache(maxsize=1024)
def host_table(axis_map: AxisMap, in_size: int, dtype: torch.dtype, transposed: bool) -> HostTable:
    """`in_size`: of the map, also where its adjoint is wanted. `dtype`: what is sampled; its work dtype has weights."""
    arithmetic = (backward_arithmetic if transposed else eager_arithmetic)(dtype, RULES["cuda"])
    taps = evaluate(axis_map, in_size, arithmetic)
    if taps.weight is None and not transposed:
        return _moves(taps)
    return _windows_or_lists(_read(taps, transposed), _work(dtype))


def identity_table(size: int, dtype: torch.dtype) -> HostTable:
    """As windows of one tap of weight 1."""
    weight = torch.ones((size, 1), dtype=torch.int32 if dtype == torch.uint8 else _work(dtype))
    return HostTable(size, size, torch.arange(size, dtype=torch.int32), 1, weight)


def _work(dtype: torch.dtype) -> torch.dtype:
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
    ascending, descending = _turned(_turned(low).cummin(0).values), low.cummin(0).values
    for first in (ascending, descending):
        if bool((high - first < width).all()):
            return first
    return low


def progression(table: HostTable) -> tuple[int, int] | None:
    """Where output i is input begin + i * step and no more, as of flips and crops: begin and step."""
    if table.weight is not None or table.border is not None or table.index is not None:
        return None
    begin, step = int(table.first[0]), int(table.first[1] - table.first[0]) if table.out_size > 1 else 0
    return (begin, step) if torch.equal(table.first.long(), begin + step * torch.arange(table.out_size)) else None


def reach(table: Table, count: int) -> int:
    """Inputs that any `count` neighbouring outputs read from, at most."""
    if isinstance(table, MadeTable):
        return math.ceil((min(count, table.out_size) - 1) * table.cropped / table.resized) + 1 + table.taps
    return _reach(table.first.unfold(0, min(count, table.out_size), 1), table.taps)


def reach_of_groups(table: HostTable, count: int) -> int:
    """Likewise, of neighbours from a multiple of `count` on."""
    return _reach(_groups(table, count), table.taps)


def _reach(first: Tensor, taps: int) -> int:
    return int((first.amax(1) - first.amin(1)).max()) + taps


def _groups(table: HostTable, count: int) -> Tensor:
    """Where windows begin, by groups of outputs; the last one's stands for those that are not there."""
    return torch.cat((table.first, table.first[-1:].expand(-table.out_size % count))).view(-1, count)


def shared(table: HostTable, count: int, taps: int) -> HostTable:
    """`count` neighbouring outputs have one window of so many taps. Weights are there for whole groups."""
    assert table.weight is not None, "windows that are summed have weights"
    begin = _groups(table, count).amin(1).clamp(max=table.in_size - taps).repeat_interleave(count)
    first = begin[: table.out_size].contiguous()
    weight = torch.zeros((begin.shape[0], taps), dtype=table.weight.dtype)
    places = (table.first - first)[:, None] + torch.arange(table.taps)
    weight[: table.out_size].scatter_(1, places, table.weight)
    return replace(table, first=first, taps=taps, weight=weight)


@dataclass(frozen=True, eq=False)
class InStep:
    """Windows of neighbouring columns that lie alike in all groups, as those of a whole number of times the size do:
    kFirsts and kEdge of ring.h, the inputs of a group, what all groups' inner ones begin at a multiple of, and windows
    that lie so at the edges too, beyond which no input has a weight."""

    firsts: int
    edge: int
    inputs: int
    multiple: int
    table: HostTable


def in_step(table: HostTable, columns: int) -> InStep | None:
    if table.weight is None or table.index is not None or table.out_size % columns:
        return None
    groups = table.first.long().view(-1, columns)
    count = groups.shape[0]
    middle = groups[count // 2]
    within = middle - middle.amin()
    step = int((middle - groups[count // 2 - 1]).median()) if count > 1 else 0
    begin = middle.amin() + step * (torch.arange(count) - count // 2)
    first = (begin[:, None] + within).view(-1)
    places = (table.first - first)[:, None] + torch.arange(table.taps)
    inside = (places >= 0) & (places < table.taps)
    inputs = int(within.max()) + table.taps
    edge = max(0, int(-begin.amin()), int(begin.amax()) + inputs - table.in_size)
    if int(within.max()) > 15 or 2 * edge >= inputs or bool((table.weight[~inside] != 0).any()):
        return None
    weight = torch.zeros_like(table.weight)
    output, tap = inside.nonzero().unbind(1)
    weight[output, places[inside]] = table.weight[output, tap]
    firsts = sum(int(one) << 4 * i for i, one in enumerate(within))
    multiple = math.gcd(int(begin[0]) + edge, step)
    return InStep(firsts, edge, inputs, multiple, replace(table, first=first.to(torch.int32), weight=weight))


def _turned(table: Tensor) -> Tensor:
    """The last first. Not by torch.flip: under `accelerate()` that would be a call of ours."""
    return table[torch.arange(len(table) - 1, -1, -1)]


def words_in_fours(table: Table) -> int:
    """Of bytes, in a window that begins at a multiple of 4."""
    lead = 3 if isinstance(table, MadeTable) else int((table.first % 4).max())
    return (lead + table.taps + 3) // 4


def widened(table: Table, taps: int) -> Table:
    """The same by windows of so many taps, which the axis has."""
    if isinstance(table, MadeTable):
        return table.widened(taps)
    if taps == table.taps:
        return table
    assert table.weight is not None, "windows that are summed have weights"
    first = table.first.clamp(max=table.in_size - taps)
    weight = torch.zeros((table.out_size, taps), dtype=table.weight.dtype)
    weight.scatter_(1, (table.first - first)[:, None] + torch.arange(table.taps), table.weight)
    return replace(table, first=first, taps=taps, weight=weight)


def in_fours(table: Table, words: int) -> Table:
    """Quantised windows as byte_ring.h reads them: words from multiples of 4 on, of weights in pairs of 16 bits."""
    taps = 4 * words
    if isinstance(table, MadeTable):
        return replace(table, taps=taps, form=Form.IN_FOURS)
    assert table.weight is not None, "windows that are summed have weights"
    lead = (table.first % 4).to(torch.int64)
    weight = torch.zeros((table.out_size, taps), dtype=torch.int16)
    weight.scatter_(1, lead[:, None] + torch.arange(table.taps), table.weight.to(torch.int16))
    first = table.first - lead.to(torch.int32)
    return HostTable(
        table.in_size, table.out_size, first, taps, weight, None, table.border, table.precision, table.ascends
    )


def uploaded(device: int, *parts: Tensor | None) -> tuple[list[int], DeviceMemory | None]:
    """The addresses of tensors, one after the other in one piece of memory; 0 for None."""
    if all(one is None for one in parts):
        return [0] * len(parts), None
    sizes = [0 if one is None else (one.nbytes + 15) // 16 * 16 for one in parts]
    data = torch.zeros(max(sum(sizes), 16), dtype=torch.uint8)
    at, places = 0, []
    for one, size in zip(parts, sizes, strict=True):
        places.append(at)
        if one is not None and one.nbytes:
            data[at : at + one.nbytes] = one.contiguous().reshape(-1).view(torch.uint8)
        at += size
    memory = on_device(device, data)
    return [0 if one is None else memory.address + at for one, at in zip(parts, places, strict=True)], memory
