"""Check, then time. The columns of a case take turns, and the whole table is gone through several times.

Blocks that stand beside each other in time can be divided by each other: a machine whose clock swings does it to all of
them. Passes that lie minutes apart, each with tensors of its own, show what such a neighbourhood does not: `compare`
takes its idea of the noise from them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch.utils.benchmark import Timer

from polyphase.bench import checks, gpu, libraries
from polyphase.bench.columns.base import Column
from polyphase.bench.results import GPU, WALL, Cell, Row
from polyphase.bench.work import Call, Work, prepare
from polyphase.bench.workloads import Case
from polyphase.torch_private import FailOnRecompileLimitHit, dynamo_config


@dataclass(frozen=True)
class Effort:
    passes: int
    rounds: int  # of a pass: every column is timed once in each
    block_seconds: float


THOROUGH = Effort(passes=3, rounds=5, block_seconds=0.03)
QUICK = Effort(passes=3, rounds=3, block_seconds=0.01)


@dataclass
class _Record:
    """A cell while it is measured."""

    passes: list[tuple[float, ...]] = field(default_factory=list)
    skipped: str | None = None
    problem: str | None = None
    difference: float = 0.0


Timing = Callable[[], float]
Records = dict[tuple[str, str], _Record]  # by column and clock


def measure(
    cases: Sequence[Case],
    columns: dict[str, Column],
    effort: Effort,
    device: str = "cpu",
    progress: Callable[[str], None] = lambda doing: None,
) -> tuple[tuple[Row, ...], bool]:
    """Rows, and whether all was measured; an interruption keeps what was."""
    records: dict[Case, Records] = {}
    moved: dict[Case, int] = {}
    complete = False
    try:
        for number in range(effort.passes):
            for case in cases:
                progress(f"pass {number + 1} of {effort.passes}, {case.suite}: {case.label}")
                mine = records.setdefault(case, {})
                if missing := libraries.missing(case.operation.library):
                    mine.update({(name, WALL): _Record(skipped=missing) for name in columns})
                    continue
                with _problems_noted(*(mine.setdefault((name, WALL), _Record()) for name in columns)):
                    work = prepare(case, device)
                    moved[case] = work.bytes_moved
                    _measure_case(work, columns, effort, mine, check=number == 0)
        complete = True
    except KeyboardInterrupt:
        pass
    rows = [row for case in records for row in _rows(case, moved.get(case, 0), columns, records[case])]
    return tuple(rows), complete


@contextmanager
def settings(threads: int, recompile_limit: int | None) -> Iterator[None]:
    """A recompile limit that is reached is an error meanwhile, and not a silent return to eager."""
    before = torch.get_num_threads()
    limit = dynamo_config.recompile_limit if recompile_limit is None else recompile_limit
    torch.set_num_threads(threads)
    try:
        with dynamo_config.patch(fail_on_recompile_limit_hit=True, recompile_limit=limit):
            yield
    finally:
        torch.set_num_threads(before)


def _measure_case(work: Work, columns: dict[str, Column], effort: Effort, records: Records, check: bool) -> None:
    on_gpu = gpu.has_clock(work.steps[0].inputs[0])
    wanted = checks.expected(work) if check else ()
    timers: dict[tuple[str, str], Timing] = {}
    for name, column in columns.items():
        clocks = (WALL, GPU) if on_gpu and not column.on_host else (WALL,)
        mine = {clock: records.setdefault((name, clock), _Record()) for clock in clocks}
        skipped = column.can_run(work.case)
        for record in mine.values():
            record.skipped = skipped
        if skipped is None and not any(record.problem for record in mine.values()):
            with _problems_noted(*mine.values()):
                call = column.make(work)
                if check:
                    _check(column, work, call, wanted, mine.values())
                for clock, record in mine.items():
                    with _problems_noted(record):
                        if record.problem is None:
                            timers[name, clock] = _timing(call, clock, work, column, effort)
    _interleave(timers, effort.rounds, records)


def _check(
    column: Column, work: Work, call: Call, wanted: Sequence[checks.Expected], records: Iterable[_Record]
) -> None:
    result = call()
    if column.yardstick:
        return
    verdict = checks.judge(column.tensors(result), wanted, column.tolerance)
    problem = verdict.problem or column.disproof(work, call)
    for record in records:
        record.difference, record.problem = verdict.difference, problem


def _timing(call: Call, clock: str, work: Work, column: Column, effort: Effort) -> Timing:
    """Times one block. How many calls that is is settled here. Seconds a call; of each image where there are many."""
    images = 1 if column.yardstick else work.calls
    if clock == GPU:
        replay = gpu.replayed(call, effort.block_seconds)
        return lambda: replay() / images
    timer = Timer("call()", globals={"call": call}, num_threads=column.options.threads)
    number = max(1, int(effort.block_seconds / max(timer.timeit(1).mean, 1e-9)))
    return lambda: timer.timeit(number).mean / images


def _interleave(timers: dict[tuple[str, str], Timing], rounds: int, records: Records) -> None:
    """Every other round goes backwards, so that no column always follows the same one."""
    blocks: dict[tuple[str, str], list[float]] = {key: [] for key in timers}
    for number in range(rounds):
        for key in timers if number % 2 == 0 else reversed(timers):
            if records[key].problem is None:
                with _problems_noted(records[key]):
                    blocks[key].append(timers[key]())
    for key, seconds in blocks.items():
        records[key].passes.append(tuple(seconds))


@contextmanager
def _problems_noted(*records: _Record) -> Iterator[None]:
    """What a column raises is what its cell says."""
    try:
        yield
    except FailOnRecompileLimitHit:
        limit = dynamo_config.recompile_limit
        problem = f"not compiled: the recompile limit of {limit} was reached"
    except Exception as error:
        first = str(error).strip().splitlines()[:1]
        problem = f"{type(error).__name__}: {''.join(first)}"
    else:
        return
    for record in records:
        record.problem = problem


def _rows(case: Case, bytes_moved: int, columns: dict[str, Column], records: Records) -> Iterator[Row]:
    for clock in (WALL, GPU):
        cells = tuple(
            Cell(
                name,
                column.title,
                tuple(record.passes) if record.problem is None else (),
                record.skipped,
                record.problem,
                record.difference,
                column.yardstick,
            )
            for name, column in columns.items()
            if (record := records.get((name, clock))) is not None
        )
        if cells:
            yield Row(case.suite, case.order, case.label, bytes_moved // len(case.shapes), cells, clock)
