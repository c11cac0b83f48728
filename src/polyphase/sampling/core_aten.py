"""Spellings of common operations that trace to core ATen operators, which every backend and torch.export knows."""

from __future__ import annotations

import torch
from torch import Tensor


def arange(
    count: int, *, start: int = 0, dtype: torch.dtype = torch.int64, device: torch.device | None = None
) -> Tensor:
    """start, start + 1, ...: `count` numbers. Of arange's overloads, only the one with a step is core."""
    return torch.arange(start, start + count, 1, dtype=dtype, device=device)


def where(condition: Tensor, value: Tensor | float, other: Tensor | float) -> Tensor:
    """One of both is a tensor, whose dtype the result has. Of where's overloads, only the one of tensors is core."""
    like = value if isinstance(value, Tensor) else other
    assert isinstance(like, Tensor), "two numbers have no dtype"
    value, other = (
        one if isinstance(one, Tensor) else torch.scalar_tensor(one, dtype=like.dtype, device=like.device)
        for one in (value, other)
    )
    return torch.where(condition, value, other)


def take(image: Tensor, index: Tensor, dim: int) -> Tensor:
    """`image` with axis `dim` replaced by the axes of `index`."""
    return torch.ops.aten.index.Tensor(image, [None] * dim + [index])  # type: ignore[no-any-return]
