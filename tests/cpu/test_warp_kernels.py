"""The warp kernels of every instruction set against their plain twin: what is only moved bit for bit, sums within their
rounding, gradients against autograd through eager in float64."""

from __future__ import annotations

import itertools
import math
import random
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from polyphase.calls import binding, plain_torch
from polyphase.calls.bound import Gradients
from polyphase.sampling import reference, warps
from polyphase.sampling.pointwise import VALUE, Binary, Cast, Channel, Expression, Number, Operand, clamp, normalise
from polyphase.sampling.programs import Program
from polyphase.sampling.warps import PADDINGS, Warp
from tests.cpu.conftest import Tell, in_a_child
from tests.cpu.test_kernels import dealt, first_or_best, kinds, parts, strides_of
from tests.cpu.test_launch import content
from tests.support import eager
from tests.support.programs import program_for
from tests.support.samples import DTYPES, FLOATS, GRID_MODES, LAYOUTS, PIXELS, image, select, small

MOVED = (torch.uint8, torch.float16, torch.float32, torch.int64, torch.complex128)  # of 1, 2, 4, 8 and 16 bytes
WIDTHS = (*range(1, 71), 31, 32, 33, 63, 64, 65)
CHANNELS = (1, 2, 3, 4, 5, 17, 64, 70)
IMAGE_LAYOUTS = (*LAYOUTS, "one channel", "among others")
GRID_LAYOUTS = ("CF", "components first", "sliced", "every other", "one row", "expanded")
#: Where a grid's coordinates lie.
SPREADS = {"around": (-1.3, 1.3), "inside": (-0.6, 0.6), "outside": (2.5, 4.0), "far around": (-9.0, 9.0)}


pytestmark = pytest.mark.usefixtures("fresh_outputs")


# ---- images, grids and matrices


