"""CUDA kernels of warps, compiled for the host and run block by block: by the tests of the CPU's kernels, which say
what is expected of them."""

from __future__ import annotations

import ctypes
import dataclasses
import itertools
import math

import pytest
import torch
from torch import Tensor

from polyphase.calls import binding, plain_torch
from polyphase.calls.bound import Gradients, Needed
from polyphase.cuda import launch, warps
from polyphase.cuda.ways import Way
from polyphase.records.operands import ordered
from polyphase.sampling import formulas
from polyphase.sampling.programs import Program, warp_program
from polyphase.sampling.warps import PADDINGS, Warp
from tests.cpu import test_warp_kernels as cpu
from tests.cpu.test_launch import content
from tests.cpu.test_warp_kernels import laid_out
from tests.cuda import host
from tests.cuda.random_calls import placed
from tests.support.samples import GRID_MODES, LAYOUTS

ON_HOST = "cuda, on the host"


def run(program: Program, *inputs: Tensor) -> Tensor:
    """By threads forwards and backwards, aligned and not: the same bits."""
    got = host.run(program, *inputs)
    for other in (host.run(program, *inputs, backwards=True), host.run(program, *inputs, aligned=False)):
        assert content(got) == content(other)
    return got


def gradients(gradient: Tensor, picture: Tensor, coordinates: Tensor, sampler: Warp, needed: Needed) -> Gradients:
    """Deterministic: the same bits whichever thread is first. And by floats: the same but for the order of sums."""
    given = (gradient, picture, coordinates, sampler, needed)
    found = host.gradients(*given)
    again, by_floats = host.gradients(*given, backwards=True), host.gradients(*given, deterministic=False)
    for one, same, near in zip(found, again, by_floats, strict=True):
        if one is not None and same is not None and near is not None:
            assert content(one) == content(same)
            most = 4e-6 if one.dtype == torch.float32 else 2e-3 if one.dtype == torch.float16 else 1e-13
            largest = float(one.double().nan_to_num(0, 0, 0).abs().max()) if one.numel() else 0
            torch.testing.assert_close(near, one, rtol=most, atol=most * (1 + 10 * largest), equal_nan=True)
    return found


@pytest.fixture(autouse=True)
def on_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """In place of the CPU's kernels."""

    def whole(program: Program, *inputs: Tensor, channels: dict[int, Tensor], tensors: dict[int, Tensor]) -> Tensor:
        return run(program, *inputs, *ordered(program, inputs[0], channels, tensors))

    monkeypatch.setattr(binding, "warp", lambda x, at, sampler: run(warp_program(x.dtype, sampler), x, at))
    monkeypatch.setattr(binding, "warp_gradients", gradients)
    monkeypatch.setattr(binding, "run", whole)


def first_of(*some: object) -> list[object]:
    """Every kernel is compiled: the first of a test's parameters stands for all but in the full run."""
    return [some[0], *(pytest.param(one, marks=pytest.mark.full) for one in some[1:])]


@pytest.mark.parametrize("dtype", first_of(torch.float32, torch.uint8, torch.bfloat16, torch.float64))
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_sums(mode: str, dtype: torch.dtype) -> None:
    for case in cpu.cases(dtype, mode, 2, range(1, 71, 8)):
        cpu.assert_case_right(case)


@pytest.mark.parametrize("dtype", first_of(*cpu.MOVED))
def test_moves(dtype: torch.dtype) -> None:
    for case in cpu.cases(dtype, "nearest", 2, range(1, 71, 12)):
        cpu.assert_case_right(case)


@pytest.mark.parametrize("mode", first_of("bicubic", "bilinear", "nearest"))
def test_volumes(mode: str) -> None:
    for case in cpu.cases(torch.float32, mode, 3, range(1, 71, 12)):
        cpu.assert_case_right(case)


