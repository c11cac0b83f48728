"""Calls for images of any size: the launcher binds them, and asks Python for what it has not seen."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from polyphase import arguments, torch_private
from polyphase.calls import binding, plain_torch
from polyphase.cuda import batches, launch, launcher, loading, programs, ways
from polyphase.errors import BuildFailedError, CompilerMissingError, NoKernelsWarning
from polyphase.records.facts import facts
from polyphase.records.recipes import Recipe
from polyphase.sampling.axis_maps import AxisMap
from polyphase.sampling.programs import Program, maps_program
from polyphase.sampling.steps import Resize, Slice
from tests.cuda import host, test_servers
from tests.cuda.stand_in import OWN_STREAM
from tests.cuda.test_kernels_on_host import AA, CUBIC, CUBIC_AA, image, resized
from tests.cuda.test_servers import NEAREST, Device

device, no_kernels = test_servers.device, test_servers.no_kernels  # fixtures
SIZES = ((40, 68), (33, 50), (61, 40), (40, 68), (25, 90))


class Asked:
    """How often Python was, for kernels; and the driver, for memory that was filled."""

    def __init__(self, device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
        self.kernels, self._driver = 0, device.driver
        choose = programs.OnDevice.choose

        def chooses(own: Any, *given: Any) -> Any:
            self.kernels += 1
            return choose(own, *given)

        monkeypatch.setattr(programs.OnDevice, "choose", chooses)

    @property
    def uploads(self) -> int:
        return len(self._driver.filled)


@pytest.fixture
def asked(device: Device, monkeypatch: pytest.MonkeyPatch) -> Asked:
    return Asked(device, monkeypatch)


def otherwise(*given: Any) -> Tensor:
    return torch.full((1,), -1.0)


def call_for(program: Program, x: Tensor) -> Callable[..., Tensor]:
    made = binding.for_any_size(program, [host.on_cuda(facts(x))], otherwise)
    assert made is not None
    return made


def pictures(dtype: torch.dtype, *, last: bool = False) -> list[Tensor]:
    return [image(dtype, 1, 3, *size, last=last) for size in SIZES]


def expected(program: Program, x: Tensor) -> Tensor:
    arranged = test_servers.arranged(program, x)
    own = arranged.own_way()
    return test_servers.by(program, x, own, own)


@pytest.mark.parametrize("last", [False, True], ids=["planes", "pixels"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.uint8], ids=str)
def test_images_of_any_size(dtype: torch.dtype, last: bool, asked: Asked) -> None:
    given = pictures(dtype, last=last)
    program = resized(given[0], (20, 30), **AA)
    call = call_for(program, given[0])
    for one in given:
        result = call(one)
        right = expected(program, one)
        assert torch.equal(result, right)
        assert result.stride() == right.stride()
    assert asked.uploads == len(set(SIZES)), "a size that was seen is found"
    before = asked.kernels
    for one in given:
        assert torch.equal(call(one), expected(program, one))
    assert asked.uploads <= 2 * len(set(SIZES)), "once more at most, for a kernel of its own"
    assert asked.kernels == before


def test_python_is_not_asked_for_kernels_that_are_there(device: Device, asked: Asked) -> None:
    """Where one serves; own kernels are asked for when a size comes again."""
    x = image(torch.float32, 1, 3, 40, 68)
    test_servers.served(x, device)
    device.may_build.clear()
    program = resized(x, (20, 30), **AA)
    call = call_for(program, x)
    call(x)
    before = asked.kernels
    for rows in range(21, 60):
        one = image(torch.float32, 1, 3, rows, 50)
        assert torch.equal(call(one), expected(program, one))
    assert asked.kernels - before <= 6, "servers are few"


#: Of windows with about as many taps as decide which kernel is a call's own, and others.
CLOSE = ((70, 61), (69, 62), (140, 122), (35, 30), (23, 21), (18, 16), (17, 15), (16, 14), (9, 61), (70, 6), (5, 4))


#: Modes whose tables of floats are made on the device.
MADE: list[dict[str, Any]] = [
    AA,
    CUBIC_AA,
    CUBIC,
    {"mode": "bilinear", "antialias": False},
    {"mode": "bilinear", "antialias": False, "align_corners": True},
    {"mode": "bicubic", "antialias": False, "align_corners": True},
]


@pytest.mark.parametrize("few", [None, 0], ids=["small", "large"])
@pytest.mark.parametrize("mode", MADE, ids=str)
def test_tables_made_on_the_device_give_the_same_bits(
    mode: dict[str, Any], few: int | None, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As those of the host: by whatever kernel, and where infinities lie beside narrow windows."""
    if few is not None:
        monkeypatch.setattr(ways, "FEW_OUTPUTS", few)
    before = launch.stats()["makers_launched"]
    for x in (image(torch.float32, 1, 2, 70, 61), test_servers.spoilt(image(torch.float32, 1, 2, 70, 61))):
        call = binding.for_any_size(resized(x, (20, 30), **mode), [host.on_cuda(facts(x))], otherwise, 2)
        assert call is not None
        for size in CLOSE:
            program = resized(x, size, **mode)
            again = not torch.isfinite(x).all() and test_servers.arranged(program, x).own_way().template == "Shrink"
            most = 1e-6 if again else 0  # then sums are made again by rows
            torch.testing.assert_close(call(*size, x), expected(program, x), rtol=most, atol=most, equal_nan=True)
    assert launch.stats()["makers_launched"] - before >= len(CLOSE)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_tables_of_scale_factors(mode: str, device: Device) -> None:
    before, x = launch.stats()["makers_launched"], image(torch.float32, 1, 2, 37, 61)
    for scale in (0.73, 1.37, 2.0, 0.1, 1.003):
        program = resized(x, None, mode, False, scale=scale)
        call = launch.bind(host.record_for(program, [x]))
        assert torch.equal(call.fresh(x), expected(program, x))
    assert launch.stats()["makers_launched"] - before >= 4