class Case(NamedTuple):
    """A warp of some image. `spread`: one of SPREADS; or "smooth", an affine grid; or "innermost", where no tap lies
    outside and many taps are the first or last pixels; or "upright", where rows of the output lie along rows of the
    image, up to its last pixels."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    layout: str
    out: tuple[int, ...]
    sampler: Warp
    spread: str
    grid_layout: str
    seed: int

    @property
    def coordinate_dtype(self) -> torch.dtype:
        return self.dtype if self.dtype in FLOATS else torch.float32

    def picture(self) -> Tensor:
        return laid_out(self.shape, self.dtype, self.layout, self.seed)

    def coordinates(self) -> Tensor:
        batch, axes = self.shape[0], len(self.out)
        if self.sampler.source == "affine":
            theta = matrices(batch, axes, self.seed).to(self.coordinate_dtype)
            return theta if self.seed % 2 else theta.mT.contiguous().mT
        if self.spread == "smooth":
            grid = warps.affine_grid(matrices(batch, axes, self.seed), self.out, False).to(self.coordinate_dtype)
            return grid_like(grid, self.grid_layout)
        if self.spread == "innermost":
            return self._innermost()
        if self.spread == "upright":
            return self._upright()
        low, high = SPREADS[self.spread]
        values = image((batch, axes, *self.out), self.coordinate_dtype, seed=self.seed + 1, low=low, high=high)
        return grid_like(values.movedim(1, -1).contiguous(), self.grid_layout)

    def _innermost(self) -> Tensor:
        """Exact for sizes that are powers of two, or one more where corners are aligned. Many lie at the last pixel, or
        a little before it, or a pixel more."""
        before, after = (1, 2) if self.sampler.mode == "bicubic" else (0, 1)
        end = after + (0, 0.125, 1.125)[self.seed // 3 % 3]
        aligned, components = self.sampler.align_corners, []
        for axis, size in enumerate(reversed(self.shape[2:])):
            chance = image((self.shape[0], *self.out), torch.float64, seed=self.seed + axis, low=-2, high=size + 1.0)
            pixels = chance.clamp(before, size - end)
            components.append((2 * pixels + (not aligned)) / (size - aligned) - 1)
        return torch.stack(components, -1).to(self.coordinate_dtype)

    def _upright(self) -> Tensor:
        """Of some, every row goes over to the next row of the image here or there, or has a few pixels from another
        row; and some end before the image does."""
        rows, columns = self.shape[2:]
        chance = random.Random(self.seed)
        last = columns - 1 - chance.choice((0.3, 2.7, 4.6, 6.4))
        step = min(chance.choice((0.5, 0.7, 0.8, 0.9, 1, 1.03)), last / self.out[1])
        slope = chance.choice((0, 0, 0.004, -0.03))
        along = torch.arange(self.out[1], dtype=torch.float64)
        x = last - step * along.flip(0)
        y = torch.linspace(0.2, rows - 1.2, self.out[0], dtype=torch.float64)[:, None] + slope * along
        if chance.random() < 0.2:
            y[:, 7::16] = chance.uniform(0, rows - 1)
        pixels = torch.stack([x.expand(self.out), y.clamp(0, rows - 1)], -1)
        grid = (2 * pixels + 1) / torch.tensor([columns, rows]) - 1
        return grid.expand(self.shape[0], *grid.shape).to(self.coordinate_dtype).contiguous()

    def gradient(self) -> Tensor:
        """Of the output."""
        shape = (*self.shape[:2], *self.out)
        return laid_out(shape, self.dtype, LAYOUTS[self.seed % len(LAYOUTS)], self.seed + 2, low=-1.0)

    def run(self) -> Tensor:
        return binding.warp(self.picture(), self.coordinates(), self.sampler)


def laid_out(shape: tuple[int, ...], dtype: torch.dtype, layout: str, seed: int, low: float = 0.0) -> Tensor:
    """`one channel`: repeated, with a stride of 0. `among others`: interleaved with channels that are not its own.
    `padded`: pixels, in rows with an element more, as some files have them."""
    batch, channels, *spatial = shape
    if layout == "one channel":
        return image((batch, 1, *spatial), dtype, seed=seed, low=low).expand(shape)
    if layout == "among others":
        return image((batch, channels + 2, *spatial), dtype, "CL", seed, low)[:, 1 : channels + 1]
    if layout == "padded":
        *before, height, width = spatial
        rows = image((batch, *before, height, width * channels + 1), dtype, seed=seed, low=low)
        pixels: Tensor = rows[..., :-1].unflatten(-1, (width, channels))
        return pixels.movedim(-1, 1)
    return image(shape, dtype, layout, seed, low)


def grid_like(grid: Tensor, layout: str) -> Tensor:
    """A grid that lies so; of some layouts, with fewer different coordinates."""
    match layout:
        case "components first":
            return grid.movedim(-1, 1).contiguous().movedim(1, -1)
        case "sliced":
            larger = F.pad(grid, (1, 1) * (grid.dim() - 1), value=math.nan)
            return larger[:, 1:-1, 1:-1, 1:-1] if grid.dim() == 4 else larger[:, 1:-1, 1:-1, 1:-1, 1:-1]
        case "every other":
            return torch.stack([grid, torch.full_like(grid, math.nan)], -2).flatten(-3, -2)[..., ::2, :]
        case "one row":
            return grid[:, :1].expand(grid.shape)
        case "expanded":
            return grid[:1].expand(grid.shape)
    return grid


def matrices(batch: int, axes: int, seed: int) -> Tensor:
    """Turned, stretched and moved: most of the output is inside, some of it outside."""
    scale = (0.3, 0.8, 1.4)[seed % 3]
    noise = image((batch, axes, axes + 1), torch.float64, seed=seed + 3, low=-0.4, high=0.4)
    return scale * torch.eye(axes, axes + 1, dtype=torch.float64) + noise


def cases(dtype: torch.dtype, mode: str, axes: int, widths: Sequence[int] = WIDTHS, seed: int = 0) -> Iterator[Case]:
    """Every width, and with it all else by chance."""
    chance = random.Random(f"{dtype} {mode} {axes} {seed}")
    for width in widths:
        channels = chance.choice(CHANNELS if axes == 2 else CHANNELS[:6])
        most = (3, 9, 40)[chance.randrange(3)] if axes == 2 else 7
        shape = (chance.randint(1, 2), channels, *(chance.randint(1, most) for _ in range(axes)))
        out = (*(chance.randint(1, 3) for _ in range(axes - 1)), width)
        affine = chance.random() < 0.3
        sampler = Warp(
            "affine" if affine else "grid",
            mode,
            chance.choice(PADDINGS),
            chance.random() < 0.5,
            out if affine else (),
        )
        spread = chance.choice([*SPREADS, "smooth", "smooth"])
        grid_layout = chance.choice(GRID_LAYOUTS)
        yield Case(
            dtype, shape, chance.choice(IMAGE_LAYOUTS), out, sampler, spread, grid_layout, chance.randrange(1000)
        )


def inner_cases(dtype: torch.dtype, mode: str, axes: int) -> Iterator[Case]:
    """Whole tiles, of which no tap lies outside; and what is left of a row."""
    for number, (channels, layout, out) in enumerate(
        itertools.product((1, 2, 3, 4, 5, 17), ("CF", "CL", "among others", "sliced"), (32, 70))
    ):
        aligned = number % 5 > 2
        size = [(4, 8, 16, 32)[(number + axis) % 4] + aligned for axis in range(axes)]
        sampler = Warp("grid", mode, PADDINGS[number % 3], aligned)
        yield Case(dtype, (1, channels, *size), layout, (*(1,) * (axes - 1), out), sampler, "innermost", "CF", number)


def upright_cases(dtype: torch.dtype, mode: str) -> Iterator[Case]:
    """Images that are neither turned nor shrunk, some enlarged: whole tiles."""
    for number, (channels, layout, size) in enumerate(
        itertools.product((1, 2, 3, 4, 5), ("CF", "CL", "padded", "sliced"), ((2, 75), (3, 75), (4, 75), (4, 9)) * 3)
    ):
        sampler = Warp("grid", mode, PADDINGS[number % 3], False)
        yield Case(dtype, (2, channels, *size), layout, (3, 64), sampler, "upright", "CF", number)


# ---- what is expected


def assert_right(ours: Tensor, picture: Tensor, coordinates: Tensor, sampler: Warp) -> None:
    """Kernels find the positions of a grid as the plain twin does, to the bit; those of a matrix are nearer to the
    exact ones than a grid of its dtype."""
    assert ours.dtype == picture.dtype
    assert ours.is_contiguous()
    if sampler.mode == "nearest":
        return assert_moved(ours, picture, coordinates, sampler)
    positions = torch.float64 if coordinates.dtype == torch.float64 else torch.float32
    affine = sampler.source == "affine"
    wide = coordinates.to(torch.float64 if affine else positions)
    if affine:
        wide = warps.affine_grid(wide, sampler.size, sampler.align_corners)
    exact = warps.sample(picture.to(wide.dtype), wide, sampler.mode, sampler.padding, sampler.align_corners).double()
    largest = max(1.0, float(picture.double().nan_to_num(0, 0, 0).abs().max()) if picture.numel() else 0)
    roundings = 64 + (16 * max(picture.shape[2:]) if affine else 0)
    allowed = torch.full_like(exact, roundings * torch.finfo(positions).eps * largest)
    if picture.dtype == torch.uint8:
        exact, allowed = exact.nan_to_num(0).clamp(0, 255), allowed + 0.5
    elif picture.dtype != positions:
        allowed += torch.finfo(picture.dtype).eps / 2 * exact.abs().nan_to_num(0)
    assert ours.shape == exact.shape
    assert kinds(ours) == kinds(exact)
    apart = ((ours.double() - exact).abs().where(exact.isfinite(), 0) - allowed).max() if ours.numel() else 0
    assert apart <= 0, f"{float(apart)} more than allowed"
    return None


def assert_moved(ours: Tensor, picture: Tensor, coordinates: Tensor, sampler: Warp) -> None:
    """The pixel next to a matrix's position is another one for another rounding where it lies between two."""
    if sampler.source == "grid":
        expected = plain_torch.warp(picture, coordinates, sampler)
        assert content(ours) == content(expected)
        return
    exact = warps.affine_grid(coordinates.double(), sampler.size, sampler.align_corners)
    candidates = [
        warps.sample(picture, exact + torch.tensor(shift).double(), "nearest", sampler.padding, sampler.align_corners)
        for shift in itertools.product((-1e-5, 1e-5), repeat=exact.shape[-1])
    ]
    assert bool(torch.stack([same(ours, one) for one in candidates]).any(0).all())
    certain = torch.stack([same(one, candidates[0]) for one in candidates]).all(0)
    assert bool(same(ours, candidates[0])[certain].all())


