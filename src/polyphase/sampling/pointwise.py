"""Pointwise expressions: the arithmetic before and after sampling, as frozen trees.

Each node means the torch operation of its name, type promotion included, so an expression computes exactly what the
eager code it was read from computes.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

import torch
from torch import Tensor

from polyphase import torch_private
from polyphase.errors import InvalidProgramError, UnknownNameError, WrongInputError

Scalar: TypeAlias = "float | int | bool"

#: As long a prologue as a warp is given, for it is done for every tap.
MOST_OPERATIONS_PER_TAP = 3


def scalar_tensor(scalar: Scalar | complex, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Makes a tensor of a number. Unlike torch.as_tensor alone, wraps a number out of the dtype's range, as torch's
    operators do."""
    wide = {float: torch.float64, complex: torch.complex128}.get(type(scalar), torch.int64)
    return torch.as_tensor(scalar, dtype=wide, device=device).to(dtype)


def _with_scalars(op: Callable[[Tensor, Tensor], Tensor]) -> Callable[..., Tensor]:
    """minimum and maximum know tensors only: a scalar becomes one, of the dtype promotion asks for."""

    def apply(left: Tensor | Scalar, right: Tensor | Scalar) -> Tensor:
        dtype = torch.result_type(left, right)
        device = left.device if isinstance(left, Tensor) else right.device  # type: ignore[union-attr]
        sides = (
            side.to(dtype) if isinstance(side, Tensor) else scalar_tensor(side, dtype, device) for side in (left, right)
        )
        return op(*sides)

    return apply


UNARY: dict[str, Callable[[Tensor], Tensor]] = {
    "neg": torch.neg,
    "abs": torch.abs,
    "relu": torch.relu,
    "round": torch.round,
    "floor": torch.floor,
    "ceil": torch.ceil,
    "sqrt": torch.sqrt,
}
#: They make bools of two values of the dtype that both promote to.
COMPARISONS: dict[str, Callable[..., Tensor]] = {
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}
BINARY: dict[str, Callable[..., Tensor]] = {
    **COMPARISONS,
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": operator.truediv,
    "minimum": _with_scalars(torch.minimum),
    "maximum": _with_scalars(torch.maximum),
}


@dataclass(frozen=True)
class Value:
    """What was loaded (prologue) or sampled (epilogue)."""


@dataclass(frozen=True, eq=False)
class Number:
    """A Python scalar: it does not widen the other side within its kind, as in torch.

    1, 1.0 and True are three numbers (they promote differently), NaN is equal to itself.
    """

    value: Scalar

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Number) and repr(self.value) == repr(other.value)

    def __hash__(self) -> int:
        return hash(repr(self.value))


@dataclass(frozen=True)
class Channel:
    """The `slot`-th vector operand, one value per channel."""

    slot: int
    dtype: torch.dtype = torch.float32


@dataclass(frozen=True)
class Operand:
    """The `slot`-th tensor operand, of the output's shape."""

    slot: int
    dtype: torch.dtype = torch.float32


@dataclass(frozen=True)
class Cast:
    of: Expression
    dtype: torch.dtype


@dataclass(frozen=True)
class Unary:
    op: str
    of: Expression

    def __post_init__(self) -> None:
        if self.op not in UNARY:
            raise UnknownNameError("pointwise operation", self.op, UNARY)
        _check_not_only_numbers(self.op, self.of)


@dataclass(frozen=True)
class Binary:
    op: str
    left: Expression
    right: Expression

    def __post_init__(self) -> None:
        if self.op not in BINARY:
            raise UnknownNameError("pointwise operation", self.op, BINARY)
        _check_not_only_numbers(self.op, self.left, self.right)


# ---- what only the coordinates of a warp read: `formulas.py`


@dataclass(frozen=True)
class Place:
    """The output pixel's index along a spatial axis, in the image's order."""

    axis: int


@dataclass(frozen=True)
class Base:
    """That index as `affine_grid` has it: from -1 to 1."""

    axis: int


@dataclass(frozen=True)
class Entry:
    """The `number`-th of the values that an image of the batch has for all its pixels."""

    number: int


@dataclass(frozen=True)
class Field:
    """The `slot`-th tensor that has a value for each pixel of the output."""

    slot: int


@dataclass(frozen=True)
class Constant:
    """The `slot`-th of the formula's numbers, which no kernel depends on."""

    slot: int


@dataclass(frozen=True)
class Select:
    """`greater` where left > right, else `otherwise`, of NaN too."""

    left: Expression
    right: Expression
    greater: Expression
    otherwise: Expression


Coordinate: TypeAlias = Place | Base | Entry | Field | Constant | Select
Expression: TypeAlias = Value | Number | Channel | Operand | Cast | Unary | Binary | Coordinate

VALUE = Value()


def _check_not_only_numbers(op: str, *sides: Expression) -> None:
    if all(isinstance(side, Number) for side in sides):
        raise InvalidProgramError(f"{op} of numbers alone; compute the number beforehand")


def clamp(of: Expression, low: float | None = None, high: float | None = None) -> Expression:
    """torch.clamp: NaN stays NaN, and `high` wins where the bounds cross."""
    if low is not None:
        of = Binary("maximum", of, Number(low))
    return of if high is None else Binary("minimum", of, Number(high))


