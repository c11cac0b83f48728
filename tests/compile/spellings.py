"""Grids as libraries compute them: the operations of torchvision's and kornia's functions, written out."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def _base_grid(width: int, height: int, x: tuple[float, float], y: tuple[float, float], like: Tensor) -> Tensor:
    """torchvision's: an empty tensor that is written to, plane by plane."""
    grid = torch.empty(1, height, width, 3, dtype=like.dtype, device=like.device)
    grid[..., 0].copy_(torch.linspace(*x, steps=width, dtype=like.dtype))
    grid[..., 1].copy_(torch.linspace(*y, steps=height, dtype=like.dtype).unsqueeze_(-1))
    grid[..., 2].fill_(1)
    return grid


def _sampled(image: Tensor, grid: Tensor, mode: str = "bilinear", align_corners: bool = False) -> Tensor:
    grid = grid.expand(image.shape[0], -1, -1, -1)
    return F.grid_sample(image, grid, mode=mode, padding_mode="zeros", align_corners=align_corners)


def rotated(image: Tensor, theta: Tensor) -> Tensor:
    """torchvision's rotate; theta (1, 2, 3) counts pixels."""
    height, width = image.shape[-2:]
    grid = _base_grid(width, height, (-(width - 1) / 2, (width - 1) / 2), (-(height - 1) / 2, (height - 1) / 2), image)
    half = torch.tensor([0.5 * width, 0.5 * height], dtype=image.dtype)
    turned = grid.view(1, height * width, 3).bmm(theta.transpose(1, 2) / half)
    return _sampled(image, turned.view(1, height, width, 2))


def in_perspective(image: Tensor, theta: Tensor) -> Tensor:
    """torchvision's perspective; theta (1, 3, 3)."""
    height, width = image.shape[-2:]
    grid = _base_grid(width, height, (0.5, width - 0.5), (0.5, height - 0.5), image).view(1, height * width, 3)
    half = torch.tensor([0.5 * width, 0.5 * height], dtype=image.dtype)
    above = grid.bmm(theta[:, :2].transpose(1, 2) / half)
    below = grid.bmm(theta[:, 2:].expand(-1, 2, -1).transpose(1, 2))
    return _sampled(image, above.div_(below).sub_(1.0).view(1, height, width, 2))


def displaced(image: Tensor, displacement: Tensor) -> Tensor:
    """torchvision's elastic; displacement (1, height, width, 2)."""
    height, width = image.shape[-2:]
    x, y = ((1 - n) / n for n in (width, height))
    return _sampled(image, _base_grid(width, height, (x, -x), (y, -y), image)[..., :2].add_(displacement))


def by_homography(image: Tensor, matrix: Tensor) -> Tensor:
    """kornia's homography_warp: a matrix (N, 3, 3), points with a 1 put on, and a division that is never by 0."""
    (height, width), batch = image.shape[-2:], image.shape[0]
    xs, ys = ((2.0 * torch.arange(n, dtype=image.dtype) + 1.0) / n - 1.0 for n in (width, height))
    grid = torch.stack(torch.meshgrid([xs, ys], indexing="ij"), dim=-1).permute(1, 0, 2).unsqueeze(0)
    points = F.pad(grid.expand(batch, -1, -1, -1).reshape(batch, -1, 2), (0, 1), value=1.0)
    moved = torch.bmm(points, matrix.permute(0, 2, 1))
    z = moved[..., -1:]
    far = z.abs() > 1e-8
    scale = torch.where(far, 1.0 / torch.where(far, z, torch.ones_like(z)), torch.ones_like(z))
    return _sampled(image, (scale * moved[..., :-1]).reshape(batch, height, width, 2))


def remapped(image: Tensor, map_x: Tensor, map_y: Tensor) -> Tensor:
    """kornia's remap: pixels (N, height, width) for each coordinate."""
    height, width = image.shape[-2:]
    sizes = [torch.scalar_tensor(n, dtype=image.dtype) for n in (width, height)]
    factor = torch.stack([torch.where(n == 1, torch.ones(()), 2.0 / (n - 1.0)) for n in sizes])
    grid = factor * torch.stack([map_x, map_y], -1) - 1
    return F.grid_sample(image, grid, "bilinear", "zeros", align_corners=True)


def by_matrix(image: Tensor, matrix: Tensor) -> Tensor:
    """kornia's warp_affine: a matrix (N, 2, 3), coordinates by meshgrid, each row by itself."""
    height, width = image.shape[-2:]
    xs, ys = (torch.linspace(-1, 1, n, dtype=image.dtype) for n in (width, height))
    y, x = torch.meshgrid(ys, xs, indexing="ij")
    m = matrix[..., None, None]
    rows = [m[:, row, 0] * x + m[:, row, 1] * y + m[:, row, 2] for row in range(2)]
    return _sampled(image, torch.stack(rows, dim=-1), align_corners=True)


def by_einsum(image: Tensor, matrix: Tensor) -> Tensor:
    height, width = image.shape[-2:]
    ys, xs = (torch.arange(n, dtype=image.dtype) * 2 / (n - 1) - 1 for n in (height, width))
    ones = torch.ones(height, width, dtype=image.dtype)
    points = torch.stack([xs.expand(height, width), ys[:, None].expand(height, width), ones], -1)
    return _sampled(image, torch.einsum("nij,hwj->nhwi", matrix, points), align_corners=True)


def undistorted(image: Tensor, strength: Tensor) -> Tensor:
    """A lens: farther from the middle, farther away. strength (N,)."""
    height, width = image.shape[-2:]
    ys, xs = (torch.linspace(-1, 1, n, dtype=image.dtype) for n in (height, width))
    y, x = torch.meshgrid(ys, xs, indexing="ij")
    radius = torch.sqrt(x**2 + y**2 + 0.01)
    scale = 1 + strength[:, None, None] * radius
    return _sampled(image, torch.stack((x * scale, y * scale), -1), align_corners=True)


def of_a_volume(image: Tensor, flow: Tensor) -> Tensor:
    """A displacement of voxels (N, 3, depth, height, width), as registration networks have it: channels first."""
    shape = flow.shape[2:]
    vectors = [torch.arange(0, n) for n in shape]
    grid = torch.stack(torch.meshgrid(vectors, indexing="ij")).unsqueeze(0).to(flow.dtype)
    places = grid + flow
    scaled = torch.stack([2 * (places[:, axis] / (n - 1) - 0.5) for axis, n in enumerate(shape)], -1)
    return F.grid_sample(image, scaled.flip(-1), align_corners=True)
