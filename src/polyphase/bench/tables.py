"""Tables as text, Markdown, HTML or JSON: the same grid of words in each."""

from __future__ import annotations

import html
import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from polyphase.bench import compare
from polyphase.bench.compare import Table
from polyphase.bench.noise import FASTER, NOISE, SLOWER, Ratio
from polyphase.bench.results import GPU, Cell, Environment, Run
from polyphase.errors import UnknownNameError

MARKS = {FASTER: "", SLOWER: " !", NOISE: " ~"}
LEGEND = "Times are in microseconds (us): median (+-spread). Speed-ups: ~ is within the noise, ! is slower."
NAMES = (
    "Rows: u8 is bytes, f32 floats of 32 bits; CF has channels first in memory (contiguous), CL last. 1->4: one "
    "compiled function is called with a batch of 1, and then of 4; 4->1 the other way round."
)
COMPARISON_KIND = "polyphase-comparison"


@dataclass(frozen=True)
class Grid:
    title: str
    headers: list[str]
    rows: list[list[str]]
    notes: list[str]


@dataclass
class _Notes:
    """Texts too long for a cell, numbered throughout a document."""

    texts: list[str] = field(default_factory=list)

    def mark(self, text: str) -> str:
        if text not in self.texts:
            self.texts.append(text)
        return f"[{self.texts.index(text) + 1}]"


def grid(table: Table, notes: _Notes | None = None) -> Grid:
    """Columns that have nothing to say for any row are only named, with the reason, in a note."""
    notes = _Notes() if notes is None else notes
    reasons, shown = [], []
    for place, title in enumerate(table.titles):
        cells = [row.cells[place] for row in table.rows]
        skipped = dict.fromkeys(cell.skipped for cell in cells if cell is not None and cell.skipped)
        if all(cell is None or cell.skipped for cell in cells):
            reasons.append(f"{title}: {', '.join(map(str, skipped))}")
        else:
            shown.append(place)
    on_gpu = any(row.clock == GPU for row in table.rows)  # where it tells how much is left to gain
    rows = [
        [
            row.name,
            *([_time(row.floor, notes)] if on_gpu else []),
            *(_time(row.cells[place], notes) for place in shown),
            *map(speed_up, row.ratios),
        ]
        for row in table.rows
    ]
    floors = ["Memory floor"] if on_gpu else []
    headers = ["", *floors, *(table.titles[place] for place in shown), *(pair.title for pair in table.pairs)]
    problems = dict.fromkeys(cell.problem for row in table.rows for cell in row.cells if cell and cell.problem)
    texts = [f"{notes.mark(problem)} {problem}" for problem in problems]
    return Grid(table.suite, headers, rows, texts + ([f"Not measured: {'; '.join(reasons)}"] if reasons else []))


def number(value: float, like: float | None = None) -> str:
    """Writes a number with three digits, or with as many after the point as another number has."""
    measure = value if like is None else like
    return f"{value:.{2 if measure < 10 else 1 if measure < 100 else 0}f}"


def _time(cell: Cell | None, notes: _Notes) -> str:
    if cell is None or cell.skipped:
        return ""
    if cell.problem is not None:
        return f"{cell.problem.partition(':')[0]} {notes.mark(cell.problem)}"
    if not cell.timed:
        return "not reached"
    median = cell.median * 1e6
    return f"{number(median)} (+-{number(cell.spread * 1e6, like=median)})"


def speed_up(ratio: Ratio | None) -> str:
    return "" if ratio is None else f"{ratio.speed_up:.2f}x{MARKS[ratio.verdict]}"


def rendered(tables: Sequence[Table], runs: Sequence[Run], form: str) -> str:
    forms = {
        "text": lambda: as_text(tables),
        "markdown": lambda: as_markdown(tables, runs),
        "json": lambda: as_json(tables),
    }
    if form not in forms:
        raise UnknownNameError("format", form, forms)
    return forms[form]()


def as_text(tables: Sequence[Table]) -> str:
    return "\n".join([*(_text(grid(table)) for table in tables), LEGEND, NAMES, *map(str, compare.gains(tables))])


