"""Which kernel does a call, and how its work is cut: one function chooses, by geometry alone.

`docs/tuning-cuda.md` has the measurements behind the numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from polyphase.cuda.geometry import Dimension, Geometry
from polyphase.cuda.tables import HostTable
from polyphase.kernels.plans import MapsPlan

#: Elements that a row may extend over where a kernel counts them in 32 bits.
MOST_IN_ROW = 2**31 - 1
#: Shared memory of a block that lets a few blocks be resident.
SHARED = 48 * 1024
#: Fewer outputs have too few columns to walk down: each gets a thread of its own.
FEW_OUTPUTS = 1 << 20
#: Most taps, of both axes together, that one thread fetches at once.
MOST_AT_ONCE = 64
MOST_IN_RING = 8
MOST_IN_BYTE_RING = 21
#: Registers that a thread of the ring has for inputs that are fetched ahead.
RING_REGISTERS = 56


@dataclass(frozen=True)
class Way:
    """A kernel: its header and template, the constants behind the types, the threads of a block, and how many blocks a
    multiprocessor should hold. moved_bytes: of an element that is only moved. sums: it has a type of sums. tile and
    strip: pixels and rows that a block makes, where it has room for them."""

    header: str
    template: str
    constants: tuple[bool | int, ...]
    threads: int
    resident: int = 1
    sums: bool = True
    moved_bytes: int = 0
    tile: int = 0
    strip: int = 0


@dataclass(frozen=True)
class Cut:
    """How the work of a call is cut among blocks; `call.h` says what the numbers are."""

    blocks: tuple[int, int, int]
    shared_bytes: int = 0
    tiles: int = 1
    strips: int = 1
    tile: int = 0
    strip: int = 0
    span: int = 0
    staged_rows: int = 0


@dataclass(frozen=True)
class Facts:
    """What is chosen by: of the call, its tables (None of an axis that is not mapped) and the elements' bytes."""

    geometry: Geometry
    plan: MapsPlan
    x: HostTable | None
    y: HostTable | None
    z: HostTable | None
    bordered: bool
    from_bytes: int
    to_bytes: int
    #: What addresses are multiples of, source and target, in bytes.
    source_alignment: int
    target_alignment: int

    @property
    def length(self) -> int:
        """Elements of an output row."""
        return self.geometry.x.out_size * self.geometry.pixel.out_size

    @property
    def row_is_dense(self) -> bool:
        return _is_dense(self.geometry.pixel.in_stride, self.geometry.x.in_stride, self.geometry.pixel.in_size)

    @property
    def output_is_dense(self) -> bool:
        return _is_dense(self.geometry.pixel.out_stride, self.geometry.x.out_stride, self.geometry.pixel.out_size)


def _is_dense(within: int, between: int, count: int) -> bool:
    """Pixels, and what lies within them, side by side."""
    return (within == 1 or count == 1) and between == count


def choose(facts: Facts) -> Way:
    """The kernel for a call."""
    tables = [one for one in (facts.x, facts.y, facts.z) if one is not None]
    if not facts.plan.weighted:
        if facts.z is None and _fits_in_row(facts):
            return _moved(facts)
        return _general(facts)
    by_windows = all(one.index is None for one in tables) and facts.z is None
    if not by_windows or not _fits_in_row(facts):
        return _general(facts)
    kx, ky = (1 if one is None else one.taps for one in (facts.x, facts.y))
    few_taps = kx <= MOST_IN_RING and ky <= MOST_IN_RING
    outputs = facts.length * facts.geometry.y.out_size * facts.geometry.planes
    if kx * ky <= MOST_AT_ONCE and outputs < FEW_OUTPUTS:
        return _direct(facts, kx, ky)
    rows_ascend = facts.y is None or facts.y.ascends or facts.y.descends
    columns_ascend = facts.x is None or facts.x.ascends or facts.x.descends
    bytes_in_order = facts.plan.work == torch.uint8 and rows_ascend and columns_ascend and facts.x is not None
    if bytes_in_order and max(kx, ky) <= MOST_IN_BYTE_RING and not few_taps and facts.geometry.pixel.in_size <= 4:
        return _byte_ring(facts, kx, ky)
    if few_taps and rows_ascend:
        return _ring(facts, kx, ky)
    if rows_ascend and columns_ascend and facts.x is not None and facts.y is not None:
        way = _byte_shrink(facts) if facts.plan.work == torch.uint8 else _shrink(facts)
        dense = facts.plan.work == torch.uint8 or facts.row_is_dense
        if dense and cut(facts, way).shared_bytes <= SHARED * 2:
            return way
    return _general(facts)


