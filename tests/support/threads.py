"""Torch's threads: so many for a while, and results that are the same however many there are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor


@contextmanager
def threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def assert_same_by_threads(function: Callable[[], Sequence[Tensor | None]], counts: Sequence[int] = (1, 2, 5)) -> None:
    """To the same bits; NaN is equal to itself."""
    results = []
    for count in counts:
        with threads(count):
            results.append(function())
    for one in results[1:]:
        for ours, alone in zip(one, results[0], strict=True):
            assert ours is not None
            assert alone is not None
            torch.testing.assert_close(ours, alone, rtol=0, atol=0, equal_nan=True)
