"""Images of a batch that are warped alike are one of more channels (`join_images` of launch/bind.h): they are as each
image alone. So are those that cannot be joined, for how they lie, or for what their channels are given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import polyphase.functional as P
from tests.support.threads import threads

#: So large that a row of it is not joined with the next, alone or in a batch: tiles begin at the same pixels.
SIZE = (170, 199)
MODES = ("nearest", "bilinear", "bicubic")
WIDE = {torch.float64: torch.float64}  # coordinates of others are in float32

Fill: TypeAlias = "Sequence[float] | None"
Way: TypeAlias = Callable[[Tensor, str, Fill], Tensor]


def pictures(dtype: torch.dtype, channels: int = 3, count: int = 5) -> Tensor:
    values = torch.rand(count, channels, 50, 61, generator=torch.Generator().manual_seed(3))
    return (values * 255).to(dtype) if dtype == torch.uint8 else values.to(dtype)


def for_all(shared: Tensor, images: Tensor) -> Tensor:
    return shared.to(WIDE.get(images.dtype, torch.float32)).expand(len(images), *shared.shape[1:])


TURNED = torch.tensor([[[0.9, -0.4, 0.1], [0.3, 0.8, -0.2]]])


def by_grid(images: Tensor, mode: str, fill: Fill) -> Tensor:
    grid = for_all(F.affine_grid(TURNED, [1, 1, *SIZE], align_corners=False), images)
    return P.grid_sample(images, grid, mode, align_corners=False, fill=fill)


def by_matrix(images: Tensor, mode: str, fill: Fill) -> Tensor:
    return P.affine_sample(
        images, for_all(TURNED, images), (*images.shape[:2], *SIZE), mode, align_corners=False, fill=fill
    )


def by_field(images: Tensor, mode: str, fill: Fill) -> Tensor:
    """A formula of fields, which has no entries."""
    field = 9 * torch.randn(1, *SIZE, 2, generator=torch.Generator().manual_seed(5))
    return P.displacement_sample(images, for_all(field, images), mode, align_corners=False, fill=fill)


WAYS = (by_grid, by_matrix, by_field)


def assert_as_alone(way: Way, images: Tensor, mode: str, fill: Fill = None, nearly: float = 0) -> None:
    got = way(images, mode, fill)
    for image, ours in zip(images.split(1), got.split(1), strict=True):
        torch.testing.assert_close(ours, way(image, mode, fill), rtol=0, atol=nearly)


@pytest.mark.parametrize(
    "dtype",
    [
        torch.float32,
        torch.uint8,
        pytest.param(torch.float16, marks=pytest.mark.full),
        pytest.param(torch.float64, marks=pytest.mark.full),
    ],
)
@pytest.mark.parametrize("way", WAYS)
def test_as_alone(way: Way, dtype: torch.dtype) -> None:
    for mode in MODES:
        for channels in (1, 3):
            assert_as_alone(way, pictures(dtype, channels), mode)


@pytest.mark.parametrize("way", WAYS)
def test_some_of_a_batch(way: Way) -> None:
    """Of many images, no more are joined than a processor follows the channels of."""
    for count, channels in ((6, 3), (8, 3), (24, 1), (4, 5), (3, 20)):
        assert_as_alone(way, pictures(torch.float32, channels, count), "bilinear")
        assert_as_alone(way, pictures(torch.float32, channels, 2 * count)[::2], "bilinear")


@pytest.mark.parametrize("way", WAYS)
def test_fills(way: Way) -> None:
    """One for all channels, said once or for each, and another for each: of the image's three, not of all joined."""
    images = pictures(torch.float32)
    for fill in ([0.5], [0.5, 0.5, 0.5], [0.1, 0.2, 0.3]):
        for mode in MODES:
            assert_as_alone(way, images, mode, fill)


@pytest.mark.parametrize("way", WAYS)
def test_images_that_lie_otherwise(way: Way) -> None:
    """One alone may be read in another way, and rounded otherwise."""
    pixels = pictures(torch.float32).contiguous(memory_format=torch.channels_last)
    some_channels = pictures(torch.float32, 7)[:, 2:5]
    every_other = pictures(torch.float32)[::2]
    repeated = pictures(torch.float32)[:1].expand(4, -1, -1, -1)
    gray = pictures(torch.float32, 1)
    gray_pixels = gray.permute(1, 2, 3, 0).contiguous().permute(3, 0, 1, 2)
    for images in (
        pixels,
        some_channels,
        every_other,
        repeated,
        gray[::2],
        gray[:1].expand(4, -1, -1, -1),
        gray_pixels,
    ):
        for mode in MODES:
            assert_as_alone(way, images, mode, nearly=1e-6)


def test_matrices_that_differ() -> None:
    images, theta = pictures(torch.float32), TURNED.repeat(5, 1, 1) + 0.1 * torch.randn(5, 2, 3)
    got = P.affine_sample(images, theta, (5, 3, *SIZE), align_corners=False)
    for n in range(5):
        alone = P.affine_sample(images[n : n + 1], theta[n : n + 1], (1, 3, *SIZE), align_corners=False)
        assert torch.equal(got[n : n + 1], alone)


def test_threads() -> None:
    """They share the rows that are left."""
    images = pictures(torch.float32).repeat(8, 1, 1, 1)
    one_thread = by_field(images, "bilinear", None)
    with threads(7):
        assert torch.equal(by_field(images, "bilinear", None), one_thread)
