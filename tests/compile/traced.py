"""Functional graphs with the pass run on them, forward and backward, without Inductor: tens of milliseconds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
import torch
from functorch.compile import aot_function, make_boxed_func
from torch._inductor.decomposition import select_decomp_table
from torch.fx import GraphModule

from polyphase.calls import binding, devices
from polyphase.calls import prepared as programs
from polyphase.compile.fuse import fuse
from polyphase.compile.whole import kept_whole
from polyphase.errors import CompilerMissingError


def fused(function: Callable[..., Any], fusion: bool = True) -> tuple[Callable[..., Any], list[GraphModule]]:
    """The function on its graphs, which are there once it has run."""
    graphs: list[GraphModule] = []

    def run_fused(graph: GraphModule, _: object) -> Any:
        graph.meta["strides"] = [one.meta["val"].stride() for one in graph.graph.output_node().all_input_nodes]
        fuse(graph.graph, fusion)
        graph.graph.lint()
        graph.recompile()
        graphs.append(graph)
        return make_boxed_func(graph)

    traced = aot_function(function, fw_compiler=run_fused, bw_compiler=run_fused, decompositions=select_decomp_table())

    def run(*args: Any) -> Any:
        with kept_whole():
            return traced(*args)

    return run, graphs


def programs_in(graphs: list[GraphModule]) -> int:
    return sum("polyphase.program" in str(node.target) for graph in graphs for node in graph.graph.nodes)


@contextmanager
def on_plain_torch() -> Iterator[None]:
    """Programs run on the plain twin of the kernels: none is built."""

    def missing(*args: Any) -> Any:
        raise CompilerMissingError("for a test")

    with pytest.MonkeyPatch.context() as patch:
        no_kernels = replace(devices.wing_of(torch.device("cpu")), bind=missing, bind_gradients=missing)
        patch.setattr(devices, "wing_of", lambda device: no_kernels)
        patch.setattr(binding, "warn_once", lambda error: None)
        programs.prepared.cache_clear()
        yield
    programs.prepared.cache_clear()
