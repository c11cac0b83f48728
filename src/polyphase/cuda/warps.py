"""A call of a warp, prepared on the host: how its kernel is cut, and all of it but addresses."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias

from polyphase.cuda import emit
from polyphase.cuda.calls import ALIGNMENT, CallShape
from polyphase.cuda.maps import Upload
from polyphase.cuda.ways import Cut, Way
from polyphase.kernels.plans import WarpPlan, plan_warp
from polyphase.records.facts import Facts, Sizes
from polyphase.records.records import NO_FILL, Borders, CallRecord, fill_of, rule_number
from polyphase.sampling.programs import Program
from polyphase.sampling.warps import PADDINGS, Warp

#: Blocks that keep a large GPU busy: channels are split among blocks until there are as many.
MANY_BLOCKS = 2048
MOST_BLOCKS = 65535  # down, and from plane to plane
#: Of a `WarpTile` of doubles along three axes, two addresses, a slant and flags: `kTileBytes` of warp_taps.h.
TILE_BYTES = 336
#: Shorter rows of a grid are joined, where they follow each other: tiles would be mostly empty.
LONG_ROW = 16
#: Planes that extend over more elements are counted in 64 bits: 32 have room for the bytes of as many of the widest.
MOST_IN_PLANE = 2**32 // 16 - 1
REGISTERS = 65536
IN_PLANES, IN_PIXELS, IN_VECTORS = range(3)
#: Images of up to four channels, channels last, have kernels of their own.
MOST_KNOWN_STEP = 4
#: What may pass through L2 before the next image reads the same coordinates, in bytes: a good part of what L2 holds.
BETWEEN_IMAGES = 12 << 20
#: Blocks that are left, where blocks go down their tile in several steps.
BLOCKS_FOR_STEPS = 8192


class Shape(NamedTuple):
    """How threads are laid over the output: pixels of a thread; pixels side by side in a warp, warps side by side, and
    threads of a block; the steps in which a block goes down its tile at most; and a thread's registers."""

    pixels: int
    wide: int
    across: int
    threads: int
    most_steps: int
    registers: int


SHAPES = {
    "nearest": Shape(2, 32, 1, 128, 1, 64),
    "bilinear": Shape(2, 16, 2, 128, 1, 40),
    "bicubic": Shape(1, 16, 2, 128, 8, 64),
}
#: Bilinear, where a warp's pixels lie aslant: `kSlanted` of warp.h. All steps are taken; of bytes and halves, of images
#: whose channels lie side by side, and by a formula, there is one.
SLANTED = Shape(2, 32, 1, 128, 2, 48)
SLANTED_AT_ONCE = Shape(4, 32, 1, 128, 1, 56)
SLANTED_ROWS = 16
#: Bilinear, by fields.
BY_FIELDS = Shape(2, 16, 2, 128, 1, 36)
#: Bilinear and not aslant: four channels at once; and few pixels, for which there are threads enough to have one each.
OF_FOUR = Shape(1, 16, 2, 128, 4, 56)
OF_FEW_PIXELS = Shape(1, 16, 2, 128, 1, 32)
FEW_PIXELS = 1 << 20
#: Bicubic, where a tile's part of the image is brought to shared memory first: taps read it more often than that costs.
#: All steps are taken: the smaller the tile, the more of its part it shares with others.
BOXED = Shape(1, 16, 2, 128, 4, 80)


class Box(NamedTuple):
    """Room for a part of the image in shared memory: pixels of a row, and rows. A matrix that neither turns nor scales
    leads from a tile to as many pixels as it has, and three more; turned or made smaller, to more of them."""

    width: int
    rows: int


BOX = Box(49, 32)
NO_BOX = Box(0, 0)
#: Pixels along an axis of such an image: `kMostPixels` of warp_taps.h.
MOST_IN_BOXED = 1 << 24


@dataclass(frozen=True)
class Case:
    """What is chosen by."""

    plan: WarpPlan
    record: CallRecord
    aligned: bool

    @property
    def channels(self) -> int:
        return self.record.image.shape[1]

    @property
    def sampler(self) -> Warp:
        assert isinstance(self.record.program.sampler, Warp), "axis maps have cases of their own"
        return self.record.program.sampler


Choose: TypeAlias = "Callable[[Case], Way]"
#: Fields of a call.
Given: TypeAlias = "Mapping[str, Sequence[Any]]"


