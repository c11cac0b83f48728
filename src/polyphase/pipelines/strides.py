"""How torchvision's results lie in memory: what its functions do with an image's strides, step by step.

Strides are those that its tensor would have at that place of a chain, in which nothing is stored between.
"""

from __future__ import annotations

import torch
from torch import Tensor

from polyphase.records.facts import Sizes, elements
from polyphase.records.layout import CHANNELS_LAST, dense_strides, is_channels_last


def dense_like(shape: Sizes, strides: Sizes) -> Sizes:
    """The strides of a result made element by element: as the image lies, without gaps."""
    contiguous = dense_strides(shape, False)
    if strides == contiguous or tuple(sorted(strides, reverse=True)) == strides:
        return contiguous
    return torch.empty_like(torch.empty_strided(shape, strides, dtype=torch.uint8)).stride()


def resized(shape: Sizes, strides: Sizes, size: tuple[int, int], *, keeps_channels_last: bool) -> Sizes:
    """The strides `interpolate` gives, which is given images as one batch. `keeps_channels_last`: v2 sees to it that
    one such image is not taken for a contiguous one; v1 does not."""
    batch, batch_strides = _as_batch(shape, strides)
    if keeps_channels_last and batch[0] == 1 and _is_dense_channels_last(batch, batch_strides):
        batch_strides = (elements(batch), *batch_strides[1:])
    return _of_batch((*shape[:-2], *size), batch[0], is_channels_last(batch, batch_strides))


def padded(shape: Sizes, strides: Sizes, out_shape: Sizes, *, as_batch: bool) -> Sizes:
    """`as_batch`: whether images are given as one batch."""
    if as_batch:
        batch, batch_strides = _as_batch(shape, strides)
        return _of_batch(out_shape, batch[0], is_channels_last(batch, batch_strides))
    last = len(shape) in CHANNELS_LAST and is_channels_last(shape, strides)
    return dense_strides(out_shape, last)


def _as_batch(shape: Sizes, strides: Sizes) -> tuple[Sizes, Sizes]:
    if len(shape) == 3:
        return (1, *shape), (shape[0] * strides[0], *strides)
    batch = _meta(shape, strides).reshape(-1, *shape[-3:])
    return tuple(batch.shape), batch.stride()


def _of_batch(shape: Sizes, count: int, channels_last: bool) -> Sizes:
    """The strides of images that were a batch of so many."""
    if not channels_last:
        return dense_strides(shape, False)
    batch = (count, *shape[-3:])
    strides = dense_strides(batch, True)
    return strides[1:] if len(shape) == 3 else _meta(batch, strides).reshape(shape).stride()


def _meta(shape: Sizes, strides: Sizes) -> Tensor:
    return torch.empty_strided(shape, strides, dtype=torch.uint8, device="meta")


def _is_dense_channels_last(shape: Sizes, strides: Sizes) -> bool:
    expected = 1
    for dim in CHANNELS_LAST[4]:
        if shape[dim] != 1:
            if strides[dim] != expected:
                return False
            expected *= shape[dim]
    return elements(shape) != strides[0]