def _text(table: Grid) -> str:
    """Writes a table in the manner of torch.utils.benchmark.Compare, with headings broken at spaces."""
    headings = [_broken(header) for header in table.headers]
    height = max(map(len, headings))
    lines = [[""] * (height - len(words)) + words for words in headings]
    heads = [list(line) for line in zip(*lines, strict=True)]
    body = [*heads, *table.rows]
    widths = [max(len(row[place]) for row in body) for place in range(len(table.headers))]
    total = sum(widths) + 5 * (len(widths) - 1) + 2

    def line(row: list[str]) -> str:
        first, *rest = row
        cells = [word.center(width) for word, width in zip(rest, widths[1:], strict=True)]
        return "  |  ".join([f"  {first.ljust(widths[0])}", *cells]).rstrip()

    head = f"[{f' {table.title} '.center(total - 2, '-')}]"
    return "\n".join([head, *map(line, heads), "  " + "-" * (total - 2), *map(line, table.rows), *table.notes, ""])


def _broken(header: str, width: int = 14) -> list[str]:
    lines = [""]
    for word in header.split():
        if lines[-1] and len(lines[-1]) + 1 + len(word) > width:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return lines


def as_markdown(tables: Sequence[Table], runs: Sequence[Run]) -> str:
    """Suites that have the same columns share a table."""
    parts = [f"{summary(run.environment)}\n" for run in _different(runs)]
    notes = _Notes()
    grids = [grid(table, notes) for table in tables]
    for headers, group in itertools.groupby(grids, key=lambda table: table.headers):
        suites = list(group)
        parts.append(_markdown_row(headers))
        parts.append(_markdown_row(["---"] + ["--:"] * (len(headers) - 1)))
        for table in suites:
            parts.append(_markdown_row([f"**{table.title}**"] + [""] * (len(headers) - 1)))
            parts.extend(map(_markdown_row, table.rows))
        parts.extend(f"\n{note}" for note in dict.fromkeys(note for table in suites for note in table.notes))
        parts.append("")
    gains = [f"- {gain}" for gain in compare.gains(tables)]
    return "\n".join([*parts, f"{LEGEND} {NAMES}", "", *gains, ""])


def _markdown_row(words: Sequence[str]) -> str:
    return f"| {' | '.join(word.replace('|', chr(92) + '|') for word in words)} |"


def _different(runs: Sequence[Run]) -> list[Run]:
    """Runs whose summaries differ."""
    return list({summary(run.environment): run for run in runs}.values())


def summary(environment: Environment) -> str:
    """The environment in a line."""
    threads = f"{environment.threads} thread{'s' if environment.threads > 1 else ''}"
    where = f"{environment.cpu}, instruction set {environment.instruction_set}, {threads}"
    if environment.device == "cuda":
        where = f"{environment.gpu}, beside {environment.cpu}"
    commit = f" at {environment.commit}" if environment.commit else ""
    return (
        f"{where}; torch {environment.torch}, "
        f"polyphase {environment.polyphase}{commit}, Python {environment.python}, {environment.compiler}."
        f"{f' The machine was {environment.busy}.' if environment.busy else ''}"
    )


def as_html(table: Table) -> str:
    def cells(words: Sequence[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(word)}</{tag}>" for word in words) + "</tr>"

    found = grid(table)
    body = "".join(cells(row, "td") for row in found.rows)
    notes = "".join(f"<p class=note>{html.escape(note)}</p>" for note in found.notes)
    return f"<div class=wide><table>{cells(found.headers, 'th')}{body}</table></div>{notes}"


def as_json(tables: Sequence[Table]) -> str:
    return json.dumps({"kind": COMPARISON_KIND, "version": 1, "tables": list(map(_plain, tables))}, indent=1) + "\n"


def _plain(table: Table) -> dict[str, Any]:
    rows = [
        {
            "name": row.name,
            "cells": {title: _plain_cell(cell) for title, cell in zip(table.titles, row.cells, strict=True) if cell},
            "speed_ups": {
                pair.title: {"speed_up": ratio.speed_up, "verdict": ratio.verdict}
                for pair, ratio in zip(table.pairs, row.ratios, strict=True)
                if ratio
            },
        }
        for row in table.rows
    ]
    return {"suite": table.suite, "rows": rows}


def _plain_cell(cell: Cell) -> dict[str, Any]:
    if cell.timed:
        return {"median_seconds": cell.median, "spread_seconds": cell.spread}
    return {"problem": cell.problem, "skipped": cell.skipped}
