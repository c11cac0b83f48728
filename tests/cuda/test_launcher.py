"""The launcher with functions of ours in place of the driver's: what it would launch, and where."""

from __future__ import annotations

import ctypes
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from polyphase.cpu import build, isa
from polyphase.cuda import driver, launcher
from polyphase.cuda.launcher import FreshCall, LaunchPlan

CONTEXT, STREAM, DEFAULT = 42, 77, 0
POINTER = ctypes.c_void_p


class Driver:
    """Stands in for the driver: launches are remembered, with their stream and the first two of their parameters."""

    def __init__(self) -> None:
        self.launches: list[tuple[int, int, int]] = []
        self.captures, self.status = 0, 0
        made: list[tuple[Callable[..., int], list[Any]]] = [
            (self.launch, [POINTER, *[ctypes.c_uint] * 7, POINTER, POINTER, ctypes.POINTER(POINTER)]),
            (self.current, [ctypes.POINTER(POINTER)]),
            (lambda context: 0, [POINTER]),
            (lambda context: 0, [POINTER]),
            (self.capturing, [POINTER, ctypes.POINTER(ctypes.c_int)]),
        ]
        self.functions = [ctypes.CFUNCTYPE(ctypes.c_int, *kinds)(one) for one, kinds in made]

    def addresses(self) -> ctypes.Array[ctypes.c_int64]:
        return (ctypes.c_int64 * 5)(*[ctypes.cast(one, POINTER).value or 0 for one in self.functions])

    def launch(self, *given: Any) -> int:
        stream, extra = given[8], given[10]
        self.launches.append((stream or 0, *struct.unpack("=2q", ctypes.string_at(extra[1], 16))))
        return self.status

    def current(self, context: Any) -> int:
        context[0] = CONTEXT
        return 0

    def capturing(self, stream: Any, status: Any) -> int:
        status[0] = self.captures
        return 0


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Driver:
    """A copy of the library: another may have the driver's functions."""
    (path,) = build.libraries([build.Request(launcher.SOURCE.read_text(), isa.chosen(), "launcher", purpose="a test")])
    shutil.copy(path, tmp_path / "launcher.so")
    functions = ctypes.PyDLL(str(tmp_path / "launcher.so")).polyphase_functions
    functions.argtypes, functions.restype = [ctypes.c_void_p], ctypes.py_object
    made = Driver()
    of_launcher = launcher._Functions(*functions(made.addresses()))
    monkeypatch.setattr(launcher, "_functions", lambda: of_launcher)
    monkeypatch.setattr(driver, "context_address", lambda device: CONTEXT)
    return made


def image(address: int) -> Any:
    return SimpleNamespace(data_ptr=lambda: address)


def call(stream: int, empty: Callable[..., Any], kept: list[str]) -> Callable[..., Any]:
    bound = launcher.bind(LaunchPlan(0, 7, (1, 1, 1), 64, 0, 0, 0, 24, 32), bytes(64))
    otherwise: Any = lambda image: ("otherwise", image)  # noqa: E731 a function, for what is not aligned
    parts = (bound.part, empty, ((2, 3), "float32"), lambda device: stream, 0)
    return launcher.fresh(FreshCall(*parts, lambda: kept.append("kept"), otherwise))


def test_a_call_from_an_image_to_a_new_tensor(stand_in: Driver) -> None:
    asked: list[Any] = []
    kept: list[str] = []
    made = image(1024)

    def empty(*shape: Any) -> Any:
        asked.append(shape)
        return made

    for stream in (DEFAULT, STREAM):
        assert call(stream, empty, kept)(image(4096)) is made
    assert stand_in.launches == [(DEFAULT, 1024, 4096), (STREAM, 1024, 4096)]
    assert asked == [((2, 3), "float32")] * 2
    assert not kept
    stand_in.captures = 1
    call(STREAM, empty, kept)(image(4096))
    assert kept == ["kept"]
    odd = image(4097)
    assert call(STREAM, empty, kept)(odd) == ("otherwise", odd)
    assert len(stand_in.launches) == 3


def test_what_goes_wrong_is_said(stand_in: Driver) -> None:
    def no_memory(*shape: Any) -> Any:
        raise MemoryError("none left")

    with pytest.raises(MemoryError, match="none left"):
        call(STREAM, no_memory, [])(image(4096))
    with pytest.raises(AttributeError, match="data_ptr"):
        call(STREAM, lambda *shape: image(1024), [])(None)
    with pytest.raises(AttributeError, match="data_ptr"):
        call(STREAM, lambda *shape: None, [])(image(4096))
    with pytest.raises(ValueError, match="nothing else"):
        call(STREAM, lambda *shape: image(1024), [])(image(4096), image(4096))
    assert not stand_in.launches
    stand_in.status = 1
    with pytest.raises(ValueError, match="refused"):
        call(STREAM, lambda *shape: image(1024), [])(image(4096))
