"""Whether two cells differ, or only the machine did.

The clock of a shared machine swings, a neighbour takes its caches and half of its core, and two processes lie apart
in memory. So a difference between two runs counts only if both hold, for the times as they were measured and for the
times divided by each yardstick's (a copy in memory, a loop in Python) that were measured beside them:

* it is greater than `LEAST`;
* it is greater than these together: what the one cell's blocks and passes scatter, what the other's do, and what the
  yardsticks changed from run to run. A neighbour slows different code down differently: where yardsticks changed, any
  code may have.

Of 20 runs of one build on a busy machine, each held against each other, no row of 7220 was called different so; by a
mere 5 % of the median, 1664 were. Of two cells of one row the blocks were measured in turn: they are divided by each
other, and need no yardstick.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from polyphase.bench.results import Cell, Row

LEAST = 0.05
FEWEST_BLOCKS = 4  # of fewer nobody can say what they scatter

FASTER, SLOWER, NOISE = "faster", "slower", "within the noise"


@dataclass(frozen=True)
class Ratio:
    """How many times as fast the first is as the second, and what to make of it."""

    speed_up: float
    verdict: str


@dataclass(frozen=True)
class Side:
    """A cell and the row it was measured in."""

    row: Row
    cell: Cell


def compare(first: Side, second: Side) -> Ratio:
    speed_up = second.cell.median / first.cell.median
    if min(len(side.cell.blocks) for side in (first, second)) < FEWEST_BLOCKS:
        return Ratio(speed_up, NOISE)
    differences = list(_differences(first, second))
    if all(difference > 0 for difference in differences):
        return Ratio(speed_up, FASTER)
    if all(difference < 0 for difference in differences):
        return Ratio(speed_up, SLOWER)
    return Ratio(speed_up, NOISE)


def _differences(first: Side, second: Side) -> Iterator[float]:
    """Gives the differences of the times' logarithms, 0 where they are within the noise: as measured, and by each
    yardstick.
    """
    if first.row is second.row:
        yield _difference(_relative(first.cell, second.cell), [[0.0]])
        return
    yardsticks = list(_yardsticks(first, second))
    drift = max((abs(_middle(_logarithms(a)) - _middle(_logarithms(b))) for a, b in yardsticks), default=0.0)
    yield _difference(_logarithms(first.cell), _logarithms(second.cell), drift)
    for mine, theirs in yardsticks:
        yield _difference(_relative(first.cell, mine), _relative(second.cell, theirs), drift)


def _yardsticks(first: Side, second: Side) -> Iterator[tuple[Cell, Cell]]:
    for mine in first.row.yardsticks:
        theirs = second.row.cell(mine.column)
        if theirs is not None and mine.timed and theirs.timed:
            yield mine, theirs


Passes = list[list[float]]


def _logarithms(cell: Cell) -> Passes:
    return [[math.log(seconds) for seconds in blocks] for blocks in cell.passes if blocks]


def _relative(cell: Cell, yardstick: Cell) -> Passes:
    """Block by block: those of one place were measured beside each other."""
    pairs = zip(cell.passes, yardstick.passes, strict=False)
    return [[math.log(a / b) for a, b in zip(mine, its, strict=False)] for mine, its in pairs if mine and its]


def _difference(first: Passes, second: Passes, drift: float = 0.0) -> float:
    difference = _middle(second) - _middle(first)
    noise = max(math.log1p(LEAST), _scatter(first) + _scatter(second) + drift)
    return difference if abs(difference) > noise else 0.0


def _middle(passes: Passes) -> float:
    return statistics.median(_flat(passes))


def _scatter(passes: Passes) -> float:
    """Half of what the blocks span, the outermost eighths apart, or of what the middles of passes span, the greater."""
    blocks = sorted(_flat(passes))
    cut = len(blocks) // 8
    kept = blocks[cut : len(blocks) - cut]
    middles = [statistics.median(blocks) for blocks in passes]
    return max(kept[-1] - kept[0], max(middles) - min(middles)) / 2


def _flat(passes: Passes) -> Sequence[float]:
    return [value for blocks in passes for value in blocks]
