"""One HTML page: bars, tables, pictures, the environment. It stands alone: no script, no network."""

from __future__ import annotations

import dataclasses
import html
from collections.abc import Iterator, Sequence
from pathlib import Path

from polyphase.bench import compare, documents, tables
from polyphase.bench.compare import Table, TableRow
from polyphase.bench.noise import Ratio
from polyphase.bench.pictures import AMPLIFIED, Picture, pictures
from polyphase.bench.results import Cell, Environment, Run

STYLE = Path(__file__).parent / "report.css"
HEADINGS = {
    "aa": "Antialiased resizing",
    "nearest": "Nearest",
    "warp": "Warps",
    "flip": "Flips",
    "bicubic": "Bilinear and bicubic, not antialiased",
    "chain": "The preprocessing chain",
    "backward": "Forward and backward",
    "model": "Inside a model, training",
    "library": "Warps of torchvision and kornia",
    "own": "Cases of one's own",
}


def write(runs: Sequence[Run], path: Path) -> None:
    documents.write(page(runs), path)


def page(runs: Sequence[Run]) -> str:
    found = compare.tables(runs)
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8><title>Polyphase: measured</title>",
        '<meta name=viewport content="width=device-width"><meta name=color-scheme content="light dark">',
        f"<style>{STYLE.read_text(encoding='utf-8')}</style>",
        "<main><h1>Polyphase: measured</h1>",
        *map(_run, runs),
        f"<ul class=gains>{''.join(f'<li>{html.escape(str(gain))}</li>' for gain in compare.gains(found))}</ul>",
        _legend(found),
        *map(_suite, found),
        "<h2>Pictures</h2>",
        _pictures_note(),
        f"<div class=pictures>{''.join(map(_picture, pictures()))}</div>",
        "<h2>Tables</h2>",
        *(f"<h3>{_heading(table)}</h3>{tables.as_html(table)}" for table in found),
        f"<p class=note>{html.escape(tables.LEGEND)}</p>",
        "<h2>Environment</h2>",
        *map(_environment, runs),
        "</main></html>\n",
    ]
    return "\n".join(parts)


def _run(run: Run) -> str:
    tag = f", tag <b>{html.escape(run.tag)}</b>" if run.tag else ""
    cut = "" if run.complete else ", <b>interrupted</b>"
    when = html.escape(run.created.replace("T", " ")[:16])
    return f"<p>Suite <b>{run.suite}</b>, {when}{tag}{cut}. {html.escape(tables.summary(run.environment))}</p>"


def _legend(found: Sequence[Table]) -> str:
    floors = any(row.floor for table in found for row in table.rows)
    floor = "<span class=key><i class=floor-key></i>memory floor: a copy of as many bytes</span>" if floors else ""
    return (
        "<p class=note>Time of a call, shorter is better; bars of a row are to one scale, "
        "<span class=key><i class=spread-key></i>the spread</span> at their ends. Behind them: the median, and the "
        f"speed-up over the column that it is held against; ~ is within the noise, ! is slower. {floor}</p>"
        f"<p class=note>{html.escape(tables.NAMES)}</p>"
    )


def _heading(table: Table) -> str:
    return html.escape(HEADINGS.get(table.suite, table.suite))


def _suite(table: Table) -> str:
    return f"<h2>{_heading(table)}</h2>" + "".join(_row(table, row) for row in table.rows)


def _row(table: Table, row: TableRow) -> str:
    cells = [(title, cell) for title, cell in zip(table.titles, row.cells, strict=True) if cell and not cell.skipped]
    slowest = max((cell.median for _, cell in cells if cell.timed), default=0.0)
    gains = {pair.first: (pair.second, ratio) for pair, ratio in zip(table.pairs, row.ratios, strict=True) if ratio}
    bars = "".join(_bar(title, cell, slowest, row.floor, _gain(*gains.get(title, ("", None)))) for title, cell in cells)
    floor = f"<span class=note>memory floor {duration(row.floor.median)}</span>" if row.floor else ""
    return f"<figure><figcaption>{html.escape(row.name)} {floor}</figcaption>{bars}</figure>"


def _gain(other: str, ratio: Ratio | None) -> str:
    return f" <small>{tables.speed_up(ratio)} over {html.escape(compare.short(other))}</small>" if ratio else ""


def _bar(title: str, cell: Cell, slowest: float, floor: Cell | None, gain: str) -> str:
    name = f"<span class=name>{html.escape(title)}</span>"
    if not cell.timed:
        return f"<div class=bar>{name}<span class=problem>{html.escape(cell.problem or 'not reached')}</span></div>"

    def share(seconds: float) -> float:
        return min(100.0, 100 * max(seconds, 0.0) / slowest)

    low, high = share(cell.median - cell.spread), share(cell.median + cell.spread)
    marks = f"<i class=spread style='left:{low:.2f}%;width:{high - low:.2f}%'></i>"
    said = f"&plusmn; {duration(cell.spread)}"
    if floor is not None:
        marks += f"<i class=floor style='left:{share(floor.median):.2f}%'></i>"
        said += f", {cell.median / floor.median:.1f} times the memory floor"
    fill = f"<i class='fill {cell.column}' style='width:{share(cell.median):.2f}%'></i>"
    value = f"<span class=value>{duration(cell.median)}{gain}</span>"
    return f"<div class=bar title='{said}'>{name}<span class=track>{fill}{marks}</span>{value}</div>"


def duration(seconds: float) -> str:
    for limit, unit, scale in ((1e-3, "us", 1e6), (1.0, "ms", 1e3)):
        if seconds < limit:
            return f"{tables.number(seconds * scale)} {unit}"
    return f"{tables.number(seconds)} s"


def _pictures_note() -> str:
    return (
        "<p class=note>A synthetic image of bytes, resampled by Polyphase and by eager. The third picture is the "
        f"difference, {AMPLIFIED} times amplified: black is equal to the last bit. Where eager has no such filter, "
        "the float64 reference stands beside ours.</p>"
    )


def _picture(picture: Picture) -> str:
    other = "eager" if picture.eager else "reference"
    level = "equal" if picture.levels == 0 else f"off by {picture.levels} of 255 in {picture.pixels} pixels"
    shown = ((picture.ours, "Polyphase"), (picture.theirs, other), (picture.difference, level))
    images = "".join(f"<span><img src='{uri}' alt='{word}'><br>{word}</span>" for uri, word in shown)
    return f"<figure><figcaption>{html.escape(picture.name)}</figcaption><div class=three>{images}</div></figure>"


def _environment(run: Run) -> str:
    lines = "".join(f"<dt>{name}</dt><dd>{html.escape(value)}</dd>" for name, value in facts(run.environment))
    options = " ".join(f"{name}={value}" for name, value in run.options.items()) or "none"
    config = html.escape(run.environment.torch_config)
    return (
        f"<h3>{html.escape(run.file_name)}</h3><dl>{lines}<dt>options</dt><dd>{html.escape(options)}</dd></dl>"
        f"<details><summary>torch.__config__.show()</summary><pre>{config}</pre></details>"
    )


def facts(environment: Environment) -> Iterator[tuple[str, str]]:
    """Everything but torch's configuration, which is long."""
    for field in dataclasses.fields(environment):
        value = getattr(environment, field.name)
        if isinstance(value, dict):
            value = ", ".join(f"{name} {version}" for name, version in value.items())
        elif isinstance(value, tuple):
            value = " ".join(value)
        if field.name != "torch_config" and value not in ("", None):
            yield field.name.replace("_", " "), str(value)
