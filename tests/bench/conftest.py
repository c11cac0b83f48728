from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from polyphase.bench.results import Cell, Environment, Row, Run
from polyphase.cli import app

MakeRun = Callable[..., Run]
Invoke = Callable[..., Result]


@pytest.fixture
def invoke() -> Invoke:
    """The command line, in this process."""
    return lambda *words: CliRunner().invoke(app, [str(word) for word in words])


def said_in_one_line(result: Result) -> str:
    """The line an error is told in; it ended with status 2 and nothing else was said."""
    assert result.exit_code == 2, result.output
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    (line,) = result.stderr.splitlines()
    assert line.startswith("polyphase: ")
    return line


ENVIRONMENT = Environment(
    python="3.11.0",
    torch="2.13.0+cpu",
    torch_config="built with care",
    polyphase="0.1.0",
    commit="0123456789ab",
    system="Linux x86_64",
    cpu="A processor",
    cpu_features=("avx2", "fma"),
    instruction_set="avx2",
    compiler="g++ 12",
    cores=2,
    threads=1,
    device="cpu",
    gpu="none",
    triton="none",
    peers={"numpy": "2.0"},
)


def cell(column: str, seconds: float, *, tag: str = "", yardstick: bool = False) -> Cell:
    """Of times that scatter by one percent."""
    heading = {
        "eager": "Eager (2.13.0)",
        "inductor": "Compiled (2.13.0)",
        "polyphase": "Polyphase (0.1.0)",
        "memory-floor": "Memory floor",
    }[column]
    passes = tuple(tuple(seconds * (1 + 0.005 * (i + j - 2)) for j in range(3)) for i in range(3))
    return Cell(column, f"{heading} {tag}".strip(), passes, yardstick=yardstick)


def run(*, tag: str = "", polyphase: float = 1e-4, machine: float = 1.0) -> Run:
    """Two rows; `machine` says how many times slower everything was."""
    rows = tuple(
        Row(
            "aa",
            "1->4",
            f"bilinear antialiased {n}x3x345x456 -> 270x270, u8 CL",
            690660,
            (
                cell("memory-floor", n * machine * 1e-5, yardstick=True),
                cell("eager", n * machine * 4e-4, tag=tag),
                cell("inductor", n * machine * 5e-4, tag=tag),
                cell("polyphase", n * machine * polyphase, tag=tag),
                Cell("opencv", f"OpenCV (5.0.0) {tag}".strip(), skipped="not installed"),
            ),
        )
        for n in (1, 4)
    )
    return Run("2026-11-15T12:00:00+00:00", "aa", tag, {"quick": "True"}, ENVIRONMENT, rows)


@pytest.fixture
def make_run() -> MakeRun:
    return run


@pytest.fixture
def saved(tmp_path: Path) -> Callable[..., Path]:
    """A run as a file."""
    from polyphase.bench import results

    return lambda **given: results.save(run(**given), tmp_path)