def same(a: Tensor, b: Tensor) -> Tensor:
    return (a == b) | ((a != a) & (b != b))


# ---- widths, channels, layouts


def assert_case_right(case: Case) -> None:
    picture, coordinates = case.picture(), case.coordinates()
    try:
        assert_right(binding.warp(picture, coordinates, case.sampler), picture, coordinates, case.sampler)
    except AssertionError as error:
        raise AssertionError(f"{case}: {error}") from error


@parts
@pytest.mark.parametrize("dtype", PIXELS)
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_sums(instruction_set: str, mode: str, dtype: torch.dtype, part: int) -> None:
    for case in dealt(cases(dtype, mode, 2), part, PIXELS.index(dtype)):
        assert_case_right(case)


@parts
@pytest.mark.parametrize("dtype", MOVED)
def test_moves(instruction_set: str, dtype: torch.dtype, part: int) -> None:
    for case in dealt(cases(dtype, "nearest", 2), part, MOVED.index(dtype)):
        assert_case_right(case)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32, torch.float64])
@pytest.mark.parametrize("mode", GRID_MODES[3])
def test_volumes(instruction_set: str, mode: str, dtype: torch.dtype) -> None:
    for case in cases(dtype, mode, 3, WIDTHS[::4]):
        assert_case_right(case)


@pytest.mark.full
@pytest.mark.parametrize("dtype", PIXELS)
@pytest.mark.parametrize(("axes", "mode"), [(axes, mode) for axes in (2, 3) for mode in GRID_MODES[axes]])
def test_many_cases(instruction_set: str, axes: int, mode: str, dtype: torch.dtype) -> None:
    for seed in range(1, 9):
        for case in cases(dtype, mode, axes, seed=seed):
            assert_case_right(case)


@pytest.mark.parametrize("mode", GRID_MODES[2])
def test_every_layout_and_number_of_channels(instruction_set: str, mode: str) -> None:
    """A tile and a little more, of which some lies outside."""
    paddings = itertools.cycle(PADDINGS)
    for seed, (channels, layout, dtype) in enumerate(
        itertools.product(CHANNELS, IMAGE_LAYOUTS, (torch.float32, torch.uint8))
    ):
        sampler = Warp("grid", mode, next(paddings), seed % 5 < 2)
        grid_layout = GRID_LAYOUTS[seed % 5]
        assert_case_right(Case(dtype, (2, channels, 11, 13), layout, (2, 37), sampler, "smooth", grid_layout, seed))


@parts
@pytest.mark.parametrize("dtype", PIXELS)
@pytest.mark.parametrize("mode", GRID_MODES[2])
def test_tiles_inside(instruction_set: str, mode: str, dtype: torch.dtype, part: int) -> None:
    """With no tap outside, in small images and large."""
    for case in dealt(inner_cases(dtype, mode, 2), part, PIXELS.index(dtype)):
        assert_case_right(case)


@pytest.mark.parametrize("dtype", [torch.float32, torch.uint8])
def test_upright(instruction_set: str, dtype: torch.dtype) -> None:
    """Taps that are picked out of a row's window are the same as those read one by one, as they are backwards: the same
    tiles are then mirrored, and the bits are the same."""
    for case in upright_cases(dtype, "bilinear"):
        assert_case_right(case)
        picture, grid = case.picture(), case.coordinates()
        ours, backwards = (binding.warp(picture, one, case.sampler) for one in (grid, grid.flip(2)))
        assert torch.equal(ours, backwards.flip(3)), case


@pytest.mark.parametrize("layout", ["CF", "CL"])
def test_upright_beside_what_is_no_number(instruction_set: str, layout: str) -> None:
    """Taps of weight 0 change nothing, whatever they are."""
    picture = image((1, 3, 5, 40), torch.float32, layout)
    picture[..., 2, 20], picture[..., 3, 21] = math.nan, math.inf
    sampler = Warp("grid", "bilinear", "zeros", False)
    for x, y in itertools.product((0, 0.5), repeat=2):
        pixels = torch.stack(torch.meshgrid(torch.arange(32.0) + x, torch.arange(4.0) + y, indexing="xy"), -1)
        grid = ((2 * pixels + 1) / torch.tensor([40.0, 5.0]) - 1)[None]
        assert_right(binding.warp(picture, grid, sampler), picture, grid, sampler)


@pytest.mark.parametrize("layout", ["CF", "CL"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.uint8])
def test_rows_do_not_depend_on_each_other(instruction_set: str, dtype: torch.dtype, layout: str) -> None:
    """What tiles before had to read, nothing or borders or pixels, changes no bit of those after them."""
    picture = image((1, 3, 40, 90), dtype, layout)
    for scale, padding in itertools.product((0.9, 2.5), PADDINGS):
        theta = scale * torch.tensor([[[0.8, -0.6, 0.01], [0.6, 0.8, -0.2]]])
        grid = warps.affine_grid(theta, (35, 192), False)  # whole tiles
        sampler = Warp("grid", "bilinear", padding, False)
        whole = binding.warp(picture, grid, sampler)
        for y in range(35):
            alone = binding.warp(picture, grid[:, y : y + 1], sampler)
            assert torch.equal(whole[:, :, y : y + 1], alone), (scale, padding, y)


@pytest.mark.parametrize("dtype", DTYPES)
def test_moves_of_every_dtype(dtype: torch.dtype) -> None:
    for layout, padding in itertools.product(("CF", "CL", "transposed"), PADDINGS):
        case = Case(dtype, (2, 3, 6, 7), layout, (3, 40), Warp("grid", "nearest", padding), "around", "CF", 5)
        assert_case_right(case._replace(dtype=dtype))


