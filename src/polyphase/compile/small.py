"""What computes the small tensors that kernels of ours are given besides images, such as a matrix for each image.

Each step of that is a launch, which on a GPU takes the host as long as any other though it computes a handful of
numbers. So what depends on no input is computed once, while the graph is compiled; and products of small matrices are
arithmetic, which Inductor makes part of the loops around it, where a library's product is a launch of its own.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, Node
from torch.fx.experimental.symbolic_shapes import statically_known_true

from polyphase.compile.arithmetic import is_pointwise, makes_views
from polyphase.compile.nodes import call, value
from polyphase.ops.program import program as program_op
from polyphase.torch_private import OpOverload, disable_current_modes, is_erased, schema_of

aten = torch.ops.aten

#: Elements of a small tensor: matrices of a few hundred images are.
MOST_ELEMENTS = 4096

#: Rows and columns of the matrices whose products become arithmetic.
LARGEST_MATRIX = 4


_PRODUCTS = (aten.mm.default, aten.bmm.default)


def simplify_small(graph: Graph) -> None:
    """What leads to kernels of ours, or on from them, through small tensors alone; without kernels of ours, nothing."""
    ours = [node for node in graph.nodes if _is_ours(node)]
    before = _reached(ours, lambda node: node.all_input_nodes)
    after = _reached(ours, lambda node: node.users)
    _put_constants(graph, before)
    for node in list(graph.nodes):
        if (node in before or node in after) and _is_product_of_small_matrices(node):
            _replace_by_arithmetic(node)


def _is_ours(node: Node) -> bool:
    return getattr(node.target, "namespace", None) == "polyphase"


def _reached(ours: Iterable[Node], step: Callable[[Node], Iterable[Node]]) -> set[Node]:
    found: set[Node] = set()
    waiting = [one for node in ours for one in step(node)]
    while waiting:
        node = waiting.pop()
        if node not in found and node.op == "call_function" and _is_small(node):
            found.add(node)
            waiting += step(node)
    return found


def _is_small(node: Node) -> bool:
    """Whether all that it makes are tensors of few elements."""
    made = node.meta.get("val")
    return all(
        isinstance(one, Tensor) and statically_known_true(one.numel() <= MOST_ELEMENTS)
        for one in (made if isinstance(made, (tuple, list)) else [made])
    )


# ---- what depends on no input


def _put_constants(graph: Graph, nodes: set[Node]) -> None:
    values = _constants(graph, nodes)
    cheap: set[Node] = set()
    for node, computed in values.items():
        if _is_part_of_loops(node, cheap):
            cheap.add(node)
        readers = [one for one in node.users if one not in values and _may_read(one, node in cheap)]
        if readers and type(computed) is Tensor:
            constant = _constant(graph, node, computed)
            for reader in readers:
                reader.replace_input_with(node, constant)
    for node in reversed(values):
        if not node.users:
            graph.erase_node(node)


def _constants(graph: Graph, nodes: set[Node]) -> dict[Node, Any]:
    """Finds the nodes that depend on no input, and computes them."""
    values: dict[Node, Any] = {}
    with torch.no_grad(), disable_current_modes():
        for node in graph.nodes:
            if node in nodes and _is_constant(node, values):
                assert callable(node.target)
                args, kwargs = torch.fx.node.map_arg((node.args, dict(node.kwargs)), values.__getitem__)
                with suppress(Exception):  # it is raised where the function is called
                    values[node] = node.target(*args, **kwargs)
    return values


def _is_constant(node: Node, values: dict[Node, Any]) -> bool:
    """Whether it is the same every time, and is made of what is."""
    if node.target is not operator.getitem and not _is_pure(node):
        return False
    given: list[Any] = []
    torch.fx.node.map_aggregate((node.args, dict(node.kwargs)), given.append)
    symbolic = any(isinstance(one, torch.SymInt | torch.SymFloat | torch.SymBool) for one in given)
    return not symbolic and all(one in values for one in node.all_input_nodes)


def _is_pure(node: Node) -> bool:
    """Whether it is known to do nothing but to make tensors, the same ones every time."""
    target = node.target
    return (
        isinstance(target, OpOverload)
        and target.namespace in ("aten", "prims")
        and not schema_of(target).is_mutable
        and torch.Tag.nondeterministic_seeded not in target.tags
    )


def _may_read(node: Node, cheap: bool) -> bool:
    """From memory that is there for all calls: no views, which may be given to the user, who may write there; and no
    operators that Inductor calls as they are. It tries those on tensors without data, constants excepted, which torch
    refuses to mix."""
    is_loop = is_pointwise(node) or node.target in (*_PRODUCTS, aten.cat.default, aten.sum.dim_IntList)
    return node.target is program_op or (not cheap and is_loop)


def _is_part_of_loops(node: Node, cheap: set[Node]) -> bool:
    """Whether Inductor computes it where it is read, in less time than reading takes."""
    return all(one in cheap for one in node.all_input_nodes) and (
        not node.all_input_nodes or is_pointwise(node) or makes_views(node)
    )


def _constant(graph: Graph, node: Node, computed: Tensor) -> Node:
    name = f"constant_{node.name}"
    assert graph.owning_module is not None, "a pass is given the graph of a module"
    graph.owning_module.register_buffer(name, computed)
    with graph.inserting_before(node):
        constant = graph.get_attr(name)
    constant.meta = dict(node.meta)
    return constant


# ---- products


def _is_product_of_small_matrices(node: Node) -> bool:
    if is_erased(node) or node.target not in _PRODUCTS or value(node).dtype not in (torch.float32, torch.float64):
        return False
    sizes = [n for one in node.all_input_nodes for n in value(one).shape[-2:]]
    return all(isinstance(n, int) and n <= LARGEST_MATRIX for n in sizes)


def _replace_by_arithmetic(node: Node) -> None:
    """(..., i, k) times (..., k, j) is the sum over k of (..., i, k, 1) times (..., 1, k, j)."""
    left, right = node.args
    columns = call(node, aten.unsqueeze.default, left, -1)
    rows = call(node, aten.unsqueeze.default, right, -3)
    products = call(node, aten.mul.Tensor, columns, rows)
    node.replace_all_uses_with(call(node, aten.sum.dim_IntList, products, [-2]))
    node.graph.erase_node(node)
