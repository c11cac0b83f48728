"""Tables that the launcher makes, against those of the reference."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from polyphase.calls.rules import RULES
from polyphase.cuda import driver, memory
from polyphase.records.recipes import FILTERS
from polyphase.sampling import filters
from polyphase.sampling.axis_maps import AxisMap
from polyphase.sampling.evaluate import evaluate
from polyphase.sampling.steps import Area, Nearest, Pad, Resize
from polyphase.sampling.windows import backward_arithmetic, eager_arithmetic
from tests.cuda.axes import Table, host_table, weights_of
from tests.sampling.strategies import fitting_maps, quick, scales, sizes, steady

DTYPES = (torch.uint8, torch.float16, torch.float32, torch.float64, torch.int16, torch.int32)


def dense(axis_map: AxisMap, in_size: int, dtype: torch.dtype, transposed: bool) -> tuple[Tensor, Tensor | None]:
    """By the operations that the reference uses: the matrix, and the borders of outputs."""
    arithmetic = (backward_arithmetic if transposed else eager_arithmetic)(dtype, RULES["cuda"])
    taps = evaluate(axis_map, in_size, arithmetic)
    weight = torch.ones(taps.index.shape) if taps.weight is None else taps.weight
    weight = weight.to(weights_of(dtype))
    if taps.border is not None:
        weight = weight * (taps.border == 0)
    matrix = torch.zeros(taps.index.shape[1], in_size, dtype=torch.float64)
    matrix.scatter_add_(1, taps.index.T, weight.T.double())
    if transposed:
        return matrix.T, None
    border = taps.border if taps.border is not None and bool(taps.border.any()) else None
    return matrix, None if border is None else border.int()


def allowed(axis_map: AxisMap, dtype: torch.dtype, expected: Tensor) -> Tensor:
    """Torch has another sine, and sums doubles in another order, which float64 alone shows."""
    step = axis_map.weighted
    other_sine = isinstance(step, Resize) and step.filter in ("hamming", "lanczos")
    in_double = isinstance(step, Resize) and step.antialias and dtype not in (torch.uint8, torch.float16)
    if dtype == torch.uint8:
        return torch.full_like(expected, float(other_sine))
    if not other_sine and not in_double:
        return torch.zeros_like(expected)
    eps = torch.finfo(weights_of(dtype)).eps
    magnitude = expected.abs().sum(1, keepdim=True)
    return 2 * eps * (magnitude * magnitude.clamp(min=1)).expand_as(expected)


def assert_alike(axis_map: AxisMap, in_size: int, dtype: torch.dtype, *, transposed: bool = False) -> None:
    if transposed and not dtype.is_floating_point:  # which have none
        return
    found = host_table(axis_map, in_size, dtype, transposed=transposed)
    wanted, border = dense(axis_map, in_size, dtype, transposed)
    got = found.dense()
    assert got.shape == wanted.shape
    within = allowed(axis_map, dtype, wanted.T if transposed else wanted)
    assert bool(((got - wanted).abs() <= (within.T if transposed else within)).all())
    assert (found.border is None) == (border is None)
    assert found.border is None or border is None or torch.equal(found.border, border)
    assert_close_together(found, wanted)


def assert_close_together(table: Table, matrix: Tensor) -> None:
    """Windows are as wide as the widest that is read; where that is much more than is read, taps are listed."""
    read = matrix != 0
    places = torch.arange(matrix.shape[1])
    ends, begins = (torch.where(read, places, -1).amax(1), torch.where(read, places, matrix.shape[1]).amin(1))
    widest, most = max(1, int((ends - begins).max()) + 1), int(read.sum(1).max())
    if table.listed is None:
        assert table.taps >= widest
    else:
        assert widest > 4 * most


@pytest.mark.parametrize("transposed", [False, True], ids=["", "transposed"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@given(case=fitting_maps(first_border=1))
@quick
def test_any_map(dtype: torch.dtype, transposed: bool, case: tuple[AxisMap, int]) -> None:
    axis_map, in_size = case
    if transposed and any(isinstance(one, Pad) and one.border for one in axis_map.steps):
        return  # what has borders has no adjoint
    if any(isinstance(one, Resize) and one.first for one in axis_map.steps):
        return  # an order of Pillow's pictures, which CUDA's kernels leave
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
