"""The pass over functional graphs, forward and backward alike: what samples becomes programs, neighbours included."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, Node
from torch.fx.experimental.symbolic_shapes import statically_known_true

from polyphase.arguments.warping import COORDINATES
from polyphase.calls.devices import has_kernels, wing_of
from polyphase.calls.slower import question
from polyphase.compile import drafts, fills
from polyphase.compile.arithmetic import is_pointwise
from polyphase.compile.costs import better_left_to_inductor
from polyphase.compile.drafts import Draft, Refusal
from polyphase.compile.nodes import call, put, same, value
from polyphase.compile.reasons import NotFused, Why
from polyphase.compile.recognise import READERS, call_of, grid_sampler, sampling_of, slice_of
from polyphase.ops.program import program as program_op
from polyphase.ops.warp import warp_backward
from polyphase.sampling.steps import Size, size_slot
from polyphase.sampling.templates import with_slots_in_order
from polyphase.sampling.text import to_text
from polyphase.torch_private import OpOverload, is_erased, schema_of

aten, prims = torch.ops.aten, torch.ops.prims

_TORCH = str(Path(torch.__file__).parent)

#: Where a node's `Fused` is in its meta.
MADE_FROM = "polyphase"

#: Views that may regroup dimensions.
_VIEWS = (
    aten.view.default,
    aten.reshape.default,
    aten._unsafe_view.default,
    aten.unsqueeze.default,
    aten.squeeze.dim,
    aten.squeeze.dims,
    aten.squeeze.default,
    aten.select.int,  # of a dimension of one element
)


@dataclass(frozen=True)
class Fused:
    """One kernel in a graph: its program, what it stands for, and what stayed outside, with the reason."""

    program: str
    nodes: tuple[str, ...]
    sources: tuple[str, ...]  # the user's lines
    not_fused: tuple[NotFused, ...]


@dataclass(frozen=True)
class Report:
    """What became of a graph: our kernels, and what samples but was left to Inductor."""

    kernels: tuple[Fused, ...]
    left: tuple[NotFused, ...]


def fuse(graph: Graph, fusion: bool = True) -> Report:
    """Replaces what samples by calls of `polyphase::program`. Without fusion each operator stays one of its own."""
    done, left = [], []
    not_filled = _fill_warps(graph) if fusion else {}
    for node in list(graph.nodes):
        if is_erased(node):
            continue
        if node.target in _WARP_BACKWARDS:
            if _is_slower(node):
                left.append(NotFused(str(node), Why.SLOWER))
            else:
                _replace_warp_backward(node)
            continue
        sizes: list[Size] = []
        sampling = sampling_of(node, _slots(sizes))
        if sampling is None:
            continue
        if _is_slower(node):
            left.append(NotFused(str(node), Why.SLOWER))
            continue
        ours = has_kernels(value(node).device.type)
        draft = drafts.start(node, sampling) if ours else Why.ANOTHER_DEVICE
        if isinstance(draft, Draft) and fusion:
            draft = _grown(draft, sizes)
            if node in not_filled:
                draft = replace(draft, not_fused=(*draft.not_fused, (node, not_filled[node])))
            draft = better_left_to_inductor(draft) or draft
        if isinstance(draft, Draft):
            done.append(_emit(graph, draft, sizes))
        else:
            left.append(NotFused(str(node), draft))
    for node in graph.nodes:
        if node.target is aten.flip.default:  # what is left of them, as Inductor knows them
            dims = [dim % max(value(node.args[0]).dim(), 1) for dim in node.args[1]]
            node.target, node.args = prims.rev.default, (node.args[0], dims)
    return Report(tuple(done), tuple(left))


def _is_slower(node: Node) -> bool:
    """Whether torch's own kernel takes less time. Of sizes that are symbolic nobody knows."""
    tensors = [value(one) for one in node.all_input_nodes if isinstance(one.meta.get("val"), Tensor)]
    if not isinstance(node.target, OpOverload) or not has_kernels(tensors[0].device.type):
        return False
    if any(not isinstance(n, int) for one in tensors for n in (*one.shape, *one.stride())):
        return False
    name = schema_of(node.target).name.removeprefix("aten::")
    asked = question(wing_of(tensors[0].device).slower, name)
    return asked is not None and asked(*torch.fx.node.map_arg(node.args, value))