@pytest.mark.parametrize(("mode", "source"), [*itertools.product(GRID_MODES[2], ("grid", "affine"))])
def test_taps_inside_are_as_by_the_rules(mode: str, source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """To the bit: neighbours, without a check, and the taps that padding makes. Where a block takes several steps, the
    positions of a matrix are rounded otherwise."""
    size = (20, 70)
    sampler = Warp(source, mode, "reflection", size=size if source == "affine" else ())
    program = warp_program(torch.float32, sampler)
    case = cpu.Case(torch.float32, (2, 3, 30, 33), "CF", size, sampler, "smooth", "CF", 3)
    for picture in (case.picture(), spoilt(case.picture())):
        got = run(program, picture, case.coordinates())
        assert content(got) == content(host.run(program, picture, case.coordinates(), choose=by_rules))
        with monkeypatch.context() as patched:
            patched.setattr(warps, "MOST_BLOCKS", 1)  # which has all tiles to make, one after another
            assert content(got) == content(host.run(program, picture, case.coordinates()))
        with monkeypatch.context() as patched:
            patched.setattr(warps, "BLOCKS_FOR_STEPS", 1)
            in_steps = host.run(program, picture, case.coordinates())
        if source == "grid":
            assert content(in_steps) == content(got)
        elif bool(picture.isfinite().all()):
            cpu.assert_right(in_steps, picture, case.coordinates(), sampler)


@pytest.mark.parametrize("channels", [3, pytest.param(4, marks=pytest.mark.full)])
@pytest.mark.parametrize("read", ["grid", "fields"])
def test_words_read_in_pairs_are_as_by_the_rules(read: str, channels: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of large images, channels last, by coordinates for every pixel: to the bit, wherever in memory a row begins."""
    monkeypatch.setattr(warps, "FEW_PIXELS", 0)
    size, shape = (20, 70), (2, channels, 30, 33)
    if read == "grid":
        sampler = Warp("grid", "bilinear", "border")
        given = [torch.rand(2, *size, 2, generator=torch.Generator().manual_seed(2)) * 2.2 - 1.1]
    else:
        sampler = Warp("formula", "bilinear", "border", size=size, formula=formulas.displacement(shape[2:], False))
        given = [torch.empty(2, 0), *[laid_out((2, 1, *size), torch.float32, "CF", seed, low=-3.0) for seed in (2, 3)]]
    program = warp_program(torch.float32, sampler)
    for layout in ("CL", "padded"):
        for picture in (laid_out(shape, torch.float32, layout, 1), spoilt(laid_out(shape, torch.float32, layout, 1))):
            for shifted in (False, True):
                moved = placed(picture, "cpu", shifted)
                got = run(program, moved, *given)
                assert content(got) == content(host.run(program, moved, *given, choose=by_rules))


@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize("layout", ["CF", "CL"])
def test_boxes_are_as_by_the_rules(layout: str, padding: str) -> None:
    """To the bit, whether a tile's part of the image is in shared memory, lies across the image's edge or far outside,
    or has no room."""
    size = (40, 70)
    sampler = Warp("affine", "bicubic", padding, size=size)
    program = warp_program(torch.float32, sampler)
    case = cpu.Case(torch.float32, (4, 3, 90, 80), layout, size, sampler, "smooth", "CF", 5)
    turned = [[0.9, -0.3, 0.1], [0.3, 0.9, 0.0]]
    outside = [[1.2, 0.0, 1.9], [0.0, 1.2, -0.4]]
    shrunk = [[2.5, 0.0, 0.2], [0.1, 3.0, 0.0]]  # a box would be too small
    nowhere = [[math.nan, 0.0, 0.0], [0.0, math.inf, 1e30]]
    matrices = torch.tensor([turned, outside, shrunk, nowhere])
    for picture in (case.picture(), spoilt(case.picture())):
        got = run(program, picture, matrices)
        assert content(got) == content(host.run(program, picture, matrices, choose=by_rules))
    record = host.record_for(program, [case.picture(), matrices])
    assert launch.prepared(record, True, host.ARCHITECTURE).cut.shared_bytes > warps.TILE_BYTES, "there is a box"


@pytest.mark.parametrize(("layout", "channels"), [("CF", 3), ("CF", 8), ("CL", 3)])
@pytest.mark.parametrize("read", ["grid", "fields"])
def test_images_that_read_the_same_coordinates(
    read: str, layout: str, channels: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many strips are made of all images before those further down, each is made once: the same bits, as if
    every image had coordinates of its own."""
    batch, size = 3, (70, 40)
    picture = laid_out((batch, channels, 30, 33), torch.float32, layout, 1)
    if read == "grid":
        sampler = Warp("grid", "bilinear", "border")
        shared = [torch.rand(1, *size, 2, generator=torch.Generator().manual_seed(2)) * 2 - 1]
    else:
        sampler = Warp("formula", "bilinear", "border", size=size, formula=formulas.displacement((30, 33), False))
        shared = [laid_out((1, 1, *size), torch.float32, "CF", seed, low=-3.0) for seed in (2, 3)]
    program = warp_program(torch.float32, sampler)

    def given(fields: list[Tensor]) -> list[Tensor]:
        return [picture, *([] if read == "grid" else [torch.empty(batch, 0)]), *fields]

    for few_pixels in (warps.FEW_PIXELS, 0):
        monkeypatch.setattr(warps, "FEW_PIXELS", few_pixels)
        expected = host.run(program, *given([one.repeat(batch, *[1] * (one.dim() - 1)) for one in shared]))
        inputs, groups = given([one.expand(batch, *one.shape[1:]) for one in shared]), set()
        for megabytes in (0, 0.03, 0.06, 0.1, 12):
            monkeypatch.setattr(warps, "BETWEEN_IMAGES", int(megabytes * 2**20))
            call = warps.prepared(host.record_for(program, inputs), True, host.ARCHITECTURE)
            groups.add(call.given["group"][0] / call.given["strips"][0])
            assert content(host.run(program, *inputs)) == content(expected)
        assert min(groups) < 0.3
        assert max(groups) == 1
        assert len(groups) > 2


def turned(degrees: float, scale: float = 1.0) -> list[list[float]]:
    cosine, sine = (scale * one(math.radians(degrees)) for one in (math.cos, math.sin))
    return [[cosine, -sine, 0.1], [sine, cosine, -0.2]]


#: Of images whose pixels lie aslant: in planes, side by side, and as vectors.
ASLANT = [
    ("CF", 3),
    ("CL", 3),
    *(pytest.param(*one, marks=pytest.mark.full) for one in (("CF", 4), ("CL", 4), ("CL", 2))),
]


@pytest.mark.parametrize("dtype", first_of(torch.float32, torch.uint8, torch.float64))
@pytest.mark.parametrize(("layout", "channels"), ASLANT)
@pytest.mark.parametrize("padding", PADDINGS)
def test_pixels_aslant(
    padding: str, layout: str, channels: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However an image is turned, they are all there once: right, and to the bit as by the rules. Of sizes that tiles
    end with, and others."""
    monkeypatch.setattr(warps, "FEW_PIXELS", 0)
    nowhere = [[0.0, 0.0, 0.1], [0.0, 0.0, 0.2]], [[math.nan, 1.0, 0.0], [math.inf, 0.5, 0.0]]
    angles = (0, 1, 20, 44.9, 45, 60, 90, 135, 180, 250, 315)
    matrices = torch.tensor([*map(turned, angles), turned(70, 3.0), *nowhere])
    matrices = matrices.double() if dtype == torch.float64 else matrices
    for size in ((40, 70), (32, 64), (1, 1)):
        sampler = Warp("affine", "bilinear", padding, size=size)
        program = warp_program(dtype, sampler)
        case = cpu.Case(dtype, (len(matrices), channels, 50, 60), layout, size, sampler, "smooth", "CF", 5)
        picture = case.picture()
        record = host.record_for(program, [picture, matrices])
        assert warps.prepared(record, True, host.ARCHITECTURE).way.constants[4] > 0, "aslant"
        got = run(program, picture, matrices)
        assert content(got) == content(host.run(program, picture, matrices, choose=by_rules))
        known = len(angles) + 2  # but for what is no number
        cpu.assert_right(got[:known], picture[:known], matrices[:known], sampler)


@pytest.mark.parametrize("dtype", first_of(torch.float32, torch.uint8, torch.float64))
@pytest.mark.parametrize("layout", first_of("CF", "CL"))
@pytest.mark.parametrize("fill", [(), (7.0, 8.0, 9.0)])
def test_tiles_outside(
    fill: tuple[float, ...], layout: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are filled at once. Several in a row, and single ones; before the image, behind it, above and below, and
    where there is none of it; and of rows that begin anywhere in a sector, so that tiles meet in other columns."""
    monkeypatch.setattr(warps, "FEW_PIXELS", 0)
    places = [(x, y) for x in (-4.0, -1.7, 0.0, 1.7, 4.0) for y in (-4.0, 0.0, 1.7)] + [(1e30, 0.0), (-math.inf, 0.0)]
    small = [[[2.6, -0.5, x], [0.5, 3.0, y]] for x, y in places]
    matrices = torch.tensor(small).to(torch.float64 if dtype == torch.float64 else torch.float32)
    for size in ((40, 203), (17, 97), (16, 160), (3, 31)):
        sampler = Warp("affine", "bilinear", "zeros", size=size, fill=fill)
        program = warp_program(dtype, sampler)
        picture = cpu.Case(dtype, (len(matrices), 3, 50, 60), layout, size, sampler, "smooth", "CF", 5).picture()
        record = host.record_for(program, [picture, matrices])
        assert warps.prepared(record, True, host.ARCHITECTURE).way.constants[4] > 0, "aslant"
        got = run(program, picture, matrices)
        assert content(got) == content(host.run(program, picture, matrices, choose=by_rules))


_WHOLE_TILE = """
#define POLYPHASE_OUTER 1
#define POLYPHASE_VECTORS 0
#define POLYPHASE_TENSORS 0
#define POLYPHASE_NUMBERS 0
#include "polyphase/cuda/warp_slant.h"
using namespace polyphase;
template <class Tile>
int seen_once(const Slant& slant) {
  int seen[Tile::kPixels] = {}, places[Tile::kPixels] = {};
  for (int i = 0; i < Tile::kPixels; ++i) {
    const auto at = Tile::spot(slant, i / 32, i % 32);
    if (at.row < 0 || at.row >= ROWS || at.column < 0 || at.column >= 32) return 1;
    if (seen[at.row * 32 + at.column]++ != 0 || places[Tile::place(at)]++ != 0) return 2;
  }
  return 0;
}
extern "C" int run(float along_x, float along_y) {
  const Slant slant = Slant::of(along_x, along_y);
  return slant.is_steep ? seen_once<SlantedTile<ROWS, true>>(slant) : seen_once<SlantedTile<ROWS, false>>(slant);
}
"""


def test_all_pixels_of_a_tile_aslant() -> None:
    """Each is one thread's, and its output has a place of its own."""
    for shape in (warps.SLANTED, warps.SLANTED_AT_ONCE):
        assert shape.threads // shape.wide * shape.pixels * shape.most_steps == warps.SLANTED_ROWS
    run_tile = host.library(_WHOLE_TILE.replace("ROWS", str(warps.SLANTED_ROWS))).run
    steps = (-math.inf, -3.0, -1.0, -0.7, -1e-9, 0.0, 0.3, 0.999, 1.0, 1e30, math.nan)
    for along_x, along_y in itertools.product(steps, repeat=2):
        assert run_tile(ctypes.c_float(along_x), ctypes.c_float(along_y)) == 0, (along_x, along_y)


def by_rules(case: warps.Case) -> Way:
    way = warps.choose(case)
    affine, far, _, *others = way.constants
    return dataclasses.replace(way, constants=(affine, far, True, *others))


def spoilt(picture: Tensor) -> Tensor:
    picture[:, :, ::5, ::7] = math.nan
    picture[:, :, ::6, ::5] = math.inf
    return picture


@pytest.mark.full
@pytest.mark.parametrize("axes", [2, 3])
def test_settings(axes: int) -> None:
    cpu.test_settings(axes)


@pytest.mark.parametrize("mode", GRID_MODES[2])
def test_special_coordinates(mode: str) -> None:
    cpu.test_special_coordinates(ON_HOST, mode, torch.float32)
    cpu.test_reflections_from_afar(ON_HOST, False, mode)
    cpu.test_identity(ON_HOST, True, mode)
    cpu.test_matrices_that_lead_nowhere(ON_HOST, torch.float32, mode)
    cpu.test_rows_longer_than_a_float_counts(ON_HOST, mode)


@pytest.mark.parametrize("mode", GRID_MODES[2])
def test_outliers(mode: str) -> None:
    cpu.test_outliers(ON_HOST, mode, torch.float32, 0)


def test_settled_positions() -> None:
    cpu.test_settled_positions(ON_HOST, "bilinear", 4)
    cpu.test_positions_near_a_half_in_one_axis_stay(ON_HOST, "bilinear", 4)
    cpu.test_bytes_are_rounded_half_to_even(ON_HOST, 3, "CF")
    cpu.test_bytes_saturate(ON_HOST, "CL")


@pytest.mark.parametrize("name", ["to float, normalised", "blended"])
def test_arithmetic(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(cpu, "LAYOUTS", ["CL"] * len(LAYOUTS))
    cpu.test_arithmetic(monkeypatch, "portable", name, 0)


@pytest.mark.full
@pytest.mark.parametrize("name", cpu.ARITHMETIC)
def test_all_arithmetic(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    for part in (0, 1):
        cpu.test_arithmetic(monkeypatch, "portable", name, part)


# ---- gradients


@pytest.mark.parametrize("dtype", first_of(torch.float32, torch.float64, torch.float16))
@pytest.mark.parametrize("mode", GRID_MODES[2])
def test_gradients(mode: str, dtype: torch.dtype) -> None:
    for case in cpu.gradient_cases(dtype, mode, 2, cpu.WIDTHS[:: 25 if dtype == torch.float32 else 5]):
        cpu.assert_gradients_right(case)


@pytest.mark.full
@pytest.mark.parametrize("mode", GRID_MODES[3])
def test_gradients_of_volumes(mode: str) -> None:
    for case in cpu.gradient_cases(torch.float64, mode, 3):
        cpu.assert_gradients_right(case)


@pytest.mark.full
@pytest.mark.parametrize("axes", [2, 3])
def test_gradients_of_all_settings(axes: int) -> None:
    cpu.test_gradients_of_all_settings(axes)


@pytest.mark.parametrize("mode", first_of("bilinear", "nearest", "bicubic"))
def test_gradients_at_special_coordinates(mode: str) -> None:
    cpu.test_gradients_at_special_coordinates(ON_HOST, mode)


@pytest.mark.full
@pytest.mark.parametrize("needed", [(True, False), (False, True)])
def test_gradients_that_are_not_needed(needed: Needed) -> None:
    cpu.test_gradients_that_are_not_needed(needed)


@pytest.mark.parametrize("source", ["grid", "affine", "formula"])
def test_gradients_of_nothing(source: str) -> None:
    """Of no images, of no channels, of no pixels: all are 0."""
    for shape, out in (((0, 3, 5, 6), (4, 7)), ((2, 0, 5, 6), (4, 7)), ((2, 3, 5, 6), (4, 0)), ((2, 3, 0, 6), (0, 7))):
        formula = formulas.displacement(shape[2:], False) if source == "formula" else None
        sampler = Warp(source, "bilinear", size=() if source == "grid" else out, formula=formula)
        batch = shape[0]
        image = torch.ones(shape)
        at = torch.ones({"grid": (batch, *out, 2), "affine": (batch, 2, 3), "formula": (batch, 0)}[source])
        fields = [torch.ones(batch, 1, *out)] * (2 if formula else 0)
        for deterministic in (True, False):
            gradient = torch.ones(*shape[:2], *out)
            found = host.gradients(gradient, image, at, sampler, (True, True), *fields, deterministic=deterministic)
            for one, of in zip(found, (image, at, *fields), strict=True):
                assert one is not None
                assert torch.equal(one, torch.zeros_like(of))


@pytest.mark.parametrize("dtype", [torch.int16, torch.uint16, torch.int32], ids=str)
def test_integers(dtype: torch.dtype) -> None:
    """Saturated at both ends, settled by the rounding of their coordinates, and next to the plain twin's."""
    limits = torch.iinfo(dtype)
    values = torch.rand(1, 3, 12, 21, generator=torch.Generator().manual_seed(7), dtype=torch.float64)
    picture = (values.round() * (limits.max - limits.min) + limits.min).to(dtype)
    turned = torch.tensor([[[-1.0, 4.371e-08, 0.0], [-4.371e-08, -1.0, 0.0]]])
    theta = torch.tensor([[[0.7, 0.3, 0.1], [-0.3, 0.9, 0.05]]])
    for mode, coordinates in itertools.product(("bilinear", "bicubic"), (torch.float32, torch.float64)):
        upside_down = binding.warp(picture, turned.to(coordinates), Warp("affine", mode, size=(12, 21)))
        if coordinates == torch.float32:  # as it would be with a matrix of float64, which is so near to none
            assert torch.equal(upside_down.long(), picture.long().flip(2, 3))
        sampler = Warp("affine", mode, "reflection", size=(9, 40))
        found = binding.warp(picture, theta.to(coordinates), sampler)
        twin = plain_torch.warp(picture, theta.to(coordinates), sampler, settled=True)
        exact = coordinates == torch.float64 or dtype == torch.int32
        assert (found.double() - twin.double()).abs().max() <= (1 if exact else 2)
        if mode == "bicubic":
            assert (int(found.long().min()), int(found.long().max())) == (limits.min, limits.max)
