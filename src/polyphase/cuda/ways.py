"""Which kernel does a call: one function chooses, by geometry alone.

`docs/tuning-cuda.md` has the measurements behind the numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from polyphase.cuda import tiles
from polyphase.cuda.cases import Case, Way
from polyphase.cuda.cuts import MOST_SHARED, cut, staged_reach, tile_of
from polyphase.cuda.geometry import Dimension
from polyphase.cuda.tables import (
    InStep,
    MadeTable,
    Table,
    identity_table,
    in_step,
    progression,
    reach,
    reach_of_groups,
    words_in_fours,
)
from polyphase.kernels.plans import Plan
from polyphase.sampling.pointwise import Value

#: Elements that a row may extend over, and rows of a plane, where a kernel counts them in 32 bits.
MOST_IN_ROW, MOST_ROWS_MOVED = 2**31 - 1, 2**30
#: Bytes from row to row, of rows that are walked along, and of all that a strip reads: they are counted in 32 bits.
MOST_BETWEEN_ROWS, MOST_WALKED = 2**22, 2**32
#: Rows that a strip of byte_walk.h makes, and that it reads ahead.
WALKED_ROWS, WALKED_AHEAD = 32, 2
#: Fewer outputs have too few columns to walk down: a thread makes just a few of them.
FEW_OUTPUTS = 1 << 20
#: Fewer bytes have too few threads, of those that walk, to wait for memory.
FEW_TO_WALK = 1 << 24
#: So many keep a GPU busy: where values only move, fewer have less to do each. Of sums it takes twice as many.
MANY_THREADS = 1 << 15
#: Most taps, of both axes together, that one thread fetches at once.
MOST_AT_ONCE = 64
MOST_ROWS = 4
MOST_IN_RING = 8
MOST_IN_BYTE_RING = 64
#: Taps of bytes, where images of several sizes have one kernel.
FEW_TAPS = 4
TAPS_OF_BATCHES = (FEW_TAPS, 8, 16, 32, 64)
#: How a thread's outputs lie: `Stores` of vectors.h.
APART, BESIDE, AT_ONCE = range(3)
#: Registers that a thread has for inputs that are fetched ahead.
DIRECT_REGISTERS = 48
AHEAD_REGISTERS, MOST_AHEAD_REGISTERS, MOST_AHEAD = 36, 56, 8
#: And for rows that were summed along x.
RING_REGISTERS = 24
WALK_REGISTERS = 40


def loads_as_is(plan: Plan) -> bool:
    """Whether what is sampled is what lies in memory."""
    return plan.source is None or (plan.source == plan.work and isinstance(plan.prologue, Value))


def choose(case: Case) -> Way:
    """The kernel of a call's own: most are made for numbers of taps and for how rows lie."""
    tables = [one for one in (case.x, case.y, case.z) if one is not None]
    if not case.plan.weighted:
        fits = case.z is None and _fits_in_row(case) and case.geometry.y.out_size < MOST_ROWS_MOVED
        return moved(case) if fits else general(case)
    by_windows = all(one.index is None for one in tables) and case.z is None
    if not by_windows or not _fits_in_row(case):
        return general(case)
    kx, ky = (1 if one is None else one.taps for one in (case.x, case.y))
    if kx * ky <= MOST_AT_ONCE and case.outputs < FEW_OUTPUTS:
        return _direct_by_registers(case, kx)
    if case.y is not None and not (case.y.ascends or case.y.descends):
        return general(case)
    if max(kx, ky) <= MOST_IN_RING:
        return _bytes_by_few_taps(case, kx, ky) if can_walk_bytes(case) else ring(case, kx, ky)
    if _can_shrink(case):
        return shrink(case)
    if (
        case.plan.work == torch.uint8
        and _all_in_order(case)
        and max(kx, ky) <= MOST_IN_BYTE_RING
        and case.channels <= 4
    ):
        assert case.x is not None, "what is summed along x has a table"
        way = byte_ring([case], words_in_fours(case.x), ky)
        return way if cut(case, way).shared_bytes <= MOST_SHARED else general(case)
    return general(case)


