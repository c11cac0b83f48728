"""Taps applied to an image with plain torch operations: for the reference, for the plain twins of kernels, and for the
decompositions to trace."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from polyphase.sampling.axis_maps import order_of_sums
from polyphase.sampling.core_aten import take, where
from polyphase.sampling.evaluate import evaluate
from polyphase.sampling.pointwise import scalar_tensor
from polyphase.sampling.programs import Axes, Border
from polyphase.sampling.taps import Taps, transpose
from polyphase.sampling.windows import TapArithmetic


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


def apply_axes(
    image: Tensor, axes: Axes, arithmetic: TapArithmetic, dtype: torch.dtype
) -> tuple[Tensor, Tensor | None]:
    """The image by maps of its last dimensions, or by their adjoint, and the number of the constant border that each
    pixel belongs to: 0 for none, else the greatest of its axes. `dtype`: of images that are summed in such an order."""
    first, count, border = image.dim() - len(axes.maps), len(axes.maps), None
    before = axes.adjoint_of or image.shape[first:]
    for axis in order_of_sums(axes.maps, dtype):
        taps = evaluate(axes.maps[axis], before[axis], arithmetic, image.device)
        image = apply_taps(image, transpose(taps) if axes.transposed else taps, first + axis)
        if taps.border is not None and not axes.transposed:
            along = taps.border.reshape([-1] + [1] * (count - 1 - axis))
            border = along if border is None else torch.maximum(border, along)
    return image, border


def bordered(image: Tensor, numbers: Tensor | None, borders: Sequence[Border], stored: bool) -> Tensor:
    """Puts on those that were put on before the epilogue, or after it (`stored`)."""
    for number, border in enumerate(borders, start=1):
        if numbers is not None and border.stored == stored:
            value = scalar_tensor(border.value, image.dtype, image.device)
            image = torch.where(numbers == number, value, image)
    return image
