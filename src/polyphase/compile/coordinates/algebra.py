"""Arithmetic on what is known of a coordinate: numbers, which may be symbolic sizes, are computed at once; a factor and
a summand of a number are moved outwards, so that chains of scalings and shifts become one of each.

    ((x / 55 - 0.5) * 2 + 1) * 28   becomes   x * 1.018 - 0

What leads to a step stays as it was written, because it depends on the last bit which side of the step is taken:
floor(x / 55) is 1 where x is 55, but x times 1 / 55, rounded, may be less than 1 there.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, TypeAlias

import sympy
import torch

from polyphase.compile.reasons import Why
from polyphase.sampling.pointwise import BINARY, UNARY, Binary, Place, Select, Unary, nodes_of, parts_of, with_parts
from polyphase.sampling.steps import Size

#: Of a value: its operations, and what they are of.
MOST_NODES = 2000

Value: TypeAlias = Any  # an Expression whose leaves are Places, `Known` and `Read`


class Refused(Exception):  # noqa: N818 it never leaves the package
    """Why a walk ends, and at what."""

    def __init__(self, why: Why, at: str = "") -> None:
        super().__init__(why.value)
        self.why, self.at = why, at


@dataclass(frozen=True)
class Known:
    """A number, of symbols where sizes are symbolic. 1.0 is 1."""

    number: sympy.Expr

    @property
    def is_plain(self) -> bool:
        """Whether there are no symbols."""
        return not self.number.free_symbols

    def __post_init__(self) -> None:
        if isinstance(self.number, sympy.Float) and float(self.number).is_integer():
            object.__setattr__(self, "number", sympy.Integer(int(self.number)))


#: A size that can be compared and is a key: symbolic ones as sympy has them.
Extent: TypeAlias = "int | sympy.Expr"


def extent_of(size: Size | sympy.Expr) -> Extent:
    number = known(size).number if not isinstance(size, int | sympy.Expr) else size
    return int(number) if isinstance(number, int | sympy.Integer) else number


def is_same(one: Size | sympy.Expr, other: Size | sympy.Expr) -> bool:
    """Whether it is known that they are, whatever the symbols are: no guard is added."""
    first, second = extent_of(one), extent_of(other)
    return bool(first == second or sympy.expand(first - second) == 0)


@dataclass(frozen=True)
class Part:
    """A digit of an index: a number, or the `digit`-th of the output's (0 is the image of the batch, then its axes) and
    what was added to it. extent: how many places it counts."""

    extent: Extent
    at: Extent = 0
    digit: int | None = None


#: Along one dimension of a tensor: digits, the most significant first; none where there is one element.
Index: TypeAlias = "tuple[Part, ...]"


def constant(index: Index) -> int | None:
    """The place, if it is the same for all pixels."""
    place = 0
    for part in index:
        if part.digit is not None or not isinstance(part.at, int) or not isinstance(part.extent, int):
            return None
        place = place * part.extent + part.at
    return place


@dataclass(frozen=True)
class Read:
    """An element of the `leaf`-th tensor that is not computed here."""

    leaf: int
    index: tuple[Index, ...]

    @property
    def place(self) -> int | None:
        """Where it lies in what a leaf with a first dimension of images has of each, if that is known."""
        if not self.index or any(part.digit != 0 or part.at != 0 for part in self.index[0]):
            return None
        return constant(tuple(part for index in self.index[1:] for part in index))


def known(number: Any) -> Known:
    """Gives what is known of a Python number or a symbolic one."""
    if isinstance(number, sympy.Expr):
        return Known(number)
    if isinstance(number, torch.SymInt | torch.SymFloat | torch.SymBool):
        return Known(_plain(number.node.expr))
    return Known(sympy.sympify(float(number) if isinstance(number, float) else int(number)))


def _plain(expression: sympy.Expr) -> sympy.Expr:
    """torch's divisions and conversions as sympy's own. A whole number that is made otherwise than by sums and products
    is a symbol: what it is made of does not matter here, and may be long."""
    if not expression.args:
        return expression
    arguments = [_plain(one) for one in expression.args]
    match type(expression).__name__:
        case "ToFloat":
            return arguments[0]
        case "FloatTrueDiv" | "IntTrueDiv":
            return arguments[0] / arguments[1]
    if expression.is_integer and not isinstance(expression, sympy.Add | sympy.Mul | sympy.Pow):
        return _as_symbol(expression)
    return expression.func(*arguments)


class MadeSize(sympy.Dummy):  # type: ignore[misc]
    """Stands for what a size, or a number made of sizes, is made by."""

    __slots__ = ("made_by",)


@lru_cache(maxsize=1024)
def _as_symbol(expression: sympy.Expr) -> sympy.Symbol:
    symbol = MadeSize("size", integer=True, positive=expression.is_positive)
    symbol.made_by = expression
    return symbol


def as_made(claim: sympy.Basic) -> sympy.Basic:
    """Says a claim in torch's own symbols, of which more is known."""
    return claim.xreplace({one: one.made_by for one in claim.free_symbols if isinstance(one, MadeSize)})


