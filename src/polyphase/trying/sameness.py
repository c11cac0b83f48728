"""How alike two results of a transform are, leaf by leaf."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from polyphase.pipelines.pillow import is_pil
from polyphase.pipelines.sources import is_array
from polyphase.pipelines.trees import tree


@dataclass(frozen=True)
class Sameness:
    """values: of all tensors and pictures of a sample; differing: so many of them. most: the largest difference, in
    `unit`s. problem: what makes a comparison impossible, as another shape."""

    values: int = 0
    differing: int = 0
    most: float = 0.0
    unit: str = ""
    problem: str = ""

    @property
    def is_equal(self) -> bool:
        return not self.differing and not self.problem


def compare(theirs: Any, ours: Any) -> Sameness:
    one, other = tree(theirs), tree(ours)
    if one.form != other.form or len(one.leaves) != len(other.leaves):
        return Sameness(problem=f"theirs is {type(theirs).__name__}, ours {type(ours).__name__}, of another structure")
    found = [_compared(*pair) for pair in zip(one.leaves, other.leaves, strict=True)]
    worst = max(found, key=lambda each: each.most, default=Sameness())
    problem = next((each.problem for each in found if each.problem), "")
    differing = sum(each.differing for each in found)
    return Sameness(sum(each.values for each in found), differing, worst.most, worst.unit, problem)


def summary(found: Sequence[Sameness]) -> str:
    """All pictures in one sentence."""
    equal, count = sum(one.is_equal for one in found), len(found)
    if equal == count:
        return f"the same to the last bit ({count} of {count})"
    problem = next((one.problem for one in found if one.problem), "")
    if problem:
        return f"not the same: {problem}"
    share = sum(one.differing for one in found) / max(1, sum(one.values for one in found))
    worst = max(found, key=lambda one: one.most)
    by = f"{worst.most:.2g} {worst.unit}".strip()
    return f"{equal} of {count} the same to the last bit; {_percent(share)} of all values differ, by at most {by}"


def image_in(result: Any) -> Tensor | None:
    """The first picture in a result, as a tensor (channels, height, width) on the CPU; None where there is none."""
    for leaf in tree(result).leaves:
        values = _values(leaf)
        if values is None or values.ndim < 2:
            continue
        if is_pil(leaf) or is_array(leaf):
            values = values.movedim(-1, 0) if values.ndim == 3 else values[None]
        while values.ndim > 3:
            values = values[0]
        if values.ndim == 3 and values.shape[0] in (1, 3, 4) and min(values.shape) > 0:
            return values.detach().cpu()
    return None


def _compared(theirs: Any, ours: Any) -> Sameness:
    one, other = _values(theirs), _values(ours)
    if one is None or other is None:
        return (
            Sameness() if one is other is None and _is_equal(theirs, ours) else Sameness(problem=_unlike(theirs, ours))
        )
    if type(theirs) is not type(ours) or one.shape != other.shape or one.dtype != other.dtype:
        return Sameness(problem=_unlike(theirs, ours))
    one, other = one.detach().cpu(), other.detach().cpu()
    differs = ~((one == other) | (one.isnan() & other.isnan()))
    if not differs.any():
        return Sameness(one.numel())
    exact = torch.complex128 if one.is_complex() else torch.float64
    most = (one.to(exact) - other.to(exact))[differs].abs().nan_to_num(nan=float("inf")).max().item()
    return Sameness(one.numel(), int(differs.sum()), most, _unit(one, most))


def _unit(values: Tensor, most: float) -> str:
    if not values.is_floating_point():
        return "level" if most == 1 else "levels"
    low, high = values.nan_to_num(posinf=0.0, neginf=0.0).aminmax()
    return f"({100 * most / max(high.item() - low.item(), most):.2g} % of the range of values)"


def _values(leaf: Any) -> Tensor | None:
    if isinstance(leaf, Tensor):
        return leaf.as_subclass(Tensor)
    if is_pil(leaf):
        import numpy

        return torch.from_numpy(numpy.array(leaf))
    if is_array(leaf):
        try:
            return torch.from_numpy(leaf.copy())
        except TypeError:  # of strings, or objects
            return None
    return None


def _is_equal(one: Any, other: Any) -> bool:
    try:
        return bool(one == other)
    except (TypeError, ValueError):
        return False


def _unlike(theirs: Any, ours: Any) -> str:
    return f"theirs is {_said(theirs)}, ours {_said(ours)}"


def _said(leaf: Any) -> str:
    values = _values(leaf)
    return repr(leaf)[:60] if values is None else f"{type(leaf).__name__} {tuple(values.shape)} of {values.dtype}"


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %" if share >= 1e-5 else f"{share * 1e6:.2g} in a million"
