"""Tiles of `byte_tiles.h`: which calls have them, and how an image is cut into them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from polyphase.cuda.cases import Case, Way
from polyphase.cuda.matrices import INPUTS, MOST_MATRICES, as_matrices, can_be_matrices, matrices_of, most_read
from polyphase.cuda.tables import GROUP, MATRIX_BYTES, MadeTable, Table, reach

TEMPLATE = "ByteTiles"
#: Groups along x and down y, the first that shared memory has room for, and what that is.
SHAPES = ((4, 2), (4, 1), (2, 1), (1, 1))
ROOM = 40 * 1024
#: Values of a byte are looked up by the channel, which is one of few.
MOST_CHANNELS = 4
#: Calls that a block has in shared memory: of its tile, of those that follow, and of the one before.
CALLS = 4
#: Bytes of facts of tiles, and of a piece that memory hands out at once.
_FACTS, _PIECE = 320, 16
#: Threads of a block, and of a multiprocessor that has few registers for each: a pixel's channels take more.
_THREADS, _RESIDENT, _RESIDENT_OF_PIXELS = 128, 640, 512


class Layout(NamedTuple):
    """Of an image: its planes, and channels of a pixel. head: bytes of shared memory before those of weights,
    without calls."""

    planes: int
    channels: int
    head: int

    @staticmethod
    def of(case: Case) -> Layout:
        planes, channels = case.geometry.planes, case.channels
        values = planes * channels
        looked_up = 256 * values * case.to_bytes if case.to_bytes > 1 else 0
        return Layout(planes, channels, _FACTS + 16 * (values + 1) + looked_up)


class Axis(NamedTuple):
    """matrices: of a group of outputs. inputs: that so many neighbouring outputs read, at most."""

    out_size: int
    matrices: int
    inputs: Callable[[int], int]

    @staticmethod
    def of(table: Table) -> Axis:
        if isinstance(table, MadeTable):
            return Axis.of_sizes(table.in_size, table.cropped, table.resized, table.out_size)
        return Axis(table.out_size, _parts(reach(table, GROUP), INPUTS), lambda count: reach(table, count))

    @staticmethod
    def of_sizes(in_size: int, cropped: int, resized: int, out_size: int) -> Axis:
        """Of windows that are made on the device."""

        def inputs(count: int) -> int:
            return min(in_size, most_read(cropped, resized, min(count, out_size)))

        return Axis(out_size, matrices_of(cropped, resized), inputs)


class TileCut(NamedTuple):
    """In the order of `call.h`, and what comes with it. tiles: all of an image. along: of them, those along a row.
    matrices: of a group of outputs along either axis."""

    tiles: int
    along: int
    tile: int
    strip: int
    span: int
    staged_rows: int
    matrices: int
    shared_bytes: int


def cut(layout: Layout, x: Axis, y: Axis) -> TileCut | None:
    """None where groups read too much. The launcher does the same (`sized_rows.h`)."""
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
        """Of its tiles, as they follow each other: rows that are read of each of its columns."""
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


def cut_of(case: Case) -> TileCut | None:
    assert case.x is not None, "what is summed along x has a table"
    assert case.y is not None, "and so has what is summed along y"
    return cut(Layout.of(case), Axis.of(case.x), Axis.of(case.y))


def fits(case: Case) -> bool:
    """Of a case that walks over bytes, by tables along x and y."""
    geometry = case.geometry
    if case.bordered or geometry.x.tensors or len(geometry.outer) != 1 or geometry.outer[0].map is not None:
        return False
    if geometry.planes * case.channels > MOST_CHANNELS or geometry.x.out_stride != 1 or geometry.z.out_size != 1:
        return False
    tables = [one for one in (case.x, case.y) if one is not None]
    return len(tables) == 2 and all(map(can_be_matrices, tables)) and cut_of(case) is not None


def way(cases: Sequence[Case]) -> Way:
    planes, channels = cases[0].geometry.planes, cases[0].channels
    resident = (_RESIDENT if channels == 1 else _RESIDENT_OF_PIXELS) // _THREADS
    constants = (planes, channels, all(map(_in_fours, cases)), _THREADS)
    return Way("byte_tiles", TEMPLATE, constants, _THREADS, resident, sums=False, tiled=True)


def most_blocks(way: Way, call_bytes: int, processors: int, shared_bytes: int) -> int:
    """That a device has room for, of so many processors with so much shared memory each."""
    of_block = ROOM + call_bytes + 1024  # which the device takes
    return processors * max(1, min(way.resident, shared_bytes // of_block))


def _in_fours(case: Case) -> bool:
    """Whether four neighbouring outputs can be stored at once."""
    geometry = case.geometry
    others = [one for one in (geometry.y, *geometry.outer, geometry.pixel) if one.out_size > 1]
    aligned = case.target_alignment % (4 * case.to_bytes) == 0 and all(one.out_stride % 4 == 0 for one in others)
    return aligned and geometry.x.out_size % 4 == 0 and case.to_bytes <= 4


def tables_of(case: Case, x: Table, y: Table) -> tuple[Table, Table]:
    """Along x and y, of windows."""
    found = cut_of(case)
    assert found is not None, "what was chosen by"
    return as_matrices(x, found.matrices, along_x=True), as_matrices(y, found.matrices, along_x=False)


def _parts(whole: int, part: int) -> int:
    return -(-whole // part)
