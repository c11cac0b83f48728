"""Nodes of a graph: what they are without data, new ones, and those that go when nobody reads them."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node
from torch.fx.experimental.symbolic_shapes import statically_known_true

from polyphase.compile.coordinates.cutout import may_write
from polyphase.sampling.steps import Size
from polyphase.torch_private import is_erased


def value(node: Node) -> Tensor:
    return node.meta["val"]  # type: ignore[no-any-return]


def same(one: Sequence[Size], other: Sequence[Size]) -> bool:
    return len(one) == len(other) and all(statically_known_true(a == b) for a, b in zip(one, other, strict=True))


def call(like: Node, target: Any, *args: Any) -> Node:
    """A node with what later passes ask of it, before one in whose stead it is. Its first argument has a tensor.

    Symbolic sizes stand in it as they are, which torch warns of: its own way to make nodes of them fails for quotients.
    """
    with warnings.catch_warnings(), like.graph.inserting_before(like):
        warnings.filterwarnings("ignore", "Raw SymInt")
        node = like.graph.call_function(target, args)
    tensors = torch.fx.node.map_arg(args, value)
    with value(node.all_input_nodes[0]).fake_mode:  # type: ignore[attr-defined]
        node.meta = {**like.meta, "val": target(*tensors)}
    return node


def put(node: Node, result: Node) -> None:
    """Puts a result in the stead of a node, and of what only the node has read."""
    result.meta = {**node.meta, **result.meta}
    node.replace_all_uses_with(result)
    erase_unread(node)


def erase_unread(node: Node) -> None:
    """Erases a node that nobody reads, and what it was made of, where nobody else reads that."""
    if is_erased(node) or node.users or not (node.op == "get_attr" or node.op.startswith("call_")) or may_write(node):
        return
    inputs = node.all_input_nodes
    node.graph.erase_node(node)
    for one in inputs:
        erase_unread(one)
