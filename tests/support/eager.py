"""Eager's functions, on every version of torch."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from polyphase.sampling import warps
from polyphase.torch_versions import SAMPLES_VOLUMES_BY_BICUBIC


def grid_sample(
    image: Tensor,
    grid: Tensor,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool | None = None,
) -> Tensor:
    """Of volumes by bicubic, where torch has none, what `tests/sampling/test_warps.py` holds against products of
    eager's images."""
    if image.dim() == 5 and mode == "bicubic" and not SAMPLES_VOLUMES_BY_BICUBIC:
        return warps.sample(image, grid, mode, padding_mode, bool(align_corners))
    return F.grid_sample(image, grid, mode, padding_mode, align_corners)
