"""Inductor's scheduled nodes as loops: ranges, index expressions, and whether they are vectorised."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import sympy

from polyphase.explaining.model import Access, Loop, Step

#: Elements of a vector that Inductor's loops use, at least.
_FEW = 8


def loop_of(nodes: Sequence[Any], code: str) -> Loop:
    """Of one loop nest's nodes and its generated C++."""
    vectorised = "at::vec::" in code
    return Loop(tuple(map(_step, nodes)), vectorised, "" if vectorised else _why_scalar(nodes))


def _step(node: Any) -> Step:
    sizes = [size for group in getattr(node, "_sizes", ((), ())) for size in group]
    origins = sorted({str(one.target) for one in node.node.get_origins() if one.op == "call_function"})
    return Step(
        node.get_name(),
        tuple(map(str, sizes)),
        tuple(origins),
        tuple(_accesses(node.read_writes.reads)),
        tuple(_accesses(node.read_writes.writes)),
    )


def _accesses(dependencies: Iterable[Any]) -> Iterable[Access]:
    for one in dependencies:
        if hasattr(one, "index"):
            yield Access(one.name, str(one.index), {str(name): str(size) for name, size in one.ranges.items()})


def _why_scalar(nodes: Sequence[Any]) -> str:
    """The first thing in the way of vector loads, by the index expressions themselves."""
    for node in nodes:
        for one in node.read_writes.reads:
            why = _why_no_vector_load(one, getattr(node, "_sizes", ((), ()))) if hasattr(one, "index") else ""
            if why:
                return why
    dtypes = sorted({str(node.node.get_dtype()) for node in nodes})
    return f"Inductor does not vectorise this loop ({', '.join(dtypes)})"


def _why_no_vector_load(read: Any, sizes: Sequence[Any]) -> str:
    if any(str(symbol).startswith("tmp") for symbol in read.index.free_symbols):
        return f"an indirect load: {read.name}[{read.index}], whose index is a value"
    if not read.ranges:
        return ""
    innermost, count = list(read.ranges.items())[-1]
    stride = sympy.diff(read.index, innermost)
    if stride.is_number and stride < 0:
        return f"a negative stride: {read.name}[{read.index}] goes by {stride} along {innermost}"
    if stride.is_number and count.is_number and stride == 1 and count < _FEW:
        return f"a short innermost loop: {read.name}[{read.index}] has {count} neighbours along {innermost}"
    if stride != 1 and stride != 0:
        return f"a stride: {read.name}[{read.index}] goes by {stride} along {innermost}"
    return ""
