"""Rows are made along the axis that is better for it (`choose_row` in launch/geometry.h), and rows of gradients that
are sums of nothing are not made (`resample/zeroed.h`). The plain twin: sums by their definition, in float64."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import polyphase.functional as P

pytestmark = pytest.mark.usefixtures("instruction_set", "fresh_outputs")

#: Narrow images and volumes, to sizes that shrink and grow; the last three are not narrow.
SIZES = (
    ((60, 3), (31, 1)),
    ((41, 2), (90, 5)),
    ((50, 16), (70, 9)),
    ((5, 33, 4), (9, 20, 2)),
    ((64, 3, 6), (30, 7, 2)),
    ((24, 40), (13, 17)),
    ((4, 70), (1, 33)),
    ((9, 20, 30), (4, 11, 26)),
)
MODES = {2: ("bilinear", "bicubic", "area", "nearest"), 3: ("trilinear", "area", "nearest")}
TOLERANCE = {torch.float32: (1e-4, 1e-4), torch.float64: (1e-11, 1e-11), torch.bfloat16: (2e-2, 4e-2)}


def image_of(size: tuple[int, ...], layout: str, dtype: torch.dtype) -> Tensor:
    """Three images of ten channels. Of a view, its last two axes are turned, or channels lie side by side."""
    image = torch.randn(3, 10, *size, generator=torch.Generator().manual_seed(1)).to(dtype)
    if layout == "turned":
        return image.transpose(-1, -2).contiguous().transpose(-1, -2)
    if layout == "side by side":
        return image.movedim(1, -1).contiguous().movedim(-1, 1)
    return image


def gradient_of(image: Tensor, size: tuple[int, ...], mode: str, weights: Tensor) -> Tensor:
    image = image.detach().requires_grad_()
    (gradient,) = torch.autograd.grad(P.interpolate(image, size, mode=mode), image, weights)
    return gradient


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("layout", ["planes", "turned", "side by side"])
def test_as_by_definition(layout: str, dtype: torch.dtype) -> None:
    rtol, atol = TOLERANCE[dtype]
    for before, after in SIZES:
        for mode in MODES[len(before)]:
            image = image_of(before, layout, dtype)
            wanted = torch.nn.functional.interpolate(image.double(), after, mode=mode)
            found = P.interpolate(image, after, mode=mode)
            torch.testing.assert_close(found.double(), wanted, rtol=rtol, atol=atol, msg=f"{before} {after} {mode}")
            weights = torch.randn(wanted.shape, generator=torch.Generator().manual_seed(2)).to(dtype)
            exact = image.double().requires_grad_()
            resized = torch.nn.functional.interpolate(exact, after, mode=mode)
            (wanted,) = torch.autograd.grad(resized, exact, weights.double())
            found = gradient_of(image, after, mode, weights)
            torch.testing.assert_close(found.double(), wanted, rtol=rtol, atol=4 * atol, msg=f"{before} {after} {mode}")


@pytest.mark.parametrize("antialias", [False, True])
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_bytes_are_rounded_between_the_axes(mode: str, antialias: bool) -> None:
    """Along a row first, as one after the other."""
    for before, after in SIZES:
        for layout in ("planes", "turned", "side by side") if len(before) == 2 else ():
            image = (image_of(before, layout, torch.float32) * 90 + 120).clamp(0, 255).to(torch.uint8)
            found = P.interpolate(image, after, mode=mode, antialias=antialias)
            along = P.interpolate(image.contiguous(), (before[0], after[1]), mode=mode, antialias=antialias)
            wanted = P.interpolate(along, after, mode=mode, antialias=antialias)
            assert torch.equal(found, wanted), (before, after, layout)


@pytest.mark.parametrize("mode", ["reflect", "constant", "replicate", "circular"])
def test_pads_of_turned_views(mode: str) -> None:
    for before, _ in SIZES:
        pad = [1, 0, 2, 1]
        image = image_of(before, "turned", torch.float32).flatten(1, -3)
        assert torch.equal(P.pad(image, pad, mode=mode), torch.nn.functional.pad(image.contiguous(), pad, mode=mode))


def test_rows_that_no_output_reads_have_no_gradient() -> None:
    """Each in memory that held something else, and of large tensors: several pages are made 0."""
    for before, after in (((60, 30), (11, 29)), ((20, 40, 50), (7, 9, 50)), ((64, 3), (13, 3))):
        for mode in MODES[len(before)]:
            image = image_of(before, "planes", torch.float32)
            weights = torch.ones(3, 10, *after)
            exact = image.double().requires_grad_()
            resized = torch.nn.functional.interpolate(exact, after, mode=mode)
            (wanted,) = torch.autograd.grad(resized, exact, weights.double())
            found = gradient_of(image, after, mode, weights)
            torch.testing.assert_close(found.double(), wanted, rtol=1e-5, atol=1e-5)
            assert torch.equal(found == 0, wanted == 0)


@pytest.mark.parametrize("channels", [8, 9, 15, 24, 33])
def test_channels_taken_apart_and_put_together(channels: int) -> None:
    """By blocks of eight (`turn_pixels` in resample/spaced.h): the same values, whatever the number of pixels."""
    for width in (1, 7, 8, 9, 31):
        image = torch.randn(2, channels, 5, width)
        rows = image.contiguous(memory_format=torch.channels_last)
        for one in (image, rows):
            found = P.interpolate(one, (9, width + 3), mode="bicubic")
            wanted = torch.cat([P.interpolate(one[:, [c]], (9, width + 3), mode="bicubic") for c in range(channels)], 1)
            torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)
