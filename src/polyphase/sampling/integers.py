"""Integers whose pixels are mixed: what they are summed in, and how a sum becomes an integer again."""

from __future__ import annotations

import torch
from torch import Tensor

from polyphase.sampling.core_aten import where

#: Those that eager does not mix. Their weights are made in float64, and the result alone is rounded. Bytes are not
#: among them: eager mixes them, along axes by 16 bit weights.
SUMMED_IN: dict[torch.dtype, torch.dtype] = {
    torch.int16: torch.float32,
    torch.uint16: torch.float32,
    torch.int32: torch.float64,
}


def can_be_mixed(dtype: torch.dtype) -> bool:
    return dtype.is_floating_point or dtype == torch.uint8 or dtype in SUMMED_IN


def stored(sums: Tensor, dtype: torch.dtype) -> Tensor:
    """Sums as pixels: integers are the nearest, of two the even one, and saturated; NaN is 0."""
    if dtype.is_floating_point or not sums.is_floating_point():
        return sums.to(dtype)
    limits = torch.iinfo(dtype)
    return where(sums.isnan(), 0.0, torch.clamp(torch.round(sums), limits.min, limits.max)).to(dtype)
