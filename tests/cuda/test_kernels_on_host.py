"""CUDA kernels, compiled for the host and run block by block, against the CPU's kernels and the plain twin."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from torch import Tensor

from polyphase import arguments
from polyphase.calls import binding, plain_torch
from polyphase.cuda import launch, ways
from polyphase.cuda.maps import PreparedMaps
from polyphase.records.facts import facts
from polyphase.sampling.axis_maps import AxisMap
from polyphase.sampling.pointwise import Binary, Cast, Channel, Number, Operand, Value
from polyphase.sampling.programs import Axes, Border, Program, maps_program
from polyphase.sampling.steps import Flip, Pad, Resize, Slice
from tests.cuda import host

AA: dict[str, Any] = {"mode": "bilinear", "antialias": True}
CUBIC: dict[str, Any] = {"mode": "bicubic", "antialias": False}
CUBIC_AA: dict[str, Any] = {"mode": "bicubic", "antialias": True}
TOLERANCES = {torch.float32: 3e-6, torch.float64: 1e-14, torch.float16: 2e-3, torch.bfloat16: 2e-2}


def image(dtype: torch.dtype, *shape: int, last: bool = False) -> Tensor:
    values = torch.rand(shape, generator=torch.Generator().manual_seed(7))
    made = (values * (255 if dtype == torch.uint8 else 1)).to(dtype)
    return made.contiguous(memory_format=torch.channels_last) if last else made


def resized(
    x: Tensor,
    size: tuple[int, ...] | None,
    mode: str,
    antialias: bool,
    adjoint_of: tuple[int, ...] = (),
    align_corners: bool | None = None,
    scale: float | None = None,
) -> Program:
    shape = (*x.shape[:2], *(adjoint_of or x.shape[2:]))
    maps = arguments.resize_maps(shape, x.dtype, size, scale, mode, align_corners, None, antialias)
    return maps_program(x.dtype, maps, adjoint_of)


def check(program: Program, *inputs: Tensor) -> str:
    """By threads forwards and backwards, aligned and not: the same bits, and those of the CPU where they are exact."""
    expected = binding.bind(program, tuple(map(facts, inputs))).fresh(*inputs)
    got = host.run(program, *inputs)
    assert got.stride() == expected.stride()
    for other in (host.run(program, *inputs, backwards=True), host.run(program, *inputs, aligned=False)):
        torch.testing.assert_close(other, got, rtol=0, atol=0, equal_nan=True)
    if got.is_floating_point() and not program.moves_only:
        exact = plain_torch.run(program, *inputs).to(got.dtype)  # with the CPU's taps, not quite CUDA's
        most = TOLERANCES[inputs[0].dtype] * (40 if inputs[0].dtype == torch.float32 else 4)
        torch.testing.assert_close(got, exact, rtol=most, atol=most, equal_nan=True)
    else:
        torch.testing.assert_close(got, expected, rtol=0, atol=0, equal_nan=True)
    return host.way_of(program, *inputs)


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ways for large images, on small ones."""
    for name in ("FEW_OUTPUTS", "MANY_THREADS", "FEW_TO_WALK"):
        monkeypatch.setattr(ways, name, 0)


@pytest.mark.parametrize("last", [False, True], ids=["planes", "pixels"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.uint8], ids=str)
def test_small_images(dtype: torch.dtype, last: bool) -> None:
    x = image(dtype, 2, 3, 23, 37, last=last)
    assert check(resized(x, (11, 17), **AA), x) == "Direct"
    assert check(resized(x[..., 1:, 2:], (11, 17), **AA), x[..., 1:, 2:]) == "Direct"


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize(("dtype", "last"), [(torch.float32, False), (torch.uint8, True), (torch.bfloat16, False)])
def test_large_images(dtype: torch.dtype, last: bool) -> None:
    x = image(dtype, 2, 3, 40, 68, last=last)
    few = "ByteWalk" if dtype == torch.uint8 else "Ring"
    assert check(resized(x, (21, 35), **AA), x) == few
    assert check(resized(x, (70, 93), **CUBIC), x) == few
    many = check(resized(x, (4, 5), **CUBIC_AA), x)
    assert many == ("ByteRing" if dtype == torch.uint8 else "Shrink")