def normalise(of: Expression, mean_slot: int = 0, std_slot: int = 1) -> Expression:
    """(x - mean) / std, per channel."""
    return Binary("div", Binary("sub", of, Channel(mean_slot)), Channel(std_slot))


def parts_of(expression: Expression) -> tuple[Expression, ...]:
    """What an operation is of; nothing of a leaf."""
    match expression:
        case Cast(of=of) | Unary(of=of):
            return (of,)
        case Binary(_, left, right):
            return left, right
        case Select(left, right, greater, otherwise):
            return left, right, greater, otherwise
    return ()


def with_parts(expression: Any, function: Callable[[Any], Any]) -> Any:
    """The same operation, of other parts; a leaf as it is."""
    match expression:
        case Cast(of, dtype):
            return Cast(function(of), dtype)
        case Unary(op, of):
            return Unary(op, function(of))
        case Binary(op, left, right):
            return Binary(op, function(left), function(right))
        case Select(left, right, greater, otherwise):
            return Select(*map(function, (left, right, greater, otherwise)))
    return expression


def nodes_of(expression: Expression) -> Iterator[Expression]:
    """An expression, and all it is made of, from left to right."""
    waiting = [expression]
    while waiting:
        node = waiting.pop()
        yield node
        waiting += reversed(parts_of(node))


def chain(inner: Expression, outer: Expression) -> Expression:
    """`inner`, then `outer` of it."""
    result: Expression = inner if outer == VALUE else with_parts(outer, lambda one: chain(inner, one))
    return result


def length_of(expression: Expression) -> int:
    """How many operations it has."""
    return sum(bool(parts_of(node)) for node in nodes_of(expression))


def operands_of(expression: Expression) -> list[Channel | Operand]:
    """The operands the expression reads, from left to right."""
    return [node for node in nodes_of(expression) if isinstance(node, Channel | Operand)]


@lru_cache(maxsize=1024)
def dtype_of(expression: Expression, value: torch.dtype) -> torch.dtype:
    """The dtype of the result where the value has dtype `value`. Asked while graphs are traced too: no mode sees it."""
    if expression == VALUE:
        return value

    def probe(dtype: torch.dtype) -> Tensor:
        # Not 0-dim: it takes part in promotion as an image does. On the CPU: of meta tensors, operators import Dynamo.
        return torch.zeros((1, 1), dtype=dtype, device="cpu")

    try:
        with torch_private.disable_current_modes():
            leaves = operands_of(expression)
            channels = {leaf.slot: probe(leaf.dtype) for leaf in leaves if isinstance(leaf, Channel)}
            tensors = {leaf.slot: probe(leaf.dtype) for leaf in leaves if isinstance(leaf, Operand)}
            return evaluate(expression, probe(value), channels, tensors).dtype
    except (AttributeError, RuntimeError, TypeError) as error:
        raise InvalidProgramError(f"{expression} computes no image from {value}: {error}") from None


def evaluate(
    expression: Expression,
    value: Tensor,
    channels: Mapping[int, Tensor] | None = None,
    tensors: Mapping[int, Tensor] | None = None,
    exact: bool = False,
) -> Tensor:
    """The expression on an image (N, C, ...), or any other if vectors come in a shape that broadcasts to it.

    `exact` keeps every floating value in float64; integers stay integers.
    """

    def go(node: Expression) -> Any:
        match node:
            case Value():
                return widened(value)
            case Number(number):
                return number
            case Channel():
                vector = _find("vector", node, channels or {})
                return widened(vector.reshape([-1] + [1] * (value.dim() - 2)) if vector.dim() == 1 else vector)
            case Operand():
                return widened(_find("tensor", node, tensors or {}))
            case Cast(of, dtype):
                return widened(go(of).to(torch.float64 if exact and dtype.is_floating_point else dtype))
            case Unary(op, of):
                return UNARY[op](go(of))
            case Binary(op, left, right):
                return BINARY[op](*wide_pair(op, go(left), go(right)))
            case Place() | Base() | Entry() | Field() | Constant() | Select():
                raise TypeError(f"only the coordinates of a warp read a {type(node).__name__.lower()}")

    def wide_pair(op: str, *sides: Any) -> Any:
        """What an operation would turn into a float is a float64 before."""
        if not exact or (op != "div" and not torch.result_type(*sides).is_floating_point):
            return sides
        return [side.double() if isinstance(side, Tensor) else side for side in sides]

    def widened(tensor: Tensor) -> Tensor:
        return tensor.double() if exact and tensor.dtype.is_floating_point else tensor

    result = go(expression)
    if not isinstance(result, Tensor):
        raise TypeError("it is a number")
    return result


def _find(kind: str, leaf: Channel | Operand, given: Mapping[int, Tensor]) -> Tensor:
    if leaf.slot not in given:
        raise WrongInputError(f"the program reads {kind} operand {leaf.slot}, but only {sorted(given)} were given")
    if given[leaf.slot].dtype != leaf.dtype:
        seen = given[leaf.slot].dtype
        raise WrongInputError(f"{kind} operand {leaf.slot} is {seen}, the program was made for {leaf.dtype}: cast it")
    return given[leaf.slot]
