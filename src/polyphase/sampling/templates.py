"""Programs and maps for any size: their sizes are slots, filled in when they run.

A compiled graph holds the text of such a program and, beside it, how its sizes follow from those of the graph's inputs.
A slice's bounds may then be what Python allows: negative, or beyond the end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from polyphase.sampling.axis_maps import AxisMap
from polyphase.sampling.programs import Axes, Program, Sampler
from polyphase.sampling.steps import (
    Area,
    Flip,
    Nearest,
    Pad,
    Resize,
    Size,
    SizeSlot,
    Slice,
    Step,
    output_size,
    size_slot,
)
from polyphase.sampling.text import maps_from_text
from polyphase.sampling.warps import Warp


def fill(program: Program, sizes: Sequence[int], in_size: Sequence[int]) -> Program:
    """The program for an image whose last axes, as many as there are maps, are of `in_size`."""
    sampler: Sampler = program.sampler
    if isinstance(sampler, Axes):
        adjoint_of = _sizes(sampler.adjoint_of, sizes)
        maps = zip(sampler.maps, adjoint_of or in_size, strict=True)
        sampler = Axes(tuple(_map(one, sizes, n) for one, n in maps), adjoint_of)
    else:
        sampler = filled_warp(sampler, sizes)
    return replace(program, sampler=sampler)


def warp_with_sizes(warp: Warp, function: Callable[[Size], Size]) -> Warp:
    """The warp with other sizes for each of its own, those that its formula reads among them."""
    formula = warp.formula
    if formula is not None:
        numbers = [one if isinstance(one, float) else function(one) for one in formula.numbers]
        formula = replace(formula, numbers=tuple(numbers))
    return replace(warp, size=tuple(map(function, warp.size)), formula=formula)


def filled_warp(warp: Warp, sizes: Sequence[Size]) -> Warp:
    return warp_with_sizes(warp, lambda size: _size(size, sizes))


def warp_to_slots(warp: Warp) -> tuple[Warp, tuple[Size, ...]]:
    """A warp with slots for its symbolic sizes, and those sizes."""
    sizes: list[Size] = []
    return warp_with_sizes(warp, _slots_into(sizes)), tuple(sizes)


def _slots_into(sizes: list[Size]) -> Callable[[Size], Size]:
    def slot_for(size: Size) -> Size:
        if type(size) is int:
            return size
        sizes.append(size)
        return size_slot(len(sizes) - 1)

    return slot_for


def symbolic_to_slots(maps: tuple[AxisMap, ...]) -> tuple[tuple[AxisMap, ...], tuple[Size, ...]]:
    """The maps with slots for their symbolic sizes, and those sizes."""
    if not _have_symbolic_sizes(maps):
        return maps, ()
    sizes: list[Size] = []
    return with_sizes(maps, _slots_into(sizes)), tuple(sizes)


def _have_symbolic_sizes(maps: tuple[AxisMap, ...]) -> bool:
    for one in maps:
        for step in one.steps:
            for field in vars(step).values():
                if isinstance(field, torch.SymInt):
                    return True
    return False


def with_sizes(maps: Sequence[AxisMap], function: Callable[[Size], Size]) -> tuple[AxisMap, ...]:
    """The maps with other sizes for each of theirs, slots among them."""
    return tuple(AxisMap(tuple(_with_sizes(step, function) for step in one.steps)) for one in maps)


def _with_sizes(step: Step, function: Callable[[Size], Size]) -> Step:
    match step:
        case Resize(size) | Area(size) | Nearest(size):
            return replace(step, size=function(size))
        case Slice(start, stop, stride):
            return Slice(function(start), function(stop), stride)
        case Pad(before, after):
            return replace(step, before=function(before), after=function(after))
        case Flip():
            return step


def fill_maps(maps: Sequence[AxisMap], sizes: Sequence[Size]) -> tuple[AxisMap, ...]:
    """Fills sizes into maps. Bounds of slices then lie within the image."""
    return with_sizes(maps, lambda size: _size(size, sizes))


def filled_maps(text: str, sizes: Sequence[Size] | None) -> tuple[AxisMap, ...]:
    maps = maps_from_text(text)
    return fill_maps(maps, sizes) if sizes else maps


def with_slots_in_order(program: Program) -> tuple[Program, list[int]]:
    """The program with its slots numbered in the order they are read, and the numbers they had: those of attempts that
    led nowhere are gone."""
    numbers: list[int] = []

    def renumbered(size: Size) -> Size:
        if not isinstance(size, SizeSlot):
            return size
        if size.number not in numbers:
            numbers.append(size.number)
        return size_slot(numbers.index(size.number))

    sampler: Sampler = program.sampler
    if isinstance(sampler, Axes):
        sampler = Axes(with_sizes(sampler.maps, renumbered), tuple(map(renumbered, sampler.adjoint_of)))
    else:
        sampler = warp_with_sizes(sampler, renumbered)
    return replace(program, sampler=sampler), numbers


def _map(axis_map: AxisMap, sizes: Sequence[int], n: Size) -> AxisMap:
    steps = []
    for step in axis_map.steps:
        steps.append(_step(step, sizes, n))
        n = output_size(steps[-1], n)
    return AxisMap(tuple(steps))


def _step(step: Step, sizes: Sequence[int], n: Size) -> Step:
    if isinstance(step, Slice):
        first, last, _ = slice(_size(step.start, sizes), _size(step.stop, sizes)).indices(n)
        return Slice(first, max(first, last), step.step)
    return _with_sizes(step, lambda size: _size(size, sizes))


def _sizes(slots: Sequence[Size], sizes: Sequence[int]) -> tuple[int, ...]:
    return tuple(_size(one, sizes) for one in slots)


def _size(size: Size, sizes: Sequence[Size]) -> Size:
    return sizes[size.number] if isinstance(size, SizeSlot) else size
