"""While a function is compiled: what Inductor and our pass do, graph by graph.

Inductor has no interface that tells this, so a few of its private functions are wrapped while an explanation is made.
Caches are off then: a graph that comes from a cache has passed no stage.
"""

from __future__ import annotations

import contextlib
import functools
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from polyphase.compile import backend as our_backend
from polyphase.compile.attention.replace import Attended
from polyphase.compile.fuse import Report
from polyphase.compile.lower import ProgramKernel
from polyphase.compile.reasons import NotFused
from polyphase.explaining.buffers import buffers_of, number
from polyphase.explaining.loops import loop_of
from polyphase.explaining.model import Apart, Call, Graph, InductorKernel, Loop, OurKernel
from polyphase.explaining.ours import our_kernel
from polyphase.torch_private import (
    CppScheduling,
    GraphLowering,
    Scheduler,
    TritonScheduling,
    V,
    WhyNoFuse,
    functorch_config,
    inductor_config,
)

_lock = threading.Lock()


class Gathered:
    """Graphs in the order they were compiled."""

    def __init__(self) -> None:
        self._graphs: list[tuple[GraphLowering, Graph]] = []
        self._report: Report | None = None
        self._grids: tuple[str, ...] = ()
        self._attention: tuple[str, ...] = ()
        self._loops: list[Loop] = []
        self._order: list[OurKernel | InductorKernel | Call] = []
        self._not_fused: dict[tuple[str, str], str] = {}

    @property
    def graphs(self) -> list[Graph]:
        """The graphs, with the files that their code was written to, which are known only when all is done."""
        return [replace(graph, code_file=str(lowering.cache_path or "")) for lowering, graph in self._graphs]

    def fused(self, report: Report) -> None:
        self._report = report

    def grids(self, left: Sequence[NotFused]) -> None:
        self._grids = tuple(map(str, left))

    def attention(self, found: Sequence[Attended | NotFused]) -> None:
        self._attention = tuple(map(str, found))

    def loop(self, nodes: list[Any], code: str) -> None:
        self._loops.append(loop_of(nodes, code))

    def kernel(self, name: str, source: str) -> None:
        self._order.append(InductorKernel(name, tuple(self._loops), source))
        self._loops = []

    def triton_kernel(self, name: str, source: str, nodes: Sequence[Any]) -> None:
        """A kernel of Triton's is one loop nest, by blocks of elements. Some of its nodes are marks, without a body."""
        computed = [one for one in nodes if getattr(one, "_body", None) is not None]
        loops = (loop_of(computed, source),) if computed else ()
        self._order.append(InductorKernel(name, loops, source))

    def extern(self, node: Any) -> None:
        if isinstance(node, ProgramKernel):
            self._order.append(our_kernel(node))
        elif name := node.op_overload or node.python_kernel_name:  # else it picks one of several results, or asserts
            sizes = filter(None, (one.maybe_get_size() for one in (node, *node.inputs) if hasattr(one, "get_size")))
            elements = (math.prod(number(V.graph, n) for n in size) for size in sizes)
            self._order.append(Call(str(name), max(elements, default=0)))

    def refused(self, first: str, second: str, why: str) -> None:
        """Two nodes that Inductor did not fuse. Those that have no data in common are not worth telling."""
        if why != "no shared data":
            self._not_fused[first, second] = why

    def graph(self, lowering: GraphLowering) -> None:
        kind = "backward" if lowering.is_backward else "inference" if lowering.is_inference else "forward"
        report = self._report or Report((), ())
        together = [{step.name for step in loop.steps} for one in self._order if isinstance(one, InductorKernel)
                    for loop in one.loops]  # fmt: skip
        apart = [
            Apart(first, second, why)
            for (first, second), why in self._not_fused.items()
            if not any({first, second} <= names for names in together) and "_" not in first + second
        ]
        left = tuple(str(one) for one in report.left)
        graph = Graph(
            kind, tuple(self._order), tuple(buffers_of(lowering)), left, tuple(apart), "", self._grids, self._attention
        )
        self._graphs.append((lowering, graph))
        self._grids, self._attention = (), ()
        self._report, self._loops, self._order, self._not_fused = None, [], [], {}


@contextlib.contextmanager
def gathered() -> Iterator[Gathered]:
    """Wraps Inductor's functions for the whole process; there is one explanation at a time."""
    found = Gathered()
    with _lock, contextlib.ExitStack() as undo:
        undo.enter_context(inductor_config.patch(fx_graph_cache=False))
        undo.enter_context(functorch_config.patch(enable_autograd_cache=False))
        _wrap(undo, our_backend, "with_attention", lambda made, *_: found.attention(made))
        _wrap(undo, our_backend, "without_grids", lambda left, *_: found.grids(left))
        _wrap(undo, our_backend, "fuse", lambda report, *_, **__: found.fused(report))
        _wrap(undo, WhyNoFuse, "__call__", lambda _, why, *__: found.refused(why.name1, why.name2, _text(why)))
        _wrap(undo, CppScheduling, "define_kernel", lambda name, _, source, *__: found.kernel(name, source))
        _wrap(
            undo,
            TritonScheduling,
            "define_kernel",
            lambda name, _, source, nodes, *__: found.triton_kernel(name, source, nodes),
        )
        _wrap(undo, Scheduler, "codegen_extern_call", lambda _, __, scheduled: found.extern(scheduled.node))
        _wrap(undo, GraphLowering, "codegen", lambda _, lowering: found.graph(lowering))
        undo.enter_context(_loops_watched(found))
        yield found


def _text(why: Any) -> str:
    return str(why.reason % why.args if why.args else why.reason)


def _wrap(undo: contextlib.ExitStack, owner: Any, name: str, after: Callable[..., None]) -> None:
    """Calls `after(result, *arguments)` after every call of a function, until undone."""
    function = getattr(owner, name)

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        after(result, *args, **kwargs)
        return result

    setattr(owner, name, wrapped)
    undo.callback(setattr, owner, name, function)


@contextlib.contextmanager
def _loops_watched(found: Gathered) -> Iterator[None]:
    """Tells of every loop nest: the code that one call of codegen_node adds to a kernel."""
    codegen_node = CppScheduling.codegen_node

    def watched(self: Any, node: Any) -> Any:
        before = len(self.kernel_group.loops_code.getvalue())
        group = self.kernel_group
        result = codegen_node(self, node)
        found.loop(list(node.get_nodes()), group.loops_code.getvalue()[before:])
        return result

    CppScheduling.codegen_node = watched
    try:
        yield
    finally:
        CppScheduling.codegen_node = codegen_node