def _slots(sizes: list[Size]) -> Callable[[Size], Size]:
    def new(size: Size) -> Size:
        sizes.append(size)
        return size_slot(len(sizes) - 1)

    return new


# ---- growing


def _grown(draft: Draft, sizes: list[Size]) -> Draft:
    """Grows a draft as far as it goes, first up and then down; but no farther than its output can be written."""
    higher = _up(draft)
    draft = draft if _layout(higher) is None else higher
    best, refused = draft, list(draft.not_fused)
    while True:
        grown = _down(draft, sizes)
        if not isinstance(grown, Draft):
            break
        draft = grown
        if _layout(draft) is not None:
            best = draft
    user = _only_user(draft)
    if isinstance(user, Node) and not isinstance(grown, Draft):
        refused.append((user, grown))
    elif isinstance(user, Why) and user is not Why.IS_RETURNED:
        refused.append((draft.last, user))
    return replace(best, not_fused=tuple(refused))


def _up(draft: Draft) -> Draft:
    while True:
        node, grown = draft.image, None
        if node.op != "call_function" or not isinstance(node.meta.get("val"), Tensor) or node.target in READERS:
            return draft
        if len(node.users) > 1:
            return draft
        if node.target in _VIEWS:
            source = node.args[0]
            assert isinstance(source, Node)
            grown = drafts.preceded_by_view(draft, node, source)
        elif is_pointwise(node):
            grown = drafts.preceded_by_arithmetic(draft, node)
        if grown is None:
            return draft
        if not isinstance(grown, Draft):
            return replace(draft, not_fused=(*draft.not_fused, (node, grown)))
        draft = grown


def _down(draft: Draft, sizes: list[Size]) -> Draft | Refusal:
    user = _only_user(draft)
    if not isinstance(user, Node):
        return user
    if draft.permutation:
        return Why.NOT_SAMPLING_NOR_POINTWISE
    if user.target is aten.slice.Tensor:
        return drafts.followed_by_sampling(draft, user, slice_of(user, _slots(sizes)))
    sampling = sampling_of(user, _slots(sizes))
    if sampling is not None:
        if sampling.image is not draft.last:
            return Why.NOT_SAMPLING_NOR_POINTWISE
        return drafts.followed_by_sampling(draft, user, sampling)
    if user.target in _VIEWS:
        return drafts.followed_by_view(draft, user)
    if user.target is aten.permute.default:
        return _followed_by_permutation(draft, user)
    return drafts.followed_by_arithmetic(draft, user)


def _only_user(draft: Draft) -> Node | Why:
    users = list(draft.last.users)
    if len(users) != 1:
        return Why.NOT_ALONE
    if users[0].op == "output":
        return Why.IS_RETURNED
    if _is_mutated_between(draft.nodes[0], users[0]):
        return Why.MUTATION_BETWEEN
    return users[0]


def _is_mutated_between(first: Node, last: Node) -> bool:
    node = first
    while node is not last:
        schema = getattr(node.target, "_schema", None)
        if schema is not None and schema.is_mutable:
            return True
        node = node.next
    return False


def _followed_by_permutation(draft: Draft, node: Node) -> Draft | Refusal:
    """Dimensions in another order, and then in memory so: the program writes them there."""
    users = list(node.users)
    is_copied = len(users) == 1 and users[0].target is aten.clone.default
    if not is_copied:
        return Why.NOT_SAMPLING_NOR_POINTWISE
    if draft.same_dimensions < value(draft.image).dim():
        return Why.REGROUPED
    dims: Any = node.args[1]
    permutation = tuple(dim % len(dims) for dim in dims)
    return replace(draft, nodes=(*draft.nodes, node, users[0]), permutation=permutation)


# ---- where the output lies


def _layout(draft: Draft) -> tuple[list[Size], list[Size]] | None:
    """Sizes and strides of the program's output: the graph's, but that a slice becomes an image of its own, and that
    dimensions before the channels are grouped as the image's are. None where that cannot be."""
    tensor = value(draft.last)
    if draft.last.target is aten.slice.Tensor:
        if _is_returned_as_view(draft.last):
            return None
        tensor = torch.empty_like(tensor)
    if draft.permutation:
        back = [draft.permutation.index(dim) for dim in range(tensor.dim())]
        tensor = tensor.permute(back)
    kept = min(draft.axes + 1, tensor.dim())
    leading = list(value(draft.image).shape[: value(draft.image).dim() - kept])
    size, stride = list(tensor.shape), list(tensor.stride())
    if len(leading) != len(size) - kept or not same(leading, size[: len(leading)]):
        block = _elements(size[-kept:])
        if not _are_dense(size[:-kept], stride[:-kept], block):
            return None
        size, stride = leading + size[-kept:], _dense(leading, block) + stride[-kept:]
    return size, stride