ZERO, ONE, TWO = (Known(sympy.Integer(n)) for n in (0, 1, 2))


def is_number(value: Value, number: int) -> bool:
    return isinstance(value, Known) and bool(value.number == number)


def as_written(op: str, *parts: Value) -> Value:
    """An operation, and nothing moved."""
    return Unary(op, *parts) if len(parts) == 1 else Binary(op, *parts)


def add(left: Value, right: Value) -> Value:
    if isinstance(left, Known):
        left, right = right, left
    match left, right:
        case Known(a), Known(b):
            return Known(a + b)
        case _, Known(b) if b == 0:
            return left
        case Binary("add", inner, Known(a)), Known(b):
            return add(inner, Known(a + b))
        case _, Known():
            return as_written("add", left, right)
        case Binary("add", inner, Known() as shift), _:
            return add(add(inner, right), shift)
        case _, Binary("add", inner, Known() as shift):
            return add(add(left, inner), shift)
    return Binary("add", left, right)


def subtract(left: Value, right: Value) -> Value:
    if isinstance(right, Known):
        return add(left, Known(-right.number))
    match right:
        case Binary("add", inner, Known(shift)):
            return add(subtract(left, inner), Known(-shift))
        case Binary("mul", inner, Known(factor)):
            return add(left, multiply(inner, Known(-factor)))
    return negate(right) if is_number(left, 0) else Binary("sub", left, right)


def negate(value: Value) -> Value:
    match value:
        case Known(number):
            return Known(-number)
        case Binary("add" | "mul", _, Known()):
            return multiply(value, Known(sympy.Integer(-1)))
    return Unary("neg", value)


def multiply(left: Value, right: Value) -> Value:
    if isinstance(left, Known):
        left, right = right, left
    match left, right:
        case Known(a), Known(b):
            return Known(a * b)
        case _, Known(b) if b == 1:
            return left
        case _, Known(b) if b == 0 and not reads_of(left):  # of what is read, 0 * NaN is NaN
            return ZERO
        case Binary("mul", inner, Known(a)), Known(b):
            return multiply(inner, Known(a * b))
        case Binary("add", inner, Known(a)), Known(b):
            return add(multiply(inner, right), Known(a * b))
    return Binary("mul", left, right)


def divide(left: Value, right: Value) -> Value:
    if is_number(right, 0) or (isinstance(right, Binary) and right.op == "mul" and is_number(right.right, 0)):
        raise Refused(Why.DIVIDED_BY_ZERO)  # numbers have no sign of 0
    if isinstance(right, Known):
        return multiply(left, Known(1 / right.number))
    return Binary("div", left, right)


_RULES: dict[str, Callable[..., Value]] = {"add": add, "sub": subtract, "mul": multiply, "div": divide}
STEPS = ("floor", "ceil", "round")


