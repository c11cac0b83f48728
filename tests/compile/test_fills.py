"""Warps with a fill, as libraries spell them, become one kernel; and why others do not."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import polyphase
from polyphase.compile.reasons import Why
from tests.compile.graphs import fused
from tests.support.vision import torchvision

BYTES = torch.randint(0, 256, (2, 3, 40, 52), dtype=torch.uint8)
FLOATS = torch.rand(2, 3, 40, 52)
COLOUR = [1.0, 0.25, 3.0]
#: As wide and high as there are channels.
GRID_OF_3 = torch.rand(2, 3, 3, 2) * 3 - 1.5


def grid(axes: int = 2) -> Tensor:
    """Turned and moved: pixels inside, across edges and outside."""
    theta = torch.tensor([[1.1, 0.3, 0.21], [-0.2, 1.3, 0.13]])
    if axes == 3:
        theta = torch.tensor([[1.1, 0.3, 0.1, 0.21], [-0.2, 1.3, 0.0, 0.13], [0.1, 0.0, 1.2, 0.0]])
    return F.affine_grid(theta.expand(2, *theta.shape), [2, 3, 9, 20, 31][: axes + 2], align_corners=False)


def sampled(x: Tensor, at: Tensor, **options: Any) -> tuple[Tensor, Tensor]:
    """And the share of each pixel that lies inside."""
    ones = torch.ones((x.shape[0], 1, *x.shape[2:]), dtype=x.dtype)
    both = F.grid_sample(torch.cat([x, ones], 1), at, align_corners=False, **options)
    return both[:, :-1], both[:, -1:]


def colour(axes: int = 2) -> Tensor:
    return torch.tensor(COLOUR).view(1, -1, *[1] * axes)


def blended(x: Tensor, at: Tensor) -> Tensor:
    s, m = sampled(x, at)
    return (s - colour()) * m.expand_as(s) + colour()


def blended_in_place(x: Tensor, at: Tensor) -> Tensor:
    s, m = sampled(x.float(), at)
    return s.sub_(colour()).mul_(m).add_(colour()).round_().to(x.dtype)


def blended_otherwise(x: Tensor, at: Tensor) -> Tensor:
    """As torchvision's v1."""
    s, m = sampled(x, at)
    m = m.expand_as(s)
    return s * m + (1.0 - m) * colour()


def blended_with_nothing(x: Tensor, at: Tensor) -> Tensor:
    s, m = sampled(x, at)
    return torch.tensor([0.0]).view(1, -1, 1, 1) + m * (s - torch.tensor([0.0]).view(1, -1, 1, 1))


def constant(x: Tensor, at: Tensor) -> Tensor:
    s, m = sampled(x, at, mode="bicubic")
    return s + (1 - m) * colour()


def nearest(x: Tensor, at: Tensor) -> Tensor:
    s, m = sampled(x, at, mode="nearest")
    return torch.where(m.expand_as(s) < 0.5, colour().expand_as(s), s)


def of_volumes(x: Tensor, at: Tensor) -> Tensor:
    s, m = sampled(x, at)
    return 7.5 + (s - 7.5) * m


BLENDED = "program(float32, warp(grid, fill=[1.0, 0.25, 3.0]))"
ONE_KERNEL: dict[str, tuple[Callable[..., Any], tuple[Tensor, ...], str]] = {
    "blended": (blended, (FLOATS, grid()), BLENDED),
    "blended in place": (
        blended_in_place,
        (BYTES, grid()),
        "program(uint8, warp(grid, fill=[1.0, 0.25, 3.0]), prologue=cast(x, float32), epilogue=cast(round(x), uint8))",
    ),
    "blended otherwise": (blended_otherwise, (FLOATS, grid()), BLENDED),
    "blended with nothing": (blended_with_nothing, (FLOATS, grid()), "program(float32, warp(grid, fill=[0.0]))"),
    "constant": (
        constant,
        (FLOATS, grid()),
        "program(float32, warp(grid, mode=bicubic, fill=[1.0, 0.25, 3.0], fill_rule=constant))",
    ),
    "nearest": (nearest, (FLOATS, grid()), "program(float32, warp(grid, mode=nearest, fill=[1.0, 0.25, 3.0]))"),
    "volumes": (of_volumes, (torch.rand(2, 3, 9, 8, 7), grid(3)), "program(float32, warp(grid, fill=[7.5]))"),
    "arithmetic after": (
        lambda x, at: blended(x, at) * 2,
        (FLOATS, grid()),
        "program(float32, warp(grid, fill=[1.0, 0.25, 3.0]), epilogue=mul(x, 2))",
    ),
}


