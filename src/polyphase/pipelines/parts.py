"""Where a chain of transforms is cut in two, each of which is done as if it stood alone: where an image is stored.

Pictures are the same for it. But each part is one program, which a template can say; and what Pillow or an unknown
transform does is called as it is.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from polyphase.pipelines import sizes
from polyphase.pipelines.picture import NEAREST
from polyphase.pipelines.pillow import warped_by
from polyphase.pipelines.reading import RESIZES, Step, is_left_to_pillow, parts_of
from polyphase.pipelines.vocabulary import Compose, Container
from polyphase.pipelines.warps import Warped

#: A transform, and what it was read into.
Part: TypeAlias = tuple[Any, "Step | Container"]
#: The first part as a function, and the transforms that are left; there may be none.
Cut: TypeAlias = tuple[Callable[[Any], Any], list[Any]]


def cut(whole: Part, alone: Callable[[list[Any]], Callable[[Any], Any]], *, of_pillow: bool) -> Cut | None:
    """None where all is best done at once. `alone`: a pipeline of some transforms. `of_pillow`: for Pillow's images."""
    if of_pillow and is_left_to_pillow(*whole):
        return _in_turn(*whole), []
    if type(whole[1]) is not Compose:
        return None
    parts = list(zip(parts_of(whole[0]), whole[1].transforms, strict=True))
    by_pillow = _by_pillow(parts) if of_pillow else []
    count = len(by_pillow) or _done_at_once(parts)
    if count == len(parts):
        return None
    rest = [transform for transform, _ in parts[count:]]
    if by_pillow:
        return one_by_one([_in_turn(*part) for part in by_pillow]), rest
    first, step = parts[0]
    return first if count == 1 and _is_unknown(step) else alone([one for one, _ in parts[:count]]), rest


def one_by_one(functions: Sequence[Callable[[Any], Any]]) -> Callable[[Any], Any]:
    return lambda image: functools.reduce(lambda made, function: function(made), functions, image)


def _in_turn(transform: Any, step: Step | Container) -> Callable[[Any], Any]:
    """A transform that is left to Pillow, whose warps are made by kernels."""
    if isinstance(step, Step):
        return functools.partial(warped_by, transform) if isinstance(step.ours, Warped) else transform
    if type(step) is not Compose:
        return transform  # type: ignore[no-any-return]
    return one_by_one([_in_turn(*part) for part in zip(parts_of(transform), step.transforms, strict=True)])


def _by_pillow(parts: list[Part]) -> list[Part]:
    """The first ones, up to the last of which Pillow, or a kernel in its place, makes a new picture."""
    first = list(itertools.takewhile(lambda part: is_left_to_pillow(*part), parts))
    while first and not _is_pillows_own(first[-1][1]):
        first.pop()
    return first


def _is_pillows_own(step: Step | Container) -> bool:
    ours = step.ours if isinstance(step, Step) else None
    return isinstance(ours, Warped) or getattr(ours, "interpolation", None) in NEAREST


def _done_at_once(parts: list[Part]) -> int:
    """So many can be one program, whatever is drawn; or one that is not known."""
    is_closed = False
    for number, (_, step) in enumerate(parts):
        if _is_unknown(step):
            return max(number, 1)
        if is_closed and _any(step, _weighs):
            return number
        is_closed = is_closed or _any(step, _closes)
    return len(parts)


def _is_unknown(step: Step | Container) -> bool:
    return isinstance(step, Step) and step.ours is None


def _any(step: Step | Container, holds: Callable[[Any], bool]) -> bool:
    if isinstance(step, Container):
        return any(_any(one, holds) for one in step.transforms)
    return holds(step.ours)


def _weighs(ours: Any) -> bool:
    """Whether pixels are summed, which can be done once in a program, and not after others were put around."""
    resizes = (*RESIZES, sizes.SmartResize, sizes.Letterbox)
    return isinstance(ours, Warped) or (isinstance(ours, resizes) and ours.interpolation not in NEAREST)


def _closes(ours: Any) -> bool:
    """Whether nothing can be summed afterwards."""
    kinds = (*RESIZES, sizes.SmartResize, sizes.Letterbox, sizes.Pad, sizes.RandomZoomOut, Warped)
    return isinstance(ours, kinds) or getattr(ours, "padding", None) is not None
