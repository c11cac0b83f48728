"""Memory order and materialisation: what keeps the code that Inductor makes from a decomposition fast."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from polyphase import torch_private


def memory_order(image: Tensor) -> list[int]:
    """The dimensions of the output in memory order, outermost first, as eager lays it out.

    A decomposition works on the image permuted so: buffers between its passes are then channels last where the image
    is, which is worth 2x under Inductor.
    """
    suggested = torch_private.suggest_memory_format(image)
    if suggested in (torch.channels_last, torch.channels_last_3d):
        return [0, *range(2, image.dim()), 1]
    return list(range(image.dim()))


def stride_order(image: Tensor) -> list[int]:
    """Gives that order for operators that keep any dense strides, such as flip."""
    order: Any = torch_private.logical_to_physical(image)
    return list(order[0] if isinstance(order, tuple) else order)  # newer torch adds whether it was ambiguous


def dense(image: Tensor, order: Sequence[int]) -> Tensor:
    """`image`, computed in memory order, back in logical order and dense in memory."""
    inverse = [order.index(dim) for dim in range(len(order))]
    empty = isinstance(image.numel(), int) and image.numel() == 0  # always "contiguous", whatever its strides
    return (image.new_empty(image.shape) if empty else image.contiguous()).permute(inverse)


def materialised(tensor: Tensor) -> Tensor:
    """The same tensor, as a buffer of its own under Inductor.

    Inductor inlines pointwise producers: tables would be recomputed for every pixel, and the first pass for every tap
    of the second. The input of as_strided is always a buffer, with the strides seen while tracing; the clone makes sure
    that those are its strides. Outside of tracing, and where derivatives or vmap look on, nothing is done.
    """
    traced = torch_private.is_fake(tensor) and not torch_private.is_functorch_wrapped_tensor(tensor)
    if not traced or tensor.requires_grad:
        return tensor
    copy = tensor.clone(memory_format=torch.contiguous_format)
    return copy.as_strided(copy.size(), copy.stride())
