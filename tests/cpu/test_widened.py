"""Images of half precision are made floats before they are sampled (`warp/widened.h`); the plain twin: floats that are
given."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import polyphase.functional as P

pytestmark = pytest.mark.usefixtures("instruction_set", "fresh_outputs")

#: Batch, channels and sizes: several images together, many that are widened a few at a time, volumes.
SHAPES = ((5, 3, 20, 33), (70, 20, 9, 15), (2, 130, 40, 40), (2, 5, 6, 7, 9), (3, 18, 4, 9, 11))


def grid_for(image: Tensor, size: tuple[int, ...]) -> Tensor:
    grid = torch.rand(image.shape[0], *size, len(size), generator=torch.Generator().manual_seed(2))
    return (grid * 2.4 - 1.2).to(image.dtype)


def layouts(image: Tensor) -> list[Tensor]:
    """Planes, channels side by side, a view with gaps, one image for all, a transposed view."""
    gaps = torch.full((2 * image.shape[0], *image.shape[1:-1], image.shape[-1] + 3), torch.nan, dtype=image.dtype)
    view = gaps[::2, ..., 2:-1].copy_(image)
    side_by_side = image.movedim(1, -1).contiguous().movedim(-1, 1)
    turned = image.transpose(-1, -2).contiguous().transpose(-1, -2)
    return [image, side_by_side, view, image[:1].expand(image.shape), turned]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_as_floats(mode: str, dtype: torch.dtype) -> None:
    for shape in SHAPES:
        if mode == "bicubic" and len(shape) == 5:
            continue
        image = torch.randn(shape, generator=torch.Generator().manual_seed(1)).to(dtype)
        for size in ((17, 21), (1, 1)) if len(shape) == 4 else ((5, 6, 7),):
            grid = grid_for(image, size)
            for number, one in enumerate(layouts(image)):
                for padding in ("zeros", "reflection"):
                    found = P.grid_sample(one, grid, mode, padding, align_corners=False)
                    wanted = P.grid_sample(one.float(), grid.float(), mode, padding, align_corners=False).to(dtype)
                    assert found.stride() == wanted.stride(), (shape, size, number)
                    rtol = 2e-3 if dtype == torch.float16 else 1.6e-2
                    torch.testing.assert_close(found, wanted, rtol=rtol, atol=1e-6, msg=f"{shape} {size} {number}")


def test_matrices_fills_and_values_that_are_no_numbers() -> None:
    image = torch.randn(40, 3, 30, 50, generator=torch.Generator().manual_seed(1)).half()
    image[0, 0, 3, 4], image[7, 1, 9, 9] = torch.nan, torch.inf
    turn = torch.tensor([[0.8, -0.3, 0.1], [0.3, 0.8, -0.2]]) * torch.linspace(0.5, 1.5, 40)[:, None, None]
    for fill in (None, 0.5, (0.1, 0.2, 0.3)):
        found = P.affine_sample(image, turn.half(), (40, 3, 30, 40), fill=fill)
        wanted = P.affine_sample(image.float(), turn.half().float(), (40, 3, 30, 40), fill=fill).half()
        torch.testing.assert_close(found, wanted, rtol=2e-3, atol=1e-6, equal_nan=True)
