"""affine_grid of symbolic sizes. torch finds its shape by computing a grid, which makes the sizes constants: every size
would be compiled anew, before any backend is asked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from polyphase.sampling.steps import Size
from polyphase.torch_private import register_fast_op_impl


def register() -> None:
    """It is for symbolic sizes only."""
    register_fast_op_impl(torch.ops.aten.affine_grid_generator.default)(_grid_without_data)


def _grid_without_data(mode: Any, theta: Tensor, size: Sequence[Size], align_corners: bool) -> Tensor:
    batch, _, *spatial = size
    with mode:
        return theta.new_empty((batch, *spatial, len(spatial)))
