"""From tensors' dimensions to the axes of a call: which is read along rows, which are summed over, which are merely
walked along. The CPU's launcher arranges them likewise (`launch/geometry.h`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

from polyphase.cuda.calls import MOST_OUTER
from polyphase.errors import NoKernelError
from polyphase.kernels.records import CallRecord
from polyphase.sampling.axis_maps import AxisMap, comes_first
from polyphase.sampling.programs import Axes

#: In rows of at least so many bytes, an axis before them is better resampled row by row than pixel by pixel.
LONG_ROW = 256
#: Channels of bytes that kernels read at once.
MOST_OF_PIXEL = 4


class Dimension(NamedTuple):
    """Strides are in elements, `tensors` those of tensor operands. summed: outputs may be sums of inputs. channels:
    vectors are per this dimension, which stays one of its own."""

    in_size: int = 1
    out_size: int = 1
    in_stride: int = 0
    out_stride: int = 0
    map: AxisMap | None = None
    summed: bool = False
    channels: bool = False
    tensors: tuple[int, ...] = ()


class Geometry(NamedTuple):
    """pixel: what lies within a pixel, never mapped. outer: one at least."""

    x: Dimension
    y: Dimension
    z: Dimension
    pixel: Dimension
    outer: tuple[Dimension, ...]

    @property
    def planes(self) -> int:
        count = 1
        for one in self.outer:
            count *= one.out_size
        return count


def arrange(record: CallRecord) -> Geometry:
    tensors = len(record.operands.tensors)
    none = Dimension(tensors=(0,) * tensors)
    dimensions = _dimensions(record)
    rest = _tidy(dimensions)
    if record.program.sampled == torch.uint8:  # rounded between two axes: sums along the last one come first
        if any(one.map is not None and comes_first(one.map) for one in dimensions):
            raise NoKernelError("bytes that are summed along another axis first, as Pillow does on the CPU")
        in_order = iter([one for one in dimensions if one.summed])
        rest = [next(in_order) if one.summed else one for one in rest]
    pixel = none._replace(in_stride=1, out_stride=1)
    last_mapped = _last(rest, lambda one: one.map is not None)
    sums = sum(one.summed for one in rest)
    long = LONG_ROW // record.image.dtype.itemsize

    def is_row(one: Dimension) -> bool:
        return not one.channels and (last_mapped < 0 or (sums <= 1 and one.in_size >= long))

    if rest and last_mapped + 1 < len(rest) and not is_row(rest[-1]):
        pixel = rest.pop()
    takes_tail = last_mapped + 1 < len(rest) and is_row(rest[-1])
    x = rest.pop(len(rest) - 1 if takes_tail else last_mapped) if rest and (takes_tail or last_mapped >= 0) else none
    y = _take(rest, lambda one: one.summed) or _take(rest, lambda one: not one.channels) or none
    z = _take(rest, lambda one: one.summed) or none
    if len(rest) > MOST_OUTER or any(one.summed for one in rest):
        raise NoKernelError("more dimensions, or more that are summed over, than a kernel walks along")
    return Geometry(x, y, z, pixel, tuple(rest) or (none,))


def in_pixels(geometry: Geometry) -> Geometry:
    """Few channels that lie side by side in the image, and apart in the output, are a pixel's, which is read once."""
    x, outer = geometry.x, geometry.outer
    found = [one for one in outer if one.map is None and one.in_stride == 1 and 1 < one.in_size <= MOST_OF_PIXEL]
    if geometry.pixel.in_size > 1 or len(found) != 1 or x.in_stride != found[0].in_size:
        return geometry
    rest = tuple(one for one in outer if one is not found[0])
    return geometry._replace(pixel=found[0], outer=rest or (Dimension(tensors=(0,) * len(x.tensors)),))


def wider(geometry: Geometry, element_bytes: int, most: int) -> tuple[Geometry, int]:
    """Values that are only moved, several of a pixel as one where they lie together: in elements of so many bytes."""
    count = most // element_bytes
    others = (geometry.x, geometry.y, geometry.z, *geometry.outer)
    strides = [stride for one in others for stride in (one.in_stride, one.out_stride)]
    pixel = geometry.pixel
    if pixel.in_stride != 1 or pixel.out_stride != 1:
        return geometry, element_bytes
    while count > 1 and any(number % count for number in (pixel.in_size, *strides)):
        count //= 2

    def in_elements(one: Dimension) -> Dimension:
        return one._replace(in_stride=one.in_stride // count, out_stride=one.out_stride // count)

    x, y, z, *outer = map(in_elements, others)
    pixel = pixel._replace(in_size=pixel.in_size // count, out_size=pixel.out_size // count)
    return Geometry(x, y, z, pixel, tuple(outer)), element_bytes * count


def _dimensions(record: CallRecord) -> list[Dimension]:
    axes, image, out = record.program.sampler, record.image, record.out
    assert isinstance(axes, Axes), "a warp has no maps"
    leading = len(image.shape) - len(axes.maps)
    maps = [None] * leading + [one if one.steps else None for one in axes.maps]
    return [
        Dimension(
            image.shape[d],
            out.shape[d],
            image.strides[d],
            out.strides[d],
            one,
            one is not None and one.may_sum(axes.transposed),
            bool(record.operands.vectors) and d == record.operands.channel,
            tuple(tensor.strides[d] for tensor in record.operands.tensors),
        )
        for d, one in enumerate(maps)
    ]


def _tidy(dimensions: Sequence[Dimension]) -> list[Dimension]:
    """In the order of the target's memory, neighbours that are walked along as one joined, sizes of 1 left out."""
    tidied: list[Dimension] = []
    for one in sorted(dimensions, key=lambda one: -one.out_stride):
        if one.map is None and not one.channels and one.in_size == 1:
            continue
        if tidied and _can_join(tidied[-1], one):
            outer = tidied.pop()
            one = one._replace(in_size=one.in_size * outer.in_size, out_size=one.out_size * outer.out_size)
        tidied.append(one)
    return tidied


def _can_join(outer: Dimension, inner: Dimension) -> bool:
    if outer.map or inner.map or outer.channels or inner.channels:
        return False
    return (
        outer.in_stride == inner.in_stride * inner.in_size
        and outer.out_stride == inner.out_stride * inner.out_size
        and all(a == b * inner.out_size for a, b in zip(outer.tensors, inner.tensors, strict=True))
    )


def _last(dimensions: Sequence[Dimension], wanted: Callable[[Dimension], bool]) -> int:
    """The last place that `wanted` holds for, or -1."""
    return max((i for i, one in enumerate(dimensions) if wanted(one)), default=-1)


def _take(dimensions: list[Dimension], wanted: Callable[[Dimension], bool]) -> Dimension | None:
    place = _last(dimensions, wanted)
    return dimensions.pop(place) if place >= 0 else None