@pytest.mark.parametrize("axes", [2, 3])
def test_settings(axes: int) -> None:
    """All modes, paddings and alignments, by grids and by matrices."""
    shape, out = ((2, 3, 9, 7), (4, 37)) if axes == 2 else ((2, 3, 5, 6, 4), (2, 3, 33))
    for mode, padding, aligned, size, dtype in itertools.product(
        GRID_MODES[axes], PADDINGS, (False, True), ((), out), (torch.float32, torch.uint8)
    ):
        sampler = Warp("affine" if size else "grid", mode, padding, aligned, size)
        for seed, layout in enumerate(("CF", "CL")):
            assert_case_right(Case(dtype, shape, layout, out, sampler, "around", "CF", seed))


@pytest.mark.parametrize(
    ("image_dtype", "dtype"),
    [(torch.uint8, torch.float64), (torch.float16, torch.float32), (torch.bfloat16, torch.float32)],
)
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_coordinates_of_another_dtype(mode: str, image_dtype: torch.dtype, dtype: torch.dtype) -> None:
    """Weights, and sums, are as precise as the coordinates; half precision is widened."""
    for case in cases(image_dtype, mode, 2, WIDTHS[::3]):
        coordinates = case.coordinates().to(dtype)
        ours = binding.warp(case.picture(), coordinates, case.sampler)
        assert_right(ours, case.picture(), coordinates, case.sampler)


def test_samples(instruction_set: str) -> None:
    for sample in select(small(), operator="grid_sample"):
        picture, grid = sample.args
        sampler = program_for(sample).sampler
        assert isinstance(sampler, Warp)
        assert_right(binding.warp(picture, grid, sampler), picture, grid, sampler)


@pytest.mark.parametrize("mode", GRID_MODES[2])
def test_rows_longer_than_a_float_counts(instruction_set: str, mode: str) -> None:
    """The last pixel's number would be rounded to one behind it, which is not the image's."""
    width = 2**24 + 4
    memory = torch.zeros(width + 1, dtype=torch.uint8)
    memory[-1] = 77
    grid = torch.tensor([1.0, 0.0]).expand(1, 1, 40, 2)
    for padding in PADDINGS:
        sampler = Warp("grid", mode, padding, True)
        assert not binding.warp(memory[:-1].view(1, 1, 1, width), grid, sampler).any()


@pytest.mark.parametrize("source", ["grid", "affine"])
def test_empty_outputs(source: str) -> None:
    for shape, out in [((0, 3, 4, 5), (2, 3)), ((2, 0, 4, 5), (2, 3)), ((2, 3, 4, 5), (0, 3)), ((1, 1, 0, 5), (2, 0))]:
        sampler = Warp(source, size=out if source == "affine" else ())
        coordinates = torch.zeros(shape[0], 2, 3) if source == "affine" else torch.zeros(shape[0], *out, 2)
        picture = torch.zeros(shape)
        ours = binding.warp(picture, coordinates, sampler)
        assert ours.shape == (*shape[:2], *out)
        of_image, of_coordinates = binding.warp_gradients(ours, picture, coordinates, sampler, (True, True))
        for one, like in ((of_image, picture), (of_coordinates, coordinates)):
            assert one is not None
            assert torch.equal(one, torch.zeros_like(like))


# ---- coordinates at the edge


def halves(size: int, aligned: bool) -> list[float]:
    """Coordinates at every pixel and between pixels, also a little outside."""
    span = max(size - 1, 1) if aligned else size
    return [(half + (0 if aligned else 1)) / span - 1 for half in range(-4, 2 * size + 4)]


def special(size: int, aligned: bool) -> list[float]:
    """Also at both ends of the image and a little beside them, and far away."""
    return [*halves(size, aligned), -1, 1, -1.0000001, 0.9999999, 0, -0.0, 1e-40, 5.0, -7.3, 1e5]


BEYOND = [1e10, -1e10, 3e38, math.inf, -math.inf, math.nan]


def grid_of(x: Sequence[float], y: Sequence[float], dtype: torch.dtype) -> Tensor:
    """Every x with every y."""
    return (
        torch.cartesian_prod(torch.tensor(y, dtype=dtype), torch.tensor(x, dtype=dtype))
        .flip(1)
        .reshape(1, len(y), len(x), 2)
    )


EDGE_DTYPES = (torch.float32, torch.uint8, torch.float64)


@pytest.mark.parametrize("dtype", EDGE_DTYPES)
@pytest.mark.parametrize("mode", GRID_MODES[2])
def test_special_coordinates(instruction_set: str, mode: str, dtype: torch.dtype) -> None:
    """Powers of two among the sizes, at which coordinates and weights are exact."""
    coordinate_dtype = torch.float64 if dtype == torch.float64 else torch.float32
    for padding, aligned, (height, width), layout in itertools.product(
        PADDINGS, (False, True), ((1, 1), (4, 8), (3, 5), (2, 1)), ("CF", "CL")
    ):
        picture = image((1, 3, height, width), dtype, layout, low=0.25)
        beyond = [] if padding == "reflection" else BEYOND
        grid = grid_of(special(width, aligned) + beyond, special(height, aligned) + beyond, coordinate_dtype)
        sampler = Warp("grid", mode, padding, aligned)
        assert_right(binding.warp(picture, grid, sampler), picture, grid, sampler)


@pytest.mark.parametrize("mode", GRID_MODES[2])
@pytest.mark.parametrize("aligned", [False, True])
def test_reflections_from_afar(instruction_set: str, aligned: bool, mode: str) -> None:
    """Which pixel is a matter of rounding; that it is one of the image's is not."""
    picture = image((1, 3, 4, 7), torch.float32, low=0.25)
    ours = binding.warp(picture, grid_of(BEYOND, BEYOND, torch.float32), Warp("grid", mode, "reflection", aligned))
    if mode == "bicubic":  # whose weights are no numbers where positions are none, or too large to be any
        ours = ours[..., :2, :2]
    assert bool(((ours >= picture.min()) & (ours <= picture.max())).all())


