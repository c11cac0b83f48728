"""What torch's own kernel of an operator does in less time than ours: what a line of a wing's table is.

`accelerate()` and the compile backend leave such calls alone, so that nobody loses by them. Our own functions keep
them: there, results are promised, and not only time. A kernel of ours that becomes quicker takes its line away.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from polyphase.records.facts import HALF


@dataclass(frozen=True)
class Slower:
    """A cause, and whether a call has it.

    operators: names of ATen's overloads, as `upsample_nearest2d`. applies: asked with the call's arguments in their
    order, tensors with or without data, all of whose sizes are known; at every call, so it takes next to nothing.
    measured: the benchmark's row that defends it (`polyphase bench`).
    """

    cause: str
    operators: tuple[str, ...]
    applies: Callable[..., bool]
    measured: str


def question(table: Sequence[Slower], operator: str) -> Callable[..., bool] | None:
    """Whether torch's own kernel takes less time for the call of an operator that has such arguments. None where it
    never does."""
    lines = [line.applies for line in table if operator in line.operators]
    if not lines:
        return None

    def is_slower(*arguments: Any) -> bool:
        for applies in lines:
            if applies(*arguments):
                return not goes_outside(operator, arguments)
        return False

    return is_slower


def goes_outside(operator: str, arguments: Sequence[Any]) -> bool:
    """Whether ATen's kernel of such a call is known to read or write outside its memory, for some sizes at least: as
    `docs/where-eager-is-wrong.md` has it. Such a call is ours, whatever it takes."""
    tensors = [one for one in arguments if isinstance(one, Tensor)]
    if operator.startswith("grid_sampler"):
        return any(one.dtype in HALF for one in tensors)
    return tensors[0].dtype == torch.uint8 and any(kind in operator for kind in ("linear", "cubic"))