def choose_for_all(cases: Sequence[Case]) -> Way:
    """One kernel for calls of one plan, of several sizes. What is not summed has the way of the first."""
    in_tiles = cases[0].plan.weighted and all(_has_tiles(one) for one in cases)
    same = len({(one.geometry.planes, one.channels) for one in cases}) == 1
    return tiles.way(cases) if in_tiles and same else choose_by_windows(cases)


def _has_tiles(case: Case) -> bool:
    in_order = _all_in_order(case) and case.z is None and _fits_in_row(case)
    return in_order and can_walk_bytes(case) and tiles.fits(case)


def choose_by_windows(cases: Sequence[Case]) -> Way:
    """The one that the widest windows among them need, by few numbers of taps, as builds take long."""
    first, bytes_alone = cases[0], all(one.plan.work == torch.uint8 for one in cases)
    if not first.plan.weighted:
        return choose(first)
    tables = [table for one in cases for table in (one.x, one.y)]
    in_order = all(_all_in_order(one) and one.z is None and _fits_in_row(one) for one in cases)
    if not in_order or len({one.channels for one in cases}) > 1:
        return general(*cases)
    if all(_can_shrink(one) for one in cases):
        return shrink(*cases)
    most, least = max(one.taps for one in tables if one), min(one.in_size for one in tables if one)
    taps = next((taps for taps in TAPS_OF_BATCHES if most <= taps), 0)
    if not bytes_alone or not most <= taps <= least or first.channels > 4:
        return general(*cases)
    if taps <= MOST_IN_RING and all(can_walk_bytes(one) for one in cases):
        way = byte_stage(cases, taps, taps)
        return way if taps == FEW_TAPS else replace(way, template="ByteStages")
    way = byte_ring(cases, (taps + 6) // 4, taps)
    return way if all(cut(one, way).shared_bytes <= MOST_SHARED for one in cases) else general(*cases)


def _all_in_order(case: Case) -> bool:
    """Whether windows along x and y begin one behind the other."""
    tables = (case.x, case.y)
    return all(one is not None and one.index is None and (one.ascends or one.descends) for one in tables)


def _can_shrink(case: Case) -> bool:
    sums_floats = case.plan.weighted and case.plan.work != torch.uint8
    fits = sums_floats and case.z is None and _all_in_order(case) and case.row_is_dense and _fits_in_row(case)
    return fits and cut(case, shrink(case)).shared_bytes <= MOST_SHARED


def _fits_in_row(case: Case) -> bool:
    return max(_row_bytes_in(case), case.length * max(case.from_bytes, case.to_bytes)) < MOST_IN_ROW


def _row_bytes_in(case: Case) -> int:
    """That an input row extends over."""
    x, pixel = case.geometry.x, case.geometry.pixel
    return (x.in_size * x.in_stride + pixel.in_size * pixel.in_stride) * max(case.from_bytes, case.to_bytes)


# ---- kernels


def general(*cases: Case) -> Way:
    case = cases[0]
    moved = 0 if case.plan.source is not None else case.from_bytes
    bordered = any(one.bordered for one in cases)
    return Way("general", "General", (case.plan.weighted, bordered, 128), 128, moved_bytes=moved)


def _direct_by_registers(case: Case, kx: int) -> Way:
    size = 2 if case.plan.work.itemsize == 8 else 1
    assert not isinstance(case.y, MadeTable), "batches have other ways"
    y = case.y or identity_table(case.geometry.y.out_size, case.plan.sampled)
    rows, ky = max(
        (rows, taps)
        for rows, taps in ((rows, reach_of_groups(y, rows)) for rows in range(1, MOST_ROWS + 1))
        if rows == 1 or taps * kx * size <= DIRECT_REGISTERS
    )
    return direct(case, kx, ky, rows)


def direct(case: Case, kx: int, ky: int, rows: int) -> Way:
    """`ky`: of the window that so many rows have together."""
    size, threads = 2 if case.plan.work.itemsize == 8 else 1, 64
    channels = case.channels if case.channels <= 4 else 0
    resident = (640 if ky * kx * size <= DIRECT_REGISTERS else 512) // threads  # what more registers allow
    constants = (kx, ky, channels, _step(case), rows, case.bordered, threads)
    return Way("direct", "Direct", constants, threads, resident)


def _step(case: Case) -> int:
    """Small ones are known to the kernel, so that they are parts of addresses."""
    step = case.geometry.x.in_stride
    return step if 1 <= step <= 4 else 0


def ring(case: Case, kx: int, ky: int) -> Way:
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
    if case.outputs < 2 * MANY_THREADS * columns * strip and not case.varies:
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
    """None where it is not to be known: it follows from a size."""
    known = columns > 1 and case.channels == 1 and not case.varies
    return in_step(case.x, columns) if known and case.x and not isinstance(case.x, MadeTable) else None


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
    rows = case.geometry._replace(x=case.geometry.x._replace(in_stride=0))
    at_multiples = _all_multiples(case._replace(geometry=rows), count, source=True)
    return at_multiples and case.source_alignment % (count * case.from_bytes) == 0


def _walked(one: Dimension, source: bool) -> bool:
    return (one.in_size if source else one.out_size) > 1


def _stores(case: Case, columns: int) -> int:
    """How a thread's outputs lie."""
    if not case.output_is_dense:
        return APART
    aligned = _all_multiples(case, columns, source=False) and case.target_alignment % (columns * case.to_bytes) == 0
    fits = columns * case.to_bytes in (1, 2, 4, 8, 16) and case.length % columns == 0 and not case.varies
    return AT_ONCE if fits and aligned else BESIDE


def shrink(*cases: Case) -> Way:
    rows = [one.geometry.x.in_size * one.geometry.pixel.in_size for one in cases]
    at_once = all(
        row % 4 == 0 and _rows_are_multiples(one, 4) and not one.varies for row, one in zip(rows, cases, strict=True)
    )
    channels = cases[0].channels
    return Way(
        "shrink",
        "Shrink",
        (at_once, any(one.bordered for one in cases), 128),
        128,
        tile=112 if channels == 1 else max(1, 224 // channels),
        strip=4,
    )


def can_walk_bytes(case: Case) -> bool:
    fits = case.row_is_dense and case.channels <= 4 and case.geometry.y.in_stride < MOST_BETWEEN_ROWS
    return case.plan.work == torch.uint8 and loads_as_is(case.plan) and fits and _strips_are_short(case)


def _strips_are_short(case: Case) -> bool:
    """Whether the rows that a strip reads extend over few enough bytes: where windows are not antialiased, as many rows
    may lie between them as an image has."""
    y = case.geometry.y
    if y.in_stride * (y.in_size + WALKED_AHEAD) < MOST_WALKED:
        return True
    rows = WALKED_ROWS if case.y is None else reach(case.y, WALKED_ROWS)
    return y.in_stride * (rows + WALKED_AHEAD) < MOST_WALKED


def _bytes_by_few_taps(case: Case, kx: int, ky: int) -> Way:
    """Where there are few threads for what memory could bring meanwhile, it is brought ahead of them, if their windows
    lie near each other."""
    way = byte_stage([case], kx, ky)
    assert case.x is not None, "what is summed along x has a table"
    near = reach(case.x, tile_of(way)) <= staged_reach(way)
    return way if near and case.outputs < FEW_TO_WALK else byte_walk(case, kx, ky)


def byte_walk(case: Case, kx: int, ky: int) -> Way:
    channels = case.channels
    pixels, threads = (2, 64) if channels == 1 else (1, 128)
    aligned = _by_words(case) and case.geometry.x.in_size * channels % 4 == 0 and not case.varies
    words = (kx * channels + 6) // 4
    ahead = max(1, min(WALKED_AHEAD, WALK_REGISTERS // (words * pixels)))
    constants = (
        kx,
        ky,
        channels,
        pixels,
        aligned,
        _stores(case, pixels * channels),
        ahead,
        case.bordered,
        WALKED_ROWS,
        threads,
    )
    resident = 1024 if max(kx, ky) <= FEW_TAPS else 768  # threads: wider windows take more registers
    return Way("byte_walk", "ByteWalk", constants, threads, resident // threads, sums=False)


def byte_stage(cases: Sequence[Case], kx: int, ky: int) -> Way:
    """Of pixels of as many channels each."""
    channels, threads, rows, buffers, strip = cases[0].channels, 128, 8, 2, 32
    pixels = 2 if channels == 1 else 1
    stores, bordered = min(_stores(one, pixels * channels) for one in cases), any(one.bordered for one in cases)
    constants = (kx, ky, channels, pixels, stores, bordered, rows, buffers, strip, threads)
    return Way("byte_stage", "ByteStage", constants, threads, 768 // threads, sums=False)


def byte_ring(cases: Sequence[Case], words: int, ky: int) -> Way:
    """`words`: of a window along x, as `tables.in_fours` has it."""
    channels, rows, strip = cases[0].channels, 16, 16
    threads, resident = (256, 4) if channels == 1 else (128, 6)
    by_words, bordered = all(map(_by_words, cases)), any(one.bordered for one in cases)
    constants = (words, ky, channels, by_words, bordered, rows, strip, threads)
    return Way("byte_ring", "ByteRing", constants, threads, resident, sums=False)


def _by_words(case: Case) -> bool:
    """Whether bytes can be read four at a time."""
    return case.row_is_dense and case.from_bytes == 1 and _rows_are_multiples(case, 4)


def moved(case: Case) -> Way:
    most = 16 if case.from_bytes == 1 else 8
    size = max(case.from_bytes, case.to_bytes)
    columns = max(1, min(most, 16 // size)) if case.output_is_dense else 1
    while columns > 1 and _stores(case._replace(varies=False), columns) != AT_ONCE:
        columns //= 2
    # The less a thread reads of a row, the more rows, or threads, have to be on their way.
    rows, strip, resident = {1: (2, 8, 4), 2: (8, 16, 2)}.get(case.from_bytes, (4, 16, 4))
    if columns * size <= 8:
        rows, strip, resident = 4 if columns >= 8 else 8, 16, 6 if columns == 1 and size <= 4 else 4
    if case.bordered or case.plan.source is not None:  # which takes registers
        rows, resident = min(rows, 4), min(resident, 4)
    threads, outputs = 256, 1 << 62 if case.varies else case.outputs
    if outputs < FEW_OUTPUTS:
        threads, resident = threads // 2, resident * 2
    for least_strip, least_bytes in ((2, 16), (2, 8), (1, 8), (1, 4)):
        while strip > least_strip and outputs < MANY_THREADS * columns * strip:
            strip //= 2
        while columns > 1 and columns * size > least_bytes and outputs < MANY_THREADS * columns * strip:
            columns //= 2
    goes = (0, 1) if case.x is None else None if isinstance(case.x, MadeTable) else progression(case.x)
    lies_so = goes is not None and (goes[1] == 1 or (goes[1] == -1 and case.channels == 1))
    several = columns > 1 and case.from_bytes <= 4 and columns * case.from_bytes >= 4
    by_words = several and case.row_is_dense and _row_bytes_in(case) < 2**29
    runs = by_words and (lies_so or (goes is None and case.from_bytes == 1))
    computed = goes is not None and case.y is None
    moved = 0 if case.plan.source is not None else case.from_bytes
    constants = (columns, case.output_is_dense, computed, runs, min(rows, strip), case.bordered, threads)
    return Way("moved", "Moved", constants, threads, resident, sums=False, moved_bytes=moved, strip=strip)


#: Kernels that read windows along x from left to right, and those of them that read them by words.
COLUMNS_ASCEND = ("Shrink", "ByteRing")
#: Kernels that sum down columns before they sum along rows.
COLUMNS_FIRST = ("Shrink",)
BY_STAGE = ("ByteStage", "ByteStages")
IN_FOURS = ("ByteRing",)


def taps_along_x(way: Way, x: Table, y: Table) -> int:
    """Of windows, as the way's kernel has them."""
    if way.template == "ByteStages" and max(x.taps, y.taps) <= FEW_TAPS:
        return FEW_TAPS
    return int(way.constants[0]) if way.template in ("Direct", "Ring", "ByteWalk", *BY_STAGE) else x.taps


def taps_along_y(way: Way, x: Table, y: Table) -> int:
    if way.template == "ByteStages" and max(x.taps, y.taps) <= FEW_TAPS:
        return FEW_TAPS
    return int(way.constants[1]) if way.template in ("Ring", "ByteWalk", *BY_STAGE, "ByteRing") else y.taps
