"""Gradients of a warp by CUDA kernels: which there are, and in which order they run.

The gradient of a grid, and that of a matrix, are sums in a fixed order. The image's is added up by atomic operations:
of floats, which is fastest; or, where torch is to be deterministic, of integers (`fixed_point.h`), for which no order
matters.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

import torch
from torch import Tensor

from polyphase.calls.bound import Gradients
from polyphase.calls.shares import Shares, are_shares
from polyphase.cuda import warps
from polyphase.cuda.warps import PreparedWarp, Tiles
from polyphase.cuda.ways import Cut, Way
from polyphase.kernels.plans import plan_gradients
from polyphase.records.facts import elements
from polyphase.records.layout import dense_strides
from polyphase.records.records import GradientRecord

#: What is added to the image's gradient: `Adding` of warp_gradients.h.
NOTHING, FLOATS, INTEGERS, NOT_FINITE = range(4)
#: A kernel and its tensors: what it takes for its target and its source, coordinates, their gradient, the largest
#: values of all planes, the image's gradient, and a formula's fields. None for what it does not read.
Execute: TypeAlias = "Callable[[PreparedWarp, list[Tensor | None]], None]"
#: A new tensor of a shape and dtype, dense and not filled.
New: TypeAlias = "Callable[[tuple[int, ...], torch.dtype], Tensor]"

#: Channels that are fetched together; pixels side by side in a warp, warps side by side, and threads of a block.
TOGETHER, THREADS, REGISTERS = 4, (8, 2, 128), 64
ROWS_SEARCHED = 16


class WarpGradients:
    """Makes the gradients of one kind of call. Without elements in its output, all are 0, and there are no kernels."""

    def __init__(self, record: GradientRecord, architecture: str) -> None:
        image, sampler = record.image, record.sampler
        axes = len(image.shape) - 2
        self._record, self._is_empty = record, 0 in record.gradient.shape
        if self._is_empty:
            return
        self._plan = plan_gradients(record, architecture)
        self._strides = dense_strides(image.shape, False)
        self._given = warps.described(sampler, image, record.gradient, record.coordinates, [])
        pixels = elements(record.gradient.shape[2:])
        strides = [self._strides, *(one.strides for one in record.fields.tensors)]
        own = {
            "tensor_strides": [n for one in strides for n in warps.image_strides(one)],
            "sum_bits": [max(pixels - 1, 0).bit_length()],
        }
        self._given = {**self._given, **own}
        self._affine = sampler.source == "affine"
        self._sums = axes * (axes + 1) if self._affine else sampler.formula.entries if sampler.formula else 0
        self._slopes = record.needed[1] and sampler.mode != "nearest"
        self._largest, self._to_floats = self._find_largest(), self._convert()
        self._passes = {adding: self._pass(adding) for adding in (NOTHING, FLOATS, INTEGERS, NOT_FINITE)}

    def kernels(self, deterministic: bool) -> list[PreparedWarp]:
        """Those that run, in their order."""
        if self._is_empty:
            return []
        if not self._record.needed[0]:
            return [self._passes[NOTHING]] if self._slopes else []
        if not deterministic:
            return [self._passes[FLOATS]]
        return [self._largest, self._passes[INTEGERS], self._to_floats, self._passes[NOT_FINITE]]

    def run(
        self,
        execute: Execute,
        new: New,
        deterministic: bool,
        gradient: Tensor,
        image: Tensor,
        coordinates: Tensor,
        *fields: Tensor,
    ) -> Gradients:
        record = self._record
        if self._is_empty:
            return tuple(
                torch.zeros_like(one, memory_format=torch.contiguous_format) if need else None
                for one, need in zip(
                    (image, coordinates, *fields),
                    (record.needed[0], *[record.needed[1]] * (1 + len(fields))),
                    strict=True,
                )
            )
        work = self._plan.work
        of_coordinates = self._new_shares(new) if self._slopes else None
        of_image = new(tuple(image.shape), work) if record.needed[0] else None
        given: list[Tensor | None] = [gradient, image, coordinates, of_coordinates]
        if of_image is None:
            if self._slopes:
                execute(self._passes[NOTHING], [*given, None, None, *fields])
        elif not deterministic:
            execute(self._passes[FLOATS], [*given, None, of_image.zero_(), *fields])
        else:
            planes = image.shape[0] * image.shape[1]
            largest = new((planes, 2), torch.int64).zero_()
            sums = new((work.itemsize // 4, *image.shape), torch.int64).zero_()
            execute(self._largest, [gradient, image, coordinates, None, largest, None, *fields])
            execute(self._passes[INTEGERS], [*given, largest, sums, *fields])
            execute(self._to_floats, [of_image, image, coordinates, None, largest, sums, *fields])
            execute(self._passes[NOT_FINITE], [gradient, image, coordinates, None, largest, of_image, *fields])
        found = None if of_image is None else of_image.to(image.dtype)
        if not record.needed[1]:
            return found, *[None for _ in (coordinates, *fields)]
        return found, *self._coordinate_gradients(of_coordinates, coordinates, fields)

    def _coordinate_gradients(
        self, shares: Tensor | None, coordinates: Tensor, fields: Sequence[Tensor]
    ) -> Sequence[Tensor]:
        if shares is None:
            contiguous = torch.contiguous_format
            return [torch.zeros_like(one, memory_format=contiguous) for one in (coordinates, *fields)]
        if not are_shares(self._record):
            return [shares.to(coordinates.dtype)]
        return self._shares().added_up(shares, coordinates, fields)

    def _shares(self) -> Shares:
        """How the blocks of an image share in its sums."""
        call = self._passes[FLOATS].given
        blocks = int(math.prod(call[name][0] for name in ("chunks", "strips", "tiles")))
        return Shares.of(self._record, blocks, self._plan.positions)

    def _new_shares(self, new: New) -> Tensor:
        """Makes room for the blocks' shares; of a grid, its gradient."""
        if are_shares(self._record):
            return new((self._shares().doubles,), torch.float64)
        return new(tuple(self._record.coordinates.shape), self._plan.positions)

    def _pass(self, adding: int) -> PreparedWarp:
        """The kernel that adds; the one of what is not finite leaves the coordinates alone."""
        record, image, plan = self._record, self._record.image, self._plan
        planes = [(one.shape, one.strides) for one in (image, record.gradient)]
        planes += [(record.gradient.shape, one.strides) for one in record.fields.tensors]
        far = warps.is_far(record.coordinates, *planes, (image.shape, self._strides))
        slopes = self._slopes and adding != NOT_FINITE
        together = warps.divisor(image.shape[1], 1 if plan.mode == "bicubic" else TOGETHER)
        dense = tuple(image.strides) == tuple(self._strides)
        wide, across, threads = THREADS
        constants = (self._affine, far, together, dense, adding, slopes, wide, across, threads)
        resident = warps.resident_blocks(plan, 96 if plan.mode == "bicubic" else REGISTERS, threads)
        way = Way("warp_gradients", "WarpGradients", constants, threads, resident, sums=False)
        shared = warps.TILE_BYTES + (8 * self._sums * threads if slopes else 0)
        tiles = Tiles(together, 1, wide, across, threads)
        per_pixel = slopes and (not self._sums or bool(record.fields.tensors))  # what all its channels add up to
        return warps.cut_into_tiles(plan, way, self._given, tiles, per_pixel, shared)

    def _find_largest(self) -> PreparedWarp:
        threads = 128
        way = Way("fixed_point", "FindLargest", (ROWS_SEARCHED, threads), threads, sums=False)
        depth, height, _ = self._given["out_size"]
        strips = math.ceil(depth * height / ROWS_SEARCHED)
        blocks = (1, min(strips, warps.MOST_BLOCKS), self._planes_at_once())
        given = {**self._given, "strips": [strips]}
        return PreparedWarp(self._plan, way, Cut(blocks, 16 * threads), given)

    def _convert(self) -> PreparedWarp:
        threads, each = 256, 8
        way = Way("fixed_point", "ToFloats", (threads,), threads, sums=False)
        pixels = elements(self._record.image.shape[2:])
        blocks = (math.ceil(pixels / (threads * each)), 1, self._planes_at_once())
        return PreparedWarp(self._plan, way, Cut(blocks), self._given)

    def _planes_at_once(self) -> int:
        return min(elements(self._record.image.shape[:2]), warps.MOST_BLOCKS)
