"""What PyTorch has no kernel for: Pillow's filters, antialiased lines and volumes, antialiased half precision."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy
import PIL.Image
import pytest
import torch
from torch import Tensor

import polyphase.functional as P
from tests.support.samples import LAYOUTS, PIXELS, image

PILLOW = {
    "bilinear": PIL.Image.Resampling.BILINEAR,
    "bicubic": PIL.Image.Resampling.BICUBIC,
    "lanczos": PIL.Image.Resampling.LANCZOS,
    "hamming": PIL.Image.Resampling.HAMMING,
    "box": PIL.Image.Resampling.BOX,
}
RESIZES = [
    ((345, 456), (270, 270)),
    ((64, 48), (32, 24)),
    ((100, 60), (20, 15)),
    ((200, 300), (7, 5)),
    ((32, 48), (64, 96)),
    ((40, 33), (77, 51)),
    ((60, 80), (61, 79)),
    ((50, 1), (20, 1)),
    ((1, 50), (1, 20)),
]
LINEAR = {1: "linear", 2: "bilinear", 3: "trilinear"}
HALF = (torch.float16, torch.bfloat16)


class Beyond(NamedTuple):
    """An antialiased mode and a resize, for 1 to 3 axes."""

    mode: str
    before: tuple[int, ...]
    after: tuple[int, ...]

    def run(self, tensor: Tensor) -> Tensor:
        return P.interpolate(tensor, self.after, mode=self.mode, antialias=True)

    def image(self, dtype: torch.dtype, layout: str = "CF") -> Tensor:
        return image((2, 3, *self.before), dtype, layout)

    def __str__(self) -> str:
        return f"{self.mode}{len(self.before)}d-to-{'x'.join(map(str, self.after))}"


BEYOND = [
    Beyond(mode, before, after)
    for before, after in [
        ((53,), (19,)),
        ((11,), (40,)),
        ((37, 23), (9, 31)),
        ((9, 17, 12), (4, 7, 20)),
    ]
    for mode in (LINEAR[len(before)], "lanczos", "hamming", "box")
]


def exactly(dtype: torch.dtype) -> dict[str, Any]:
    """The tolerances: none for bytes."""
    return {} if dtype.is_floating_point else {"rtol": 0, "atol": 0}


def by_pillow(pixels: Tensor, size: tuple[int, int], mode: str) -> Tensor:
    """Of (height, width, 3) bytes or (height, width) floats."""
    resized = PIL.Image.fromarray(pixels.numpy()).resize(size[::-1], PILLOW[mode])
    return torch.from_numpy(numpy.array(resized))


@pytest.mark.parametrize("mode", PILLOW)
def test_pillow(mode: str) -> None:
    """Pillow's weights have 22 bits and ours 16, as PyTorch's: a value in a hundred is off by one. Negative weights can
    make it two, of what the first pass has off by one: a value in ten thousand, if any."""
    for before, after in RESIZES:
        pixels = image((1, 3, *before), torch.uint8, "CL")
        theirs = by_pillow(pixels[0].permute(1, 2, 0), after, mode)
        for layout in (torch.channels_last, torch.contiguous_format):
            ours = P.interpolate(pixels.contiguous(memory_format=layout), after, mode=mode, antialias=True)
            apart = (ours[0].permute(1, 2, 0).int() - theirs.int()).abs()
            assert (apart == 0).double().mean() >= 0.97, (before, after)
            assert (apart > 1).double().mean() < (1e-4 if mode in ("bicubic", "lanczos") else 1e-9), (before, after)
            assert apart.max() <= 2, (before, after)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, *HALF], ids=str)
@pytest.mark.parametrize("mode", PILLOW)
def test_pillow_of_floats(mode: str, dtype: torch.dtype) -> None:
    """Also where a box begins or ends on the very centre of a pixel, in the last two."""
    for before, after in (*RESIZES, ((1, 2), (1, 41)), ((18, 35), (33, 10))):
        pixels = image((1, 1, *before), dtype)
        theirs = by_pillow(pixels[0, 0].float(), after, mode)
        ours = P.interpolate(pixels, after, mode=mode, antialias=True)[0, 0]
        tolerance = max(2e-4, torch.finfo(dtype).eps)
        assert (ours.double() - theirs.double()).abs().max() <= tolerance, (before, after)


def test_box_is_pillows_to_the_bit() -> None:
    """By whole numbers all weights are alike, and no rounding differs."""
    for before, after in (((64, 48), (32, 24)), ((100, 60), (20, 15)), ((90, 120), (30, 60))):
        pixels = image((1, 3, *before), torch.uint8, "CL")
        ours = P.interpolate(pixels, after, mode="box", antialias=True)[0].permute(1, 2, 0)
        assert torch.equal(ours, by_pillow(pixels[0].permute(1, 2, 0), after, "box"))


@pytest.mark.parametrize("dtype", PIXELS, ids=str)
@pytest.mark.parametrize("family", ["linear", "lanczos", "hamming", "box"])
def test_axes_of_one_pixel_change_nothing(family: str, dtype: torch.dtype) -> None:
    """A line is an image one pixel high, and an image is a volume one pixel deep. Floats choose the order of passes."""

    def resize(tensor: Tensor, *size: int) -> Tensor:
        mode = LINEAR[len(size)] if family == "linear" else family
        return P.interpolate(tensor, size, mode=mode, antialias=True)

    x = image((2, 3, 37, 23), dtype)
    line = x[:, :, 5]
    assert torch.equal(resize(line, 9), resize(line[:, :, None], 1, 9)[:, :, 0])
    assert torch.equal(resize(line, 9), resize(line[:, :, None, None], 1, 1, 9)[:, :, 0, 0])
    for place in (2, 3, 4):
        size = [9, 31]
        size.insert(place - 2, 1)
        got, want = resize(x.unsqueeze(place), *size).squeeze(place), resize(x, 9, 31)
        torch.testing.assert_close(got, want, **exactly(dtype))


@pytest.mark.parametrize("family", ["linear", "lanczos", "hamming", "box"])
def test_volumes_that_are_alike_along_an_axis(family: str) -> None:
    """Every slice is resized as the image it is."""
    mode, flat = (LINEAR[3], LINEAR[2]) if family == "linear" else (family, family)
    x = image((2, 3, 17, 12), torch.float64)
    want = P.interpolate(x, (7, 20), mode=flat, antialias=True)
    got = P.interpolate(x.unsqueeze(2).expand(2, 3, 9, 17, 12), (4, 7, 20), mode=mode, antialias=True)
    torch.testing.assert_close(got, want.unsqueeze(2).expand(got.shape))


@pytest.mark.parametrize("dtype", HALF, ids=str)
@pytest.mark.parametrize("beyond", [*BEYOND, Beyond("bicubic", (37, 23), (9, 31))], ids=str)
def test_half_is_float32_rounded(beyond: Beyond, dtype: torch.dtype) -> None:
    x = beyond.image(dtype)
    assert torch.equal(beyond.run(x), beyond.run(x.float()).to(dtype))


@pytest.mark.parametrize("layout", LAYOUTS[1:])
@pytest.mark.parametrize("dtype", PIXELS, ids=str)
def test_layouts(layout: str, dtype: torch.dtype) -> None:
    for beyond in BEYOND:
        if len(beyond.before) == 1 and layout.endswith("CL"):
            continue
        x = beyond.image(dtype, layout)
        got, want = beyond.run(x), beyond.run(x.contiguous())
        torch.testing.assert_close(got, want, msg=str(beyond), **exactly(dtype))
        last = torch.channels_last if x.dim() == 4 else torch.channels_last_3d
        assert got.is_contiguous(memory_format=last if layout.endswith("CL") else torch.contiguous_format)


@pytest.mark.parametrize("beyond", BEYOND, ids=str)
def test_the_backward_is_the_adjoint(beyond: Beyond) -> None:
    """<A x, y> = <x, A* y>"""
    x = beyond.image(torch.float64).requires_grad_()
    result = beyond.run(x)
    y = image(tuple(result.shape), torch.float64, seed=1)
    (back,) = torch.autograd.grad(result, x, y)
    torch.testing.assert_close((result * y).sum(), (x * back).sum())


@pytest.mark.parametrize("dtype", HALF, ids=str)
@pytest.mark.parametrize("beyond", BEYOND, ids=str)
def test_gradients_of_half_are_float32s_rounded(beyond: Beyond, dtype: torch.dtype) -> None:
    gradients: list[Tensor] = []
    for work in (dtype, torch.float32):
        x = beyond.image(dtype).to(work).requires_grad_()
        result = beyond.run(x)
        incoming = image(tuple(result.shape), dtype, seed=1).to(work)
        gradients += torch.autograd.grad(result, x, incoming)
    assert torch.equal(gradients[0], gradients[1].to(dtype))
