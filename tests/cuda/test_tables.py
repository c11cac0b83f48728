"""Tables that the launcher makes against their twin, and in the forms that kernels read."""

from __future__ import annotations

import itertools
from dataclasses import fields

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from polyphase.cuda import driver, memory, packed_tables, plain_tables, tables
from polyphase.cuda.packed_tables import PackedTable
from polyphase.cuda.plain_tables import HostTable, unpacked
from polyphase.kernels.recipes import FILTERS
from polyphase.sampling import filters
from polyphase.sampling.axis_maps import AxisMap
from polyphase.sampling.programs import maps_program
from polyphase.sampling.steps import Area, Flip, Nearest, Pad, Resize, Slice
from tests.cuda import host
from tests.cuda.test_kernels_on_host import AA, CUBIC_AA, image, resized
from tests.cuda.test_servers import NEAREST
from tests.sampling.strategies import fitting_maps, quick, scales, sizes, steady

DTYPES = (torch.uint8, torch.float16, torch.float32, torch.float64, torch.int16, torch.int32)


def packed(axis_map: AxisMap, in_size: int, dtype: torch.dtype, *, transposed: bool = False) -> PackedTable:
    made = packed_tables.made(axis_map, in_size, dtype, plain_tables.work_of(dtype), transposed=transposed)
    assert made is not None
    return made


def dense(table: HostTable, dtype: torch.dtype) -> Tensor:
    """The matrix, of quantised weights the 16 bits that eager keeps."""
    matrix = torch.zeros(table.out_size, table.in_size, dtype=torch.float64)
    if table.index is not None:
        assert table.weight is not None
        output = torch.repeat_interleave(torch.arange(table.out_size), table.first.diff())
        return matrix.index_put_((output, table.index.long()), table.weight.double(), accumulate=True)
    weight = torch.ones(table.out_size, 1) if table.weight is None else table.weight
    if dtype == torch.uint8:
        weight = weight.to(torch.int16)
    if table.border is not None and table.weight is None:
        weight = weight * (table.border == 0)[:, None]
    places = table.first.long()[:, None] + torch.arange(table.taps)
    assert int(places.min()) >= 0
    assert int(places.max()) < table.in_size
    return matrix.scatter_add_(1, places, weight.double())


def allowed(axis_map: AxisMap, dtype: torch.dtype, expected: Tensor) -> Tensor:
    """Torch has another sine, and sums doubles in another order, which float64 alone shows."""
    step = axis_map.weighted
    other_sine = isinstance(step, Resize) and step.filter in ("hamming", "lanczos")
    in_double = isinstance(step, Resize) and step.antialias and dtype not in (torch.uint8, torch.float16)
    if dtype == torch.uint8:
        return torch.full_like(expected, float(other_sine))
    if not other_sine and not in_double:
        return torch.zeros_like(expected)
    eps = torch.finfo(plain_tables.work_of(dtype)).eps
    magnitude = expected.abs().sum(1, keepdim=True)
    return 2 * eps * (magnitude * magnitude.clamp(min=1)).expand_as(expected)


def assert_alike(axis_map: AxisMap, in_size: int, dtype: torch.dtype, *, transposed: bool = False) -> None:
    if transposed and dtype == torch.uint8:
        return
    found = unpacked(packed(axis_map, in_size, dtype, transposed=transposed))
    expected = plain_tables.plain_host_table(axis_map, in_size, dtype, transposed)
    got, wanted = dense(found, dtype), dense(expected, dtype)
    assert (found.in_size, found.out_size) == (expected.in_size, expected.out_size)
    within = allowed(axis_map, dtype, wanted.T if transposed else wanted)
    assert bool(((got - wanted).abs() <= (within.T if transposed else within)).all())
    assert (found.border is None) == (expected.border is None)
    assert found.border is None or expected.border is None or torch.equal(found.border, expected.border)
    if found.border is not None or not torch.equal(got, wanted):
        return
    assert found.precision == expected.precision
    assert (found.taps, found.ascends, found.descends) == (expected.taps, expected.ascends, expected.descends)
    for one, other in ((found.first, expected.first), (found.index, expected.index)):
        assert one is None if other is None else one is not None and torch.equal(one, other)
    assert (found.weight is None) == (expected.weight is None)
    assert found.weight is None or expected.weight is None or found.weight.dtype == expected.weight.dtype


