"""The launcher with functions of ours in place of the driver's: what it would launch, and where."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from polyphase.calls import dispatched, handles
from polyphase.cuda import launcher
from polyphase.cuda.launcher import FreshCall, LaunchPlan
from tests.cuda.stand_in import POINTER, Driver

STREAM, DEFAULT = 77, 0


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Driver:
    made = Driver()
    made.install(tmp_path, monkeypatch)
    return made


def image(address: int) -> Any:
    return SimpleNamespace(data_ptr=lambda: address)


def call(stream: int, empty: Callable[..., Any]) -> Callable[..., Any]:
    bound = launcher.bind(LaunchPlan(0, 7, (1, 1, 1), 64, 0, 0, 0, 24, 32), bytes(64), ["a table"])
    otherwise: Any = lambda image: ("otherwise", image)  # noqa: E731 a function, for what is not aligned
    parts = (bound.part, empty, ((2, 3), "float32"), lambda device: stream, 0)
    return launcher.fresh(FreshCall(*parts, otherwise))


def test_a_call_from_an_image_to_a_new_tensor(stand_in: Driver) -> None:
    asked: list[Any] = []
    made = image(1024)

    def empty(*shape: Any) -> Any:
        asked.append(shape)
        return made

    for stream in (DEFAULT, STREAM):
        assert call(stream, empty)(image(4096)) is made
    assert stand_in.launches == [(DEFAULT, 1024, 4096), (STREAM, 1024, 4096)]
    assert asked == [((2, 3), "float32")] * 2
    odd = image(4097)
    assert call(STREAM, empty)(odd) == ("otherwise", odd)
    assert len(stand_in.launches) == 2


def test_whether_a_graph_is_captured_is_said(stand_in: Driver) -> None:
    """So that Python keeps what it made for the call."""
    bound = launcher.bind(LaunchPlan(0, 7, (1, 1, 1), 64, 0, 0, 0, 24, 32), bytes(64), ["a table"])
    assert bound.run(STREAM, 1024, 4096) == 0
    stand_in.captures = 1
    assert bound.run(STREAM, 1024, 4096) == 1
    assert bound.run(DEFAULT, 1024, 4096) == 0, "which never is"
    assert launcher.tables(bound.part) == ("a table",)


def test_a_kernel_that_waits_may_be_begun_early(stand_in: Driver) -> None:
    plainly, stand_in.waits = call(STREAM, lambda *shape: image(1024)), True
    early = call(STREAM, lambda *shape: image(2048))
    plainly(image(4096))
    assert not stand_in.early
    early(image(4096))
    assert stand_in.early == [(6, 1)]  # CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
    assert stand_in.launches == [(STREAM, 1024, 4096), (STREAM, 2048, 4096)]


def test_launches_of_what_makes_tables_are_counted_apart(stand_in: Driver) -> None:
    before = launcher._functions().counts()
    for makes_tables in (False, True, True):
        plan = LaunchPlan(0, 7, (1, 1, 1), 64, 0, 0, 0, 0, 0, makes_tables=makes_tables)
        launcher.bind(plan, bytes(16)).run(STREAM, 1024, 1)
    after = launcher._functions().counts()
    assert [now - then for now, then in zip(after, before, strict=True)] == [1, 2, 0]


def test_what_goes_wrong_is_said(stand_in: Driver) -> None:
    def no_memory(*shape: Any) -> Any:
        raise MemoryError("none left")

    with pytest.raises(MemoryError, match="none left"):
        call(STREAM, no_memory)(image(4096))
    with pytest.raises(AttributeError, match="data_ptr"):
        call(STREAM, lambda *shape: image(1024))(None)
    with pytest.raises(AttributeError, match="data_ptr"):
        call(STREAM, lambda *shape: None)(image(4096))
    with pytest.raises(ValueError, match="nothing else"):
        call(STREAM, lambda *shape: image(1024))(image(4096), image(4096))
    assert not stand_in.launches
    stand_in.status = 1
    with pytest.raises(ValueError, match="refused"):
        call(STREAM, lambda *shape: image(1024))(image(4096))


def test_a_kernel_in_the_dispatcher(stand_in: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tensors are the CPU's, which is all the same to it: only addresses are taken."""
    stream_of = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int32, ctypes.POINTER(POINTER))(current_stream)
    packed = dispatched._packed()
    kernels = launcher._functions()
    assert packed is not None
    with_stream = packed[:-8] + struct.pack("=q", ctypes.cast(stream_of, POINTER).value)
    monkeypatch.setattr(dispatched, "_packed", lambda: with_stream)
    handles.use_handles(kernels.read_by_handles)
    assert dispatched.usable(kernels) is kernels
    plan = LaunchPlan(0, 7, (1, 1, 1), 64, 0, 1, 0, 16, 24)  # coordinates beside the image
    bound = launcher.bind(plan, bytes(64))
    by_python: list[int] = []

    def call(image: Tensor, grid: Tensor) -> Tensor:
        by_python.append(image.data_ptr())
        return torch.empty(0)

    asked: list[int] = []

    def direct(image: Tensor, grid: Tensor) -> dispatched.DirectCall:
        asked.append(image.data_ptr())
        return dispatched.DirectCall(bound.part, (2, 3), (3, 1), 2)

    library = torch.library.Library("polyphase", "FRAGMENT")
    library.define("_stood_in(Tensor image, Tensor grid) -> Tensor")
    place = kernels.operator("polyphase", "_stood_in", "CPU", "-t-t", call, direct)
    kernels.put(place)
    kernels.direct(True)
    op, storage, grid = torch.ops.polyphase._stood_in, torch.rand(64), torch.rand(4)
    first = -storage.data_ptr() % 16 // 4
    images = [storage[first : first + 8], storage[first + 1 : first + 9]]
    for one in images:
        for _ in range(2):
            op(one, grid)
    assert (by_python, stand_in.launches) == ([one.data_ptr() for one in images for _ in range(2)], [])

    made = op(images[0], grid)
    assert (made.shape, made.stride()) == ((2, 3), (3, 1))
    assert stand_in.launches == [(STREAM, made.data_ptr(), images[0].data_ptr())]
    assert stand_in.operands == [grid.data_ptr()]
    by_python.clear()
    op(images[1], grid)  # begins anywhere
    stand_in.captures = 1
    op(images[0], grid)
    assert (len(by_python), len(stand_in.launches)) == (2, 1)
    stand_in.captures, stand_in.status = 0, 1
    op(images[0], grid)
    assert (len(by_python), len(stand_in.launches)) == (3, 2)
    assert len(asked) == 1
    kernels.take_away(place)


def current_stream(device: int, stream: Any) -> int:
    stream[0] = STREAM
    return 0