@pytest.mark.parametrize("dtype", [torch.int16, torch.uint16, torch.int32], ids=str)
def test_integers(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are rounded and saturated as the CPU's are, but for sums that are close to a tie."""
    limits = torch.iinfo(dtype)
    values = torch.rand(1, 3, 24, 40, generator=torch.Generator().manual_seed(7), dtype=torch.float64)
    pixels = (values.round() * (limits.max - limits.min) + limits.min).to(dtype)
    seen = set()
    for few in (ways.FEW_OUTPUTS, 0):
        monkeypatch.setattr(ways, "FEW_OUTPUTS", few)
        for x in (pixels, pixels.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)):
            for size, mode in (((17, 21), AA), ((40, 60), CUBIC), ((3, 4), CUBIC_AA)):
                program = resized(x, size, **mode)
                got, expected = host.run(program, x), plain_torch.run(program, x)
                assert torch.equal(got, host.run(program, x, backwards=True))
                assert (got.double() - expected.double()).abs().max() <= 1
                seen.add(host.way_of(program, x))
    assert seen >= {"Direct", "Ring", "Shrink"}


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize(("dtype", "last"), [(torch.float32, False), (torch.uint8, True)])
def test_boxes(dtype: torch.dtype, last: bool) -> None:
    x = image(dtype, 2, 3, 40, 68, last=last)
    for mode, antialias in (("bilinear", True), ("bicubic", False), ("lanczos", True), ("nearest-exact", False)):
        box = (3.25, 1.5, 60.75, 39)
        maps = arguments.resize_maps(x.shape, dtype, (23, 17), None, mode, None, None, antialias, box)
        check(maps_program(dtype, maps), x)
        if dtype == torch.float32 and mode == "bilinear":
            check(maps_program(dtype, maps, (40, 68)), image(dtype, 2, 3, 23, 17))


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("channels", [1, 3, *(pytest.param(n, marks=pytest.mark.full) for n in (2, 4))])
@pytest.mark.parametrize("few", ["ByteWalk", "ByteStage"])
def test_bytes(channels: int, few: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows begin anywhere in a word, and end where rows end."""
    monkeypatch.setattr(ways, "FEW_TO_WALK", 0 if few == "ByteWalk" else 1 << 24)
    for width, height in ((37, 9), (40, 9)):
        x = image(torch.uint8, 2, channels, height, width, last=True)
        for size, way in (((6, 19), few), ((17, 55), few), ((3, 4), "ByteRing")):
            assert check(resized(x, size, **AA), x) == way
            assert check(resized(x[..., 1:, 1:-1], size, **AA), x[..., 1:, 1:-1]) == way
    apart = image(torch.uint8, 1, channels, 9, 80, last=True)[..., ::2]
    assert check(resized(apart, (6, 19), **AA), apart) == "Ring"


@pytest.mark.parametrize("ways_of", ["small", "large"])
def test_bytes_in_any_order(ways_of: str, request: pytest.FixtureRequest) -> None:
    """However a target lies, as the layout of a graph asks for, they are summed along the last axis first."""
    if ways_of == "large":
        request.getfixturevalue("large")
    for channels, last, size in itertools.product((1, 3), (False, True), ((7, 40), (30, 9))):
        x = image(torch.uint8, 2, channels, 19, 23, last=last)
        program = resized(x, size, **CUBIC_AA)
        expected = binding.bind(program, (facts(x),)).fresh(x)
        for order in itertools.permutations(range(4)):
            out = torch.empty_permuted(expected.shape, order, dtype=x.dtype)
            assert torch.equal(host.run(program, x, like=out), expected)


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("channels", [1, 3])
def test_bytes_that_are_staged(channels: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over several tiles and groups of rows; turned round; and windows too far apart for that, which threads read
    themselves where sizes vary, and which have another kernel where they do not."""
    monkeypatch.setattr(ways, "FEW_TO_WALK", 1 << 24)
    x = image(torch.uint8, 1, channels, 51, 523, last=True)
    assert check(resized(x, (40, 301), **AA), x) == "ByteStage"
    assert check(resized(x[..., :-1, 3:], (77, 600), **CUBIC), x[..., :-1, 3:]) == "ByteStage"
    steps = resized(x, (40, 301), **AA).sampler
    assert isinstance(steps, Axes)
    turned = maps_program(x.dtype, tuple(AxisMap((*one.steps, Flip())) for one in steps.maps))
    assert check(turned, x) == "ByteStage"
    apart = resized(x, (20, 36), "bilinear", antialias=False)
    assert check(apart, x) == "ByteWalk"
    staged = host.run(apart, x, choose=lambda call: call.way_by("ByteStage", 2, 2))
    assert torch.equal(staged, host.run(apart, x))


@pytest.mark.usefixtures("large")
def test_bytes_of_strips_that_are_too_long() -> None:
    """Rows that are far apart, of which a strip reads few, are walked along; not those of which it reads most."""
    for rows, way in ((32, "Ring"), (1100, "ByteWalk")):
        x = torch.empty_strided((1100, 8), (ways.MOST_BETWEEN_ROWS - 4, 1), dtype=torch.uint8, device="meta")
        assert host.way_of(resized(x[None, None], (rows, 13), "bilinear", antialias=False), x) == way


@pytest.mark.usefixtures("large")
def test_wide_pixels() -> None:
    x = image(torch.float32, 1, 16, 9, 11, last=True)
    assert check(resized(x, (17, 20), **CUBIC), x) == "Ring"


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_whole_numbers_of_times_the_size(dtype: torch.dtype) -> None:
    """Neighbouring columns share what they read, at the edges too."""
    for mode, factor in ((CUBIC, 2), (CUBIC, 4), ({"mode": "bilinear", "antialias": False}, 2)):
        x = image(dtype, 1, 2, 5, 8)
        x[0, 0, 2, 3] = math.inf
        larger = resized(x, (5 * factor, 8 * factor), **mode)
        assert check(larger, x) == "Ring"
        assert launch.prepared(host.record_for(larger, [x]), True, host.ARCHITECTURE).way.constants[4] >= 0
    gradient = image(dtype, 1, 2, 10, 32)
    assert check(resized(gradient, (10, 32), "bilinear", False, adjoint_of=(5, 16)), gradient) == "Ring"


@pytest.mark.usefixtures("large")
def test_adjoints() -> None:
    gradient = image(torch.float32, 2, 3, 21, 35)
    assert check(resized(gradient, (21, 35), **AA, adjoint_of=(40, 68)), gradient) == "Ring"
    padded = maps_program(torch.float32, (AxisMap((Pad(6, 5, "reflect", 0),)),), (24,))
    assert check(padded, gradient) == "General"  # its taps lie apart


def test_long_pieces_of_rows_are_moved() -> None:
    """By a warp at least: what it reads of several rows is less, but as many sectors of memory."""
    x = torch.empty((8, 3, 1234, 1345), device="meta")
    for program in (resized(x, (2345, 2456), "nearest", False), maps_program(x.dtype, arguments.flip_maps(4, (-1,)))):
        call = launch.prepared(host.record_for(program, [x]), True, host.ARCHITECTURE)
        assert isinstance(call, PreparedMaps)
        groups = -(-call.numbers("x", 2)[1] // int(call.way.constants[0]))
        assert 32 <= 1 << call.cut.tile <= call.way.threads
        assert call.cut.tiles << call.cut.tile <= groups * 9 / 8


def test_volumes() -> None:
    x = image(torch.float32, 1, 2, 5, 7, 9)
    assert check(resized(x, (8, 4, 13), "trilinear", False), x) == "General"


MOVES: list[tuple[tuple[AxisMap, ...], float]] = [
    ((AxisMap((Flip(),)),), 0),
    ((AxisMap((Flip(),)), AxisMap(())), 0),
    ((AxisMap((Pad(-1, -2, "constant", 1),)), AxisMap((Pad(-3, -1, "constant", 1),))), 3),
    ((AxisMap((Pad(2, 3, "constant", 1),)), AxisMap((Pad(1, 0, "constant", 1),))), 3),
    ((AxisMap((Pad(2, 3, "reflect", 0),)),), 0),
    ((AxisMap((Pad(2, 3, "reflect", 0),)), AxisMap((Flip(),))), 0),
    ((AxisMap((Flip(),)), AxisMap(()), AxisMap((Slice(1, 9, 2),)), AxisMap(())), 0),
]


@pytest.mark.parametrize("bytes_of", [1, 2, 4, 8, 16])
def test_moved(bytes_of: int) -> None:
    dtype = {1: torch.uint8, 2: torch.int16, 4: torch.float32, 8: torch.int64, 16: torch.complex128}[bytes_of]
    for last, width in itertools.product((False, True), (32, 31)):
        x = image(dtype, 2, 4, 9, width, last=last)
        for maps, border in MOVES:
            assert check(maps_program(dtype, maps, border=border), x) == "Moved"
        assert check(resized(x, (13, 20), "nearest-exact", False), x) == "Moved"


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize(
    ("dtype", "channels"), [(torch.uint8, 1), (torch.uint8, 3), (torch.bfloat16, 1), (torch.float32, 1)]
)
def test_moved_in_strips(dtype: torch.dtype, channels: int) -> None:
    """As large images are: elements of a row that lie in one run are read by words, from anywhere on."""
    for width in (64, 63):
        x = image(dtype, 1, channels, 9, width, last=True)
        for maps, border in MOVES:
            assert check(maps_program(dtype, maps, border=border), x) == "Moved"
            assert check(maps_program(dtype, maps, border=border), x[..., 1:]) == "Moved"


@pytest.mark.usefixtures("large")
def test_inputs_that_are_not_read_spoil_nothing() -> None:
    x = image(torch.float32, 1, 2, 30, 40)
    x[0, 0, 3, 5], x[0, 1, 20, 7], x[0, 1, 9, 30] = math.nan, math.inf, -math.inf
    for size, mode in (((15, 21), AA), ((50, 61), CUBIC), ((3, 4), CUBIC_AA)):
        program = resized(x, size, **mode)
        expected = binding.bind(program, (facts(x),)).fresh(x)
        got = host.run(program, x)
        assert torch.equal(got.isnan(), expected.isnan())
        assert torch.equal(got.isinf(), expected.isinf())


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("last", [False, True], ids=["planes", "pixels"])
def test_arithmetic_and_borders(last: bool) -> None:
    """A letterbox: bytes, resized, normalised per channel, with a border of each kind and a tensor added."""
    x = image(torch.uint8, 2, 3, 20, 30, last=last)
    value = Binary("sub", Binary("div", Cast(Value(), torch.float32), Number(255.0)), Channel(0, torch.float32))
    epilogue = Binary("add", Binary("div", value, Channel(1, torch.float32)), Operand(0, torch.float32))
    rows = AxisMap((Resize(12, "bilinear", True), Pad(2, 1, "constant", 1)))
    columns = AxisMap((Resize(17, "bilinear", True), Flip(), Pad(3, 0, "constant", 2)))
    program = Program(
        torch.uint8, Axes((rows, columns)), epilogue=epilogue, borders=(Border(114.0), Border(0.5, stored=True))
    )
    added = image(torch.float32, 2, 3, 15, 20)
    vectors = torch.tensor([0.4, 0.5, 0.6]), torch.tensor([0.2, 0.3, 0.25])
    inputs = (x, *vectors, added)
    expected = binding.bind(program, tuple(map(facts, inputs))).fresh(*inputs)
    assert torch.equal(host.run(program, *inputs), expected)
    assert torch.equal(host.run(program, *inputs, backwards=True), expected)
