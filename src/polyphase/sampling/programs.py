"""A program: everything one kernel computes, as frozen data.

    load -> prologue -> axis maps or a warp -> epilogue -> store

It says what is computed, never how: no tile, no order of passes, no device. Its text form (`text.py`) is what tests
compare, what keys caches and what travels through graphs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import torch

from polyphase.errors import InvalidProgramError, UnknownNameError
from polyphase.sampling.axis_maps import AxisMap
from polyphase.sampling.pointwise import VALUE, Expression, Operand, dtype_of, operands_of
from polyphase.sampling.steps import Pad, Size
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

    def may_sum(self) -> bool:
        return any(one.may_sum(bool(self.adjoint_of)) for one in self.maps)


@dataclass(frozen=True)
class Border:
    """A constant border's value. It never goes through the prologue; through the epilogue only where the border was
    put on before it (`stored` False)."""

    value: float
    stored: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "value", float(self.value))  # 0 and 0.0 are one value, with one text


Sampler: TypeAlias = Axes | Warp


@dataclass(frozen=True)
class Program:
    source: torch.dtype
    sampler: Sampler
    prologue: Expression = VALUE
    epilogue: Expression = VALUE
    borders: tuple[Border, ...] = ()
    order: str = "preserve"

    def __post_init__(self) -> None:
        if self.order not in ORDERS:
            raise UnknownNameError("memory order", self.order, ORDERS)
        if any(isinstance(leaf, Operand) for leaf in operands_of(self.prologue)):
            raise InvalidProgramError("the prologue reads a tensor of the output's shape; only the epilogue can")
        if isinstance(self.sampler, Axes):
            _check_axes(self.sampler, self.borders, self.sampled)
        else:
            _check_warp(self.sampler, self.borders, self.sampled)
        _check_border_order(self.borders)
        dtype_of(self.epilogue, self.sampled)  # raises where it computes no image

    @property
    def sampled(self) -> torch.dtype:
        """The dtype the sampler sees. uint8 here means 16 bit weights and rounding after every weighted axis."""
        return dtype_of(self.prologue, self.source)

    @property
    def target(self) -> torch.dtype:
        return dtype_of(self.epilogue, self.sampled)


def _check_warp(warp: Warp, borders: tuple[Border, ...], sampled: torch.dtype) -> None:
    if borders:
        raise InvalidProgramError("a warp with constant borders; a warp's outside is its padding mode's")
    if warp.mode != "nearest" and not (sampled.is_floating_point or sampled == torch.uint8):
        raise InvalidProgramError(
            f"a {warp.mode} warp of {sampled}; cast to a float dtype in the prologue, or use uint8"
        )


def _check_axes(axes: Axes, borders: tuple[Border, ...], sampled: torch.dtype) -> None:
    sums = [axis.may_sum(bool(axes.adjoint_of)) for axis in axes.maps]
    if not axes.maps or sum(sums) > 3:
        raise InvalidProgramError(f"{len(axes.maps)} axis maps, {sum(sums)} weighted; there is one at least, and 3 sum")
    if axes.adjoint_of and (len(axes.adjoint_of) != len(axes.maps) or borders):
        raise InvalidProgramError(f"an adjoint of {axes.adjoint_of} with {len(axes.maps)} maps and borders {borders}")
    if any(sums) and not (sampled.is_floating_point or (sampled == torch.uint8 and not axes.adjoint_of)):
        raise InvalidProgramError(f"a weighted map of {sampled}; cast to a float dtype in the prologue, or use uint8")
    for axis in axes.maps:
        numbers = [step.border for step in axis.steps if isinstance(step, Pad) and step.border]
        if numbers != sorted(numbers):
            raise InvalidProgramError(f"borders {numbers} on one axis; a later border has the greater number")
        if numbers and numbers[-1] > len(borders):
            raise InvalidProgramError(f"border {numbers[-1]} on an axis, but the program lists {len(borders)} values")


def _check_border_order(borders: tuple[Border, ...]) -> None:
    stored = [border.stored for border in borders]
    if stored != sorted(stored):
        raise InvalidProgramError(
            "a border from before the epilogue lies around one from after it; number them in order"
        )
