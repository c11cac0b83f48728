"""Draws landscapes, each by the numbers of a seeded generator: pictures to try transforms on, where nobody gave any.

They have what resizing gets wrong when it is done badly (a fence of thin posts, ripples, leaves), and as much fine
grain as photographs, so that their files are as large and take as long to decode.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

#: Height and width, as photographs of ImageNet have them.
SIZES = ((375, 500), (500, 333), (333, 500), (480, 640), (400, 600), (500, 375))


def picture(number: int) -> Tensor:
    """(3, height, width) bytes; the same for the same number, on any machine to within the rounding of sines."""
    draw = torch.Generator().manual_seed(number)
    height, width = SIZES[number % len(SIZES)]
    y, x = torch.meshgrid(torch.linspace(0, 1, height), torch.linspace(0, width / height, width), indexing="ij")
    image = _sky(x, y, draw)
    for layer in range(3):
        image = _hill(image, x, y, layer, draw)
    image = _lake(image, x, y, draw)
    image = _fence(image, x, y)
    grain = torch.randn(height, width, generator=draw) * 0.012
    return ((image + grain).clamp(0, 1) * 255).round().byte()


def _sky(x: Tensor, y: Tensor, draw: torch.Generator) -> Tensor:
    """A gradient with clouds, and a sun with a sharp edge."""
    high, low = _colour(0.25, 0.5, 0.85), _colour(0.95, 0.8 - 0.2 * _number(draw), 0.65)
    image = _mixed(high, low, (1.3 * y).clamp(max=1))
    clouds = (_noise(y.shape, 5, draw) * 1.6 - 0.2).clamp(0, 1) * (1 - y)
    image = _mixed(image, _colour(1.0, 1.0, 1.0), 0.7 * clouds)
    far = ((x - 0.2 - 0.9 * _number(draw)).square() + (y - 0.22).square()).sqrt()
    return torch.where(far < 0.07, _colour(1.0, 0.93, 0.7), image)


def _hill(image: Tensor, x: Tensor, y: Tensor, layer: int, draw: torch.Generator) -> Tensor:
    """A ridge with leaves on it; nearer ones are lower in the picture, darker and greener."""
    phase, waves = 6 * _number(draw), 4 + 3 * layer
    ridge = 0.45 + 0.13 * layer + 0.05 * torch.sin(waves * x + phase) + 0.02 * torch.sin(3.7 * waves * x + 2 * phase)
    leaves = _noise(y.shape, 8, draw)
    ground = _mixed(
        _colour(0.36 - 0.1 * layer, 0.47 - 0.06 * layer, 0.45 - 0.16 * layer), _colour(0.1, 0.16, 0.1), leaves
    )
    return torch.where(y > ridge - 0.03 * leaves, ground, image)


def _lake(image: Tensor, x: Tensor, y: Tensor, draw: torch.Generator) -> Tensor:
    """Ripples that grow finer towards the shore."""
    shore = 0.8 + 0.01 * torch.sin(9 * x + 6 * _number(draw))
    ripples = 0.5 + 0.5 * torch.sin(10 / (y - 0.74).clamp(min=0.01) + 3 * torch.sin(5 * x))
    water = _mixed(_colour(0.2, 0.36, 0.5), _colour(0.75, 0.82, 0.86), 0.8 * ripples)
    return torch.where(y > shore, water, image)


def _fence(image: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Thin bright posts and two rails."""
    posts = ((x * 34) % 1 < 0.22) & (y > 0.68) & (y < 0.8)
    rails = ((y - 0.71).abs() < 0.004) | ((y - 0.76).abs() < 0.004)
    return torch.where(posts | rails, _colour(0.93, 0.9, 0.84), image)


def _noise(shape: torch.Size, octaves: int, draw: torch.Generator) -> Tensor:
    """(height, width) from 0 to 1: a sum of grids of random numbers, each twice as fine as the one before."""
    sum_, strength = torch.zeros(shape), 0.5
    for octave in range(octaves):
        cells = 3 * 2**octave
        coarse = torch.rand(1, 1, cells, math.ceil(1.4 * cells), generator=draw)
        sum_ += strength * F.interpolate(coarse, size=shape, mode="bilinear")[0, 0]
        strength *= 0.5 if octave < 2 else 0.75
    low, high = sum_.aminmax()
    return (sum_ - low) / (high - low)


def _colour(red: float, green: float, blue: float) -> Tensor:
    return torch.tensor([red, green, blue])[:, None, None]


def _mixed(one: Tensor, other: Tensor, share: Tensor) -> Tensor:
    return one + (other - one) * share


def _number(draw: torch.Generator) -> float:
    return torch.rand(1, generator=draw).item()
