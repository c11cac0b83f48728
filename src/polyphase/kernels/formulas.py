"""Formulas of coordinates as C++: a type that computes a tile's coordinates, and the gradients of what they depend on.
Both are loops over a tile of constant length, which the compiler vectorises."""

from __future__ import annotations

from collections.abc import Iterable

from polyphase.sampling.formulas import ZERO, nodes_of, slope
from polyphase.sampling.pointwise import (
    Base,
    Binary,
    Constant,
    Entry,
    Expression,
    Field,
    Number,
    Place,
    Unary,
)

NO_FORMULA = "NoFormula"

_FORMULA = """
struct Formula {{
  static constexpr bool kExists = true;
  static constexpr int kEntries = {entries}, kNumbers = {numbers}, kFields = {fields}, kFirstField = {first_field};

  template <class P>
  static void coordinates(const FormulaTile<P>& at, TileOf<P> (&out)[{axes}]) {{
{scalars}
    for (int i = 0; i < kTile; ++i) {{
{values}
{coordinates}
    }}
  }}
{gradients}}};
"""

# entry(e, share), field(f, share): what a tile adds to the gradient of entry e, and what that of field f is there.
_GRADIENTS = """
  template <class P, class OfEntry, class OfField>
  static void gradients(const FormulaTile<P>& at, const TileOf<P> (&given)[{axes}], OfEntry entry, OfField field) {{
    TileOf<P> shares[{count}];
{scalars}
    for (int i = 0; i < kTile; ++i) {{
{values}
{shares}
    }}
    for (int e = 0; e < kEntries; ++e) entry(e, shares[e].at);
    for (int f = 0; f < kFields; ++f) field(f, shares[kEntries + f].at);
  }}
"""

_SIGNS = {"add": "+", "sub": "-", "mul": "*", "div": "/"}
_FUNCTIONS = {"round": "round_half_even", "neg": "-"}


def formula_type(axes: tuple[Expression, ...], first_field: int, *, gradients: bool = False) -> str:
    """The definition of `Formula`. `first_field`: the place of its first field among a call's tensors."""
    leaves = sorted({node for one in axes for node in nodes_of(one)}, key=repr)
    entries = _count(node.number for node in leaves if isinstance(node, Entry))
    fields = _count(node.slot for node in leaves if isinstance(node, Field))
    parts = {
        "axes": len(axes),
        "scalars": _lines(_scalars(leaves, len(axes) - 1), 4),
        "values": _lines(_values(leaves, len(axes) - 1), 6),
    }
    shares = _shares(axes, entries, fields)
    of_them = {"count": len(shares), "shares": _lines(shares, 6)}
    return _FORMULA.format(
        **parts,
        entries=entries,
        numbers=_count(node.slot for node in leaves if isinstance(node, Constant)),
        fields=fields,
        first_field=first_field,
        coordinates=_lines((f"out[{a}].at[i] = {cpp(one)};" for a, one in enumerate(axes)), 6),
        gradients=_GRADIENTS.format(**parts, **of_them) if gradients and shares else "",
    )


def cpp(expression: Expression) -> str:
    """Over variables of type P."""
    match expression:
        case Number(value):
            return f"P({float(value)!r})"
        case Unary(op, of):
            return f"{_FUNCTIONS.get(op, op)}({cpp(of)})"
        case Binary("minimum" | "maximum" as op, left, right):
            return f"{op}({cpp(left)}, {cpp(right)})"
        case Binary(op, left, right):
            return f"({cpp(left)} {_SIGNS[op]} {cpp(right)})"
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


def _scalars(leaves: list[Expression], last: int) -> Iterable[str]:
    """What is the same for a whole tile, which is part of a row."""
    for leaf in leaves:
        match leaf:
            case Place(axis) | Base(axis) if axis < last:
                yield f"const P {_name(leaf)} = at.{type(leaf).__name__.lower()}[{axis}];"
            case Entry(number):
                yield f"const P {_name(leaf)} = at.entries[{number}];"
            case Constant(slot):
                yield f"const P {_name(leaf)} = at.numbers[{slot}];"


def _values(leaves: list[Expression], last: int) -> Iterable[str]:
    for leaf in leaves:
        match leaf:
            case Place(axis) | Base(axis) if axis == last:
                yield f"const P {_name(leaf)} = at.row_{type(leaf).__name__.lower()}.at[i];"
            case Field(slot):
                yield f"const P {_name(leaf)} = at.fields[{slot}].at[i];"


def _shares(axes: tuple[Expression, ...], entries: int, fields: int) -> list[str]:
    """By the chain rule, from the gradients of the coordinates. One of 0 adds nothing, however steep the slope: where a
    homography divides by 0, no pixel is read."""
    leaves: list[Entry | Field] = [*map(Entry, range(entries)), *map(Field, range(fields))]
    lines = []
    for place, leaf in enumerate(leaves):
        slopes = [(axis, slope(one, leaf)) for axis, one in enumerate(axes)]
        terms = [f"share_of(given[{axis}].at[i], {cpp(by)})" for axis, by in slopes if by != ZERO]
        lines.append(f"shares[{place}].at[i] = {' + '.join(terms) or 'P(0)'};")
    return lines


def _count(numbers: Iterable[int]) -> int:
    return max(numbers, default=-1) + 1


def _lines(lines: Iterable[str], spaces: int) -> str:
    return "\n".join(" " * spaces + line for line in lines)
