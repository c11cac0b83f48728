"""Which kernel does a call, and how its work is cut: one function chooses, by geometry alone.

`docs/tuning-cuda.md` has the measurements behind the numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from polyphase.cuda.geometry import Dimension, Geometry
from polyphase.cuda.tables import HostTable, InStep, identity_table, in_step, progression, reach, reach_of_groups
from polyphase.kernels.plans import MapsPlan, Plan
from polyphase.sampling.pointwise import Value

#: Elements that a row may extend over, and rows of a plane, where a kernel counts them in 32 bits.
MOST_IN_ROW, MOST_ROWS_MOVED = 2**31 - 1, 2**30
#: Shared memory of a block that lets a few blocks be resident, and what every GPU has.
SHARED = 48 * 1024
MOST_SHARED = 64 * 1024
#: Fewer outputs have too few columns to walk down: a thread makes just a few of them.
FEW_OUTPUTS = 1 << 20
#: So many keep a GPU busy: where values only move, fewer have less to do each. Of sums it takes twice as many.
MANY_THREADS = 1 << 15
#: Bytes that a memory access takes, or hands out, at once.
LINE = 128
#: Most taps, of both axes together, that one thread fetches at once.
MOST_AT_ONCE = 64
MOST_ROWS = 4
MOST_IN_RING = 8
MOST_IN_BYTE_RING = 64
#: How a thread's outputs lie: `Stores` of vectors.h.
APART, BESIDE, AT_ONCE = range(3)
#: Registers that a thread has for inputs that are fetched ahead.
DIRECT_REGISTERS = 48
AHEAD_REGISTERS, MOST_AHEAD_REGISTERS, MOST_AHEAD = 36, 56, 8
#: And for rows that were summed along x.
RING_REGISTERS = 24
WALK_REGISTERS = 40


@dataclass(frozen=True)
class Way:
    """A kernel: its header and template, the constants behind the types, the threads of a block, and how many blocks a
    multiprocessor should hold. moved_bytes: of an element that is only moved. sums: it has a type of sums. tile and
    strip: pixels and rows that a block makes, where it has room for them. outer: the outer axes of its calls."""

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
class Case:
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
    #: Sizes are others from call to call.
    varies: bool = False

    @property
    def length(self) -> int:
        """Elements of an output row."""
        return self.geometry.x.out_size * self.geometry.pixel.out_size

    @property
    def outputs(self) -> int:
        return self.length * self.geometry.y.out_size * self.geometry.planes

    @property
    def channels(self) -> int:
        """Elements of a pixel."""
        return self.geometry.pixel.in_size

    @property
    def grows(self) -> bool:
        return self.geometry.y.out_size >= self.geometry.y.in_size

    @property
    def row_is_dense(self) -> bool:
        return _is_dense(self.geometry.pixel.in_stride, self.geometry.x.in_stride, self.geometry.pixel.in_size)

    @property
    def output_is_dense(self) -> bool:
        return _is_dense(self.geometry.pixel.out_stride, self.geometry.x.out_stride, self.geometry.pixel.out_size)


def _is_dense(within: int, between: int, count: int) -> bool:
    """Pixels, and what lies within them, side by side."""
    return (within == 1 or count == 1) and between == count


def loads_as_is(plan: Plan) -> bool:
    """Whether what is sampled is what lies in memory."""
    return plan.source is None or (plan.source == plan.work and isinstance(plan.prologue, Value))


def choose(case: Case) -> Way:
    """The kernel for a call. Most are made for numbers of taps and for how rows lie. Where sizes vary, small images
    have one that serves them all: a build would take longer than many calls. What large ones gain makes up for it."""
    if case.varies and case.outputs < FEW_OUTPUTS:
        return _general(case)
    tables = [one for one in (case.x, case.y, case.z) if one is not None]
    if not case.plan.weighted:
        fits = case.z is None and _fits_in_row(case) and case.geometry.y.out_size < MOST_ROWS_MOVED
        return _moved(case) if fits else _general(case)
    by_windows = all(one.index is None for one in tables) and case.z is None
    if not by_windows or not _fits_in_row(case):
        return _general(case)
    kx, ky = (1 if one is None else one.taps for one in (case.x, case.y))
    if kx * ky <= MOST_AT_ONCE and case.outputs < FEW_OUTPUTS:
        return _direct(case, kx)
    if case.y is not None and not (case.y.ascends or case.y.descends):
        return _general(case)
    if max(kx, ky) <= MOST_IN_RING:
        return _byte_walk(case, kx, ky) if _can_walk_bytes(case) else _ring(case, kx, ky)
    if _can_shrink(case):
        return _shrink(case)
    if (
        case.plan.work == torch.uint8
        and _all_in_order(case)
        and max(kx, ky) <= MOST_IN_BYTE_RING
        and case.channels <= 4
    ):
        way = _byte_ring(case, ky)
        return way if cut(case, way).shared_bytes <= MOST_SHARED else _general(case)
    return _general(case)


def _all_in_order(case: Case) -> bool:
    """Whether windows along x and y begin one behind the other."""
    tables = (case.x, case.y)
    return all(one is not None and one.index is None and (one.ascends or one.descends) for one in tables)


def _can_shrink(case: Case) -> bool:
    sums_floats = case.plan.weighted and case.plan.work != torch.uint8
    fits = sums_floats and case.z is None and _all_in_order(case) and case.row_is_dense and _fits_in_row(case)
    return fits and cut(case, _shrink(case)).shared_bytes <= MOST_SHARED


def _fits_in_row(case: Case) -> bool:
    return max(_row_bytes_in(case), case.length * max(case.from_bytes, case.to_bytes)) < MOST_IN_ROW


def _row_bytes_in(case: Case) -> int:
    """That an input row extends over."""
    x, pixel = case.geometry.x, case.geometry.pixel
    return (x.in_size * x.in_stride + pixel.in_size * pixel.in_stride) * max(case.from_bytes, case.to_bytes)


# ---- kernels


def _general(case: Case) -> Way:
    moved = 0 if case.plan.source is not None else case.from_bytes
    windows = case.z is None and all(
        one is not None and one.index is None and one.weight is not None for one in (case.x, case.y)
    )
    return Way("general", "General", (windows, case.bordered, 128), 128, moved_bytes=moved)


def _direct(case: Case, kx: int) -> Way:
    size, threads = 2 if case.plan.work.itemsize == 8 else 1, 64
    y = case.y or identity_table(case.geometry.y.out_size, case.plan.sampled)
    rows, ky = max(
        (rows, taps)
        for rows, taps in ((rows, reach_of_groups(y, rows)) for rows in range(1, MOST_ROWS + 1))
        if rows == 1 or taps * kx * size <= DIRECT_REGISTERS
    )
    channels = case.channels if case.channels <= 4 else 0
    resident = (640 if ky * kx * size <= DIRECT_REGISTERS else 512) // threads  # what more registers allow
    constants = (kx, ky, channels, _step(case), rows, case.bordered, threads)
    return Way("direct", "Direct", constants, threads, resident)


def _step(case: Case) -> int:
    """Small ones are known to the kernel, so that they are parts of addresses."""
    step = case.geometry.x.in_stride
    return step if 1 <= step <= 4 else 0


def _ring(case: Case, kx: int, ky: int) -> Way:
    # Where images grow, there are more outputs to store than rows to wait for.
    grows = case.grows
    size = 2 if case.plan.work.itemsize == 8 else 1
    few = next(rows for rows in (2, ky, 1) if ky % rows == 0)  # that can be fetched ahead
    columns = 8 if grows else max(1, 8 // max(case.from_bytes, 4))
    while columns > 1 and not _fits_pixels(case, columns):
        columns //= 2
    pixel = columns > 1
    if not pixel:
        most, wide = (4, 16) if grows else (2, 8)
        columns = max(1, min(most, wide // max(case.from_bytes, case.to_bytes)))
    while columns > 1 and not (
        columns * ky * size <= RING_REGISTERS and few * _row_registers(case, kx, columns, pixel) <= MOST_AHEAD_REGISTERS
    ):
        columns //= 2
    pixel = pixel and columns > 1
    shared = _shared(case, 1 if pixel else columns)
    row = _row_registers(case, kx, columns, pixel)
    # Elements of 16 bits are half as much on their way: more rows of them than the ring has.
    rows = [rows for rows in range(1, ky + 1) if ky % rows == 0] + (
        [2 * ky, 4 * ky] if grows and case.from_bytes <= 2 else []
    )
    ahead = max((one for one in rows if one * row <= AHEAD_REGISTERS and one <= MOST_AHEAD), default=1)
    ahead = max(ahead, few if few * row <= MOST_AHEAD_REGISTERS else 1)
    deep = ahead > ky
    threads = 128 if pixel and case.from_bytes > 2 else 64
    strip = 64 if pixel or deep else 32  # each begins with waiting for what is fetched ahead
    if case.outputs < 2 * MANY_THREADS * columns * strip:
        strip = 16
    constants = (
        kx,
        ky,
        columns,
        pixel,
        *shared,
        _step(case),
        _stores(case, columns),
        ahead,
        case.bordered,
        strip,
        threads,
    )
    few_registers = kx * ky * size <= 4 and not pixel and not deep
    return Way("ring", "Ring", constants, threads, (640 if few_registers else 512) // threads)


def _row_registers(case: Case, kx: int, columns: int, pixel: bool) -> int:
    """That hold what a thread reads of a row: `Inputs` of ring.h."""

    def registers(count: int) -> int:
        """Of elements that are read at once. Where images shrink, so much else is kept that words do not count."""
        in_words = case.from_bytes > 4 or (case.grows and count * case.from_bytes % 4 == 0)
        return count * case.from_bytes // 4 if in_words else count

    if pixel:
        return kx * registers(columns)
    found = _in_step(case, columns)
    if found is None:
        return columns * kx * registers(1)
    inner, together = found.inputs - 2 * found.edge, _shared(case, columns)[2]
    return inner // together * registers(together) + 2 * found.edge * registers(1)


def _in_step(case: Case, columns: int) -> InStep | None:
    return in_step(case.x, columns) if columns > 1 and case.channels == 1 and case.x is not None else None


def _shared(case: Case, columns: int) -> tuple[int, int, int]:
    """kFirsts, kEdge and kTogether of ring.h."""
    found = _in_step(case, columns)
    if found is None:
        return -1, 0, 1
    together = 16 // case.from_bytes
    while together > 1 and not (
        case.row_is_dense
        and (found.inputs - 2 * found.edge) % together == 0
        and found.multiple % together == 0
        and _rows_are_multiples(case, together)
    ):
        together //= 2
    return found.firsts, found.edge, together


def _fits_pixels(case: Case, columns: int) -> bool:
    """Whether so many channels of a pixel can be read at once."""
    pixel = case.geometry.pixel
    return (
        columns * case.from_bytes <= 16
        and pixel.in_size % columns == 0
        and pixel.in_stride == 1
        and _all_multiples(case, columns, source=True)
        and case.source_alignment % (columns * case.from_bytes) == 0
    )


def _all_multiples(case: Case, count: int, *, source: bool) -> bool:
    """Whether every row begins at a multiple of so many elements."""
    geometry = case.geometry
    others = [geometry.y, geometry.z, *geometry.outer] + ([geometry.x] if source else [])
    return all((one.in_stride if source else one.out_stride) % count == 0 for one in others if _walked(one, source))


def _rows_are_multiples(case: Case, count: int) -> bool:
    """Whether rows can be read so many elements at a time."""
    rows = replace(case.geometry, x=replace(case.geometry.x, in_stride=0))
    at_multiples = _all_multiples(replace(case, geometry=rows), count, source=True)
    return at_multiples and case.source_alignment % (count * case.from_bytes) == 0


def _walked(one: Dimension, source: bool) -> bool:
    return (one.in_size if source else one.out_size) > 1


def _stores(case: Case, columns: int) -> int:
    """How a thread's outputs lie."""
    if not case.output_is_dense:
        return APART
    aligned = _all_multiples(case, columns, source=False) and case.target_alignment % (columns * case.to_bytes) == 0
    fits = columns * case.to_bytes in (1, 2, 4, 8, 16) and case.length % columns == 0
    return AT_ONCE if fits and aligned else BESIDE


