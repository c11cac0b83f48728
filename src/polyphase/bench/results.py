"""What a run of the benchmark gives, as plain data, and as one JSON file."""

from __future__ import annotations

import dataclasses
import json
import re
import statistics
import types
import typing
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from polyphase.errors import ResultFileError

KIND = "polyphase-bench"
VERSION = 1

WALL, GPU = "wall", "gpu"


@dataclass(frozen=True)
class Cell:
    """A column's times for a case: seconds a call, the blocks of each pass in turn.

    Blocks of the same place in different cells of a row were measured beside each other. `skipped`: why the column
    cannot run the case. `problem`: what is wrong with how it ran; it has no times then.
    """

    column: str
    title: str
    passes: tuple[tuple[float, ...], ...] = ()
    skipped: str | None = None
    problem: str | None = None
    difference: float = 0.0
    yardstick: bool = False

    @property
    def blocks(self) -> tuple[float, ...]:
        return tuple(seconds for blocks in self.passes for seconds in blocks)

    @property
    def timed(self) -> bool:
        return self.problem is None and self.skipped is None and bool(self.blocks)

    @property
    def median(self) -> float:
        return statistics.median(self.blocks)

    @property
    def spread(self) -> float:
        """Half of the range that the middle half of the blocks lies in."""
        if len(self.blocks) < 2:
            return 0.0
        low, _, high = statistics.quantiles(self.blocks, n=4, method="inclusive")
        return (high - low) / 2


@dataclass(frozen=True)
class Row:
    """A case. `clock`: wall time, or the GPU's."""

    suite: str
    order: str
    label: str
    bytes_moved: int
    cells: tuple[Cell, ...]
    clock: str = WALL

    @property
    def key(self) -> tuple[str, str, str, str]:
        return self.suite, self.order, self.label, self.clock

    @property
    def name(self) -> str:
        """What the row is called in a table of its suite."""
        order = f"{self.order}: " if self.order else ""
        return f"{order}{self.label}{' (GPU time)' if self.clock == GPU else ''}"

    @property
    def columns(self) -> tuple[Cell, ...]:
        return tuple(cell for cell in self.cells if not cell.yardstick)

    @property
    def yardsticks(self) -> tuple[Cell, ...]:
        return tuple(cell for cell in self.cells if cell.yardstick)

    def cell(self, column: str) -> Cell | None:
        return next((cell for cell in self.cells if cell.column == column), None)


@dataclass(frozen=True)
class Environment:
    python: str
    torch: str
    torch_config: str
    polyphase: str
    commit: str
    system: str
    cpu: str
    cpu_features: tuple[str, ...]
    instruction_set: str
    compiler: str
    cores: int
    threads: int
    device: str
    gpu: str
    triton: str
    peers: dict[str, str]
    load: float = 0.0  # before it began

    @property
    def busy(self) -> str:
        """What to say where others wanted the cores that measuring needs."""
        if self.load <= max(0.5, self.cores - self.threads):
            return ""
        return f"busy (a load of {self.load:.1f} on {self.cores} cores): times can be several times too long"


@dataclass(frozen=True)
class Run:
    created: str  # ISO 8601, local time with its offset
    suite: str
    tag: str
    options: dict[str, str]
    environment: Environment
    rows: tuple[Row, ...]
    complete: bool = True

    @property
    def file_name(self) -> str:
        moment = datetime.fromisoformat(self.created).strftime("%Y%m%d-%H%M%S")
        tag = re.sub(r"[^A-Za-z0-9._-]+", "_", self.tag)
        return "-".join(part for part in (moment, self.suite, tag) if part) + ".json"


def make_directory(directory: Path) -> None:
    """Before measuring, so that results have a place to go."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ResultFileError(f"cannot make {directory}: {error.strerror}; name another place with --out") from error


def save(run: Run, directory: Path) -> Path:
    make_directory(directory)
    path = directory / run.file_name
    content = {"kind": KIND, "version": VERSION, **dataclasses.asdict(run)}
    try:
        path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise ResultFileError(f"cannot write {path}: {error.strerror}; name another place with --out") from error
    return path


def load(path: Path) -> Run:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ResultFileError(
            f"cannot read {path}: {error.strerror}; name a file that `polyphase bench` wrote"
        ) from error
    except ValueError as error:
        raise ResultFileError(f"{path} is no JSON: {error}; name a file that `polyphase bench` wrote") from error
    if not isinstance(content, dict) or content.get("kind") != KIND:
        raise ResultFileError(f"{path} is no result of `polyphase bench`; name a file that it wrote")
    if content.get("version") != VERSION:
        raise ResultFileError(
            f"{path} has version {content.get('version')} of the format, this is for version {VERSION}; "
            "measure again, or use the polyphase that wrote it"
        )
    try:
        run: Run = _read(Run, content)
    except (TypeError, KeyError, ValueError) as error:
        raise ResultFileError(f"{path} is damaged: {error}; measure again") from error
    return run


def _read(kind: Any, value: Any) -> Any:
    """JSON's value as the type that an annotation says."""
    if dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        known = {name: hint for name, hint in hints.items() if name in value}
        return kind(**{name: _read(hint, value[name]) for name, hint in known.items()})  # type: ignore[operator]
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if origin is types.UnionType:
        return None if value is None else _read(parts[0], value)
    if origin is tuple:
        return tuple(_read(parts[0], one) for one in _checked(list, value))
    if origin is dict:
        return {str(name): _read(parts[1], one) for name, one in _checked(dict, value).items()}
    return float(value) if kind is float and isinstance(value, int) else _checked(kind, value)


def _checked(kind: type, value: Any) -> Any:
    if not isinstance(value, kind):
        raise TypeError(f"{value!r:.60} where a {kind.__name__} is expected")
    return value
