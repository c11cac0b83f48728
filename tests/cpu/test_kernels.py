"""The kernels of every instruction set against the reference: uint8 and what is only moved bit for bit, floats against
sums in float64 with the same weights, within the rounding of as many additions."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from polyphase.calls import binding
from polyphase.calls.rules import RULES
from polyphase.cpu import isa
from polyphase.records.facts import facts
from polyphase.records.layout import keeps_strides
from polyphase.sampling import reference
from polyphase.sampling.apply import apply_taps
from polyphase.sampling.axis_maps import AxisMap
from polyphase.sampling.evaluate import evaluate
from polyphase.sampling.pointwise import (
    VALUE,
    Binary,
    Cast,
    Channel,
    Number,
    Operand,
    clamp,
    normalise,
    operands_of,
)
from polyphase.sampling.programs import Axes, Border, Program, maps_program
from polyphase.sampling.steps import Area, Flip, Nearest, Pad, Resize, Slice, Step
from polyphase.sampling.windows import backward_arithmetic, eager_arithmetic
from tests.sampling.strategies import DTYPES, FLOATS, axis_maps, quick, sizes
from tests.support.programs import has_program, program_for
from tests.support.samples import LAYOUTS, Sample, image, select, small

Values = Mapping[int, Tensor]
One = TypeVar("One")

PIXELS = (torch.uint8, *FLOATS)
MOVED = (torch.bool, torch.int16, torch.float32, torch.int64, torch.complex128)  # elements of 1, 2, 4, 8 and 16 bytes
WIDTHS = range(1, 71)
CHANNELS = (1, 2, 3, 4, 5, 8, 16, 17, 33, 64)
MOST_CHANNELS = 70

#: Of sweeps that take long, part 0 is every fourth case, others for each instruction set; the full run has the rest.
parts = pytest.mark.parametrize("part", [0, pytest.param(1, marks=pytest.mark.full)])
#: Kernels of arithmetic are built for one test each; expressions run on all sets in test_pointwise.py.
first_or_best = pytest.mark.parametrize(
    "forced", [pytest.param(isa.available()[0], marks=pytest.mark.full), isa.available()[-1]]
)


def dealt(some: Iterable[One], part: int, turn: int = 0, of: int = 4) -> Iterator[One]:
    """Part 0: every fourth, from another one on for each turn and for each instruction set. Part 1: the others."""
    first = (turn + isa.available().index(isa.chosen())) % of
    return (one for number, one in enumerate(some) if (number % of == first) == (part == 0))


RESIZES: tuple[Callable[[int], Resize | Area], ...] = (
    partial(Resize, filter="bilinear"),
    partial(Resize, filter="bicubic"),
    partial(Resize, filter="bilinear", align_corners=True),
    partial(Resize, filter="bicubic", align_corners=True),
    partial(Resize, filter="bilinear", antialias=True),
    partial(Resize, filter="bicubic", antialias=True),
    partial(Resize, filter="box", antialias=True),
    partial(Resize, filter="hamming", antialias=True),
    partial(Resize, filter="lanczos", antialias=True),
    Area,
)
MOVES: tuple[Callable[[int], tuple[Step, ...]], ...] = (
    lambda size: (Nearest(size),),
    lambda size: (Nearest(size, exact=True),),
    lambda size: (Flip(), Nearest(size), Flip()),
    lambda size: (Nearest(size), Flip()),
    lambda size: (Nearest(size + 2), Slice(1, size + 1)),
    lambda size: (Nearest(2 * size), Slice(0, 2 * size, 2)),
    lambda size: (Nearest(size), Pad(size // 2, -(size // 2), "circular")),
    lambda size: (Nearest(size), Pad(size - 1, 1 - size, "reflect")),
)


pytestmark = pytest.mark.usefixtures("fresh_outputs")


# ---- what is expected


class Sums(NamedTuple):
    """The sums of a float image in float64, and by how much a kernel may miss them."""

    exact: Tensor
    allowed: Tensor


def maps_of(*axes: Step | tuple[Step, ...]) -> tuple[AxisMap, ...]:
    return tuple(AxisMap(steps if isinstance(steps, tuple) else (steps,)) for steps in axes)


def sums_of(picture: Tensor, maps: Sequence[AxisMap], borders: Sequence[complex] = ()) -> Sums:
    """The maps on the last dimensions, as dense matrices with the weights that kernels use."""
    first = picture.dim() - len(maps)
    tables = [
        evaluate(one, n, eager_arithmetic(picture.dtype)) for one, n in zip(maps, picture.shape[first:], strict=True)
    ]
    sums = product(picture, [table.dense() for table in tables])
    border = torch.zeros((), dtype=torch.int64)
    for back, table in enumerate(reversed(tables), start=1):
        if table.border is not None:
            border = torch.maximum(border, table.border.reshape([-1] + [1] * (back - 1)))
    for number, value in enumerate(borders, start=1):
        rounded = torch.tensor(value, dtype=torch.float64).to(picture.dtype).double()
        sums = Sums(torch.where(border == number, rounded, sums.exact), torch.where(border == number, 0, sums.allowed))
    return sums


def adjoint_of(picture: Tensor, maps: Sequence[AxisMap], in_size: Sequence[int]) -> Sums:
    return product(picture, adjoint_matrices(picture.dtype, maps, in_size))


def adjoint_matrices(dtype: torch.dtype, maps: Sequence[AxisMap], in_size: Sequence[int]) -> list[Tensor]:
    arithmetic = backward_arithmetic(dtype, RULES["cpu"])
    return [evaluate(one, n, arithmetic).dense().T for one, n in zip(maps, in_size, strict=True)]


def product(picture: Tensor, matrices: Sequence[Tensor]) -> Sums:
    """By a matrix for each of the last dimensions.

    An addition loses at most half a unit in the last place of what it adds up. A weight may be off by four units of 1,
    made with another sine or in another order. Half precision is rounded once, at the end.
    """
    exact, magnitude, roundings = picture.double(), picture.double().abs(), 2
    of_weights = torch.zeros_like(magnitude)
    for dim, matrix in enumerate(matrices, start=picture.dim() - len(matrices)):
        of_weights = along(of_weights, matrix.abs(), dim) + along(magnitude, (matrix != 0).double(), dim)
        exact, magnitude = along(exact, matrix, dim), along(magnitude, matrix.abs(), dim)
        roundings += int((matrix != 0).sum(1).max())
    summed = torch.float64 if picture.dtype == torch.float64 else torch.float32
    allowed = torch.finfo(summed).eps * (roundings * magnitude + 4 * of_weights)
    if picture.dtype in (torch.float16, torch.bfloat16):
        allowed += torch.finfo(picture.dtype).eps / 2 * exact.abs() + torch.finfo(picture.dtype).smallest_normal / 2**10
    return Sums(exact, allowed)


def along(values: Tensor, matrix: Tensor, dim: int) -> Tensor:
    return (values.movedim(dim, -1) @ matrix.T).movedim(-1, dim)


def assert_close(ours: Tensor, sums: Sums) -> None:
    assert ours.shape == sums.exact.shape
    worst = ((ours.double() - sums.exact).abs() - sums.allowed).max() if ours.numel() else 0
    assert worst <= 0, f"{float(worst)} more than allowed"  # not so if it is NaN


def strides_of(program: Program, picture: Tensor, shape: Sequence[int]) -> tuple[int, ...]:
    """A tensor of one channel or of one pixel lies in two orders; its strides tell which one was meant, as in eager.
    Flips and crops keep whatever strides are dense."""
    axes = program.sampler
    if program.order == "preserve" and isinstance(axes, Axes) and not axes.transposed and keeps_strides(axes.maps):
        return torch.empty_like(torch.empty_strided(shape, picture.stride())).stride()
    return torch.empty(shape, device="meta", memory_format=reference.memory_format(program.order, picture)).stride()


def assert_right(ours: Tensor, picture: Tensor, maps: Sequence[AxisMap], borders: Sequence[complex] = ()) -> None:
    """Of any rank; the reference's images have two dimensions before the axes."""
    if picture.is_floating_point() and any(one.weighted for one in maps):
        return assert_close(ours, sums_of(picture, maps, borders))
    first = picture.dim() - len(maps)
    program = Program(picture.dtype, Axes(tuple(maps)), borders=tuple(map(Border, borders)))
    expected = reference.run(program, picture.reshape(1, math.prod(picture.shape[:first]), *picture.shape[first:]))
    assert torch.equal(ours, expected.to(picture.dtype).reshape(ours.shape))
    return None