@pytest.mark.parametrize("name", ONE_KERNEL)
def test_one_kernel(name: str) -> None:
    function, args, program = ONE_KERNEL[name]
    report, result = fused(function, *args)
    assert [one.program for one in report.kernels] == [program]
    assert not any("cat" in one.nodes for one in report.kernels)
    torch.testing.assert_close(result, function(*args), rtol=1e-4, atol=1e-4)


#: What is made of the sampled image, its share inside and a tensor that is given; by which mode; and why it is no fill.
NOT_FILLED: dict[str, tuple[Callable[[Tensor, Tensor, Tensor], Any], str, Why]] = {
    "a colour that is given": (lambda s, m, c: (s - c) * m + c, "bilinear", Why.FILL_IS_COMPUTED),
    "two colours": (lambda s, m, c: (s - colour()) * m + 2.0, "bilinear", Why.NOT_A_FILL),
    "a share to a power": (lambda s, m, c: s * m * m, "bilinear", Why.NOT_ALONE),
    "a share that is returned": (lambda s, m, c: ((s - colour()) * m + colour(), m), "bilinear", Why.NOT_ALONE),
    "another limit": (lambda s, m, c: torch.where(m < 0.25, 3.0, s), "nearest", Why.NOT_A_FILL),
    "one or the other": (lambda s, m, c: torch.where(m < 0.5, colour(), s), "bilinear", Why.NOT_A_FILL),
    "infinity": (lambda s, m, c: s + (1 - m) * math.inf, "nearest", Why.NOT_A_FILL),
    "a root of the share": (lambda s, m, c: (s - colour()) * m.sqrt() + colour(), "bilinear", Why.NOT_A_FILL),
}


@pytest.mark.parametrize("name", NOT_FILLED)
def test_why_not(name: str) -> None:
    of_both, mode, why = NOT_FILLED[name]

    def function(x: Tensor, at: Tensor, given: Tensor) -> Any:
        return of_both(*sampled(x, at, mode=mode), given)

    args = (FLOATS, grid(), torch.rand(1, 3, 1, 1))
    report, result = fused(function, *args)
    (kernel,) = report.kernels
    assert "fill" not in kernel.program
    assert why in [refused.why for refused in kernel.not_fused]
    torch.testing.assert_close(result, function(*args), rtol=1e-4, atol=1e-4, equal_nan=True)


#: What is made of the sampled image and its share inside; the image and its grid.
NOT_A_PICTURE: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], Tensor, Tensor]] = {
    "numbers along a row": (lambda s, m: (s - torch.tensor(COLOUR)) * m + torch.tensor(COLOUR), FLOATS, GRID_OF_3),
    "numbers down a column": (lambda s, m: s + (1 - m) * torch.tensor(COLOUR).view(3, 1), FLOATS, GRID_OF_3),
    "numbers along a volume's depth": (
        lambda s, m: s + (1 - m) * torch.tensor(COLOUR).view(3, 1, 1),
        torch.rand(2, 3, 5, 6, 7),
        torch.rand(2, 3, 3, 3, 3) * 3 - 1.5,
    ),
    "as many images as colours": (
        lambda s, m: (s - torch.full((4, 1, 1, 1), 0.5)) * m + torch.full((4, 1, 1, 1), 0.5),
        FLOATS[:1],
        GRID_OF_3[:1],
    ),
    "an image, several times": (lambda s, m: s.expand(4, -1, -1, -1) * m, FLOATS[:1], GRID_OF_3[:1]),
    "a colour of another dtype": (
        lambda s, m: s + (1 - m) * torch.tensor(COLOUR, dtype=torch.float64).view(1, -1, 1, 1),
        FLOATS,
        GRID_OF_3,
    ),
}


