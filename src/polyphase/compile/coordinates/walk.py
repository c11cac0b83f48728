"""The value of one element of a recorded tensor, as a function of the output's pixel: by recursion over the calls that
made it. An element is told by an index for each dimension, which is made of numbers and of the pixel's digits.

Where a dimension's places are split or joined by a view, digits are regrouped; nothing is multiplied out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor

from polyphase.compile.coordinates.algebra import (
    Extent,
    Index,
    Known,
    Part,
    Read,
    Refused,
    Value,
    constant,
    extent_of,
    is_long,
    is_same,
    known,
    reads_of,
)
from polyphase.compile.coordinates.recorded import Call, Recording
from polyphase.compile.reasons import Why
from polyphase.sampling.pointwise import Binary, Select
from polyphase.sampling.steps import Size

#: Coordinates are computed in these, and counted in these.
DTYPES = (torch.float32, torch.float64, torch.int32, torch.int64, torch.bool)

Indices: TypeAlias = "tuple[Index, ...]"


class Walk:
    """A walk through one recording. Its inputs are leaves; literals: those that are numbers. readers: of operators.
    environment: what is known of symbolic sizes. dtype: the grid's, in which coordinates will be computed.
    """

    def __init__(
        self,
        recording: Recording,
        literals: Mapping[int, Tensor],
        readers: Mapping[Any, Reader],
        environment: Any,
        dtype: torch.dtype,
    ) -> None:
        self._recording, self._literals = recording, literals
        self._readers, self.environment, self.dtype = readers, environment, dtype
        self._leaves = {id(one): number for number, one in enumerate(recording.inputs)}
        self._found: dict[tuple[int, Indices], Value] = {}

    def value(self, tensor: Any, at: Indices) -> Value:
        if not isinstance(tensor, Tensor):
            return known(tensor)
        key = id(tensor), at
        if key not in self._found:
            self._found[key] = self._value(tensor, at)
        return self._found[key]

    def _value(self, tensor: Tensor, at: Indices) -> Value:
        if id(tensor) in self._leaves:
            return self._read(self._leaves[id(tensor)], at)
        call = self._recording.made(tensor)
        if call is None or call.operator not in self._readers:
            raise Refused(Why.NOT_A_FORMULA, "a constant" if call is None else str(call.operator))
        if tensor.dtype not in DTYPES:
            raise Refused(Why.ANOTHER_DTYPE, str(call.operator))
        value = self._readers[call.operator](self, call, at)
        if is_long(value):
            raise Refused(Why.LONG_FORMULA)
        if tensor.dtype == torch.float64 != self.dtype and reads_of(value) and not isinstance(value, Read):
            raise Refused(Why.ANOTHER_DTYPE, f"{call.operator} in float64")
        if tensor.dtype == torch.bool and not self._is_truth(value):
            raise Refused(Why.NOT_A_FORMULA, f"{call.operator} to truth values")
        if not tensor.dtype.is_floating_point and tensor.dtype != torch.bool and _is_given_floats(call):
            raise Refused(Why.NOT_A_FORMULA, f"{call.operator} to integers")
        return value

    def _is_truth(self, value: Value) -> bool:
        """Whether it is 0 or 1. Sums of truth values, and what is converted to them, may be more."""
        match value:
            case Known(number):
                return bool(number == 0 or number == 1)
            case Read(leaf):
                return self._recording.inputs[leaf].dtype == torch.bool
            case Select(_, _, greater, otherwise):
                return self._is_truth(greater) and self._is_truth(otherwise)
            case Binary("mul" | "minimum" | "maximum", left, right):
                return self._is_truth(left) and self._is_truth(right)
        return False

    def _read(self, leaf: int, at: Indices) -> Value:
        """A number, where it is of a literal, and the same for all pixels."""
        places = [constant(one) for one in at] if leaf in self._literals else [None]
        if None in places:
            return Read(leaf, at)
        return known(self._literals[leaf][tuple(places)].item())

    def broadcast(self, given: Any, at: Indices) -> Value:
        """Gives an element of an argument that broadcasts to what `at` is an index of."""
        if not isinstance(given, Tensor):
            return known(given)
        own = at[len(at) - given.dim() :]
        return self.value(given, tuple(() if is_same(n, 1) else one for n, one in zip(given.shape, own, strict=True)))


Reader: TypeAlias = Callable[[Walk, Call, Indices], Value]


def _is_given_floats(call: Call) -> bool:
    """Whether floats are among the arguments. Integers are then made by rounding, which no reader does."""
    given: list[Any] = []
    torch.fx.node.map_aggregate((call.args, call.kwargs), given.append)
    return any(
        one.dtype.is_floating_point if isinstance(one, Tensor) else isinstance(one, float | torch.SymFloat)
        for one in given
    )


def pixel(shape: Sequence[Size], component: int) -> Indices:
    """The index of a grid's component (N, out..., axes) at a pixel."""
    digits = [dimension(n, digit=number) for number, n in enumerate(shape[:-1])]
    return *digits, dimension(shape[-1], component)


# ---- indices


def dimension(extent: Size | Extent, at: Size | Extent = 0, digit: int | None = None) -> Index:
    return () if is_same(extent, 1) else (Part(extent_of(extent), extent_of(at), digit),)


def constant_place(index: Index, call: Call) -> int:
    place = constant(index)
    if place is None:
        raise Refused(Why.NOT_A_FORMULA, f"{call.operator} along the pixels")
    return place


def regrouped(at: Indices, shape: Sequence[Size], call: Call) -> Indices:
    """The index of the same element in another shape."""
    parts = [part for index in at for part in index]
    found: list[Index] = []
    for n in reversed(shape):
        taken: list[Part] = []
        extent: Extent = 1
        while not is_same(extent, n):
            if not parts:
                raise Refused(Why.NOT_A_FORMULA, f"{call.operator} of a shape that is not known to fit")
            part = parts.pop()
            rest = _rest(n, extent)
            if rest is not None and isinstance(part.extent, int) and part.extent > rest:
                if part.digit is not None or not isinstance(part.at, int) or part.extent % rest:
                    raise Refused(Why.NOT_A_FORMULA, f"{call.operator} that splits the pixels")
                parts.append(Part(part.extent // rest, part.at // rest))
                part = Part(rest, part.at % rest)
            taken.insert(0, part)
            extent = extent * part.extent
        found.insert(0, tuple(taken))
    if parts:
        raise Refused(Why.NOT_A_FORMULA, f"{call.operator} of a shape that is not known to fit")
    return tuple(found)


def _rest(n: Size, extent: Extent) -> int | None:
    return n // extent if isinstance(n, int) and isinstance(extent, int) and n % extent == 0 else None


def dim_of(call: Call, name: str = "dim", of: Tensor | None = None) -> int:
    return int(call.arguments()[name]) % max((call.result if of is None else of).dim(), 1)
