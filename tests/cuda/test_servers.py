"""Kernels that serve sizes that were not seen before, until a size comes again."""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from polyphase import torch_private
from polyphase.calls.bound import BoundCall
from polyphase.cuda import driver, emit, launch, loading, maps, ways
from polyphase.cuda.ways import Way
from polyphase.errors import BuildFailedError
from polyphase.kernels.plans import MapsPlan
from polyphase.records.layout import dense_strides
from polyphase.sampling.programs import Program
from tests.cuda import host
from tests.cuda.stand_in import Driver
from tests.cuda.test_kernels_on_host import AA, CUBIC, CUBIC_AA, image, resized

NEAREST: dict[str, Any] = {"mode": "nearest", "antialias": False}


def arranged(program: Program, x: Tensor) -> maps.Arranged:
    return maps.Arranged(host.record_for(program, [x]), True, True, host.ARCHITECTURE)


def by(program: Program, x: Tensor, way: Way, own: Way) -> Tensor:
    record = host.record_for(program, [x])
    out = host.empty(record.out.shape, record.out.strides, record.out.dtype)
    host.execute(arranged(program, x).by(way, instead=own), [out, x])
    return out


def spoilt(x: Tensor) -> Tensor:
    """With values that a sum does not survive, also where only wider windows read them."""
    if x.is_floating_point():
        x[..., 5, 7], x[..., 20, 31], x[0, 0, -1, -1] = torch.inf, torch.nan, -torch.inf
    return x


