"""Trials as one HTML page of bars, of what became of each transform, and of pictures: no script, no network."""

from __future__ import annotations

import html
from collections.abc import Sequence
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from polyphase.bench import documents
from polyphase.bench.environment import cpu_model, gpu, instruction_set
from polyphase.bench.pictures import png, uri_of_png
from polyphase.bench.report import STYLE, duration
from polyphase.pipelines.accounts import Done
from polyphase.trying.said import AGAINST, gain, in_short, named, where
from polyphase.trying.sameness import summary
from polyphase.trying.timing import typical
from polyphase.trying.trial import OURS, OURS_BATCHED, TAKING, THEIRS, THEIRS_BATCHED, Shown, Trial
from polyphase.version import __version__

OWN_STYLE = Path(__file__).parent / "page.css"
AMPLIFIED = 16
WIDEST = 256  # pixels of a picture on the page
COLOURS = {TAKING: "taking", THEIRS: "eager", OURS: "polyphase", THEIRS_BATCHED: "eager", OURS_BATCHED: "polyphase"}


def write(trials: Sequence[Trial], path: Path) -> None:
    documents.write(page(trials), path)


def page(trials: Sequence[Trial]) -> str:
    style = "".join(one.read_text(encoding="utf-8") for one in (STYLE, OWN_STYLE))
    machine = f"{cpu_model()}, kernels for {instruction_set()}; GPU: {gpu()}; torch {torch.__version__}"
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8><title>Polyphase: tried</title>",
        '<meta name=viewport content="width=device-width"><meta name=color-scheme content="light dark">',
        f"<style>{style}</style><main><h1>Your transforms, as they are and fused</h1>",
        f"<p class=note>{html.escape(machine)}, polyphase {__version__}</p>",
        *map(_trial, trials),
        "</main></html>\n",
    ]
    return "\n".join(parts)


def _trial(trial: Trial) -> str:
    same = f"<li><b>Pictures</b>: {html.escape(summary(trial.same))}, for the same seeds" if trial.same else ""
    became = f"<li><b>Kernels</b>: {html.escape(in_short(trial))}" if trial.steps else ""
    return "\n".join(
        [
            f"<h2>{html.escape(trial.title)}</h2><p class=note>{html.escape(where(trial))}</p>",
            f"<ul class=gains>{same}{became}{_gains(trial)}</ul>",
            f"<h3>Time of a picture</h3>{_bars(trial)}" if trial.times else "",
            f"<h3>What became of each transform</h3>{_steps(trial.steps)}" if trial.steps else "",
            f"<h3>Pictures</h3>{_pictures_note()}" if trial.shown else "",
            "".join(map(_picture, trial.shown)),
            "".join(f"<p class=note>{html.escape(note)}</p>" for note in trial.notes),
        ]
    )


def _gains(trial: Trial) -> str:
    """The transform alone, and together with what comes before it, which no transform can make faster."""
    said = []
    for way, other in AGAINST.items():
        if way in trial.times and other in trial.times:
            taking, mine, its = (typical(trial.times[one]) for one in (TAKING, way, other))
            whole = f"{(taking + its) / (taking + mine):.1f}x with {html.escape(trial.taking)}"
            said.append(f"<li><b>{way.capitalize()}</b>: {gain(trial, way)} the transform alone, {whole}")
    return "".join(said)


def _bars(trial: Trial) -> str:
    slowest = max(map(typical, trial.times.values()))
    bars = []
    for way, seconds in trial.times.items():
        width, found = 100 * typical(seconds) / slowest, gain(trial, way)
        more = f" <small>{found} faster</small>" if found else ""
        bars.append(
            f"<div class=bar><span class=name>{html.escape(named(trial, way))}</span><span class=track>"
            f"<i class='fill {COLOURS[way]}' style='width:{width:.2f}%'></i></span>"
            f"<span class=value>{duration(typical(seconds))}{more}</span></div>"
        )
    return "<figure>" + "".join(bars) + "</figure>"


def _steps(steps: Sequence[Done]) -> str:
    rows = []
    for one in steps:
        kind, became = ("became alone", "as itself") if one.launch is None else ("became", f"launch {one.launch}")
        why = f"<br><small>{html.escape(one.why)}</small>" if one.why else ""
        rows.append(f"<li><span class='{kind}'>{became}</span> <code>{html.escape(one.transform)}</code>{why}</li>")
    return f"<ol class=steps>{''.join(rows)}</ol>"


def _pictures_note() -> str:
    return (
        f"<p class=note>The same seeds for both. The last picture is the difference, {AMPLIFIED} times amplified: "
        "black is equal to the last bit. Floats are shown from their smallest (black) to their largest (white).</p>"
    )


def _picture(shown: Shown) -> str:
    low, high = (one.item() for one in shown.theirs.double().nan_to_num(posinf=0, neginf=0).aminmax())
    low, high = (0.0, 255.0) if shown.theirs.dtype == torch.uint8 else (low, max(high, low + 1e-12))
    theirs, ours = (
        ((one.double() - low) / (high - low)).nan_to_num().clamp(0, 1) for one in (shown.theirs, shown.ours)
    )
    before = _from_0_to_1(shown.before)
    pairs = [(_small(before), "before"), (_small(theirs), "as it is"), (_small(ours), "fused")]
    if theirs.shape == ours.shape:
        off = (AMPLIFIED * (theirs - ours).abs()).clamp(max=1)
        pairs.append((_small(off, largest=True), f"difference x{AMPLIFIED}"))
    images = "".join(f"<span><img src='{_uri(image)}' alt='{word}'><br>{word}</span>" for image, word in pairs)
    return f"<figure><figcaption>{html.escape(shown.name)}</figcaption><div class=four>{images}</div></figure>"


def _from_0_to_1(image: Tensor) -> Tensor:
    if not image.is_floating_point():
        return (image.double() / (255 if image.dtype == torch.uint8 else max(1, int(image.max())))).clamp(0, 1)
    low, high = (one.item() for one in image.double().nan_to_num(posinf=0, neginf=0).aminmax())
    return ((image.double() - low) / max(high - low, 1e-12)).nan_to_num().clamp(0, 1)


def _small(image: Tensor, *, largest: bool = False) -> Tensor:
    """An image of doubles at a size for the page; `largest`: by the largest value of an area, so that none is lost."""
    height, width = image.shape[-2:]
    scale = WIDEST / max(height, width)
    if scale >= 1:
        return image
    size = max(1, round(height * scale)), max(1, round(width * scale))
    return F.adaptive_max_pool2d(image, size) if largest else F.adaptive_avg_pool2d(image, size)


def _uri(image: Tensor) -> str:
    colours = image.expand(3, -1, -1) if image.shape[0] == 1 else image[:3]
    return uri_of_png(png((colours * 255).round().byte()))
