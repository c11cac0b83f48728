"""Portable decompositions: ATen overloads as Python functions of core ATen operators, derived from the axis maps.

They serve where no kernel of ours can run: make_fx, torch.export, AOTInductor, other backends. `table()` goes wherever
PyTorch takes a decomposition table.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch._ops import OpOverload

from polyphase.decompositions import index_only, upsample, warp


def table() -> dict[OpOverload, Callable[..., Any]]:
    """ATen overload -> decomposition, for the operators this version of torch has. A new dict at every call."""
    return {**upsample.table(), **index_only.table(), **warp.table()}


__all__ = ["table"]
