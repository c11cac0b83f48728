"""Many planes with short rows go several at a time (`take_planes` in launch/geometry.h); the plain twin: one by one."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import polyphase.functional as P

pytestmark = pytest.mark.usefixtures("instruction_set", "fresh_outputs")

#: Planes that go together: all, half, a third; 131 is prime and more than go together.
PLANES = (24, 47, 106, 150, 131)
SIZES = (((7, 7), (14, 14)), ((14, 9), (5, 7)), ((1, 1), (3, 4)), ((3, 16), (16, 11)), ((40, 6), (3, 16)))
LAYOUTS = ("dense", "every other plane", "two batches", "turned")


def picture_of(planes: int, size: tuple[int, int], dtype: torch.dtype, layout: str) -> Tensor:
    torch.manual_seed(planes)
    if layout == "every other plane":
        return (torch.rand(1, 2 * planes, *size) * 255).to(dtype)[:, ::2]
    if layout == "turned":
        return (torch.rand(1, planes, size[1], size[0]) * 255).to(dtype).transpose(2, 3)
    return (torch.rand(2 if layout == "two batches" else 1, planes, *size) * 255).to(dtype)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float16, torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("mode", ["bilinear", "bicubic", "lanczos"])
def test_planes_together_and_one_by_one(dtype: torch.dtype, mode: str) -> None:
    for number, planes in enumerate(PLANES):
        for turn, (before, after) in enumerate(SIZES):
            picture = picture_of(planes, before, dtype, LAYOUTS[(number + turn) % len(LAYOUTS)])
            antialias = mode == "lanczos" or turn % 2 == 0
            together = P.interpolate(picture, after, mode=mode, antialias=antialias)
            alone = torch.stack(
                [
                    P.interpolate(one[None, None], after, mode=mode, antialias=antialias)[0, 0]
                    for one in picture.flatten(0, 1)
                ]
            )
            assert_alike(together.flatten(0, 1), alone)


def test_gradients_of_planes_together_and_one_by_one() -> None:
    for planes in PLANES:
        picture = picture_of(planes, (7, 12), torch.float32, "dense").requires_grad_()
        (together,) = torch.autograd.grad(P.interpolate(picture, (14, 9), mode="bilinear").square().sum(), picture)
        for number, one in enumerate(picture.detach()[0]):
            alone = one[None, None].clone().requires_grad_()
            (gradient,) = torch.autograd.grad(P.interpolate(alone, (14, 9), mode="bilinear").square().sum(), alone)
            torch.testing.assert_close(together[0, number], gradient[0, 0], rtol=1e-5, atol=1e-3)


def test_what_is_no_number_stays_in_its_plane() -> None:
    picture = picture_of(48, (7, 7), torch.float32, "dense")
    picture[0, 5, 3, 3] = float("nan")
    picture[0, 40, 0, 0] = float("inf")
    together = P.interpolate(picture, (14, 14), mode="bicubic")
    for plane in range(48):
        alone = P.interpolate(picture[:, plane : plane + 1], (14, 14), mode="bicubic")
        torch.testing.assert_close(together[:, plane : plane + 1], alone, equal_nan=True, rtol=1e-5, atol=1e-4)


def assert_alike(found: Tensor, wanted: Tensor) -> None:
    """Bytes are the same; of floats, sums may be made in another order."""
    if found.dtype == torch.uint8:
        assert torch.equal(found, wanted)
    else:
        torch.testing.assert_close(found, wanted, rtol=1e-3 if found.dtype == torch.float16 else 1e-5, atol=1e-3)
