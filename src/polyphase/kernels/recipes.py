"""Axis maps as plain bytes, for the C++ side to read: the records of `include/polyphase/core/abi.h`."""

from __future__ import annotations

import functools
import math
import struct

from polyphase.sampling.axis_maps import AxisMap
from polyphase.sampling.steps import PAD_MODES, Area, Box, Flip, Nearest, Pad, Resize, Slice, Step

#: Every filter, in the order of abi.h's `Filter`.
FILTERS = ("bilinear", "bicubic", "box", "hamming", "lanczos")

#: abi.h's `Step`: kind, a, b, c, d, scale, begin, end.
_RECORD = struct.Struct("=5q3d")
_RESIZE, _AREA, _NEAREST, _FLIP, _SLICE, _PAD = range(6)


@functools.lru_cache(maxsize=1024)  # sizes recur, though not together
def encode(axis_map: AxisMap) -> bytes:
    """The map's steps, one record each; equal maps give equal bytes."""
    return b"".join(_record(step) for step in axis_map.steps)


def _record(step: Step) -> bytes:
    match step:
        case Resize(size, name, antialias, align_corners, scale, box):
            return _pack(_RESIZE, size, FILTERS.index(name), antialias, align_corners, scale=scale, box=box)
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
    return _RECORD.pack(kind, a, b, c, d, math.nan if scale is None else scale, *(box or (0.0, math.nan)))
