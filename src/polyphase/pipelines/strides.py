"""How torchvision's results lie in memory: what its functions do with an image's strides, step by step.

Strides are those that its tensor would have at that place of a chain, in which nothing is stored between.
"""

from __future__ import annotations

import torch

from polyphase.kernels.facts import Sizes, elements
from polyphase.kernels.layout import CHANNELS_LAST, dense_strides, is_channels_last


def dense_like(shape: Sizes, strides: Sizes) -> Sizes:
    """Of a result made element by element: as the image lies, without gaps."""
    contiguous = dense_strides(shape, False)
    if strides == contiguous or tuple(sorted(strides, reverse=True)) == strides:
        return contiguous
    return torch.empty_like(torch.empty_strided(shape, strides, dtype=torch.uint8)).stride()


def resized(shape: Sizes, strides: Sizes, size: tuple[int, int], *, keeps_channels_last: bool) -> Sizes:
    """Of `interpolate`, which is given one image as a batch. `keeps_channels_last`: v2 sees to it that such an image is
    not taken for a contiguous one; v1 does not."""
    batch, batch_strides = _as_batch(shape, strides)
    if keeps_channels_last and batch[0] == 1 and _is_dense_channels_last(batch, batch_strides):
        batch_strides = (elements(batch), *batch_strides[1:])
    return _of_batch((*shape[:-2], *size), is_channels_last(batch, batch_strides))


def padded(shape: Sizes, strides: Sizes, out_shape: Sizes, *, as_batch: bool) -> Sizes:
    """`as_batch`: whether the one image is given as a batch of one."""
    if as_batch:
        shape, strides = _as_batch(shape, strides)
    return _of_batch(out_shape, len(shape) in CHANNELS_LAST and is_channels_last(shape, strides))


def _as_batch(shape: Sizes, strides: Sizes) -> tuple[Sizes, Sizes]:
    if len(shape) != 3:
        return shape, strides
    return (1, *shape), (shape[0] * strides[0], *strides)


def _of_batch(shape: Sizes, channels_last: bool) -> Sizes:
    if not channels_last or len(shape) not in (3, 4):
        return dense_strides(shape, False)
    return dense_strides((1, *shape)[-4:], True)[-len(shape) :]


def _is_dense_channels_last(shape: Sizes, strides: Sizes) -> bool:
    expected = 1
    for dim in CHANNELS_LAST[4]:
        if shape[dim] != 1:
            if strides[dim] != expected:
                return False
            expected *= shape[dim]
    return elements(shape) != strides[0]
