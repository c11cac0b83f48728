"""Numbers that remember how they came about: a walk by such numbers is written down as a template, for images of other
sizes, and other numbers drawn for them (`launch/templates.h`). The walk itself is the template's plain twin.

What is compared while it goes on says for which images the template holds. A number that is asked for anything else, as
to be an int, says that it cannot be recorded: nothing is lost unseen.
"""

from __future__ import annotations

import math
import operator
import struct
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from polyphase.pipelines.draws import Draws, row
from polyphase.records.recipes import NUMBERS, RECORD, Recipe

#: A number, recorded or not.
Size: TypeAlias = Any

#: `Operation` of `launch/templates.h`: kind, the places of operands, where draws begin, a value.
_OPERATION = struct.Struct("=4qd")
_CONSTANT, _DRAW, _ADD, _SUBTRACT, _MULTIPLY, _DIVIDE, _FLOOR, _CEIL, _ROUND, _TRUNC, _ROOT = range(11)
_LESS, _LESS_OR_EQUAL, _EQUAL = range(11, 14)
#: `OpenStep` and `WrittenTemplate`.
_OPEN_STEP, _WRITTEN = struct.Struct(f"={RECORD}2q"), struct.Struct("=7q")
#: The number of a program that is none.
NO_PROGRAM = -1


class NotRecordedError(Exception):
    """Something is done that a template cannot say."""


class Recording:
    """What was done to numbers, in order. height, width: of the image, as numbers that are recorded."""

    def __init__(self, height: int, width: int) -> None:
        self.height, self.width = Number(self, 0, height), Number(self, 1, width)
        self.drawn = list[float]()
        self._operations, self._draws = list[tuple[float, ...]](), list[float]()
        self._places, self._constants = 2, dict[float, int]()

    def draw(self, draws: Draws, numbers: Sequence[float], height: Size, width: Size) -> list[Number]:
        """What was drawn by `draws` for an image of a size."""
        of, places = row(draws), (self.place(height), self.place(width))
        self._operations.append((_DRAW, *places, len(self._draws), len(numbers)))
        first, self._places = self._places, self._places + len(numbers)
        self._draws += (len(of), *of)
        self.drawn += numbers
        return [Number(self, first + i, number) for i, number in enumerate(numbers)]

    def place(self, number: Size) -> int:
        if isinstance(number, Number):
            return number.place
        if number not in self._constants:
            self._constants[number] = self._add(_CONSTANT, 0, 0, number)
        return self._constants[number]

    def made(self, kind: int, a: Size, b: Size, value: float) -> Number:
        return Number(self, self._add(kind, self.place(a), self.place(b), 0), value)

    def compared(self, kind: int, a: Size, b: Size, holds: bool) -> bool:
        self._operations.append((kind, self.place(a), self.place(b), 0, holds))
        return holds

    def _add(self, kind: int, a: int, b: int, value: float) -> int:
        self._operations.append((kind, a, b, 0, value))
        self._places += 1
        return self._places - 1

    def template(self, program: int, size: tuple[Size, Size] = (0, 0), steps: tuple[Recipe, ...] = ()) -> bytes:
        """All of it, as what leads to a result of a size by these steps of rows and columns."""
        places = [self.place(one) for one in size]
        open_steps = [self._open(one[at : at + NUMBERS]) for one in steps for at in range(0, len(one), NUMBERS)]
        counts = [len(one) // NUMBERS for one in steps or ((), ())]
        head = _WRITTEN.pack(program, len(self._operations), len(self._draws), *counts, *places)
        draws = struct.pack(f"={len(self._draws)}d", *self._draws)
        return head + b"".join(_OPERATION.pack(*one) for one in self._operations) + draws + b"".join(open_steps)

    def _open(self, step: Sequence[Size]) -> bytes:
        kind, a, b, *rest = step
        places = [one.place if isinstance(one, Number) else -1 for one in (a, b)]
        return _OPEN_STEP.pack(kind, plain(a), plain(b), *rest, *places)


class Number:
    """A number of a recording."""

    __slots__ = ("of", "place", "value")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, of: Recording, place: int, value: float) -> None:
        self.of, self.place, self.value = of, place, value

    def _with(self, kind: int, compute: Callable[[Any, Any], Any], a: Size, b: Size) -> Number:
        return self.of.made(kind, a, b, compute(plain(a), plain(b)))

    def _by_itself(self, kind: int, compute: Callable[[Any], Any]) -> Number:
        return self.of.made(kind, self, self, compute(self.value))

    def _compared(self, kind: int, compute: Callable[[Any, Any], bool], a: Size, b: Size) -> bool:
        return self.of.compared(kind, a, b, compute(plain(a), plain(b)))

    def __add__(self, other: Size) -> Number:
        return self._with(_ADD, operator.add, self, other)

    def __radd__(self, other: Size) -> Number:
        return self._with(_ADD, operator.add, other, self)

    def __sub__(self, other: Size) -> Number:
        return self._with(_SUBTRACT, operator.sub, self, other)

    def __rsub__(self, other: Size) -> Number:
        return self._with(_SUBTRACT, operator.sub, other, self)

    def __mul__(self, other: Size) -> Number:
        return self._with(_MULTIPLY, operator.mul, self, other)

    def __rmul__(self, other: Size) -> Number:
        return self._with(_MULTIPLY, operator.mul, other, self)

    def __truediv__(self, other: Size) -> Number:
        return self._with(_DIVIDE, operator.truediv, self, other)

    def __rtruediv__(self, other: Size) -> Number:
        return self._with(_DIVIDE, operator.truediv, other, self)

    def __floordiv__(self, other: Size) -> Number:
        return self.__truediv__(other).__floor__()  # sizes are so small that this is exact

    def __mod__(self, other: Size) -> Number:
        return self.__sub__(self.__floordiv__(other).__mul__(other))

    def __floor__(self) -> Number:
        return self._by_itself(_FLOOR, math.floor)

    def __ceil__(self) -> Number:
        return self._by_itself(_CEIL, math.ceil)

    def __round__(self) -> Number:
        return self._by_itself(_ROUND, round)

    def __trunc__(self) -> Number:
        return self._by_itself(_TRUNC, math.trunc)

    def square_root(self) -> Number:
        return self._by_itself(_ROOT, math.sqrt)

    def __lt__(self, other: Size) -> bool:
        return self._compared(_LESS, operator.lt, self, other)

    def __gt__(self, other: Size) -> bool:
        return self._compared(_LESS, operator.lt, other, self)

    def __le__(self, other: Size) -> bool:
        return self._compared(_LESS_OR_EQUAL, operator.le, self, other)

    def __ge__(self, other: Size) -> bool:
        return self._compared(_LESS_OR_EQUAL, operator.le, other, self)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, (int, float, Number)):
            return NotImplemented
        return self._compared(_EQUAL, operator.eq, self, other)

    def __bool__(self) -> bool:
        return self != 0

    def _lost(self) -> Any:
        raise NotRecordedError("a number is to be forgotten")

    __int__ = __index__ = __float__ = _lost


def square_root(number: Size) -> Size:
    return number.square_root() if isinstance(number, Number) else math.sqrt(number)


def plain(number: Size) -> Any:
    """Makes a value without what it remembers; of what is in tuples, lists and dictionaries, too."""
    if isinstance(number, Number):
        return number.value
    if isinstance(number, dict):
        return {name: plain(one) for name, one in number.items()}
    return type(number)(map(plain, number)) if isinstance(number, (tuple, list)) else number
