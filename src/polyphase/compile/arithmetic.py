"""Pointwise nodes of a graph as expressions, and which nodes are pointwise, or views."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.fx import Node

from polyphase.sampling.pointwise import COMPARISONS, Binary, Cast, Expression, Number, Unary
from polyphase.torch_private import OpOverload, schema_of

aten, prims = torch.ops.aten, torch.ops.prims

_UNARY = {
    aten.neg.default: "neg",
    aten.abs.default: "abs",
    aten.relu.default: "relu",
    aten.round.default: "round",
    aten.floor.default: "floor",
    aten.ceil.default: "ceil",
}
BINARY = {
    aten.add.Tensor: "add",
    aten.add.Scalar: "add",
    aten.sub.Tensor: "sub",
    aten.sub.Scalar: "sub",
    aten.mul.Tensor: "mul",
    aten.mul.Scalar: "mul",
    aten.div.Tensor: "div",
    aten.div.Scalar: "div",
    aten.minimum.default: "minimum",
    aten.maximum.default: "maximum",
    **{getattr(getattr(aten, op), kind): op for op in COMPARISONS for kind in ("Tensor", "Scalar")},
}
#: What changes no value: at most where it lies.
_UNCHANGED = (aten.clone.default, aten.alias.default, aten.detach.default)

#: The value, or a tensor beside it, as an expression; None where a program cannot read it.
ReadNode = Callable[[Node], "Expression | None"]


def _is_conjugated(argument: Any) -> bool:
    """Whether it is a view that lies in memory as it was: what copies it conjugates it."""
    tensor = argument.meta.get("val") if isinstance(argument, Node) else None
    return isinstance(tensor, torch.Tensor) and tensor.is_conj()


def expression_of(node: Node, read: ReadNode) -> Expression | None:
    """What a pointwise node computes, if a program can hold it."""
    target, args = node.target, node.args
    if node.op != "call_function":
        return None
    if target in _UNCHANGED:
        return None if _is_conjugated(args[0]) else _side(args[0], read)
    if target in _UNARY and len(args) == 1 and not node.kwargs:
        of = _side(args[0], read)
        return None if of is None else Unary(_UNARY[target], of)
    if target in BINARY and len(args) == 2 and not node.kwargs:
        left, right = (_side(one, read) for one in args)
        if left is None or right is None or (isinstance(left, Number) and isinstance(right, Number)):
            return None
        return Binary(BINARY[target], left, right)
    if target is prims.convert_element_type.default:
        of, dtype = _side(args[0], read), args[1]
        return Cast(of, dtype) if of is not None and isinstance(dtype, torch.dtype) else None
    return _clamp(node, read)


def is_pointwise(node: Node) -> bool:
    """Whether Inductor computes a node element by element, within a larger loop."""
    tags = getattr(node.target, "tags", ())
    return torch.Tag.pointwise in tags or node.target is prims.convert_element_type.default


def makes_views(node: Node) -> bool:
    """Whether what it makes lies in the memory of what it is given."""
    return isinstance(node.target, OpOverload) and any(
        one.alias_info is not None for one in schema_of(node.target).returns
    )


def _clamp(node: Node, read: ReadNode) -> Expression | None:
    bounds: dict[object, Callable[..., tuple[Any, Any]]] = {
        aten.clamp.default: lambda low=None, high=None: (low, high),
        aten.clamp_min.default: lambda low: (low, None),
        aten.clamp_max.default: lambda high: (None, high),
    }
    if node.target not in bounds:
        return None
    named = {{"min": "low", "max": "high"}.get(name, name): value for name, value in node.kwargs.items()}
    low, high = bounds[node.target](*node.args[1:], **named)
    of = _side(node.args[0], read)
    for op, limit in (("maximum", low), ("minimum", high)):
        if of is None or not isinstance(limit, (int, float, type(None))):
            return None
        if limit is not None:
            of = Binary(op, of, Number(limit))
    return of


def _side(argument: Any, read: ReadNode) -> Expression | None:
    if isinstance(argument, (bool, int, float)):
        return Number(argument)
    return read(argument) if isinstance(argument, Node) else None
