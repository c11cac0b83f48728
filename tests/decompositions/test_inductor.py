"""Compiled by Inductor with our table: eager's pictures, and channels last all the way."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch._inductor.utils import run_and_get_code

from polyphase.bench.columns.compiled import decomposed
from tests.support.samples import image

pytestmark = pytest.mark.inductor


def resize(x: Tensor) -> Tensor:
    return F.interpolate(x, size=(27, 31), mode="bilinear", antialias=True)


@pytest.fixture(autouse=True)
def _fresh() -> None:
    torch._dynamo.reset()


@pytest.mark.parametrize("layout", [pytest.param("CF", marks=pytest.mark.full), "CL"])
@pytest.mark.parametrize(
    "dtype", [pytest.param(torch.uint8, marks=pytest.mark.full), torch.float32]
)  # bytes are in tests/bench/test_measure.py
def test_antialiased(dtype: torch.dtype, layout: str) -> None:
    compiled: Any = torch.compile(resize, backend=decomposed)
    x = image((2, 3, 45, 52), dtype, layout)
    want = resize(x)
    got, (code,) = run_and_get_code(compiled, x)
    torch.testing.assert_close(got, want, **({"rtol": 0, "atol": 0} if dtype == torch.uint8 else {}))  # type: ignore[arg-type]
    assert got.stride() == want.stride()
    assert "_upsample" not in re.sub(r"#.*|cpp_fused\w*", "", code)  # no fallback to eager's kernel
    if layout == "CL":
        assert_buffers_are_channels_last(code)


def assert_buffers_are_channels_last(code: str) -> None:
    """A planar buffer between channels-last ones costs 2x. The buffers are of no channels at all or innermost ones."""
    shapes = re.findall(r"empty_strided_cpu\(\(([\d, ]+)\), \(([\d, ]+)\)", code)
    images = [
        (tuple(map(int, size.split(", "))), tuple(map(int, stride.split(", "))))
        for size, stride in shapes
        if size.count(",") == 3
    ]
    assert images
    for size, stride in images:
        assert stride[size.index(3)] == 1, (size, stride)


@pytest.mark.full
def test_forward_and_backward_with_dynamic_shapes() -> None:
    def step(x: Tensor) -> Tensor:
        return F.interpolate(x, scale_factor=1.5, mode="bilinear").relu().square()

    compiled: Any = torch.compile(step, backend=decomposed, dynamic=True)
    graphs = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    for shape in ((2, 3, 12, 17), (2, 3, 30, 9), (4, 3, 11, 40)):
        x = torch.randn(shape, requires_grad=True)
        y = x.detach().clone().requires_grad_()
        want, got = step(y), compiled(x)
        torch.testing.assert_close(got, want)
        gradient = torch.randn_like(want)
        torch.testing.assert_close(torch.autograd.grad(got, x, gradient), torch.autograd.grad(want, y, gradient))
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == graphs + 1
