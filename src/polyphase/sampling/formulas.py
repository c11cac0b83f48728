"""A warp's coordinates as a formula: an expression over the output's pixels for each axis of the image.

A homography, a displacement, a lens's distortion: whatever is a function of the pixel, of a few values that an image
has for all its pixels (`Entry`: a matrix, mostly), of tensors with a value for each pixel (`Field`) and of numbers.
What comes out is what a grid would hold: coordinates from -1 to 1, x first.

All is computed in one dtype, that of positions; nothing is promoted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import torch
from torch import Tensor

from polyphase.errors import InvalidProgramError
from polyphase.sampling.core_aten import arange
from polyphase.sampling.pointwise import (
    BINARY,
    UNARY,
    Base,
    Binary,
    Constant,
    Entry,
    Expression,
    Field,
    Number,
    Place,
    Select,
    Unary,
    nodes_of,
    parts_of,
)
from polyphase.sampling.steps import Size

#: What a formula may do.
OPERATIONS = ("add", "sub", "mul", "div", "neg", "sqrt", "abs", "minimum", "maximum", "floor", "round", "ceil")


@dataclass(frozen=True)
class Formula:
    """axes: one expression for each axis of the image, x first. numbers: what `Constant` reads, sizes among them."""

    axes: tuple[Expression, ...]
    numbers: tuple[float | Size, ...] = ()

    def __post_init__(self) -> None:
        nodes = list(self._nodes())
        for node in nodes:
            if isinstance(node, Unary | Binary):
                known = node.op in OPERATIONS
            else:
                known = isinstance(node, Place | Base | Entry | Field | Constant | Number | Select)
            if not known:
                raise InvalidProgramError(
                    f"{node} in the coordinates of a warp; they are made of places, entries, fields and numbers by "
                    f"{', '.join(OPERATIONS)}"
                )
        slots = {node.slot for node in nodes if isinstance(node, Constant)}
        axes = {node.axis for node in nodes if isinstance(node, Place | Base)}
        if slots - set(range(len(self.numbers))) or axes - set(range(len(self.axes))) or len(self.axes) not in (2, 3):
            raise InvalidProgramError(
                f"a formula of {len(self.axes)} axes and {len(self.numbers)} numbers reads numbers {sorted(slots)} and "
                f"axes {sorted(axes)}; there are 2 or 3 axes, and it reads no others"
            )

    def _nodes(self) -> Iterator[Expression]:
        for one in self.axes:
            yield from nodes_of(one)

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        """Asked for at every look-up of what was made for a warp."""
        return hash((self.axes, self.numbers))

    @cached_property
    def entries(self) -> int:
        """How many values an image has."""
        return max((node.number + 1 for node in self._nodes() if isinstance(node, Entry)), default=0)

    @cached_property
    def fields(self) -> int:
        return max((node.slot + 1 for node in self._nodes() if isinstance(node, Field)), default=0)


def depth_of(expression: Expression) -> int:
    """How many operations lie inside one another."""
    return max((1 + depth_of(part) for part in parts_of(expression)), default=0)


def coordinates(
    formula: Formula, size: Sequence[Size], entries: Tensor, fields: Sequence[Tensor], align_corners: bool
) -> Tensor:
    """The grid (N, *size, axes), in the dtype of the entries (N, count). Fields broadcast to (N, 1, *size)."""
    dims = len(size)

    def along(axis: int, values: Tensor) -> Tensor:
        return values.to(entries.dtype).reshape([-1] + [1] * (dims - 1 - axis))

    def leaf(node: Expression) -> Any:
        match node:
            case Place(axis):
                return along(axis, arange(size[axis], device=entries.device))
            case Base(axis):
                return along(axis, base_coordinates(size[axis], align_corners, entries))
            case Entry(number):
                return entries[:, number].reshape([-1] + [1] * dims)
            case Field(slot):
                return fields[slot].to(entries.dtype).squeeze(1)
            case Constant(slot):
                return torch.sym_float(formula.numbers[slot])
            case Number(value):
                return float(value)

    def go(node: Expression) -> Any:
        match node:
            case Unary(op, of):
                return UNARY[op](_tensor(go(of), entries))
            case Binary(op, left, right):
                return BINARY[op](*(_tensor(go(side), entries) for side in (left, right)))
            case Select(left, right, greater, otherwise):
                less, more, yes, no = (_tensor(go(one), entries) for one in (right, left, greater, otherwise))
                return torch.where(more > less, yes, no)
        return leaf(node)

    shape = (entries.shape[0], *size)
    return torch.stack([_tensor(go(one), entries).expand(shape) for one in formula.axes], dim=-1)


def _tensor(value: Any, like: Tensor) -> Tensor:
    return value if isinstance(value, Tensor) else torch.full((), value, dtype=like.dtype, device=like.device)


def base_coordinates(n: Size, align_corners: bool, like: Tensor) -> Tensor:
    """n positions from -1 to 1, symmetric to the bit: (2 i + 1 - n) / n, or / (n - 1) with align_corners."""
    steps = 2 * arange(n, device=like.device) + (1 - n)
    return (steps.double() / (torch.sym_max(n - 1, 1) if align_corners else n)).to(like.dtype)


# ---- slopes

ZERO, ONE = Number(0.0), Number(1.0)


def slope(of: Expression, by: Entry | Field) -> Expression:
    """The derivative of an expression, as one. At a kink it is one of the two sides'."""
    match of:
        case Unary("neg", inner):
            return minus(ZERO, slope(inner, by))
        case Unary("sqrt", inner):
            return divided(slope(inner, by), times(Number(2.0), of))
        case Binary("add", left, right):
            return plus(slope(left, by), slope(right, by))
        case Binary("sub", left, right):
            return minus(slope(left, by), slope(right, by))
        case Binary("mul", left, right):
            return plus(times(slope(left, by), right), times(left, slope(right, by)))
        case Binary("div", left, right):
            return divided(minus(slope(left, by), times(of, slope(right, by))), right)
        case Select(left, right, greater, otherwise):
            sides = slope(greater, by), slope(otherwise, by)
            return sides[0] if sides[0] == sides[1] else Select(left, right, *sides)
    return ONE if of == by else ZERO