def _fits_in_row(facts: Facts) -> bool:
    geometry = facts.geometry
    extent = geometry.x.in_size * abs(geometry.x.in_stride) + geometry.pixel.in_size * geometry.pixel.in_stride
    return max(extent, facts.length) * max(facts.from_bytes, facts.to_bytes) < MOST_IN_ROW


# ---- kernels


def _general(facts: Facts) -> Way:
    moved = 0 if facts.plan.source is not None else facts.from_bytes
    return Way("general", "General", (facts.bordered, 128), 128, sums=True, moved_bytes=moved)


def _direct(facts: Facts, kx: int, ky: int) -> Way:
    rows = max(1, min(4, 64 // (kx * ky)))
    threads = 64 if facts.geometry.pixel.in_size == 1 else 128
    return Way("direct", "Direct", (kx, ky, _step(facts), rows, facts.bordered, threads), threads, 512 // threads)


def _step(facts: Facts) -> int:
    """Small ones are known to the kernel, so that they are parts of addresses."""
    step = facts.geometry.x.in_stride
    return step if 1 <= step <= 4 else 0


def _ring(facts: Facts, kx: int, ky: int) -> Way:
    columns = 8
    while columns > 1 and not _fits_pixels(facts, columns):
        columns //= 2
    pixel = columns > 1
    if not pixel:
        columns = max(1, min(4, 16 // max(facts.from_bytes, facts.to_bytes)))
    size = 2 if facts.plan.work.itemsize == 8 else 1
    while columns > 1 and columns * kx * ky * size > RING_REGISTERS:
        columns //= 2
    pixel = pixel and columns > 1
    deep = columns * kx * ky * size <= RING_REGISTERS
    at_once = facts.output_is_dense and facts.length % columns == 0 and _stores_at_once(facts, columns)
    groups = _parts(facts.length, columns)
    threads = 64 if 10 * groups < 9 * 128 * _parts(groups, 128) else 128
    strip = 64 if columns * kx > 8 else 32
    constants = (kx, ky, columns, pixel, _step(facts), at_once, deep, facts.bordered, strip, threads)
    return Way("ring", "Ring", constants, threads, 512 // threads)


def _fits_pixels(facts: Facts, columns: int) -> bool:
    """Whether so many channels of a pixel can be read at once."""
    pixel = facts.geometry.pixel
    return (
        columns * facts.from_bytes <= 16
        and pixel.in_size % columns == 0
        and pixel.in_stride == 1
        and _all_multiples(facts, columns, source=True)
        and facts.source_alignment % (columns * facts.from_bytes) == 0
    )


def _all_multiples(facts: Facts, count: int, *, source: bool) -> bool:
    """Whether every row begins at a multiple of so many elements."""
    geometry = facts.geometry
    others = [geometry.y, geometry.z, *geometry.outer] + ([geometry.x] if source else [])
    return all((one.in_stride if source else one.out_stride) % count == 0 for one in others if _walked(one, source))


def _walked(one: Dimension, source: bool) -> bool:
    return (one.in_size if source else one.out_size) > 1


def _stores_at_once(facts: Facts, columns: int) -> bool:
    return _all_multiples(facts, columns, source=False) and facts.target_alignment % (columns * facts.to_bytes) == 0


def _shrink(facts: Facts) -> Way:
    row = facts.geometry.x.in_size * facts.geometry.pixel.in_size
    rows = replace(facts.geometry.x, in_stride=0)
    geometry = replace(facts.geometry, x=rows)
    at_once = (
        row % 4 == 0
        and _all_multiples(replace(facts, geometry=geometry), 4, source=True)
        and facts.source_alignment % (4 * facts.from_bytes) == 0
    )
    return Way(
        "shrink",
        "Shrink",
        (at_once, facts.bordered, 128),
        128,
        tile=max(1, 112 // facts.geometry.pixel.in_size),
        strip=32,
    )


def _byte_ring(facts: Facts, kx: int, ky: int) -> Way:
    assert facts.x is not None, "what is summed along x has a table"
    words, threads = _words(facts.x), 128
    constants = (words, ky, facts.geometry.pixel.in_size, _by_words(facts), facts.bordered, 16, threads)
    return Way("byte_ring", "ByteRing", constants, threads, 8, sums=False, strip=16)


def _words(table: HostTable) -> int:
    """Of a window that begins at a multiple of 4."""
    return (int((table.first % 4).max()) + table.taps + 3) // 4


def _byte_shrink(facts: Facts) -> Way:
    channels = facts.geometry.pixel.in_size
    known = channels if channels <= 4 else 0
    return Way(
        "byte_shrink", "ByteShrink", (known, _by_words(facts), facts.bordered, 256), 256, sums=False, tile=112, strip=16
    )


def _by_words(facts: Facts) -> bool:
    """Whether bytes can be read four at a time."""
    rows = replace(facts.geometry, x=replace(facts.geometry.x, in_stride=0))
    return (
        facts.row_is_dense
        and facts.from_bytes == 1
        and _all_multiples(replace(facts, geometry=rows), 4, source=True)
        and facts.source_alignment % 4 == 0
    )


def _moved(facts: Facts) -> Way:
    columns = max(1, min(8, 16 // max(facts.from_bytes, facts.to_bytes))) if facts.output_is_dense else 1
    while columns > 1 and not (facts.length % columns == 0 and _stores_at_once(facts, columns)):
        columns //= 2
    at_once = facts.output_is_dense
    runs = facts.from_bytes == 1 and columns >= 4 and facts.row_is_dense
    moved = 0 if facts.plan.source is not None else facts.from_bytes
    constants = (columns, at_once, runs, facts.bordered, 256)
    strip, resident = (32, 1) if facts.from_bytes == 2 else (16, 4)
    return Way("moved", "Moved", constants, 256, resident, sums=False, moved_bytes=moved, strip=strip)


# ---- how the work is cut


def cut(facts: Facts, way: Way) -> Cut:
    return _CUTS[way.template](facts, way)


def _cut_rows(facts: Facts, way: Way) -> Cut:
    geometry = facts.geometry
    tiles = _parts(facts.length, way.threads)
    rows = geometry.y.out_size * geometry.z.out_size
    return Cut(_blocks(tiles, rows, geometry.planes), tiles=tiles)


def _cut_direct(facts: Facts, way: Way) -> Cut:
    rows = int(way.constants[3])
    tiles = _parts(facts.length, way.threads)
    return Cut(_blocks(tiles, _parts(facts.geometry.y.out_size, rows), facts.geometry.planes), tiles=tiles)


def _cut_ring(facts: Facts, way: Way) -> Cut:
    _, ky, columns, *_, strip, _ = way.constants
    tiles = _parts(facts.length, way.threads * columns)
    strips = _parts(facts.geometry.y.out_size, strip)
    weight = 8 if facts.plan.work.itemsize == 8 else 4
    shared = strip * ky * weight + strip * 8
    return Cut(_blocks(tiles, strips, facts.geometry.planes), shared, tiles, strips, strip=strip)


def _cut_shrink(facts: Facts, way: Way) -> Cut:
    assert facts.x is not None, "a shrink along x has a table"
    assert facts.y is not None, "and one along y"
    channels, work = facts.geometry.pixel.in_size, max(facts.plan.work.itemsize, 4)
    strip, tile = way.strip, way.tile
    rows = _reach(facts.y, 4)
    while True:
        span = (_reach(facts.x, tile) * channels + 3 + 3) // 4 * 4
        shared = work * (4 * span + 4 * rows + facts.x.taps * tile) + 4 * tile
        if shared <= SHARED or tile == 1:
            break
        tile //= 2
    tiles, strips = _parts(facts.geometry.x.out_size, tile), _parts(facts.geometry.y.out_size, strip)
    blocks = _blocks(tiles, strips, facts.geometry.planes)
    return Cut(blocks, shared, tiles, strips, tile, strip, span, rows)


def _cut_byte_shrink(facts: Facts, way: Way) -> Cut:
    assert facts.x is not None, "a shrink along x has a table"
    assert facts.y is not None, "and one along y"
    channels, taps = facts.geometry.pixel.in_size, (facts.x.taps + 3 + 3) // 4 * 4
    rows = _reach(facts.y, 4)
    strip, tile = way.strip, way.tile
    while True:
        span = (_reach(facts.x, tile) + taps + 7) // 4 * 4
        shared = taps * 2 * tile + 4 * tile + 8 * channels * span + rows * channels * tile
        if shared <= SHARED or tile == 1:
            break
        tile //= 2
    tiles, strips = _parts(facts.geometry.x.out_size, tile), _parts(facts.geometry.y.out_size, strip)
    blocks = _blocks(tiles, strips, facts.geometry.planes)
    return Cut(blocks, (shared + 15) // 16 * 16, tiles, strips, tile, strip, span, rows)


def _cut_byte_ring(facts: Facts, way: Way) -> Cut:
    assert facts.x is not None, "what is summed along x has a table"
    _, ky, channels, _, _, rows, _ = way.constants
    pixels = way.threads // channels
    span = (_reach(facts.x, pixels) + 3 + 3) // 4 * 4 + 4
    shared = 4 * way.strip * (ky + 1) + rows * channels * span
    tiles, strips = _parts(facts.geometry.x.out_size, pixels), _parts(facts.geometry.y.out_size, way.strip)
    return Cut(_blocks(tiles, strips, facts.geometry.planes), shared, tiles, strips, pixels, way.strip, span)


def _cut_moved(facts: Facts, way: Way) -> Cut:
    columns = int(way.constants[0])
    groups = _parts(facts.length, columns)
    tile = min(groups, way.threads)
    strip = way.strip
    tiles, strips = _parts(groups, tile), _parts(facts.geometry.y.out_size, strip)
    together = way.threads // tile
    bands = _parts(strips, together)
    return Cut(
        _blocks(tiles, bands, facts.geometry.planes),
        0,
        tiles,
        strips,
        tile,
        strip,
        span=facts.geometry.x.in_size * facts.geometry.pixel.in_size,
    )


_CUTS = {
    "General": _cut_rows,
    "Direct": _cut_direct,
    "Ring": _cut_ring,
    "Shrink": _cut_shrink,
    "ByteShrink": _cut_byte_shrink,
    "ByteRing": _cut_byte_ring,
    "Moved": _cut_moved,
}


#: Kernels that read windows along x from left to right, and those of them that read them by words.
COLUMNS_ASCEND = ("Shrink", "ByteShrink", "ByteRing")
IN_FOURS = ("ByteShrink", "ByteRing")


def _reach(table: HostTable, count: int) -> int:
    """Inputs that any `count` neighbouring outputs read from, at most."""
    count = min(count, table.out_size)
    steps = (table.first[count - 1 :].long() - table.first[: table.out_size - count + 1].long()).abs()
    return int(steps.max()) + table.taps


def _parts(whole: int, part: int) -> int:
    return -(-whole // part)


def _blocks(along: int, down: int, planes: int) -> tuple[int, int, int]:
    """A GPU's limits: what is left beyond them, blocks do one after another."""
    return along, min(down, 65535), min(planes, 65535)
