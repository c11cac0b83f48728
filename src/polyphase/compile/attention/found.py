"""Attention as it was read: how its tensors are made of leaves, and what was made of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, TypeVar

import torch
from torch import Tensor
from torch.fx import Node

from polyphase.calls.attention import DTYPES, MOST_LEVELS
from polyphase.compile.attention.parts import Part, Parts, along, joined, places, regrouped
from polyphase.compile.attention.samples import CHANNEL, PLANE, POINT, QUERY, LevelRead, Summed, Viewed, flat
from polyphase.compile.coordinates.algebra import Extent, Refused, extent_of, is_same
from polyphase.compile.coordinates.cutout import example
from polyphase.compile.coordinates.graph_calls import GraphCalls
from polyphase.compile.coordinates.recorded import Call
from polyphase.compile.reasons import Why
from polyphase.ops.attention import attention
from polyphase.sampling.steps import Size

Of = TypeVar("Of")
#: Of planes: their images and their heads.
ByHeads: TypeAlias = Callable[[Iterable[Part]], tuple[Parts, Parts]]


@dataclass(frozen=True)
class Leaf:
    """A tensor by its dimensions, as the operator takes it; arithmetic: what is computed of it before."""

    node: Node
    dims: tuple[Parts, ...]
    arithmetic: tuple[Call, ...] = ()


@dataclass(frozen=True)
class Found:
    """sizes: of levels. points: of each. out: the output's images, queries, heads and channels. result: the dimensions
    of what was made of it."""

    value: Leaf
    places: Leaf
    weights: Leaf
    sizes: tuple[tuple[Extent, Extent], ...]
    points: tuple[Extent, ...]
    align_corners: bool
    out: tuple[Extent, ...]
    result: tuple[Parts, ...]

    @classmethod
    def of(cls, leaves: Sequence[Node], seen: Summed) -> Found:
        levels = seen.levels
        if len(levels) > MOST_LEVELS:
            raise Refused(Why.NOT_ATTENTION, f"{len(levels)} levels")
        grid = levels[0].grid
        heads = _by_heads([part.count for part in grid.dims[0]])
        value, sizes = _value(levels, heads)
        places_read = _places(levels, heads)
        weights = _weights(seen, heads, places(grid.dims[0]))
        found = cls(
            Leaf(leaves[levels[0].image.leaf], value, levels[0].image.arithmetic),
            Leaf(leaves[grid.leaf], places_read, grid.arithmetic),
            Leaf(leaves[seen.weights.leaf], weights, seen.weights.arithmetic),
            sizes,
            tuple(level.points for level in levels),
            _the_same(level.align_corners for level in levels),
            (*map(places, weights[:3]), places(value[3])),
            (),
        )
        found.check()
        return replace(found, result=found.of_output(seen.dims))

    def check(self) -> None:
        """That the tensors fit each other, and kernels."""
        images, queries, heads, _ = self.out
        wanted = (images, queries, heads, sum(self.points))
        read = [*self.weights.dims, *self.places.dims[:4], self.value.dims[0], self.value.dims[2]]
        fit = zip((*wanted, *wanted, images, heads), read, strict=True)
        tensors = [example(one.node) for one in (self.value, self.places, self.weights)]
        if not all(is_same(n, places(parts)) for n, parts in fit):
            raise Refused(Why.NOT_ATTENTION, "tensors whose sizes do not fit")
        if len({one.dtype for one in tensors}) > 1 or tensors[0].dtype not in DTYPES:
            raise Refused(Why.ANOTHER_DTYPE)
        if len({one.device for one in tensors}) > 1:
            raise Refused(Why.ANOTHER_DEVICE)

    def of_output(self, dims: Iterable[Parts]) -> tuple[Parts, ...]:
        """Dimensions of what was summed, in parts of the output."""
        images, queries, heads, channels = (Part(axis, 1, n) for axis, n in enumerate(self.out))
        made_of = {PLANE: (images, heads), QUERY: (queries,), CHANNEL: (channels,)}
        parts = [part for one in dims for part in one]
        by: dict[Part, Parts] = {}
        for axis, whole in made_of.items():
            own = along(axis, parts, places(whole))
            kept = [part for part in whole if not is_same(part.count, 1)]
            by |= zip(own, regrouped(kept, [part.count for part in own]), strict=True)
        return tuple(flat(by[part] for part in one) for one in dims)

    def emitted(self, calls: GraphCalls, like: Tensor) -> Node:
        """`like`: what it stands for, whose strides it has."""
        value, grid, weights = (_arranged(calls, one) for one in (self.value, self.places, self.weights))
        sizes = [calls.size(n) for one in self.sizes for n in one]
        points = [calls.size(n) for n in self.points]
        made = calls.call(attention, value, grid, weights, sizes, points, self.align_corners)
        order = sorted(range(like.dim()), key=lambda dim: -_hint(like.stride()[dim]))
        lies = [self.result[dim] for dim in order]
        result = calls.call(torch.Tensor.contiguous, _in_dims(calls, made, self.out, lies))
        back = [order.index(dim) for dim in range(like.dim())]
        return result if back == sorted(back) else calls.call(torch.permute, result, back)


# ---- into the graph


def _arranged(calls: GraphCalls, leaf: Leaf) -> Node:
    node = _in_dims(calls, leaf.node, example(leaf.node).shape, leaf.dims)
    for one in leaf.arithmetic:
        node = calls.call(one.operator, *[node if isinstance(n, Tensor) else n for n in one.args], **one.kwargs)
    return node


def _in_dims(calls: GraphCalls, node: Node, shape: Sequence[Size | Extent], dims: Sequence[Parts]) -> Node:
    """All elements of a tensor of this shape, in other dimensions: views, and a copy where it takes one."""
    parts = [part for one in dims for part in one]
    apart = [part for axis, n in enumerate(shape) for part in along(axis, parts, n)]
    order = [apart.index(part) for part in parts]
    if [part.count for part in apart] != [extent_of(n) for n in shape]:
        node = calls.call(torch.reshape, node, [calls.size(part.count) for part in apart])
    if order != sorted(order):
        node = calls.call(torch.permute, node, order)
    if any(len(one) != 1 for one in dims):
        node = calls.call(torch.reshape, node, [calls.size(places(one)) for one in dims])
    return node


def _hint(stride: Size) -> int:
    """A symbolic one's as it was while tracing: it only says in which order dimensions lie."""
    return int(stride.node.hint) if isinstance(stride, torch.SymInt) else stride


