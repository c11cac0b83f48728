"""Random numbers as torchvision's transforms draw them, as data: a transform says what it draws, and gets numbers.

Each draw is computed here by torch, plainly, and by `draws/walk.h` from torch's own state, to the bit: packed, a table
of draws is a row of floats, of each draw its kind, how many values follow, and these.
"""

from __future__ import annotations

import functools
import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

import torch
from torch import Tensor

from polyphase.errors import WrongSizeError

#: None is the one that torch uses unasked.
Generator: TypeAlias = "torch.Generator | None"


@dataclass(frozen=True)
class Draw:
    """What is drawn for an image. kind: its number in C++."""

    kind: ClassVar[int]

    def values(self) -> tuple[float, ...]:
        """What C++ knows of it."""
        raise NotImplementedError

    def by_torch(self, height: int, width: int, generator: Generator = None) -> list[float]:
        raise NotImplementedError


Draws: TypeAlias = tuple[Draw, ...]


def packed(draws: Draws) -> bytes:
    numbers = row(draws)
    return struct.pack(f"{len(numbers)}d", *numbers)


def row(draws: Draws) -> tuple[float, ...]:
    """A table, as numbers."""
    return tuple(one for draw in draws for one in (draw.kind, len(draw.values()), *draw.values()))


def all_by_torch(draws: Draws, height: int, width: int, generator: Generator = None) -> Iterator[float]:
    """The plain twin of `draws/walk.h`."""
    for draw in draws:
        yield from draw.by_torch(height, width, generator)


# ---- numbers


@dataclass(frozen=True)
class Uniform(Draw):
    """A number between two."""

    least: float
    most: float
    kind: ClassVar[int] = 0

    def values(self) -> tuple[float, ...]:
        return float(self.least), float(self.most)

    def by_torch(self, height: int, width: int, generator: Generator = None) -> list[float]:
        return [_uniform(self.least, self.most, generator)]


@dataclass(frozen=True)
class Integer(Draw):
    """A whole number from `start` on, and less than `end`."""

    start: int
    end: int
    kind: ClassVar[int] = 1

    def values(self) -> tuple[float, ...]:
        return float(self.start), float(self.end)

    def by_torch(self, height: int, width: int, generator: Generator = None) -> list[float]:
        return [_integer(self.start, self.end, generator)]


@dataclass(frozen=True)
class Normal(Draw):
    """A number of a normal distribution, one of a pair: torch keeps the other for the next."""

    mean: float = 0.0
    deviation: float = 1.0
    kind: ClassVar[int] = 2

    def values(self) -> tuple[float, ...]:
        return self.mean, self.deviation

    def by_torch(self, height: int, width: int, generator: Generator = None) -> list[float]:
        return [torch.empty(1).normal_(self.mean, self.deviation, generator=generator).item()]


@dataclass(frozen=True)
class Chance(Draw):
    """1 with probability `p`, and then what more there is to draw; else 0. with_p: 1 also where p itself is drawn."""

    p: float
    then: Draws = ()
    with_p: bool = False
    kind: ClassVar[int] = 3

    def values(self) -> tuple[float, ...]:
        return float(self.p), float(self.with_p), *row(self.then)

    def by_torch(self, height: int, width: int, generator: Generator = None) -> list[float]:
        drawn = torch.rand(1, generator=generator)
        if not (drawn <= self.p if self.with_p else drawn < self.p):
            return [0.0]
        return [1.0, *all_by_torch(self.then, height, width, generator)]


@dataclass(frozen=True)
class Fork(Draw):
    """The number of one of several branches, each as likely, and then what there is to draw on it."""

    branches: tuple[Draws, ...]
    kind: ClassVar[int] = 11

    def values(self) -> tuple[float, ...]:
        rows = [row(branch) for branch in self.branches]
        return float(len(rows)), *[number for one in rows for number in (float(len(one)), *one)]

    def by_torch(self, height: int, width: int, generator: Generator = None) -> list[float]:
        chosen = _integer(0, len(self.branches), generator)
        return [chosen, *all_by_torch(self.branches[int(chosen)], height, width, generator)]