def simplified(value: Value, dtype: torch.dtype) -> Value:
    """What was written, by the rules; but for what leads to a step, which is computed in the dtype. Comparisons that
    depend on an image's values, as a homography's denominator does, are hardly ever of equal numbers."""

    def go(one: Value) -> Value:
        return simplified(one, dtype)

    match value:
        case Unary(op) if op in STEPS:
            return computed(value, dtype)
        case Unary("neg", of):
            return negate(go(of))
        case Unary("sqrt", of):
            return square_root(go(of))
        case Unary(op, of):
            return apply(op, go(of))
        case Binary(op, left, right):
            return _RULES.get(op, partial(apply, op))(go(left), go(right))
        case Select(left, right, greater, otherwise):
            prepared = go if depends_on_images(value) else partial(computed, dtype=dtype)
            greater, otherwise = go(greater), go(otherwise)
            return greater if greater == otherwise else Select(prepared(left), prepared(right), greater, otherwise)
    return value


def depends_on_images(condition: Select) -> bool:
    """Whether a comparison is of values that an image has."""
    return any(not leaf_is_field(one) for one in reads_of(condition.left) + reads_of(condition.right))


def computed(value: Value, dtype: torch.dtype) -> Value:
    """Gives a value as it was written; of numbers, what each operation makes of them in the dtype."""
    value = with_parts(value, lambda one: computed(one, dtype))
    parts: Sequence[Value] = parts_of(value)
    numbers = [one.number for one in parts if isinstance(one, Known) and one.is_plain]
    if not isinstance(value, Unary | Binary) or len(numbers) < len(parts):
        return value
    operation: Callable[..., torch.Tensor] = {**UNARY, **BINARY}[value.op]
    return known(operation(*(torch.tensor(float(one), dtype=dtype, device="cpu") for one in numbers)).item())


def square_root(value: Value) -> Value:
    if not isinstance(value, Known):
        return Unary("sqrt", value)
    return Known(sympy.nan if value.number.is_negative else sympy.sqrt(value.number))


def select(condition: Select, greater: Value, otherwise: Value) -> Value:
    """Selects by a comparison that what is selected need not make again; for the slopes of an image's values it has to,
    as one that is not finite spoils the other.
    """
    if not is_of_pixels(condition):
        return Select(condition.left, condition.right, greater, otherwise)
    yes, no = where_it_holds(greater, condition, True), where_it_holds(otherwise, condition, False)
    return yes if yes == no else Select(condition.left, condition.right, yes, no)


def apply(op: str, *values: Value) -> Value:
    """An operation of formulas that has no rules of its own."""
    if all(isinstance(one, Known) for one in values):
        if op not in _OF_NUMBERS:
            raise Refused(Why.NOT_A_FORMULA, f"{op} of numbers")
        return Known(_OF_NUMBERS[op](*(one.number for one in values)))
    return as_written(op, *values)


_OF_NUMBERS = {
    "abs": sympy.Abs, "minimum": sympy.Min, "maximum": sympy.Max
}  # fmt: skip


def sum_of(values: list[Value]) -> Value:
    total: Value = ZERO
    for one in values:
        total = add(total, one)
    return total


def leaves_of(value: Value) -> list[Value]:
    """Lists leaves from left to right, each as often as it is there."""
    return [node for node in nodes_of(value) if not parts_of(node)]


def is_long(value: Value) -> bool:
    """What is used twice is there twice: of an iteration, values grow by a power."""
    return len(list(itertools.islice(nodes_of(value), MOST_NODES + 1))) > MOST_NODES


def reads_of(value: Value) -> list[Read]:
    return [leaf for leaf in leaves_of(value) if isinstance(leaf, Read)]


def has_operation(value: Value, names: Sequence[str]) -> bool:
    """Whether one of them is part of it."""
    return any(getattr(node, "op", None) in names for node in nodes_of(value))


