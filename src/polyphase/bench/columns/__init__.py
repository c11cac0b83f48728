"""The columns, by the name they have in `--columns`. A new one is a class and a line here."""

from __future__ import annotations

from collections.abc import Sequence

from polyphase.bench.columns.base import Column, Options
from polyphase.bench.columns.compiled import Decomposition, Inductor, PolyphaseCompiled, PolyphaseUnfused
from polyphase.bench.columns.peers import OpenCV, Pillow, PillowSimd, Torchvision
from polyphase.bench.columns.uncompiled import Clock, Eager, MemoryFloor, Polyphase
from polyphase.errors import NothingToMeasureError, UnknownNameError

COLUMNS: dict[str, type[Column]] = {
    "eager": Eager,
    "inductor": Inductor,
    "decomposition": Decomposition,
    "polyphase": Polyphase,
    "polyphase-compiled": PolyphaseCompiled,
    "polyphase-unfused": PolyphaseUnfused,
    "opencv": OpenCV,
    "pillow": Pillow,
    "pillow-simd": PillowSimd,
    "torchvision": Torchvision,
}
YARDSTICKS: dict[str, type[Column]] = {"memory-floor": MemoryFloor, "clock": Clock}
FLOOR = "memory-floor"


def names(wanted: str | None, quick: bool, fusion: bool) -> list[str]:
    """Lists the columns of `--columns`, or all. The quick suite leaves out what takes long to compile."""
    if wanted is None:
        left_out = {"polyphase-compiled"} if not fusion else {"polyphase-unfused"}
        if quick:
            left_out |= {"decomposition"}
        return [name for name in COLUMNS if name not in left_out]
    found = [name.strip() for name in wanted.split(",") if name.strip()]
    for name in found:
        if name not in COLUMNS:
            raise UnknownNameError("column", name, COLUMNS)
    if not found:
        raise NothingToMeasureError(f"--columns {wanted!r} names no column; choose some of: {', '.join(COLUMNS)}")
    return list(dict.fromkeys(found))


def made(wanted: Sequence[str], options: Options) -> dict[str, Column]:
    """Makes the columns that are wanted, the yardsticks first."""
    known = {**YARDSTICKS, **COLUMNS}
    return {name: known[name](options) for name in (*YARDSTICKS, *wanted)}