# ---- widths and channels


def outputs_of(width: int, part: int) -> Iterator[tuple[int, int]]:
    """Numbered. Up and down, to one, by one, to itself, and to sizes that go through all of WIDTHS with the width."""
    sizes = {1, max(width - 1, 1), width, width + 1, 2 * width, 71 - width, 1 + width * 29 % 70, 1 + width * 53 % 70}
    return dealt(enumerate(sorted(sizes), start=8 * width), part, width)


def some_channels(number: int) -> list[int]:
    """One of the common counts, and others that go through all up to MOST_CHANNELS with the number."""
    return sorted({number % 4 + 1, *(1 + (number * 3 + 23 * k) % MOST_CHANNELS for k in range(3))})


def with_channels(whole: Tensor, channels: int) -> Iterator[Tensor]:
    """The first channels of an image: planar, interleaved, and where they lie among the others, interleaved too."""
    planar = whole[:, :channels].contiguous()
    yield planar
    yield planar.movedim(1, -1).contiguous().movedim(-1, 1)
    yield whole.movedim(1, -1).contiguous().movedim(-1, 1)[:, :channels]


def assert_channels_right(whole: Tensor, maps: tuple[AxisMap, ...], counts: Sequence[int]) -> None:
    """What channels are is the same however many there are, so that one evaluation serves them all."""
    weighted = any(one.weighted for one in maps)
    exact = sums_of(whole, maps) if weighted and whole.is_floating_point() else None
    moved = reference.run(Program(whole.dtype, Axes(maps)), whole).to(whole.dtype) if exact is None else None
    for channels in counts:
        for picture in with_channels(whole, channels):
            ours = binding.resample(picture, maps)
            if exact is not None:
                assert_close(ours, Sums(exact.exact[:, :channels], exact.allowed[:, :channels]))
            else:
                assert moved is not None
                assert torch.equal(ours, moved[:, :channels]), (channels, picture.stride())