def test_sizes_that_are_given(asked: Asked) -> None:
    """With every call, before the image."""
    x = image(torch.uint8, 1, 3, 40, 68)
    call = binding.for_any_size(resized(x, (20, 30), **AA), [host.on_cuda(facts(x))], otherwise, 2)
    assert call is not None
    for size in ((21, 33), (15, 25), (21, 33), (50, 70)):
        assert torch.equal(call(*size, x), expected(resized(x, size, **AA), x))
    assert asked.uploads == 3
    assert call(0, 5, x).tolist() == [-1.0]
    with pytest.raises(ValueError, match="sizes and an image"):
        call(5, x)


def test_an_image_that_begins_anywhere(asked: Asked) -> None:
    """It is bound beside one of its size that is aligned."""
    whole = image(torch.float32, 1, 3, 40, 72)
    program = resized(whole[..., 4:], (20, 30), **AA)
    call = call_for(program, whole[..., 4:])
    for first in (4, 3, 4, 3):
        one = whole[..., first : first + 68]
        assert torch.equal(call(one), expected(program, one) if first == 4 else host.run(program, one, aligned=False))
    assert asked.uploads <= 4, "once more at most, for a kernel of its own"


def test_flips_lie_as_their_images(asked: Asked) -> None:
    given = [one.transpose(1, 2) for one in pictures(torch.int16)]
    program = maps_program(torch.int16, arguments.flip_maps(4, (-1,)))
    call = call_for(program, given[0])
    for one in given:
        result = call(one)
        assert torch.equal(result, one.flip(-1))
        assert result.stride() == torch.empty_like(one).stride()


def test_what_a_graph_reads_is_kept(device: Device) -> None:
    """A size's tables that were copied before, and those of a size that is new to the graph."""
    x = image(torch.float32, 1, 3, 40, 68)
    program = resized(x, (20, 30), **AA)
    call, driver = call_for(program, x), device.driver
    call(x)
    assert not driver.waited
    driver.captures = 1
    other = image(torch.float32, 1, 3, 33, 50)
    for one in (x, other):
        assert torch.equal(call(one), expected(program, one))
    driver.captures = 0
    assert set(driver.filled) == {77, OWN_STREAM}, "no table is part of the graph"
    assert set(driver.waited) == {0}
    held = bytes(next(iter(driver.pieces.values())))
    del call
    gc.collect()
    assert not driver.freed
    assert bytes(next(iter(driver.pieces.values()))) == held


