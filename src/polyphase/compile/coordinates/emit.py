"""Coordinates that were found, put into Dynamo's graph: the tensors of a formula, or a matrix, made of the leaves."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import Graph, Node

from polyphase.compile.coordinates.algebra import Known, Part, Read, Refused, Value, is_same, known, reads_of
from polyphase.compile.coordinates.cutout import example
from polyphase.compile.coordinates.found import Found, Tensors
from polyphase.compile.coordinates.graph_calls import GraphCalls
from polyphase.compile.reasons import Why
from polyphase.sampling.pointwise import BINARY, Binary, Select, Unary
from polyphase.sampling.steps import Size, size_slot
from polyphase.sampling.text import to_text
from polyphase.sampling.warps import Warp

_BINARY: dict[str, Callable[..., Any]] = {
    **BINARY,
    "minimum": torch.minimum,
    "maximum": torch.maximum,
}


class Emitter(GraphCalls):
    """Puts nodes into a graph that compute formulas' numbers of a grid's leaves."""

    def __init__(self, graph: Graph, image: Node, grid: Node, leaves: Sequence[Node], before: Node) -> None:
        super().__init__(graph, before)
        self._image, self._leaves = image, leaves
        self._dtype, self._device = example(grid).dtype, example(grid).device
        self._places: Sequence[Size] = example(grid).shape[:-1]  # that each digit counts
        self._entries_read: dict[Read, Node] = {}

    def affine(self, found: Found, matrix: list[list[Value]], rules: tuple[Any, ...]) -> Node:
        """`rules`: mode, padding, alignment, fill and its rule, as operators take them."""
        shape = (self.size(self._batch()), len(matrix), len(matrix) + 1)
        theta = self.call(torch.reshape, self._side_by_side([one for row in matrix for one in row]), shape)
        size = [self.size(n) for n in (*example(self._image).shape[:2], *found.size)]
        return self.call(torch.ops.polyphase.affine_sample.default, self._image, theta, size, *rules)

    def formula(self, found: Found, rules: tuple[Any, ...]) -> Node:
        tensors = Tensors(found)
        formula, symbolic = tensors.formula()
        sizes = list(symbolic)
        for n in found.size:
            if not isinstance(n, int):
                sizes.append(known(n).number)
        slots = iter(range(len(symbolic), len(sizes)))
        size = tuple(n if isinstance(n, int) else size_slot(next(slots)) for n in found.size)
        mode, padding, aligned, fill, fill_rule = rules
        warp = to_text(Warp("formula", mode, padding, aligned, size, tuple(fill or ()), fill_rule, formula))
        fields = [self._field(one, len(found.size)) for one in tensors.fields]
        filled = [self.number(one) for one in sizes] or None
        given = (self._image, self._entries(tensors.entries), fields, warp, filled)
        return self.call(torch.ops.polyphase.formula_warp.default, *given)

    # ---- tensors

    def _entries(self, reads: list[Read]) -> Node:
        if reads:
            return self._side_by_side(reads)
        shape = (self.size(self._batch()), 0)
        return self.call(torch.empty, shape, dtype=self._dtype, device=self._device)

    def _side_by_side(self, values: Sequence[Value]) -> Node:
        """Makes a tensor of shape (N, count): a view of a leaf, where values lie there as they are to lie."""
        leaf, first = self._run_of(values)
        if leaf is None:
            images: Size = self._batch() if any(map(_is_per_image, values)) else 1
            made = self.call(torch.stack, [self._per_image(one, images) for one in values], 1)
        else:
            images, *rest = example(leaf).shape
            flat = self.call(torch.reshape, leaf, (self.size(images), math.prod(map(int, rest))))
            made = self.call(torch.narrow, flat, 1, first, len(values))
        return self.call(torch.broadcast_to, made, (self.size(self._batch()), len(values)))

    def _run_of(self, values: Sequence[Value]) -> tuple[Node | None, int]:
        """The leaf that has them one after the other, and where they begin in what it has of an image."""
        places = [one.place if isinstance(one, Read) else None for one in values]
        first, reads = places[0], {(one.leaf, one.index[:1]) for one in values if isinstance(one, Read)}
        if first is None or places != list(range(first, first + len(values))) or len(reads) > 1:
            return None, 0
        leaf = self._leaves[values[0].leaf]
        whole = all(is_same(part.extent, self._batch()) for index in values[0].index[:1] for part in index)
        return (leaf, first) if whole and example(leaf).dtype == self._dtype else (None, 0)

    def _per_image(self, value: Value, images: Size) -> Node:
        """Makes a tensor of shape (images,)."""
        return self.call(torch.broadcast_to, self._computed(value), (self.size(images),))

    def _computed(self, value: Value) -> Node:
        match value:
            case Known(number):
                given = self.number(number)
                return self.call(torch.scalar_tensor, given, dtype=self._dtype, device=self._device)
            case Read():
                if value not in self._entries_read:
                    self._entries_read[value] = self._converted(value, self._read(value)[0])
                return self._entries_read[value]
            case Unary(op, of):
                return self.call(getattr(torch, op), self._computed(of))
            case Binary(op, left, right):
                return self.call(_BINARY[op], self._computed(left), self._computed(right))
            case Select(left, right, greater, otherwise):
                condition = self.call(operator.gt, self._computed(left), self._computed(right))
                return self.call(torch.where, condition, self._computed(greater), self._computed(otherwise))
        raise Refused(Why.NOT_A_FORMULA, str(value))

    def _field(self, read: Read, axes: int) -> Node:
        """Makes a view of a shape that broadcasts to (N, 1, out...)."""
        node, digits = self._read(read)
        ordered = sorted(digits)
        if ordered != digits:
            node = self.call(torch.permute, node, [digits.index(one) for one in ordered])
        missing = [digit for digit in range(axes + 1) if digit not in digits]
        for digit in missing:
            node = self.call(torch.unsqueeze, node, digit)
        return self.call(torch.unsqueeze, node, 1)

    def _read(self, read: Read) -> tuple[Node, list[int]]:
        """The elements that a read is of, and the digits that its dimensions are."""
        node, indices = self._leaves[read.leaf], read.index
        if any(len(index) > 1 for index in indices):
            parts = [part for index in indices for part in index]
            node = self.call(torch.reshape, node, [self.size(part.extent) for part in parts])
            indices = tuple((part,) for part in parts)
        digits: list[int] = []
        for dim, index in reversed(list(enumerate(indices))):
            (part,) = index or (Part(1),)
            if part.digit is None:
                node = self.call(torch.select, node, dim, self.size(part.at))
                continue
            count = self._places[part.digit]
            if not is_same(part.extent, count):
                node = self.call(torch.narrow, node, dim, self.size(part.at), self.size(count))
            digits.insert(0, part.digit)
        return node, digits

    def _converted(self, read: Read, node: Node) -> Node:
        is_so = example(self._leaves[read.leaf]).dtype == self._dtype
        return node if is_so else self.call(torch.ops.aten.to.dtype, node, self._dtype)

    def _batch(self) -> Size:
        size: Size = example(self._image).shape[0]
        return size


def _is_per_image(value: Value) -> bool:
    """Whether it may be another for another image of the batch."""
    return any(part.digit is not None for read in reads_of(value) for index in read.index for part in index)
