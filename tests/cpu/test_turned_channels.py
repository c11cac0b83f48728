"""Images of many channels that are sampled at scattered points are turned round, so that a pixel's channels lie side by
side (`warp/channels.h`): with the results of the same image, sampled plane by plane, which is the plain twin."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import polyphase.functional as P
from polyphase.calls.binding import warp_gradients
from polyphase.sampling.warps import Warp
from tests.support.threads import assert_same_by_threads

#: Numbers of channels that no vector divides, that are a chunk and one more, and several.
CHANNELS = (16, 19, 32, 65, 130)
SIZES = ((40, 3), (5, 1), (700, 1), (33, 300))


def inputs(channels: int, size: tuple[int, ...], dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(channels)
    image = torch.randn(3, channels, *(7, 9, 5)[: len(size)], generator=generator, dtype=dtype)
    return image, torch.rand(3, *size, len(size), generator=generator, dtype=dtype) * 2.6 - 1.3


def one_by_one(image: Tensor, grid: Tensor, mode: str, padding: str) -> Tensor:
    """A channel alone is not turned."""
    planes = [P.grid_sample(image[:, [c]], grid, mode, padding, align_corners=False) for c in range(image.shape[1])]
    return torch.cat(planes, 1)


def assert_near(ours: Tensor, wanted: Tensor) -> None:
    rtol, atol = (1e-4, 1e-5) if wanted.dtype == torch.float32 else (1e-10, 1e-11)
    torch.testing.assert_close(ours, wanted, rtol=rtol, atol=atol, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("channels", CHANNELS)
def test_as_plane_by_plane(channels: int, mode: str, dtype: torch.dtype) -> None:
    for size in SIZES:
        image, grid = inputs(channels, size, dtype)
        for padding in ("zeros", "border", "reflection"):
            wanted = one_by_one(image, grid, mode, padding)
            for there in (image, image[:, :, :, torch.arange(9)], image.contiguous(memory_format=torch.channels_last)):
                got = P.grid_sample(there, grid, mode, padding, align_corners=False)
                assert_near(got, wanted)


@pytest.mark.parametrize("channels", [16, 19])
def test_images_with_gaps(channels: int) -> None:
    """Of rows, of planes, and of images."""
    image, grid = inputs(channels, (300, 2))
    wide = torch.full((6, channels + 2, 9, 14), torch.nan)
    view = wide[::2, 1:-1, 1:8, 2:11].copy_(image)
    wanted = one_by_one(image, grid, "bilinear", "zeros")
    assert_near(P.grid_sample(view, grid, align_corners=False), wanted)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_volumes(dtype: torch.dtype) -> None:
    image, grid = inputs(19, (6, 7, 9), dtype)
    wanted = F.grid_sample(image, grid, align_corners=False)
    for there in (image, image.contiguous(memory_format=torch.channels_last_3d)):
        assert_near(P.grid_sample(there, grid, align_corners=False), wanted)


def test_what_is_no_number_spoils_only_those_that_read_it() -> None:
    """Taps of weight 0 are read at the image's first pixel."""
    image, grid = inputs(20, (300, 1))
    image[:, ::3, 0, 0] = torch.nan
    image[1, 5, 3, 4] = torch.inf
    wanted = one_by_one(image, grid, "bilinear", "zeros")
    for there in (image, image.contiguous(memory_format=torch.channels_last)):
        got = P.grid_sample(there, grid, align_corners=False)
        assert_near(got, wanted)
    assert wanted.isnan().any()
    assert not wanted.isnan().all()


def test_threads_give_the_same_bits() -> None:
    image, grid = inputs(64, (5000, 2))
    assert_same_by_threads(lambda: [P.grid_sample(image, grid, align_corners=False)])


def test_arithmetic_around_it() -> None:
    image, grid = inputs(24, (400, 2))
    scale = torch.rand(1, 24, 1, 1)
    got = torch.compile(lambda x, g: F.grid_sample(x, g, align_corners=False) * scale + 1, backend="polyphase")(
        image, grid
    )
    wanted = one_by_one(image, grid, "bilinear", "zeros") * scale + 1
    assert_near(got, wanted)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("channels", CHANNELS)