def test_another_stream_waits_for_tables(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    x = image(torch.float32, 1, 3, 40, 68)
    program, stream = resized(x, (20, 30), **AA), [77]
    monkeypatch.setitem(torch_private.__dict__, "current_raw_stream", lambda device: stream[0])
    programs.forget()
    call = call_for(program, x)
    right = expected(program, x)
    assert torch.equal(call(x), right)
    assert not device.driver.waited
    stream[0] = 78
    assert torch.equal(call(x), right)
    assert device.driver.waited == [78]


@pytest.mark.parametrize("mode", [AA, NEAREST], ids=["made", "copied"])
def test_memory_is_used_again_by_the_stream_that_had_it(
    mode: dict[str, Any], device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, stream, driver = image(torch.float32, 1, 3, 40, 68), [77], device.driver
    monkeypatch.setitem(torch_private.__dict__, "current_raw_stream", lambda device: stream[0])
    programs.forget()
    driver.run = None
    call = binding.for_any_size(resized(x, (20, 30), **mode), [host.on_cuda(facts(x))], otherwise, 2)
    assert call is not None
    for rows in range(900):
        call(300 + rows, 700, x)
    assert len(driver.pieces) <= 12, "it keeps those of 256 sizes"
    assert not driver.freed
    before, stream[0] = len(driver.pieces), 78
    call(299, 700, x)
    assert len(driver.pieces) == before + 1, "what another stream may still read is not written to"


def test_what_cannot_be_built_is_done_otherwise(device: Device, asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*given: object) -> int:
        raise BuildFailedError("no")

    def is_wrong(*given: object) -> int:
        raise RuntimeError("a mistake of ours")

    x = image(torch.float32, 1, 3, 40, 68)
    program = resized(x, (20, 30), **AA)
    monkeypatch.setattr(loading, "_loaded", fails)
    call = call_for(program, x)
    for _ in range(2):
        assert call(x).tolist() == [-1.0]
    monkeypatch.setattr(loading, "_loaded", is_wrong)
    with pytest.raises(RuntimeError, match="a mistake of ours"):
        call(x)
    monkeypatch.setattr(loading, "_loaded", device.bring)
    assert torch.equal(call(x), expected(program, x))


def test_sizes_that_are_not_for_kernels(asked: Asked) -> None:
    x = image(torch.float32, 1, 3, 40, 68)
    call = call_for(resized(x, (20, 30), **AA), x)
    for wrong in (x[:, :, :0], x[0], x.expand(2, 1, 1, 3, 40, 68)):
        assert call(wrong).tolist() == [-1.0]
    with pytest.raises(ValueError, match="nothing else"):
        call(x, x)


def test_what_is_bound_to_a_size(asked: Asked) -> None:
    x = image(torch.float32, 1, 3, 40, 68)
    program = resized(x, (20, 30), **AA)
    found = launch.bound_of(call_for(program, x), (), x)
    assert found is not None
    assert (found.shape, found.reads) == ((1, 3, 20, 30), 1)
    other = launch.bound_of(launch.OnDevice(0, call_for(program, x)), (), x[:, :, :0])
    assert other is None
    with pytest.raises(ValueError, match="any_size"):
        launcher.bound_of(torch.clone, x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.uint8], ids=str)
def test_programs_that_differ_in_numbers(
    dtype: torch.dtype, asked: Asked, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As pipelines bind one image after another: by requests, without a program."""
    given = [one[0] for one in pictures(dtype)]
    to = AxisMap((Slice(1, 20), Resize(16, "bilinear", antialias=True)))
    like = batches.bind_like(host.record_for(maps_program(dtype, (to, to)), [given[0]]))
    monkeypatch.setattr(batches, "bind_record", None)  # which is for what is bound otherwise
    for start, one in enumerate(given):
        recipes = Recipe(), Recipe()
        for recipe in recipes:
            recipe.slice(start, 19)
            recipe.resize(16 + start, "bilinear", antialias=True)
        maps = tuple(AxisMap(recipe.steps()) for recipe in recipes)
        program = maps_program(dtype, maps)
        record = host.record_for(program, [one])
        call = like(record.image, record.out, None, recipes, False)
        assert torch.equal(call.fresh(one), expected(program, one))
        out = host.empty(*record.out[1:3], dtype)
        call.into(out, one)
        assert torch.equal(out, expected(program, one))


def test_without_a_launcher_calls_are_plain(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    """With one warning, until there is one."""

    def is_missing() -> None:
        raise CompilerMissingError("no compiler here")

    x = image(torch.uint8, 1, 3, 40, 68)
    program, known = resized(x, (20, 30), **AA), (host.on_cuda(facts(x)),)
    monkeypatch.setattr(launcher, "_functions", is_missing)
    monkeypatch.setattr(binding, "_warned", set())
    programs.forget()
    with pytest.warns(NoKernelsWarning, match="no compiler here"):
        call = binding.bind(program, known)
    assert torch.equal(call.fresh(x), plain_torch.run(program, x))
    assert binding.for_any_size(program, known, otherwise) is None
