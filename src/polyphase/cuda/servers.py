"""Kernels that serve many sizes: a call has one of them until a kernel of its own is worth a build.

A call's own kernel (`ways.py`) is made for just the taps and the rows that it has, so that nearly every new size would
build one. Those here have one of few numbers of taps, and nothing else that follows from a size alone; wider windows
hold weights of 0. Each gives the bits that the call's own kernel gives.
"""

from __future__ import annotations

import math

from polyphase.cuda import ways
from polyphase.cuda.cases import Case, Way
from polyphase.cuda.cuts import MOST_SHARED, cut
from polyphase.cuda.tables import MadeTable, Table, identity_table, reach_of_groups

#: Numbers of taps that kernels have. From one to the next, windows are not much wider than they need to be.
TAPS = (2, 4, 6, 8, 12, 16, 24, 32, 48, 64)
#: Inputs that a thread of `direct.h` may fetch at once, in registers.
MOST_FETCHED = 96
#: Inputs that `general.h` reads in all, of a call that it is to do instead: it takes a few milliseconds at the most.
MOST_BY_GENERAL = 1 << 27


def servers(case: Case, own: Way) -> list[Way]:
    """The ways that can do a call in the stead of its own: the best first, the one that serves most sizes last. None
    of a large call whose own way serves many sizes."""
    of_sizes = case._replace(varies=True)
    found = [way for way in _closest(of_sizes, own) if way != own]
    taps = [one.taps for one in (case.x, case.y, case.z) if one is not None and one.index is None]
    if own.template != "General" and case.outputs * math.prod(taps) <= MOST_BY_GENERAL:
        found.append(ways.general(case))
    return found


def _closest(case: Case, own: Way) -> list[Way]:
    if own.template == "Moved":
        return [ways.moved(case)]
    if own.template == "Shrink":
        return [ways.shrink(case)]
    if own.template == "Direct":
        return _direct(case, own)
    if own.template not in ("Ring", "ByteWalk", "ByteStage", "ByteRing"):
        return []
    kx, ky = _taps(case.x), _taps(case.y)
    if not kx or not ky:
        return []
    if own.template == "ByteRing":
        way = ways.byte_ring([case], (kx + 6) // 4, ky)
        return [way] if cut(case, way).shared_bytes <= MOST_SHARED else []
    if own.template == "ByteStage":
        return [ways.byte_stage([case], kx, ky)]
    return [ways.byte_walk(case, kx, ky) if own.template == "ByteWalk" else ways.ring(case, kx, ky)]


def _direct(case: Case, own: Way) -> list[Way]:
    kx, most = _taps(case.x), MOST_FETCHED * 4 // max(case.plan.work.itemsize, 4)
    assert not isinstance(case.y, MadeTable), "batches have other ways"
    y = case.y or identity_table(case.geometry.y.out_size, case.plan.sampled)
    for rows in (ways.MOST_ROWS, 1):
        ky = _at_least(reach_of_groups(y, rows), y.in_size)
        if kx and ky and kx * ky <= (ways.DIRECT_REGISTERS if rows > 1 else most):
            return [ways.direct(case, kx, ky, rows)]
    return []


def _taps(table: Table | None) -> int:
    """Of windows; 0 where the axis is too short for as many."""
    return 1 if table is None else _at_least(table.taps, table.in_size)


def _at_least(taps: int, in_size: int) -> int:
    found = next((one for one in TAPS if one >= taps), 0)
    return found if found <= in_size else 0
