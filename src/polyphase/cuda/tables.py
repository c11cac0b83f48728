"""The tables of an axis on a device: windows of taps, or lists of them, made on the host and kept.

A table is made once for a map, a size and the arithmetic of a dtype, and found again by these. The launcher makes it;
`plain_tables.py` has the twin, by the same torch operations that the reference uses.
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

from polyphase.cuda import packed_tables
from polyphase.cuda.packed_tables import PackedTable
from polyphase.cuda.plain_tables import HostTable, TableOnHost, plain_host_table, work_of
from polyphase.sampling.axis_maps import AxisMap, AxisPath
from polyphase.sampling.integers import SUMMED_IN
from polyphase.sampling.steps import Resize, Step

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


Table: TypeAlias = "TableOnHost | MadeTable"
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
def host_table(axis_map: AxisMap, in_size: int, dtype: torch.dtype, transposed: bool) -> TableOnHost:
    """`in_size`: of the map, also where its adjoint is wanted. `dtype`: what is sampled; its work dtype has weights."""
    made = packed_tables.made(axis_map, in_size, dtype, work_of(dtype), transposed=transposed)
    return made or plain_host_table(axis_map, in_size, dtype, transposed)


def identity_table(size: int, dtype: torch.dtype) -> TableOnHost:
    """As windows of one tap of weight 1."""
    if packed_tables.can_be_made():
        return packed_tables.identity(size, work_of(dtype))
    weight = torch.ones((size, 1), dtype=work_of(dtype), device="cpu")
    return HostTable(size, size, torch.arange(size, dtype=torch.int32, device="cpu"), 1, weight)


def progression(table: TableOnHost) -> tuple[int, int] | None:
    """Where output i is input begin + i * step and no more, as of flips and crops: begin and step."""
    if isinstance(table, PackedTable):
        return table.progression()
    if table.weight is not None or table.border is not None or table.index is not None:
        return None
    begin, step = int(table.first[0]), int(table.first[1] - table.first[0]) if table.out_size > 1 else 0
    return (begin, step) if torch.equal(table.first.long(), begin + step * torch.arange(table.out_size)) else None


def reach(table: Table, count: int) -> int:
    """Inputs that any `count` neighbouring outputs read from, at most."""
    if isinstance(table, MadeTable):
        return math.ceil((min(count, table.out_size) - 1) * table.cropped / table.resized) + 1 + table.taps
    if isinstance(table, PackedTable):
        return table.spread(count, grouped=False) + table.taps
    return _reach(table.first.unfold(0, min(count, table.out_size), 1), table.taps)


def reach_of_groups(table: TableOnHost, count: int) -> int:
    """Likewise, of neighbours from a multiple of `count` on."""
    if isinstance(table, PackedTable):
        return table.spread(count, grouped=True) + table.taps
    return _reach(_groups(table, count), table.taps)


def _reach(first: Tensor, taps: int) -> int:
    return int((first.amax(1) - first.amin(1)).max()) + taps


def _groups(table: HostTable, count: int) -> Tensor:
    """Where windows begin, by groups of outputs; the last one's stands for those that are not there."""
    return torch.cat((table.first, table.first[-1:].expand(-table.out_size % count))).view(-1, count)


def shared(table: TableOnHost, count: int, taps: int) -> TableOnHost:
    """`count` neighbouring outputs have one window of so many taps. Weights are there for whole groups."""
    if isinstance(table, PackedTable):
        return table.shared(count, taps)
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
    table: TableOnHost


def in_step(table: TableOnHost, columns: int) -> InStep | None:
    if table.weight is None or table.index is not None or table.out_size % columns:
        return None
    if isinstance(table, PackedTable):
        found = table.in_step(columns)
        return None if found is None else InStep(*found)
    return _in_step(table, columns)


def _in_step(table: HostTable, columns: int) -> InStep | None:
    assert table.weight is not None, "what was asked before"
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


def words_in_fours(table: Table) -> int:
    """Of bytes, in a window that begins at a multiple of 4."""
    if isinstance(table, MadeTable):
        lead = 3
    else:
        lead = table.lead() if isinstance(table, PackedTable) else int((table.first % 4).max())
    return (lead + table.taps + 3) // 4


def widened(table: Table, taps: int) -> Table:
    """The same by windows of so many taps, which the axis has."""
    if isinstance(table, MadeTable):
        return table.widened(taps)
    if taps == table.taps:
        return table
    if isinstance(table, PackedTable):
        return table.shared(1, taps)
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
    if isinstance(table, PackedTable):
        return table.in_fours(taps)
    assert table.weight is not None, "windows that are summed have weights"
    lead = (table.first % 4).to(torch.int64)
    weight = torch.zeros((table.out_size, taps), dtype=torch.int16)
    weight.scatter_(1, lead[:, None] + torch.arange(table.taps), table.weight.to(torch.int16))
    first = table.first - lead.to(torch.int32)
    return HostTable(
        table.in_size, table.out_size, first, taps, weight, None, table.border, table.precision, table.ascends
    )
