"""What torch's own kernels do in less time than ours on the CPU, as `calls/slower.py` has it.

Measured on one thread of AVX-512 with VBMI.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from polyphase.calls.slower import Slower
from polyphase.records.layout import is_channels_last
from polyphase.sampling.warps import MODES

#: Of a transposed view. Fewer values take no time; longer rows, in bytes, are read in blocks that are large enough.
_WORTH_COPYING, _LONG_ROW = 2**12, 512
#: Pixels. Rows no longer are made down the image (`launch/geometry.h`).
_SHORT_ROW = 16
#: Fewer points of an image than the tile that our kernels make, of several images.
_FEW_POINTS, _SEVERAL_IMAGES = 28, 16
#: So many channels are added to, and multiplied with, by whole vectors.
_MANY_CHANNELS = 16
_BICUBIC = MODES.index("bicubic")


def _is_turned(image: Tensor) -> bool:
    """Whether neither neighbours in a row lie side by side, nor channels: a transposed view. ATen copies it first."""
    strides = image.stride()
    if not strides or strides[-1] <= 1 or image.shape[-1] == 1 or image.numel() < _WORTH_COPYING:
        return False
    return 1 in strides and not is_channels_last(image.shape, strides)


def _picks_few_of_a_turned_image(image: Tensor, size: Any, *others: Any) -> bool:
    return _is_turned(image) and _SHORT_ROW < image.shape[-1] > size[-1]


def _pads_a_turned_image(image: Tensor, *others: Any) -> bool:
    return _is_turned(image) and image.shape[-1] * image.element_size() < _LONG_ROW


def _has_few_points(image: Tensor, grid: Tensor, *others: Any) -> bool:
    images = grid.shape[0]
    return images >= _SEVERAL_IMAGES and grid.numel() < _FEW_POINTS * images * grid.shape[-1]


def _has_few_points_backward(gradient: Tensor, *arguments: Any) -> bool:
    return _has_few_points(*arguments)


def _adds_often_to_few_channels(gradient: Tensor, image: Tensor, grid: Tensor, mode: int, *others: Any) -> bool:
    points, pixels = grid.shape[1:-1].numel(), image.shape[2:].numel()
    return mode != _BICUBIC and image.shape[1] < _MANY_CHANNELS and points >= pixels


SLOWER = (
    Slower(
        "pixels picked out of a transposed view",
        tuple(f"{name}{axes}d" for name in ("upsample_nearest", "_upsample_nearest_exact") for axes in (2, 3)),
        _picks_few_of_a_turned_image,
        "model: nearest to the half of a transposed view 8x3x200x300",
    ),
    Slower(
        "pads of a transposed view with short rows",
        ("constant_pad_nd", *(f"{kind}_pad{axes}d" for kind in ("reflection", "replication") for axes in (2, 3))),
        _pads_a_turned_image,
        "model: reflect pad of a transposed view 64x4x40x12",
    ),
    Slower(
        "a few points of several images",
        ("grid_sampler_2d",),
        _has_few_points,
        "model: points bilinear 64x3x20x20 at 4x1",
    ),
    Slower(
        "gradients of few points of several images",
        ("grid_sampler_2d_backward",),
        _has_few_points_backward,
        "model: forward + backward points bilinear 64x3x20x20 at 4x1",
    ),
    Slower(
        "gradients of small images of few channels",
        ("grid_sampler_2d_backward",),
        _adds_often_to_few_channels,
        "model: forward + backward points bilinear 100x1x16x16 at 784x1",
    ),
)