@pytest.mark.parametrize("mode", GRID_MODES[3])
def test_special_coordinates_of_volumes(instruction_set: str, mode: str) -> None:
    picture = image((1, 2, 2, 4, 3), torch.float32, low=0.25)
    for padding, aligned in itertools.product(PADDINGS, (False, True)):
        values = [-1.0, 1.0, 0.0, -0.5, 0.25, 1e-40, 1.5]
        values += [] if padding == "reflection" else [1e10, math.inf, math.nan]
        grid = torch.cartesian_prod(*[torch.tensor(values)] * 3).reshape(1, *[len(values)] * 3, 3)
        sampler = Warp("grid", mode, padding, aligned)
        assert_right(binding.warp(picture, grid, sampler), picture, grid, sampler)


@pytest.mark.parametrize("mode", GRID_MODES[2])
@pytest.mark.parametrize("aligned", [False, True])
def test_identity(instruction_set: str, aligned: bool, mode: str) -> None:
    """A matrix that leaves everything where it is. Sizes are such that positions are whole numbers to the bit."""
    size = (5, 65) if aligned else (4, 64)
    for dtype, layout, channels in itertools.product((torch.float32, torch.uint8), ("CF", "CL"), (1, 3, 17)):
        picture = image((2, channels, *size), dtype, layout)
        theta = torch.eye(2, 3).expand(2, 2, 3)
        ours = binding.warp(picture, theta, Warp("affine", mode, "zeros", aligned, size))
        assert torch.equal(ours, picture)


@pytest.mark.parametrize("mode", GRID_MODES[2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.uint8])
def test_matrices_that_lead_nowhere(instruction_set: str, dtype: torch.dtype, mode: str) -> None:
    """All outside: zeros, or the border. No numbers at all: whatever, without a fault."""
    for layout, padding in itertools.product(("CF", "CL"), PADDINGS):
        picture = image((1, 3, 5, 7), dtype, layout, low=0.25)
        sampler = Warp("affine", mode, padding, False, (3, 40))
        away = torch.tensor([[[0.1, 0.0, 9.0], [0.0, 0.1, -9.0]]])
        assert_right(binding.warp(picture, away, sampler), picture, away, sampler)
        if padding == "zeros":
            assert not binding.warp(picture, away, sampler).any()
        for value, place in itertools.product((math.nan, math.inf, -math.inf, 3e38, 1e-45), range(6)):
            theta = torch.eye(2, 3).flatten().index_fill(0, torch.tensor([place]), value).reshape(1, 2, 3)
            ours = binding.warp(picture, theta, sampler)
            if mode == "nearest" and padding == "zeros" and math.isnan(value) and dtype == torch.float32:
                assert bool(ours.isfinite().all())
    if dtype == torch.float32:
        theta = torch.full((1, 2, 3), math.nan)
        assert not binding.warp(picture, theta, Warp("affine", "nearest", size=(3, 40))).any()


# ---- bytes


@pytest.mark.parametrize("layout", ["CF", "CL"])
@pytest.mark.parametrize("channels", [1, 3, 17])
def test_bytes_are_rounded_half_to_even(instruction_set: str, channels: int, layout: str) -> None:
    """Half way between 0 and n: n / 2, exactly."""
    row = torch.arange(128, dtype=torch.uint8)
    picture = torch.stack([torch.zeros_like(row), row], -1).flatten().expand(1, channels, 2, 256)
    picture = picture.contiguous(memory_format=torch.channels_last if layout == "CL" else torch.contiguous_format)
    x = (2 * (torch.arange(128) * 2 + 0.5) + 1) / 256 - 1
    grid = torch.stack([x, torch.zeros_like(x)], -1).reshape(1, 1, 128, 2)
    ours = binding.warp(picture, grid, Warp("grid", "bilinear"))
    assert torch.equal(ours, torch.round(row / 2).to(torch.uint8).expand(1, channels, 1, 128))


@pytest.mark.parametrize("layout", ["CF", "CL"])
def test_bytes_saturate(instruction_set: str, layout: str) -> None:
    """Cubic weights overshoot at an edge, on both sides of it."""
    step = torch.tensor([0, 0, 0, 255, 255, 255], dtype=torch.uint8).expand(1, 3, 4, 6)
    picture = step.contiguous(memory_format=torch.channels_last if layout == "CL" else torch.contiguous_format)
    sampler = Warp("affine", "bicubic", "border", size=(4, 64))
    theta = torch.eye(2, 3)[None]
    ours = binding.warp(picture, theta, sampler)
    assert_right(ours, picture, theta, sampler)
    exact = warps.sample(
        picture.double(), warps.affine_grid(theta.double(), (4, 64), False), "bicubic", "border", False
    )
    assert float(exact.min()) < -5
    assert float(exact.max()) > 260
    assert bool((ours[exact < 0] == 0).all())
    assert bool((ours[exact > 255] == 255).all())


# ---- pixels that are no numbers


def with_outliers(picture: Tensor, seed: int) -> Tensor:
    """In place: no numbers in the first pixel, and in a few others."""
    chance = random.Random(seed)
    for value in (math.nan, math.inf, -math.inf, math.inf)[: 1 + seed % 4]:
        place = [chance.randrange(size) for size in picture.shape]
        picture[tuple(place)] = value
    picture.movedim((0, 1), (-2, -1))[(0,) * (picture.dim() - 2)] = math.nan if seed % 2 else -math.inf
    return picture


@parts
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64])
@pytest.mark.parametrize("mode", GRID_MODES[2])
def test_outliers(instruction_set: str, mode: str, dtype: torch.dtype, part: int) -> None:
    """They spread as far as in the plain twin: a tap of weight 0 reads nothing. At these sizes weights are exact."""
    layouts = ("CF", "CL", "sliced", "among others", "transposed")
    every = itertools.product(layouts, PADDINGS, (False, True), (1, 3, 17))
    for seed, (layout, padding, aligned, channels) in dealt(enumerate(every), part):
        height, width = (5, 9) if aligned else (4, 8)
        picture = with_outliers(laid_out((1, channels, height, width), dtype, layout, seed), seed)
        grid = grid_of(halves(width, aligned) * 2, halves(height, aligned), dtype)
        sampler = Warp("grid", mode, padding, aligned)
        ours = binding.warp(picture, grid, sampler)
        expected = plain_torch.warp(picture, grid, sampler, settled=True)
        assert kinds(ours) == kinds(expected), (layout, padding, aligned, channels)