def _shrink(case: Case) -> Way:
    row = case.geometry.x.in_size * case.geometry.pixel.in_size
    at_once = row % 4 == 0 and _rows_are_multiples(case, 4)
    return Way(
        "shrink",
        "Shrink",
        (at_once, case.bordered, 128),
        128,
        tile=112 if case.channels == 1 else max(1, 224 // case.channels),
        strip=4,
    )


def _can_walk_bytes(case: Case) -> bool:
    return case.plan.work == torch.uint8 and loads_as_is(case.plan) and case.row_is_dense and case.channels <= 4


def _byte_walk(case: Case, kx: int, ky: int) -> Way:
    pixels, threads, strip = (2, 64, 32) if case.channels == 1 else (1, 128, 32)
    columns = pixels * case.channels
    aligned = _by_words(case) and case.geometry.x.in_size * case.channels % 4 == 0
    words = (kx * case.channels + 6) // 4
    ahead = max(1, min(2, WALK_REGISTERS // (words * pixels)))
    constants = (kx, ky, case.channels, pixels, aligned, _stores(case, columns), ahead, case.bordered, strip, threads)
    return Way("byte_walk", "ByteWalk", constants, threads, 768 // threads, sums=False)


def _byte_ring(case: Case, ky: int) -> Way:
    assert case.x is not None, "what is summed along x has a table"
    words, rows, strip = _words(case.x), 16, 16
    threads, resident = (256, 4) if case.channels == 1 else (128, 6)
    constants = (words, ky, case.channels, _by_words(case), case.bordered, rows, strip, threads)
    return Way("byte_ring", "ByteRing", constants, threads, resident, sums=False)


def _words(table: HostTable) -> int:
    """Of a window that begins at a multiple of 4."""
    return (int((table.first % 4).max()) + table.taps + 3) // 4


def _by_words(case: Case) -> bool:
    """Whether bytes can be read four at a time."""
    return case.row_is_dense and case.from_bytes == 1 and _rows_are_multiples(case, 4)


def _moved(case: Case) -> Way:
    most = 16 if case.from_bytes == 1 else 8
    size = max(case.from_bytes, case.to_bytes)
    columns = max(1, min(most, 16 // size)) if case.output_is_dense else 1
    while columns > 1 and _stores(case, columns) != AT_ONCE:
        columns //= 2
    # The less a thread reads of a row, the more rows, or threads, have to be on their way.
    rows, strip, resident = {1: (2, 8, 4), 2: (8, 16, 2)}.get(case.from_bytes, (4, 16, 4))
    if columns * size <= 8:
        rows, strip, resident = 4 if columns >= 8 else 8, 16, 6 if columns == 1 and size <= 4 else 4
    if case.bordered or case.plan.source is not None:  # which takes registers
        rows, resident = min(rows, 4), min(resident, 4)
    threads = 256
    if case.outputs < FEW_OUTPUTS:
        threads, resident = threads // 2, resident * 2
    for least_strip, least_bytes in ((2, 16), (2, 8), (1, 8), (1, 4)):
        while strip > least_strip and case.outputs < MANY_THREADS * columns * strip:
            strip //= 2
        while columns > 1 and columns * size > least_bytes and case.outputs < MANY_THREADS * columns * strip:
            columns //= 2
    goes = (0, 1) if case.x is None else progression(case.x)
    lies_so = goes is not None and (goes[1] == 1 or (goes[1] == -1 and case.channels == 1))
    several = columns > 1 and case.from_bytes <= 4 and columns * case.from_bytes >= 4
    by_words = several and case.row_is_dense and _row_bytes_in(case) < 2**29
    runs = by_words and (lies_so or (goes is None and case.from_bytes == 1))
    computed = goes is not None and case.y is None
    moved = 0 if case.plan.source is not None else case.from_bytes
    constants = (columns, case.output_is_dense, computed, runs, min(rows, strip), case.bordered, threads)
    return Way("moved", "Moved", constants, threads, resident, sums=False, moved_bytes=moved, strip=strip)


# ---- how the work is cut


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
    shared = (strip + 1) * _row_bytes(_parts(ky, 4) * 8)
    return Cut(_blocks(tiles, strips, case.geometry.planes), shared, tiles, strips, strip=strip)


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
    _, ky, channels, *_, rows, strip, _ = way.constants
    pixels = way.threads // channels
    span = (reach(case.x, pixels) + 3 + 3) // 4 * 4 + 4
    shared = strip * _row_bytes(_parts(ky, 4) * 8) + rows * channels * span
    tiles, strips = _parts(case.geometry.x.out_size, pixels), _parts(case.geometry.y.out_size, strip)
    return Cut(_blocks(tiles, strips, case.geometry.planes), shared, tiles, strips, pixels, strip, span)


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
    "ByteRing": _cut_byte_ring,
    "Moved": _cut_moved,
}


#: Kernels that read windows along x from left to right, and those of them that read them by words.
COLUMNS_ASCEND = ("Shrink", "ByteRing")
IN_FOURS = ("ByteRing",)


def _parts(whole: int, part: int) -> int:
    return -(-whole // part)


def _blocks(along: int, down: int, planes: int) -> tuple[int, int, int]:
    """A GPU's limits: what is left beyond them, blocks do one after another."""
    return along, min(down, 65535), min(planes, 65535)