@dataclass(frozen=True)
class OneOf(Draw):
    """One of several numbers, each as likely."""

    numbers: tuple[float, ...]
    kind: ClassVar[int] = 12

    def values(self) -> tuple[float, ...]:
        return tuple(map(float, self.numbers))

    def by_torch(self, height: int, width: int, generator: Generator = None) -> list[float]:
        return [float(self.numbers[int(_integer(0, len(self.numbers), generator))])]


@dataclass(frozen=True)
class Order(Draw):
    """The numbers below `count`, in a random order."""

    count: int
    kind: ClassVar[int] = 4

    def values(self) -> tuple[float, ...]:
        return (float(self.count),)

    def by_torch(self, height: int, width: int, generator: Generator = None) -> list[float]:
        return [float(one) for one in torch.randperm(self.count, generator=generator).tolist()]


@dataclass(frozen=True)
class Choice(Draw):
    """One of several, by their shares."""

    shares: tuple[float, ...]
    kind: ClassVar[int] = 5

    def values(self) -> tuple[float, ...]:
        return tuple(map(float, self.shares))

    def by_torch(self, height: int, width: int, generator: Generator = None) -> list[float]:
        return [float(torch.multinomial(torch.tensor(self.shares), 1, generator=generator))]


# ---- boxes and places in an image


@functools.cache
def _logarithms(ratio: tuple[float, float], dtype: torch.dtype) -> list[float]:
    """The logarithms of two ratios, as torchvision rounds them."""
    return torch.log(torch.tensor(ratio, dtype=dtype)).tolist()


@dataclass(frozen=True)
class _Box(Draw):
    scale: tuple[float, float]
    ratio: tuple[float, float]

    def values(self) -> tuple[float, ...]:
        scale, ratio = (tuple(map(float, two)) for two in (self.scale, self.ratio))
        return *scale, *_logarithms((ratio[0], ratio[1]), torch.float32), min(ratio), max(ratio)

    def sides(self, height: int, width: int, generator: Generator) -> Iterator[tuple[int, int]]:
        """Draws sides of boxes, as many as torchvision tries; the longer one first where the ratio is more than 1."""
        least, most = _logarithms(self.ratio, torch.get_default_dtype())
        for _ in range(10):
            area = height * width * _uniform(*self.scale, generator)
            ratio = torch.exp(torch.empty(1).uniform_(least, most, generator=generator)).item()
            yield round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))