@pytest.mark.parametrize("transposed", [False, True], ids=["", "transposed"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@given(case=fitting_maps(first_border=1))
@quick
def test_any_map(dtype: torch.dtype, transposed: bool, case: tuple[AxisMap, int]) -> None:
    axis_map, in_size = case
    if in_size and axis_map.steps:
        assert_alike(axis_map, in_size, dtype, transposed=transposed)


@pytest.mark.parametrize("antialias", [False, True], ids=["plain", "antialiased"])
@pytest.mark.parametrize("align_corners", [False, True], ids=["", "aligned"])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32, torch.float64], ids=str)
@given(data=st.data(), before=sizes(400), after=sizes(400))
@steady
def test_resizes(
    dtype: torch.dtype, align_corners: bool, antialias: bool, data: st.DataObject, before: int, after: int
) -> None:
    name = data.draw(st.sampled_from(FILTERS if antialias else sorted(filters.PLAIN)))
    scale = data.draw(st.none() | scales())
    assert_alike(AxisMap((Resize(after, name, antialias, align_corners, scale),)), before, dtype)


@pytest.mark.parametrize("transposed", [False, True], ids=["", "transposed"])
@pytest.mark.parametrize(("before", "after"), [(1920, 224), (4096, 17), (64, 1024), (450, 340)])
def test_long_axes(before: int, after: int, transposed: bool) -> None:
    for dtype in DTYPES:
        for step in (
            Resize(after, "bilinear", True),
            Resize(after, "bicubic", True),
            Resize(after, "bicubic"),
            Area(after),
            Nearest(after, True),
        ):
            assert_alike(AxisMap((step,)), before, dtype, transposed=transposed)


MAPS = [
    (AxisMap((Resize(31, "bilinear", True),)), 77),
    (AxisMap((Resize(90, "bicubic"),)), 45),
    (AxisMap((Resize(40, "bilinear"), Slice(3, 33, 2), Pad(2, 5, "constant", 1))), 61),
    (AxisMap((Slice(5, 50, 1), Resize(28, "bicubic", True))), 64),
]


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize(("axis_map", "in_size"), MAPS)
def test_forms(axis_map: AxisMap, in_size: int, dtype: torch.dtype) -> None:
    """As bytes they are what torch makes of them."""
    table = packed(axis_map, in_size, dtype)
    twin = unpacked(table)

    def assert_same(one: tables.Table, other: tables.Table) -> None:
        assert isinstance(one, PackedTable)
        assert isinstance(other, HostTable)
        assert one.parts() == other.parts()
        assert (one.taps, one.ascends, one.descends) == (other.taps, other.ascends, other.descends)

    assert_same(table, twin)
    assert_same(table.reversed(), twin.reversed())
    for count in (1, 2, 3, 4, 7, 64, 1000):
        assert tables.reach(table, count) == tables.reach(twin, count)
        if count < 10:
            assert tables.reach_of_groups(table, count) == tables.reach_of_groups(twin, count)
            taps = min(tables.reach_of_groups(table, count) + count % 2, in_size)
            assert_same(tables.shared(table, count, taps), tables.shared(twin, count, taps))
    assert_same(tables.widened(table, table.taps + 2), tables.widened(twin, table.taps + 2))
    assert tables.progression(table) is None
    if dtype == torch.uint8:
        words = tables.words_in_fours(table)
        assert words == tables.words_in_fours(twin)
        assert_same(tables.in_fours(table, words + 1), tables.in_fours(twin, words + 1))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32, torch.float64], ids=str)
