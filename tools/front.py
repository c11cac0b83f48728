"""The README's figure and its table, so that neither is drawn or typed by hand: `python -m tools.front` writes both.

The figure counts the bytes that one photo moves, before and after. The table's rows stand in `benchmarks/`, in tables
that the benchmark wrote; here they are only chosen, and divided by each other.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
FIGURE, README = ROOT / "docs/one-launch.svg", ROOT / "README.md"
BEGIN, END = "<!-- python -m tools.front: begin -->\n", "<!-- python -m tools.front: end -->\n"

# ---- the way of one photo

PHOTO, RESIZED, CROPPED = (345, 456), (256, 338), (224, 224)


@dataclass(frozen=True)
class Pass:
    """What goes over memory once. Bytes."""

    name: str
    reads: int
    writes: int


def passes() -> tuple[Pass, ...]:
    """Of eager PyTorch: a photo of bytes is resized, cropped (a view), flipped, made float, scaled and normalised."""
    photo, rows, resized, cropped = (3 * h * w for h, w in (PHOTO, (PHOTO[0], RESIZED[1]), RESIZED, CROPPED))
    floats = 4 * cropped
    return (
        Pass("resize width", photo, rows),
        Pass("resize height", rows, resized),
        Pass("crop, flip", cropped, cropped),
        Pass("to float", cropped, floats),
        Pass("/ 255", floats, floats),
        Pass("- mean", floats, floats),
        Pass("/ std", floats, floats),
    )


def one_pass() -> Pass:
    """Of ours, at most: all of the photo is read, though the crop leaves some of it out."""
    (first, *_, last) = passes()
    return Pass("one launch", first.reads, last.writes)


def megabytes(all_: tuple[Pass, ...]) -> str:
    return f"{sum(one.reads + one.writes for one in all_) / 1e6:.1f} MB"


STYLE = """
  .paper { fill: #ffffff; } text { font: 13px system-ui, sans-serif; fill: #1b1f24; text-anchor: middle; }
  .title { font-weight: 600; font-size: 14px; text-anchor: start; } .faint { fill: #5c6670; font-size: 11px; }
  .end { text-anchor: end; } .start { text-anchor: start; }
  .eager { fill: #e3e7eb; stroke: #8a949e; } .ours { fill: #d6e6ff; stroke: #1f6feb; stroke-width: 2; }
  .memory { fill: #f4f6f8; stroke: #c3cad1; } path { stroke: #8a949e; fill: none; }
  @media (prefers-color-scheme: dark) {
    .paper { fill: #14181d; } text { fill: #e6eaee; } .faint { fill: #9aa5b0; }
    .eager { fill: #2a323b; stroke: #77828d; }
    .ours { fill: #14335e; stroke: #58a6ff; } .memory { fill: #1b2128; stroke: #3a444e; } path { stroke: #77828d; }
  }
"""
WIDE, BOX, LEFT = 860, 92, 24
STEP = (WIDE - 2 * LEFT - BOX) / 6


def figure() -> str:
    seven, one = passes(), (one_pass(),)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDE} 316" role="img" aria-label="{_said()}">',
        f"<style>{STYLE}</style>",
        f'<rect class="paper" width="{WIDE}" height="316" rx="8"/>',
        _text(LEFT, 22, f"PyTorch: {len(seven)} passes over memory, {megabytes(seven)}", "title"),
        _memory(78),
        *(_box(LEFT + number * STEP, 118, BOX, one_, "eager") for number, one_ in enumerate(seven)),
        _text(LEFT, 186, f"Polyphase: {len(one)} pass, {megabytes(one)}", "title"),
        _memory(240),
        _box(LEFT, 280, WIDE - 2 * LEFT, one[0], "ours", "resize, crop, flip, to float, scale, normalise: one kernel"),
        "</svg>\n",
    ]
    return "\n".join(parts)


def _said() -> str:
    return (
        f"A photo on its way to a model: {len(passes())} passes over memory, {megabytes(passes())}, by PyTorch; "
        f"one pass, {megabytes((one_pass(),))}, by Polyphase"
    )


def _memory(middle: int) -> str:
    bar = f'<rect class="memory" x="{LEFT}" y="{middle - 38}" width="{WIDE - 2 * LEFT}" height="24" rx="3"/>'
    return bar + _text(WIDE / 2, middle - 22, "memory", "faint")


def _box(x: float, y: int, width: float, one: Pass, kind: str, name: str = "") -> str:
    """A pass under the memory: an arrow down for what it reads, one up for what it writes."""
    middle, top = x + width / 2, y - 54
    apart = width / 2 - BOX / 2 if name else 8.0
    outside = 6 if not name else -6  # where the numbers stand: beside their arrows
    down = f'<path d="M{middle - apart:.1f} {top}v50m-4 -6l4 6l4 -6"/>'
    up = f'<path d="M{middle + apart:.1f} {y - 4}v-50m-4 6l4 -6l4 6"/>'
    anchors = ("faint end", "faint start") if not name else ("faint start", "faint end")
    arrows = (
        down
        + up
        + _text(middle - apart - outside, top + 30, _kilobytes(one.reads), anchors[0])
        + _text(middle + apart + outside, top + 30, _kilobytes(one.writes), anchors[1])
    )
    box = f'<rect class="{kind}" x="{x:.1f}" y="{y}" width="{width:.1f}" height="34" rx="4"/>'
    return arrows + box + _text(middle, y + 21, name or one.name)


def _kilobytes(count: int) -> str:
    return f"{count / 1e3:.0f} kB"


def _text(x: float, y: float, said: str, kind: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y}"{f" class={chr(34)}{kind}{chr(34)}" if kind else ""}>{said}</text>'


# ---- the table


@dataclass(frozen=True)
class Row:
    """A row of a table in a file of `benchmarks/`: what it begins with, and what the headings of three columns do. The
    first table that has such a row and these columns counts."""

    title: str
    file: str
    row: str
    eager: str
    peer: str
    ours: str
    peer_name: str


CPU, GPU = "CPU, one thread", "H200"
_COMPILED = ("Eager", "Compiled", "Polyphase compiled", "Inductor")
_ON_GPU = ("eager", "Inductor", "Polyphase", "Inductor")
_CHAIN = "resize, crop, flip, normalise, compiled"
_ROTATE = "torchvision rotate 2x3x345x456, u8 CF |"
ROWS = (
    Row(
        *(f"{CPU}: shrink a photo of bytes, antialiased", "cpu.md", "1->4: bilinear antialiased 1x3x345x456"),
        *("Eager", "Pillow-SIMD", "Polyphase (", "Pillow-SIMD"),
    ),
    Row(f"{CPU}: {_CHAIN}", "quick.md", "resize 256, crop 224, flip, normalise 1x3x345x456", *_COMPILED),
    Row(f"{CPU}: torchvision's `rotate`, compiled", "warps.md", _ROTATE, *_COMPILED),
    Row(f"{GPU}: shrink 8 photos of floats, antialiased", "h200.md", "aa: aa CF", *_ON_GPU),
    Row(f"{GPU}: {_CHAIN}", "h200.md", "chain: uint8 to float,resize,crop,flip,normalise CF", *_ON_GPU),
    Row(f"{GPU}: torchvision's `rotate`, compiled", "warps-h200.md", _ROTATE, *_COMPILED),
)


def table() -> str:
    lines = ["| | eager PyTorch | best other | Polyphase | |", "| --- | --: | --: | --: | --- |"]
    for row in ROWS:
        eager, peer, ours = times(row)
        gain = f"**{eager / ours:.1f}x** eager, **{peer / ours:.1f}x** {row.peer_name}"
        lines.append(f"| {row.title} | {_us(eager)} | {_us(peer)} | {_us(ours)} | {gain} |")
    return "\n".join(lines) + "\n"


def times(row: Row) -> tuple[float, float, float]:
    """Microseconds: of eager, of the peer, and ours."""
    headings: list[str] = []
    for line in (ROOT / "benchmarks" / row.file).read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if line.startswith("|") and not headings:
            headings = cells
        elif not line.startswith("|"):
            headings = []
        if line.startswith(f"| {row.row}"):
            places = [_place(headings, name) for name in (row.eager, row.peer, row.ours)]
            if None not in places:
                found = [cells[place] for place in places if place is not None]
                eager, peer, ours = (float(re.match(r"[\d.]+", cell)[0]) for cell in found)  # type: ignore[index]
                return eager, peer, ours
    raise LookupError(f"benchmarks/{row.file} has no row {row.row!r} with {row.eager}, {row.peer} and {row.ours}")


def _place(headings: list[str], name: str) -> int | None:
    return next((place for place, one in enumerate(headings) if one.startswith(name)), None)


def _us(microseconds: float) -> str:
    return f"{microseconds / 1e3:.1f} ms" if microseconds >= 1000 else f"{microseconds:.0f} us"


def readme_with(found: str) -> str:
    before, begin, rest = README.read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    assert begin, f"the README has no {BEGIN}"
    assert end, f"the README has no {END}"
    return f"{before}{begin}\n{found}\n{end}{after}"


def main() -> None:
    FIGURE.write_text(figure(), encoding="utf-8")
    README.write_text(readme_with(table()), encoding="utf-8")


if __name__ == "__main__":
    main()
