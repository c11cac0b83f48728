"""Tiles go down a band of rows before they go right (`warp/bands.h`): of how many rows, no value may tell."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import polyphase.functional as P
from tests.support.threads import threads as torch_threads

#: Rows longer than a page, and shorter; with many planes, with more than a processor follows, and with one.
SHAPES = ((1, 3, 37, 1500), (2, 3, 45, 456), (1, 12, 33, 456), (1, 17, 21, 700), (2, 1, 70, 1100))
ANGLES = (0, 1, 4, 30, 90, 180)  # in degrees
PLACES = 1e-3  # what float32 moves a pixel by, at most


def image_of(shape: tuple[int, ...]) -> Tensor:
    """Its neighbours differ by less than 1."""
    return torch.rand(shape, generator=torch.Generator().manual_seed(7))


def turned_by(degrees: float, shape: tuple[int, ...]) -> Tensor:
    batch, _, height, width = shape
    sine, cosine = math.sin(math.radians(degrees)), math.cos(math.radians(degrees))
    matrix = torch.tensor([[cosine, -sine * height / width, 0.01], [sine * width / height, cosine, 0.02]])
    return matrix.repeat(batch, 1, 1)


#: Results of 8 MB and more, in rows of whole lines, which go past the caches.
LARGE = ((1, 3, 700, 1024), (3, 1, 700, 1040), (2, 9, 260, 480))


def exact(image: Tensor, theta: Tensor) -> Tensor:
    grid = F.affine_grid(theta.double(), list(image.shape), align_corners=False)
    return F.grid_sample(image.double(), grid, align_corners=False)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_by_a_matrix(shape: tuple[int, ...]) -> None:
    image = image_of(shape)
    for degrees in ANGLES:
        theta = turned_by(degrees, shape)
        wanted = exact(image, theta)
        for given in (image, image.contiguous(memory_format=torch.channels_last)):
            got = P.affine_sample(given, theta, shape)
            torch.testing.assert_close(got.double(), wanted, rtol=0, atol=PLACES)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_by_a_grid_and_a_field(shape: tuple[int, ...]) -> None:
    image, theta = image_of(shape), turned_by(2, shape)
    grid = F.affine_grid(theta.double(), list(shape), align_corners=False)
    sizes = torch.tensor([shape[3], shape[2]])
    rows, columns = torch.meshgrid(torch.arange(shape[2]), torch.arange(shape[3]), indexing="ij")
    field = ((grid + 1) * sizes - 1) / 2 - torch.stack((columns, rows), dim=-1)
    for got in (P.grid_sample(image, grid.float(), align_corners=False), P.displacement_sample(image, field.float())):
        torch.testing.assert_close(got.double(), exact(image, theta), rtol=0, atol=PLACES)


@pytest.mark.parametrize("shape", LARGE, ids=str)
def test_large_results(shape: tuple[int, ...]) -> None:
    image = image_of(shape)
    for degrees in (0, 3, 50, 180):
        theta = turned_by(degrees, shape)
        wanted = exact(image, theta)
        for given in (image, image.contiguous(memory_format=torch.channels_last)):
            got = P.affine_sample(given, theta, shape)
            torch.testing.assert_close(got.double(), wanted, rtol=0, atol=PLACES)


@pytest.mark.parametrize(
    "mode",
    ["nearest", pytest.param("bilinear", marks=pytest.mark.full), pytest.param("bicubic", marks=pytest.mark.full)],
)
def test_large_results_of_other_kinds(mode: str) -> None:
    """Dtypes whose tiles are one line, two and four; and a fill. A channel alone is no large result."""
    for dtype, rows in ((torch.float16, 1400), (torch.float32, 700), (torch.float64, 350)):
        shape = (1, 3, rows, 1024)
        image, theta = image_of(shape).to(dtype), turned_by(20, shape).to(dtype)
        for fill in (None, 0.5):
            got = P.affine_sample(image, theta, shape, mode, fill=fill)
            alone = [P.affine_sample(one, theta, one.shape, mode, fill=fill) for one in image.split(1, dim=1)]
            assert torch.equal(got, torch.cat(alone, dim=1)), f"{dtype}, fill {fill}"


def test_where_the_middle_is_no_number() -> None:
    """How the image is turned is not known there."""
    shape = SHAPES[0]
    image = image_of(shape)
    grid = F.affine_grid(turned_by(1, shape), list(shape), align_corners=False)
    for bad in (math.nan, math.inf, -math.inf):
        grid[:, ::3, 700:800] = bad
        got = P.grid_sample(image, grid, padding_mode="border", align_corners=False)
        wanted = F.grid_sample(image, grid, padding_mode="border", align_corners=False)
        torch.testing.assert_close(got, wanted, rtol=0, atol=PLACES, equal_nan=True)


@pytest.mark.parametrize("threads", [2, 5])
@pytest.mark.parametrize("shape", [(1, 3, 203, 1500), (1, 3, 703, 1024)], ids=str)
def test_threads(shape: tuple[int, ...], threads: int) -> None:
    """They begin in the middle of a band."""
    image = image_of(shape)
    for degrees in (1, 20):
        theta = turned_by(degrees, shape)
        alone = P.affine_sample(image, theta, shape)
        with torch_threads(threads):
            assert torch.equal(P.affine_sample(image, theta, shape), alone)
