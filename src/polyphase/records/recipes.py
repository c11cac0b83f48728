"""Axis maps as plain bytes, for the C++ side to read: the records of `include/polyphase/core/abi.h`."""

from __future__ import annotations

import functools
import math
import struct

from polyphase.sampling.axis_maps import AxisMap, AxisPath
from polyphase.sampling.steps import PAD_MODES, Area, Box, Flip, Nearest, Pad, Resize, Slice, Step

#: Every filter, in the order of abi.h's `Filter`.
FILTERS = ("bilinear", "bicubic", "box", "hamming", "lanczos")

#: abi.h's `Step`: kind, a, b, c, d, scale, begin, end.
RECORD = "5q3d"
NUMBERS = 8
_RECORD = struct.Struct(f"={RECORD}")
_NO_BOX = (0.0, math.nan)
_PLAIN = (math.nan, *_NO_BOX)  # neither a scale nor a box
_RESIZE, _AREA, _NEAREST, _FLIP, _SLICE, _PAD = range(6)
#: Of a resize, beside align_corners.
_FIRST = 2


@functools.lru_cache(maxsize=1024)  # sizes recur, though not together
def encode(axis_map: AxisMap) -> bytes:
    """The map's steps, one record each; equal maps give equal bytes."""
    return b"".join(_record(step) for step in axis_map.steps)


def _record(step: Step) -> bytes:
    match step:
        case Resize(size, name, antialias, align_corners, scale, box, first):
            how = align_corners + _FIRST * first
            return _pack(_RESIZE, size, FILTERS.index(name), antialias, how, scale=scale, box=box)
        case Area(size):
            return _pack(_AREA, size)
        case Nearest(size, exact, scale, box):
            return _pack(_NEAREST, size, exact, scale=scale, box=box)
        case Flip():
            return _pack(_FLIP)
        case Slice(start, stop, stride):
            return _pack(_SLICE, start, stop, stride)
        case Pad(before, after, mode, border):
            return _pack(_PAD, before, after, PAD_MODES.index(mode), border)


def _pack(
    kind: int, a: int = 0, b: int = 0, c: int = 0, d: int = 0, scale: float | None = None, box: Box | None = None
) -> bytes:
    return _RECORD.pack(kind, a, b, c, d, math.nan if scale is None else scale, *(box or _NO_BOX))


class Recipe(list[float]):
    """The numbers of the records of an axis, which takes one step after the other: `encode` makes the same of the
    same steps, packed."""

    def resize(self, size: int, name: str, antialias: bool, first: bool = False) -> None:
        self += (_RESIZE, size, FILTERS.index(name), antialias, _FIRST * first, *_PLAIN)

    def nearest(self, size: int, exact: bool) -> None:
        self += (_NEAREST, size, exact, 0, 0, *_PLAIN)

    def flip(self) -> None:
        if self and self[-NUMBERS] == _FLIP:
            del self[-NUMBERS:]
        else:
            self += (_FLIP, 0, 0, 0, 0, *_PLAIN)

    def slice(self, start: int, stop: int) -> None:
        if self and self[-NUMBERS] == _SLICE:
            first = self[1 - NUMBERS]
            self[1 - NUMBERS], self[2 - NUMBERS] = first + start, first + stop
        else:
            self += (_SLICE, start, stop, 1, 0, *_PLAIN)

    def pad(self, before: int, after: int, mode: str, border: int) -> None:
        if before or after:
            self += (_PAD, before, after, PAD_MODES.index(mode), border, *_PLAIN)

    def steps(self) -> tuple[Step, ...]:
        return tuple([_step(*map(int, self[at : at + 5])) for at in range(0, len(self), NUMBERS)])

    def path(self, size: int) -> AxisPath | None:
        """Gives the path of an axis of so many pixels; None where it is no `AxisPath`."""
        path = AxisPath.whole(size)
        for at in range(0, len(self), NUMBERS):
            kind, a, b = map(int, self[at : at + 3])
            if kind == _SLICE:
                path = path.crop(a, b - a)
            elif kind == _FLIP:
                path = path.flip()
            elif kind == _RESIZE and not path.resized:
                path = path.resize(a)
            else:
                return None
        return path


def _step(kind: int, a: int, b: int, c: int, d: int) -> Step:
    """Gives the step of a record that a `Recipe` has."""
    if kind == _RESIZE:
        return Resize(a, FILTERS[b], bool(c), bool(d & 1), first=bool(d & _FIRST))
    if kind == _NEAREST:
        return Nearest(a, bool(b))
    if kind == _SLICE:
        return Slice(a, b, c)
    return Flip() if kind == _FLIP else Pad(a, b, PAD_MODES[c], d)
