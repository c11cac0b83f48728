"""Tables of axes as bytes, made and changed by the launcher, in microseconds. `plain_tables.py` has their twin.

Weights follow CUDA's eager where the CPU's tables follow the CPU's (`launch/device_tables.h`)."""

from __future__ import annotations

import array
import struct
from dataclasses import dataclass, replace

import torch

from polyphase.cuda import launcher
from polyphase.kernels.recipes import encode
from polyphase.sampling.axis_maps import AxisMap
from polyphase.sampling.integers import SUMMED_IN

#: `Arithmetic` and `WeightType` of device_tables.h.
_BYTES, _FLOAT32, _FLOAT64 = range(3)
_WEIGHT_TYPES = {torch.int32: 0, torch.float32: 1, torch.float64: 2}
_ONES = {torch.int32: struct.pack("=i", 1), torch.float32: struct.pack("=f", 1), torch.float64: struct.pack("=d", 1)}


@dataclass(frozen=True, eq=False, slots=True)
class PackedTable:
    """As `plain_tables.HostTable` has it: `first`, `index` and `border` are int32, `weight` of `work`."""

    in_size: int
    out_size: int
    first: bytes
    taps: int
    weight: bytes | None
    index: bytes | None
    border: bytes | None
    precision: int
    ascends: bool
    descends: bool
    work: torch.dtype

    @property
    def has_weights(self) -> bool:
        return self.weight is not None

    def parts(self) -> tuple[bytes | None, ...]:
        return self.first, self.index, self.weight, self.border

    def reversed(self) -> PackedTable:
        assert self.weight is not None, "windows that are summed have weights"
        functions = launcher.table_functions()
        first, weight = functions.reverse(self.first, self.weight, self.taps, self.work.itemsize)
        border = None if self.border is None else functions.reverse(self.border, b"", 0, 1)[0]
        ascends, descends = self.descends, self.ascends
        return replace(self, first=first, weight=weight, border=border, ascends=ascends, descends=descends)

    def weighted(self, dtype: torch.dtype) -> PackedTable:
        """With a weight of 1 for every output."""
        return replace(self, weight=_ONES[dtype] * self.out_size, work=dtype)

    def progression(self) -> tuple[int, int] | None:
        if self.weight is not None or self.border is not None:
            return None
        return launcher.table_functions().progression(self.first)

    def spread(self, count: int, *, grouped: bool) -> int:
        return launcher.table_functions().spread(self.first, count, grouped)

    def shared(self, count: int, taps: int) -> PackedTable:
        """`count` neighbouring outputs have one window of so many taps."""
        assert self.weight is not None, "windows that are summed have weights"
        widen = launcher.table_functions().widen
        first, weight = widen(self.first, self.weight, self.in_size, self.taps, self.work.itemsize, count, taps)
        return replace(self, first=first, taps=taps, weight=weight)

    def lead(self) -> int:
        """How far behind a multiple of 4 a window begins at most."""
        return max([one % 4 for one in array.array("i", self.first)])

    def in_step(self, columns: int) -> tuple[int, int, int, int, PackedTable] | None:
        """What `tables.InStep` has."""
        assert self.weight is not None, "windows that are summed have weights"
        find = launcher.table_functions().in_step
        found = find(self.first, self.weight, self.in_size, self.taps, self.work.itemsize, columns)
        if found is None:
            return None
        firsts, edge, inputs, multiple, first, weight = found
        return firsts, edge, inputs, multiple, replace(self, first=first, weight=weight)

    def in_fours(self, taps: int) -> PackedTable:
        assert self.weight is not None, "windows that are summed have weights"
        first, weight = launcher.table_functions().in_fours(self.first, self.weight, self.taps, taps)
        return replace(self, first=first, taps=taps, weight=weight, work=torch.int16, descends=False)


def can_be_made() -> bool:
    """Whether there is a launcher."""
    return launcher.has_table_functions()


def made(
    axis_map: AxisMap, in_size: int, dtype: torch.dtype, work: torch.dtype, *, transposed: bool
) -> PackedTable | None:
    """`work`: of the weights. None where there is no launcher, and for adjoints of rounded sums."""
    if not can_be_made() or (transposed and dtype == torch.uint8):
        return None
    arithmetic = _FLOAT32
    if dtype == torch.uint8:
        arithmetic = _BYTES
    elif dtype == torch.float64 or dtype in SUMMED_IN:
        arithmetic = _FLOAT64
    table = launcher.table_functions().table
    return PackedTable(*table(encode(axis_map), in_size, transposed, arithmetic, _WEIGHT_TYPES[work]), work)


def identity(size: int, work: torch.dtype) -> PackedTable:
    """As windows of one tap of weight 1."""
    first = launcher.table_functions().row_offsets(None, None, size, 1, 1, 0, 0)
    return PackedTable(size, size, first, 1, _ONES[work] * size, None, None, 0, True, False, work)


def row_offsets(
    table: PackedTable | None, out_size: int, in_stride: int, channels: int, channel_stride: int, columns: int
) -> bytes:
    """Where a row has what is moved, in elements, -n for border n; `columns`: 0, or of groups whose runs follow."""
    first, border = (None, None) if table is None else (table.first, table.border)
    return launcher.table_functions().row_offsets(first, border, out_size, in_stride, channels, channel_stride, columns)
