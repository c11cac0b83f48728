"""Taps applied to an image with plain torch operations, for the reference and for the decompositions to trace."""

from __future__ import annotations

import torch
from torch import Tensor

from polyphase.sampling.core_aten import take, where
from polyphase.sampling.taps import Taps


def apply_taps(image: Tensor, taps: Taps, dim: int) -> Tensor:
    """One axis mapped, `dim >= 0`. Floats come back in the weights' dtype, quantised uint8 rounded to uint8.

    Taps of weight 0 are masked, not multiplied: 0 * NaN is NaN.
    """
    if taps.index.shape[0] == 0:  # a border around an empty axis: nothing is read
        return image.new_zeros([*image.shape[:dim], taps.out_size, *image.shape[dim + 1 :]])
    if taps.weight is None:
        return take(image, taps.index[0], dim)
    weight = taps.weight.reshape([*taps.weight.shape, *[1] * (image.dim() - dim - 1)])
    products = take(image, taps.index, dim).to(weight.dtype) * weight
    if taps.one is not None:
        return _to_uint8(products.sum(dim, dtype=weight.dtype), taps.one)
    return where(weight != 0, products, 0).sum(dim)


def _to_uint8(total: Tensor, one: Tensor) -> Tensor:
    """floor(total / one + 1/2), saturated, without a shift, which is no core ATen operator.

    With the bits after the point cleared, `whole` is a multiple of the power of two `one`: exact in float32 where the
    quotient is below 2**24, and saturated beyond.
    """
    whole = torch.bitwise_and(total + torch.div(one, 2, rounding_mode="floor"), -one)
    return torch.clamp(whole.to(torch.float32) * (1.0 / one), 0, 255).to(torch.uint8)
