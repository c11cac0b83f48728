"""affine_sample with antialias: against the mean over the output's pixels, and every mistake of a call."""

from __future__ import annotations

import math
from typing import Any

import numpy
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import polyphase.functional as P
from polyphase.errors import PolyphaseError
from tests.support.samples import image

SIDE, OUT = 120, 24


def turned(shrinks: float, degrees: float, batch: int = 1) -> Tensor:
    """So many pixels of the image for each of the output's, turned."""
    angle, by = math.radians(degrees), shrinks * OUT / SIDE
    rows = [[by * math.cos(angle), -by * math.sin(angle), 0.05], [by * math.sin(angle), by * math.cos(angle), -0.02]]
    return torch.tensor([rows] * batch, dtype=torch.float64)


def photograph() -> Tensor:
    """Coarse and fine structures, as pictures have them."""
    generator = torch.Generator().manual_seed(0)
    whole = torch.zeros(1, 1, SIDE, SIDE, dtype=torch.float64)
    for size in (5, 15, 40, 120):
        noise = torch.rand((1, 1, size, size), dtype=torch.float64, generator=generator)
        whole += F.interpolate(noise, (SIDE, SIDE), mode="bicubic") / 4
    return whole


def mean_over_pixels(picture: Tensor, theta: Tensor) -> Tensor:
    """16 x 16 samples of each of the output's pixels."""
    grid = F.affine_grid(theta, [1, 1, 16 * OUT, 16 * OUT], align_corners=False)
    return F.avg_pool2d(F.grid_sample(picture, grid, "bicubic", align_corners=False), 16)


def off(found: Tensor, expected: Tensor) -> float:
    inner = (..., slice(3, -3), slice(3, -3))
    return float((found - expected)[inner].square().mean().sqrt())


@pytest.mark.parametrize("degrees", [0, 20, 45])
@pytest.mark.parametrize("shrinks", [2.0, 2.5, 4.0])
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_near_to_the_mean(mode: str, shrinks: float, degrees: float) -> None:
    picture, theta, size = photograph(), turned(shrinks, degrees), (1, 1, OUT, OUT)
    expected = mean_over_pixels(picture, theta)
    ours, plain = (P.affine_sample(picture, theta, size, mode, antialias=one) for one in (True, False))
    assert off(ours, expected) < 0.018
    if (mode, degrees, shrinks) != ("bilinear", 0, 2.0):  # by luck, every sample is the mean of four pixels
        assert off(ours, expected) < 0.6 * off(plain, expected)


def test_what_does_not_shrink_is_as_ever() -> None:
    picture, theta = image((2, 3, 20, 30)), torch.eye(2, 3).expand(2, 2, 3) * 0.9
    for size in ((2, 3, 24, 24), (2, 3, 100, 90)):
        assert torch.equal(P.affine_sample(picture, theta, size, antialias=True), P.affine_sample(picture, theta, size))


def test_every_image_has_its_own_scale() -> None:
    pictures, size = photograph().expand(3, 1, SIDE, SIDE).contiguous(), (3, 1, OUT, OUT)
    theta = torch.cat([turned(one, 10) for one in (1.2, 3.0, 4.5)])
    together = P.affine_sample(pictures, theta, size, antialias=True)
    for n in range(3):
        alone = P.affine_sample(pictures[n : n + 1], theta[n : n + 1], (1, *size[1:]), antialias=True)
        assert torch.equal(together[n : n + 1], alone)
    found = P.affine_sample([pictures[:1], pictures[1:2]], [theta[:1], theta[1:2]], (1, 1, OUT, OUT), antialias=True)
    assert torch.equal(torch.cat(found), together[:2])


def test_a_scale_that_is_said() -> None:
    picture, theta, size = photograph(), turned(3.0, 0), (1, 1, OUT, OUT)
    measured = P.affine_sample(picture, theta, size, antialias=True)
    for scale in (3.0, (3.0, 3.0), [3, 3]):
        assert torch.equal(P.affine_sample(picture, theta, size, antialias=True, scale=scale), measured)
    assert torch.equal(
        P.affine_sample(picture, theta, size, antialias=True, scale=1), P.affine_sample(picture, theta, size)
    )


def test_aligned_corners_lead_to_the_same_pixels() -> None:
    picture, size = photograph(), (1, 1, OUT, OUT)
    theta = turned(3.0, 25)
    rows = torch.full((2, 1), (SIDE - 1) / SIDE, dtype=torch.float64)
    columns = torch.tensor([OUT / (OUT - 1), OUT / (OUT - 1), 1.0], dtype=torch.float64)
    aligned = theta / rows / columns
    ours = P.affine_sample(picture, aligned, size, padding_mode="border", align_corners=True, antialias=True)
    expected = P.affine_sample(picture, theta, size, padding_mode="border", antialias=True)
    assert torch.allclose(ours, expected, atol=1e-12)