@dataclass(frozen=True)
class ResizedBox(_Box):
    """Top, left, height and width of a part of an image, of a random area and ratio of width to height."""

    kind: ClassVar[int] = 6

    def by_torch(self, height: int, width: int, generator: Generator = None) -> list[float]:
        for w, h in self.sides(height, width, generator):
            if 0 < w <= width and 0 < h <= height:
                return [_integer(0, height - h + 1, generator), _integer(0, width - w + 1, generator), h, w]
        w, h = width, height
        if width / height < min(self.ratio):
            h = round(w / min(self.ratio))
        elif width / height > max(self.ratio):
            w = round(h * max(self.ratio))
        return [(height - h) // 2, (width - w) // 2, h, w]


@dataclass(frozen=True)
class ErasedBox(_Box):
    """Top, left, height and width of a part to be erased, smaller than the image, of a random area and ratio of height
    to width; four times -1 where none was found that fits."""

    kind: ClassVar[int] = 7

    def by_torch(self, height: int, width: int, generator: Generator = None) -> list[float]:
        for h, w in self.sides(height, width, generator):
            if h < height and w < width:
                return [_integer(0, height - h + 1, generator), _integer(0, width - w + 1, generator), h, w]
        return [-1.0] * 4


@dataclass(frozen=True)
class Place(Draw):
    """Top and left of a part of a size within an image and a border (left, top, right, bottom), and that border, which
    has grown where it may and has to. both: both are drawn unless both fit; else each only if it does not."""

    size: tuple[int, int]
    border: tuple[int, int, int, int] = (0, 0, 0, 0)
    may_grow: bool = False
    both: bool = False
    kind: ClassVar[int] = 8

    def values(self) -> tuple[float, ...]:
        return *map(float, (*self.size, *self.border)), float(self.may_grow), float(self.both)

    def by_torch(self, height: int, width: int, generator: Generator = None) -> list[float]:
        left, top, right, bottom = self.border
        rows, columns = height + top + bottom, width + left + right
        if self.may_grow:
            down, across = max(self.size[0] - rows, 0), max(self.size[1] - columns, 0)
            left, right, top, bottom = left + across, right + across, top + down, bottom + down
            rows, columns = rows + 2 * down, columns + 2 * across
        spare = rows - self.size[0], columns - self.size[1]
        if min(spare) < 0:
            raise WrongSizeError(
                f"a random crop of {self.size} pixels of an image of {(rows, columns)}"
                f"{', padding included' if any(self.border) else ''}; the image must not be smaller: give "
                "pad_if_needed=True, or resize it first"
            )
        both = self.both and any(spare)
        places = [_integer(0, one + 1, generator) if one or both else 0.0 for one in spare]
        return [*places, left, top, right, bottom]


@dataclass(frozen=True)
class Shift(Draw):
    """Pixels to the right and down, up to shares of the width and height."""

    shares: tuple[float, float]
    kind: ClassVar[int] = 9

    def values(self) -> tuple[float, ...]:
        return tuple(map(float, self.shares))

    def by_torch(self, height: int, width: int, generator: Generator = None) -> list[float]:
        most = float(self.shares[0] * width), float(self.shares[1] * height)
        return [round(_uniform(-one, one, generator)) for one in most]


@dataclass(frozen=True)
class Corners(Draw):
    """Where the corners of an image go: x and y, from the top left one clockwise."""

    distortion: float
    kind: ClassVar[int] = 10

    def values(self) -> tuple[float, ...]:
        return (float(self.distortion),)

    def by_torch(self, height: int, width: int, generator: Generator = None) -> list[float]:
        across, down = int(self.distortion * (width // 2)) + 1, int(self.distortion * (height // 2)) + 1
        starts = [(0, 0), (width - across, 0), (width - across, height - down), (0, height - down)]
        ranges = [(first, first + count) for at in starts for first, count in zip(at, (across, down), strict=True)]
        return [_integer(first, end, generator) for first, end in ranges]


@dataclass(frozen=True)
class JitteredSize(Draw):
    """Height and width of an image that is made to fit into a size, and then so many times as large. As torchvision has
    it, the size is (width, height)."""

    size: tuple[int, int]
    scale: tuple[float, float]
    kind: ClassVar[int] = 13

    def values(self) -> tuple[float, ...]:
        return *map(float, self.size), float(self.scale[0]), float(self.scale[1] - self.scale[0])

    def by_torch(self, height: int, width: int, generator: Generator = None) -> list[float]:
        ratio = min(self.size[1] / height, self.size[0] / width) * _between(self.scale, generator)
        return [int(height * ratio), int(width * ratio)]


@dataclass(frozen=True)
class Canvas(Draw):
    """Left, top, right and bottom of what a larger canvas has around an image, of sides so many times as long."""

    scale: tuple[float, float]
    kind: ClassVar[int] = 14

    def values(self) -> tuple[float, ...]:
        return float(self.scale[0]), float(self.scale[1] - self.scale[0])

    def by_torch(self, height: int, width: int, generator: Generator = None) -> list[float]:
        scale = _between(self.scale, generator)
        across, down = int(width * scale) - width, int(height * scale) - height
        shares = torch.rand(2, generator=generator)
        left, top = int(across * shares[0]), int(down * shares[1])
        return [left, top, across - left, down - top]


def _between(ends: tuple[float, float], generator: Generator) -> Tensor:
    """A number between two, each operation rounded."""
    return ends[0] + torch.rand(1, generator=generator) * (ends[1] - ends[0])


def _uniform(least: float, most: float, generator: Generator) -> float:
    return torch.empty(1).uniform_(least, most, generator=generator).item()


def _integer(start: int, end: int, generator: Generator) -> float:
    return float(torch.randint(start, end, size=(1,), generator=generator))


def whole_numbers(drawn: Iterator[float], count: int) -> list[int]:
    """The next ones, which are whole."""
    return [math.trunc(next(drawn)) for _ in range(count)]
