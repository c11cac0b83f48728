"""What a workload does to an image. Each operation is written once, over PyTorch's functions or over ours."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

import polyphase.functional as P

DTYPES = {
    "u8": torch.uint8,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "f32": torch.float32,
    "f64": torch.float64,
}
FORMATS = {"CF": torch.contiguous_format, "CL": torch.channels_last}
_TAPS = {"nearest": 1, "nearest-exact": 1, "bilinear": 4, "bicubic": 16}
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)

Shape = tuple[int, ...]
Function = Callable[..., Tensor]


def by(sizes: Shape) -> str:
    return "x".join(map(str, sizes))


@dataclass(frozen=True)
class Functions:
    """The calls that operations are made of."""

    interpolate: Function
    flip: Function
    crop: Function
    affine_sample: Function
    perspective_sample: Function
    grid_sample: Function
    pad: Function


def _crop(image: Tensor, top: int, left: int, height: int, width: int) -> Tensor:
    return image[..., top : top + height, left : left + width]


def _affine_sample(image: Tensor, theta: Tensor, size: Shape, mode: str, padding_mode: str, align: bool) -> Tensor:
    grid = F.affine_grid(theta, list(size), align_corners=align)
    return F.grid_sample(image, grid, mode=mode, padding_mode=padding_mode, align_corners=align)


def _perspective_sample(image: Tensor, matrix: Tensor, size: Shape, mode: str) -> Tensor:
    identity = torch.eye(2, 3, dtype=matrix.dtype, device=matrix.device).expand(size[0], 2, 3)
    places = F.affine_grid(identity, list(size), align_corners=False).flatten(1, 2) @ matrix[:, :, :2].mT
    led = places + matrix[:, None, :, 2]
    grid = (led[..., :2] / led[..., 2:]).unflatten(1, size[-2:])
    return F.grid_sample(image, grid, mode=mode, align_corners=False)


PYTORCH = Functions(F.interpolate, torch.flip, _crop, _affine_sample, _perspective_sample, F.grid_sample, F.pad)
POLYPHASE = Functions(P.interpolate, P.flip, P.crop, P.affine_sample, P.perspective_sample, P.grid_sample, P.pad)


@dataclass(frozen=True)
class Source:
    """What images are made of: they are the same at every run on a device, where they are made."""

    dtype: str
    layout: str
    device: str

    def image(self, shape: Shape, seed: int = 0) -> Tensor:
        """Noise: every misplaced pixel shows."""
        generator = torch.Generator(self.device).manual_seed(seed)
        pixels = torch.randint(0, 256, shape, dtype=torch.uint8, device=self.device, generator=generator)
        if self.dtype != "u8":
            pixels = (pixels / 255).to(DTYPES[self.dtype])
        return pixels.contiguous(memory_format=FORMATS[self.layout])


class Operation:
    """What is done to an image.

    mode: how pixels are made of others, for `--mode`; empty where they are only moved. library: the module whose code
    it is; empty where it is PyTorch's. levels: how far integers may be from eager's: 0, but where eager rounds what it
    computed in floats. learned: how many of the inputs, from the first, have gradients in training.
    """

    mode: str
    library: ClassVar[str] = ""
    levels: ClassVar[int] = 0
    learned: ClassVar[int] = 1

    def label(self, shape: Shape) -> str:
        raise NotImplementedError

    def function(self, calls: Functions) -> Function:
        """Gives the function to be timed, of the tensors that `inputs` makes."""
        raise NotImplementedError

    def inputs(self, shape: Shape, source: Source) -> tuple[Tensor, ...]:
        """The first is the image."""
        return (source.image(shape),)

    def share_read(self, shape: Shape) -> float:
        """How much of the image must be read; 1 is all."""
        return 1.0


@dataclass(frozen=True)
class Resize(Operation):
    size: tuple[int, int]
    mode: str
    antialias: bool = False
    align_corners: bool | None = None

    def label(self, shape: Shape) -> str:
        aligned = {None: "", False: "", True: " align_corners"}[self.align_corners]
        return f"{self.mode}{' antialiased' if self.antialias else ''}{aligned} {by(shape)} -> {by(self.size)}"

    def function(self, calls: Functions) -> Function:
        interpolate, size, mode = calls.interpolate, self.size, self.mode
        align_corners, antialias = self.align_corners, self.antialias

        def resize(image: Tensor) -> Tensor:
            return interpolate(image, size=size, mode=mode, align_corners=align_corners, antialias=antialias)

        return resize

    def share_read(self, shape: Shape) -> float:
        if self.antialias or self.mode not in _TAPS:
            return 1.0
        return min(1.0, _TAPS[self.mode] * math.prod(self.size) / math.prod(shape[-2:]))


@dataclass(frozen=True)
class Flip(Operation):
    """`margins`: what is sliced off before, top, bottom, left and right, so that the image is not contiguous."""

    dim: int
    margins: tuple[int, int, int, int] | None = None
    mode = ""

    def label(self, shape: Shape) -> str:
        name = {-1: "horizontal", -2: "vertical"}[self.dim]
        return f"{name} flip{' of a slice' if self.margins else ''} {by(shape)}"

    def function(self, calls: Functions) -> Function:
        flip, dims = calls.flip, (self.dim,)

        def flipped(image: Tensor) -> Tensor:
            return flip(image, dims)

        return flipped

    def inputs(self, shape: Shape, source: Source) -> tuple[Tensor, ...]:
        image = source.image(shape)
        if self.margins is not None:
            top, bottom, left, right = self.margins
            image = image[:, :, top:-bottom, left:-right]
        return (image,)


@dataclass(frozen=True)
class AffineWarp(Operation):
    """A turn about the centre, scaled and shifted; the matrix is an argument, as it is in training."""

    mode: str
    align_corners: bool = False
    padding_mode: str = "zeros"
    degrees: float = 45.0
    scale: float = 0.7
    shift: tuple[float, float] = (0.1, 0.2)

    def label(self, shape: Shape) -> str:
        aligned = " align_corners" if self.align_corners else ""
        padding = "" if self.padding_mode == "zeros" else f" {self.padding_mode}"
        turned = "" if self.degrees == AffineWarp.degrees else f", {self.degrees:g} degrees"
        return f"affine {self.mode}{aligned}{padding}{turned} {by(shape)}"

    def function(self, calls: Functions) -> Function:
        affine_sample, mode, padding_mode = calls.affine_sample, self.mode, self.padding_mode
        align = self.align_corners

        def warp(image: Tensor, theta: Tensor) -> Tensor:
            return affine_sample(image, theta, image.shape, mode, padding_mode, align)

        return warp

    def inputs(self, shape: Shape, source: Source) -> tuple[Tensor, ...]:
        dtype = torch.float32 if source.dtype == "u8" else DTYPES[source.dtype]
        theta = self.theta().expand(shape[0], 2, 3).to(source.device, dtype)
        return source.image(shape), theta.contiguous()

    def share_read(self, shape: Shape) -> float:
        return min(1.0, self.scale**2)

    def theta(self) -> Tensor:
        """Between coordinates from -1 to 1."""
        turn = math.radians(self.degrees)
        rows = [[math.cos(turn), -math.sin(turn), self.shift[0]], [math.sin(turn), math.cos(turn), self.shift[1]]]
        matrix = torch.tensor(rows, dtype=torch.float64)
        matrix[:, :2] *= self.scale
        return matrix[None]

    def pixel_matrix(self, height: int, width: int) -> Tensor:
        """The same from output pixels to input pixels, where corners are not aligned; as OpenCV takes it."""
        return _in_pixels(torch.cat([self.theta()[0], _LAST_ROW]), height, width)[:2]


@dataclass(frozen=True)
class PerspectiveWarp(Operation):
    """A homography: an affine warp, seen at a slant."""

    mode: str
    degrees: float
    scale: float
    slant: tuple[float, float] = (0.05, -0.08)

    def label(self, shape: Shape) -> str:
        return f"perspective {self.mode}, {self.degrees:g} degrees {by(shape)}"

    def function(self, calls: Functions) -> Function:
        perspective_sample, mode = calls.perspective_sample, self.mode

        def warp(image: Tensor, matrix: Tensor) -> Tensor:
            return perspective_sample(image, matrix, image.shape, mode)

        return warp

    def inputs(self, shape: Shape, source: Source) -> tuple[Tensor, ...]:
        dtype = torch.float32 if source.dtype == "u8" else DTYPES[source.dtype]
        matrix = self.matrix().expand(shape[0], 3, 3).to(source.device, dtype)
        return source.image(shape), matrix.contiguous()

    def matrix(self) -> Tensor:
        """Between coordinates from -1 to 1."""
        turn = AffineWarp(self.mode, degrees=self.degrees, scale=self.scale, shift=(0.0, 0.0)).theta()[0]
        return torch.cat([turn, torch.tensor([[*self.slant, 1.0]], dtype=turn.dtype)])[None]

    def pixel_matrix(self, height: int, width: int) -> Tensor:
        """Gives the matrix between pixels, as an affine warp does."""
        return _in_pixels(self.matrix()[0], height, width)


_LAST_ROW = torch.tensor([[0.0, 0.0, 1.0]], dtype=torch.float64)


def _in_pixels(matrix: Tensor, height: int, width: int) -> Tensor:
    """Turns a (3, 3) matrix between coordinates from -1 to 1 into one between pixels. Both images are of this size."""
    rows = [[width / 2, 0.0, (width - 1) / 2], [0.0, height / 2, (height - 1) / 2], [0.0, 0.0, 1.0]]
    to_pixels = torch.tensor(rows, dtype=torch.float64)
    found: Tensor = to_pixels @ matrix @ torch.linalg.inv(to_pixels)
    return found


@dataclass(frozen=True)
class Preprocess(Operation):
    """The shorter side to `shorter`, antialiased; the middle `crop` square of it, mirrored; to float, normalised."""

    shorter: int = 256
    crop: int = 224
    mode: str = "bilinear"

    def label(self, shape: Shape) -> str:
        return f"resize {self.shorter}, crop {self.crop}, flip, normalise {by(shape)}"

    def resized(self, height: int, width: int) -> tuple[int, int]:
        """Computes the size as torchvision rounds it, in integers: sizes may be symbolic."""
        if height <= width:
            return self.shorter, self.shorter * width // height
        return self.shorter * height // width, self.shorter

    def function(self, calls: Functions) -> Function:
        interpolate, crop, flip = calls.interpolate, calls.crop, calls.flip
        mode, side, resized = self.mode, self.crop, self.resized

        def preprocess(image: Tensor, mean: Tensor, std: Tensor) -> Tensor:
            height, width = resized(image.shape[-2], image.shape[-1])
            small = interpolate(image, size=(height, width), mode=mode, antialias=True)
            middle = crop(small, (height - side) // 2, (width - side) // 2, side, side)
            return (flip(middle, (-1,)).to(torch.float32) / 255 - mean) / std

        return preprocess

    def inputs(self, shape: Shape, source: Source) -> tuple[Tensor, ...]:
        mean, std = (torch.tensor(values, device=source.device)[:, None, None] for values in (MEAN, STD))
        return source.image(shape), mean, std


class ModelStep(Operation):
    """A coarse image becomes as large as a fine one, of half its channels. The shape is the coarse one's. kernel: of a
    convolution, for so many channels of the coarse image."""

    name: ClassVar[str]
    learned: ClassVar[int] = 3

    def label(self, shape: Shape) -> str:
        return f"{self.name} {by(shape)}"

    def inputs(self, shape: Shape, source: Source) -> tuple[Tensor, ...]:
        n, channels, height, width = shape
        kernel = self.kernel(channels)
        weights = source.image(kernel, seed=2) / (channels * math.prod(kernel[2:]))
        return source.image(shape), source.image((n, channels // 2, 2 * height, 2 * width), seed=1), weights

    def kernel(self, channels: int) -> Shape:
        raise NotImplementedError


@dataclass(frozen=True)
class PyramidStep(ModelStep):
    """A step of a feature pyramid: `lateral(c3) + interpolate(c4, scale_factor=2)`."""

    mode: str = "nearest"
    name: ClassVar[str] = "feature pyramid step"

    def function(self, calls: Functions) -> Function:
        interpolate, mode = calls.interpolate, self.mode

        def step(coarse: Tensor, fine: Tensor, lateral: Tensor) -> Tensor:
            return F.conv2d(fine, lateral) + interpolate(coarse, scale_factor=2.0, mode=mode)

        return step

    def kernel(self, channels: int) -> Shape:
        return channels, channels // 2, 1, 1


@dataclass(frozen=True)
class DecoderStep(ModelStep):
    """A step of a U-Net: `conv(cat([skip, interpolate(x, scale_factor=2)]))`."""

    mode: str = "bilinear"
    name: ClassVar[str] = "U-Net decoder step"

    def function(self, calls: Functions) -> Function:
        interpolate, mode = calls.interpolate, self.mode

        def step(deep: Tensor, skip: Tensor, kernel: Tensor) -> Tensor:
            return F.conv2d(torch.cat([skip, interpolate(deep, scale_factor=2.0, mode=mode)], 1), kernel, padding=1)

        return step

    def kernel(self, channels: int) -> Shape:
        return channels // 2, channels + channels // 2, 3, 3


@dataclass(frozen=True)
class Points(Operation):
    """Scattered points of each plane or volume, as attention and point heads sample them: `size` of a grid."""

    size: tuple[int, ...]
    mode: str = "bilinear"
    learned: ClassVar[int] = 2

    def label(self, shape: Shape) -> str:
        return f"points {self.mode} {by(shape)} at {by(self.size)}"

    def function(self, calls: Functions) -> Function:
        grid_sample, mode = calls.grid_sample, self.mode

        def sample(image: Tensor, grid: Tensor) -> Tensor:
            return grid_sample(image, grid, mode=mode, align_corners=False)

        return sample

    def inputs(self, shape: Shape, source: Source) -> tuple[Tensor, ...]:
        dtype = DTYPES[source.dtype]
        generator = torch.Generator(source.device).manual_seed(1)
        grid = torch.rand((shape[0], *self.size, len(self.size)), generator=generator, device=source.device) * 2 - 1
        return source.image(shape), grid.to(dtype)

    def share_read(self, shape: Shape) -> float:
        taps: float = _TAPS[self.mode] ** (len(self.size) / 2)  # of two axes
        return min(1.0, taps * math.prod(self.size) / math.prod(shape[2:]))


@dataclass(frozen=True)
class OfTurned(Operation):
    """A transposed view: padded by reflection, or every second pixel of it."""

    pads: bool
    mode = ""

    def label(self, shape: Shape) -> str:
        return f"{'reflect pad' if self.pads else 'nearest to the half'} of a transposed view {by(shape)}"

    def function(self, calls: Functions) -> Function:
        interpolate, pad, pads = calls.interpolate, calls.pad, self.pads

        def moved(image: Tensor) -> Tensor:
            return pad(image, (1, 1, 1, 1), mode="reflect") if pads else interpolate(image, scale_factor=0.5)

        return moved

    def inputs(self, shape: Shape, source: Source) -> tuple[Tensor, ...]:
        return (source.image((*shape[:2], shape[3], shape[2])).transpose(-1, -2),)