def test_gradients_as_plane_by_plane(channels: int, mode: str, dtype: torch.dtype) -> None:
    for size in SIZES:
        image, grid = inputs(channels, size, dtype)
        given = torch.randn(3, channels, *size, generator=torch.Generator().manual_seed(2), dtype=dtype)
        for padding in ("zeros", "border", "reflection"):
            sampler = Warp("grid", mode, padding, False)
            planes = [
                warp_gradients(given[:, [c]], image[:, [c]], grid, sampler, (True, True)) for c in range(channels)
            ]
            of_image = torch.cat([one[0] for one in planes if one[0] is not None], 1)
            of_grid = sum(one[1].double() for one in planes if one[1] is not None)
            assert isinstance(of_grid, Tensor)
            last = torch.channels_last
            for gradient in (given, given.contiguous(memory_format=last)):
                for there in (image, image.contiguous(memory_format=last)):
                    ours = warp_gradients(gradient, there, grid, sampler, (True, True))
                    assert ours[0] is not None
                    assert ours[1] is not None
                    assert_near(ours[0], of_image)
                    scale = of_grid.abs().max()
                    assert_near(ours[1] / scale.to(dtype), (of_grid / scale).to(dtype))


def test_gradients_of_volumes_and_of_half_precision() -> None:
    image, grid = inputs(20, (6, 7, 9))
    for dtype, near in ((torch.float32, 1e-3), (torch.bfloat16, 0.3)):
        x, g = (one.to(dtype).requires_grad_() for one in (image, grid))
        exact_x, exact_g = (one.detach().double().requires_grad_() for one in (x, g))
        ours = torch.autograd.grad(P.grid_sample(x, g, align_corners=False).sum(), (x, g))
        theirs = torch.autograd.grad(F.grid_sample(exact_x, exact_g, align_corners=False).sum(), (exact_x, exact_g))
        for a, b in zip(ours, theirs, strict=True):
            torch.testing.assert_close(a.double(), b, rtol=near, atol=near)


def test_gradients_where_something_is_no_number() -> None:
    """Only positions that have taps of what is no number get gradients that are none."""
    image, grid = inputs(20, (300, 1))
    image[:, ::3, 0, 0] = torch.nan
    sampler, given = Warp("grid", "bilinear", "zeros", False), torch.ones(3, 20, 300, 1)
    planes = [warp_gradients(given[:, [c]], image[:, [c]], grid, sampler, (False, True))[1] for c in range(20)]
    wanted = sum(one for one in planes if one is not None)
    got = warp_gradients(given, image, grid, sampler, (False, True))[1]
    assert got is not None
    assert isinstance(wanted, Tensor)
    assert torch.equal(got.isnan(), wanted.isnan())
    assert wanted.isnan().any()
    assert not wanted.isnan().all()


def test_threads_give_the_same_gradients() -> None:
    given, sampler = (torch.ones(3, 64, 5000, 2), *inputs(64, (5000, 2))), Warp("grid", "bilinear", "zeros", False)
    assert_same_by_threads(lambda: warp_gradients(*given, sampler, (True, True)))


@pytest.mark.parametrize("channels", [64, 256])
def test_gradients_of_coordinates_are_as_near_to_the_truth_as_eagers(channels: int) -> None:
    """Products of the gradient and of each tap have much in common, which cancels only when they are subtracted."""
    generator = torch.Generator().manual_seed(5)
    image = torch.rand(1, channels, 30, 40, generator=generator)
    grid = torch.rand(1, 30, 40, 2, generator=generator) * 1.8 - 0.9

    def gradient(call: Any, dtype: torch.dtype) -> Tensor:
        leaf = grid.to(dtype).requires_grad_()
        (found,) = torch.autograd.grad(call(image.to(dtype), leaf, align_corners=True).sum(), leaf)
        assert isinstance(found, Tensor)
        return found.double()

    truth = gradient(F.grid_sample, torch.float64)
    ours, eagers = (
        (gradient(call, torch.float32) - truth).abs().mean().item() for call in (P.grid_sample, F.grid_sample)
    )
    assert ours <= 1.05 * eagers
