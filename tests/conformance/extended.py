"""Resizes in extended precision, for float64 to be held against. They share nothing with `src/`."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy
import numpy.typing
from torch import Tensor

Real = numpy.longdouble
Array: TypeAlias = "numpy.typing.NDArray[Real]"

HAS_MORE_THAN_FLOAT64 = bool(numpy.finfo(Real).eps < numpy.finfo(numpy.float64).eps / 100)
PI = 4 * numpy.arctan(Real(1))
HALF = Real(0.5)


def triangle(x: Array) -> Array:
    return numpy.maximum(1 - abs(x), 0)


def cubic(a: float) -> Callable[[Array], Array]:
    def weight(x: Array) -> Array:
        x = abs(x)
        near = ((Real(a) + 2) * x - (Real(a) + 3)) * x * x + 1
        far = Real(a) * (((x - 5) * x + 8) * x - 4)
        weights: Array = numpy.where(x < 1, near, numpy.where(x < 2, far, Real(0)))
        return weights

    return weight


def lanczos(x: Array) -> Array:
    return numpy.where(abs(x) < 3, _sinc(x) * _sinc(x / 3), Real(0))


def _sinc(x: Array) -> Array:
    angle = PI * numpy.where(x == 0, Real(1), x)
    ratio: Array = numpy.where(x == 0, Real(1), numpy.sin(angle) / angle)
    return ratio


ANTIALIASED: dict[str, tuple[int, Callable[[Array], Array]]] = {
    "bilinear": (1, triangle),
    "bicubic": (2, cubic(-0.5)),
    "lanczos": (3, lanczos),
}
PLAIN = {"bilinear": (1, triangle), "bicubic": (2, cubic(-0.75))}


def resize(image: Tensor, size: Sequence[int], filter: str, antialias: bool, align_corners: bool) -> Array:
    """The spatial axes of (batch, channels, ...), one after the other. `filter`: bilinear, bicubic, lanczos or area."""
    result: Array = image.double().numpy().astype(Real)
    for axis, after in enumerate(size, start=2):
        rows = matrix(result.shape[axis], after, filter, antialias, align_corners)
        result = numpy.moveaxis(numpy.moveaxis(result, axis, -1) @ rows.T, -1, axis)
    return result


@functools.cache
def matrix(before: int, after: int, filter: str, antialias: bool, align_corners: bool) -> Array:
    rows = numpy.zeros((after, before), Real)
    for i in range(after):
        if filter == "area":
            first, last = i * before // after, math.ceil((i + 1) * before / after)
            rows[i, first:last] = Real(1) / (last - first)
        elif antialias:
            _antialiased_row(rows[i], i, Real(before) / after, filter)
        else:
            _plain_row(rows[i], _source(i, before, after, align_corners), filter)
    return rows


def _antialiased_row(row: Array, i: int, ratio: Any, filter: str) -> None:
    support, weight = ANTIALIASED[filter]
    stretch, centre = max(ratio, Real(1)), ratio * (i + HALF)
    first = max(int(centre - support * stretch + HALF), 0)
    last = min(int(centre + support * stretch + HALF), len(row))
    weights = weight((numpy.arange(first, last).astype(Real) - centre + HALF) / stretch)
    row[first:last] = weights / weights.sum()


def _source(i: int, before: int, after: int, align_corners: bool) -> Any:
    if align_corners:
        return Real(before - 1) / (after - 1) * i
    return Real(before) / after * (i + HALF) - HALF


def _plain_row(row: Array, source: Any, filter: str) -> None:
    """What lies outside is the edge: its weights are added up. Bilinear's positions stop at the first pixel."""
    support, weight = PLAIN[filter]
    source = max(source, Real(0)) if filter == "bilinear" else source
    left = int(numpy.floor(source))
    for pixel in range(left - support + 1, left + support + 1):
        row[min(max(pixel, 0), len(row) - 1)] += weight(numpy.asarray(source - pixel))
