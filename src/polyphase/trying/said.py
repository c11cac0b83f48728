"""A trial as text, for a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from polyphase.bench.report import duration
from polyphase.trying.sameness import summary
from polyphase.trying.timing import typical
from polyphase.trying.trial import OURS, OURS_BATCHED, TAKING, THEIRS, THEIRS_BATCHED, Trial

#: What each way is held against.
AGAINST = {OURS: THEIRS, OURS_BATCHED: THEIRS_BATCHED}


def as_text(trial: Trial) -> str:
    return "\n".join([trial.title, *(f"  {line}" for line in _lines(trial))])


def where(trial: Trial) -> str:
    on = "on the CPU" if trial.device == "cpu" else f"on {trial.device}"
    return f"{trial.samples}, {on}, {trial.threads} {'thread' if trial.threads == 1 else 'threads'}"


def in_short(trial: Trial) -> str:
    """What became of the chain, in a sentence."""
    count, alone = len(trial.steps), sum(one.launch is None for one in trial.steps)
    if not alone and trial.launches == 1:
        return f"all {count} transforms are one launch" if count != 1 else "the transform is one launch"
    if not trial.launches:
        return f"nothing is fused: {'the transform runs as itself' if count == 1 else f'all {count} run as themselves'}"
    parts = (
        f"{count - alone} of {count} transforms are {trial.launches} {'launch' if trial.launches == 1 else 'launches'}"
    )
    return parts + (f", {alone} {'runs as itself' if alone == 1 else 'run as themselves'}" if alone else "")


def named(trial: Trial, way: str) -> str:
    return trial.taking if way == TAKING else way


def gain(trial: Trial, way: str) -> str:
    """How many times faster a way is than what it is held against; empty where nothing is."""
    other = trial.times.get(AGAINST.get(way, ""))
    return f"{typical(other) / typical(trial.times[way]):.1f}x" if other else ""


def _lines(trial: Trial) -> Iterator[str]:
    yield where(trial)
    if trial.same:
        yield f"pictures: {summary(trial.same)}, for the same seeds"
    if trial.steps:
        yield f"{in_short(trial)}:"
    for one in trial.steps:
        became = "as itself" if one.launch is None else f"launch {one.launch}"
        yield f"  {became:9}  {one.transform}"
        if one.why:
            yield f"             {one.why}"
    if trial.times:
        yield "time of a picture, median of rounds that take turns:"
    for way, seconds in trial.times.items():
        yield f"  {named(trial, way):22} {duration(typical(seconds)):>8}  {gain(trial, way)}".rstrip()
    yield from trial.notes
