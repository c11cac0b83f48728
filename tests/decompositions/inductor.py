"""Inductor with our decomposition table, as a torch.compile backend for tests and measurements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._inductor.compile_fx import compile_fx
from torch._inductor.decomposition import select_decomp_table

from polyphase.decompositions import preferred, table


def decomposed(graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    with preferred():
        return compile_fx(graph, list(inputs), decompositions={**select_decomp_table(), **table()})  # type: ignore[no-any-return]
