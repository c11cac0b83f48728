"""Times several ways to do the same pictures, which take turns, so that a machine whose clock swings does it to all."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

#: Seconds of one picture, by the name of a way: one number for each round.
Times = dict[str, list[float]]
Way = Callable[[], object]

ROUNDS = 7
#: Ways that take less are repeated within a round.
BLOCK_SECONDS = 0.02


def take_turns(ways: dict[str, Way], pictures: int, device: str, times: Times, tell: Callable[[str], None]) -> None:
    """Fills `times`, round by round, so that an interruption keeps those that were done. A way does all pictures."""
    repeats = {name: _repeats(way, device) for name, way in ways.items()}
    for number in range(ROUNDS):
        tell(f"round {number + 1} of {ROUNDS}")
        for name in ways if number % 2 == 0 else reversed(ways):
            seconds = _seconds(ways[name], repeats[name], device)
            times.setdefault(name, []).append(seconds / (pictures * repeats[name]))


def typical(seconds: list[float]) -> float:
    return statistics.median(seconds)


@contextmanager
def threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _repeats(way: Way, device: str) -> int:
    """How often to call, after the first call, which builds kernels."""
    way()
    return max(1, round(BLOCK_SECONDS / max(1e-6, _seconds(way, 1, device))))


def _seconds(way: Way, repeats: int, device: str) -> float:
    _wait(device)
    start = time.perf_counter()
    for _ in range(repeats):
        way()
    _wait(device)
    return time.perf_counter() - start


def _wait(device: str) -> None:
    if device != "cpu":
        torch.accelerator.synchronize()
