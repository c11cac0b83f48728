"""The C++ tap tables against Python's, matrix by matrix."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from polyphase.calls.rules import RULES
from polyphase.cpu import libraries
from polyphase.kernels.tables import TapBytes
from polyphase.records.recipes import FILTERS, encode
from polyphase.sampling import filters
from polyphase.sampling.axis_maps import AxisMap
from polyphase.sampling.evaluate import evaluate
from polyphase.sampling.steps import Area, Flip, Nearest, Pad, Resize, Slice, Step, Weighted
from polyphase.sampling.taps import transpose
from polyphase.sampling.windows import backward_arithmetic, eager_arithmetic
from tests.sampling.strategies import (
    boxed_nearest,
    boxed_resizes,
    fitting_maps,
    index_steps,
    quick,
    scales,
    sizes,
    steady,
)

DTYPES = [torch.float32, torch.float64, torch.uint8]
BIG = [(1920, 224), (4096, 17), (64, 1024), (450, 340)]


@dataclass(frozen=True, eq=False)
class Table:
    in_size: int
    begin: list[int]
    index: list[int]
    weight: Tensor
    border: list[int]
    precision: int
    index_only: bool

    @property
    def out_size(self) -> int:
        return len(self.begin) - 1

    def rows(self) -> list[list[int]]:
        return [self.index[first:stop] for first, stop in zip(self.begin, self.begin[1:], strict=False)]

    def dense(self) -> Tensor:
        lengths = torch.tensor(self.begin).diff()
        output = torch.repeat_interleave(torch.arange(self.out_size), lengths)
        matrix = torch.zeros(self.out_size, self.in_size, dtype=torch.float64)
        matrix[output, torch.tensor(self.index, dtype=torch.int64)] = self.weight / 2**self.precision
        return matrix


Make = Callable[[AxisMap, int, torch.dtype, bool], Table]


@pytest.fixture(scope="module")
def make() -> Make:
    def make(axis_map: AxisMap, in_size: int, dtype: torch.dtype, transposed: bool = False) -> Table:
        return table_of(libraries.tap_bytes(axis_map, in_size, dtype, transposed))

    return make


def table_of(found: TapBytes) -> Table:
    begin, index = (list(memoryview(data).cast("i")) for data in (found.begin, found.index))
    weight = torch.tensor(list(memoryview(found.weight).cast("d")), dtype=torch.float64)
    border = list(memoryview(found.border).cast("i")) or [0] * (len(begin) - 1)
    return Table(found.in_size, begin, index, weight, border, found.precision, found.index_only)


def assert_well_formed(table: Table) -> None:
    """What abi.h promises of any table."""
    assert table.begin[0] == 0
    assert bool((table.weight != 0).all())
    for row, border in zip(table.rows(), table.border, strict=True):
        assert row == sorted(set(row))
        assert all(0 <= pixel < table.in_size for pixel in row)
        assert not (border and row)
        assert not table.index_only or border or len(row) == 1
    if table.index_only:
        assert bool((table.weight == 1).all())


def tolerance(step: Weighted | None, dtype: torch.dtype, expected: Tensor, precision: int) -> Tensor:
    """By how much weights may differ: torch has another sin and cos, and sums doubles up in another order.

    That order can be seen in float64 only: the float32 values it adds are too short, the uint8 weights too coarse.
    """
    antialias = isinstance(step, Resize) and step.antialias
    other_sine = isinstance(step, Resize) and step.filter in ("hamming", "lanczos")
    if dtype == torch.uint8:
        return torch.full_like(expected, other_sine * 2.0**-precision)
    if not (other_sine or (antialias and dtype == torch.float64)):
        return torch.zeros_like(expected)
    # Two roundings of what a row adds up to; more where negative weights cancel in the sum that all are divided by.
    magnitude = expected.abs().sum(1, keepdim=True)
    return 2 * torch.finfo(dtype).eps * (magnitude * magnitude.clamp(min=1)).expand_as(expected)


def assert_equal(make: Make, axis_map: AxisMap, in_size: int, dtype: torch.dtype) -> None:
    table, expected = make(axis_map, in_size, dtype, False), evaluate(axis_map, in_size, eager_arithmetic(dtype))
    assert_well_formed(table)
    assert (table.in_size, table.out_size) == (in_size, expected.out_size)
    assert table.border == (expected.out_size * [0] if expected.border is None else expected.border.tolist())
    if not all(table.border):  # else there is nothing to weigh
        assert table.index_only == (expected.weight is None)
        assert table.precision == (0 if expected.one is None else int(expected.one).bit_length() - 1)
    matrix = expected.dense()
    if dtype == torch.uint8:  # ATen keeps 16 bits, also of negative weights that have more
        matrix = (matrix * 2**table.precision).long().to(torch.int16) / 2.0**table.precision
    allowed = tolerance(axis_map.weighted, dtype, matrix, table.precision)
    assert bool(((table.dense() - matrix).abs() <= allowed).all())
    if dtype != torch.uint8:
        adjoint = make(axis_map, in_size, dtype, True)
        backward = evaluate(axis_map, in_size, backward_arithmetic(dtype, RULES["cpu"]))
        if bool((backward.dense() == matrix).all()):  # all but eager's bicubic
            assert_adjoint(table, adjoint)
        assert bool(((adjoint.dense() - transpose(backward).dense()).abs() <= allowed.T).all())


def assert_adjoint(table: Table, transposed: Table) -> None:
    assert_well_formed(transposed)
    assert torch.equal(transposed.dense(), table.dense().T)
    assert (transposed.in_size, transposed.out_size, transposed.precision) == (table.out_size, table.in_size, 0)
    assert not any(transposed.border)
    one_each = all(len(row) == 1 for row in transposed.rows())
    assert transposed.index_only == (table.index_only and one_each)


@st.composite
def scales_for(draw: st.DrawFn, in_size: int, out_size: int) -> float | None:
    """None, the scale of the sizes, one that `interpolate` would round down to the size, or any."""
    return draw(st.sampled_from([None, out_size / in_size, (out_size + 0.5) / in_size]) | scales())


@dataclass(frozen=True)
class Sizes:
    before: int
    after: int
    scale: float | None


@st.composite
def resizings(draw: st.DrawFn) -> Sizes:
    """Also to the size there is, which a scale may still change."""
    before = draw(sizes(300))
    after = draw(st.just(before) | sizes(300))
    return Sizes(before, after, draw(scales_for(before, after)))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize("name", sorted(filters.PLAIN))
@given(sizes=resizings())
@quick
def test_plain(make: Make, name: str, align_corners: bool, dtype: torch.dtype, sizes: Sizes) -> None:
    step = Resize(sizes.after, name, align_corners=align_corners, scale=sizes.scale)
    assert_equal(make, AxisMap((step,)), sizes.before, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize("name", FILTERS)
@given(sizes=resizings())
@steady
def test_antialiased(make: Make, name: str, align_corners: bool, dtype: torch.dtype, sizes: Sizes) -> None:
    step = Resize(sizes.after, name, True, align_corners, sizes.scale)
    assert_equal(make, AxisMap((step,)), sizes.before, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@given(sizes=resizings())
@quick
def test_area(make: Make, dtype: torch.dtype, sizes: Sizes) -> None:
    assert_equal(make, AxisMap((Area(sizes.after),)), sizes.before, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("exact", [False, True])
@given(sizes=resizings())
@quick
def test_nearest(make: Make, exact: bool, dtype: torch.dtype, sizes: Sizes) -> None:
    assert_equal(make, AxisMap((Nearest(sizes.after, exact, sizes.scale),)), sizes.before, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@given(data=st.data(), in_size=sizes(300))
@settings(steady, max_examples=60)
def test_boxes(make: Make, dtype: torch.dtype, data: st.DataObject, in_size: int) -> None:
    assert_equal(make, AxisMap((data.draw(boxed_resizes(in_size, 300)),)), in_size, dtype)
    assert_equal(make, AxisMap((data.draw(boxed_nearest(in_size, 300)),)), in_size, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@given(data=st.data(), in_size=sizes(300))
@quick
def test_a_box_of_the_whole_axis(make: Make, dtype: torch.dtype, data: st.DataObject, in_size: int) -> None:
    steps: list[Resize | Nearest] = [data.draw(boxed_resizes(in_size)), data.draw(boxed_nearest(in_size))]
    for step in steps:
        whole, none = (make(AxisMap((replace(step, box=box),)), in_size, dtype, False) for box in ((0, in_size), None))
        assert (whole.begin, whole.index) == (none.begin, none.index)
        assert torch.equal(whole.weight, none.weight)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("before", "after"), BIG)
def test_big(make: Make, before: int, after: int, dtype: torch.dtype) -> None:
    steps: list[Step] = [Area(after)]
    steps += [Resize(after, name, antialias=True) for name in FILTERS]
    steps += [Resize(after, name) for name in filters.PLAIN]
    for step in steps:
        assert_equal(make, AxisMap((Slice(0, before), Flip(), step)), before + 3, dtype)
    for exact in (False, True):
        assert_equal(make, AxisMap((Nearest(after, exact),)), before, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@given(data=st.data(), in_size=sizes())
@quick
def test_index_only_steps(make: Make, dtype: torch.dtype, data: st.DataObject, in_size: int) -> None:
    assert_equal(make, AxisMap((data.draw(index_steps(in_size, border=1)),)), in_size, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@given(fitting=fitting_maps(first_border=1))
@settings(steady, max_examples=100)
def test_chains(make: Make, dtype: torch.dtype, fitting: tuple[AxisMap, int]) -> None:
    assert_equal(make, *fitting, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("in_size", "steps"),
    [
        (5, ()),
        (0, ()),
        (0, (Flip(),)),
        (0, (Pad(2, 1, "constant", 1),)),
        (0, (Pad(2, 1, "constant", 1), Flip(), Pad(-1, 1, "constant", 2), Nearest(5))),
        (5, (Slice(2, 2),)),
        (5, (Slice(2, 2), Pad(1, 1, "constant", 1), Slice(0, 2, 2))),
        (5, (Resize(7, "bicubic"), Slice(3, 3))),
        (5, (Resize(7, "bicubic"), Slice(3, 3), Pad(1, 1, "constant", 1), Pad(1, 1, "replicate"))),
        (5, (Pad(1, 1, "constant", 2), Pad(1, 1, "constant", 1))),  # the greater number wins
        (5, (Pad(-3, 2, "constant", 1), Pad(2, -1, "reflect"))),
        (5, (Pad(-6, 4, "replicate"),)),
        (3, (Pad(3, -2, "circular"),)),
        (4, (Pad(4, 3, "symmetric"),)),
        (9, (Slice(1, 8), Flip(), Slice(2, 6), Resize(3, "bilinear", antialias=True), Flip())),
        (4, (Resize(6, "bicubic", antialias=True, scale=8.0),)),  # its last outputs lie beyond the image
        (7, (Resize(40, "box", antialias=True, scale=2.0),)),
        (520, (Resize(519, "bicubic"),)),  # a weight that its folded neighbour makes smaller decides the precision
        (70, (Resize(48, "bicubic", scale=0.6834701706492368),)),
        (1468, (Resize(1333, "bilinear", scale=0.9728902819593748),)),  # floorf finds another left neighbour
        (4, (Resize(28, "bilinear"),)),
    ],
)
def test_edges(make: Make, in_size: int, steps: tuple[Step, ...], dtype: torch.dtype) -> None:
    assert_equal(make, AxisMap(steps), in_size, dtype)


@given(fitting=fitting_maps())
@quick
def test_encode(fitting: tuple[AxisMap, int]) -> None:
    axis_map, _ = fitting
    assert len(encode(axis_map)) == 64 * len(axis_map.steps)
    assert encode(AxisMap(axis_map.steps)) == encode(axis_map)


def test_encode_numbers_names_in_order() -> None:
    steps = Resize(7, "lanczos", antialias=True, scale=0.5), Nearest(7, box=(1, 4.5)), Pad(1, -2, "circular")
    resize, nearest, pad = struct.iter_unpack("=5q3d", b"".join(encode(AxisMap((step,))) for step in steps))
    assert resize[:7] == (0, 7, 4, 1, 0, 0.5, 0.0)
    assert nearest[:5] == (2, 7, 0, 0, 0)
    assert nearest[6:] == (1.0, 4.5)
    assert pad[:5] == (5, 1, -2, 3, 0)
    assert all(map(math.isnan, (resize[7], nearest[5], pad[5], pad[7])))
