"""How the work of a call is cut among blocks, for each kernel."""

from __future__ import annotations

from dataclasses import dataclass

from polyphase.cuda import tiles
from polyphase.cuda.cases import Case, Way
from polyphase.cuda.tables import reach

#: Shared memory of a block that lets a few blocks be resident, and what every GPU has.
SHARED = 48 * 1024
MOST_SHARED = 64 * 1024
#: Bytes that a memory access takes, or hands out, at once.
LINE = 128


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


def cut(case: Case, way: Way) -> Cut:
    return _CUTS[way.template](case, way)


def _cut_rows(case: Case, way: Way) -> Cut:
    geometry = case.geometry
    tiles = _parts(case.length, way.threads)
    rows = geometry.y.out_size * geometry.z.out_size
    return Cut(_blocks(tiles, rows, geometry.planes), tiles=tiles)


def _cut_direct(case: Case, way: Way) -> Cut:
    rows = int(way.constants[4])
    tiles = _parts(case.length, way.threads)
    return Cut(_blocks(tiles, _parts(case.geometry.y.out_size, rows), case.geometry.planes), tiles=tiles)


def _cut_ring(case: Case, way: Way) -> Cut:
    _, ky, columns, *_, strip, _ = way.constants
    tiles = _parts(case.length, way.threads * columns)
    strips = _parts(case.geometry.y.out_size, strip)
    shared = (strip + 1) * _row_bytes(ky * (8 if case.plan.work.itemsize == 8 else 4))
    return Cut(_blocks(tiles, strips, case.geometry.planes), shared, tiles, strips, strip=strip)


def _cut_byte_walk(case: Case, way: Way) -> Cut:
    _, ky, _, pixels, *_, strip, _ = way.constants
    tiles, strips = _parts(case.geometry.x.out_size, way.threads * pixels), _parts(case.geometry.y.out_size, strip)
    shared = (strip + 1) * _row_bytes(_parts(ky, 4) * 8) + _looked_up_bytes(case)
    return Cut(_blocks(tiles, strips, case.geometry.planes), shared, tiles, strips, strip=strip)


def _cut_byte_stage(case: Case, way: Way) -> Cut:
    _, ky, channels, *_, rows, buffers, strip, _ = way.constants
    tiles, strips = _parts(case.geometry.x.out_size, tile_of(way)), _parts(case.geometry.y.out_size, strip)
    around = 15 + 6  # `kAround` of byte_stage.h
    staged = rows * buffers * _parts(staged_reach(way) * channels + around, 16) * 16
    shared = (strip + 1) * _row_bytes(_parts(ky, 4) * 8) + _looked_up_bytes(case) + staged
    return Cut(_blocks(tiles, strips, case.geometry.planes), shared, tiles, strips, strip=strip)


def tile_of(way: Way) -> int:
    """Pixels that a block of byte_stage.h makes."""
    return way.threads * int(way.constants[3])


def staged_reach(way: Way) -> int:
    """Pixels that they may read: `kReach` of byte_stage.h."""
    kx = int(way.constants[0])
    return tile_of(way) * max(kx, 2) // 2 + kx + 1


def _looked_up_bytes(case: Case) -> int:
    """`ByteOutputs` of byte_pairs.h."""
    is_looked_up = case.to_bytes > 1 and not case.geometry.x.tensors
    return 256 * case.channels * case.to_bytes if is_looked_up else 0


def _row_bytes(weight_bytes: int) -> int:
    """`OutputRow` of rows.h."""
    return _parts(weight_bytes + 8, 16) * 16


def _cut_shrink(case: Case, way: Way) -> Cut:
    assert case.x is not None, "a shrink along x has a table"
    assert case.y is not None, "and one along y"
    channels, work = case.geometry.pixel.in_size, max(case.plan.work.itemsize, 4)
    strip, tile = way.strip, way.tile
    rows = reach(case.y, 4)
    while True:
        span = (reach(case.x, tile) * channels + 3 + 3) // 4 * 4
        shared = work * (4 * span + 4 * rows + case.x.taps * tile) + 4 * tile
        if shared <= SHARED or tile == 1:
            break
        tile //= 2
    tiles, strips = _parts(case.geometry.x.out_size, tile), _parts(case.geometry.y.out_size, strip)
    blocks = _blocks(tiles, strips, case.geometry.planes)
    return Cut(blocks, shared, tiles, strips, tile, strip, span, rows)


def _cut_byte_ring(case: Case, way: Way) -> Cut:
    assert case.x is not None, "what is summed along x has a table"
    words, ky, channels, *_, rows, strip, _ = way.constants
    pixels = way.threads // channels
    # Windows begin at multiples of 4, and are read as far as the widest that the kernel has.
    span = (reach(case.x, pixels) - case.x.taps + 3) // 4 * 4 + 4 * words
    shared = strip * _row_bytes(_parts(ky, 4) * 8) + rows * channels * span
    tiles, strips = _parts(case.geometry.x.out_size, pixels), _parts(case.geometry.y.out_size, strip)
    return Cut(_blocks(tiles, strips, case.geometry.planes), shared, tiles, strips, pixels, strip, span)


def _cut_byte_tiles(case: Case, way: Way) -> Cut:
    found = tiles.cut_of(case)
    assert found is not None, "what was chosen by"
    *numbers, _, shared = found
    return Cut((found.tiles, 1, 1), shared, *numbers)


def _cut_moved(case: Case, way: Way) -> Cut:
    groups = _parts(case.length, int(way.constants[0]))
    # Long pieces of a row, but few threads without a group: the greatest power of two that leaves an eighth of them at
    # most, or else as few as can be.
    least = (LINE // (int(way.constants[0]) * case.to_bytes)).bit_length() - 1
    threads = {one: _parts(groups, 1 << one) << one for one in range(least, way.threads.bit_length())}
    enough = max(groups + groups // 8, min(threads.values()))
    power = max(one for one, count in threads.items() if count <= enough)
    tiles, strips = _parts(groups, 1 << power), _parts(case.geometry.y.out_size, way.strip)
    bands = _parts(strips, way.threads >> power)
    span = case.geometry.x.in_size * case.geometry.pixel.in_size
    return Cut(_blocks(tiles, bands, case.geometry.planes), 0, tiles, strips, power, way.strip, span)


_CUTS = {
    "General": _cut_rows,
    "Direct": _cut_direct,
    "Ring": _cut_ring,
    "Shrink": _cut_shrink,
    "ByteWalk": _cut_byte_walk,
    "ByteStage": _cut_byte_stage,
    "ByteStages": _cut_byte_stage,
    "ByteRing": _cut_byte_ring,
    tiles.TEMPLATE: _cut_byte_tiles,
    "Moved": _cut_moved,
}


def _parts(whole: int, part: int) -> int:
    return -(-whole // part)


def _blocks(along: int, down: int, planes: int) -> tuple[int, int, int]:
    """A GPU's limits: what is left beyond them, blocks do one after another."""
    return along, min(down, 65535), min(planes, 65535)