@pytest.mark.parametrize("few", [None, 0], ids=["small", "large"])
@pytest.mark.parametrize("last", [False, True], ids=["planes", "pixels"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.uint8], ids=str)
def test_servers_give_the_bits_of_a_calls_own_kernel(
    dtype: torch.dtype, last: bool, few: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if few is not None:
        for name in ("FEW_OUTPUTS", "MANY_THREADS", "FEW_TO_WALK"):
            monkeypatch.setattr(ways, name, few)
    seen = set()
    for size, mode in (((30, 33), AA), ((22, 19), CUBIC), ((9, 10), CUBIC_AA), ((7, 40), AA), ((61, 83), NEAREST)):
        x = spoilt(image(dtype, 1, 3, 40, 68, last=last))
        program = resized(x, size, **mode)
        call = arranged(program, x)
        own = call.own_way()
        expected = by(program, x, own, own)
        found = call.servers(own)
        for way in found:
            finite = torch.isfinite(x).all() if x.is_floating_point() else True
            exact = 0 if finite or own.template != "Shrink" else 1e-6  # these are made again by rows
            got = by(program, x, way, own)
            torch.testing.assert_close(got, expected, rtol=exact, atol=exact, equal_nan=True)
        seen |= {(own.template, way.template) for way in found}
        assert found
    assert {"General"} <= {served for _, served in seen}
    assert len({own for own, _ in seen}) >= (3 if few is None else 2)


def test_columns_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """What shrinks much is summed down columns first, by whatever kernel."""
    monkeypatch.setattr(ways, "FEW_OUTPUTS", 0)
    x = image(torch.float32, 1, 3, 90, 70)
    program = resized(x, (7, 6), **CUBIC_AA)
    own = arranged(program, x).own_way()
    assert own.template == "Shrink"
    general = arranged(program, x).way_by("General")
    assert torch.equal(by(program, x, general, own), by(program, x, own, own))
    assert not torch.equal(by(program, x, general, general), by(program, x, own, own))


@pytest.mark.parametrize("dtype", [torch.float32, torch.uint8], ids=str)
@pytest.mark.parametrize("mode", [AA, CUBIC_AA, CUBIC, NEAREST], ids=str)
def test_servers_are_few(dtype: torch.dtype, mode: dict[str, Any]) -> None:
    """Of 60 sizes, and one of them serves all."""
    rng, first, last = random.Random(3), set(), set()
    for _ in range(60):
        size = rng.randrange(64, 900), rng.randrange(64, 900)
        strides = dense_strides((1, 3, 480, 640), False)
        x = torch.empty_strided((1, 3, 480, 640), strides, dtype=dtype, device="meta")
        call = arranged(resized(x, size, **mode), x)
        found = call.servers(call.own_way())
        first |= {call.of_call(way) for way in found[:1]}
        last |= {call.of_call(way) for way in found[-1:]}
    assert len(first) <= 24
    assert {way.template for way in last} == {"General"}
    assert len(last) == 1


# ---- on their way into memory


PLAN = MapsPlan(
    source=torch.float32, sampled=torch.float32, target=torch.float32, weighted=True, architecture=host.ARCHITECTURE
)


def name_of(number: int) -> loading.Name:
    return loading.Name(PLAN, Way("general", "General", (True, False, number), number), 0)


@pytest.fixture
def no_kernels(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(driver, "waits", lambda device, function: False)
    launch._forget_kernels()
    yield
    launch._forget_kernels()


@pytest.mark.usefixtures("no_kernels")
def test_a_kernel_is_brought_once(monkeypatch: pytest.MonkeyPatch) -> None:
    began, may_end, brought = threading.Event(), threading.Event(), list[Any]()

    def bring(plan: object, way: Way, device: int) -> int:
        brought.append(way.threads)
        began.set()
        assert may_end.wait(60)
        return 7

    monkeypatch.setattr(loading, "_loaded", bring)
    one = loading.kernel(name_of(1))
    assert not loading.is_asked_for(one)
    for _ in range(2):
        loading.ask_for(one)
    assert began.wait(60)
    assert loading.is_asked_for(one)
    assert (one.is_loaded, one.state.ready) == (False, 0)
    found: list[int] = []
    waiting = threading.Thread(target=lambda: found.append(loading.function_of(name_of(1))))
    waiting.start()
    may_end.set()
    waiting.join()
    assert (found, brought, one.is_loaded, one.state.ready) == ([7], [1], True, 1)
    assert loading.function_of(name_of(1)) == 7
    assert brought == [1]


@pytest.mark.usefixtures("no_kernels")
def test_what_fails_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[Any] = [BuildFailedError("no"), 7]

    def bring(plan: object, way: object, device: int) -> int:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return int(answer)

    monkeypatch.setattr(loading, "_loaded", bring)
    with pytest.raises(BuildFailedError, match="no"):
        loading.function_of(name_of(2))
    assert loading.function_of(name_of(2)) == 7


@pytest.mark.usefixtures("no_kernels")
def test_who_waits_does_not_wait_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was asked for but not begun is brought by the thread that needs it."""
    may_end, threads = threading.Event(), dict[int, str]()

    def bring(plan: object, way: Way, device: int) -> int:
        threads[way.threads] = threading.current_thread().name
        if way.threads < 100:
            assert may_end.wait(60)
        return way.threads

    monkeypatch.setattr(loading, "_loaded", bring)
    for number in (*range(1, 2 + loading.WORKERS), 100):
        loading.ask_for(loading.kernel(name_of(number)))
    assert loading.function_of(name_of(100)) == 100
    assert threads[100] == threading.current_thread().name
    may_end.set()
    for number in range(1, 2 + loading.WORKERS):
        loading.function_of(name_of(number))


# ---- calls of new sizes, on a device that is the host

TAP_MAKER = 1 << 20


class Device:
    """Kernels that were brought, by the number that stands for their function, and what ran. may_build:
    whether threads in the background bring them yet."""

    def __init__(self) -> None:
        self.kernels: list[tuple[MapsPlan, Way]] = []
        self.ran: list[Way] = []
        self.driver = Driver(self.run)
        self.may_build = threading.Event()
        self.may_build.set()

    def bring(self, plan: MapsPlan, way: Way, device: int) -> int:
        if threading.current_thread().name == "polyphase-builds":
            assert self.may_build.wait(60)
        self.kernels.append((plan, way))
        return len(self.kernels)

    def run(self, function: int, blocks: Any, threads: int, shared_bytes: int, given: object) -> None:
        data = bytearray(self.driver.parameters)
        source = emit.tap_maker_source()
        if function != TAP_MAKER:
            plan, way = self.kernels[function - 1]
            self.ran.append(way)
            source = emit.kernel_source(plan, way)
        host.run_blocks(source, data, tuple(blocks), threads, shared_bytes, False)


@pytest.fixture
def device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_kernels: None) -> Iterator[Device]:
    made = Device()
    made.driver.install(tmp_path, monkeypatch)
    monkeypatch.setattr(loading, "_loaded", made.bring)
    monkeypatch.setattr(loading, "tap_maker", lambda device, architecture: TAP_MAKER)
    monkeypatch.setattr(torch.cuda, "device", lambda device: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(launch, "architecture", lambda device=None: host.ARCHITECTURE)
    monkeypatch.setattr(launch, "uploaded", lambda device, *parts: host._on_host(*parts))
    monkeypatch.setattr(launch, "keep_forever", lambda kept: None)
    monkeypatch.setitem(torch_private.__dict__, "current_raw_stream", lambda device: 77)
    monkeypatch.setitem(torch_private.__dict__, "empty_strided_cuda", lambda *given: host.empty(*given))
    monkeypatch.setattr(driver, "most_shared_bytes", lambda device: 1 << 16)
    yield made
    made.may_build.set()
    for _ in range(6000):
        if not loading._workers:
            break
        threading.Event().wait(0.01)


def bound(x: Tensor, size: tuple[int, int]) -> tuple[BoundCall, Callable[[], Tensor], Tensor]:
    program = resized(x, size, **AA)
    call = launch.bind(host.record_for(program, [x]))
    own = arranged(program, x).own_way()
    return call, lambda: call.fresh(x), by(program, x, own, own)


def served(x: Tensor, device: Device) -> None:
    """A first size was called, and what serves all others is there."""
    _, run, expected = bound(x, (20, 30))
    assert torch.equal(run(), expected)
    (general,) = [name for name in [*loading._kernels] if name.way.template == "General"]
    loading.function_of(general)


def test_only_the_first_size_waits(device: Device) -> None:
    x = image(torch.float32, 1, 3, 40, 68)
    served(x, device)
    device.may_build.clear()
    before = launch.stats()["builds_waited"]
    for size in ((21, 33), (15, 25), (30, 31), (19, 29)):
        _, run, expected = bound(x, size)
        assert torch.equal(run(), expected)
    assert launch.stats()["builds_waited"] == before
    assert "General" in {way.template for way in device.ran[1:]}


def test_a_size_that_comes_again_gets_its_own_kernel(device: Device) -> None:
    x = image(torch.float32, 1, 3, 40, 68)
    served(x, device)
    device.may_build.clear()
    _, run, expected = bound(x, (9, 30))
    results = [run() for _ in range(2)]
    device.may_build.set()
    results += [run() for _ in range(12)]
    assert all(torch.equal(one, expected) for one in results)
    assert [way.template for way in device.ran[1:3]] == ["General"] * 2
    assert device.ran[-1].constants == arranged(resized(x, (9, 30), **AA), x).own_way().constants


def test_a_call_that_is_captured_waits_for_its_own_kernel(device: Device) -> None:
    x = image(torch.float32, 1, 3, 40, 68)
    served(x, device)
    _, run, expected = bound(x, (9, 30))
    device.driver.captures = 1
    assert torch.equal(run(), expected)
    assert device.ran[-1].template == "Direct"


def test_what_cannot_be_built_goes_on_being_served(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    x = image(torch.float32, 1, 3, 40, 68)
    served(x, device)
    device.may_build.clear()
    _, run, expected = bound(x, (9, 30))

    def fails(*given: object) -> int:
        raise BuildFailedError("no")

    monkeypatch.setattr(loading, "_loaded", fails)
    device.may_build.set()
    for _ in range(12):
        assert torch.equal(run(), expected)
    assert device.ran[-1].template == "General"