def has_step(value: Value) -> bool:
    """Whether it may depend on the last bit."""
    is_step = isinstance(value, Select) and not depends_on_images(value)
    return is_step or has_operation(value, STEPS) or any(map(has_step, parts_of(value)))


def is_of_pixels(value: Value) -> bool:
    """Whether it differs from pixel to pixel of an image."""
    return any(isinstance(leaf, Place) or (isinstance(leaf, Read) and leaf_is_field(leaf)) for leaf in leaves_of(value))


def leaf_is_field(read: Read) -> bool:
    return any(part.digit for index in read.index for part in index)


def where_it_holds(value: Value, condition: Select, holds: bool) -> Value:
    """The value where a comparison is known to hold, or not to."""
    if isinstance(value, Select) and (value.left, value.right) == (condition.left, condition.right):
        return where_it_holds(value.greater if holds else value.otherwise, condition, holds)
    return with_parts(value, lambda one: where_it_holds(one, condition, holds))


# ---- linear functions of places


@dataclass(frozen=True)
class Coordinate:
    """Another coordinate b along an axis, of which the place is factor * b + shift."""

    factor: sympy.Expr
    shift: sympy.Expr


def linear(value: Value, axes: Sequence[Coordinate]) -> list[Value] | None:
    """Factors of other coordinates of each axis, and the summand last, if there are such that are the same for all
    pixels."""
    if not is_of_pixels(value):
        return [*[ZERO] * len(axes), value]
    scaled = scaled_place(value)
    if scaled is not None:
        axis, factor, shift = scaled
        found: list[Value] = [ZERO] * (len(axes) + 1)
        moved = factor * axes[axis].shift + shift
        found[axis] = _rounded(factor * axes[axis].factor)
        found[-1] = ZERO if shift != 0 and is_about(moved / shift, ZERO.number) else _rounded(moved)
        return found
    match value:
        case Binary("add" | "sub" as op, left, right):
            first, second = linear(left, axes), linear(right, axes)
            if first is None or second is None:
                return None
            join = add if op == "add" else subtract
            return [join(a, b) for a, b in zip(first, second, strict=True)]
        case Unary("neg", of):
            return _all_scaled(multiply, linear(of, axes), Known(sympy.Integer(-1)))
        case Binary("mul", left, right):
            if is_of_pixels(right):
                left, right = right, left
            return None if is_of_pixels(right) else _all_scaled(multiply, linear(left, axes), right)
        case Binary("div", left, right) if not is_of_pixels(right):
            return _all_scaled(divide, linear(left, axes), right)
    return None


def scaled_place(value: Value) -> tuple[int, sympy.Expr, sympy.Expr] | None:
    """The axis, the factor and the shift of what is one place, scaled and moved by numbers."""
    factor, shift = sympy.Integer(1), sympy.Integer(0)
    match value:
        case Binary("add", inner, Known(number)):
            value, shift = inner, number
    match value:
        case Binary("mul", inner, Known(number)):
            value, factor = inner, number
    return (value.axis, factor, shift) if isinstance(value, Place) else None


def _all_scaled(op: Callable[[Value, Value], Value], values: list[Value] | None, by: Value) -> list[Value] | None:
    return None if values is None else [one if is_number(one, 0) else op(one, by) for one in values]


def _rounded(number: sympy.Expr) -> Known:
    """1 as it would be if floats did not round."""
    return ONE if is_about(number, ONE.number) else Known(number)


def is_about(number: sympy.Expr, wanted: sympy.Expr) -> bool:
    """Equal, but for what floats round."""
    upper, _ = sympy.fraction(sympy.together(number - wanted))
    factors = sympy.expand(upper).as_coefficients_dict().values()
    return all(abs(float(one)) < 1e-12 for one in factors)


# ---- as the formula has it


def with_leaves(value: Value, leaf: Callable[[Value], Value]) -> Value:
    if isinstance(value, Unary | Binary | Select):
        return with_parts(value, lambda one: with_leaves(one, leaf))
    return leaf(value)