@dataclass(frozen=True, eq=False)
class PreparedWarp:
    plan: WarpPlan
    way: Way
    cut: Cut
    given: Given
    fill: Borders = NO_FILL

    @property
    def shape(self) -> CallShape:
        return emit.call_shape(self.plan, self.way)

    def packed(self, upload: Upload) -> tuple[bytes, list[object]]:
        """The call, and what keeps what it reads. There are no tables but that of a fill."""
        fields, kept = self.given, list[object]()
        if self.fill.data:
            (fill_at,), memory = upload(self.fill.data)
            fields = {**fields, "fill": [fill_at], "fill_step": [int(self.fill.stride > 0)]}
            kept.append(memory)
        return self.shape.packed(fields), kept


def choose(case: Case) -> Way:
    """`warp.h`: which channels are fetched together, and the shape of a warp and of a block."""
    mode, record, box = case.plan.mode, case.record, _box(case)
    in_planes = _lies_in_planes(case)
    of_bicubic = 1 if case.plan.axes == 3 else 3 if in_planes else 2  # of a volume, 64 taps fill a thread's registers
    most = {"nearest": 4, "bilinear": 4, "bicubic": of_bicubic}[mode]
    together = divisor(case.channels, 4 if box.rows else most)
    found = _shape(case, together, box)
    pixels, wide, across, threads, most_steps, registers = found
    image, out, coordinates = record.image, record.out, record.coordinates
    assert coordinates is not None, "axis maps have ways of their own"
    tensors = [(out.shape, one.strides) for one in record.operands.tensors]
    far = is_far(coordinates, (image.shape, image.strides), (out.shape, out.strides), *tensors)
    channels = IN_PLANES if in_planes or together == 1 else IN_PIXELS if box.rows else _channels(case, together)
    layout = (_step(case), together, channels)
    pitch = box.width * (together if channels == IN_PIXELS else 1)
    fill = rule_number(case.sampler)
    slanted = most_steps if found in (SLANTED, SLANTED_AT_ONCE) else 0
    one_tile = slanted > 0 or (most_steps == 1 and _few_tiles(case, threads // wide // across * pixels))
    once = one_tile and case.channels == together
    shape = (pixels, wide, across, pitch, box.rows, threads)
    constants = (_is_affine(record.program), far, False, once, slanted, fill, *layout, *shape)
    resident = resident_blocks(case.plan, registers, threads)
    way = Way("warp", "Warp", constants, threads, resident, sums=False, moved_bytes=case.plan.element_bytes)
    # Blocks of the next kernel that wait beside boxes would be spread unevenly over multiprocessors.
    return replace(way, lets_next_begin=not box.rows)


def _shape(case: Case, together: int, box: Box) -> Shape:
    mode, sampler, in_planes = case.plan.mode, case.sampler, _lies_in_planes(case)
    if box.rows:
        return BOXED
    if mode != "bilinear":
        return SHAPES[mode]
    out = case.record.out.shape
    few_pixels = out[0] * math.prod(out[2:]) < FEW_PIXELS
    if _is_slanted(case, together) and not few_pixels:
        of_words = case.record.image.dtype.itemsize >= 4
        return SLANTED if in_planes and of_words and sampler.formula is None else SLANTED_AT_ONCE
    if together == 4:
        return OF_FOUR
    if few_pixels:
        return OF_FEW_PIXELS
    by_fields = case.plan.axes == 2 and sampler.formula is not None and sampler.formula.fields > 0
    return BY_FIELDS if by_fields else SHAPES["bilinear"]


def _lies_in_planes(case: Case) -> bool:
    """Rather than with the channels of a pixel side by side."""
    return case.record.image.strides[1] != 1


def _reads_coordinates(sampler: Warp) -> bool:
    """Whether coordinates are read for every pixel."""
    return sampler.source == "grid" or (sampler.formula is not None and sampler.formula.fields > 0)


def _is_slanted(case: Case, together: int) -> bool:
    """Images whose channels are made together. What is read for every output pixel lies in rows as the output does:
    pixels aslant would read it from many lines."""
    of_one_tile = case.plan.axes == 2 and together == case.channels and _few_tiles(case, SLANTED_ROWS)
    return of_one_tile and not _reads_coordinates(case.sampler) and not case.record.operands.tensors


def _box(case: Case) -> Box:
    """For bicubic warps by a matrix, of images whose rows are dense: a grid may lead anywhere."""
    image, plan = case.record.image, case.plan
    rows_are_dense = image.strides[-1] == (1 if _lies_in_planes(case) else case.channels) <= MOST_KNOWN_STEP
    in_floats = plan.axes == 2 and plan.positions.itemsize == 4 and max(image.shape[2:]) < MOST_IN_BOXED
    by_matrix = plan.mode == "bicubic" and _is_affine(case.record.program)
    return BOX if by_matrix and in_floats and rows_are_dense else NO_BOX


def _few_tiles(case: Case, rows: int) -> bool:
    """Whether there are blocks for all of them, down an image and from image to image. rows: of a tile."""
    batch, _, *spatial = case.record.out.shape
    return math.ceil(math.prod(spatial[:-1]) / rows) <= MOST_BLOCKS and batch <= MOST_BLOCKS


def _is_affine(program: Program) -> bool:
    return isinstance(program.sampler, Warp) and program.sampler.source == "affine"


def divisor(channels: int, most: int) -> int:
    """How many channels can be fetched together, over and over."""
    return next(n for n in range(most, 0, -1) if channels % n == 0)


def resident_blocks(plan: WarpPlan, registers: int, threads: int) -> int:
    """How many blocks a multiprocessor has at once, of threads that have so many registers; twice as many for doubles,
    and for volumes."""
    twice = plan.positions.itemsize == 8 or plan.axes == 3
    return max(1, REGISTERS // (2 * registers if twice else registers) // threads)


def _step(case: Case) -> int:
    """The stride from a pixel to the next along x, where few kernels tell them apart; 0 for others."""
    step = case.record.image.strides[-1]
    return step if 1 <= step <= MOST_KNOWN_STEP else 0


def _channels(case: Case, together: int) -> int:
    """How those lie that are fetched together: `Channels` of warp_reads.h."""
    image = case.record.image
    steps = [stride for n, stride in zip(image.shape, image.strides, strict=True) if n > 1]
    aligned = case.aligned and all(stride == 1 or stride % together == 0 for stride in steps) and steps.count(1) == 1
    is_vector = aligned and together in (2, 4) and together * image.dtype.itemsize <= ALIGNMENT
    return IN_VECTORS if is_vector else IN_PIXELS


def is_far(coordinates: Facts, *images: tuple[Sizes, Sizes]) -> bool:
    """Whether the elements of a plane are counted in 64 bits. `images`: their shapes and strides."""
    planes = [(shape[2:], strides[2:]) for shape, strides in images]
    planes += [(coordinates.shape[1:], coordinates.strides[1:])]
    return any(sum((n - 1) * stride for n, stride in zip(*plane, strict=True)) > MOST_IN_PLANE for plane in planes)


def prepared(record: CallRecord, aligned: bool, architecture: str, choose: Choose = choose) -> PreparedWarp:
    coordinates, sampler = record.coordinates, record.program.sampler
    assert coordinates is not None, "axis maps have calls of their own"
    assert isinstance(sampler, Warp), "axis maps have no coordinates"
    plan = plan_warp(record.program, coordinates.dtype, len(record.image.shape) - 2, architecture)
    tensors = [one.strides for one in record.operands.tensors]
    given = described(sampler, record.image, record.out, coordinates, tensors)
    case = Case(plan, record, aligned)
    way = choose(case)
    *_, slanted, _, _, together, channels, pixels, wide, across, pitch, rows, threads = map(int, way.constants)
    most_steps = _shape(case, together, Box(pitch, rows)).most_steps
    tiles = Tiles(together, pixels, wide, across, threads, most_steps if rows or slanted else 1, most_steps)
    planes = together if channels == IN_PLANES else 1
    shared_bytes = TILE_BYTES + planes * rows * pitch * record.image.dtype.itemsize
    if slanted:
        shared_bytes += together * pixels * slanted * threads * record.out.dtype.itemsize
    fill = fill_of(sampler, record.program.sampled, record.image.dtype if record.program.moves_only else plan.work)
    return replace(cut_into_tiles(plan, way, given, tiles, False, shared_bytes, _bytes_of_row(record)), fill=fill)


def _bytes_of_row(record: CallRecord) -> int:
    """What an image's row takes, read, written, and with its coordinates, where all images read the same; else 0."""
    sampler, image, out, coordinates = record.program.sampler, record.image, record.out, record.coordinates
    assert isinstance(sampler, Warp), "axis maps have no coordinates"
    assert coordinates is not None, "axis maps have no coordinates"
    if image.shape[0] == 1 or not _reads_coordinates(sampler):
        return 0
    fields = sampler.formula.fields if sampler.formula else 0
    strides = [one.strides for one in record.operands.tensors[-fields:]] if fields else [coordinates.strides]
    if any(one[0] != 0 for one in strides):
        return 0
    numbers = fields or coordinates.shape[-1]
    moved = image.shape[1] * (image.dtype.itemsize + out.dtype.itemsize)
    return out.shape[-1] * (numbers * coordinates.dtype.itemsize + moved)


def described(sampler: Warp, image: Facts, out: Facts, coordinates: Facts, tensors: Sequence[Sizes]) -> Given:
    """A warp's call, but for how it is cut. `tensors`: strides of what lies as the output does."""
    out_size, target, along = _spatial(out.shape), image_strides(out.strides), _coordinate_strides(coordinates)
    if sampler.source == "grid" and not tensors:
        out_size, target, along = _with_long_rows(out_size, target, along)
    steps = [max(n - 1, 1) if sampler.align_corners else n for n in out_size]
    return {
        "batch": [image.shape[0]],
        "channels": [image.shape[1]],
        "in_size": _spatial(image.shape),
        "out_size": out_size,
        "image_strides": image_strides(image.strides),
        "target_strides": target,
        "coordinate_strides": along,
        "base_first": [(1 - n) / step for n, step in zip(out_size, steps, strict=True)],
        "base_step": [2 / step for step in steps],
        "padding": [PADDINGS.index(sampler.taps_padding)],
        "align_corners": [int(sampler.align_corners)],
        "tensor_strides": [one for strides in tensors for one in image_strides(strides)],
        "numbers": [float(one) for one in sampler.formula.numbers] if sampler.formula else [],
    }


class Tiles(NamedTuple):
    """How a kernel's threads are laid over the output: `ThreadTile` of warp_taps.h. together: channels, of which each
    block makes a multiple."""

    together: int
    pixels: int
    wide: int
    across: int
    threads: int
    least_steps: int = 1
    most_steps: int = 1


def cut_into_tiles(
    plan: WarpPlan,
    way: Way,
    given: Given,
    by: Tiles,
    whole: bool = False,
    shared_bytes: int = TILE_BYTES,
    alike: int = 0,
) -> PreparedWarp:
    """whole: a block makes all channels of its pixels. alike: bytes that a row takes of images with the same
    coordinates."""
    batch, channels, (depth, height, width) = int(given["batch"][0]), int(given["channels"][0]), given["out_size"]
    rows = by.threads // by.wide // by.across * by.pixels
    tiles = math.ceil(width / (by.wide * by.across))
    steps = max(
        by.least_steps, min(by.most_steps, tiles * math.ceil(depth * height / rows) * batch // BLOCKS_FOR_STEPS)
    )
    strips = math.ceil(depth * height / (rows * steps))
    enough = math.ceil(MANY_BLOCKS / (tiles * strips * batch))
    chunks = 1 if whole else max(1, min(channels // by.together, enough))
    chunk = by.together * math.ceil(channels / by.together / chunks)
    chunks = math.ceil(channels / chunk)
    cut = Cut((tiles, min(strips, MOST_BLOCKS), min(batch * chunks, MOST_BLOCKS)), shared_bytes, tiles, strips)
    group = max(1, min(strips, BETWEEN_IMAGES // (alike * rows * steps))) if alike else strips
    cuts = {"tiles": tiles, "strips": strips, "chunks": chunks, "chunk": chunk, "steps": steps, "group": group}
    return PreparedWarp(plan, way, cut, {**given, **{name: [number] for name, number in cuts.items()}})


def _spatial(shape: Sizes) -> Sizes:
    """z, y, x of (batch, channels, spatial...); an image has one z."""
    return (1, *shape[2:]) if len(shape) == 4 else tuple(shape[2:])


def image_strides(strides: Sizes) -> Sizes:
    """batch, channel, z, y, x."""
    return (*strides[:2], 0, *strides[2:]) if len(strides) == 4 else tuple(strides)


def _coordinate_strides(coordinates: Facts) -> Sizes:
    """batch, z, y, x and component; of matrices (batch, row, column) rows stand for y and columns for x."""
    batch, *along, last = coordinates.strides
    if len(along) == 1:
        return (batch, 0, *along, last, 0)
    return (batch, *[0] * (3 - len(along)), *along, last)


def _with_long_rows(size: Sizes, target: Sizes, along: Sizes) -> tuple[Sizes, Sizes, Sizes]:
    """Short rows as one long one, where they follow each other in the output and in the grid."""
    of_target, of_grid = _as_one_row(size, target[2:]), _as_one_row(size, along[1:4])
    pixels = math.prod(size)
    if size[2] >= LONG_ROW or pixels > MOST_IN_PLANE or of_target is None or of_grid is None:
        return size, target, along
    return (1, 1, pixels), (*target[:2], 0, 0, of_target), (along[0], 0, 0, of_grid, along[4])


def _as_one_row(size: Sizes, strides: Sizes) -> int | None:
    """The step from pixel to pixel, if there is one."""
    steps = [(n, stride) for n, stride in zip(reversed(size), reversed(strides), strict=True) if n > 1]
    if any(n * stride != after for (n, stride), (_, after) in itertools.pairwise(steps)):
        return None
    return steps[0][1] if steps else 0
