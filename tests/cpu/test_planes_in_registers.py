"""Taps of small planes of floats are picked out of registers (`warp/small_planes.h`); the plain twin: doubles, which
are gathered."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import polyphase.functional as P

pytestmark = pytest.mark.usefixtures("instruction_set", "fresh_outputs")

#: (height, width) of all numbers of registers, whole and not: the last are no longer small.
PLANES = (
    (2, 2),
    (4, 4),
    (2, 9),
    (4, 8),
    (3, 11),
    (6, 8),
    (7, 7),
    (8, 8),
    (7, 10),
    (8, 10),
    (9, 9),
    (8, 12),
    (9, 11),
    (8, 14),
)
LARGE = ((15, 8), (64, 2), (2, 64), (13, 10))


def inputs(plane: tuple[int, int], points: tuple[int, int]) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(plane[0] * 100 + plane[1])
    image = torch.randn(3, 17, *plane, generator=generator)
    return image, torch.rand(3, *points, 2, generator=generator) * 2.4 - 1.2


def sampled(image: Tensor, grid: Tensor, padding: str) -> Tensor:
    return P.grid_sample(image, grid, padding_mode=padding, align_corners=False)


@pytest.mark.parametrize("points", [(1, 3), (9, 9), (40, 1), (2, 32)])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_as_doubles(padding: str, points: tuple[int, int]) -> None:
    for plane in PLANES + LARGE:
        image, grid = inputs(plane, points)
        gaps = torch.full((6, 17, plane[0], plane[1] + 2), torch.nan)
        view = gaps[::2, ..., 1:-1].copy_(image)
        wanted = sampled(image.double(), grid.double(), padding)
        for one in (image, view):
            found = sampled(one, grid, padding)
            torch.testing.assert_close(found.double(), wanted, rtol=1e-4, atol=1e-5, msg=f"{plane} {points}")


def test_what_is_no_number_stays_where_it_is_read() -> None:
    for plane in PLANES:
        image, grid = inputs(plane, (9, 9))
        image[1, 5, -1, -1], image[2, 16, 0, 0] = torch.nan, torch.inf
        grid[0, 3, 3] = torch.nan
        wanted = sampled(image.double(), grid.double(), "zeros")
        torch.testing.assert_close(sampled(image, grid, "zeros").double(), wanted, rtol=1e-4, atol=1e-5, equal_nan=True)
