"""`explain(function)(*args)`: compile, run, and say what happened."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch.fx import GraphModule

from polyphase.compile.backend import polyphase
from polyphase.decompositions import preferred
from polyphase.errors import UnknownNameError
from polyphase.explaining.explanation import Explanation
from polyphase.explaining.gather import gathered
from polyphase.explaining.model import Break
from polyphase.torch_private import (
    compile_fx,
    dynamo_counters,
    get_compilation_metrics,
    select_decomp_table,
    tree_leaves,
)

BACKENDS = ("polyphase", "inductor")


class Explainer:
    """Call it once, as the function is called; or use `over` for several calls, to see what recompiles."""

    def __init__(self, function: Callable[..., Any], backend: str, decompositions: Mapping[Any, Any] | None) -> None:
        if backend not in BACKENDS:
            raise UnknownNameError("backend to explain", backend, BACKENDS)
        self._function, self._backend, self._decompositions = function, backend, decompositions

    def __call__(self, *args: Any, **kwargs: Any) -> Explanation:
        return self._explain([(args, kwargs)])

    def over(self, calls: Iterable[tuple[Any, ...]], **compile_options: Any) -> Explanation:
        """Several calls, each a tuple of arguments, through one compiled function. Options are torch.compile's."""
        return self._explain([(args, {}) for args in calls], **compile_options)

    def _explain(self, calls: list[tuple[tuple[Any, ...], dict[str, Any]]], **options: Any) -> Explanation:
        breaks: list[Break] = []

        def backend(graph: GraphModule, inputs: list[Any]) -> Any:
            breaks.extend(_breaks(graph))
            return self._compile(graph, inputs)

        torch.compiler.reset()
        frames_before, known = dict(dynamo_counters["frames"]), list(get_compilation_metrics())
        with gathered() as found:
            compiled = torch.compile(self._function, backend=backend, **options)
            for args, kwargs in calls:
                _backward(compiled(*args, **kwargs))
        metrics = [
            one for one in get_compilation_metrics() if not any(one is other for other in known)
        ]  # torch keeps few
        recompiles = tuple(str(one.recompile_reason) for one in metrics if one.recompile_reason)
        ran_eager = _why_eager(metrics, frames_before, len(found.graphs))
        torch.compiler.reset()
        name = getattr(self._function, "__qualname__", type(self._function).__name__)
        graphs = tuple(found.graphs)
        return Explanation(name, self._backend, len(calls), graphs, tuple(breaks), recompiles, ran_eager)

    def _compile(self, graph: GraphModule, inputs: list[Any]) -> Any:
        if self._backend == "polyphase":
            return polyphase(graph, inputs)
        if self._decompositions is None:
            return compile_fx(graph, inputs)
        with preferred():
            return compile_fx(graph, inputs, decompositions={**select_decomp_table(), **self._decompositions})


def explain(
    function: Callable[..., Any], backend: str = "polyphase", decompositions: Mapping[Any, Any] | None = None
) -> Explainer:
    """Say what `torch.compile(function, backend=backend)` does with arguments: `print(explain(function)(*args))`.

    With backend `inductor`, `decompositions` are put before Inductor's own (`polyphase.decompositions.table()`, for
    example).
    """
    return Explainer(function, backend, decompositions)


def _breaks(graph: GraphModule) -> Iterable[Break]:
    why = getattr(graph, "compile_subgraph_reason", None)
    if why is not None and why.graph_break:
        frame = why.user_stack[-1] if why.user_stack else None
        line = f"{frame.filename}:{frame.lineno}: {frame.line}" if frame else "unknown line"
        yield Break(str(why.reason).splitlines()[0], line)


def _backward(result: Any) -> None:
    """Run the backward of a result: backward graphs are compiled when they are first needed."""
    tensors = [one for one in tree_leaves(result) if isinstance(one, torch.Tensor)]
    needed = [one for one in tensors if one.requires_grad and one.grad_fn is not None]
    if needed:
        torch.autograd.backward(needed, [torch.ones_like(one) for one in needed])


def _why_eager(metrics: Iterable[Any], before: Mapping[str, int], graphs: int) -> str:
    failed = [str(one.fail_reason) for one in metrics if one.fail_reason]
    now = dynamo_counters["frames"]
    skipped = (now["total"] - before.get("total", 0)) - (now["ok"] - before.get("ok", 0))
    if failed:
        return failed[0].splitlines()[0]
    if skipped > 0:
        return "Dynamo gave up on a frame (a recompile limit, or what it cannot trace): those calls ran eager"
    return "" if graphs else "no graph was compiled"
