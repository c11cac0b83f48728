"""One transform tried on one row of samples, on one device: how alike results are, what became of it, and times."""

from __future__ import annotations

import inspect
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import default_collate

from polyphase.errors import TransformFailedError
from polyphase.explaining import scripts
from polyphase.pipelines.accounts import Done, account
from polyphase.pipelines.pipeline import Pipeline
from polyphase.trying import timing
from polyphase.trying.found import Samples
from polyphase.trying.sameness import Sameness, compare, image_in

Tell = Callable[[str], None]

TAKING, THEIRS, OURS = "taking", "as it is", "fused"
THEIRS_BATCHED, OURS_BATCHED = "as it is, in batches", "fused, in batches"
STEPS = 2 + timing.ROUNDS  # that are told while a trial runs
MOST_SHOWN = 4


@dataclass(frozen=True)
class Shown:
    """One sample's picture before, and as both made it: (channels, height, width)."""

    name: str
    before: Tensor
    theirs: Tensor
    ours: Tensor


@dataclass
class Trial:
    """taking: what it is to get a sample, as decoding. notes: what a reader should know besides."""

    title: str
    samples: str
    taking: str
    device: str
    threads: int
    steps: list[Done] = field(default_factory=list)
    same: list[Sameness] = field(default_factory=list)
    shown: list[Shown] = field(default_factory=list)
    times: timing.Times = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    complete: bool = False

    @property
    def launches(self) -> int:
        return max((one.launch or 0 for one in self.steps), default=0)


def run(
    title: str, transform: Any, samples: Samples, *, threads: int, seed: int, tell: Tell, device: str = "cpu"
) -> Trial:
    """An interruption ends it, and keeps what there is. A transform that fails as it is, is the user's: an error.

    On another device than the CPU, what both are given is moved there, and ours is compared with theirs on the CPU.
    """
    trial = Trial(title, samples.said, samples.taking, device, threads)
    trial.notes += [f"left out: {one}" for one in samples.left_out[:5]]
    trial.notes += [f"left out: {len(samples.left_out) - 5} more"] * (len(samples.left_out) > 5)
    if isinstance(transform, Pipeline):
        transform = transform.transform
    try:
        with timing.threads(threads):
            _run(trial, _Both(transform, samples, device, seed), samples, tell)
        trial.complete = True
    except KeyboardInterrupt:
        trial.notes.append("interrupted: this is what was measured")
    return trial


class _Both:
    """A transform as it is and fused, and what they are given."""

    def __init__(self, transform: Any, samples: Samples, device: str, seed: int) -> None:
        self.transform, self.samples, self.device, self.seed = transform, samples, device, seed
        self.fused = Pipeline(transform)  # without a word where nothing is fused: the account says so
        sample = samples.take(0)
        self._is_many = type(sample) is tuple and _takes(transform, len(sample))
        self._is_first = type(sample) in (tuple, list) and not self._is_many

    def given(self, number: int, device: str) -> tuple[Any, ...]:
        """Arguments: a sample's parts where the transform takes so many, else its image, else all of it."""
        sample = self.samples.take(number)
        given = sample if self._is_many else (sample[0],) if self._is_first else (sample,)
        return tuple(one.to(device) if isinstance(one, Tensor) and device != "cpu" else one for one in given)

    def theirs(self, number: int, given: tuple[Any, ...]) -> Any:
        try:
            with _seeded(self.seed + number):
                return self.transform(*given)
        except Exception as error:
            what = ", ".join(_said(one) for one in given)
            raise TransformFailedError(self.samples.names[number], what, scripts.told(error)) from None

    def ours(self, number: int, given: tuple[Any, ...]) -> Any:
        with _seeded(self.seed + number):
            return self.fused(*given)

    def in_batch(self, make: Callable[[list[tuple[Any, ...]]], Any], given: list[tuple[Any, ...]]) -> Any:
        """Makes a batch by the same numbers in every round: what is drawn may decide whether results are alike."""
        with _seeded(self.seed):
            return make(given)

    def batched(self, given: list[tuple[Any, ...]]) -> Any:
        samples = [one if self._is_many else one[0] for one in given]
        return self.fused.collate(samples) if self._is_many else self.fused.batch(samples)

    def one_by_one(self, given: list[tuple[Any, ...]]) -> Any:
        return default_collate([self.transform(*one) for one in given])

    def account(self, given: tuple[Any, ...]) -> list[Done]:
        with _seeded(self.seed):
            return account(self.transform, given if self._is_many else given[0], unpacks=self._is_many)


def _run(trial: Trial, both: _Both, samples: Samples, tell: Tell) -> None:
    tell(f"{trial.title}: are the pictures the same?")
    for number in range(len(samples)):
        theirs = both.theirs(number, both.given(number, "cpu"))
        ours = both.ours(number, both.given(number, trial.device))
        trial.same.append(compare(theirs, ours))
        images = image_in(both.given(number, "cpu")), image_in(theirs), image_in(ours)
        if len(trial.shown) < MOST_SHOWN and images[1] is not None and images[2] is not None:
            before = images[1] if images[0] is None else images[0]
            trial.shown.append(Shown(samples.names[number], before, images[1], images[2]))
    if not trial.shown:
        trial.notes.append("no pictures are shown: what comes out is no image of 1, 3 or 4 channels")
    tell(f"{trial.title}: what became of each transform?")
    trial.steps = both.account(both.given(0, trial.device))
    given = [both.given(number, trial.device) for number in range(len(samples))]
    timing.take_turns(
        _ways(trial, both, given), len(samples), trial.device, trial.times, lambda done: tell(f"{trial.title}: {done}")
    )


def _ways(trial: Trial, both: _Both, given: list[tuple[Any, ...]]) -> dict[str, timing.Way]:
    ways: dict[str, timing.Way] = {
        TAKING: lambda: [both.samples.take(number) for number in range(len(given))],
        THEIRS: lambda: [both.transform(*one) for one in given],
        OURS: lambda: [both.fused(*one) for one in given],
    }
    batched: dict[str, timing.Way] = {
        THEIRS_BATCHED: lambda: both.in_batch(both.one_by_one, given),
        OURS_BATCHED: lambda: both.in_batch(both.batched, given),
    }
    try:
        batched[THEIRS_BATCHED]()
    except Exception:  # as torch says for results of several sizes, of several boxes, or that are no tensors
        trial.notes.append("not timed in batches: torch's default_collate makes none of these results")
        return ways
    return ways | batched


def _takes(transform: Any, count: int) -> bool:
    """Whether a transform can be called with so many arguments."""
    try:
        inspect.signature(transform).bind(*range(count))
    except (TypeError, ValueError):
        return False
    return True


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """All generators that transforms draw from begin with the seed, and go on afterwards as if nothing had been."""
    numpy = sys.modules.get("numpy")
    states = random.getstate(), None if numpy is None else numpy.random.get_state()
    with torch.random.fork_rng(devices=[torch.cuda.current_device()] if torch.cuda.is_available() else []):
        torch.manual_seed(seed)
        random.seed(seed)
        if numpy is not None:
            numpy.random.seed(seed % 2**32)
        try:
            yield
        finally:
            random.setstate(states[0])
            if numpy is not None:
                numpy.random.set_state(states[1])


def _said(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"a {type(value).__name__} {tuple(value.shape)} of {value.dtype}"
    if hasattr(value, "mode") and hasattr(value, "size"):
        return f"a Pillow image of mode {value.mode}, {value.size[0]}x{value.size[1]}"
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return f"an array {tuple(value.shape)} of {value.dtype}"
    return f"a {type(value).__name__}"
