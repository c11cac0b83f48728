"""Formulas of coordinates as C++: a type that computes a pixel's coordinates, and the gradients of what they depend on
(`warp/formula.h`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from polyphase.sampling.formulas import ZERO, slope
from polyphase.sampling.pointwise import (
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

_FORMULA = """
struct Formula {{
  static constexpr bool kExists = true, kReadsBase = {reads_base};
  static constexpr int kEntries = {entries}, kNumbers = {numbers}, kFields = {fields}, kFirstField = {first_field};

  template <class Pixel, class P>
  static __attribute__((always_inline)) void coordinates(const Pixel& at, P (&out)[{axes}]) {{
{given}
{coordinates}
  }}
{gradients}}};
"""

# shares: what a pixel adds to the gradients of entries, and what those of fields are there.
_GRADIENTS = """
  template <class Pixel, class P>
  static __attribute__((always_inline)) void gradients(const Pixel& at, const P (&given)[{axes}],
                                                       P (&shares)[{count}]) {{
{given}
{shares}
  }}
"""

_SIGNS = {"add": "+", "sub": "-", "mul": "*", "div": "/"}
_FUNCTIONS = {"round": "round_half_even", "neg": "-"}


class Reads(NamedTuple):
    """How many of each a formula reads."""

    entries: int
    numbers: int
    fields: int


def formula_reads(axes: tuple[Expression, ...]) -> Reads:
    leaves = _leaves(axes)
    return Reads(
        _count(node.number for node in leaves if isinstance(node, Entry)),
        _count(node.slot for node in leaves if isinstance(node, Constant)),
        _count(node.slot for node in leaves if isinstance(node, Field)),
    )


def formula_type(axes: tuple[Expression, ...], first_field: int, *, gradients: bool = False) -> str:
    """The definition of `Formula`. `first_field`: the place of its first field among a call's tensors."""
    entries, numbers, fields = formula_reads(axes)
    return _FORMULA.format(
        axes=len(axes),
        reads_base=str(any(isinstance(leaf, Base) for leaf in _leaves(axes))).lower(),
        entries=entries,
        numbers=numbers,
        fields=fields,
        first_field=first_field,
        given=_lines(_given(axes)),
        coordinates=_lines(_body([(f"out[{a}]", [("", one)]) for a, one in enumerate(axes)])),
        gradients=_gradients(axes, entries, fields) if gradients else "",
    )


def _gradients(axes: tuple[Expression, ...], entries: int, fields: int) -> str:
    """Writes the gradients by the chain rule, from those of the coordinates. A formula of numbers alone has none to
    make: only the image's gradient is asked for, of a kernel that could make both.
    """
    by: list[Entry | Field] = [*map(Entry, range(entries)), *map(Field, range(fields))]
    slopes = [[(axis, slope(one, leaf)) for axis, one in enumerate(axes)] for leaf in by]
    shares = [
        (f"shares[{place}]", [(f"given[{axis}]", one) for axis, one in of_axes if one != ZERO])
        for place, of_axes in enumerate(slopes)
    ]
    read = _given([one for of_axes in slopes for _, one in of_axes])
    return _GRADIENTS.format(
        axes=len(axes), count=max(1, len(shares)), given=_lines(read), shares=_lines(_body(shares))
    )


def _body(targets: Sequence[tuple[str, Sequence[tuple[str, Expression]]]]) -> Iterator[str]:
    """What is done for a pixel: to each target the sum of its terms, each an expression, or a gradient's share by one.
    What several read is computed once."""
    names: dict[Expression, str] = {}
    for node in _read_often([one for _, terms in targets for _, one in terms]):
        text = cpp(node, names)
        names[node] = f"common{len(names)}"
        yield f"const P {names[node]} = {text};"
    for target, terms in targets:
        texts = [cpp(one, names) if not by else f"share_of({by}, {cpp(one, names)})" for by, one in terms]
        yield f"{target} = {' + '.join(texts) or 'P(0)'};"


def _read_often(expressions: Iterable[Expression]) -> list[Expression]:
    """Operations that are part of several others, those they are made of first."""
    counts: dict[Expression, int] = {}

    def visit(node: Expression) -> None:
        parts = parts_of(node)
        if node not in counts:
            for part in parts:
                visit(part)
        if parts:
            counts[node] = counts.get(node, 0) + 1

    for one in expressions:
        visit(one)
    return [node for node, count in counts.items() if count > 1]


def cpp(expression: Expression, names: Mapping[Expression, str]) -> str:
    """Over variables of type P, `names` among them."""
    if expression in names:
        return names[expression]
    match expression:
        case Number(value):
            return f"P({float(value)!r})"
        case Unary(op, of):
            return f"{_FUNCTIONS.get(op, op)}({cpp(of, names)})"
        case Binary("minimum" | "maximum" as op, left, right):
            return f"{op}({cpp(left, names)}, {cpp(right, names)})"
        case Binary(op, left, right):
            return f"({cpp(left, names)} {_SIGNS[op]} {cpp(right, names)})"
        case Select(left, right, greater, otherwise):
            sides = [cpp(one, names) for one in (left, right, greater, otherwise)]
            return "({} > {} ? {} : {})".format(*sides)
    return _name(expression)


def _name(leaf: Expression) -> str:
    match leaf:
        case Place(axis):
            return f"place{axis}"
        case Base(axis):
            return f"base{axis}"
        case Entry(number):
            return f"entry{number}"
        case Field(slot):
            return f"field{slot}"
        case Constant(slot):
            return f"number{slot}"
    raise AssertionError(f"{leaf} is no part of a formula")


def _leaves(expressions: Iterable[Expression]) -> list[Expression]:
    return sorted({node for one in expressions for node in nodes_of(one)}, key=repr)


def _given(expressions: Iterable[Expression]) -> Iterator[str]:
    """What is read, by name."""
    for leaf in _leaves(expressions):
        match leaf:
            case Place(axis) | Base(axis):
                yield _read(leaf, type(leaf).__name__.lower(), axis)
            case Entry(number):
                yield _read(leaf, "entry", number)
            case Constant(slot):
                yield _read(leaf, "number", slot)
            case Field(slot):
                yield _read(leaf, "field", slot)


def _read(leaf: Expression, kind: str, number: int) -> str:
    return f"const P {_name(leaf)} = at.template {kind}<{number}>();"


def _count(numbers: Iterable[int]) -> int:
    return max(numbers, default=-1) + 1


def _lines(lines: Iterable[str]) -> str:
    return "\n".join("    " + line for line in lines)
