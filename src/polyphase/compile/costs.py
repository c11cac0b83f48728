"""Whether a kernel of ours is better than leaving it all to Inductor.

Where pixels are mixed it always is: Inductor has no such loop. Where they only move, Inductor can move them within a
loop it has anyway. That loop is fast where a device gathers, as GPUs do, or as long as neighbours in memory stay
neighbours; otherwise it loads one value at a time, which costs more than a call of ours and one more pass over the
image. Of a handful of values, a matrix with a row put on, nothing is gained by anybody.
"""

from __future__ import annotations

import torch
from torch.fx import Node

from polyphase.calls.devices import wing_of
from polyphase.compile.arithmetic import is_pointwise, makes_views
from polyphase.compile.drafts import Draft
from polyphase.compile.nodes import value
from polyphase.compile.reasons import Why
from polyphase.compile.recognise import can_be_given_back
from polyphase.sampling.pointwise import VALUE
from polyphase.sampling.steps import Pad, Size, Slice, Step

#: Elements of an output that only moves, with nothing beside it: of fewer there is no kernel of ours. One by one, so
#: many take a quarter of a microsecond.
FEWEST_ALONE = 64


def better_left_to_inductor(draft: Draft) -> Why | None:
    if draft.weighted or not all(map(can_be_given_back, draft.nodes)):
        return None
    costs = wing_of(value(draft.image).device).costs
    has_neighbours = _is_computed(draft.image) or _is_read_by_loops(draft.last)
    has_arithmetic = draft.prologue != VALUE or draft.epilogue != VALUE
    if (has_neighbours or has_arithmetic) and (costs.gathers or _neighbours_stay(draft, costs.vector)):
        return Why.ALREADY_POINTWISE
    if costs.gathers and value(draft.image).dtype.itemsize >= costs.gathers:
        return Why.GATHERED
    least = costs.worth_a_call if has_neighbours else FEWEST_ALONE
    return Why.FEW_ELEMENTS if _hint(value(draft.last).numel(), least) < least else None


def _is_computed(node: Node) -> bool:
    return is_pointwise(node) and len(node.users) == 1


def _is_loop(node: Node) -> bool:
    return is_pointwise(node) or torch.Tag.reduction in getattr(node.target, "tags", ())


def _is_read_by_loops(node: Node) -> bool:
    return any(_is_loop(one) or (makes_views(one) and _is_read_by_loops(one)) for one in node.users)


def _neighbours_stay(draft: Draft, vector: int) -> bool:
    """Whether what lies together in the output lies together in the image."""
    tensor = value(draft.last)
    for back, (n, stride) in enumerate(zip(reversed(tensor.shape), reversed(tensor.stride()), strict=True), start=1):
        if isinstance(stride, int) and stride == 1 and _hint(n, vector) > 1:
            steps = draft.maps[-back].steps if back <= len(draft.maps) else ()
            return _hint(n, vector) >= vector and all(map(_keeps_neighbours, steps))
    return False


def _keeps_neighbours(step: Step) -> bool:
    match step:
        case Slice(step=1) | Pad(mode="constant"):
            return True
    return False


def _hint(size: Size, otherwise: int) -> int:
    """What a symbolic size was while tracing; nothing is decided by it but who does the work."""
    if isinstance(size, torch.SymInt):
        return int(size.node.hint) if size.node.has_hint() else otherwise
    return size
