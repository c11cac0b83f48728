"""The box of `interpolate`: the part of an image that is resized, in pixels and fractions of them."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Real
from typing import Any

import torch

from polyphase.arguments.integers import number
from polyphase.errors import WrongArgumentError, WrongArgumentTypeError, WrongSizeError
from polyphase.sampling.steps import Box, Size

#: What its numbers are, by the number of spatial axes: near sides, then far ones, of the last axis first.
SIDES = {
    1: ("left", "right"),
    2: ("left", "top", "right", "bottom"),
    3: ("left", "top", "front", "right", "bottom", "back"),
}


def boxes_of(box: Any, shape: Sequence[Size], mode: str, align_corners: bool | None) -> tuple[Box, ...]:
    """The part of each spatial axis, in the order of axes; checked."""
    boxes = _boxes(box, SIDES[len(shape) - 2])
    given = f"box=({', '.join(map(str, box))})"
    if mode == "area":
        raise WrongArgumentError(
            f"{given} with mode 'area', whose means are of whole pixels; use mode 'box' with antialias=True, or crop"
        )
    if not all(begin < end for begin, end in boxes):  # as of NaN
        raise WrongSizeError(f"{given} has nothing in it; its far sides must lie beyond its near ones")
    if any(begin < 0 or end > size for (begin, end), size in zip(boxes, shape[2:], strict=True)):
        raise WrongSizeError(
            f"{given} leaves an image of shape {tuple(shape)}; near sides are 0 at least, and far sides the image's "
            "size at most: cut the box off, or pad the image"
        )
    if align_corners and not all(end - begin >= 1 for begin, end in boxes):
        raise WrongSizeError(
            f"{given} with align_corners=True, whose corners are the centres of the box's first and last pixel; give "
            "it one pixel along every axis at least, or leave align_corners out"
        )
    return boxes


def _boxes(box: Any, sides: tuple[str, ...]) -> tuple[Box, ...]:
    wanted = f"{len(sides)} numbers, ({', '.join(sides)})"
    if not isinstance(box, (tuple, list)):
        raise WrongArgumentTypeError(f"box={box!r} of type {type(box).__name__}; it must be a tuple of {wanted}")
    for side in box:
        if not isinstance(side, (Real, torch.SymInt, torch.SymFloat)):
            raise WrongArgumentTypeError(f"box has {side!r} of type {type(side).__name__}; give {wanted}")
    if len(box) != len(sides):
        raise WrongArgumentError(f"box={tuple(box)} has {len(box)} numbers; of such an image it has {wanted}")
    axes = len(sides) // 2
    numbers = [number(side, "box") for side in box]
    return tuple((numbers[axis], numbers[axes + axis]) for axis in reversed(range(axes)))