# ---- tensors, by their levels


def _the_same(values: Iterable[Of]) -> Of:
    first, *others = values
    if any(one != first for one in others):
        raise Refused(Why.NOT_ATTENTION, "levels that are not alike")
    return first


def _by_heads(counts: Sequence[Extent]) -> ByHeads:
    """What parts planes: as places have them, which are of images and heads, or of one of them."""
    if len(counts) > 2:
        raise Refused(Why.NOT_ATTENTION, "planes of more than images and heads")

    def apart(planes: Iterable[Part]) -> tuple[Parts, Parts]:
        groups = regrouped(planes, counts)
        images, heads = ((),) * (2 - len(groups)) + groups
        return images, heads

    return apart


def _value(levels: Sequence[LevelRead], heads: ByHeads) -> tuple[tuple[Parts, ...], tuple[tuple[Extent, Extent], ...]]:
    """Images, pixels, heads and channels; and the levels' sizes."""
    images = [level.image for level in levels]
    _the_same((one.leaf, *map(_numbers, one.arithmetic)) for one in images)
    of_images, of_heads = _the_same(heads(one.dims[0]) for one in images)
    channels = _the_same(one.dims[1] for one in images)
    sizes = tuple((places(one.dims[2]), places(one.dims[3])) for one in images)
    pixels = [flat(one.dims[2:]) for one in images]
    return (of_images, _one_row(images, pixels), of_heads, channels), sizes


def _one_row(views: Sequence[Viewed], rows: Sequence[Parts]) -> Parts:
    """Rows of places along one axis, one level's behind the other's. A row of one place is no part."""
    known = next((row for row in rows if row), ())
    if not known and len(views) == 1:
        return ()
    if len(known) != 1:
        raise Refused(Why.NOT_ATTENTION, "levels that do not lie one behind the other")
    axis, step = known[0].axis, known[0].step
    begin: Extent = 0
    for view, row in zip(views, rows, strict=True):
        count = places(row)
        fits = row in ((), (Part(axis, step, count),))
        if not fits or not is_same(view.begins(axis), begin * step) or any(one != axis for one, _ in view.first):
            raise Refused(Why.NOT_ATTENTION, "levels that do not lie one behind the other")
        begin = begin + count
    return (Part(axis, step, begin),)


def _places(levels: Sequence[LevelRead], heads: ByHeads) -> tuple[Parts, ...]:
    """Images, queries, heads, points, and x and y."""
    grids = [level.grid for level in levels]
    _the_same((one.leaf, *map(_numbers, one.arithmetic)) for one in grids)
    of_images, of_heads = _the_same(heads(one.dims[0]) for one in grids)
    queries, of_xy = _the_same((one.dims[1], one.dims[3]) for one in grids)
    return of_images, queries, of_heads, _points(grids), of_xy


def _numbers(call: Call) -> tuple[Any, ...]:
    """What a call computes of its tensor."""
    given = (*call.args, *sorted(call.kwargs.items()))
    return call.operator, *(None if isinstance(one, Tensor) else one for one in given)


def _points(grids: Sequence[Viewed]) -> Parts:
    """Levels along an axis of their own, or their points one behind the other."""
    points = [one.dims[2] for one in grids]
    moved = {axis for one in grids for axis, _ in one.first}
    if not moved and len(grids) == 1:
        return points[0]
    if len(moved) != 1 or any(part.axis in moved for one in points for part in one):
        return _one_row(grids, points)
    (axis,) = moved
    step, own = grids[1].begins(axis), _the_same(points)
    if not all(is_same(one.begins(axis), number * step) for number, one in enumerate(grids)):
        raise Refused(Why.NOT_ATTENTION, "places of levels in another order")
    return joined((Part(axis, step, len(grids)), *own))


def _weights(seen: Summed, heads: ByHeads, planes: Extent) -> tuple[Parts, ...]:
    """Images, queries, heads and points."""
    by = dict(seen.by)
    if any(part.axis == CHANNEL for part in by):
        raise Refused(Why.NOT_ATTENTION, "weights of channels")
    queries, points = places(seen.levels[0].grid.dims[1]), sum(level.points for level in seen.levels)
    of_planes, of_queries, of_points = (
        flat(by[part] for part in along(axis, by, size))
        for axis, size in ((PLANE, planes), (QUERY, queries), (POINT, points))
    )
    of_images, of_heads = heads(of_planes)
    return of_images, of_queries, of_heads, of_points
