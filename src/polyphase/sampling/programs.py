"""A program: everything one kernel computes, as frozen data.

    load -> prologue -> axis maps or a warp -> epilogue -> store

It says what is computed, never how: no tile, no order of passes, no device. Its text form (`text.py`) is what tests
compare, what keys caches and what travels through graphs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import TypeAlias

import torch

from polyphase.errors import InvalidProgramError, UnknownNameError
from polyphase.sampling.axis_maps import AxisMap
from polyphase.sampling.integers import can_be_mixed
from polyphase.sampling.pointwise import VALUE, Expression, Operand, dtype_of, operands_of
from polyphase.sampling.steps import Area, Flip, Nearest, Pad, Resize, Size, Slice
from polyphase.sampling.warps import Warp

#: How the output lies in memory; `preserve` follows the input's suggested memory format, as eager does.
ORDERS = ("preserve", "contiguous", "channels_last")


@dataclass(frozen=True)
class Axes:
    """One map for each of an image's last axes, the last axis last.

    adjoint_of: for the adjoint of the maps (a resize's gradient), the sizes of those axes before the maps: they are the
    output's.
    """

    maps: tuple[AxisMap, ...]
    adjoint_of: tuple[Size, ...] = ()

    @property
    def transposed(self) -> bool:
        return bool(self.adjoint_of)

    def may_sum(self) -> bool:
        return any(one.may_sum(bool(self.adjoint_of)) for one in self.maps)


@dataclass(frozen=True, eq=False)
class Border:
    """A constant border's value. It never goes through the prologue; through the epilogue only where the border was
    put on before it (`stored` False).

    A float wherever one holds the value: 0 and 0.0 are one, with one text. 0.0 and -0.0 are two; NaN is equal to
    itself.
    """

    value: float | int | complex
    stored: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.value, complex) and (math.isnan(self.value) or float(self.value) == self.value):
            object.__setattr__(self, "value", float(self.value))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Border) and (repr(self.value), self.stored) == (repr(other.value), other.stored)

    def __hash__(self) -> int:
        return hash((repr(self.value), self.stored))


Sampler: TypeAlias = Axes | Warp


@dataclass(frozen=True)
class Program:
    source: torch.dtype
    sampler: Sampler
    prologue: Expression = VALUE
    epilogue: Expression = VALUE
    borders: tuple[Border, ...] = ()
    order: str = "preserve"

    # What follows. sampled: the dtype the sampler sees; uint8 means 16 bit weights and rounding after every weighted
    # axis, another integer rounding of the result. moves_only: values are stored as they were loaded, each somewhere
    # else: their dtype does not matter then.
    sampled: torch.dtype = field(init=False, repr=False, compare=False)
    target: torch.dtype = field(init=False, repr=False, compare=False)
    moves_only: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.order not in ORDERS:
            raise UnknownNameError("memory order", self.order, ORDERS)
        if any(isinstance(leaf, Operand) for leaf in operands_of(self.prologue)):
            raise InvalidProgramError("the prologue reads a tensor of the output's shape; only the epilogue can")
        sampled = dtype_of(self.prologue, self.source)
        if isinstance(self.sampler, Axes):
            weighs = _check_axes(self.sampler, self.borders, sampled)
        else:
            weighs = _check_warp(self.sampler, self.borders, sampled)
        _check_border_order(self.borders)
        target = dtype_of(self.epilogue, sampled)  # raises where it computes no image
        moves_only = not weighs and self.prologue == self.epilogue == VALUE
        vars(self).update(sampled=sampled, target=target, moves_only=moves_only)

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        """Asked for at every look-up of what was made for a program."""
        return hash((self.source, self.sampler, self.prologue, self.epilogue, self.borders, self.order))

    def axes(self, rank: int) -> int:
        """How many of the last dimensions of an image of `rank` dimensions are sampled along."""
        return len(self.sampler.maps) if isinstance(self.sampler, Axes) else rank - 2


def maps_program(
    dtype: torch.dtype, maps: tuple[AxisMap, ...], adjoint_of: tuple[Size, ...] = (), border: float | complex = 0
) -> Program:
    """Maps without arithmetic around them; `border`: the value of their constant border, if they have one."""
    return _maps_program(dtype, maps, tuple(adjoint_of), border, repr(border))


@lru_cache(maxsize=256)  # images of many sizes are resized to one: their program is the same
def _maps_program(
    dtype: torch.dtype, maps: tuple[AxisMap, ...], adjoint_of: tuple[Size, ...], border: float | complex, named: str
) -> Program:
    """`named`: the border told apart from those that are equal to it."""
    moved = adjoint_by_moving(maps) if adjoint_of else None
    if moved is not None:
        maps, adjoint_of, border = moved, (), 0.0
    bordered = not adjoint_of and any(isinstance(step, Pad) and step.border for one in maps for step in one.steps)
    order = "preserve" if adjoint_of else forward_order(maps)
    return Program(dtype, Axes(maps, adjoint_of), borders=(Border(border),) if bordered else (), order=order)


def differ_in_sizes(program: Program, sizes: tuple[int, ...], other: Program, others: tuple[int, ...]) -> bool:
    """Whether two programs are the same but for the sizes that their axes are resized to, by one step each."""
    return _with_sizes(program, sizes) == program and _with_sizes(program, others) == other


def _with_sizes(program: Program, sizes: tuple[int, ...]) -> Program | None:
    axes = program.sampler
    if not isinstance(axes, Axes) or len(axes.maps) != len(sizes):
        return None
    steps = [step for one in axes.maps for step in one.steps if isinstance(step, (Area, Nearest, Resize))]
    if len(steps) != len(sizes) or any(len(one.steps) != 1 for one in axes.maps):
        return None
    maps = [AxisMap((replace(one, size=size),)) for one, size in zip(steps, sizes, strict=True)]
    return replace(program, sampler=replace(axes, maps=tuple(maps)))


def forward_order(maps: tuple[AxisMap, ...]) -> str:
    """How eager lays out the result of maps: volumes of `area` are contiguous, but for means; the rest is as the image
    is."""
    areas = [step for one in maps for step in one.steps if isinstance(step, Area)]
    volumes = len(maps) == 3 and any(step.size != 1 for step in areas)
    return "contiguous" if volumes else "preserve"


def moves_runs(program: Program) -> bool:
    """Whether pixels that lie side by side do so afterwards, or the other way round, with one border around at most."""
    runs = (Flip, Slice, Pad)
    return (
        program.moves_only
        and isinstance(program.sampler, Axes)
        and len(program.borders) <= 1
        and all(isinstance(step, runs) for one in program.sampler.maps for step in one.steps)
        and all(step.mode == "constant" for one in program.sampler.maps for step in one.steps if isinstance(step, Pad))
    )


def by_moving(program: Program) -> Program:
    """A program whose maps are an adjoint that only moves pixels, with index-only maps instead."""
    axes = program.sampler
    maps = adjoint_by_moving(axes.maps) if isinstance(axes, Axes) and axes.transposed else None
    if maps is None:
        return program
    most = max((step.border for one in maps for step in one.steps if isinstance(step, Pad)), default=0)
    return replace(program, sampler=Axes(maps), borders=(Border(0.0),) * most)


def adjoint_by_moving(maps: tuple[AxisMap, ...]) -> tuple[AxisMap, ...] | None:
    """The adjoints of maps as index-only maps, where all of them are: what a constant border was put around is cut out
    again."""
    moved = []
    for one in maps:
        match one.steps:
            case () | (Flip(),):
                moved.append(one)
            case (Pad(before, after, "constant", border),):
                moved.append(AxisMap((Pad(-before, -after, "constant", border),)))
            case _:
                return None
    return tuple(moved)


@lru_cache(maxsize=256)
def warp_program(dtype: torch.dtype, warp: Warp) -> Program:
    """A warp without arithmetic around it. Its output is contiguous, as eager's."""
    return Program(dtype, warp, order="contiguous")


def _check_warp(warp: Warp, borders: tuple[Border, ...], sampled: torch.dtype) -> bool:
    """Whether it weighs."""
    if borders:
        raise InvalidProgramError("a warp with constant borders; a warp's outside is its padding mode's")
    if warp.mode != "nearest" and not can_be_mixed(sampled):
        raise InvalidProgramError(f"a {warp.mode} warp of {sampled}; cast to a float dtype in the prologue")
    return warp.mode != "nearest"


def _check_axes(axes: Axes, borders: tuple[Border, ...], sampled: torch.dtype) -> bool:
    """Whether they weigh."""
    sums = sum([axis.may_sum(axes.transposed) for axis in axes.maps])
    if not axes.maps or sums > 3:
        raise InvalidProgramError(f"{len(axes.maps)} axis maps, {sums} weighted; there is one at least, and 3 sum")
    if axes.adjoint_of and (len(axes.adjoint_of) != len(axes.maps) or borders):
        raise InvalidProgramError(f"an adjoint of {axes.adjoint_of} with {len(axes.maps)} maps and borders {borders}")
    if sums and not (sampled.is_floating_point or (can_be_mixed(sampled) and not axes.adjoint_of)):
        raise InvalidProgramError(f"a weighted map of {sampled}; cast to a float dtype in the prologue")
    for axis in axes.maps:
        if axes.adjoint_of or axis.steps == (axis.weighted,):  # an adjoint has none: they do not depend on the image
            continue
        numbers = [step.border for step in axis.steps if isinstance(step, Pad) and step.border]
        if numbers != sorted(numbers):
            raise InvalidProgramError(f"borders {numbers} on one axis; a later border has the greater number")
        if numbers and numbers[-1] > len(borders):
            raise InvalidProgramError(f"border {numbers[-1]} on an axis, but the program lists {len(borders)} values")
    return sums > 0


def _check_border_order(borders: tuple[Border, ...]) -> None:
    stored = [border.stored for border in borders]
    if stored != sorted(stored):
        raise InvalidProgramError(
            "a border from before the epilogue lies around one from after it; number them in order"
        )
