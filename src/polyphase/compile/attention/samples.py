"""What a graph's part computes, read from the calls of ATen that it makes: views of leaves; samples of some of them at
others; samples with weights; and sums of these over all points.

    a view, sampled  ->  `Samples`  ->  stacked, multiplied  ->  `Weighted`  ->  summed  ->  `Summed`

All are tensors whose dimensions are parts, so that one reader of a view serves all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import torch
from torch import Tensor

from polyphase.compile.attention.parts import Part, Parts, joined, places, quotient, regrouped, whole
from polyphase.compile.coordinates.algebra import Extent, Refused, extent_of, is_same
from polyphase.compile.coordinates.recorded import Call, Recording
from polyphase.compile.reasons import Why

aten = torch.ops.aten

#: Axes of samples: a level's planes (images and heads), their channels, and a grid's rows and columns, of which the
#: columns are points.
PLANE, CHANNEL, QUERY, POINT = range(4)


@dataclass(frozen=True)
class Viewed:
    """The `leaf`-th tensor from a place on. first: by axis, where that is not 0. arithmetic: calls with numbers."""

    dims: tuple[Parts, ...]
    leaf: int
    first: tuple[tuple[int, Extent], ...] = ()
    arithmetic: tuple[Call, ...] = ()

    def begins(self, axis: int) -> Extent:
        return dict(self.first).get(axis, 0)

    def moved(self, axis: int, by: Extent) -> Viewed:
        first = {**dict(self.first), axis: extent_of(self.begins(axis) + by)}
        return replace(self, first=tuple(sorted((axis, at) for axis, at in first.items() if not is_same(at, 0))))


@dataclass(frozen=True)
class LevelRead:
    """points: of the grid's columns."""

    image: Viewed
    grid: Viewed
    align_corners: bool
    points: Extent


@dataclass(frozen=True)
class Samples:
    dims: tuple[Parts, ...]
    levels: tuple[LevelRead, ...]


@dataclass(frozen=True)
class Weighted:
    """by: the weights' parts for each part of the samples."""

    dims: tuple[Parts, ...]
    levels: tuple[LevelRead, ...]
    weights: Viewed
    by: tuple[tuple[Part, Parts], ...]


@dataclass(frozen=True)
class Summed(Weighted):
    """Over all points."""


Seen: TypeAlias = "Viewed | Samples | Weighted"


