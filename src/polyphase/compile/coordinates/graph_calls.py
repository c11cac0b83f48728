"""Calls that are added to the graph of Dynamo, before a node; and sizes, maybe symbolic, as nodes or numbers of it."""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import partial
from typing import Any

import sympy
import torch
from torch.fx import Graph, Node

from polyphase.compile.coordinates.algebra import Extent, Refused, known
from polyphase.compile.coordinates.cutout import example
from polyphase.compile.reasons import Why
from polyphase.sampling.steps import Size


class GraphCalls:
    """Adds nodes where the graph's insertion point is, which is before `before`."""

    def __init__(self, graph: Graph, before: Node) -> None:
        self._graph = graph
        self._numbers: dict[sympy.Expr, Any] = {}
        self._symbols = _symbols_of(graph, before)
        self.made: list[Node] = []

    def call(self, function: Any, *args: Any, **kwargs: Any) -> Node:
        self.made.append(self._graph.call_function(function, args, kwargs))
        return self.made[-1]

    def size(self, size: Size | Extent) -> Any:
        return self.number(known(size).number)

    def number(self, number: sympy.Expr) -> Any:
        if number not in self._numbers:
            self._numbers[number] = self._made(number)
        return self._numbers[number]

    def _made(self, number: sympy.Expr) -> Any:
        if not number.free_symbols:
            return int(number) if isinstance(number, sympy.Integer) else float(number)
        if number in self._symbols:
            return self._symbols[number](self.call)
        if isinstance(number, sympy.Add | sympy.Mul):
            upper, lower = number.as_numer_denom() if isinstance(number, sympy.Mul) else (number, 1)
            if lower != 1:
                return self.call(operator.truediv, self.number(upper), self.number(lower))
            op = operator.add if isinstance(number, sympy.Add) else operator.mul
            return self.call(op, *(self.number(one) for one in number.as_two_terms()))
        if isinstance(number, sympy.Pow) and number.exp == -1:
            return self.call(operator.truediv, 1, self.number(number.base))
        if type(number).__name__ in _FUNCTIONS:
            return self.call(_FUNCTIONS[type(number).__name__], *map(self.number, number.args))
        raise Refused(Why.NOT_A_FORMULA, f"the number {number}")

    def undo(self) -> None:
        """The graph as it was."""
        for node in reversed(self.made):
            self._graph.erase_node(node)


#: What torch's symbolic sizes are made by, besides sums and products.
_FUNCTIONS: dict[str, Callable[..., Any]] = {"FloorDiv": operator.floordiv, "PythonMod": operator.mod}


def _symbols_of(graph: Graph, before: Node) -> dict[sympy.Expr, Callable[..., Any]]:
    """Finds, for each symbolic size, what makes it: a node that is it, or a size of an input."""
    found: dict[sympy.Expr, Callable[..., Any]] = {}
    for node in graph.nodes:
        if node is before:
            break
        value = example(node)
        if isinstance(value, torch.SymInt):
            found.setdefault(known(value).number, lambda call, node=node: node)
        elif isinstance(value, torch.Tensor) and node.op == "placeholder":
            for dim, n in enumerate(value.shape):
                made = partial(_size, node=node, dim=dim)
                found.setdefault(known(n).number, made)
    return found


def _size(call: Callable[..., Any], node: Node, dim: int) -> Any:
    return call(torch.ops.aten.sym_size.int, node, dim)
