"""Warps of torchvision and kornia: their own functions, which compute a grid and sample it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from polyphase.bench.libraries import imported
from polyphase.bench.operations import DTYPES, AffineWarp, Function, Functions, Operation, Shape, Source, by

_DEGREES = 20.0
#: From the output's pixels to the image's, for images of some hundred pixels or more: hardly turned, and a bit slanted.
_COEFFICIENTS = [0.95, 0.06, 3.0, -0.04, 0.97, 5.0, 4e-5, 6e-5]


@dataclass(frozen=True)
class TorchvisionWarp(Operation):
    """A function of `torchvision.transforms.v2`: rotate, perspective or elastic."""

    name: str
    expand: bool = False
    fill: float | None = None
    mode = "bilinear"
    library: ClassVar[str] = "torchvision.transforms.v2"
    levels: ClassVar[int] = 1

    def label(self, shape: Shape) -> str:
        expand = " expand" if self.expand else ""
        fill = "" if self.fill is None else f" fill={self.fill:g}"
        return f"torchvision {self.name}{expand}{fill} {by(shape)}"

    def function(self, calls: Functions) -> Function:
        v2 = imported(self.library)
        functional, expand = v2.functional, self.expand
        given = {"interpolation": v2.InterpolationMode.BILINEAR, "fill": self.fill}
        functions: dict[str, Function] = {
            "rotate": lambda image: functional.rotate(image, _DEGREES, expand=expand, **given),
            "perspective": lambda image: functional.perspective(image, None, None, coefficients=_COEFFICIENTS, **given),
            "elastic": lambda image, field: functional.elastic(image, field, **given),
        }
        return functions[self.name]

    def inputs(self, shape: Shape, source: Source) -> tuple[Tensor, ...]:
        image = source.image(shape)
        return (image, _field(shape, source)) if self.name == "elastic" else (image,)


@dataclass(frozen=True)
class KorniaWarp(Operation):
    """A function of `kornia.geometry.transform`: warp_affine, warp_perspective, homography_warp or remap."""

    name: str
    mode = "bilinear"
    library: ClassVar[str] = "kornia.geometry.transform"

    def label(self, shape: Shape) -> str:
        return f"kornia {self.name} {by(shape)}"

    def function(self, calls: Functions) -> Function:
        function = getattr(imported(self.library), self.name)

        if self.name == "remap":
            return lambda image, columns, rows: function(image, columns, rows, align_corners=True)
        return lambda image, matrix: function(image, matrix, tuple(image.shape[-2:]))

    def inputs(self, shape: Shape, source: Source) -> tuple[Tensor, ...]:
        image = source.image(shape)
        if self.name == "remap":
            moved = _identity(shape) + _field(shape, source).cpu() * torch.tensor([shape[-1], shape[-2]]) / 2
            given = moved.expand(shape[0], -1, -1, -1).unbind(-1)
        else:
            turn = AffineWarp(self.mode, degrees=_DEGREES, scale=0.9)
            last = torch.tensor([[0.0, 0.0, 1.0]], dtype=torch.float64)
            inside = turn.theta()[0] if self.name == "homography_warp" else turn.pixel_matrix(*shape[-2:])
            matrix = inside if self.name == "warp_affine" else torch.cat([inside, last])
            given = (matrix.expand(shape[0], -1, -1),)
        dtype = DTYPES[source.dtype]
        return image, *(one.to(source.device, dtype).contiguous() for one in given)


def _field(shape: Shape, source: Source) -> Tensor:
    """(1, height, width, 2): smooth, up to some two hundredths of the image, which is 2 in these coordinates."""
    height, width = shape[-2:]
    coarse = torch.rand(
        (1, 2, math.ceil(height / 32), math.ceil(width / 32)), generator=torch.Generator().manual_seed(2)
    )
    smooth = F.interpolate(coarse * 2 - 1, size=(height, width), mode="bicubic")
    return (smooth.movedim(1, -1) / 50).contiguous().to(source.device)


def _identity(shape: Shape) -> Tensor:
    """(1, height, width, 2): every pixel's own place, x first."""
    rows, columns = torch.meshgrid(torch.arange(shape[-2]), torch.arange(shape[-1]), indexing="ij")
    return torch.stack([columns, rows], -1)[None]
