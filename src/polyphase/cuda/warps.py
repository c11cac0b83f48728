"""A call of a warp, prepared on the host: how its kernel is cut, and all of it but addresses."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from polyphase.cuda import emit
from polyphase.cuda.calls import ALIGNMENT, CallShape, Fields
from polyphase.cuda.ways import Cut, Way
from polyphase.kernels.facts import Facts, Sizes
from polyphase.kernels.operands import Operands
from polyphase.kernels.plans import WarpPlan, plan_warp
from polyphase.kernels.records import CallRecord
from polyphase.sampling.warps import PADDINGS, Warp

#: Blocks that keep a large GPU busy: channels are split among blocks until there are as many.
MANY_BLOCKS = 2048
MOST_BLOCKS = 65535  # down, and from plane to plane
#: Of a `WarpTile` of doubles along three axes.
SHARED_BYTES = 280
#: Shorter rows of a grid are joined, where they follow each other: tiles would be mostly empty.
LONG_ROW = 16
#: Planes that extend over more elements are counted in 64 bits.
MOST_IN_PLANE = 2**31 - 1
REGISTERS = 65536
IN_PLANES, IN_PIXELS, IN_VECTORS = range(3)


@dataclass(frozen=True)
class Case:
    """What is chosen by. chunked: channels may be split among blocks."""

    plan: WarpPlan
    image: Facts
    out_size: Sizes  # z, y, x
    aligned: bool
    chunked: bool = True

    @property
    def channels(self) -> int:
        return self.image.shape[1]


Choose: TypeAlias = "Callable[[Case], Way]"


@dataclass(frozen=True, eq=False)
class PreparedWarp:
    plan: WarpPlan
    way: Way
    cut: Cut
    given: Fields

    @property
    def shape(self) -> CallShape:
        return emit.call_shape(self.plan, self.way)

    def fields(self, upload: object) -> tuple[Fields, list[object]]:
        """There are no tables."""
        return self.given, []


def choose(case: Case) -> Way:
    """`warp.h`: which channels are fetched together, and the shape of a warp and of a block."""
    most = {"nearest": 4, "bilinear": 4, "bicubic": 3}[case.plan.mode]
    together = next(n for n in (4, 3, 2, 1) if n <= most and case.channels % n == 0)
    registers = {"nearest": 48, "bilinear": 64, "bicubic": 96}[case.plan.mode]
    if case.plan.positions.itemsize == 8 or case.plan.axes == 3:
        registers *= 2
    pixels, wide, across, threads = 1, 8, 2, 128
    constants = (offset_type(case.image), together, _channels(case, together), pixels, wide, across, threads)
    moved = case.plan.element_bytes
    resident = max(1, REGISTERS // registers // threads)
    return Way("warp", "Warp", constants, threads, resident, sums=False, moved_bytes=moved)


def _channels(case: Case, together: int) -> int:
    """How those lie that are fetched together: `Channels` of warp.h."""
    image = case.image
    if image.strides[1] != 1 or together == 1:
        return IN_PLANES
    steps = [stride for n, stride in zip(image.shape, image.strides, strict=True) if n > 1]
    aligned = case.aligned and all(stride == 1 or stride % together == 0 for stride in steps) and steps.count(1) == 1
    is_vector = aligned and together in (2, 4) and together * image.dtype.itemsize <= ALIGNMENT
    return IN_VECTORS if is_vector else IN_PIXELS


def offset_type(image: Facts) -> str:
    """That counts the elements of a plane."""
    extent = sum((n - 1) * stride for n, stride in zip(image.shape[2:], image.strides[2:], strict=True))
    return "int32_t" if extent <= MOST_IN_PLANE else "int64_t"


def prepared(record: CallRecord, aligned: bool, architecture: str, choose: Choose = choose) -> PreparedWarp:
    coordinates, sampler = record.coordinates, record.program.sampler
    assert coordinates is not None and isinstance(sampler, Warp), "axis maps have calls of their own"
    plan = plan_warp(record.program, coordinates.dtype, len(record.image.shape) - 2, architecture)
    return _prepared(plan, sampler, (record.image, record.out, coordinates), aligned, choose, record.operands)


def _prepared(
    plan: WarpPlan,
    sampler: Warp,
    tensors: tuple[Facts, Facts, Facts],
    aligned: bool,
    choose: Choose,
    operands: Operands,
) -> PreparedWarp:
    image, out, coordinates = tensors
    out_size, target, along = _spatial(out.shape, 1), _image_strides(out), _coordinate_strides(coordinates)
    joined = (
        _as_one_row(out_size, target[2:], along[1:4]) if sampler.source == "grid" and not operands.tensors else None
    )
    if joined is not None:
        out_size, target, along = (
            (1, 1, math.prod(out_size)),
            (*target[:2], *joined[0]),
            (along[0], *joined[1], along[4]),
        )
    case = Case(plan, image, out_size, aligned)
    way = choose(case)
    cut, chunk = cut_of(case, way, image.shape[0])
    steps = [max(n - 1, 1) if sampler.align_corners else n for n in out_size]
    return PreparedWarp(
        plan,
        way,
        cut,
        {
            "batch": image.shape[0],
            "channels": image.shape[1],
            "in_size": _spatial(image.shape, 1),
            "out_size": out_size,
            "image_strides": _image_strides(image),
            "target_strides": target,
            "coordinate_strides": along,
            "base_first": [(1 - n) / step for n, step in zip(out_size, steps, strict=True)],
            "base_step": [2 / step for step in steps],
            "affine": int(sampler.source == "affine"),
            "padding": PADDINGS.index(sampler.padding),
            "align_corners": int(sampler.align_corners),
            "tiles": cut.tiles,
            "strips": cut.strips,
            "chunks": math.ceil(image.shape[1] / chunk),
            "chunk": chunk,
            "tensor_strides": [one for each in operands.tensors for one in _of_image(each.strides)],
        },
    )


def cut_of(case: Case, way: Way, batch: int) -> tuple[Cut, int]:
    """And the channels that a block makes."""
    together, _, pixels, wide, across, threads = (int(one) for one in way.constants[1:])
    columns, rows = wide * across, threads // wide // across * pixels
    depth, height, width = case.out_size
    tiles, strips = math.ceil(width / columns), math.ceil(depth * height / rows)
    chunks = (
        max(1, min(case.channels // together, math.ceil(MANY_BLOCKS / (tiles * strips * batch)))) if case.chunked else 1
    )
    chunk = together * math.ceil(case.channels / together / chunks)
    planes = batch * math.ceil(case.channels / chunk)
    blocks = (tiles, min(strips, MOST_BLOCKS), min(planes, MOST_BLOCKS))
    return Cut(blocks, SHARED_BYTES, tiles, strips), chunk


def _spatial(shape: Sizes, missing: int) -> Sizes:
    """z, y, x of (batch, channels, spatial...)."""
    return (missing, *shape[2:]) if len(shape) == 4 else tuple(shape[2:])


def _of_image(strides: Sizes) -> Sizes:
    return (*strides[:2], *((0, *strides[2:]) if len(strides) == 4 else strides[2:]))


def _image_strides(image: Facts) -> Sizes:
    return _of_image(image.strides)


def _coordinate_strides(coordinates: Facts) -> Sizes:
    """batch, z, y, x and component; of matrices (batch, row, column) rows stand for y and columns for x."""
    batch, *along, last = coordinates.strides
    if len(along) == 1:
        return (batch, 0, *along, last, 0)
    return (batch, *[0] * (3 - len(along)), *along, last)


def _as_one_row(size: Sizes, *strides: Sizes) -> list[Sizes] | None:
    """Strides of short rows that follow each other, as one long row's; None where they do not, or are long."""
    if size[2] >= LONG_ROW:
        return None
    found = []
    for one in strides:
        steps = [(n, stride) for n, stride in zip(reversed(size), reversed(one), strict=True) if n > 1]
        if any(n * stride != after for (n, stride), (_, after) in zip(steps, steps[1:], strict=False)):
            return None
        found.append((0, 0, steps[0][1] if steps else 0))
    return found