def test_windows_that_lie_alike(dtype: torch.dtype) -> None:
    seen = set()
    for name in ("bilinear", "bicubic"):
        for before, after in ((40, 80), (40, 120), (80, 40), (90, 60), (40, 81), (7, 14), (64, 48), (33, 33)):
            table = packed(AxisMap((Resize(after, name, after % 3 == 0),)), before, dtype)
            for columns in (1, 2, 4, 8):
                found = tables.in_step(table, columns)
                twin = tables.in_step(unpacked(table), columns)
                seen.add(found is None)
                assert (found is None) == (twin is None)
                if found is not None and twin is not None:
                    assert found.table.parts() == twin.table.parts()
                    numbers = [one.name for one in fields(tables.InStep) if one.name != "table"]
                    assert all(getattr(found, one) == getattr(twin, one) for one in numbers)
    assert seen == {True, False}


def test_windows_that_do_not_fit_are_refused() -> None:
    table = packed(*MAPS[0], torch.uint8)
    for taps in (table.taps - 1, table.in_size + 1):
        with pytest.raises(ValueError, match="narrower"):
            table.shared(1, taps)
    with pytest.raises(ValueError, match="narrower"):
        table.in_fours(table.taps - 1)


def test_what_goes_along_an_axis() -> None:
    for steps, goes in (((Slice(3, 20, 2),), (3, 2)), ((Slice(4, 5, 1),), (4, 0)), ((Nearest(7, False),), None)):
        table = packed(AxisMap(steps), 30, torch.float32)
        assert tables.progression(table) == tables.progression(unpacked(table)) == goes
    ones = table.weighted(torch.int32)
    assert ones.parts() == unpacked(table).weighted(torch.int32).parts()
    identity = tables.identity_table(9, torch.float64)
    assert isinstance(identity, PackedTable)
    assert identity.parts() == packed(AxisMap((Slice(0, 9, 1),)), 9, torch.float64).weighted(torch.float64).parts()


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32], ids=str)
def test_calls_without_a_launcher(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """By torch's tables, rows that only move among them."""
    x = image(dtype, 1, 3, 40, 68)
    turned = AxisMap((Slice(2, 60, 1), Flip(), Pad(3, 5, "reflect")))
    programs = [resized(x, size, **mode) for size, mode in (((30, 33), AA), ((9, 10), CUBIC_AA), ((61, 83), NEAREST))]
    programs += [
        maps_program(dtype, (AxisMap(()), turned)),
        maps_program(dtype, (AxisMap((Pad(1, 2, "constant", 1),)), turned)),
    ]
    expected = [host.run(program, x) for program in programs]
    monkeypatch.setattr(packed_tables, "can_be_made", lambda: False)
    tables.host_table.cache_clear()
    try:
        for program, right in zip(programs, expected, strict=True):
            assert torch.equal(host.run(program, x), right)
            assert torch.equal(host.run(program, x, aligned=False), right)
    finally:
        tables.host_table.cache_clear()


def test_one_piece_of_memory_after_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was given out is not given out again, and freed with the last that lies there."""
    given, freed, wrote = list[int](), list[int](), dict[int, bytes]()

    def allocate(device: int, size: int) -> int:
        given.append(size)
        return 1 << (24 + len(given))

    monkeypatch.setattr(memory, "_latest", {})
    monkeypatch.setattr(driver, "allocate", allocate)
    monkeypatch.setattr(driver, "free", lambda device, address: freed.append(address))
    monkeypatch.setattr(driver, "upload", lambda device, address, data: wrote.update({address: data}))
    assert memory.uploaded(0, None, None) == ([0, 0], None)
    (first, nothing, second), kept = memory.uploaded(0, b"a" * 17, None, b"b")
    assert (nothing, second - first) == (0, 32)
    assert wrote[first] == b"a" * 17 + bytes(15) + b"b" + bytes(15)
    held = [memory.uploaded(0, bytes(100_000)) for _ in range(20)]
    begins = sorted([first, *[at for (at,), _ in held]])
    assert all(b - a >= 256 for a, b in itertools.pairwise(begins))
    assert given == [1 << 20] * 2
    (large,), alone = memory.uploaded(0, bytes(1 << 20))
    assert given[2:] == [1 << 20]
    assert large not in begins
    del kept, alone
    assert freed == [large]
    held.clear()
    assert freed == [large, 1 << 25]
