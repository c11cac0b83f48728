"""The part of Dynamo's graph that computes a grid, cut out and recorded.

It begins where nothing more can be read: at the graph's inputs, at calls of something unknown (a network, random
numbers), and at what is small and depends on them: a matrix is left as it is, however it was computed. Numbers that
stand in the code are read as numbers.

Dynamo's graphs are not functional. What is written into, and what writes there, is in the cut-out as a whole or not at
all.
"""

from __future__ import annotations

import inspect
import math
import operator
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import sympy
import torch
from torch import Tensor
from torch.fx import Graph, Node
from torch.fx.experimental.symbolic_shapes import statically_known_true
from torch.multiprocessing.reductions import StorageWeakRef

from polyphase.compile.coordinates.algebra import Refused
from polyphase.compile.coordinates.readers import OF_SHAPES, is_known
from polyphase.compile.coordinates.recorded import Recording, recorded
from polyphase.compile.coordinates.walk import DTYPES
from polyphase.compile.reasons import Why
from polyphase.sampling.steps import Size

#: Elements of a tensor that is left as it is, for each image.
SMALL = 64


#: Terms of a symbolic size: of one that trigonometry has led to, there are hundreds.
LONGEST_SIZE = 32


@dataclass(frozen=True)
class CutOut:
    """leaves: nodes of Dynamo's graph that the recording's inputs stand for. literals: values of those that are numbers
    in the code, by their place among leaves. steps: nodes that were recorded, in the graph's order."""

    leaves: tuple[Node, ...]
    recording: Recording
    literals: dict[int, Tensor]
    steps: tuple[Node, ...]

    @cached_property
    def inner(self) -> frozenset[Node]:
        """Steps that lead to steps alone, as a part of a grid that is written to does."""
        found: set[Node] = set()
        for node in reversed(self.steps):
            if found.issuperset(node.users):
                found.add(node)
        return frozenset(found)


def cut_out(grid: Node, reader: Node) -> CutOut:
    """What computes `grid`, as it is when `reader` reads it."""
    if any(_length(n) > LONGEST_SIZE for n in example(grid).shape):
        raise Refused(Why.LONG_SIZES)
    return Search(grid.graph, reader, example(grid).shape[0]).cut_out(grid)


def _length(size: Size) -> int:
    return 1 if isinstance(size, int) else sum(1 for _ in sympy.preorder_traversal(size.node.expr))


def example(node: Node) -> Any:
    return node.meta.get("example_value")


class Search:
    """Backwards from what a reader reads: what stands before the reader in its graph."""

    def __init__(self, graph: Graph, reader: Node, batch: Size) -> None:
        self._order: dict[Node, int] = {}
        self._written: dict[int, list[Node]] = {}  # by storage: who writes to it
        self._batch = batch
        self._known: dict[Node, bool] = {}
        self._of_data: dict[Node, bool] = {}
        for number, node in enumerate(graph.nodes):
            if node is reader:
                break
            self._order[node] = number
            for storage in _written_by(node):
                self._written.setdefault(storage, []).append(node)

    def cut_out(self, grid: Node) -> CutOut:
        members: set[Node] = set()
        leaves: set[Node] = set()
        writers: set[Node] = set()  # to what members made: what they do is recorded, or nothing is
        waiting = [grid]
        while waiting:
            node = waiting.pop()
            if node in members or not _is_of_tensors(node):
                continue
            if node not in writers and self._is_leaf(node):
                if self._writers(node):
                    raise Refused(Why.MUTATION_BETWEEN, str(node))
                leaves.add(node)
                continue
            if node in writers and not self._is_readable(node):
                raise Refused(Why.MUTATION_BETWEEN, str(node))
            leaves.discard(node)
            members.add(node)
            writers.update(self._writers(node))
            waiting += [*node.all_input_nodes, *self._writers(node)]
        numbers = {one for one in members if _is_literal(one)}
        steps, inputs = (sorted(some, key=self._order.__getitem__) for some in (members, leaves | numbers))
        literals = {place: _literal(one) for place, one in enumerate(inputs) if one in numbers}
        return CutOut(tuple(inputs), _recorded(steps, inputs, grid), literals, tuple(steps))

    def _writers(self, node: Node) -> list[Node]:
        """Who writes to its memory after it was made."""
        return [one for storage in _storages(node) for one in self._written.get(storage, ())
                if self._order[one] > self._order[node]]  # fmt: skip

    def _is_leaf(self, node: Node) -> bool:
        if not self._is_readable(node):
            return True
        if not self._is_small(node) or not self._depends_on_data(node) or self._writers(node):
            return False
        return not self._is_view_of_small(node)

    def _is_readable(self, node: Node) -> bool:
        """Whether it does nothing but what a walk knows, and passes gradients on."""
        if node not in self._known:
            self._known[node] = _is_literal(node) or (
                node.op in ("call_function", "call_method") and _calls_known_operators(node)
            )
        return self._known[node]

    def _is_small(self, node: Node) -> bool:
        tensor = example(node)
        if not isinstance(tensor, Tensor):
            return False
        same_batch = tensor.dim() > 0 and statically_known_true(tensor.shape[0] == self._batch)
        elements = math.prod(tensor.shape[1:] if same_batch else tensor.shape)
        return bool(statically_known_true(elements <= SMALL))

    def _depends_on_data(self, node: Node) -> bool:
        """Whether its values come from elsewhere than this graph and its sizes."""
        if node not in self._of_data:
            self._of_data[node] = False  # until it is known, for what writes into itself
            inputs = [one for one in (*node.all_input_nodes, *self._writers(node)) if _is_of_tensors(one)]
            self._of_data[node] = not self._is_readable(node) or any(map(self._depends_on_data, inputs))
        return self._of_data[node]

    def _is_view_of_small(self, node: Node) -> bool:
        """Whether a node is a view of a small tensor: the whole of that is one leaf, not each of its elements."""
        inputs = [one for one in node.all_input_nodes if isinstance(example(one), Tensor)]
        return (
            len(inputs) == 1
            and not list(_written_by(node))
            and list(_storages(node)) == list(_storages(inputs[0]))
            and self._is_small(inputs[0])
        )


