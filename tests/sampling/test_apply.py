from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from polyphase.sampling.apply import apply_taps
from polyphase.sampling.axis_maps import AxisMap
from polyphase.sampling.evaluate import evaluate
from polyphase.sampling.steps import Flip, Pad, Resize
from polyphase.sampling.windows import eager_arithmetic
from tests.sampling.eager import TRUTH
from tests.sampling.strategies import DTYPES, fitting_maps, quick


@given(fitting_maps(), st.integers(0, 3))
@quick
def test_is_the_matrix_along_one_axis(fitting: tuple[AxisMap, int], dim: int) -> None:
    axis_map, in_size = fitting
    taps = evaluate(axis_map, in_size, TRUTH)
    shape = [2, 3, 2, 3]
    shape[dim] = in_size
    image = torch.rand(shape, dtype=torch.float64)
    expected = torch.tensordot(image, taps.dense(), dims=([dim], [1])).movedim(-1, dim)
    torch.testing.assert_close(apply_taps(image, taps, dim), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_index_only_maps_move_any_dtype_untouched(dtype: torch.dtype) -> None:
    image = torch.tensor([0, 1, 3]).to(dtype)
    result = apply_taps(image, evaluate(AxisMap((Flip(), Pad(1, 0, "replicate"))), 3, TRUTH), 0)
    assert result.dtype == dtype
    assert torch.equal(result, image[torch.tensor([2, 2, 1, 0])])


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@given(fitting=fitting_maps(), data=st.data())
@quick
def test_odd_pixels_reach_only_what_has_a_weight_on_them(
    value: float, fitting: tuple[AxisMap, int], data: st.DataObject
) -> None:
    axis_map, in_size = fitting
    taps = evaluate(axis_map, in_size, TRUTH)
    pixel = data.draw(st.integers(0, in_size - 1))
    image = torch.rand(in_size, dtype=torch.float64)
    clean = apply_taps(image, taps, 0)
    image[pixel] = value
    result = apply_taps(image, taps, 0)
    reached = taps.dense()[:, pixel] != 0
    assert torch.equal(~result.isfinite(), reached)
    assert torch.equal(result[~reached], clean[~reached])


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_floats_come_back_in_the_dtype_of_the_weights(dtype: torch.dtype) -> None:
    arithmetic = eager_arithmetic(dtype)
    result = apply_taps(torch.rand(8).to(dtype), evaluate(AxisMap((Resize(5, "bilinear"),)), 8, arithmetic), 0)
    assert result.dtype == arithmetic.weights


@pytest.mark.parametrize("shape", [(0, 3, 8), (2, 0, 8)])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_empty_batches(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    for axis_map in (AxisMap((Resize(5, "bicubic"),)), AxisMap((Pad(1, 2, "reflect"), Flip()))):
        taps = evaluate(axis_map, 8, eager_arithmetic(dtype))
        result = apply_taps(torch.zeros(shape, dtype=dtype), taps, 2)
        assert result.shape == (*shape[:2], taps.out_size)
        assert result.dtype == dtype


@given(fitting_maps(), st.integers(0, 2**31))
@quick
def test_uint8_in_exact_integers(fitting: tuple[AxisMap, int], seed: int) -> None:
    """floor(total / one + 1/2), saturated, in Python's integers."""
    axis_map, in_size = fitting
    taps = evaluate(axis_map, in_size, eager_arithmetic(torch.uint8))
    image = torch.randint(0, 256, (in_size,), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))
    if taps.weight is None or taps.one is None:
        assert taps.one is None
        assert torch.equal(apply_taps(image, taps, 0), image[taps.index[0]])
        return
    one, pixels = int(taps.one), image.tolist()
    expected = []
    for weights, index in zip(taps.weight.T.tolist(), taps.index.T.tolist(), strict=True):
        total = sum(weight * pixels[i] for weight, i in zip(weights, index, strict=True))
        expected.append(min(max((total + one // 2) // one, 0), 255))
    assert apply_taps(image, taps, 0).tolist() == expected
