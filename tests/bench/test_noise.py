"""The same build measured twice is not called faster or slower, however the machine behaves; a change is."""

from __future__ import annotations

import dataclasses
import json
import math
import random
from itertools import combinations, pairwise
from pathlib import Path

import pytest

from polyphase.bench import noise
from polyphase.bench.noise import FASTER, NOISE, SLOWER, Side
from polyphase.bench.results import Cell, Row

# Six rows of twenty runs of one build, minutes apart, on two hyperthreads that others used meanwhile: microseconds of
# blocks, by column and pass.
RECORDED = Path(__file__).parent / "recorded_noise.json"
COLUMNS = ("eager", "polyphase")


YARDSTICKS = ("memory-floor", "clock")


def row_of(columns: dict[str, list[list[float]]]) -> Row:
    cells = tuple(
        Cell(column, column, tuple(map(tuple, passes)), yardstick=column in YARDSTICKS)
        for column, passes in columns.items()
    )
    return Row("aa", "", "a row", 1000, cells)


def recorded() -> list[list[Row]]:
    return [[row_of(row) for row in run] for run in json.loads(RECORDED.read_text())]


def side(row: Row, column: str) -> Side:
    cell = row.cell(column)
    assert cell is not None
    return Side(row, cell)


def scaled(row: Row, column: str, factor: float) -> Row:
    """As if a column took `factor` times as long."""
    cells = [
        dataclasses.replace(cell, passes=tuple(tuple(s * factor for s in blocks) for blocks in cell.passes))
        if cell.column == column
        else cell
        for cell in row.cells
    ]
    return dataclasses.replace(row, cells=tuple(cells))


def test_no_run_differs_from_another_of_the_same_build() -> None:
    runs = recorded()
    ratios = [
        (place, column, noise.compare(side(row, column), side(other, column)))
        for one, two in combinations(runs, 2)
        for place, (row, other) in enumerate(zip(one, two, strict=True))
        for column in COLUMNS
    ]
    assert len(ratios) == 190 * 6 * 2
    assert [ratio for ratio in ratios if ratio[2].verdict != NOISE] == []
    swings = [max(ratio.speed_up, 1 / ratio.speed_up) for _, _, ratio in ratios]
    assert max(swings) > 2  # the machine gave occasion to be fooled


def test_a_great_change_shows_on_that_machine_too() -> None:
    runs = recorded()
    verdicts = [
        noise.compare(side(scaled(row, "polyphase", 1 / 5), "polyphase"), side(other, "polyphase")).verdict
        for one, two in pairwise(runs)
        for row, other in zip(one, two, strict=True)
    ]
    assert SLOWER not in verdicts
    assert verdicts.count(FASTER) > 0.75 * len(verdicts)


def simulated(seed: int, *, swing: float, jitter: float = 0.01, polyphase: float = 100.0) -> Row:
    """Passes under clocks of their own, which slow everything down, and blocks that jitter."""
    draw = random.Random(seed)
    base = {"memory-floor": 10.0, "clock": 30.0, "eager": 400.0, "polyphase": polyphase}
    clocks = [math.exp(draw.uniform(0, math.log(swing))) for _ in range(3)]
    return row_of(
        {
            column: [[time * clock * math.exp(draw.gauss(0, jitter)) for _ in range(5)] for clock in clocks]
            for column, time in base.items()
        }
    )


@pytest.mark.parametrize("swing", [1.0, 1.2, 2.0])
def test_a_swinging_clock_is_no_difference(swing: float) -> None:
    rows = [simulated(seed, swing=swing) for seed in range(40)]
    for one, two in combinations(rows, 2):
        for column in COLUMNS:
            assert noise.compare(side(one, column), side(two, column)).verdict == NOISE


def test_on_a_quiet_machine_a_tenth_shows() -> None:
    for seed in range(20):
        before = side(simulated(seed, swing=1.01, jitter=0.005), "polyphase")
        after = side(simulated(seed + 100, swing=1.01, jitter=0.005, polyphase=90.0), "polyphase")
        assert noise.compare(after, before).verdict == FASTER
        assert noise.compare(before, after).verdict == SLOWER
        assert noise.compare(after, before).speed_up == pytest.approx(100 / 90, rel=0.03)


def test_columns_of_one_row_need_no_quiet_machine() -> None:
    row = simulated(0, swing=3.0)
    assert noise.compare(side(row, "polyphase"), side(row, "eager")).verdict == FASTER
    assert noise.compare(side(row, "eager"), side(row, "polyphase")).verdict == SLOWER


def test_a_few_blocks_say_nothing() -> None:
    row = simulated(0, swing=1.0)
    cells = tuple(dataclasses.replace(cell, passes=(cell.blocks[:2],)) for cell in row.cells)
    row = dataclasses.replace(row, cells=cells)
    assert noise.compare(side(row, "polyphase"), side(row, "eager")).verdict == NOISE
