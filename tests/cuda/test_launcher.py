"""The launcher with functions of ours in place of the driver's: what it would launch, and where."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from polyphase.cuda import launcher
from polyphase.cuda.launcher import FreshCall, LaunchPlan
from tests.cuda.stand_in import Driver

STREAM, DEFAULT = 77, 0


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Driver:
    made = Driver()
    made.install(tmp_path, monkeypatch)
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
