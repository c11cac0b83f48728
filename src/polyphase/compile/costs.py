"""Whether a kernel of ours is better than leaving it all to Inductor.

Where pixels are mixed it always is: Inductor has no such loop. Where they only move, Inductor can move them within a
loop it has anyway. That loop is fast as long as neighbours in memory stay neighbours; otherwise it loads one value at a
time. Measured on one thread (ns an element, float32): such a loop 1.5 to 4; ours, with what is written and read once
more, 0.5 to 1, and some 10 us for a call.
"""

from __future__ import annotations

import torch
from torch.fx import Node

from polyphase.compile.arithmetic import is_pointwise
from polyphase.compile.drafts import Draft, value
from polyphase.compile.reasons import Why
from polyphase.sampling.pointwise import VALUE
from polyphase.sampling.steps import Pad, Size, Slice, Step

#: Elements from which on a loop that loads one by one costs more than a call and a pass.
WORTH_A_CALL = 8192
#: Elements that lie together, from which on Inductor's loop is vectorised.
VECTOR = 16

#: What Inductor cannot be given back: it knows these only taken apart.
_OURS_ALONE = ("reflection_pad", "replication_pad")


def better_left_to_inductor(draft: Draft) -> Why | None:
    if draft.weighted or any(str(node.target).split(".")[1].startswith(_OURS_ALONE) for node in draft.nodes):
        return None
    has_neighbours = _is_computed(draft.image) or any(map(_is_loop, draft.last.users))
    has_arithmetic = draft.prologue != VALUE or draft.epilogue != VALUE
    if (has_neighbours or has_arithmetic) and _neighbours_stay(draft):
        return Why.ALREADY_POINTWISE
    if has_neighbours and _elements(draft.last) < WORTH_A_CALL:
        return Why.FEW_ELEMENTS
    return None


def _is_computed(node: Node) -> bool:
    return is_pointwise(node) and len(node.users) == 1


def _is_loop(node: Node) -> bool:
    return is_pointwise(node) or torch.Tag.reduction in getattr(node.target, "tags", ())


def _neighbours_stay(draft: Draft) -> bool:
    """Whether what lies together in the output lies together in the image."""
    tensor = value(draft.last)
    for back, (n, stride) in enumerate(zip(reversed(tensor.shape), reversed(tensor.stride()), strict=True), start=1):
        if isinstance(stride, int) and stride == 1 and _hint(n, VECTOR) > 1:
            steps = draft.maps[-back].steps if back <= len(draft.maps) else ()
            return _hint(n, VECTOR) >= VECTOR and all(map(_keeps_neighbours, steps))
    return False


def _keeps_neighbours(step: Step) -> bool:
    match step:
        case Slice(step=1) | Pad(mode="constant"):
            return True
    return False


def _elements(node: Node) -> int:
    return _hint(value(node).numel(), WORTH_A_CALL)


def _hint(size: Size, otherwise: int) -> int:
    """What a symbolic size was while tracing; nothing is decided by it but who does the work."""
    if isinstance(size, torch.SymInt):
        return int(size.node.hint) if size.node.has_hint() else otherwise
    return size
