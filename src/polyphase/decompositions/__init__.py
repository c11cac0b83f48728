"""Portable decompositions: ATen overloads as Python functions of core ATen operators, derived from the axis maps.

They serve where no kernel of ours can run: make_fx, torch.export, AOTInductor, other backends. `table()` goes wherever
PyTorch takes a decomposition table; `with preferred():` around the tracing makes sure that it is asked first.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch

from polyphase.decompositions import index_only, own, upsample, warp
from polyphase.torch_private import OpOverload


def table() -> dict[OpOverload, Callable[..., Any]]:
    """Overload -> decomposition, of ATen's operators that this version of torch has, and of our own. A new dict at
    every call."""
    return {**_of_aten(), **own.table()}


def _of_aten() -> dict[OpOverload, Callable[..., Any]]:
    return {**upsample.table(), **index_only.table(), **warp.table()}


def preferred() -> AbstractContextManager[None]:
    """While tracing: the operators of `table()` stay whole until a decomposition table is asked, this or another.

    torch decomposes most upsample overloads by itself, before it looks at any table. The block holds for its thread.
    """
    from polyphase.decompositions.precedence import built_ins_replaced  # it needs private names of torch

    whole = dict.fromkeys(_of_aten())
    for one_of_others in (torch.ops.aten.grid_sampler.default, torch.ops.aten.pad.default):  # by its image, or mode
        del whole[one_of_others]
    return built_ins_replaced({**whole, **upsample.vectors_as_default()})


__all__ = ["preferred", "table"]