@pytest.mark.parametrize(("mode", "roundings"), [("bilinear", 4), ("bicubic", 32)])
def test_settled_positions(instruction_set: str, mode: str, roundings: int) -> None:
    """A few units of a coordinate's last place from a half pixel: settled where they are in the plain twin."""
    units = torch.finfo(torch.float32).eps / 2
    for (layout, channels), (height, width) in itertools.product((("CF", 1), ("CL", 3)), ((5, 37), (6, 21))):
        picture = laid_out((1, channels, height, width), torch.uint8, layout, width).float()
        x = (torch.arange(2 * width).double().add(1) / width - 1).float()
        y = (torch.arange(2 * height).double().add(1) / height - 1).float()
        by = torch.arange(-6, 7)[:, None] * units
        grid = grid_of((x + by).flatten().tolist(), y.tolist(), torch.float32)
        ours = binding.warp(picture, grid, Warp("grid", mode))
        twin = plain_torch.warp(picture, grid, Warp("grid", mode), settled=True)
        torch.testing.assert_close(ours, twin, rtol=0, atol=255 * roundings * units)
        exact = ours[..., 6 * 2 * width : 7 * 2 * width] * 64**2  # of cubic weights at halves, 32 is the denominator
        assert bool((exact == exact.round()).all())


@pytest.mark.parametrize(("mode", "roundings"), [("bilinear", 4), ("bicubic", 32)])
def test_positions_near_a_half_in_one_axis_stay(instruction_set: str, mode: str, roundings: int) -> None:
    """An arbitrary grid has many such, by chance. Columns are 0 and 255 in turn, so that settled ones would show."""
    units = torch.finfo(torch.float32).eps / 2
    for layout, channels in (("CF", 1), ("CL", 3)):
        picture = laid_out((1, channels, 6, 37), torch.float32, layout, 1).zero_()
        picture[..., ::2] = 255
        x = (torch.arange(2 * 37).double().add(1) / 37 - 1).float() - 3 * units
        grid = grid_of(x.tolist(), [-0.513, 0.1234, 0.777], torch.float32)
        ours = binding.warp(picture, grid, Warp("grid", mode))
        twin = plain_torch.warp(picture, grid, Warp("grid", mode))
        torch.testing.assert_close(ours, twin, rtol=0, atol=255 * roundings * units)


@pytest.mark.parametrize("mode", GRID_MODES[3])
def test_outliers_in_volumes(instruction_set: str, mode: str) -> None:
    for seed, (padding, channels, layout) in enumerate(itertools.product(PADDINGS, (1, 3, 17), ("CF", "CL"))):
        picture = with_outliers(laid_out((1, channels, 3, 4, 5), torch.float32, layout, seed), seed)
        grid = torch.cartesian_prod(*[torch.tensor([-1.2, -1.0, -0.25, 0.0, 0.5, 1.0])] * 3).reshape(1, 6, 6, 6, 3)
        sampler = Warp("grid", mode, padding)
        ours, expected = binding.warp(picture, grid, sampler), plain_torch.warp(picture, grid, sampler, settled=True)
        assert kinds(ours) == kinds(expected)


@pytest.mark.parametrize("mode", GRID_MODES[2])
def test_nothing_of_the_first_pixel_outside(instruction_set: str, mode: str) -> None:
    """Where taps outside read something, it is the first pixel, which is NaN."""
    for dtype, layout, channels, width in itertools.product(
        (torch.float32, torch.float64, torch.float16), ("CF", "CL", "transposed"), (1, 3, 4, 17), (5, 32, 40)
    ):
        picture = image((1, channels, 6, 7), dtype, layout)
        picture[..., 0, 0] = math.nan
        grid = torch.full((1, 2, width, 2), 3.0).to(dtype)
        assert not binding.warp(picture, grid, Warp("grid", mode)).any()
        grid[..., 1::2, :] = 0.3  # some inside
        assert not binding.warp(picture, grid, Warp("grid", mode))[..., ::2].any()


# ---- gradients


def eager_gradients(case: Case, needed: tuple[bool, bool] = (True, True)) -> Gradients:
    """Through eager, in float64."""
    picture, coordinates = case.picture().double().clone(), case.coordinates().double().clone()
    inputs = [one.requires_grad_() for one, need in zip((picture, coordinates), needed, strict=True) if need]
    grid, sampler = coordinates, case.sampler
    if sampler.source == "affine":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that corners were once aligned
            grid = F.affine_grid(coordinates, [*case.shape[:2], *case.out], align_corners=sampler.align_corners)
    out = eager.grid_sample(picture, grid, sampler.mode, sampler.padding, sampler.align_corners)
    found = list(torch.autograd.grad(out, inputs, case.gradient().double(), materialize_grads=True))
    return found.pop(0) if needed[0] else None, found.pop(0) if needed[1] else None


def our_gradients(case: Case, needed: tuple[bool, bool] = (True, True)) -> Gradients:
    return binding.warp_gradients(case.gradient(), case.picture(), case.coordinates(), case.sampler, needed)


def assert_gradients_right(case: Case, needed: tuple[bool, bool] = (True, True)) -> None:
    for ours, expected, like in zip(
        our_gradients(case, needed), eager_gradients(case, needed), (case.picture(), case.coordinates()), strict=True
    ):
        assert (ours is None) == (expected is None)
        if ours is None or expected is None:
            continue
        assert ours.dtype == like.dtype
        assert ours.shape == like.shape
        allowed = torch.finfo(ours.dtype).eps * expected.abs() + 1000 * torch.finfo(
            torch.float64 if case.dtype == torch.float64 else torch.float32
        ).eps * (1 + float(expected.abs().max()))
        apart = float(((ours.double() - expected).abs() - allowed).max())
        assert apart <= 0, f"{case}: {apart} more than allowed {float(allowed.max())}"