@parts
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32, torch.float64, torch.float16])
def test_widths(instruction_set: str, dtype: torch.dtype, part: int) -> None:
    for width in WIDTHS:
        whole = image((1, MOST_CHANNELS, 2, width), dtype, seed=width)
        for number, after in outputs_of(width, part):
            maps = maps_of((), RESIZES[number % len(RESIZES)](after))
            assert_channels_right(whole, maps, some_channels(number))


@parts
@pytest.mark.parametrize("dtype", MOVED)
def test_widths_moved(instruction_set: str, dtype: torch.dtype, part: int) -> None:
    for width in WIDTHS:
        whole = image((1, MOST_CHANNELS, 2, width), dtype, seed=width)
        for number, after in outputs_of(width, part):
            assert_channels_right(whole, maps_of((), MOVES[number % len(MOVES)](after)), some_channels(number))


@parts
@pytest.mark.parametrize("dtype", MOVED)
@pytest.mark.parametrize("width", [341, 700, 1500])
def test_long_rows_moved_in_several_ways(instruction_set: str, width: int, dtype: torch.dtype, part: int) -> None:
    """Parts of a row are copied, others picked, and rows come in fours: here they are 1, 3, 4, 5 and 9."""
    moves: list[tuple[Step, ...]] = [
        (Pad(9, 70, "reflect"),),
        (Flip(), Pad(5, 6, "circular")),
        (Flip(), Pad(5, 6, "symmetric")),
        (Nearest(width - 1),),
        (Nearest(width * 2 // 3),),
        (Nearest(width * 2 // 5), Flip()),
        (Nearest(width // 3 - 1),),
        (Nearest(width // 9),),
        (Nearest(width + 1), Pad(100, 0, "replicate")),
        (Pad(130, 130, "reflect"), Nearest(2 * width)),
    ]
    every: list[tuple[int, tuple[Step, ...]]] = [(1, ()), (3, (Flip(),)), (4, (Nearest(5),)), (5, (Nearest(9),))]
    for turn, (height, rows) in enumerate([*every, (9, (Slice(0, 9, 2),))]):
        whole = image((1, MOST_CHANNELS, height, width), dtype, seed=width)
        for move in dealt(moves, part, turn):
            assert_channels_right(whole, maps_of(rows, move), (1, 3))
        padded = maps_of(rows, Pad(70, 3, "constant", 1))
        for picture in with_channels(whole, 3):
            assert_right(binding.resample(picture, padded, border=7), picture, padded, (7,))


@parts
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32, torch.float64])
def test_row_lengths_of_the_vertical_pass(instruction_set: str, dtype: torch.dtype, part: int) -> None:
    for width in WIDTHS:
        whole = image((1, MOST_CHANNELS, 1 + width % 9, width), dtype, seed=width)
        for number, after in dealt(enumerate((1, 4, 11, 2), start=4 * width), part, width):
            maps = maps_of(RESIZES[number % len(RESIZES)](after), ())
            assert_channels_right(whole, maps, some_channels(number))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_every_number_of_channels(instruction_set: str, dtype: torch.dtype) -> None:
    """Narrow images, whose rows end within the first vector."""
    for width, resize in itertools.product((1, 2, 3, 4, 5, 7, 9, 16), (RESIZES[1], RESIZES[4], RESIZES[8])):
        whole = image((1, MOST_CHANNELS, 2, width), dtype, seed=width)
        assert_channels_right(whole, maps_of((), resize(7)), range(1, MOST_CHANNELS + 1))


@pytest.mark.full
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
@pytest.mark.parametrize("resize", [RESIZES[0], RESIZES[1], RESIZES[4], RESIZES[8]])
def test_every_width_to_every_width(
    instruction_set: str, resize: Callable[[int], Resize | Area], dtype: torch.dtype
) -> None:
    wholes = {width: image((1, MOST_CHANNELS, 2, width), dtype, seed=width) for width in WIDTHS}
    for number, (width, after) in enumerate(itertools.product(WIDTHS, WIDTHS)):
        assert_channels_right(wholes[width], maps_of((), resize(after)), some_channels(number))


@parts
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32, torch.float64])
@pytest.mark.parametrize("resize", RESIZES[4:])
def test_many_taps(instruction_set: str, resize: Callable[[int], Resize | Area], dtype: torch.dtype, part: int) -> None:
    """1 to 360 of them, by scales up to 60."""
    for scale in (1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 24, 33, 47, 60):
        every = itertools.product([(3 * scale, 3), (5 * scale + 1, 5), (12 * scale - 1, 11)], (0, 1), ("CF", "CL"))
        for number, ((before, after), axis, layout) in dealt(enumerate(every), part, scale):
            channels = (1, 2, 3, 4, 5, 17)[(scale + number) % 6]
            shape = (1, channels, before, 3) if axis == 0 else (1, channels, 2, before)
            maps = maps_of(resize(after), ()) if axis == 0 else maps_of((), resize(after))
            picture = image(shape, dtype, layout, seed=scale)
            assert_right(binding.resample(picture, maps), picture, maps)


@parts
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
@pytest.mark.parametrize("resize", [*RESIZES[:2], *RESIZES[4:6]])
def test_taps_that_lie_apart(
    instruction_set: str, resize: Callable[[int], Resize | Area], dtype: torch.dtype, part: int
) -> None:
    """Shrinks of rows much longer than a vector, by more than its lanes take out of one window."""
    every = itertools.product((2.1, 3, 4.2, 5, 7.9, 11.3, 15, 17), (1, 2, 3, 4, 5, 16, 70))
    for scale, channels in dealt(every, part):
        after = (65, 33, 47, 16)[channels % 4]
        maps = maps_of(resize(3), resize(after))
        for layout in ("CF", "CL"):
            picture = image((1, channels, int(3 * scale), int(after * scale)), dtype, layout, seed=channels)
            assert_right(binding.resample(picture, maps), picture, maps)


LARGEST = [("bilinear", 100, 11), ("bilinear", 133, 33), ("bicubic", 87, 5), ("bicubic", 141, 33),
           ("lanczos", 155, 9), ("lanczos", 140, 33)]  # fmt: skip


@pytest.mark.parametrize(("filter", "before", "after"), LARGEST)
def test_largest_weights(instruction_set: str, filter: str, before: int, after: int) -> None:
    """Weights next to 2^15, which is as large as they become; none is as far below 0."""
    maps = maps_of((), Resize(after, filter, antialias=True))
    weights = evaluate(maps[1], before, eager_arithmetic(torch.uint8)).weight
    assert weights is not None
    assert weights.max() > 2**15 - 2**7
    assert weights.min() > -(2**13)
    for channels, layout in itertools.product((1, 2, 3, 4, 5), ("CF", "CL")):
        picture = image((1, channels, 5, before), torch.uint8, layout, seed=channels)
        picture[..., 1:4, :] = torch.tensor([0, 255, 254])[:, None]
        assert_right(binding.resample(picture, maps), picture, maps)


ROWS: tuple[tuple[Step, ...], ...] = (
    (),
    (Flip(),),
    (Nearest(7), Pad(1, 2, "constant", 1)),
    (Resize(3, "bilinear", antialias=True),),
    (Resize(25, "bicubic"), Flip()),
    (Slice(0, 10), Resize(4, "bicubic", antialias=True, first=True), Pad(2, 3, "constant", 1)),
    (Resize(6, "lanczos", antialias=True), Pad(2, 3, "circular")),
    (Slice(1, 10), Resize(9, "bilinear"), Pad(-2, 3, "constant", 1)),
)
COLUMNS: tuple[Callable[[int], tuple[Step, ...]], ...] = (
    lambda size: (Resize(size, "bilinear", antialias=True),),
    lambda size: (Resize(size, "lanczos", antialias=True), Flip()),
    lambda size: (Resize(size, "bicubic", antialias=True), Pad(size // 2, 3, "circular")),
    lambda size: (Slice(3, 90), Resize(size, "bicubic", antialias=True), Pad(5, 6, "constant", 1)),
)


@pytest.mark.parametrize("channels", [2, 3, 4])
def test_bytes_of_several_rows_at_a_time(instruction_set: str, channels: int) -> None:
    """Rows of many taps are made by fours, in whatever order the vertical map takes them: also where nothing
    is summed vertically but arithmetic follows, and where pixels lie apart and are gathered first."""
    widths = ((97, 9), (96, 1), (301, 33), (700, 5))
    for number, (rows, columns) in enumerate(itertools.product(ROWS, COLUMNS)):
        (width, after), height = widths[number % 4], 1 + (number * 5 + 9) % 13
        maps = maps_of(rows if height > 10 or len(rows) < 3 else (), columns(after))
        whole = image((2, channels + 1, height, width), torch.uint8, "CL", seed=number)
        for picture in (whole[:, :channels].contiguous(memory_format=torch.channels_last), whole[:, :channels]):
            assert_right(binding.resample(picture, maps, border=7), picture, maps, (7,))
            program = Program(torch.uint8, Axes(maps), epilogue=Cast(VALUE, torch.float32), borders=(Border(7),))
            assert torch.equal(binding.run(program, picture), reference.run(program, picture).float())


# ---- layouts, ranks, empty images


@parts
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", PIXELS)
def test_layouts(instruction_set: str, dtype: torch.dtype, layout: str, part: int) -> None:
    for turn, (channels, resize) in enumerate(itertools.product((1, 3, 4, 17), (RESIZES[0], RESIZES[5]))):
        picture = image((2, channels, 19, 23), dtype, layout)
        for after in dealt(((7, 9), (30, 40), (7, 40), (40, 7)), part, turn):
            maps = maps_of(*map(resize, after))
            assert_right(binding.resample(picture, maps), picture, maps)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_targets_in_any_order(instruction_set: str, dtype: torch.dtype) -> None:
    """However a target lies, as the layout of a graph asks for: bytes, which are rounded between two axes, are still
    summed along the last one first."""
    for channels, layout, after in itertools.product((1, 3), ("CF", "CL"), ((7, 40), (30, 9))):
        pictures = image((2, channels, 19, 23), dtype, layout), image((2, channels, 4, 6, 23), dtype, layout)
        for picture, wanted in zip(pictures, (after, (3, *after)), strict=True):
            maps = maps_of(*(Resize(n, "bicubic", antialias=True) for n in wanted))
            program, shape = maps_program(dtype, maps), (2, channels, *wanted)
            for order in itertools.permutations(range(len(shape))):
                if len(shape) == 4 or order[0] == 0:
                    out = torch.empty_permuted(shape, order, dtype=dtype)
                    binding.bind(program, [facts(picture)], facts(out)).into(out, picture)
                    assert_right(out, picture, maps)


@parts
@pytest.mark.parametrize("dtype", DTYPES)
def test_moving_every_dtype_in_every_layout(instruction_set: str, dtype: torch.dtype, part: int) -> None:
    every = itertools.product(LAYOUTS, (1, 3, 17), itertools.pairwise(MOVES))
    for layout, channels, moves in dealt(every, part, DTYPES.index(dtype)):
        picture, maps = image((2, channels, 5, 7), dtype, layout), maps_of(*(move(6) for move in moves))
        assert_right(binding.resample(picture, maps), picture, maps)


@pytest.mark.parametrize("dtype", DTYPES)
def test_borders_of_every_dtype(instruction_set: str, dtype: torch.dtype) -> None:
    maps = maps_of(Pad(1, 2, "constant", 1), (Flip(), Pad(-1, 3, "constant", 1)))
    for value, channels, layout in itertools.product((0, 1, 3), (1, 3, 40), ("CF", "CL", "transposed")):
        picture = image((2, channels, 3, 4), dtype, layout)
        assert_right(binding.resample(picture, maps, border=value), picture, maps, [value])


@pytest.mark.parametrize("dtype", PIXELS)
def test_borders_of_sums(instruction_set: str, dtype: torch.dtype) -> None:
    """Sums of half precision are float32 until they are stored, border values are not."""
    maps = maps_of((RESIZES[0](3), Pad(2, 1, "constant", 1)), (RESIZES[5](9), Pad(-1, 3, "constant", 1), Flip()))
    for value, channels, layout in itertools.product((0, 1, 3), (1, 3, 40), ("CF", "CL", "transposed")):
        picture = image((2, channels, 7, 6), dtype, layout)
        assert_right(binding.resample(picture, maps, border=value), picture, maps, [value])


@pytest.mark.parametrize("value", [0.1, 1e300, -1 / 3, math.inf, -0.0])
def test_borders_are_exact(value: float) -> None:
    maps = maps_of(Pad(1, 0, "constant", 1))
    binding.resample(torch.ones(2, dtype=torch.float64), maps, border=0.0)
    ours = binding.resample(torch.ones(2, dtype=torch.float64), maps, border=value)
    assert ours[0].item() == value
    assert math.copysign(1, ours[0].item()) == math.copysign(1, value)


@pytest.mark.parametrize("layout", LAYOUTS[:3])
def test_volumes(instruction_set: str, layout: str) -> None:
    for dtype, channels, resize in itertools.product(PIXELS, (1, 3, 17), (RESIZES[0], RESIZES[1], RESIZES[4])):
        picture = image((2, channels, 4, 6, 5), dtype, layout)
        for after in ((3, 4, 7), (6, 2, 3), (4, 9, 2)):
            maps = maps_of(*map(resize, after))
            assert_right(binding.resample(picture, maps), picture, maps)


@pytest.mark.parametrize("shape", [(0, 3, 4, 5), (2, 0, 4, 5), (0, 0, 1, 1)])
@pytest.mark.parametrize("layout", ["CF", "CL"])
def test_empty_images(shape: tuple[int, ...], layout: str) -> None:
    for dtype in (torch.uint8, torch.float32, torch.int64):
        maps = (
            maps_of(Flip(), Pad(1, 2, "constant", 1)) if dtype == torch.int64 else maps_of(RESIZES[0](3), RESIZES[5](8))
        )
        ours = binding.resample(image(shape, dtype, layout), maps)
        assert ours.shape == (*shape[:2], *(one.output_size(n) for one, n in zip(maps, shape[2:], strict=True)))


@pytest.mark.parametrize("layout", ["CF", "CL", "transposed"])
def test_a_border_around_nothing(instruction_set: str, layout: str) -> None:
    for dtype, size in itertools.product((torch.uint8, torch.float32, torch.complex128), ((0, 4), (4, 0), (0, 0))):
        picture = image((2, 3, *size), dtype, layout)
        maps = maps_of(Pad(2, 1, "constant", 1), (Pad(1, 1, "constant", 1), Flip()))
        ours = binding.resample(picture, maps, border=1)
        assert torch.equal(ours, torch.ones_like(ours))


def chosen(operator: str) -> list[Sample]:
    return [sample for sample in select(small(), operator=operator) if has_program(sample)]


@pytest.mark.parametrize("operator", ["interpolate", "flip", "pad"])
def test_samples(instruction_set: str, operator: str) -> None:
    for sample in chosen(operator):
        program = program_for(sample)
        assert isinstance(program.sampler, Axes)
        ours = binding.run(program, sample.input)
        assert_right(ours, sample.input, program.sampler.maps, [border.value for border in program.borders])
        assert ours.stride() == strides_of(program, sample.input, ours.shape)


@pytest.mark.parametrize("dtype", [torch.float32, torch.uint8])
@pytest.mark.parametrize("shape", [(2, 3, 1, 1), (2, 1, 4, 5), (1, 1, 4, 1), (2, 3, 4, 5)])
def test_channels_last_stays(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    """Also where an image of one pixel or of one channel lies in both orders."""
    picture, maps = image(shape, dtype, "CL"), maps_of(RESIZES[0](6), RESIZES[0](7))
    ours = binding.resample(picture, maps)
    assert ours.stride() == strides_of(Program(dtype, Axes(maps)), picture, ours.shape)


# ---- maps in the normal form on images with any strides


class Place(NamedTuple):
    """How a dimension lies in a larger tensor: the larger one's size, and what is taken of it."""

    whole: Callable[[int], int]
    taken: slice


PLACES = (
    Place(lambda size: size, slice(None)),
    Place(lambda size: size + 3, slice(1, -2)),
    Place(lambda size: 2 * size + 1, slice(1, None, 2)),
    Place(lambda _: 1, slice(None)),  # and repeated
)


@st.composite
def strided(draw: st.DrawFn, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """Dimensions in any order, dense or with gaps, repeated; now and then overlapping."""
    seed = draw(st.integers(0, 1000))
    if draw(st.integers(0, 9)) == 9:
        values = image((1, 2 * sum(shape) + 1), dtype, seed=seed)[0]
        return values.as_strided(list(shape), [draw(st.integers(0, 2)) for _ in shape])
    order = draw(st.permutations(range(len(shape))))
    places = [draw(st.sampled_from(PLACES)) for _ in shape]
    whole = [place.whole(size) for place, size in zip(places, shape, strict=True)]
    values = image((1, math.prod(whole)), dtype, seed=seed).reshape([whole[dim] for dim in order])
    view = values.permute([order.index(dim) for dim in range(len(shape))])
    return view[tuple(place.taken for place in places)].expand(list(shape))


@st.composite
def mapped(
    draw: st.DrawFn, *, weighted: bool = True, most: int = 24, leading: int = 5
) -> tuple[Tensor, tuple[AxisMap, ...]]:
    dtype = draw(st.sampled_from(PIXELS if weighted else DTYPES))
    before = draw(st.lists(st.integers(1, 3) | st.sampled_from(CHANNELS), max_size=min(leading, 2)))
    before += draw(st.lists(st.integers(1, 2), max_size=leading - len(before)))
    axes = draw(st.integers(1, 3))
    sizes_of = [draw(sizes(most if axes < 3 else 7)) for _ in range(axes)]
    maps = [draw(axis_maps(size, weighted=weighted, first_border=1)) for size in sizes_of]
    return draw(strided([*before, *sizes_of], dtype)), tuple(maps)


def with_one_border(axis_map: AxisMap) -> AxisMap:
    steps = [Pad(s.before, s.after, s.mode, 1) if isinstance(s, Pad) and s.border else s for s in axis_map.steps]
    return AxisMap(tuple(steps))


many = settings(quick, max_examples=60)


@given(case=mapped(), border=st.integers(0, 200))
@many
def test_maps_of_any_rank(instruction_set: str, case: tuple[Tensor, tuple[AxisMap, ...]], border: int) -> None:
    picture, maps = case[0], tuple(map(with_one_border, case[1]))
    assert_right(binding.resample(picture, maps, border=border), picture, maps, [border])


@given(case=mapped(weighted=False), border=st.integers(0, 100))
@many
def test_moves_of_any_rank(instruction_set: str, case: tuple[Tensor, tuple[AxisMap, ...]], border: int) -> None:
    picture, maps = case[0], tuple(map(with_one_border, case[1]))
    assert_right(binding.resample(picture, maps, border=border), picture, maps, [border])


@given(data=st.data(), values=st.lists(st.integers(0, 255), min_size=9, max_size=9), inside=st.integers(0, 9))
@many
def test_programs_with_several_borders(
    instruction_set: str, data: st.DataObject, values: list[int], inside: int
) -> None:
    picture, maps = data.draw(mapped(leading=0))
    picture = data.draw(strided((2, data.draw(st.sampled_from(CHANNELS)), *picture.shape), picture.dtype))
    borders = tuple(Border(value, stored=number >= inside) for number, value in enumerate(values))
    order = data.draw(st.sampled_from(["preserve", "contiguous", "channels_last"]))
    program = Program(picture.dtype, Axes(maps), borders=borders, order=order)
    ours = binding.run(program, picture)
    assert_right(ours, picture, maps, values)
    assert ours.stride() == strides_of(program, picture, ours.shape)


@given(case=mapped(), more=st.integers(0, 1000))
@many
def test_adjoint(instruction_set: str, case: tuple[Tensor, tuple[AxisMap, ...]], more: int) -> None:
    """Dense matrices, and <A x, y> = <x, A* y> with our own A."""
    picture, maps = case[0].to(torch.float32) if case[0].dtype == torch.uint8 else case[0], case[1]
    maps = tuple(map(with_one_border, maps))
    in_size = tuple(picture.shape[picture.dim() - len(maps) :])
    forward = binding.resample(picture, maps)
    gradient = image((1, forward.numel()), picture.dtype, seed=more).reshape(forward.shape)
    ours = binding.resample(gradient, maps, transposed=True, in_size=in_size)
    assert_close(ours, adjoint_of(gradient, maps, in_size))
    if picture.dtype == torch.float64:
        torch.testing.assert_close((forward * gradient).sum(), (picture * ours).sum(), rtol=1e-12, atol=1e-12)


@parts
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("layout", ["CF", "CL", "transposed"])
def test_adjoints_of_images(instruction_set: str, layout: str, dtype: torch.dtype, part: int) -> None:
    chains: list[tuple[Step, ...]] = [(resize(13),) for resize in RESIZES]
    chains += [(Nearest(13),), (Pad(9, 9, "replicate"),), (Slice(2, 20), Flip()), (Pad(2, -8, "constant", 1),)]
    for number, steps in enumerate(chains):
        maps = maps_of(steps, chains[number - 1])
        for channels, in_size in dealt(itertools.product((1, 3, 33), ((21, 30), (50, 25))), part, number):
            out_size = [one.output_size(n) for one, n in zip(maps, in_size, strict=True)]
            gradient = image((2, channels, *out_size), dtype, layout, seed=number)
            ours = binding.resample(gradient, maps, transposed=True, in_size=in_size)
            assert_close(ours, adjoint_of(gradient, maps, in_size))


# ---- NaN and infinity


def kinds(values: Tensor) -> list[list[int]]:
    """Where there is NaN, infinity and minus infinity."""
    return [mask.nonzero().flatten().tolist() for mask in (values.isnan(), values.isposinf(), values.isneginf())]


def with_outliers(picture: Tensor, seed: int) -> Tensor:
    places = torch.randperm(picture.numel(), generator=torch.Generator().manual_seed(seed))[: 1 + seed % 4]
    outliers = torch.tensor([math.nan, math.inf, -math.inf, math.inf])[: len(places)].roll(seed).to(picture.dtype)
    flat = picture.clone().reshape(-1)
    flat[places] = outliers
    return flat.reshape(picture.shape)


def eager_sums(picture: Tensor, maps: Sequence[AxisMap]) -> Tensor:
    """The reference with the weights kernels use: one that rounds to 0 reads nothing, and in float64 may not be 0."""
    for dim, one in enumerate(maps, start=picture.dim() - len(maps)):
        picture = apply_taps(picture, evaluate(one, picture.shape[dim], eager_arithmetic(picture.dtype)), dim)
    return picture


@parts
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("resize", RESIZES)
def test_outliers(instruction_set: str, resize: Callable[[int], Resize | Area], dtype: torch.dtype, part: int) -> None:
    """Down and up in both directions, so that either pass comes first."""
    sizes = [(23, 31), (31, 9), (9, 40)]
    for seed, (before, after, channels) in dealt(enumerate(itertools.product(sizes, sizes, (1, 3, 17))), part):
        planar = with_outliers(image((1, channels, *before), dtype, seed=seed), seed)
        maps = maps_of(*map(resize, after))
        expected = kinds(eager_sums(planar, maps))
        for picture in with_channels(planar, channels):
            assert kinds(binding.resample(picture, maps)) == expected


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("resize", [*RESIZES[:2], *RESIZES[4:]])
def test_outliers_where_weights_are_exact(
    instruction_set: str, resize: Callable[[int], Resize | Area], dtype: torch.dtype
) -> None:
    """By powers of two, so that a weight is 0 for the kernels where it is for the reference."""
    for seed, (before, after) in enumerate(itertools.product([(8, 16), (32, 4), (2, 64)], repeat=2)):
        planar = with_outliers(image((1, 3, *before), dtype, seed=seed), seed)
        program = Program(dtype, Axes(maps_of(*map(resize, after))))
        expected = kinds(reference.run(program, planar).contiguous())
        for picture in with_channels(planar, 3):
            assert kinds(binding.run(program, picture)) == expected


@pytest.mark.parametrize("dtype", FLOATS)
def test_outliers_of_adjoints_and_volumes(instruction_set: str, dtype: torch.dtype) -> None:
    for seed, resize in enumerate(RESIZES):
        maps = maps_of(resize(4), resize(9), resize(6))
        volume = with_outliers(image((1, 3, 7, 6, 5), dtype, seed=seed), seed)
        assert kinds(binding.resample(volume, maps)) == kinds(eager_sums(volume, maps))
        gradient = with_outliers(image((1, 3, 4, 9, 6), dtype, seed=seed), seed)
        read = [(matrix != 0).double() for matrix in adjoint_matrices(dtype, maps, (7, 6, 5))]
        nan, infinite = (product(mask.double(), read).exact > 0 for mask in (gradient.isnan(), gradient.isinf()))
        ours = binding.resample(gradient, maps, transposed=True, in_size=(7, 6, 5))
        assert torch.equal(ours.isfinite(), ~(nan | infinite))
        assert bool((ours.isnan() >= nan).all())


# ---- arithmetic before and after


CROP_AND_FLIP = maps_of((Slice(1, 9), Flip()), (Flip(), Pad(2, 1, "reflect")))
CROP_AND_RESIZE = maps_of((Slice(1, 9), RESIZES[4](5), Flip()), (RESIZES[0](15), Pad(2, 3, "constant", 1)))
BORDERED = maps_of((RESIZES[1](7), Pad(1, 1, "constant", 1), Pad(2, 0, "constant", 2)), Pad(2, 3, "constant", 2))
SCALED = Binary("div", Cast(VALUE, torch.float32), Number(255))
TWO_BORDERS = (Border(0.25), Border(7.0, stored=True))
NORMALISED = normalise(VALUE)

PROGRAMS = {
    "to float, normalised": Program(torch.uint8, Axes(CROP_AND_RESIZE), SCALED, NORMALISED, TWO_BORDERS),
    "quantised, normalised": Program(torch.uint8, Axes(CROP_AND_RESIZE), VALUE, normalise(SCALED), TWO_BORDERS),
    "normalised before": Program(torch.float32, Axes(BORDERED), NORMALISED, clamp(VALUE, -1, 1), TWO_BORDERS),
    "half normalised": Program(torch.float16, Axes(BORDERED), VALUE, NORMALISED, TWO_BORDERS),
    "added": Program(torch.float32, Axes(CROP_AND_RESIZE), VALUE, Binary("add", VALUE, Operand(0)), TWO_BORDERS),
    "blended": Program(
        torch.float64,
        Axes(BORDERED),
        Binary("mul", VALUE, Channel(1, torch.float64)),
        Binary("add", Binary("mul", VALUE, Operand(0)), Binary("mul", Operand(1, torch.float16), Channel(0))),
        TWO_BORDERS,
    ),
    "moved integers": Program(
        torch.int16, Axes(CROP_AND_FLIP), VALUE, Binary("mul", Binary("add", VALUE, Channel(0)), Operand(0))
    ),
    "moved bools": Program(torch.bool, Axes(CROP_AND_FLIP), VALUE, Cast(VALUE, torch.float32)),
    "to bools": Program(torch.float32, Axes(CROP_AND_FLIP), Cast(VALUE, torch.bool)),
}


def leaves(program: Program) -> list[Channel | Operand]:
    return [leaf for one in (program.prologue, program.epilogue) for leaf in operands_of(one)]


def vectors_for(program: Program, channels: int) -> Values:
    slots = {leaf.slot: leaf.dtype for leaf in leaves(program) if isinstance(leaf, Channel)}
    return {slot: image((1, channels), dtype, seed=slot, low=0.5)[0] for slot, dtype in slots.items()}


def tensors_for(program: Program, shape: Sequence[int], layout: str) -> Values:
    slots = {leaf.slot: leaf.dtype for leaf in leaves(program) if isinstance(leaf, Operand)}
    return {slot: image(tuple(shape), dtype, layout, seed=slot, low=0.5) for slot, dtype in slots.items()}


@pytest.mark.parametrize("name", PROGRAMS)
@first_or_best
def test_arithmetic(monkeypatch: pytest.MonkeyPatch, forced: str, name: str) -> None:
    monkeypatch.setenv("POLYPHASE_ISA", forced)
    program = PROGRAMS[name]
    assert isinstance(program.sampler, Axes)
    dtypes = [program.sampled, program.target, *(leaf.dtype for leaf in leaves(program))]
    allowed = 16 * max((torch.finfo(dtype).eps for dtype in dtypes if dtype.is_floating_point), default=0)
    for layout, channels, operands in itertools.product(LAYOUTS, (1, 3, 40), ("CF", "CL", "sliced", "expanded")):
        picture = image((2, channels, 11, 12), program.source, layout)
        out_size = [one.output_size(n) for one, n in zip(program.sampler.maps, (11, 12), strict=True)]
        vectors, tensors = vectors_for(program, channels), tensors_for(program, (2, channels, *out_size), operands)
        if not tensors and operands != "CF":
            continue
        ours = binding.run(program, picture, channels=vectors, tensors=tensors)
        expected = reference.run(program, picture, channels=vectors, tensors=tensors)
        assert ours.dtype == program.target
        assert ours.stride() == strides_of(program, picture, ours.shape)
        torch.testing.assert_close(ours.double(), expected.double(), rtol=allowed, atol=allowed)


# ---- the instruction sets among themselves


@pytest.mark.parametrize("seed", range(12))
def test_large_images_agree(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Sizes at which the reference is slow. Bytes are equal; floats may be added by fused operations."""
    draw = partial(torch.randint, generator=torch.Generator().manual_seed(seed))
    shape = (1, (1, 3, 4, 16)[seed % 4], int(draw(1, 900, ())), int(draw(1, 900, ())))
    maps = maps_of(*(RESIZES[int(draw(0, len(RESIZES), ()))](int(draw(1, 900, ()))) for _ in range(2)))
    for dtype, layout in itertools.product((torch.uint8, torch.float32), ("CF", "CL")):
        picture, results = image(shape, dtype, layout, seed=seed), []
        for name in isa.available():
            monkeypatch.setenv("POLYPHASE_ISA", name)
            binding.forget()
            results.append(binding.resample(picture, maps))
        for result in results[1:]:
            torch.testing.assert_close(result, results[0], rtol=0, atol=0 if dtype == torch.uint8 else 1e-5)
    binding.forget()
