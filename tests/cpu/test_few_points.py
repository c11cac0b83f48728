"""Ends of rows, images of few points, and outputs of one pixel: what is less than a tile or a row."""

from __future__ import annotations

import itertools

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import polyphase.functional as P
from polyphase.calls.binding import warp_gradients
from polyphase.sampling.warps import Warp

PADDINGS = ("zeros", "border", "reflection")


def drawn(shape: tuple[int, ...], points: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(points)
    image = torch.rand(shape, generator=generator, dtype=dtype)
    return image, torch.rand(shape[0], 1, points, 2, generator=generator, dtype=dtype) * 3 - 1.5


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(1, 1, 2, 3), (1, 3, 9, 11), (1, 5, 4, 30), (1, 11, 6, 7)])
def test_a_point_has_the_same_bits_in_any_company(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    image, grid = drawn(shape, 71, dtype)
    views = [image, image.contiguous(memory_format=torch.channels_last), image.mT.contiguous().mT]
    for (padding, aligned), there in itertools.product(
        itertools.product(PADDINGS, (False, True)), views[:: 1 + (shape[1] > 4)]
    ):
        whole = P.grid_sample(there, grid, "bilinear", padding, aligned)
        for first, count in ((0, 1), (30, 9), (33, 33), (70, 1)):
            part = P.grid_sample(there, grid[:, :, first : first + count].contiguous(), "bilinear", padding, aligned)
            assert torch.equal(part, whole[..., first : first + count]), (padding, aligned, first)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic"])
def test_as_eager(mode: str, dtype: torch.dtype) -> None:
    for shape, points in itertools.product([(20, 1, 4, 4), (3, 3, 7, 5), (2, 4, 2, 9)], (1, 4, 16, 17, 39)):
        image, grid = drawn(shape, points, dtype)
        for padding, aligned in itertools.product(PADDINGS, (False, True)):
            wanted = F.grid_sample(image, grid, mode, padding, aligned)
            for there in (image, image.contiguous(memory_format=torch.channels_last)):
                torch.testing.assert_close(
                    P.grid_sample(there, grid, mode, padding, aligned), wanted, rtol=1e-4, atol=1e-5
                )


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic"])
def test_gradients_made_together_are_those_made_apart(mode: str, channels: int) -> None:
    """With more threads than images, the image's gradient is made by channels, and the coordinates' by rows."""
    image, grid = drawn((2, channels, 9, 11), 300, torch.float32)
    given, threads = torch.rand(2, channels, 1, 300), torch.get_num_threads()
    given[0, 0, 0, 7] = torch.inf
    try:
        for padding in PADDINGS:
            sampler, found = Warp("grid", mode, padding, False), []
            for count in (1, 3):
                torch.set_num_threads(count)
                found.append(warp_gradients(given, image, grid, sampler, (True, True)))
            alone = [warp_gradients(given, image, grid, sampler, only) for only in ((True, False), (False, True))]
            for n, one in ((0, found[1]), (1, found[1]), (0, alone[0]), (1, alone[1])):
                torch.testing.assert_close(one[n], found[0][n], rtol=0, atol=0, equal_nan=True)
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_pixels_that_were_not_read_get_nothing(dtype: torch.dtype) -> None:
    for shape, size in (((2, 3, 19, 8), (5, 3)), ((1, 2, 9, 7, 6), (4, 2, 3)), ((4, 1, 6, 30), (2, 30))):
        results = []
        for interpolate in (P.interpolate, F.interpolate):
            image = torch.rand(shape, generator=torch.Generator().manual_seed(1)).to(dtype).requires_grad_()
            out = interpolate(image, size=size, mode="nearest")
            given = torch.arange(out.numel()).reshape(out.shape).to(dtype)
            given.view(-1)[1] = torch.inf
            results.append(torch.autograd.grad(out, image, given)[0])
        assert torch.equal(*results)


def test_outputs_of_one_pixel() -> None:
    for dtype, shape in itertools.product(
        (torch.uint8, torch.float32, torch.float64), ((64, 5, 3, 3), (1, 2, 4, 7), (3, 1, 1, 9))
    ):
        image = (torch.rand(shape, generator=torch.Generator().manual_seed(2)) * 255).to(dtype)
        for there in (image, image.contiguous(memory_format=torch.channels_last), image[:, :, :, 1:]):
            for size in ((1, 1), (1, 5), (3, 1)):
                assert torch.equal(
                    P.interpolate(there, size=size, mode="nearest"), F.interpolate(there, size=size, mode="nearest")
                )
            assert torch.equal(P.crop(there, 0, 1, 1, 1), there[:, :, :1, 1:2])
            assert torch.equal(P.flip(there[:, :, :1], (-2, -1)), there[:, :, :1].flip(-2, -1))