def gradient_cases(dtype: torch.dtype, mode: str, axes: int, widths: Sequence[int] = WIDTHS[::5]) -> Iterator[Case]:
    """Odd sizes: half precision has coordinates exactly at the pixels of others, where slopes jump."""
    for case in cases(dtype, mode, axes, widths):
        shape = (*case.shape[:2], *(size + (size % 2 == 0) for size in case.shape[2:]))
        yield case._replace(shape=shape, spread="around" if case.spread == "far around" else case.spread)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16])
@pytest.mark.parametrize("mode", GRID_MODES[2])
def test_gradients(instruction_set: str, mode: str, dtype: torch.dtype) -> None:
    for case in gradient_cases(dtype, mode, 2):
        assert_gradients_right(case)


@pytest.mark.parametrize("mode", GRID_MODES[3])
def test_gradients_of_volumes(instruction_set: str, mode: str) -> None:
    for case in gradient_cases(torch.float64, mode, 3):
        assert_gradients_right(case)


@pytest.mark.full
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(("axes", "mode"), [(axes, mode) for axes in (2, 3) for mode in GRID_MODES[axes]])
def test_gradients_of_many_cases(instruction_set: str, axes: int, mode: str, dtype: torch.dtype) -> None:
    for case in gradient_cases(dtype, mode, axes, WIDTHS):
        assert_gradients_right(case)


@pytest.mark.parametrize("axes", [2, 3])
def test_gradients_of_all_settings(axes: int) -> None:
    shape, out = ((2, 3, 9, 7), (4, 37)) if axes == 2 else ((2, 3, 5, 6, 4), (2, 3, 33))
    for mode, padding, aligned, size in itertools.product(GRID_MODES[axes], PADDINGS, (False, True), ((), out)):
        sampler = Warp("affine" if size else "grid", mode, padding, aligned, size)
        for seed, layout in enumerate(("CF", "CL", "one channel")):
            assert_gradients_right(Case(torch.float64, shape, layout, out, sampler, "around", "CF", seed))


@pytest.mark.parametrize("needed", [(True, False), (False, True), (False, False)])
def test_gradients_that_are_not_needed(needed: tuple[bool, bool]) -> None:
    for source, mode in itertools.product(("grid", "affine"), GRID_MODES[2]):
        sampler = Warp(source, mode, size=(3, 40) if source == "affine" else ())
        case = Case(torch.float32, (2, 3, 9, 7), "CF", (3, 40), sampler, "around", "CF", 1)
        whole, part = our_gradients(case), our_gradients(case, needed)
        for one, other, need in zip(whole, part, needed, strict=True):
            assert one is not None
            assert other is None if not need else other is not None and content(one) == content(other)


def test_the_nearest_pixel_has_no_slope(instruction_set: str) -> None:
    for case in gradient_cases(torch.float32, "nearest", 2):
        of_coordinates = our_gradients(case)[1]
        assert of_coordinates is not None
        assert not of_coordinates.any()


@pytest.mark.parametrize("layout", ["CF", "CL", "transposed", "sliced", "expanded"])
def test_the_gradient_is_contiguous_as_eagers_is(layout: str) -> None:
    case = Case(torch.float32, (2, 3, 9, 7), layout, (3, 40), Warp("grid"), "around", "CF", 1)
    of_image = our_gradients(case)[0]
    assert of_image is not None
    assert of_image.is_contiguous()


@pytest.mark.parametrize("mode", GRID_MODES[2])
def test_gradients_at_special_coordinates(instruction_set: str, mode: str) -> None:
    """At pixels, where eager has slopes of its own choice; and beyond, where nothing is added anywhere, and the other
    pixels' gradients are what they would be."""
    for padding, aligned, layout in itertools.product(PADDINGS, (False, True), ("CF", "CL")):
        picture = image((1, 3, 4, 8), torch.float32, layout, low=0.25)
        sampler = Warp("grid", mode, padding, aligned)
        finite = grid_of(special(8, aligned), special(4, aligned), torch.float32)
        gradient = image((1, 3, *finite.shape[1:3]), torch.float32, seed=1)
        ours = binding.warp_gradients(gradient, picture, finite, sampler, (True, True))
        expected = plain_torch.warp_gradients(gradient, picture, finite, sampler, (True, True))
        assert ours[0] is not None
        torch.testing.assert_close(ours[0], expected[0], rtol=1e-4, atol=1e-4)
        beyond = grid_of([*BEYOND, 0.3], BEYOND, torch.float32)
        more = torch.cat([finite.flatten(1, 2), beyond.flatten(1, 2)], 1)[:, None]
        wider = torch.cat([gradient.flatten(2), torch.ones(1, 3, beyond[..., 0].numel())], -1)[:, :, None]
        again = binding.warp_gradients(wider, picture, more, sampler, (True, True))
        assert again[0] is not None
        assert again[1] is not None
        assert ours[1] is not None
        assert content(again[1][:, :, : ours[1][..., 0].numel()].contiguous()) == content(ours[1].contiguous())
        assert bool(again[0].isfinite().all())
        if padding == "zeros":
            assert content(again[0]) == content(ours[0])


DETERMINED = [
    Case(
        dtype,
        shape,
        layout,
        out,
        Warp(source, mode, "border", size=out if source == "affine" else ()),
        "around",
        "CF",
        3,
    )
    for dtype in (torch.float32, torch.float16)
    for mode in GRID_MODES[2]
    for source, layout in (("grid", "CF"), ("grid", "CL"), ("affine", "CF"))
    for shape, out in (((1, 3, 9, 9), (160, 160)), ((3, 5, 30, 30), (70, 95)))
]


@pytest.mark.parametrize("case", DETERMINED, ids=str)
def test_gradients_are_the_same_bits_every_time(case: Case) -> None:
    """However many threads there are; many outputs add to one pixel."""
    seen = set()
    for threads in (1, 2, 1, 2, 5, 2, 2, 3):
        torch.set_num_threads(threads)
        seen.add(tuple(content(one) for one in our_gradients(case) if one is not None))
    assert len(seen) == 1


