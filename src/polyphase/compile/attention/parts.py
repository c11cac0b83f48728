"""Where the places along a view's dimensions lie in what it is a view of.

A dimension is a row of parts, the most significant first. A part counts places along an axis of the whole: so many,
every `step`-th. Sizes may be symbolic; nothing is asked for their values.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import sympy
import torch
from torch.fx.experimental.sym_node import SymNode
from torch.fx.experimental.symbolic_shapes import statically_known_true

from polyphase.compile.coordinates.algebra import Extent, Refused, as_made, extent_of, is_same, known
from polyphase.compile.reasons import Why
from polyphase.sampling.steps import Size


@dataclass(frozen=True)
class Part:
    axis: int
    step: Extent
    count: Extent


#: Of one dimension; none where it is one place long.
Parts: TypeAlias = tuple[Part, ...]


def whole(shape: Sequence[Size | Extent]) -> tuple[Parts, ...]:
    return tuple(() if is_same(n, 1) else (Part(axis, 1, extent_of(n)),) for axis, n in enumerate(shape))


def places(parts: Iterable[Part]) -> Extent:
    return math.prod(part.count for part in parts)


def quotient(size: Extent, divisor: Extent) -> Extent | None:
    """If it is known to be whole."""
    if isinstance(size, int) and isinstance(divisor, int):
        return None if size % divisor else size // divisor
    upper, lower = sympy.fraction(sympy.cancel(sympy.sympify(size) / divisor))
    return extent_of(upper) if lower == 1 else None


def regrouped(parts: Iterable[Part], shape: Sequence[Size | Extent]) -> tuple[Parts, ...]:
    """Puts the same places, in the same order, into dimensions of other sizes."""
    left, dims = list(parts), []
    for n in shape:
        taken: list[Part] = []
        need = extent_of(n)
        while not is_same(need, 1):
            if not left:
                raise Refused(Why.NOT_ATTENTION, "a view of a shape that is not known to fit")
            part = left.pop(0)
            if (rest := quotient(need, part.count)) is not None:
                taken.append(part)
                need = rest
                continue
            inner = quotient(part.count, need)
            if inner is None:
                raise Refused(Why.NOT_ATTENTION, "a view of a shape that is not known to fit")
            taken.append(Part(part.axis, part.step * inner, need))
            left.insert(0, Part(part.axis, part.step, inner))
            need = 1
        dims.append(joined(taken))
    if left:
        raise Refused(Why.NOT_ATTENTION, "a view of a shape that is not known to fit")
    return tuple(dims)


def joined(parts: Iterable[Part]) -> Parts:
    """Neighbours that count places one after the other are one part."""
    found: list[Part] = []
    for part in parts:
        last = found[-1] if found else None
        if last is not None and last.axis == part.axis and is_same(last.step, part.step * part.count):
            found[-1] = Part(part.axis, part.step, last.count * part.count)
        else:
            found.append(part)
    return tuple(found)


def along(axis: int, parts: Iterable[Part], size: Size | Extent) -> list[Part]:
    """Picks those along an axis, in the order in which they count all of its places, each once."""
    left, found = [part for part in parts if part.axis == axis], list[Part]()
    step: Extent = 1
    while left:
        inner = next((part for part in left if is_same(part.step, step)), None)
        if inner is None:
            break
        left.remove(inner)
        found.insert(0, inner)
        step = step * inner.count
    if left or not _is_known_to_be(size, step):
        raise Refused(Why.NOT_ATTENTION, "not all of a tensor is read, each element once")
    return found


def _is_known_to_be(size: Size | Extent, extent: Extent) -> bool:
    """Asks torch too, which knows some of it: a split is of all places."""
    if is_same(size, extent):
        return True
    if not isinstance(size, torch.SymInt):
        return False
    claim = as_made(sympy.Eq(known(size).number, extent))
    return bool(statically_known_true(torch.SymBool(SymNode(claim, size.node.shape_env, bool, None))))
