"""Runs side by side: one table per suite, and speed-ups of columns against columns."""

from __future__ import annotations

import re
import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from polyphase.bench import noise
from polyphase.bench.columns import FLOOR
from polyphase.bench.noise import Ratio, Side
from polyphase.bench.results import WALL, Cell, Run
from polyphase.errors import NoColumnError

# Of one run alone: what each of our columns is held against.
BASELINES = {"polyphase": "eager", "polyphase-compiled": "inductor", "polyphase-unfused": "inductor"}


@dataclass(frozen=True)
class Pair:
    """Two columns by their titles: how much faster the first is than the second."""

    first: str
    second: str
    title: str


@dataclass(frozen=True)
class TableRow:
    name: str
    cells: tuple[Cell | None, ...]
    ratios: tuple[Ratio | None, ...]
    floor: Cell | None
    clock: str = WALL


@dataclass(frozen=True)
class Table:
    """`titles` are those of the rows' cells, `pairs` of their ratios."""

    suite: str
    titles: tuple[str, ...]
    pairs: tuple[Pair, ...]
    rows: tuple[TableRow, ...]


def tables(runs: Sequence[Run], specs: Sequence[str] = ()) -> list[Table]:
    sheet = _Sheet.of(runs)
    pairs = [_chosen_pair(spec, sheet.titles) for spec in specs] if specs else _usual_pairs(sheet)
    suites = dict.fromkeys(suite for suite, *_ in sheet.rows)
    return [_table(sheet, pairs, suite) for suite in suites]


def slower_than(found: Sequence[Table], least: float) -> list[str]:
    """The comparisons whose speed-up is below `least`, beyond the noise."""
    return [
        f"{table.suite}: {row.name}: {pair.title} {ratio.speed_up:.2f}"
        for table in found
        for row in table.rows
        for pair, ratio in zip(table.pairs, row.ratios, strict=True)
        if ratio is not None and ratio.verdict != noise.NOISE and ratio.speed_up < least
    ]


@dataclass(frozen=True)
class Gain:
    """A comparison over all rows: the geometric mean of its speed-ups, and their range."""

    title: str
    mean: float
    least: float
    most: float
    rows: int

    def __str__(self) -> str:
        return (
            f"{self.title}: {self.mean:.1f}x on average of {self.rows} rows, from {self.least:.1f}x to {self.most:.1f}x"
        )


def gains(found: Sequence[Table]) -> list[Gain]:
    by_title: dict[str, list[float]] = {}
    for table in found:
        for row in table.rows:
            for pair, ratio in zip(table.pairs, row.ratios, strict=True):
                if ratio is not None:
                    by_title.setdefault(pair.title, []).append(ratio.speed_up)
    return [
        Gain(title, statistics.geometric_mean(speed_ups), min(speed_ups), max(speed_ups), len(speed_ups))
        for title, speed_ups in by_title.items()
    ]


Key = tuple[str, str, str, str]


@dataclass(frozen=True)
class _Sheet:
    """Every run's cells, by row and by title. Where runs have cells of the same row and title, the run's number is put
    behind that title."""

    columns: dict[str, str]  # the columns' names by title
    rows: dict[Key, dict[str, Side]]
    floors: dict[Key, Cell]
    names: dict[Key, str]

    @property
    def titles(self) -> tuple[str, ...]:
        return tuple(self.columns)

    def share_a_row(self, first: str, second: str) -> bool:
        return any(first in sides and second in sides for sides in self.rows.values())

    @classmethod
    def of(cls, runs: Sequence[Run]) -> _Sheet:
        sheet = cls({}, {}, {}, {})
        uses = Counter((row.key, cell.title) for run in runs for row in run.rows for cell in row.columns)
        ambiguous = {title for (_, title), number in uses.items() if number > 1}
        for number, run in enumerate(runs, 1):
            for row in run.rows:
                sheet.names[row.key] = row.name
                sides = sheet.rows.setdefault(row.key, {})
                floor = row.cell(FLOOR)
                if floor is not None and floor.timed:
                    sheet.floors.setdefault(row.key, floor)
                for cell in row.columns:
                    title = f"{cell.title} #{number}" if cell.title in ambiguous else cell.title
                    sheet.columns[title] = cell.column
                    sides[title] = Side(row, cell)
        return sheet


def _table(sheet: _Sheet, pairs: Sequence[Pair], suite: str) -> Table:
    """Makes a table without columns that the suite has no cell of, and without comparisons that have nothing to
    compare."""
    keys = [key for key in sheet.rows if key[0] == suite]
    titles = tuple(title for title in sheet.titles if any(title in sheet.rows[key] for key in keys))
    ratios = {pair: [_ratio(sheet.rows[key], pair) for key in keys] for pair in pairs}
    kept = tuple(pair for pair in pairs if any(ratios[pair]))
    rows = []
    for place, key in enumerate(keys):
        sides = sheet.rows[key]
        cells = tuple(sides[title].cell if title in sides else None for title in titles)
        rows.append(
            TableRow(
                sheet.names[key], cells, tuple(ratios[pair][place] for pair in kept), sheet.floors.get(key), key[3]
            )
        )
    return Table(suite, titles, kept, tuple(rows))


def _ratio(sides: dict[str, Side], pair: Pair) -> Ratio | None:
    first, second = sides.get(pair.first), sides.get(pair.second)
    if first is None or second is None or not first.cell.timed or not second.cell.timed:
        return None
    return noise.compare(first, second)


def _usual_pairs(sheet: _Sheet) -> list[Pair]:
    """Each column against the first run's, if runs have rows in common; else ours against what they replace."""
    by_build = list(_pairs(sheet, {name: name for name in sheet.columns.values()}))
    return by_build or list(_pairs(sheet, BASELINES))


def _pairs(sheet: _Sheet, baselines: dict[str, str]) -> Iterator[Pair]:
    for title, name in sheet.columns.items():
        rivals = (other for other, its in sheet.columns.items() if its == baselines.get(name))
        first = next((other for other in rivals if sheet.share_a_row(title, other)), title)
        if first != title:
            yield Pair(title, first, f"speed-up {short(title)} vs {short(first)}")


def short(title: str) -> str:
    return re.sub(r" \([^)]*\)", "", title)


def _chosen_pair(spec: str, titles: Sequence[str]) -> Pair:
    first, second, *title = (part.strip() for part in spec.split(";", 2)) if ";" in spec else ("", "")
    if not first or not second:
        raise NoColumnError(f"--compare {spec!r}; it must be two regular expressions and a title: 'REGEX;REGEX;title'")
    mine, theirs = (_only_match(regex, titles) for regex in (first, second))
    return Pair(mine, theirs, "".join(title) or f"speed-up {mine} vs {theirs}")


def _only_match(regex: str, titles: Sequence[str]) -> str:
    """The title that the expression is found in; one that it matches from end to end comes first."""
    try:
        compiled = re.compile(regex)
    except re.error as error:
        raise NoColumnError(f"--compare {regex!r} is no regular expression: {error}; put \\ before brackets") from error
    whole = [title for title in titles if compiled.fullmatch(title)]
    found = whole or [title for title in titles if compiled.search(title)]
    if len(found) != 1:
        number = f"{len(found)} columns" if found else "no column"
        raise NoColumnError(f"--compare {regex!r} matches {number}; match one of: {', '.join(found or titles)}")
    return found[0]