# ---- arithmetic before and after

SCALED = Binary("div", Cast(VALUE, torch.float32), Number(255))
ARITHMETIC: dict[str, tuple[torch.dtype, str, Expression, Expression]] = {
    "to float, normalised": (torch.uint8, "bilinear", SCALED, normalise(VALUE)),
    "to float, cubic, clamped": (torch.uint8, "bicubic", SCALED, clamp(VALUE, 0.25, 0.75)),
    "nearest, normalised": (torch.uint8, "nearest", VALUE, normalise(SCALED)),
    "quantised, normalised": (torch.uint8, "bilinear", VALUE, normalise(SCALED)),
    "normalised before": (torch.float32, "bilinear", normalise(VALUE), clamp(VALUE, -1, 1)),
    "half, normalised": (torch.float16, "bilinear", VALUE, normalise(VALUE)),
    "to half": (torch.float32, "bicubic", VALUE, Cast(VALUE, torch.float16)),
    "added": (torch.float32, "bilinear", VALUE, Binary("add", VALUE, Operand(0))),
    "blended": (
        torch.float32,
        "nearest",
        Binary("mul", VALUE, Channel(1)),
        Binary("add", Binary("mul", VALUE, Operand(0)), Binary("mul", Operand(1, torch.float16), Channel(0))),
    ),
    "integers": (torch.int16, "nearest", VALUE, Binary("add", Cast(VALUE, torch.float32), Channel(0))),
}


@parts
@first_or_best
@pytest.mark.parametrize("name", ARITHMETIC)
def test_arithmetic(monkeypatch: pytest.MonkeyPatch, forced: str, name: str, part: int) -> None:
    monkeypatch.setenv("POLYPHASE_ISA", forced)
    source, mode, prologue, epilogue = ARITHMETIC[name]
    turns = itertools.product(LAYOUTS, (1, 3, 17), ("preserve", "contiguous", "channels_last"), ("grid", "affine"))
    for seed, (layout, channels, order, by) in dealt(enumerate(turns), part):
        size = (3, 37)
        sampler = Warp(by, mode, PADDINGS[seed % 3], seed % 5 < 2, size if by == "affine" else ())
        program = Program(source, sampler, prologue, epilogue, order=order)
        picture = image((2, channels, 8, 11), source, layout, seed)
        coordinates = matrices(2, 2, seed).float()
        if by == "grid":
            coordinates = warps.affine_grid(coordinates, size, False)
        shape = (2, channels, *size)
        vectors = {slot: image((1, channels), seed=slot, low=0.5)[0] for slot in range(2)}
        tensors = {0: image(shape, layout=layout, seed=5), 1: image(shape, torch.float16, LAYOUTS[seed % 6], seed=6)}
        ours = binding.run(program, picture, coordinates, channels=vectors, tensors=tensors)
        given: dict[str, Any] = {"grid" if by == "grid" else "theta": coordinates}
        expected = reference.run(program, picture, channels=vectors, tensors=tensors, **given)
        assert ours.dtype == program.target
        assert ours.stride() == strides_of(program, picture, ours.shape)
        assert_near(ours, expected, program, mode)


def assert_near(ours: Tensor, expected: Tensor, program: Program, mode: str) -> None:
    """Positions of floats beside those of doubles: the nearest pixel may be another one, and a byte another by 1."""
    quantised = program.sampled == torch.uint8 and mode != "nearest"
    half = torch.float16 in (program.target, program.sampled)
    allowed = (1 / 255 / 0.5 if quantised else 0) + (
        5e-3 if half else 5e-5 * (1 + float(expected.double().abs().max()))
    )
    apart = (ours.double() - expected.double()).abs() > allowed
    assert float(apart.double().mean()) <= (1e-2 if mode == "nearest" else 0)


# ---- the call, threads and forks


LARGE = [
    Case(dtype, shape, layout, (200, 230), Warp("grid", mode, "reflection"), "around", "CF", 1)
    for dtype in (torch.uint8, torch.float32)
    for mode in GRID_MODES[2]
    for shape, layout in (((1, 3, 90, 80), "CF"), ((2, 4, 30, 50), "CL"))
]


def all_results(case: Case) -> list[bytes]:
    results = [case.run(), *(our_gradients(case) if case.dtype.is_floating_point else ())]
    return [content(one) for one in results if one is not None]


def with_threads(count: int, case: Case) -> list[bytes]:
    torch.set_num_threads(count)
    return all_results(case)


def test_threads_change_nothing() -> None:
    for case in LARGE:
        alone = with_threads(1, case)
        for count in (2, 5, 2):
            assert with_threads(count, case) == alone, case


def test_several_python_threads_at_once() -> None:
    torch.set_num_threads(2)
    expected = [all_results(case) for case in LARGE]
    binding.forget()
    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(all_results, LARGE * 2)) == expected * 2


def test_the_interpreter_runs_meanwhile() -> None:
    picture, theta = image((1, 3, 900, 900)), torch.eye(2, 3)[None]
    work = partial(binding.warp, picture, theta, Warp("affine", "bicubic", size=(2500, 2500)))
    work()
    worker, ticks = threading.Thread(target=work), 0
    worker.start()
    while worker.is_alive():
        ticks += 1
    worker.join()
    assert ticks > 1000  # a few, if the interpreter were locked


def test_forked_after_use() -> None:
    """Inputs are made before: torch's own loops are not safe in a child."""
    jobs: list[Callable[[], Tensor]] = [
        partial(binding.warp, case.picture(), case.coordinates(), case.sampler) for case in LARGE
    ]
    torch.set_num_threads(2)
    expected = [content(job()) for job in jobs]

    def again(tell: Tell) -> None:
        torch.use_deterministic_algorithms(False)
        for count in (2, 1, 5):
            torch.set_num_threads(count)
            tell(count)
            assert [content(job()) for job in jobs] == expected

    in_a_child(again, seconds=30)
    assert [content(job()) for job in jobs] == expected