#: What has a slope everywhere that `slope` knows.
SMOOTH = ("add", "sub", "mul", "div", "neg", "sqrt")


def is_smooth(formula: Formula) -> bool:
    """Whether its slopes are known. Where an operation is not smooth, what it is of may depend on places alone."""

    def depends(node: Expression) -> bool:
        return any(isinstance(one, Entry | Field) for one in nodes_of(node))

    def smooth(node: Expression) -> bool:
        match node:
            case Unary(op, of):
                return (op in SMOOTH and smooth(of)) or not depends(node)
            case Binary(op, left, right):
                return (op in SMOOTH and smooth(left) and smooth(right)) or not depends(node)
            case Select(_, _, greater, otherwise):
                return smooth(greater) and smooth(otherwise)
        return True

    return all(map(smooth, formula.axes))


def plus(left: Expression, right: Expression) -> Expression:
    if ZERO in (left, right):
        return right if left == ZERO else left
    return Binary("add", left, right)


def minus(left: Expression, right: Expression) -> Expression:
    if right == ZERO:
        return left
    return Unary("neg", right) if left == ZERO and not isinstance(right, Number) else _binary("sub", left, right)


def times(left: Expression, right: Expression) -> Expression:
    if ZERO in (left, right):
        return ZERO
    if ONE in (left, right):
        return right if left == ONE else left
    return _binary("mul", left, right)


def divided(left: Expression, right: Expression) -> Expression:
    return left if left == ZERO or right == ONE else _binary("div", left, right)


_NUMBERS: dict[str, Callable[[float, float], float]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
}


def _binary(op: str, left: Expression, right: Expression) -> Expression:
    if isinstance(left, Number) and isinstance(right, Number):
        return Number(_NUMBERS[op](float(left.value), float(right.value)))
    return Binary(op, left, right)


# ---- formulas that have functions of their own


@cache
def homography() -> Formula:
    """Rows of a 3 x 3 matrix on (x, y, 1), where x and y are as `affine_grid` has them; the last row's divides."""
    x, y = Base(1), Base(0)

    def row(first: int) -> Expression:
        turned = Binary("add", Binary("mul", Entry(first), x), Binary("mul", Entry(first + 1), y))
        return Binary("add", turned, Entry(first + 2))

    return Formula((Binary("div", row(0), row(6)), Binary("div", row(3), row(6))))


def displacement(image_size: Sequence[Size], align_corners: bool) -> Formula:
    """Each pixel, moved by a field for each axis (x first) that counts the image's pixels."""
    return Formula(_displaced_axes(len(image_size), align_corners), tuple(reversed(image_size)))


@cache
def _displaced_axes(dims: int, align_corners: bool) -> tuple[Expression, ...]:
    axes = []
    for number in range(dims):
        axis = dims - 1 - number
        pixel = Binary("add", Place(axis), Field(number))
        size = Constant(number)
        if align_corners:
            span = Binary("maximum", Binary("sub", size, ONE), ONE)
            axes.append(Binary("sub", Binary("div", Binary("mul", Number(2.0), pixel), span), ONE))
        else:
            doubled = Binary("sub", Binary("add", Binary("mul", Number(2.0), pixel), ONE), size)
            axes.append(Binary("div", doubled, size))
    return tuple(axes)
