"""Axes that are flipped and lie one within the other are one axis (`launch/geometry.h`): as torch flips them."""

from __future__ import annotations

from itertools import combinations

import pytest
import torch

import polyphase.functional as P

SHAPES = ((5, 3, 7, 2), (2, 4, 1, 3), (2, 3, 300, 5), (1, 2, 120, 140), (3, 2, 6, 4, 3), (2, 1, 30, 30, 30))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float16, torch.float32, torch.complex128])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_as_torch(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    image = (torch.rand(shape, generator=torch.Generator().manual_seed(1)) * 250).to(dtype)
    last = torch.channels_last if len(shape) == 4 else torch.channels_last_3d
    views = (image, image.contiguous(memory_format=last), image.transpose(-1, -2), image[..., 1:], image[:, :, 1:])
    for count in range(1, len(shape) + 1):
        for axes in combinations(range(len(shape)), count):
            for view in views:
                ours, wanted = P.flip(view, axes), torch.flip(view, axes)
                assert torch.equal(ours, wanted)
                assert ours.stride() == wanted.stride()


def test_as_part_of_more() -> None:
    image = torch.rand(3, 4, 6, 5)
    flipped = torch.compile(lambda x: torch.flip(x, (1, 2, 3)) * 2 + 1, backend="polyphase")(image)
    assert torch.equal(flipped, torch.flip(image, (1, 2, 3)) * 2 + 1)