def _is_returned_as_view(node: Node) -> bool:
    """Whether the graph returns it, or a view of it, so that its strides are seen."""
    views = (*_VIEWS, aten.slice.Tensor, aten.permute.default)
    return any(user.op == "output" or (user.target in views and _is_returned_as_view(user)) for user in node.users)


def _elements(size: Sequence[Size]) -> Size:
    elements: Size = 1
    for n in size:
        elements = elements * n
    return elements


def _dense(size: Sequence[Size], block: Size) -> list[Size]:
    """Strides of dimensions that lie one around the other, around `block` elements."""
    strides: list[Size] = []
    for n in reversed(size):
        strides.insert(0, block)
        block = block * n
    return strides


def _are_dense(size: Sequence[Size], stride: Sequence[Size], block: Size) -> bool:
    return all(
        statically_known_true(n == 1) or statically_known_true(have == wanted)
        for n, have, wanted in zip(size, stride, _dense(size, block), strict=True)
    )


# ---- into the graph


def _emit(graph: Graph, draft: Draft, sizes: list[Size]) -> Fused:
    layout = _layout(draft)
    assert layout is not None, "a draft's output lies somewhere"
    program, numbers = with_slots_in_order(draft.program())
    text, used = to_text(program), [sizes[number] for number in numbers]
    coordinates = [draft.coordinates] if draft.coordinates else []
    inputs = [draft.image, *coordinates, *draft.vectors, *draft.tensors, *draft.fields]
    last = draft.last
    called = result = call(last, program_op, inputs, text, used, *layout)
    if draft.permutation:
        result = call(last, aten.permute.default, result, list(draft.permutation))
    elif not same(value(result).shape, value(last).shape):
        result = call(last, aten.view.default, result, list(value(last).shape))
    fused = Fused(
        text,
        tuple(str(node) for node in draft.nodes),
        tuple(dict.fromkeys(_sources(draft.nodes))),
        tuple(NotFused(str(node), why) for node, why in draft.not_fused),
    )
    called.meta[MADE_FROM] = fused
    last.replace_all_uses_with(result)
    for node in reversed(draft.nodes):
        if not node.users:
            graph.erase_node(node)
    return fused


def _sources(nodes: Sequence[Node]) -> Iterator[str]:
    """The user's line for each node: `file:line: code`; the last one outside torch."""
    for node in nodes:
        trace = (node.meta.get("stack_trace") or "").strip()
        frames = re.findall(r'File "(.*)", line (\d+).*\n\s*(.*)', trace)
        outside = [frame for frame in frames if not frame[0].startswith(_TORCH)]
        for file, number, code in (outside or frames)[-1:]:
            yield f"{file}:{number}: {code}"


# ---- warps with a fill


def _fill_warps(graph: Graph) -> dict[Node, Why]:
    """Makes one warp of each that libraries spell by ones beside the image; and why not, of others with such ones."""
    not_filled = {}
    for node in list(graph.nodes):
        image = None if is_erased(node) else fills.mixed_with_ones(node)
        if image is None or not has_kernels(value(image).device.type):
            continue
        found = fills.replaced(graph, node, image)
        if isinstance(found, Why):
            not_filled[node] = found
            continue
        target, args = found.call
        filled = call(found.last, target, *args)
        if found.strides is not None and _is_returned_as_view(found.last):
            filled.meta["val"] = value(filled).new_empty_strided(value(filled).shape, found.strides)
        put(found.last, filled)
    return not_filled


# ---- gradients of warps have an operator of their own


_WARP_BACKWARDS = (aten.grid_sampler_2d_backward.default, aten.grid_sampler_3d_backward.default)


def _replace_warp_backward(node: Node) -> None:
    given = call_of(node)
    image = given.tensor("input")
    if not has_kernels(image.device.type) or image.dtype not in COORDINATES:
        return
    tensors = [given.given(name) for name in ("grad_output", "input", "grid")]
    put(node, call(node, warp_backward, *tensors, *grid_sampler(given).options(), given["output_mask"]))
