"""Spellings of common operations that trace to core ATen operators, which every backend and torch.export knows."""

from __future__ import annotations

import torch
from torch import Tensor

from polyphase.sampling.steps import Size


def arange(
    count: Size, *, start: Size = 0, dtype: torch.dtype = torch.int64, device: torch.device | None = None
) -> Tensor:
    """start, start + 1, ...: `count` numbers. Of arange's overloads, only the one with a step is core."""
    return torch.arange(start, start + count, 1, dtype=dtype, device=device)


def take(image: Tensor, index: Tensor, dim: int) -> Tensor:
    """`image` with axis `dim` replaced by the axes of `index`."""
    return torch.ops.aten.index.Tensor(image, [None] * dim + [index])  # type: ignore[no-any-return]
