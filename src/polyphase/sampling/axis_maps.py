"""Axis maps: chains of steps in the normal form, and how they compose.

Normal form: crops and flips, at most one weighted step, then any index-only steps. Every output pixel then reads one
window of neighbouring input pixels, which is what a kernel can do in one pass. What does not fit is `NotMerged`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import NamedTuple

import torch

from polyphase.errors import NotNormalFormError
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
    Weighted,
    output_size,
)


class Reason(Enum):
    """Why two steps stay separate."""

    TWO_WEIGHTED = "eager rounds or stores between two weighted steps, and their product needs many more taps"
    PAD_BEFORE_WEIGHTED = (
        "a border before a weighted step: folding it changes the weights (beyond 16 bits for replicate), "
        "a constant border makes the sum affine, and reflected or circular windows are not contiguous"
    )
    STEP_BEFORE_WEIGHTED = "a slice with a step before a weighted step: its windows are not contiguous"
    NEAREST_BEFORE_WEIGHTED = "nearest before a weighted step: its windows are not contiguous"


@dataclass(frozen=True)
class NotMerged:
    """`second` cannot follow `first` in one axis map."""

    reason: Reason
    first: Step
    second: Step

    def __str__(self) -> str:
        return f"{self.second} not merged after {self.first}: {self.reason.value}"


@dataclass(frozen=True)
class AxisMap:
    """A chain of steps in the normal form, tidied without knowing the axis's size. No steps: the identity."""

    steps: tuple[Step, ...]
    weighted: Weighted | None = field(init=False, repr=False, compare=False)  # the step that is, if any

    def __post_init__(self) -> None:
        steps = _tidy(self.steps)
        weighted = [step for step in steps if isinstance(step, Weighted)]
        conflict = _conflict(steps) if weighted and len(steps) > 1 else None
        if conflict is not None:
            raise NotNormalFormError(conflict)
        object.__setattr__(self, "steps", steps)
        object.__setattr__(self, "weighted", weighted[0] if weighted else None)

    def may_sum(self, transposed: bool = False) -> bool:
        """Whether an output of the map, or of its adjoint, can be more or less than one input. The adjoint of a flip is
        a flip."""
        if transposed:
            return any(not isinstance(step, Flip) for step in self.steps)
        return self.weighted is not None

    def output_size(self, in_size: Size) -> Size:
        for step in self.steps:
            in_size = output_size(step, in_size)
        return in_size


def order_of_sums(maps: Sequence[AxisMap], dtype: torch.dtype) -> list[int]:
    """The axes in the order in which an image is summed along them: bytes are rounded after each."""
    axes = range(len(maps))
    if dtype != torch.uint8:
        return list(axes)
    return sorted(axes, key=lambda axis: (not comes_first(maps[axis]), -axis))


def comes_first(one: AxisMap) -> bool:
    return isinstance(one.weighted, Resize) and one.weighted.first


def compose(first: AxisMap, second: AxisMap) -> AxisMap | NotMerged:
    """`first`, then `second`, as one map; or why not."""
    steps = _tidy(first.steps + second.steps)
    return _conflict(steps) or AxisMap(steps)


def drop_identities(axis_map: AxisMap, in_size: int) -> AxisMap:
    """The map without the steps that leave an axis of `in_size` pixels as it is."""
    kept = []
    for step in axis_map.steps:
        if not _is_identity(step, in_size):
            kept.append(step)
        in_size = int(output_size(step, in_size))
    return AxisMap(tuple(kept))


def _conflict(steps: tuple[Step, ...]) -> NotMerged | None:
    weighted = [i for i, step in enumerate(steps) if isinstance(step, Weighted)]
    if not weighted:
        return None
    if len(weighted) > 1:
        return NotMerged(Reason.TWO_WEIGHTED, steps[weighted[0]], steps[weighted[1]])
    after = steps[weighted[0]]
    for before in steps[: weighted[0]]:
        reason = _why_not_before_weighted(before)
        if reason is not None:
            return NotMerged(reason, before, after)
    return None


