"""Programs for any size: their sizes are slots, filled in when the program runs.

A compiled graph holds such a program's text and, beside it, how its sizes follow from those of the graph's inputs. A
slice's bounds may then be what Python allows: negative, or beyond the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from polyphase.sampling.axis_maps import AxisMap
from polyphase.sampling.programs import Axes, Program, Sampler
from polyphase.sampling.steps import Area, Flip, Nearest, Pad, Resize, Size, SizeSlot, Slice, Step, output_size


def fill(program: Program, sizes: Sequence[int], in_size: Sequence[int]) -> Program:
    """The program for an image whose last axes, as many as there are maps, are of `in_size`."""
    sampler: Sampler = program.sampler
    if isinstance(sampler, Axes):
        adjoint_of = _sizes(sampler.adjoint_of, sizes)
        maps = zip(sampler.maps, adjoint_of or in_size, strict=True)
        sampler = Axes(tuple(_map(one, sizes, n) for one, n in maps), adjoint_of)
    else:
        sampler = replace(sampler, size=_sizes(sampler.size, sizes))
    return replace(program, sampler=sampler)


def _map(axis_map: AxisMap, sizes: Sequence[int], n: Size) -> AxisMap:
    steps = []
    for step in axis_map.steps:
        steps.append(_step(step, sizes, n))
        n = output_size(steps[-1], n)
    return AxisMap(tuple(steps))


def _step(step: Step, sizes: Sequence[int], n: Size) -> Step:
    match step:
        case Resize(size) | Area(size) | Nearest(size):
            return replace(step, size=_size(size, sizes))
        case Slice(start, stop, stride):
            first, last, _ = slice(_size(start, sizes), _size(stop, sizes)).indices(n)
            return Slice(first, max(first, last), stride)
        case Pad(before, after):
            return replace(step, before=_size(before, sizes), after=_size(after, sizes))
        case Flip():
            return step


def _sizes(slots: Sequence[Size], sizes: Sequence[int]) -> tuple[int, ...]:
    return tuple(_size(one, sizes) for one in slots)


def _size(size: Size, sizes: Sequence[int]) -> int:
    return sizes[size.number] if isinstance(size, SizeSlot) else size