def _is_of_tensors(node: Node) -> bool:
    """Sizes and other numbers are as they are in the example, symbols where symbolic."""
    found = example(node)
    several = isinstance(found, (tuple, list))
    return any(isinstance(one, Tensor) for one in (found if several else [found])) or bool(list(_written_by(node)))


def _storages(node: Node) -> Iterator[int]:
    tensor = example(node)
    if isinstance(tensor, Tensor):
        yield StorageWeakRef(tensor.untyped_storage()).cdata


# ---- numbers in the code


def _is_literal(node: Node) -> bool:
    """Whether it is a small tensor of numbers that stand in the code."""
    return (
        node.target is torch.tensor
        and not node.all_input_nodes
        and not node.kwargs.get("requires_grad")
        and isinstance(example(node), Tensor)
        and example(node).numel() <= SMALL
        and example(node).dtype in DTYPES
    )


def _literal(node: Node) -> Tensor:
    """Its values, as numbers of its dtype."""
    return torch.tensor(node.args[0], dtype=example(node).dtype, device="cpu")


# ---- writing


def may_write(node: Node) -> bool:
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    says_so = node.kwargs.get("out") is not None or _is_in_place(node)
    schema = getattr(node.target, "_schema", None)
    is_mutable = schema is not None and schema.is_mutable
    writes = says_so or name.endswith("_") or node.target in _WRITING_OPERATORS or is_mutable
    return node.op.startswith("call") and writes


def _is_in_place(node: Node) -> bool:
    """Tells a call like `F.relu(x, inplace=True)`, where it may be said without a name."""
    place = None if isinstance(node.target, str) else _place_of_inplace(node.target)
    return bool(node.kwargs.get("inplace") or (place is not None and node.args[place : place + 1] == (True,)))


@cache
def _place_of_inplace(function: Any) -> int | None:
    """Where it is among a function's arguments."""
    try:
        names = list(inspect.signature(function).parameters)
    except (TypeError, ValueError):  # it cannot be asked, as builtins cannot
        return None
    return names.index("inplace") if "inplace" in names else None


def _written_by(node: Node) -> Iterator[int]:
    """Storages. Of what only torch knows to write, all that it reads."""
    if not may_write(node):
        return
    ordinary = isinstance(node.target, str) or node.target in _WRITING_OPERATORS
    for one in node.all_input_nodes[:1] if ordinary else node.all_input_nodes:
        yield from _storages(one)


_WRITING_OPERATORS = {
    operator.setitem,
    *(getattr(operator, f"i{name}") for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul")),
    *(getattr(operator, f"i{name}") for name in ("and", "or", "xor", "lshift", "rshift")),
}


# ---- recording


def _recorded(steps: list[Node], leaves: list[Node], grid: Node) -> Recording:
    def compute(*tensors: Tensor) -> Any:
        values: dict[Node, Any] = dict(zip(leaves, tensors, strict=True))
        for node in steps:
            # What stands in the code may be written into: each time it is a tensor of its own.
            values[node] = made = values[node].clone() if node in values else _call(node, values)
            if isinstance(made, Tensor) and made.dtype != example(node).dtype:
                raise Refused(Why.ANOTHER_DTYPE, str(node))  # under autocast, whose nodes are no part of this
        return values[grid]

    return recorded(compute, [example(one) for one in leaves], example(grid).fake_mode)


def _call(node: Node, values: dict[Node, Any]) -> Any:
    args, kwargs = torch.fx.node.map_arg(
        (node.args, dict(node.kwargs)), lambda one: values[one] if one in values else example(one)
    )
    if node.op == "call_method":
        return getattr(args[0], str(node.target))(*args[1:], **kwargs)
    assert callable(node.target)
    return node.target(*args, **kwargs)


def _calls_known_operators(node: Node) -> bool:
    recording = calls_of(node)
    if recording is None:
        return False
    operators = recording.operators()
    return all(map(is_known, operators)) and not (stops_gradients(node) and operators - set(OF_SHAPES))


def calls_of(node: Node) -> Recording | None:
    """What a node calls, if it can be called without data."""
    inputs = _tensors_given(node)
    tensors = [example(one) for one in inputs]
    modes: list[Any] = [getattr(one, "fake_mode", None) for one in (*tensors, example(node)) if isinstance(one, Tensor)]
    if not modes or None in modes:
        return None
    try:
        return recorded(lambda *given: _call(node, dict(zip(inputs, given, strict=True))), tensors, modes[0])
    except Exception:  # whatever a call of anybody's raises without data, it is not read
        return None


def stops_gradients(node: Node) -> bool:
    made = example(node)
    return (
        isinstance(made, Tensor)
        and made.is_floating_point()
        and not made.requires_grad
        and any(example(one).requires_grad for one in _tensors_given(node))
    )


def _tensors_given(node: Node) -> list[Node]:
    return [one for one in node.all_input_nodes if isinstance(example(one), Tensor)]