@pytest.mark.parametrize("name", NOT_A_PICTURE)
def test_a_colour_of_another_shape_or_dtype(name: str) -> None:
    """What is made of both is then no picture of the sampled one's shape and dtype."""
    of_both, x, at = NOT_A_PICTURE[name]

    def function(x: Tensor, at: Tensor) -> Tensor:
        return of_both(*sampled(x, at))

    report, result = fused(function, x, at)
    assert not any("fill" in one.program for one in report.kernels)
    torch.testing.assert_close(result, function(x, at), rtol=1e-4, atol=1e-4)


def test_ones_of_another_dtype() -> None:
    """The image is converted before it is sampled."""

    def function(x: Tensor, at: Tensor) -> Tensor:
        both = F.grid_sample(torch.cat([x, x.new_ones(2, 1, 40, 52, dtype=at.dtype)], 1), at, align_corners=False)
        return both[:, :-1] * both[:, -1:]

    _, result = fused(function, FLOATS, grid().double())
    torch.testing.assert_close(result, function(FLOATS, grid().double()))


def test_what_is_no_mask_is_none() -> None:
    """Twos beside the image, ones with a border around, and a map of ones: nothing is said of a fill."""
    for beside, padding in ((2.0, "zeros"), (1.0, "border")):

        def function(x: Tensor, at: Tensor, beside: float = beside, padding: str = padding) -> Tensor:
            more = torch.full((2, 1, 40, 52), beside)
            both = F.grid_sample(torch.cat([x, more], 1), at, padding_mode=padding, align_corners=False)
            return both[:, :-1] * both[:, -1:]

        report, result = fused(function, FLOATS, grid())
        assert not any("fill" in one.program for one in report.kernels)
        torch.testing.assert_close(result, function(FLOATS, grid()), rtol=1e-4, atol=1e-4)


@pytest.mark.cpu
@pytest.mark.inductor
@pytest.mark.parametrize("dynamic", [False, pytest.param(True, marks=pytest.mark.full)])
def test_torchvisions_rotate(dynamic: bool) -> None:
    """Compiled as a whole: eager's picture, its strides, and one launch that reads the image alone."""
    v2 = torchvision()
    rotate, modes = sys.modules["torchvision.transforms.v2.functional"].rotate, v2.InterpolationMode
    for x, mode, fill in (
        (BYTES, modes.BILINEAR, [200.0, 3.0, 90.0]),
        (BYTES, modes.NEAREST, [127.0]),
        (FLOATS, modes.BILINEAR, COLOUR),
    ):

        def function(x: Tensor, mode: Any = mode, fill: Any = fill) -> Tensor:
            return rotate(x, 30.0, mode, fill=fill)  # type: ignore[no-any-return]

        torch.compiler.reset()
        compiled = torch.compile(function, backend="polyphase", dynamic=dynamic)
        compiled(x)
        before = polyphase.stats()["kernels_launched"]
        found, expected = compiled(x), function(x)
        assert polyphase.stats()["kernels_launched"] - before == 1
        assert found.stride() == expected.stride()
        if not dynamic:
            (graph,) = polyphase.explain(function)(x).graphs
            assert ["fill" in one.program for one in graph.ours] == [True]
            assert all(one.bytes < 1024 for one in graph.buffers if one.role == "between")
        apart = (found.double() - expected.double()).abs()
        assert apart.max() <= (1 if x.dtype == torch.uint8 else 1e-4)
        assert x.dtype != torch.uint8 or (apart > 0).double().mean() <= 0.002


@pytest.mark.inductor
def test_trained() -> None:
    """The image with its ones is kept for the backward then: gradients are eager's."""
    x, at = FLOATS.clone().requires_grad_(), grid().requires_grad_()
    blended(x, at).square().sum().backward()
    expected = x.grad, at.grad
    x.grad = at.grad = None
    torch.compile(blended, backend="polyphase")(x, at).square().sum().backward()
    for found, wanted in zip((x.grad, at.grad), expected, strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-2)
