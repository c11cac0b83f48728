"""Puts `polyphase::pad` into Dynamo's graph in place of circular pads. Later it would be too late: torch has no
operator for them, and AOTAutograd makes slices and copies of them."""

from __future__ import annotations

import inspect

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.fx import GraphModule, Node

from polyphase.calls.devices import has_kernels
from polyphase.compile.coordinates.cutout import example
from polyphase.compile.nodes import put
from polyphase.torch_private import builtin_pad

_SIGNATURE = inspect.signature(F.pad)


def replace_circular_pads(module: GraphModule) -> None:
    """In the graphs of higher-order operators too."""
    for one in module.modules():
        if isinstance(one, GraphModule) and builtin_pad is not None:
            for node in one.graph.find_nodes(op="call_function", target=builtin_pad):
                _replace(node)
            one.recompile()


def _replace(node: Node) -> None:
    given = _SIGNATURE.bind(*node.args, **node.kwargs).arguments
    if given.get("mode") != "circular" or not _is_taken(example(given["input"])):
        return
    with node.graph.inserting_before(node):
        put(node, node.graph.call_function(torch.ops.polyphase.pad, (given["input"], given["pad"], "circular", None)))


def _is_taken(image: object) -> bool:
    """Eager's results are contiguous, ours lie as the image does."""
    return (
        isinstance(image, Tensor)
        and image.is_contiguous()
        and not image.dtype.is_complex
        and has_kernels(image.device.type)
    )
