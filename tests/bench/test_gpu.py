"""Measuring on a GPU, without one: the same code on the CPU, with a clock and a `torch.cuda` of our own."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
import torch

from polyphase.bench import columns, compare, gpu, measure, session, tables
from polyphase.bench.columns.base import Options
from polyphase.bench.operations import AffineWarp, Resize
from polyphase.bench.results import GPU, WALL, Run
from polyphase.bench.work import Call
from polyphase.bench.workloads import Case
from tests.bench.conftest import ENVIRONMENT

WARP = Case("warp", AffineWarp("bilinear"), ((1, 3, 20, 30),), "f32", "CF")
RESIZE = Case("aa", Resize((9, 9), "bilinear", antialias=True), ((1, 3, 20, 30),), "f32", "CF")


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """On a device that is the CPU, and whose own clock says that every call takes 10 us."""

    def replayed(call: Call, block_seconds: float) -> Callable[[], float]:
        assert 0 < block_seconds < 1
        return lambda: 1e-5

    monkeypatch.setattr(gpu, "has_clock", lambda tensor: True)
    monkeypatch.setattr(gpu, "replayed", replayed)
    made = columns.made(["eager", "polyphase"], Options())
    with measure.settings(1, None):
        rows, complete = measure.measure([RESIZE], made, measure.Effort(2, 2, 0.0005))
    assert complete
    return Run("2026-11-15T12:00:00+00:00", "aa", "", {}, replace(ENVIRONMENT, device="cuda", gpu="A GPU, sm_90"), rows)


def test_a_case_has_a_row_for_each_clock(run: Run) -> None:
    assert [row.clock for row in run.rows] == [WALL, GPU]
    assert [cell.column for cell in run.rows[1].cells] == ["memory-floor", "eager", "polyphase"], (
        "the clock is the host's"
    )
    assert [cell.problem for row in run.rows for cell in row.cells if not cell.timed] == []
    assert run.rows[1].cell("eager").median == 1e-5  # type: ignore[union-attr]


def test_tables_have_the_floor(run: Run) -> None:
    text = tables.as_markdown(compare.tables([run]), [run])
    assert text.startswith("A GPU, sm_90, beside A processor; torch ")
    (line,) = (line for line in text.splitlines() if "(GPU time)" in line)
    assert "| Memory floor |" in text
    assert line.split("|")[2].strip() == "10.0 (+-0.0)"


def test_effort_is_less_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("polyphase.bench.environment.gather", lambda device, threads: ENVIRONMENT)
    assert session.plan(session.Request(device="cuda")).effort == measure.QUICK
    assert session.plan(session.Request()).effort == measure.THOROUGH


def test_without_a_gpu_it_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.version.cuda", None)
    assert gpu.missing().endswith("is built without CUDA")
    monkeypatch.setattr("torch.version.cuda", "13.0")
    assert gpu.missing().endswith("sees no GPU")


class Device:
    """Of `torch.cuda`, what is used: work takes as long as it says, and a graph does it again."""

    def __init__(self) -> None:
        self.now = 0.0  # in ms
        self.capturing: list[float] | None = None

    def work(self, milliseconds: float) -> None:
        if self.capturing is None:
            self.now += milliseconds
        else:
            self.capturing.append(milliseconds)


@pytest.mark.parametrize(("milliseconds", "captured"), [(0.01, gpu.CALLS_CAPTURED), (1.0, 2), (100.0, 1)])
def test_calls_are_captured_and_replayed(milliseconds: float, captured: int, monkeypatch: pytest.MonkeyPatch) -> None:
    device = Device()

    class Event:
        def __init__(self, enable_timing: bool) -> None:
            self.at = 0.0

        def record(self) -> None:
            self.at = device.now

        def synchronize(self) -> None:
            pass

        def elapsed_time(self, end: Event) -> float:
            return end.at - self.at

    class Stream:
        def wait_stream(self, other: object) -> None:
            pass

    class Graph:
        def __init__(self) -> None:
            self.work: list[float] = []

        def replay(self) -> None:
            device.now += sum(self.work)

    @contextlib.contextmanager
    def capture(graph: Graph) -> Iterator[None]:
        device.capturing = graph.work
        yield
        device.capturing = None

    for name, fake in (("Event", Event), ("Stream", Stream), ("CUDAGraph", Graph), ("graph", capture)):
        monkeypatch.setattr(torch.cuda, name, fake)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "current_stream", Stream)
    calls: list[None] = []

    def call() -> None:
        calls.append(None)
        device.work(milliseconds)

    seconds = gpu.replayed(call, block_seconds=0.01)
    assert len(calls) == 3 + captured
    assert seconds() == pytest.approx(milliseconds / 1e3)
    assert seconds() == pytest.approx(milliseconds / 1e3)
    assert len(calls) == 3 + captured, "replays call nothing"
