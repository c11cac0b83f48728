"""How a program runs: everything its kernel's source, and its sampler's, depends on. Sizes, recipes and memory order
are not among it, so that one kernel serves bilinear and bicubic, every size, and the adjoints of both; and one warp's
kernel grids and matrices, every padding, and corners aligned or not."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from polyphase.records.facts import HALF
from polyphase.records.records import CallRecord, GradientRecord
from polyphase.sampling.integers import SUMMED_IN
from polyphase.sampling.pointwise import VALUE, Expression
from polyphase.sampling.programs import Axes, Program, warp_program
from polyphase.sampling.text import to_text
from polyphase.sampling.warps import Warp


@dataclass(frozen=True, kw_only=True)
class Plan:
    """source: None where values are only moved: then they are bytes. architecture: what the kernel is built for."""

    source: torch.dtype | None
    sampled: torch.dtype
    target: torch.dtype
    architecture: str
    prologue: Expression = VALUE
    epilogue: Expression = VALUE

    @property
    def work(self) -> torch.dtype:
        """The dtype values are in while they are sampled: half precision is float32."""
        return torch.float32 if self.sampled in HALF else self.sampled


@dataclass(frozen=True, kw_only=True)
class MapsPlan(Plan):
    """weighted: outputs may be sums, else each is one input; of how many bytes is then a run-time matter."""

    weighted: bool

    @property
    def work(self) -> torch.dtype:
        return SUMMED_IN.get(self.sampled, super().work) if self.weighted else super().work


@dataclass(frozen=True, kw_only=True)
class WarpPlan(Plan):
    """coordinates: the dtype of the grid, matrix or entries. formula: its expressions; numbers are a run-time matter.
    element_bytes: of values that are only moved. gradients: the kernel of the warp's gradients instead."""

    coordinates: torch.dtype
    mode: str
    axes: int
    formula: tuple[Expression, ...] = ()
    element_bytes: int = 0
    gradients: bool = False

    @property
    def positions(self) -> torch.dtype:
        in_double = torch.float64 in (self.coordinates, SUMMED_IN.get(self.sampled) if self._sums else None)
        return torch.float64 if in_double else torch.float32

    @property
    def work(self) -> torch.dtype:
        return self.positions if self._sums else super().work

    @property
    def _sums(self) -> bool:
        return self.mode != "nearest" or self.gradients


def plan_of(record: CallRecord, architecture: str) -> MapsPlan | WarpPlan:
    if record.coordinates is None:
        return plan_maps(record.program, architecture)
    return plan_warp(record.program, record.coordinates.dtype, len(record.image.shape) - 2, architecture)


def plan_maps(program: Program, architecture: str) -> MapsPlan:
    assert isinstance(program.sampler, Axes), "a warp is planned by plan_warp"
    if program.moves_only:
        # The dtype decides one thing alone: the nearest pixel of a float64 image is found by a double ratio.
        finds = torch.float64 if program.source == torch.float64 else torch.uint8
        return MapsPlan(source=None, sampled=finds, target=finds, weighted=False, architecture=architecture)
    return MapsPlan(
        source=program.source,
        sampled=program.sampled,
        target=program.target,
        weighted=program.sampler.may_sum(),
        architecture=architecture,
        prologue=program.prologue,
        epilogue=program.epilogue,
    )


def plan_warp(
    program: Program, coordinates: torch.dtype, axes: int, architecture: str, gradients: bool = False
) -> WarpPlan:
    """`gradients`: the plan of the warp's gradients; without arithmetic around it."""
    assert isinstance(program.sampler, Warp), "axis maps are planned by plan_maps"
    moves, formula = program.moves_only and not gradients, program.sampler.formula
    return WarpPlan(
        source=None if moves else program.source,
        sampled=program.sampled,
        target=program.target,
        architecture=architecture,
        prologue=program.prologue,
        epilogue=program.epilogue,
        coordinates=coordinates,
        mode=program.sampler.mode,
        axes=axes,
        formula=formula.axes if formula else (),
        element_bytes=program.source.itemsize if moves else 0,
        gradients=gradients,
    )


def plan_gradients(record: GradientRecord, architecture: str) -> WarpPlan:
    program = warp_program(record.image.dtype, record.sampler)
    return plan_warp(program, record.coordinates.dtype, len(record.image.shape) - 2, architecture, gradients=True)


def purpose(plan: MapsPlan | WarpPlan) -> str:
    """What a plan's kernel is for, in a line for people."""
    if isinstance(plan, WarpPlan):
        way = f"{'gradients of a ' if plan.gradients else ''}{plan.mode} warp along {plan.axes} axes"
        way += f" by {to_text(plan.formula)}" if plan.formula else ""
    else:
        way = sampled_as(plan)
    if plan.source is None:
        return way
    before, after = ([] if one == VALUE else [to_text(one)] for one in (plan.prologue, plan.epilogue))
    return " -> ".join([_name(plan.source), *before, way, *after, _name(plan.target)])


def sampled_as(plan: MapsPlan) -> str:
    return f"sums of {_name(plan.work)}" if plan.weighted else "moves values"


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
