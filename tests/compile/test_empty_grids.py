"""Grids that are computed, where a batch, channels or output pixels are none: as by Inductor."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.compile.running import compiled

pytestmark = pytest.mark.inductor


def scaled(image: Tensor, matrices: Tensor, height: int, width: int) -> Tensor:
    rows, columns = torch.meshgrid(torch.linspace(-1, 1, height), torch.linspace(-1, 1, width), indexing="ij")
    grid = torch.stack((columns, rows), -1)[None].expand(image.shape[0], -1, -1, -1)
    return F.grid_sample(image, grid * 0.5, align_corners=False)


def moved(image: Tensor, matrices: Tensor, height: int, width: int) -> Tensor:
    rows, columns = torch.meshgrid(torch.arange(height) / 10.0, torch.arange(width) / 10.0, indexing="ij")
    by = matrices[:, :, 2].sum(1).reshape(-1, 1, 1, 1)
    return F.grid_sample(image, torch.stack((columns, rows.square()), -1)[None] + by, align_corners=False)


def by_a_matrix(image: Tensor, matrices: Tensor, height: int, width: int) -> Tensor:
    size = [image.shape[0], image.shape[1], height, width]
    return F.grid_sample(image, F.affine_grid(matrices, size, align_corners=False), align_corners=False)


@pytest.mark.parametrize("sizes", [(0, 3, 4, 5), (2, 0, 4, 5), (2, 3, 0, 5), (2, 3, 4, 0)], ids=str)
@pytest.mark.parametrize("function", [scaled, moved])
def test_nothing_to_sample(function: Callable[..., Tensor], sizes: tuple[int, int, int, int]) -> None:
    batch, channels, height, width = sizes
    image = torch.rand(batch, channels, 7, 8, requires_grad=True)
    matrices = torch.rand(batch, 2, 3, requires_grad=True)
    for dynamic in (False, True):
        got = compiled(function, dynamic=dynamic)(image, matrices, height, width)
        assert got.shape == (batch, channels, height, width)
        (gradient,) = torch.autograd.grad(got.sum(), image)
        assert gradient.shape == image.shape
        assert not gradient.any()


@pytest.mark.parametrize("sizes", [(0, 3, 4, 5), (2, 0, 4, 5)], ids=str)
def test_what_eager_refuses_is_refused(sizes: tuple[int, int, int, int]) -> None:
    """affine_grid makes no empty grids, and nothing is sampled of images without pixels."""
    image, matrices = torch.rand(sizes[0], sizes[1], 7, 8), torch.rand(sizes[0], 2, 3)
    with pytest.raises(ValueError, match="non-zero"):
        by_a_matrix(image, matrices, *sizes[2:])
    with pytest.raises(Exception, match="non-zero"):
        compiled(by_a_matrix)(image, matrices, *sizes[2:])
    with pytest.raises(Exception, match="empty"):
        compiled(scaled)(torch.rand(2, 3, 0, 8), torch.rand(2, 2, 3), 4, 5)
