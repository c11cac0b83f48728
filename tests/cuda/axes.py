"""Tables of one axis, as kernels read them."""

from __future__ import annotations

import struct
from typing import NamedTuple

import torch
from torch import Tensor

from polyphase.cuda.calls import AXIS_NUMBERS
from polyphase.cuda.made_tables import BEFORE_TABLE, RECIPE_NUMBERS, bytes_before_weights
from polyphase.cuda.maps import Arranged, PreparedMaps
from polyphase.records import checking
from polyphase.records.facts import Facts
from polyphase.records.layout import dense_strides
from polyphase.sampling.axis_maps import AxisMap
from polyphase.sampling.integers import SUMMED_IN
from polyphase.sampling.programs import Axes, Border, Program, maps_program
from polyphase.sampling.steps import Pad
from tests.cuda import host


class Table(NamedTuple):
    """`Axis` of call.h, its tables as tensors. listed: inputs, where taps are no windows."""

    in_size: int
    out_size: int
    first: Tensor
    taps: int
    weight: Tensor | None
    listed: Tensor | None
    border: Tensor | None
    precision: int

    def dense(self) -> Tensor:
        """The matrix."""
        matrix = torch.zeros(self.out_size, self.in_size, dtype=torch.float64)
        if self.listed is not None:
            assert self.weight is not None
            output = torch.repeat_interleave(torch.arange(self.out_size), self.first.diff())
            return matrix.index_put_((output, self.listed.long()), self.weight.double(), accumulate=True)
        weight = torch.ones(self.out_size, 1) if self.weight is None else self.weight.view(-1, self.taps)
        if self.border is not None and self.weight is None:
            weight = weight * (self.border == 0)[:, None]
        places = self.first.long()[:, None] + torch.arange(self.taps)
        assert int(places.min()) >= 0
        assert int(places.max()) < self.in_size
        return matrix.scatter_add_(1, places, weight.double())


def weights_of(dtype: torch.dtype) -> torch.dtype:
    if dtype == torch.uint8:
        return torch.int32
    return torch.float64 if dtype == torch.float64 else SUMMED_IN.get(dtype, torch.float32)


def arranged(maps: tuple[AxisMap, ...], shape: tuple[int, ...], dtype: torch.dtype, *, made: bool = False) -> Arranged:
    record = checking.record_of(maps_program(dtype, maps), [_facts(shape, dtype)])
    return Arranged(record, True, True, host.ARCHITECTURE, makes_tables=made)


def _facts(shape: tuple[int, ...], dtype: torch.dtype) -> Facts:
    return Facts(dtype, shape, dense_strides(shape, False), host.CUDA)


def host_table(axis_map: AxisMap, in_size: int, dtype: torch.dtype, *, transposed: bool = False) -> Table:
    """`in_size`: of the map, also where its adjoint is wanted."""
    most = max([one.border for one in axis_map.steps if isinstance(one, Pad)], default=0)
    borders = tuple(Border(float(n)) for n in range(most))
    axes = Axes((axis_map,), (in_size,) if transposed else ())
    program = Program(dtype, axes, borders=borders)
    size = axis_map.output_size(in_size) if transposed else in_size
    record = checking.record_of(program, [_facts((int(size),), dtype)])
    call = Arranged(record, False, False, host.ARCHITECTURE)
    return table_of(call.by(call.way_by("General")), "x", weights_of(dtype))


def table_of(call: PreparedMaps, axis: str, weights: torch.dtype) -> Table:
    in_size, out_size, *_, taps, precision = call.numbers(axis, AXIS_NUMBERS)
    begin = call.shape.places()[axis] + 32
    dtypes = (torch.int32, torch.int32, weights, torch.int32)
    parts = dict(zip(call.places, call.parts, strict=True))
    tensors = [_tensor(parts.get(begin + 8 * i), one) for i, one in enumerate(dtypes)]
    first, index, weight, border = tensors
    assert first is not None
    return Table(in_size, out_size, first, taps, weight, index, border, precision)


def _tensor(data: bytes | None, dtype: torch.dtype) -> Tensor | None:
    if not data:
        return None if data is None else torch.empty(0, dtype=dtype)
    return torch.frombuffer(bytearray(data), dtype=dtype)


class Recipe(NamedTuple):
    """Some of `TapRecipe` of tap_maker.h."""

    numbers: tuple[int, ...]

    @property
    def out_size(self) -> int:
        return self.numbers[8]

    @property
    def taps(self) -> int:
        return self.numbers[9]

    @property
    def quantised(self) -> bool:
        return self.numbers[10] != 0

    def by(self, taps: int, form: int) -> Recipe:
        return Recipe((*self.numbers[:9], taps, self.numbers[10], form, *self.numbers[12:]))

    def packed(self, at: int) -> bytes:
        first, weight = at + BEFORE_TABLE, at + bytes_before_weights(self.out_size)
        return struct.pack(f"={RECIPE_NUMBERS}q", *self.numbers[:14], first, weight)


def recipe_of(axis_map: AxisMap, in_size: int, dtype: torch.dtype) -> Recipe | None:
    """None where the device makes no such table."""
    call = arranged((axis_map,), (in_size,), dtype, made=True)
    recipes = call.by(call.way_by("General")).makes.recipes
    return Recipe(struct.unpack(f"={RECIPE_NUMBERS}q", recipes)) if recipes else None
