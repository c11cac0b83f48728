from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from polyphase.sampling import filters
from polyphase.sampling.filters import Filter
from tests.sampling.strategies import quick

ALL = [*filters.PLAIN.values(), *filters.ANTIALIAS.values()]
IDS = [f"{kind}-{name}" for kind, table in (("plain", filters.PLAIN), ("aa", filters.ANTIALIAS)) for name in table]


def at(kernel: Filter, *places: float) -> list[float]:
    return [float(weight) for weight in kernel.weight(torch.tensor(places, dtype=torch.float64))]


def sinc(x: float) -> float:
    return math.sin(math.pi * x) / (math.pi * x)


@pytest.mark.parametrize("kernel", ALL, ids=IDS)
@given(x=st.floats(-10, 10))
@quick
def test_zero_outside_the_support(kernel: Filter, x: float) -> None:
    if abs(x) >= kernel.support and x != 0.5:
        assert at(kernel, x) == [0]


@pytest.mark.parametrize("kernel", ALL, ids=IDS)
@given(x=st.floats(-4, 4))
@quick
def test_symmetric(kernel: Filter, x: float) -> None:
    if abs(x) != 0.5:
        assert at(kernel, x) == at(kernel, -x)


@pytest.mark.parametrize("kernel", ALL, ids=IDS)
def test_interpolating(kernel: Filter) -> None:
    """1 at the pixel itself and 0 at every other pixel, so an image at its own size stays as it is."""
    assert at(kernel, 0) == [1]
    assert at(kernel, -3, -2, -1, 1, 2, 3) == pytest.approx([0] * 6, abs=1e-16)


@pytest.mark.parametrize("kernel", ALL, ids=IDS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_keeps_the_dtype(kernel: Filter, dtype: torch.dtype) -> None:
    assert kernel.weight(torch.linspace(-3, 3, 13, dtype=dtype)).dtype == dtype


def test_box_is_half_open() -> None:
    assert at(filters.ANTIALIAS["box"], -0.5, -0.49, 0.49, 0.5, 0.51) == [0, 1, 1, 1, 0]


def test_triangle() -> None:
    assert at(filters.PLAIN["bilinear"], -0.75, 0.25) == [0.25, 0.75]


@pytest.mark.parametrize(("table", "a"), [(filters.PLAIN, -0.75), (filters.ANTIALIAS, -0.5)], ids=["plain", "aa"])
def test_cubic(table: dict[str, Filter], a: float) -> None:
    near = (a + 2) * 0.4**3 - (a + 3) * 0.4**2 + 1
    far = a * 1.4**3 - 5 * a * 1.4**2 + 8 * a * 1.4 - 4 * a
    assert at(table["bicubic"], 0.4, -1.4) == pytest.approx([near, far], abs=1e-14)


def test_hamming() -> None:
    expected = sinc(0.3) * (0.54 + 0.46 * math.cos(0.3 * math.pi))
    assert at(filters.ANTIALIAS["hamming"], 0.3) == pytest.approx([expected], abs=1e-15)


def test_lanczos() -> None:
    expected = [sinc(x) * sinc(x / 3) for x in (0.3, 1.7, 2.9)]
    assert at(filters.ANTIALIAS["lanczos"], 0.3, -1.7, 2.9) == pytest.approx(expected, abs=1e-15)


def test_derivative_is_finite_everywhere() -> None:
    """The 0 / 0 of sinc must not reach the gradient either."""
    for kernel in ALL:
        x = torch.tensor([-1.0, 0.0, 0.5, 1.0], dtype=torch.float64, requires_grad=True)
        weight = kernel.weight(x)
        if weight.requires_grad:
            (gradient,) = torch.autograd.grad(weight.sum(), x)
            assert gradient.isfinite().all(), kernel.name
