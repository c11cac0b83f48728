from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from polyphase.sampling.apply import apply_taps
from polyphase.sampling.axis_maps import AxisMap
from polyphase.sampling.evaluate import evaluate
from polyphase.sampling.steps import Pad, Resize
from polyphase.sampling.taps import MAX_PRECISION, Taps, identity, quantise, transpose
from polyphase.sampling.windows import eager_arithmetic, weighted_taps
from tests.sampling.eager import TRUTH, dense
from tests.sampling.strategies import fitting_maps, quick, sizes, weighted_steps


def random(*shape: int) -> Tensor:
    return torch.rand(shape, dtype=torch.float64) - 0.5


@given(sizes())
@quick
def test_identity(size: int) -> None:
    taps = identity(size)
    assert (taps.in_size, taps.out_size, taps.weight) == (size, size, None)
    assert torch.equal(taps.dense(), torch.eye(size, dtype=torch.float64))


def test_dense() -> None:
    """Two taps on one pixel add up, a border's row is zero, quantised weights stand over `one`."""
    index = torch.tensor([[0, 1, 2], [0, 2, 2]])
    weight = torch.tensor([[1, 2, 3], [4, 5, 6]], dtype=torch.int32)
    taps = Taps(3, index, weight, one=torch.tensor(2, dtype=torch.int32), border=torch.tensor([0, 0, 1]))
    assert taps.dense().tolist() == [[2.5, 0, 0], [0, 1, 2.5], [0, 0, 0]]


@given(fitting_maps(first_border=1), st.data())
@quick
def test_rows(fitting: tuple[AxisMap, int], data: st.DataObject) -> None:
    axis_map, in_size = fitting
    taps = evaluate(axis_map, in_size, TRUTH)
    chosen = torch.tensor(data.draw(st.lists(st.integers(0, taps.out_size - 1), min_size=1)))
    assert torch.equal(taps.rows(chosen).dense(), taps.dense()[chosen])


@given(fitting_maps(), st.data())
@quick
def test_reading(fitting: tuple[AxisMap, int], data: st.DataObject) -> None:
    axis_map, in_size = fitting
    taps = evaluate(axis_map, in_size, TRUTH)
    larger = in_size + data.draw(st.integers(0, 3))
    moved = torch.tensor(data.draw(st.permutations(range(larger)))[:in_size])
    expected = torch.zeros(taps.out_size, larger, dtype=torch.float64)
    expected[:, moved] = taps.dense()
    assert torch.equal(taps.reading(moved, larger).dense(), expected)


@given(fitting_maps(first_border=1))
@quick
def test_index_is_within_the_axis(fitting: tuple[AxisMap, int]) -> None:
    axis_map, in_size = fitting
    index = evaluate(axis_map, in_size, TRUTH).index
    assert index.min() >= 0
    assert index.max() < in_size


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@given(fitting=fitting_maps(first_border=1))
@quick
def test_transpose_is_the_transposed_matrix(dtype: torch.dtype, fitting: tuple[AxisMap, int]) -> None:
    axis_map, in_size = fitting
    taps = evaluate(axis_map, in_size, eager_arithmetic(dtype))
    adjoint = transpose(taps)
    assert torch.equal(adjoint.dense(), taps.dense().T)
    assert (adjoint.in_size, adjoint.out_size) == (taps.out_size, in_size)


@given(fitting_maps())
@quick
def test_transpose_is_the_adjoint(fitting: tuple[AxisMap, int]) -> None:
    """<A x, y> = <x, A' y>, the taps applied and not their matrix."""
    axis_map, in_size = fitting
    taps = evaluate(axis_map, in_size, TRUTH)
    x, y = random(in_size), random(taps.out_size)
    forward = (apply_taps(x, taps, 0) * y).sum()
    backward = (x * apply_taps(y, transpose(taps), 0)).sum()
    assert float(forward) == pytest.approx(float(backward), abs=1e-12)


def test_transpose_of_a_replicate_pad_has_rows_of_1_to_65_taps() -> None:
    adjoint = transpose(evaluate(AxisMap((Pad(64, 0, "replicate"),)), 8, TRUTH))
    assert adjoint.weight is not None
    assert (adjoint.weight != 0).sum(0).tolist() == [65, *[1] * 7]


def test_transpose_refuses_quantised_taps() -> None:
    with pytest.raises(AssertionError, match="transpose before quantising"):
        transpose(evaluate(AxisMap((Resize(3, "bilinear"),)), 5, eager_arithmetic(torch.uint8)))


def plain_quantise(weights: list[float]) -> tuple[list[int], int]:
    """ATen's loop, as it is written there."""
    precision = 0
    while precision < MAX_PRECISION and int(0.5 + max(weights) * (1 << (precision + 1))) < 1 << 15:
        precision += 1
    scaled = [weight * (1 << precision) for weight in weights]
    return [int(value - 0.5) if value < 0 else int(value + 0.5) for value in scaled], 1 << precision


@given(weighted_steps(), sizes(60))
@quick
def test_quantise(step: Resize, in_size: int) -> None:
    taps = weighted_taps(step, in_size, TRUTH)
    assert taps.weight is not None
    quantised = quantise(taps)
    assert quantised.weight is not None
    assert quantised.one is not None
    weights, one = plain_quantise(taps.weight.flatten().tolist())
    assert int(quantised.one) == one
    assert quantised.weight.flatten().tolist() == weights
    assert quantised.weight.max() < 2**15


def test_quantise_rounds_half_away_from_zero() -> None:
    weight = torch.tensor([[0.75, 1.5 / 2**15, -1.5 / 2**15, -0.5 / 2**15]], dtype=torch.float64)
    quantised = quantise(Taps(4, torch.arange(4)[None], weight))
    assert quantised.one is not None
    assert quantised.weight is not None
    assert quantised.one.item() == 2**15
    assert quantised.weight.tolist() == [[24576, 2, -2, -1]]


def test_precision_is_limited() -> None:
    quantised = quantise(Taps(1, torch.tensor([[0]]), torch.tensor([[1e-6]], dtype=torch.float64)))
    assert quantised.one is not None
    assert quantised.one.item() == 2**MAX_PRECISION


def test_quantised_matrix_is_near_the_exact_one() -> None:
    step = Resize(7, "bicubic", antialias=True)
    quantised = dense(step, 20, eager_arithmetic(torch.uint8))
    torch.testing.assert_close(quantised, dense(step, 20), rtol=0, atol=2.0**-15)
    assert not torch.equal(quantised, dense(step, 20))
