"""Functions of lists of images, of any sizes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

import polyphase.functional as P
from polyphase.errors import WrongArgumentError, WrongImageError
from tests.support.threads import threads as torch_threads


@pytest.fixture(params=[1, 2], ids="{} threads".format, autouse=True)
def threads(request: pytest.FixtureRequest) -> Iterator[None]:
    with torch_threads(request.param):
        yield


def images(dtype: torch.dtype = torch.uint8) -> list[torch.Tensor]:
    made = torch.Generator().manual_seed(0)
    sizes = [(40, 50), (61, 33), (40, 50), (20, 20), (90, 70)]
    return [torch.randint(0, 256, (1, 3, *size), generator=made).to(dtype) for size in sizes]


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
@pytest.mark.parametrize("given", [{"size": (20, 20)}, {"scale_factor": 0.5}], ids=str)
def test_interpolate(given: dict[str, Any], dtype: torch.dtype) -> None:
    found = P.interpolate(images(dtype), mode="bilinear", antialias=True, **given)
    for one, image in zip(found, images(dtype), strict=True):
        expected = P.interpolate(image, mode="bilinear", antialias=True, **given)
        assert torch.equal(one, expected)
        assert one.stride() == expected.stride()
    assert P.interpolate([], 20) == []


def test_affine_sample() -> None:
    matrices = [torch.tensor([[[0.8, 0.1 * i, 0.0], [-0.1 * i, 0.8, 0.1]]]) for i in range(5)]
    for thetas in (matrices, matrices[2]):
        found = P.affine_sample(images(torch.float32), thetas, (1, 3, 24, 30))
        for i, (one, image) in enumerate(zip(found, images(torch.float32), strict=True)):
            theta = thetas if isinstance(thetas, torch.Tensor) else thetas[i]
            assert torch.equal(one, P.affine_sample(image, theta, (1, 3, 24, 30)))
    with pytest.raises(WrongArgumentError, match="theta is a list of 4, for 5 images"):
        P.affine_sample(images(torch.float32), matrices[:4], (1, 3, 24, 30))


def test_crop() -> None:
    tops = [0, 5, -3, 2, 60]
    for one, image, top in zip(P.crop(images(), tops, 3, 30, 20), images(), tops, strict=True):
        assert torch.equal(one, P.crop(image, top, 3, 30, 20))
    with pytest.raises(WrongArgumentError, match="top is a list of 2, for 5 images"):
        P.crop(images(), [1, 2], 3, 30, 20)


def test_gradients_are_recorded() -> None:
    given = [one.requires_grad_(i == 1) for i, one in enumerate(images(torch.float32))]
    found = P.interpolate(given, (20, 20), mode="bilinear")
    (gradient,) = torch.autograd.grad(found[1].sum(), given[1])
    assert gradient.shape == given[1].shape


def test_a_mistake_says_which_image() -> None:
    wrong: list[Any] = [*images(), images()[0][0, 0]]
    nothing: list[Any] = [images()[0], None]
    with pytest.raises(WrongImageError, match="image 5 of 6"):
        P.interpolate(wrong, (20, 20), mode="bilinear")
    with pytest.raises(WrongImageError, match="image 5 of 6"):
        P.crop([*images(), torch.zeros(3)], 0, 0, 3, 3)
    with pytest.raises(WrongImageError, match="image 1 of 2"):
        P.interpolate(nothing, (20, 20))
