"""In Dynamo's graph: affine_grid + grid_sample become `polyphase::affine_sample`, which has no grid in memory, neither
forward nor backward. Later it would be too late: autograd has then saved the grid."""

from __future__ import annotations

import inspect
import operator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.fx import GraphModule, Node

from polyphase.kernels.devices import has_kernels


def without_grids(module: GraphModule) -> None:
    """In the graphs of higher-order operators too."""
    for one in module.modules():
        if isinstance(one, GraphModule):
            for node in list(one.graph.nodes):
                if node.target is F.grid_sample:
                    _replace(one, node)
            one.recompile()


def _replace(module: GraphModule, sampler: Node) -> None:
    sampling = _arguments(F.grid_sample, sampler)
    grid = sampling["grid"]
    if not isinstance(grid, Node) or grid.target is not F.affine_grid:
        return
    affine = _arguments(F.affine_grid, grid)
    aligned = [bool(given["align_corners"]) for given in (sampling, affine)]
    tensors = [sampling["input"], affine["theta"]]
    if aligned[0] != aligned[1] or not _have_kernels(*tensors) or _is_written_between(grid, sampler):
        return
    given = (*tensors, affine["size"], sampling["mode"], sampling["padding_mode"], aligned[0])
    with module.graph.inserting_before(sampler):
        result = module.graph.call_function(torch.ops.polyphase.affine_sample.default, given)
        result.meta = dict(sampler.meta)
    sampler.replace_all_uses_with(result)
    module.graph.erase_node(sampler)
    if not grid.users:
        module.graph.erase_node(grid)


def _arguments(function: Any, node: Node) -> dict[str, Any]:
    call = inspect.signature(function).bind(*node.args, **node.kwargs)
    call.apply_defaults()
    return call.arguments


def _have_kernels(*nodes: Any) -> bool:
    """Whether all are tensors of one device that has some."""
    found = [node.meta.get("example_value") if isinstance(node, Node) else None for node in nodes]
    devices = {one.device if isinstance(one, Tensor) else None for one in found}
    device = devices.pop()
    return not devices and device is not None and has_kernels(device.type)


def _is_written_between(first: Node, last: Node) -> bool:
    """Graphs of Dynamo are not functional: the matrix may be another by the time the grid is used."""
    node = first.next
    while node is not last:
        if _may_write(node):
            return True
        node = node.next
    return False


def _may_write(node: Node) -> bool:
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    says_so = node.kwargs.get("out") is not None or bool(node.kwargs.get("inplace"))
    return node.op.startswith("call") and (says_so or name.endswith("_") or node.target in _WRITING_OPERATORS)


_WRITING_OPERATORS = {
    operator.setitem,
    *(getattr(operator, f"i{name}") for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul")),
    *(getattr(operator, f"i{name}") for name in ("and", "or", "xor", "lshift", "rshift")),
}
