"""Tiles of `byte_tiles.h`: how an image is cut into them, and how they are dealt out. The launcher does the same, for
images whose steps follow from their sizes (`launch/device_tiles.h`, `launch/sized_table.h`)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from polyphase.cuda.made_tables import GROUP, MATRIX_BYTES
from polyphase.cuda.maps import About
from polyphase.cuda.ways import Way

#: Inputs of a matrix, and matrices of a group of outputs.
INPUTS, MOST_MATRICES = 32, 2
#: Groups along x and down y, the first that shared memory has room for, and what that is.
SHAPES = ((4, 2), (4, 1), (2, 1), (1, 1))
ROOM = 40 * 1024
#: Calls that a block has in shared memory: of its tile, of those that follow, and of the one before.
CALLS = 4
#: Bytes that memory hands out at once.
_PIECE = 16


class Layout(NamedTuple):
    """What tiles ask of an image: its planes, and channels of a pixel. head: bytes of shared memory before those of
    weights, without calls."""

    planes: int
    channels: int
    head: int

    @staticmethod
    def of(about: About) -> Layout:
        return Layout(about.planes, about.channels, about.tile_head)


class Axis(NamedTuple):
    """matrices: of a group of outputs. inputs: that so many neighbouring outputs read, at most."""

    out_size: int
    matrices: int
    inputs: Callable[[int], int]

    @staticmethod
    def of_sizes(in_size: int, cropped: int, resized: int, out_size: int) -> Axis:
        """Makes an axis of windows that are made on the device."""

        def inputs(count: int) -> int:
            return min(in_size, most_read(cropped, resized, min(count, out_size)))

        return Axis(out_size, matrices_of(cropped, resized), inputs)


def most_read(cropped: int, resized: int, count: int) -> int:
    """Inputs that any `count` neighbouring outputs of a triangle's windows read, at most: a window of an output at c
    lies in [c - s - 0.5, c + s + 0.5), where s is its support."""
    ratio = cropped / resized
    return math.ceil((count - 1) * ratio + 2 * max(ratio, 1.0) + 1e-4)


def matrices_of(cropped: int, resized: int) -> int:
    """How many matrices a group has, also where there are fewer outputs: of those that have few, precision is 16 bits
    at most, as their greatest weight is more than 1/4."""
    return -(-most_read(cropped, resized, GROUP) // INPUTS)


class TileCut(NamedTuple):
    """The cut of a call into tiles, in the order of `call.h`, and what comes with it. tiles: all of an image. along: of
    them, those along a row. matrices: of a group of outputs along either axis."""

    tiles: int
    along: int
    tile: int
    strip: int
    span: int
    staged_rows: int
    matrices: int
    shared_bytes: int


def cut(layout: Layout, x: Axis, y: Axis) -> TileCut | None:
    """None where groups read too much. The launcher does the same (`device_tiles.h`)."""
    matrices = max(x.matrices, y.matrices)
    if matrices > MOST_MATRICES:
        return None
    for columns, units in SHAPES:
        rows = y.inputs(GROUP * units)
        # An odd number of pieces: rows that are read at once lie in different banks of shared memory.
        span = (_parts(_PIECE - 1 + x.inputs(GROUP * columns) * layout.channels + 4, _PIECE) | 1) * _PIECE
        weights = (columns + units) * matrices * MATRIX_BYTES
        # Rows are read 16 at a time, and bytes of as many inputs as matrices have.
        staged = (layout.planes * rows + 15) * span + INPUTS * layout.channels * matrices
        shared = layout.head + weights + _parts(staged, _PIECE) * _PIECE
        if shared <= ROOM:
            along = _parts(x.out_size, GROUP * columns)
            tiles = along * _parts(y.out_size, GROUP * units)
            return TileCut(tiles, along, columns, units, span, rows, matrices, shared)
    return None


class Listed(NamedTuple):
    """An image that is cut: groups of outputs in a tile, along x and down y, rows of the image for them, and groups in
    all."""

    tile: int
    strip: int
    staged_rows: int
    columns: int
    units: int

    def costs(self) -> Iterator[int]:
        """Counts for each tile, as they follow each other, the rows that are read of each of its columns."""
        for unit in range(0, self.units, self.strip):
            of_column = min(self.strip, self.units - unit) * (self.staged_rows // self.strip)
            for column in range(0, self.columns, self.tile):
                yield min(self.tile, self.columns - column) * of_column


def dealt(images: Sequence[Listed], blocks: int) -> list[tuple[int, int]]:
    """Tiles by their image and their number in it, in turns of so many blocks, which take one of each. By cost they are
    dealt out to and fro, so that all blocks have as much to do; and every block begins at another of its own: if all
    had tiles of one cost at a time, they would wait for memory together, and then leave it alone together. The launcher
    does the same (`sized_table.h`)."""
    costs = {(i, number): cost for i, one in enumerate(images) for number, cost in enumerate(one.costs())}
    tiles = sorted(costs, key=costs.__getitem__, reverse=True)
    blocks = min(blocks, len(tiles))
    turns, left = divmod(len(tiles), blocks)
    result = list(tiles)
    for block in range(blocks):
        own = [turn * blocks + (block if turn % 2 == 0 else blocks - 1 - block) for turn in range(turns)]
        own += [turns * blocks + block] if block < left else []
        for turn in range(len(own)):
            result[turn * blocks + block] = tiles[own[(turn + block) % len(own)]]
    return result


def most_blocks(way: Way, call_bytes: int, processors: int, shared_bytes: int) -> int:
    """That a device has room for, of so many processors with so much shared memory each."""
    of_block = ROOM + call_bytes + 1024  # which the device takes
    return processors * max(1, min(way.resident, shared_bytes // of_block))


def _parts(whole: int, part: int) -> int:
    return -(-whole // part)
