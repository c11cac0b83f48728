"""What becomes of each transform of a chain, for one image: which launch does it, or why it runs as itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from polyphase.pipelines.picture import PIL, Picture
from polyphase.pipelines.reading import OWN, V2, Step, read, why_not
from polyphase.pipelines.vocabulary import Container
from polyphase.pipelines.walks import Walk

ANOTHER = "begins another launch: one launch holds one resize or warp, pads after it, and arithmetic around both"


@dataclass(frozen=True)
class Done:
    """launch: counted from 1 along the chain; None where the transform runs as itself. why: that is so, or why a launch
    begins there; empty otherwise."""

    transform: str
    launch: int | None
    why: str = ""


def account(transform: Any, sample: Any, *, unpacks: bool = False) -> list[Done]:
    """Takes a sample through the chain, drawing from the generators and computing what runs as itself. `unpacks`: the
    sample is a tuple that the chain is given as so many arguments."""
    walk, finished, found = Walk(sample, unpacks=unpacks), 0, list[Done]()
    for step in _in_order(read(transform)):
        pictures = walk.pictures()
        before, why = _launches(pictures), _why_as_itself(step, pictures, walk)
        walk.is_whole = True
        for one in pictures:
            one.has_run = False
        walk.take(step)
        if not walk.is_whole or any(one.has_run for one in pictures):
            finished += before
            found.append(Done(_shown(step), None, why or "torch or Pillow has it as one operation, and does it"))
            continue
        after = _launches(walk.pictures())
        begins = finished + max(before, 1) < finished + after
        found.append(Done(_shown(step), finished + max(after, 1), ANOTHER if begins else ""))
    return found


def _in_order(step: Step | Container) -> Iterator[Step]:
    """The steps of a chain, as containers choose them this time."""
    if isinstance(step, Step):
        yield step
        return
    for one in step.chosen():
        yield from _in_order(one)


def _launches(pictures: list[Picture]) -> int:
    """Counts the launches for the first image: others of a sample go the same way."""
    return 0 if not pictures or pictures[0].is_untouched else len(pictures[0].stages())


def _why_as_itself(step: Step, pictures: list[Picture], walk: Walk) -> str:
    if step.ours is None:
        return f"{_name(step.itself)} is not a transform that Polyphase knows"
    if not pictures:
        return "there is no image that Polyphase reads"
    if step.version not in (OWN, V2) and walk.tree is not None:
        return "transforms of torchvision's first version take an image alone"
    reason = next(filter(None, (why_not(step, one) for one in pictures)), "")
    if not reason and any(one.kind == PIL for one in pictures):
        return "Pillow does it as quickly, by rules of its own"
    return reason


def _shown(step: Step) -> str:
    """Shows a step as it is written, or by its name where that would say where it lies in memory."""
    said = repr(step)
    return _name(step.itself) if " at 0x" in said else said


def _name(transform: Any) -> str:
    named = transform if hasattr(transform, "__qualname__") else type(transform)
    return f"{named.__module__}.{named.__qualname__}"
