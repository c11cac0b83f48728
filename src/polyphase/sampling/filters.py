"""The resampling filters: a name, a support and a function.

A filter's argument is a distance in units of the filter's own grid: input pixels when enlarging, and output pixels
when an antialiased resize shrinks. The function keeps the dtype of its argument.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from polyphase.sampling.core_aten import where


@dataclass(frozen=True)
class Filter:
    """`weight(x)` is zero for |x| >= support (for box: outside (-support, support])."""

    name: str
    support: float
    weight: Callable[[Tensor], Tensor]


def box(x: Tensor) -> Tensor:
    # Half open, as Pillow has it: a pixel on the edge between two boxes belongs to exactly one of them.
    return torch.logical_and(x > -0.5, x <= 0.5).to(x.dtype)


def triangle(x: Tensor) -> Tensor:
    return torch.clamp(-x.abs() + 1, min=0)


def hamming(x: Tensor) -> Tensor:
    x = x.abs()
    window = 0.54 + 0.46 * torch.cos(math.pi * x)
    return where(x >= 1, 0.0, _sinc(x) * window)


def cubic(a: float) -> Callable[[Tensor], Tensor]:
    """Keys' cubic convolution; `a` is the slope at x = 1."""

    def weight(x: Tensor) -> Tensor:
        x = x.abs()
        near = _fused(_fused(x, a + 2, -(a + 3)) * x, x, 1.0)
        far = _fused(_fused(_fused(x, a, -5 * a), x, 8 * a), x, -4 * a)
        return where(x >= 2, 0.0, torch.where(x < 1, near, far))  # so a NaN stays one

    return weight


def lanczos3(x: Tensor) -> Tensor:
    return where(x.abs() >= 3, 0.0, _sinc(x) * _sinc(x / 3))


def _fused(x: Tensor, factor: Tensor | float, offset: float) -> Tensor:
    """x * factor + offset with one rounding, as the fused multiply-adds of eager's AVX2 and AVX-512 builds."""
    return (x.double() * factor + offset).to(x.dtype)


def _sinc(x: Tensor) -> Tensor:
    # Not torch.sinc: it is no core ATen operator, and sin(k pi) is not quite 0, which would spread NaN and infinity.
    whole = x == torch.round(x)
    angle = math.pi * where(whole, 0.5, x)
    return torch.where(whole, (x == 0).to(x.dtype), torch.sin(angle) / angle)


def _table(*filters: Filter) -> dict[str, Filter]:
    return {f.name: f for f in filters}


#: Interpolation between neighbouring pixels: `2 * support` taps, whatever the scale.
PLAIN = _table(Filter("bilinear", 1.0, triangle), Filter("bicubic", 2.0, cubic(-0.75)))

#: Antialiased: the filter is stretched by the scale when shrinking. PyTorch's cubic has a = -0.5 here, as Pillow's.
ANTIALIAS = _table(
    Filter("box", 0.5, box),
    Filter("bilinear", 1.0, triangle),
    Filter("hamming", 1.0, hamming),
    Filter("bicubic", 2.0, cubic(-0.5)),
    Filter("lanczos", 3.0, lanczos3),
)
