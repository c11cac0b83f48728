"""A picture's way through transforms of which nothing is random, by its size alone: what its axes go through, and
whether all else is as for a picture of another size. A new size then costs no program and no binding."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from polyphase.kernels.facts import Sizes
from polyphase.pipelines.picture import TENSOR
from polyphase.pipelines.reading import Step
from polyphase.pipelines.vocabulary import NO_PARAMS, Compose, Container, Transform
from polyphase.sampling.axis_maps import AxisPath


class NotFollowedError(Exception):
    """Something is done that only a picture can do."""


class Outline:
    """Stands for a `Picture` of a tensor. marks: what is done to it besides moving its pixels, in order; pictures of
    the same marks have programs that differ in the steps of their axes alone."""

    def __init__(self, dtype: torch.dtype, shape: Sizes) -> None:
        self.kind, self.dtype, self._leading = TENSOR, dtype, shape[:-2]
        self.height, self.width = shape[-2:]
        self.rows, self.columns = AxisPath.whole(self.height), AxisPath.whole(self.width)
        self.marks: list[object] = []

    @property
    def shape(self) -> Sizes:
        return (*self._leading, self.height, self.width)

    def __getattr__(self, name: str) -> Any:
        raise NotFollowedError(name)

    def resize(self, height: int, width: int, mode: str, antialias: bool, *, in_floats: bool = False) -> None:
        if (height, width) == (self.height, self.width):
            return
        if height < 1 or width < 1:
            raise NotFollowedError("an error")
        if self.rows.resized:
            raise NotFollowedError("two of them")
        self.marks.append(("resize", mode, antialias, in_floats))
        self.rows, self.columns = self.rows.resize(height), self.columns.resize(width)
        self.height, self.width = height, width

    def crop(self, top: int, left: int, height: int, width: int) -> None:
        self.rows, self.columns = self.rows.crop(top, height), self.columns.crop(left, width)
        self.height, self.width = height, width

    def flip(self, dim: int) -> None:
        if dim == -1:
            self.columns = self.columns.flip()
        else:
            self.rows = self.rows.flip()

    def becomes(self, kind: str, *, contiguous: bool = False) -> None:
        self.kind = kind

    def compute(self, expression: Callable[..., Any], dtype: torch.dtype) -> None:
        self.marks.append(dtype)
        self.dtype = dtype

    def normalise(self, mean: Sequence[float], std: Sequence[float]) -> None:
        self.marks.append("normalise")


def fixed_transforms(step: Step | Container) -> list[Transform] | None:
    """All of them, where each is ours, is not random and is always done."""
    if isinstance(step, Step):
        return None if step.ours is None or step.ours.is_random else [step.ours]
    parts = [fixed_transforms(one) for one in step.transforms] if type(step) is Compose else [None]
    return None if None in parts else [one for own in parts for one in own or ()]


def outline(transforms: Sequence[Transform], dtype: torch.dtype, shape: Sizes) -> Outline | None:
    """None where something else is done, or refused: that is a picture's matter."""
    made = Outline(dtype, shape)
    stands_in: Any = made
    try:
        for one in transforms:
            one.apply(stands_in, NO_PARAMS)
    except NotFollowedError:
        return None
    return made
