"""A function's functional graph, and what the pass makes of it, without Inductor: tens of milliseconds."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch._functorch.aot_autograd import aot_module_simplified, make_boxed_func
from torch._inductor.decomposition import select_decomp_table
from torch.fx import GraphModule

from polyphase.compile.fuse import Report, fuse
from polyphase.compile.grids import without_grids
from polyphase.compile.small import simplify_small
from polyphase.compile.whole import kept_whole


def fused(function: Callable[..., Any], *args: Any, fusion: bool = True, dynamic: bool = False) -> tuple[Report, Any]:
    """What became of the forward graph, and what the graph computes then (if sizes are dynamic, computed before)."""
    reports: list[Report] = []

    def run_fused(graph: GraphModule, inputs: Any) -> Any:
        before = copy.deepcopy(graph) if dynamic else graph
        reports.append(fuse(graph.graph, fusion))
        graph.recompile()
        return make_boxed_func(before.forward if dynamic else graph.forward)  # symbolic sizes are Inductor's to print

    with torch.no_grad():
        result = torch.compile(function, backend=_backend(run_fused, fusion), dynamic=dynamic)(*args)
    return reports[0], result


def simplified(function: Callable[..., Any], *args: Any) -> tuple[GraphModule, Callable[..., Any]]:
    """The forward graph after all passes, and the function on it."""
    graphs: list[GraphModule] = []

    def run_simplified(graph: GraphModule, inputs: Any) -> Any:
        fuse(graph.graph)
        simplify_small(graph.graph)
        graph.graph.lint()
        graph.recompile()
        graphs.append(graph)
        return make_boxed_func(graph.forward)

    run = torch.no_grad()(torch.compile(function, backend=_backend(run_simplified)))
    run(*args)
    return graphs[0], run


def _backend(run: Callable[[GraphModule, Any], Any], fusion: bool = True) -> Callable[[GraphModule, Any], Any]:
    def backend(graph: GraphModule, inputs: Any) -> Any:
        if fusion:
            without_grids(graph)
        with kept_whole():
            return aot_module_simplified(graph, inputs, fw_compiler=run, decompositions=select_decomp_table())

    return backend
