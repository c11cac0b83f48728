"""Coordinates that were read, as what a warp takes: a formula or a matrix, and how its tensors are made of leaves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import sympy

from polyphase.compile.coordinates import algebra
from polyphase.compile.coordinates.algebra import Coordinate, Known, Read, Refused, Value, known
from polyphase.compile.reasons import Why
from polyphase.records.records import MOST_ENTRIES, MOST_NUMBERS, MOST_OPERANDS
from polyphase.sampling.formulas import Formula, depth_of
from polyphase.sampling.pointwise import Base, Binary, Constant, Entry, Expression, Field, Number, with_parts
from polyphase.sampling.steps import Size, size_slot

#: Numbers that a kernel may depend on.
LITERALS = (0.0, 1.0, 2.0, -1.0, 0.5)


#: Operations inside one another. Python parses twice as many parentheses.
MOST_NESTED = 100


@dataclass(frozen=True)
class Found:
    """axes: the value of each coordinate, x first. size: the output's, in the image's order."""

    axes: tuple[Value, ...]
    size: tuple[Size, ...]
    align_corners: bool

    def is_a_leaf(self) -> bool:
        """Whether it is read from memory as it is."""
        return all(isinstance(one, Read) for one in self.axes) and len({one.leaf for one in self.axes}) == 1

    def reads(self) -> list[Read]:
        return list(dict.fromkeys(read for one in self.axes for read in algebra.reads_of(one)))

    def matrix(self) -> list[list[Value]] | None:
        """affine_grid's matrix, if it is that: rows for x and y, columns for x, y and 1."""
        rows = []
        for one in self.axes:
            factors = algebra.linear(one, [self._base(n) for n in self.size])
            if factors is None:
                return None
            rows.append([*reversed(factors[:-1]), factors[-1]])
        return rows

    def _base(self, n: Size) -> Coordinate:
        """affine_grid's: the place is (b n + n - 1) / 2; where corners are aligned, (b + 1) (n - 1) / 2."""
        size = known(n).number
        return Coordinate((size - 1 if self.align_corners else size) / 2, (size - 1) / 2)


class Tensors:
    """Numbers the reads of some leaves as entries and fields, and all numbers as constants."""

    def __init__(self, found: Found) -> None:
        self.found = found
        self.entries: list[Read] = []
        self.fields: list[Read] = []
        self.numbers: list[sympy.Expr] = []
        for read in found.reads():
            (self.fields if algebra.leaf_is_field(read) else self.entries).append(read)
        self.entries.sort(key=lambda read: (read.leaf, read.place or 0))  # as they lie in memory
        if len(self.entries) > MOST_ENTRIES or len(self.fields) > MOST_OPERANDS:
            raise Refused(Why.TOO_MANY_INPUTS, f"{len(self.entries)} values, {len(self.fields)} tensors")

    def formula(self) -> tuple[Formula, list[sympy.Expr]]:
        """Gives the formula with slots for what is symbolic, and what that is."""
        axes = tuple(algebra.with_leaves(_with_bases(one, self.found), self._leaf) for one in self.found.axes)
        if len(self.numbers) > MOST_NUMBERS:
            raise Refused(Why.TOO_MANY_INPUTS, f"{len(self.numbers)} numbers")
        if max(map(depth_of, axes)) > MOST_NESTED:
            raise Refused(Why.LONG_FORMULA)
        symbolic = [one for one in self.numbers if one.free_symbols]
        numbers = [size_slot(symbolic.index(one)) if one.free_symbols else float(one) for one in self.numbers]
        return Formula(axes, tuple(numbers)), symbolic

    def _leaf(self, leaf: Any) -> Expression:
        match leaf:
            case Known(number):
                return self._number(number)
            case Read() if algebra.leaf_is_field(leaf):
                return Field(self.fields.index(leaf))
            case Read():
                return Entry(self.entries.index(leaf))
        return leaf  # type: ignore[no-any-return]

    def _number(self, number: sympy.Expr) -> Expression:
        """A symbolic one is computed from whole numbers, which a call has."""
        if not number.free_symbols:
            return Number(float(number)) if float(number) in LITERALS else self._constant(number)
        if number.is_integer:
            return self._constant(number)
        upper, lower = number.as_numer_denom()
        if lower != 1:
            return Binary("div", self._number(upper), self._number(lower))
        if isinstance(number, sympy.Add | sympy.Mul):
            first, rest = number.as_two_terms()
            op = "add" if isinstance(number, sympy.Add) else "mul"
            return Binary(op, self._number(first), self._number(rest))
        raise Refused(Why.NOT_A_FORMULA, f"the number {number}")

    def _constant(self, number: sympy.Expr) -> Constant:
        if number not in self.numbers:
            self.numbers.append(number)
        return Constant(self.numbers.index(number))


def _with_bases(value: Value, found: Found) -> Value:
    """Places as affine_grid has them, where a coordinate is computed so: kernels have those exactly."""
    scaled = algebra.scaled_place(value)
    if scaled is not None:
        axis, factor, shift = scaled
        size = known(found.size[axis]).number
        span = size - 1 if found.align_corners else size
        if algebra.is_about(factor * span, sympy.Integer(2)) and algebra.is_about(shift * span, 1 - size):
            return Base(axis)
    return with_parts(value, lambda one: _with_bases(one, found))