def test_volumes_bytes_and_gradients() -> None:
    volume, theta = image((1, 2, 12, 16, 20)), torch.eye(3, 4)[None]
    assert P.affine_sample(volume, theta, (1, 2, 3, 4, 5), antialias=True).shape == (1, 2, 3, 4, 5)
    photo = image((1, 3, 64, 64), torch.uint8, "CL")
    assert P.affine_sample(photo, torch.eye(2, 3)[None], (1, 3, 8, 8), antialias=True).dtype == torch.uint8
    leaf, matrix = image((1, 2, 16, 16), torch.float64).requires_grad_(), turned(4.0, 10).requires_grad_()
    P.affine_sample(leaf, matrix, (1, 2, 4, 4), antialias=True).sum().backward()
    assert leaf.grad is not None
    assert matrix.grad is not None
    assert (leaf.grad.abs().sum((2, 3)) > 0).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_under_autocast(dtype: torch.dtype) -> None:
    """A matrix that a layer made and an image that none did, or the other way round: in float32, as ever."""
    picture, theta, size = image((1, 3, 32, 40)).to(dtype), turned(3.0, 20).to(dtype), (1, 3, 8, 8)
    expected = P.affine_sample(picture.float(), theta.float(), size, antialias=True)
    with torch.autocast("cpu", dtype=dtype):
        for one, at in ((picture.float(), theta), (picture, theta.float()), (picture, theta)):
            assert torch.equal(P.affine_sample(one, at, size, antialias=True), expected)


def test_numbers_of_numpy_are_numbers() -> None:
    picture, theta, size = photograph(), turned(3.0, 20), (1, 1, OUT, OUT)
    expected = P.affine_sample(picture, theta, size, antialias=True, scale=3.0)
    scales: list[Any] = [numpy.float32(3), numpy.int64(3), (numpy.float64(3), 3)]
    for scale in scales:
        assert torch.equal(P.affine_sample(picture, theta, size, antialias=True, scale=scale), expected)


@pytest.mark.inductor
def test_compiled_with_a_scale() -> None:
    picture, theta = photograph(), turned(3.0, 20)

    def small(picture: Tensor, theta: Tensor) -> Tensor:
        return P.affine_sample(picture, theta, (1, 1, OUT, OUT), antialias=True, scale=3.0)

    compiled = torch.compile(small, backend="aot_eager", fullgraph=True)
    assert torch.allclose(compiled(picture, theta), small(picture, theta))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"mode": "nearest"}, ("nearest", "bilinear")),
        ({"padding_mode": "reflection", "align_corners": True}, ("reflection", "border")),
        ({"scale": 0}, ("scale 0", "above 0")),
        ({"scale": (1.0, 2.0, 3.0)}, ("(1.0, 2.0, 3.0)", "2 in the order")),
        ({"scale": math.inf}, ("inf", "above 0")),
        ({"scale": "2"}, ("'2'", "above 0")),
        ({"scale": 10**400}, ("scale has", "greatest float")),
        ({"size": (1, 3, 2, 10**400)}, ("no memory", "smaller size")),
        ({"antialias": "no"}, ("antialias='no'", "True, False or None")),
        ({"antialias": False, "scale": 2.0}, ("scale=2.0", "antialias=True")),
    ],
)
def test_mistakes(options: dict[str, Any], says: tuple[str, ...]) -> None:
    given = {"size": (1, 3, 2, 2), "antialias": True, **options}
    with pytest.raises(PolyphaseError) as caught:
        P.affine_sample(torch.rand(1, 3, 8, 8), torch.eye(2, 3)[None], **given)
    for part in says:
        assert part in str(caught.value)


def test_a_matrix_that_cannot_be_read() -> None:
    with pytest.raises(PolyphaseError, match="scale="):
        P.affine_sample(torch.rand(1, 3, 8, 8), torch.eye(2, 3, device="meta")[None], (1, 3, 2, 2), antialias=True)
    with pytest.raises(PolyphaseError, match="scale="):
        torch.func.vmap(lambda at: P.affine_sample(torch.ones(1, 3, 8, 8), at, (1, 3, 2, 2), antialias=True))(
            torch.eye(2, 3).expand(2, 1, 2, 3)
        )


def test_a_fill() -> None:
    picture, far = torch.ones(1, 3, 40, 40), torch.tensor([[[4.0, 0.0, 0.0], [0.0, 4.0, 0.0]]])
    found = P.affine_sample(picture, far, (1, 3, 8, 8), fill=(2.0, 3.0, 4.0), antialias=True)
    assert found[0, :, 0, 0].tolist() == [2.0, 3.0, 4.0]
    assert torch.allclose(found[0, :, 3:5, 3:5], torch.ones(3, 2, 2))


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_matrix_of_no_numbers(value: float) -> None:
    """It shrinks nothing, or everything; what is sampled by it is what eager samples."""
    picture = torch.rand(1, 3, 8, 9)
    theta = torch.full((1, 2, 3), value)
    wanted = F.grid_sample(picture, F.affine_grid(theta, [1, 3, 5, 6], align_corners=False), align_corners=False)
    got = P.affine_sample(picture, theta, (1, 3, 5, 6), antialias=True)
    torch.testing.assert_close(got, wanted, equal_nan=True)
