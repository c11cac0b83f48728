"""What a grid's output looks like does not matter to its points: rows of a few pixels are one long row, forward and
backward, wherever the grid, the image and the gradient that comes in lie."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import polyphase.functional as P
from polyphase.calls.binding import warp_gradients
from polyphase.sampling.warps import Warp
from tests.support.threads import assert_same_by_threads

MODES = ("nearest", "bilinear", "bicubic")
PADDINGS = ("zeros", "border", "reflection")
#: Of outputs: of fewer points than a tile, of one more than two, long enough for threads; of rows of one and of many.
SIZES = ((1, 1), (7, 3), (65, 1), (1, 65), (333, 4), (2000, 1), (90, 255))
VOLUMES = ((3, 1, 2), (5, 7, 9), (400, 1, 3), (1, 50, 5))


def inputs(size: tuple[int, ...], channels: int = 3, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    torch.manual_seed(len(size) + size[0])
    image = torch.randn(2, channels, *(11, 13, 6)[: len(size)], dtype=dtype)
    return image, torch.rand(2, *size, len(size), dtype=dtype) * 2.6 - 1.3


def with_gaps(tensor: Tensor) -> list[Tensor]:
    """The same values where rows do not follow each other, nor points, nor the components of a point."""
    rows = torch.full((*tensor.shape[:2], tensor.shape[2] + 3, *tensor.shape[3:]), torch.nan, dtype=tensor.dtype)
    narrowed = rows[:, :, 1 : 1 + tensor.shape[2]].copy_(tensor)
    turned = tensor.transpose(1, 2).contiguous().transpose(1, 2)
    apart = tensor.movedim(-1, 0).contiguous().movedim(0, -1)
    every = torch.full((*tensor.shape[:-1], 2 * tensor.shape[-1]), torch.nan, dtype=tensor.dtype)[..., ::2].copy_(
        tensor
    )
    return [tensor, narrowed, turned, apart, every]


def assert_near(ours: Tensor, theirs: Tensor) -> None:
    assert ours.shape == theirs.shape
    assert ours.dtype == theirs.dtype
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("size", [*SIZES, *VOLUMES], ids=str)
def test_wherever_a_grid_lies(size: tuple[int, ...], mode: str) -> None:
    if mode == "bicubic" and len(size) == 3:
        pytest.skip("torch has no bicubic volumes")
    image, grid = inputs(size)
    formats = torch.channels_last if len(size) == 2 else torch.channels_last_3d
    for padding in PADDINGS:
        wanted = F.grid_sample(image, grid, mode, padding, align_corners=False)
        for image_there in (image, image.contiguous(memory_format=formats)):
            for grid_there in with_gaps(grid):
                assert_near(P.grid_sample(image_there, grid_there, mode, padding, align_corners=False), wanted)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.uint8])
def test_dtypes(dtype: torch.dtype) -> None:
    image, grid = inputs((333, 4), dtype=torch.float64)
    image = (image * 40 + 128).clamp(0, 255).to(dtype)
    of_images = grid if dtype == torch.float64 else grid.float()
    wanted = F.grid_sample(image.double(), of_images.double(), align_corners=False)
    got = P.grid_sample(image, of_images, align_corners=False)
    torch.testing.assert_close(got.double(), wanted, rtol=1e-3, atol=0.51 if dtype == torch.uint8 else 0.1)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("size", [*SIZES, *VOLUMES], ids=str)
def test_gradients_wherever_they_lie(size: tuple[int, ...], mode: str) -> None:
    if mode == "bicubic" and len(size) == 3:
        pytest.skip("torch has no bicubic volumes")
    image, grid = (one.requires_grad_() for one in inputs(size))
    out = F.grid_sample(image, grid, mode, "border", align_corners=True)
    given = torch.randn_like(out)
    wanted = torch.autograd.grad(out, (image, grid), given)
    there = [
        given,
        with_gaps(given.movedim(1, -1))[1].movedim(-1, 1),
        given.transpose(2, 3).contiguous().transpose(2, 3),
    ]
    for gradient in there:
        for coordinates in with_gaps(grid.detach()):
            got = warp_gradients(
                gradient, image.detach(), coordinates, Warp("grid", mode, "border", True), (True, True)
            )
            for ours, theirs in zip(got, wanted, strict=True):
                assert ours is not None
                assert_near(ours, theirs)


@pytest.mark.parametrize("size", [(2000, 3), (40000, 1), (333, 100)], ids=str)
def test_threads_share_points(size: tuple[int, ...]) -> None:
    """To the same bits."""
    image, grid = inputs(size, channels=5)
    gradient, sampler = torch.ones(2, 5, *size), Warp("grid", "bilinear", "zeros", False)

    def results() -> tuple[Tensor | None, ...]:
        of = warp_gradients(gradient, image, grid, sampler, (True, True))
        return P.grid_sample(image, grid, align_corners=False), *of

    assert_same_by_threads(results)
