"""Attention at sampled places: a query's output is a sum of samples, at places and with weights of its own.

Multi-scale deformable attention, as detectors have it. The value has several planes, the levels, one behind the other
in its pixels. Each head samples its channels of every level at the places of some points, bilinearly and with zeros
around a plane, and adds the samples up, by their weights.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from polyphase.errors import WrongInputError
from polyphase.sampling import warps
from polyphase.sampling.steps import Size


class Level(NamedTuple):
    """first_pixel, first_point: of the value's pixels, and of an output's points."""

    first_pixel: Size
    height: Size
    width: Size
    first_point: Size
    points: Size


@dataclass(frozen=True)
class Attention:
    """sizes: the height and width of each level. points: how many each level has."""

    sizes: tuple[tuple[Size, Size], ...]
    points: tuple[Size, ...]
    align_corners: bool = False

    def levels(self) -> Iterator[Level]:
        pixel: Size = 0
        point: Size = 0
        for (height, width), points in zip(self.sizes, self.points, strict=True):
            yield Level(pixel, height, width, point, points)
            pixel, point = pixel + height * width, point + points

    def check(self, value: Tensor, places: Tensor, weights: Tensor) -> None:
        """value: (batch, pixels, heads, channels). places: (batch, queries, heads, points, x and y), from -1 to 1.
        weights: (batch, queries, heads, points)."""
        pixels, points = sum(height * width for height, width in self.sizes), sum(self.points)
        batch, _, heads, _ = value.shape if value.dim() == 4 else (-1,) * 4
        fits = (
            weights.dim() == 4
            and value.dim() == 4
            and value.shape[1] == pixels
            and (weights.shape[0], weights.shape[2], weights.shape[3]) == (batch, heads, points)
            and places.shape == (*weights.shape, 2)
            and all(height > 0 and width > 0 for height, width in self.sizes)
            and len(self.sizes) == len(self.points)
        )
        if not fits or len({one.dtype for one in (value, places, weights)}) != 1:
            raise WrongInputError(
                f"attention to a value of {value.dtype} {tuple(value.shape)} at places of {places.dtype} "
                f"{tuple(places.shape)} with weights of {weights.dtype} {tuple(weights.shape)}, in levels of "
                f"{self.sizes} and points {self.points}; they are (batch, pixels, heads, channels), (batch, queries, "
                "heads, points, 2) and (batch, queries, heads, points), of one dtype"
            )


def attend(value: Tensor, places: Tensor, weights: Tensor, attention: Attention) -> Tensor:
    """(batch, queries, heads, channels), by torch operations, which can be differentiated any number of times."""
    batch, _, heads, channels = value.shape
    samples = [
        _sampled(value, places, level, attention.align_corners).unflatten(0, (batch, heads))
        for level in attention.levels()
    ]
    total = value.new_zeros(batch, heads, channels, weights.shape[1])
    for level, sample in zip(attention.levels(), samples, strict=True):
        of_level = weights.narrow(3, level.first_point, level.points)
        total = total + (sample * of_level.transpose(1, 2)[:, :, None]).sum(-1)
    return total.permute(0, 3, 1, 2).contiguous()


def _sampled(value: Tensor, places: Tensor, level: Level, align_corners: bool) -> Tensor:
    """(batch * heads, channels, queries, points)."""
    height, width = level.height, level.width
    pixels = value.narrow(1, level.first_pixel, height * width)
    planes = pixels.permute(0, 2, 3, 1).flatten(0, 1).unflatten(-1, (height, width))
    grid = places.narrow(3, level.first_point, level.points).transpose(1, 2).flatten(0, 1)
    return warps.sample(planes, grid, "bilinear", "zeros", align_corners)


def from_lists(sizes: Sequence[Size], points: Sequence[Size], align_corners: bool) -> Attention:
    """Makes what operators take as lists: of heights and widths in turn."""
    return Attention(tuple(zip(sizes[::2], sizes[1::2], strict=True)), tuple(points), align_corners)