class Reading:
    """Reads one recording, whose inputs are leaves."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._leaves = {id(one): number for number, one in enumerate(recording.inputs)}
        self._seen: dict[int, Seen] = {}

    def of(self, tensor: Tensor) -> Seen:
        if id(tensor) not in self._seen:
            self._seen[id(tensor)] = self._read(tensor)
        return self._seen[id(tensor)]

    def _read(self, tensor: Tensor) -> Seen:
        if id(tensor) in self._leaves:
            return Viewed(whole(tensor.shape), self._leaves[id(tensor)])
        call = self._recording.made(tensor)
        if call is None or call.operator not in READERS:
            raise Refused(Why.NOT_ATTENTION, "a constant" if call is None else str(call.operator))
        return READERS[call.operator](self, call)

    def view(self, tensor: Tensor) -> Viewed:
        seen = self.of(tensor)
        if not isinstance(seen, Viewed):
            raise Refused(Why.NOT_ATTENTION, "samples of samples")
        return seen


# ---- views


def _same(reading: Reading, call: Call) -> Seen:
    return reading.of(call.args[0])


def _view(reading: Reading, call: Call) -> Seen:
    seen = reading.of(call.args[0])
    return replace(seen, dims=regrouped((part for one in seen.dims for part in one), call.result.shape))


def _permute(reading: Reading, call: Call) -> Seen:
    seen = reading.of(call.args[0])
    return replace(seen, dims=tuple(seen.dims[dim] for dim in call.args[1]))


def _transpose(reading: Reading, call: Call) -> Seen:
    given, seen = call.arguments(), reading.of(call.args[0])
    dims = list(seen.dims)
    first, second = given["dim0"], given["dim1"]
    dims[first], dims[second] = dims[second], dims[first]
    return replace(seen, dims=tuple(dims))


def _expand(reading: Reading, call: Call) -> Seen:
    seen = reading.of(call.args[0])
    if len(seen.dims) != call.result.dim() or not all(
        is_same(places(parts), n) for parts, n in zip(seen.dims, call.result.shape, strict=True)
    ):
        raise Refused(Why.NOT_ATTENTION, "a tensor that is repeated")
    return seen


def _dim(call: Call) -> int:
    dim: int = call.arguments()["dim"] % call.args[0].dim()
    return dim


def _narrowed(reading: Reading, call: Call, dim: int, start: Extent, count: Extent) -> Viewed:
    """So many places of a dimension: of its first part, whose places each have all of the others'. Of one, no part is
    left."""
    seen = reading.view(call.args[0])
    if is_same(count, places(seen.dims[dim])):
        return seen
    first, *inner = seen.dims[dim]
    number, begin = (quotient(n, places(inner)) for n in (count, extent_of(start)))
    if number is None or begin is None:
        raise Refused(Why.NOT_ATTENTION, f"{call.operator} across what a dimension was put together of")
    left = () if is_same(number, 1) else (Part(first.axis, first.step, number),)
    cut = replace(seen, dims=(*seen.dims[:dim], (*left, *inner), *seen.dims[dim + 1 :]))
    return cut.moved(first.axis, begin * first.step)


def _slice(reading: Reading, call: Call) -> Viewed:
    given, dim = call.arguments(), _dim(call)
    start = given["start"] or 0
    if given["step"] != 1 or (isinstance(start, int) and start < 0):
        raise Refused(Why.NOT_ATTENTION, str(call.operator))
    return _narrowed(reading, call, dim, extent_of(start), extent_of(call.result.shape[dim]))


def _select(reading: Reading, call: Call) -> Viewed:
    dim, place, n = _dim(call), call.arguments()["index"], call.args[0].shape[_dim(call)]
    start = place + n if isinstance(place, int) and place < 0 else place
    narrowed = _narrowed(reading, call, dim, extent_of(start), 1)
    return replace(narrowed, dims=(*narrowed.dims[:dim], *narrowed.dims[dim + 1 :]))


def _split(reading: Reading, call: Call) -> Viewed:
    given, dim = call.arguments(), _dim(call)
    assert call.position is not None, "there are several results"
    sizes = given.get("split_sizes")
    start = sum(sizes[: call.position]) if sizes is not None else given["split_size"] * call.position
    return _narrowed(reading, call, dim, extent_of(start), extent_of(call.result.shape[dim]))


def _unbind(reading: Reading, call: Call) -> Viewed:
    dim = _dim(call)
    assert call.position is not None, "there are several results"
    narrowed = _narrowed(reading, call, dim, call.position, 1)
    return replace(narrowed, dims=(*narrowed.dims[:dim], *narrowed.dims[dim + 1 :]))


# ---- arithmetic with numbers, which is done to the whole leaf as well


def _arithmetic(reading: Reading, call: Call) -> Viewed:
    if not is_by_numbers(call):
        raise Refused(Why.NOT_ATTENTION, f"{call.operator} of two tensors")
    (tensor,) = tensors_of(call)
    seen = reading.view(tensor)
    if call.result.dtype != tensor.dtype:
        raise Refused(Why.ANOTHER_DTYPE, str(call.operator))
    return replace(seen, arithmetic=(*seen.arithmetic, call))


def tensors_of(call: Call) -> list[Tensor]:
    return [one for one in (*call.args, *call.kwargs.values()) if isinstance(one, Tensor)]


def is_by_numbers(call: Call) -> bool:
    """Whether a call has one tensor, and else numbers that stand in the code."""
    others = [one for one in (*call.args, *call.kwargs.values()) if not isinstance(one, Tensor)]
    return len(tensors_of(call)) == 1 and all(isinstance(one, int | float) for one in others)


# ---- samples


def _sampled(reading: Reading, call: Call) -> Samples:
    given = call.arguments()
    if (given["interpolation_mode"], given["padding_mode"]) != (0, 0):
        raise Refused(Why.NOT_ATTENTION, "samples that are not bilinear with zeros around")
    image, grid = reading.view(given["input"]), reading.view(given["grid"])
    dims = whole(call.result.shape)
    level = LevelRead(image, grid, bool(given["align_corners"]), extent_of(call.result.shape[3]))
    return Samples(dims, (level,))


def _put_together(reading: Reading, call: Call) -> Samples:
    """Levels one behind the other: along a dimension of their own, or along their points."""
    parts = [reading.of(one) for one in call.args[0]]
    first, dim = parts[0], int(call.arguments().get("dim", 0)) % call.result.dim()
    is_stacked = call.operator is aten.stack.default
    if not all(isinstance(one, Samples) and len(one.levels) == 1 for one in parts):
        raise Refused(Why.NOT_ATTENTION, f"{call.operator} of something else than samples of levels")
    levels = tuple(level for one in parts if isinstance(one, Samples) for level in one.levels)
    points = [level.points for level in levels]
    dims = [_around(one.dims, dim, is_stacked) for one in parts]
    if any(one != dims[0] for one in dims[1:]) or not isinstance(first, Samples):
        raise Refused(Why.NOT_ATTENTION, "levels that lie in different orders")
    if is_stacked or is_same(places(first.dims[dim]), 1):
        own: Parts = (Part(POINT, points[0], len(levels)),) if len(levels) > 1 else ()
        inner = [] if is_stacked else list(first.dims[dim])
        if any(not is_same(n, points[0]) for n in points) or inner:
            raise Refused(Why.NOT_ATTENTION, "levels of different numbers of points that are stacked")
    else:
        if any(one.dims[dim] != _points(level.points) for one, level in zip(parts, levels, strict=True)):
            raise Refused(Why.NOT_ATTENTION, f"{call.operator} along something else than points")
        own = (Part(POINT, 1, sum(points)),)
    before, after = first.dims[:dim], first.dims[dim:] if is_stacked else first.dims[dim + 1 :]
    return Samples((*before, own, *after), levels)


def _points(count: Extent) -> Parts:
    return () if is_same(count, 1) else (Part(POINT, 1, count),)


def _around(dims: tuple[Parts, ...], dim: int, is_stacked: bool) -> tuple[Parts, ...]:
    """All that is to be the same of tensors that are put together."""
    return dims if is_stacked else (*dims[:dim], *dims[dim + 1 :])


def _multiplied(reading: Reading, call: Call) -> Seen:
    if is_by_numbers(call):
        return _arithmetic(reading, call)
    one, other = (reading.of(tensor) for tensor in tensors_of(call))
    samples, weights = (one, other) if isinstance(one, Samples) else (other, one)
    if not isinstance(samples, Samples) or not isinstance(weights, Viewed) or len(samples.dims) < len(weights.dims):
        raise Refused(Why.NOT_ATTENTION, "a product of something else than samples and weights")
    if len({tensor.dtype for tensor in tensors_of(call)}) > 1:
        raise Refused(Why.ANOTHER_DTYPE, str(call.operator))
    missing = len(samples.dims) - len(weights.dims)
    by: list[tuple[Part, Parts]] = []
    for parts, of_weights in zip(samples.dims, ((),) * missing + weights.dims, strict=True):
        if of_weights:
            by += zip(parts, regrouped(of_weights, [part.count for part in parts]), strict=True)
    return Weighted(samples.dims, samples.levels, weights, tuple(by))


def _summed(reading: Reading, call: Call) -> Weighted:
    given, of = call.arguments(), reading.of(call.args[0])
    if not isinstance(of, Weighted) or isinstance(of, Summed) or given.get("dtype") not in (None, call.args[0].dtype):
        raise Refused(Why.NOT_ATTENTION, "a sum of something else than weighted samples")
    dims = {dim % len(of.dims) for dim in given["dim"] or range(len(of.dims))}
    if any(part.axis != POINT for dim in dims for part in of.dims[dim]):
        raise Refused(Why.NOT_ATTENTION, "a sum over something else than points")
    left = tuple(
        () if dim in dims else parts for dim, parts in enumerate(of.dims) if dim not in dims or given["keepdim"]
    )
    is_done = not any(part.axis == POINT for parts in left for part in parts)
    return (Summed if is_done else Weighted)(left, of.levels, of.weights, of.by)


Reader: TypeAlias = Callable[[Reading, Call], Seen]


#: Reads what computes nothing.
VIEWS: dict[Any, Reader] = {
    **dict.fromkeys((aten.clone.default, aten.alias.default), _same),
    **dict.fromkeys((aten.view.default, aten._unsafe_view.default, aten.reshape.default), _view),
    **dict.fromkeys((aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims), _view),
    aten.unsqueeze.default: _view,
    aten.permute.default: _permute,
    aten.transpose.int: _transpose,
    aten.expand.default: _expand,
    aten.select.int: _select,
    aten.slice.Tensor: _slice,
    aten.unbind.int: _unbind,
    **dict.fromkeys((aten.split.Tensor, aten.split_with_sizes.default), _split),
}


BY_NUMBERS: dict[Any, Reader] = dict.fromkeys(
    (aten.mul.Tensor, aten.add.Tensor, aten.sub.Tensor, aten.div.Tensor, aten.rsub.Scalar), _arithmetic
)


READERS: dict[Any, Reader] = {
    **VIEWS,
    **BY_NUMBERS,
    aten.mul.Tensor: _multiplied,
    aten.grid_sampler_2d.default: _sampled,
    **dict.fromkeys((aten.stack.default, aten.cat.default), _put_together),
    aten.sum.dim_IntList: _summed,
}


def flat(parts: Iterable[Parts]) -> Parts:
    return joined(part for one in parts for part in one)
