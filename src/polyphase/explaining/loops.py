"""Inductor's scheduled nodes as loops: ranges, index expressions, and whether they are vectorised."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import sympy

from polyphase.explaining.buffers import number
from polyphase.explaining.model import Access, Loop, Step
from polyphase.torch_private import V, accesses_of

#: Elements of a vector that Inductor's loops use, at least.
_FEW = 8


def loop_of(nodes: Sequence[Any], code: str) -> Loop:
    """Reads one loop nest, by its nodes and its generated code: C++, or Triton, which works on blocks of elements."""
    vectorised = "at::vec::" in code or "@triton.jit" in code
    used = list(map(accesses_of, nodes))
    elements = max(math.prod(number(V.graph, n) for n in one.var_ranges.values()) for one in used)
    return Loop(tuple(map(_step, nodes, used)), elements, vectorised, "" if vectorised else _why_scalar(nodes, used))


def _step(node: Any, used: Any) -> Step:
    origins = sorted({str(one.target) for one in node.node.get_origins() if one.op == "call_function"})
    return Step(
        node.get_name(),
        {str(name): str(size) for name, size in used.var_ranges.items()},
        tuple(origins),
        tuple(_accesses(used.reads)),
        tuple(_accesses(used.writes)),
    )


def _accesses(dependencies: Iterable[Any]) -> Iterable[Access]:
    return (Access(one.name, str(one.index)) for one in dependencies if hasattr(one, "index"))


def _why_scalar(nodes: Sequence[Any], used: Sequence[Any]) -> str:
    """The first thing that prevents vector loads, found in the index expressions themselves."""
    for one in used:
        for read in one.reads:
            why = _why_no_vector_load(read, one.var_ranges) if hasattr(read, "index") else ""
            if why:
                return why
    dtypes = sorted({str(node.node.get_dtype()) for node in nodes})
    return f"Inductor does not vectorise this loop ({', '.join(dtypes)})"


def _why_no_vector_load(read: Any, ranges: dict[Any, Any]) -> str:
    if any(str(symbol).startswith("tmp") for symbol in read.index.free_symbols):
        return f"an indirect load: {read.name}[{read.index}], whose index is a value"
    if not ranges:
        return ""
    innermost, count = list(ranges.items())[-1]
    stride = sympy.diff(read.index, innermost)
    if stride.is_number and stride < 0:
        return f"a negative stride: {read.name}[{read.index}] goes by {stride} along {innermost}"
    if stride.is_number and count.is_number and stride == 1 and count < _FEW:
        return f"a short innermost loop: {read.name}[{read.index}] has {count} neighbours along {innermost}"
    if stride != 1 and stride != 0:
        return f"a stride: {read.name}[{read.index}] goes by {stride} along {innermost}"
    return ""
