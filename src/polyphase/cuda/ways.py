"""A way is a kernel with its constants; the launcher chooses it (`launch/device_ways.h`)."""

from __future__ import annotations

import functools
import struct
from dataclasses import dataclass, replace
from typing import NamedTuple

#: Fewer outputs have too few columns to walk down: a thread makes just a few of them.
FEW_OUTPUTS = 1 << 20
#: So many keep a GPU busy: where values only move, fewer have less to do each. Of sums it takes twice as many.
MANY_THREADS = 1 << 15
#: Fewer bytes have too few threads, of those that walk, to wait for memory.
FEW_TO_WALK = 1 << 24

#: Taps of bytes, where images of several sizes have one kernel; and the most of kernels that keep rows in registers.
FEW_TAPS, MOST_IN_RING = 4, 8
TAPS_OF_BATCHES = (FEW_TAPS, MOST_IN_RING, 16, 32, 64)
#: Bytes from row to row, of rows that are walked along, which kernels count in 32 bits.
MOST_BETWEEN_ROWS = 2**22
#: Shared memory of a block that every GPU has.
MOST_SHARED = 64 * 1024
TILES, BY_STAGE = "ByteTiles", ("ByteStage", "ByteStages")


class Kernel(NamedTuple):
    """sums: it has a type of sums. tiled: blocks take tile after tile of all calls."""

    header: str
    sums: bool
    tiled: bool = False


#: By their templates, in the order of `Kernel` of device_cases.h.
KERNELS = {
    "General": Kernel("general", sums=True),
    "Direct": Kernel("direct", sums=True),
    "Ring": Kernel("ring", sums=True),
    "Shrink": Kernel("shrink", sums=True),
    "ByteWalk": Kernel("byte_walk", sums=False),
    "ByteStage": Kernel("byte_stage", sums=False),
    "ByteStages": Kernel("byte_stage", sums=False),
    "ByteRing": Kernel("byte_ring", sums=False),
    TILES: Kernel("byte_tiles", sums=False, tiled=True),
    "Moved": Kernel("moved", sums=False),
}
TEMPLATES = (*KERNELS,)


@dataclass(frozen=True)
class Way:
    """A kernel: its header and template, the constants behind the types, the threads of a block, and how many blocks a
    multiprocessor should hold. moved_bytes: of an element that is only moved. sums: it has a type of sums. tile and
    strip: pixels and rows that a block makes, where it has room for them. outer: the outer axes of its calls. batched:
    a launch has a table of them. lets_next_begin: once it has begun, the next kernel may take what it leaves free.
    tiled: then blocks take tile after tile of all calls."""

    header: str
    template: str
    constants: tuple[bool | int, ...]
    threads: int
    resident: int = 1
    sums: bool = True
    moved_bytes: int = 0
    tile: int = 0
    strip: int = 0
    outer: int = 1
    batched: bool = False
    lets_next_begin: bool = True
    tiled: bool = False

    def of_call(self, outer: int) -> Way:
        """The way of a call with so many outer axes."""
        return self if self.outer == outer else replace(self, outer=outer)


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


#: `Way` of device_cases.h: kernel, constants, which of them are booleans, and the rest.
_MOST_CONSTANTS = 13
_WAY = struct.Struct(f"={3 + _MOST_CONSTANTS + 6}q")


@functools.lru_cache(maxsize=1024)
def unpacked(data: bytes) -> Way:
    """Reads a way of axis maps, as the launcher says it."""
    kernel, count, booleans, *rest = _WAY.unpack(data)
    constants = tuple([bool(one) if booleans >> i & 1 else one for i, one in enumerate(rest[:count])])
    threads, resident, moved_bytes, tile, strip, outer = rest[_MOST_CONSTANTS:]
    header, sums, tiled = KERNELS[TEMPLATES[kernel]]
    sizes = {"moved_bytes": moved_bytes, "tile": tile, "strip": strip, "outer": outer}
    return Way(header, TEMPLATES[kernel], constants, threads, resident, sums, tiled=tiled, **sizes)


@functools.lru_cache(maxsize=1024)
def packed(way: Way) -> bytes:
    booleans = sum(1 << i for i, one in enumerate(way.constants) if isinstance(one, bool))
    constants = (*map(int, way.constants), *[0] * (_MOST_CONSTANTS - len(way.constants)))
    rest = (way.threads, way.resident, way.moved_bytes, way.tile, way.strip, way.outer)
    return _WAY.pack(TEMPLATES.index(way.template), len(way.constants), booleans, *constants, *rest)