def _why_not_before_weighted(step: Step) -> Reason | None:
    match step:
        case Pad():
            return Reason.PAD_BEFORE_WEIGHTED
        case Nearest():
            return Reason.NEAREST_BEFORE_WEIGHTED
        case Slice(step=stride) if stride != 1:
            return Reason.STEP_BEFORE_WEIGHTED
    return None


def _tidy(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """Joins neighbours that are one step: flip flip -> nothing, slice slice -> slice, an empty pad -> nothing."""
    done: list[Step] = []
    for step in steps:
        match done[-1:], step:
            case _, Pad(0, 0):
                pass
            case [Flip()], Flip():
                done.pop()
            case [Slice() as first], Slice() as second if not _has_slots(first, second):
                done[-1] = _slice_of_slice(first, second)
            case _:
                done.append(step)
    return tuple(done)


def _has_slots(*slices: Slice) -> bool:
    return any(isinstance(end, SizeSlot) for one in slices for end in (one.start, one.stop))


def _slice_of_slice(first: Slice, second: Slice) -> Slice:
    output_size(second, output_size(first, first.stop))  # raises where the second reaches beyond the first
    start = torch.sym_min(first.start + second.start * first.step, first.stop)  # beyond it only where nothing is left
    stride = first.step * second.step
    count = output_size(second, second.stop)
    return Slice(start, start + torch.sym_max((count - 1) * stride + 1, 0), stride)


def _is_identity(step: Step, in_size: int) -> bool:
    match step:
        case Slice(0, stop, 1):
            return stop == in_size
        case Resize(size, scale=None, box=box) | Nearest(size, scale=None, box=box):
            return size == in_size and box in (None, (0, in_size))
        case Area(size):
            return size == in_size
    return False


class AxisPath(NamedTuple):
    """Crops and flips around one weighted step, by numbers. What is resized is `cropped` pixels from `crop_first` on,
    in a direction of 1 or -1; output i is row begin + step * i of what they become. resized: 0 where nothing is."""

    crop_first: int
    direction: int
    cropped: int
    resized: int
    begin: int
    step: int
    out_size: int

    @staticmethod
    def whole(size: int) -> AxisPath:
        return AxisPath(0, 1, size, 0, 0, 1, size)

    @staticmethod
    def of(steps: tuple[Step, ...], size: int) -> AxisPath | None:
        """Reads a path off steps: None of other steps, of two resizes or one of a box, or where nothing is left."""
        path = AxisPath.whole(size)
        for step in steps:
            if isinstance(step, Slice) and step.step == 1:
                path = path.crop(step.start, step.stop - step.start)
            elif isinstance(step, Flip):
                path = path.flip()
            elif isinstance(step, Resize) and step.box is None and not path.resized:
                path = path.resize(step.size)
            else:
                return None
        return path if path.out_size and path.cropped else None

    def resize(self, size: int) -> AxisPath:
        """Once, and before that no more than crops and flips."""
        return AxisPath(self.begin, self.step, self.out_size, size, 0, 1, size)

    def crop(self, start: int, size: int) -> AxisPath:
        return AxisPath(*self[:4], self.begin + self.step * start, self.step, size)

    def flip(self) -> AxisPath:
        return AxisPath(*self[:4], self.begin + self.step * (self.out_size - 1), -self.step, self.out_size)

    def map_like(self, one: AxisMap) -> AxisMap:
        """The steps, whose resize is as another's but for its size."""
        assert isinstance(one.weighted, Resize), "there is a resize to be like"
        before = _moves(self.crop_first, self.direction, self.cropped)
        return AxisMap(
            (*before, replace(one.weighted, size=self.resized), *_moves(self.begin, self.step, self.out_size))
        )


def _moves(begin: int, step: int, size: int) -> tuple[Step, ...]:
    if step > 0:
        return (Slice(begin, begin + size),)
    return Slice(begin - size + 1, begin + 1), Flip()
