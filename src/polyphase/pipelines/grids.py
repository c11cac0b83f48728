"""Where the pixels of a rotated, sheared or otherwise distorted image come from: grids as torchvision makes them, in
the same operations, for its pictures are to come out to the bit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

Matrix = tuple[float, ...]


def inverse_affine(
    center: Sequence[float], angle: float, translate: Sequence[float], scale: float, shear: Sequence[float]
) -> Matrix:
    """Computes the matrix that leads from a pixel of the result to one of the image, both counted from the image's
    centre; angles in degrees."""
    turn, shear_x, shear_y = math.radians(angle), math.radians(shear[0]), math.radians(shear[1])
    a = math.cos(turn - shear_y) / math.cos(shear_y)
    b = -(a * math.tan(shear_x) + math.sin(turn))
    c = math.sin(turn - shear_y) / math.cos(shear_y)
    d = math.cos(turn) - c * math.tan(shear_x)
    matrix = [d / scale, -b / scale, 0.0, -c / scale, a / scale, 0.0]
    x, y = center[0] + translate[0], center[1] + translate[1]
    matrix[2] += center[0] - matrix[0] * x - matrix[1] * y
    matrix[5] += center[1] - matrix[3] * x - matrix[4] * y
    return tuple(matrix)


def expanded_size(matrix: Matrix, height: int, width: int) -> tuple[int, int]:
    """The height and width that hold the whole image."""
    x, y = 0.5 * width, 0.5 * height
    corners = torch.tensor([[-x, -y, 1.0], [-x, y, 1.0], [x, y, 1.0], [x, -y, 1.0]])
    moved = torch.matmul(corners, torch.tensor(matrix, dtype=torch.float).view(2, 3).T)
    centre = torch.tensor((x, y))
    least, most = moved.min(dim=0)[0] + centre, moved.max(dim=0)[0] + centre
    step = 1e-4  # a little less than a whole number is one
    size = torch.ceil((most / step).trunc_() * step) - torch.floor((least / step).trunc_() * step)
    return int(size[1]), int(size[0])


@dataclass(frozen=True)
class AffineGrid:
    """(1, *size, 2), of an image of `of` pixels (height, width)."""

    matrix: Matrix
    of: tuple[int, int]
    size: tuple[int, int]

    def made(self, dtype: torch.dtype, device: torch.device) -> Tensor:
        (height, width), (rows, columns) = self.of, self.size
        if device.type != "cpu":
            return self.by_elements(dtype, device)
        theta = torch.tensor(self.matrix, dtype=dtype, device=device).reshape(1, 2, 3)
        base = torch.empty(1, rows, columns, 3, dtype=dtype, device=device)
        base[..., 0].copy_(torch.linspace((1.0 - columns) * 0.5, (columns - 1.0) * 0.5, steps=columns, device=device))
        base[..., 1].copy_(torch.linspace((1.0 - rows) * 0.5, (rows - 1.0) * 0.5, steps=rows, device=device)[:, None])
        base[..., 2].fill_(1)
        halves = torch.tensor([0.5 * width, 0.5 * height], dtype=dtype, device=device)
        grid = base.view(1, rows * columns, 3).bmm(theta.transpose(1, 2).div_(halves))
        return grid.view(1, rows, columns, 2)

    def by_elements(self, dtype: torch.dtype, device: torch.device) -> Tensor:
        """The same, as the CPU rounds it, on any device; nothing is copied there."""
        (height, width), (rows, columns) = self.of, self.size
        x = torch.linspace((1.0 - columns) * 0.5, (columns - 1.0) * 0.5, steps=columns, device=device, dtype=dtype)
        y = torch.linspace((1.0 - rows) * 0.5, (rows - 1.0) * 0.5, steps=rows, device=device, dtype=dtype)[:, None]
        lines = _divided(self.matrix[:3], 0.5 * width, dtype), _divided(self.matrix[3:], 0.5 * height, dtype)
        return torch.stack([_line(x, y, line) for line in lines], dim=-1)[None]


@dataclass(frozen=True)
class PerspectiveGrid:
    """The grid of a perspective, by eight coefficients: (ax + by + c) / (gx + hy + 1), and so for y."""

    coefficients: Matrix
    size: tuple[int, int]

    def made(self, dtype: torch.dtype, device: torch.device) -> Tensor:
        if device.type != "cpu":
            return self.by_elements(dtype, device)
        (rows, columns), (a, b, c, d, e, f, g, h) = self.size, self.coefficients
        above = torch.tensor([[[a, b, c], [d, e, f]]], dtype=dtype, device=device)
        below = torch.tensor([[[g, h, 1.0], [g, h, 1.0]]], dtype=dtype, device=device)
        base = torch.empty(1, rows, columns, 3, dtype=dtype, device=device)
        base[..., 0].copy_(torch.linspace(0.5, columns - 0.5, steps=columns, device=device, dtype=dtype))
        base[..., 1].copy_(torch.linspace(0.5, rows - 0.5, steps=rows, device=device, dtype=dtype)[:, None])
        base[..., 2].fill_(1)
        halves = torch.tensor([0.5 * columns, 0.5 * rows], dtype=dtype, device=device)
        pixels = base.view(1, rows * columns, 3)
        grid = pixels.bmm(above.transpose(1, 2).div_(halves)).div_(pixels.bmm(below.transpose(1, 2))).sub_(1.0)
        return grid.view(1, rows, columns, 2)

    def by_elements(self, dtype: torch.dtype, device: torch.device) -> Tensor:
        (rows, columns), numbers = self.size, self.coefficients
        x = torch.linspace(0.5, columns - 0.5, steps=columns, device=device, dtype=dtype)
        y = torch.linspace(0.5, rows - 0.5, steps=rows, device=device, dtype=dtype)[:, None]
        lines = _divided(numbers[:3], 0.5 * columns, dtype), _divided(numbers[3:6], 0.5 * rows, dtype)
        below = _line(x, y, _divided((*numbers[6:], 1.0), 1.0, dtype))
        return torch.stack([_line(x, y, line).div_(below).sub_(1.0) for line in lines], dim=-1)[None]


def _divided(numbers: Sequence[float], by: float, dtype: torch.dtype) -> list[float]:
    """As the dtype has them, and their quotients."""
    quotients: list[float] = torch.tensor(numbers, dtype=dtype, device="cpu").div_(by).tolist()
    return quotients


def _line(x: Tensor, y: Tensor, coefficients: Sequence[float]) -> Tensor:
    """ax + by + c, with the roundings of the CPU's product of matrices: after ax, after by is added, at the end."""
    a, b, c = coefficients
    return (y.double() * b + (x * a).double()).to(x.dtype) + c


def perspective_coefficients(start: Sequence[Sequence[int]], end: Sequence[Sequence[int]]) -> Matrix:
    """Finds the coefficients of the perspective that takes four corners `start` to four corners `end`, each (x, y)."""
    rows = torch.zeros(8, 8, dtype=torch.float64)
    for i, ((x, y), (u, v)) in enumerate(zip(end, start, strict=True)):
        rows[2 * i, :] = torch.tensor([x, y, 1, 0, 0, 0, -u * x, -u * y])
        rows[2 * i + 1, :] = torch.tensor([0, 0, 0, x, y, 1, -v * x, -v * y])
    right = torch.tensor(start, dtype=torch.float64).view(8)
    return tuple(torch.linalg.lstsq(rows, right, driver="gels").solution.to(torch.float32).tolist())
