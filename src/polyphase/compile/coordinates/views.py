"""Readers of operators that compute nothing: views, and tensors that are put together of others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true, sym_and

from polyphase.compile.coordinates.algebra import Index, Refused, Value, constant, extent_of, is_same, known
from polyphase.compile.coordinates.recorded import Call
from polyphase.compile.coordinates.walk import (
    Indices,
    Reader,
    Walk,
    constant_place,
    dim_of,
    dimension,
    regrouped,
)
from polyphase.compile.reasons import Why
from polyphase.sampling.steps import Size

aten, prims = torch.ops.aten, torch.ops.prims


# ---- views


def _same(walk: Walk, call: Call, at: Indices) -> Value:
    return walk.value(call.args[0], at)


def _view(walk: Walk, call: Call, at: Indices) -> Value:
    return walk.value(call.args[0], regrouped(at, call.args[0].shape, call))


def _unsqueeze(walk: Walk, call: Call, at: Indices) -> Value:
    dim = dim_of(call)
    return walk.value(call.args[0], (*at[:dim], *at[dim + 1 :]))


def _permute(walk: Walk, call: Call, at: Indices) -> Value:
    order = [dim % len(at) for dim in call.args[1]]
    return walk.value(call.args[0], tuple(at[order.index(dim)] for dim in range(len(at))))


def _transpose(walk: Walk, call: Call, at: Indices) -> Value:
    first, second = dim_of(call, "dim0"), dim_of(call, "dim1")
    swapped = list(at)
    swapped[first], swapped[second] = swapped[second], swapped[first]
    return walk.value(call.args[0], tuple(swapped))


def _reversed(walk: Walk, call: Call, at: Indices) -> Value:
    return walk.value(call.args[0], at[::-1])


def _expand(walk: Walk, call: Call, at: Indices) -> Value:
    return walk.broadcast(call.args[0], at)


def _repeat(walk: Walk, call: Call, at: Indices) -> Value:
    of = call.args[0]
    own = at[len(at) - of.dim() :]
    for n, result in zip(of.shape, call.result.shape[len(at) - of.dim() :], strict=True):
        if not is_same(n, 1) and not is_same(n, result):
            raise Refused(Why.NOT_A_FORMULA, f"{call.operator} of more than one element")
    return walk.value(of, tuple(() if is_same(n, 1) else one for n, one in zip(of.shape, own, strict=True)))


def _select(walk: Walk, call: Call, at: Indices) -> Value:
    of, place = call.args[0], call.arguments()["index"]
    dim = dim_of(call, of=of)
    if isinstance(place, int) and place < 0:
        place = place + of.shape[dim]
    return walk.value(of, (*at[:dim], dimension(of.shape[dim], place), *at[dim:]))


def _slice(walk: Walk, call: Call, at: Indices) -> Value:
    given, of = call.arguments(), call.args[0]
    dim = dim_of(call)
    return walk.value(of, (*at[:dim], _in_slice(given, of.shape[dim], at[dim], call), *at[dim + 1 :]))


def _in_slice(given: dict[str, Any], n: Size, index: Index, call: Call) -> Index:
    """The place in a whole dimension of n of a place in its slice."""
    start, step = _from_the_first(given["start"] or 0, n, call), given["step"]
    if is_same(n, 1):
        return ()
    place = constant(index)
    if place is not None:
        return dimension(n, start + step * place)
    if step != 1 or len(index) != 1:
        raise Refused(Why.NOT_A_FORMULA, f"{call.operator} of some of the pixels")
    return (replace(index[0], extent=extent_of(n), at=extent_of(index[0].at + extent_of(start))),)


def _from_the_first(start: Size, n: Size, call: Call) -> Size:
    """Counts from the first where a slice of n begins: from the last on if negative, and not before the first. Of
    symbolic sizes, torch has asked so, in the same words, and keeps to the answer."""
    if statically_known_true(sym_and(start >= 0, start <= n)):
        return start
    if statically_known_true(sym_and(start < 0, start >= -n)):
        return start + n
    if statically_known_true(start < -n):
        return 0
    raise Refused(Why.NOT_A_FORMULA, f"{call.operator} from a place that is not known")


def _flip(walk: Walk, call: Call, at: Indices) -> Value:
    of, flipped = call.args[0], list(at)
    for dim in call.args[1]:
        n = of.shape[dim]
        if not is_same(n, 1):
            flipped[dim] = dimension(n, n - 1 - constant_place(at[dim], call))
    return walk.value(of, tuple(flipped))


def _unbound(walk: Walk, call: Call, at: Indices) -> Value:
    of, dim = call.args[0], dim_of(call, of=call.args[0])
    assert call.position is not None
    return walk.value(of, (*at[:dim], dimension(of.shape[dim], call.position), *at[dim:]))


def _split(walk: Walk, call: Call, at: Indices) -> Value:
    given, of, dim = call.arguments(), call.args[0], dim_of(call)
    assert call.position is not None
    sizes = given.get("split_sizes")
    start = sum(sizes[: call.position]) if sizes is not None else given["split_size"] * call.position
    index = _in_slice({"start": start, "step": 1}, of.shape[dim], at[dim], call)
    return walk.value(of, (*at[:dim], index, *at[dim + 1 :]))


# ---- tensors made of others


def _stack(walk: Walk, call: Call, at: Indices) -> Value:
    dim = dim_of(call)
    number = constant_place(at[dim], call)
    return walk.value(call.args[0][number], (*at[:dim], *at[dim + 1 :]))


def _cat(walk: Walk, call: Call, at: Indices) -> Value:
    dim = dim_of(call)
    place = constant_place(at[dim], call)
    for one in call.args[0]:
        if one.dim() != len(at):  # an empty vector counts for nothing
            continue
        n = one.shape[dim]
        if not isinstance(n, int):
            break
        if place < n:
            return walk.value(one, (*at[:dim], dimension(n, place), *at[dim + 1 :]))
        place -= n
    raise Refused(Why.NOT_A_FORMULA, f"{call.operator} of symbolic sizes")


def _select_scatter(walk: Walk, call: Call, at: Indices) -> Value:
    given, dim = call.arguments(), dim_of(call)
    n, place = call.result.shape[dim], given["index"]
    written = place + n if isinstance(place, int) and place < 0 else place
    if is_same(n, 1) or constant_place(at[dim], call) == written:
        return walk.value(given["src"], (*at[:dim], *at[dim + 1 :]))
    return walk.value(given["self"], at)


def _slice_scatter(walk: Walk, call: Call, at: Indices) -> Value:
    given, dim = call.arguments(), dim_of(call)
    n = call.result.shape[dim]
    start, stop = given["start"] or 0, n if given["end"] is None else given["end"]
    reaches_the_end = is_same(stop, n) or (isinstance(stop, int) and stop == _NO_END)
    if is_same(start, 0) and reaches_the_end and given["step"] == 1:
        return walk.value(given["src"], at)
    place = constant_place(at[dim], call)
    if not isinstance(n, int) or not isinstance(start, int) or not isinstance(stop, int):
        raise Refused(Why.NOT_A_FORMULA, f"{call.operator} of symbolic sizes")
    places = range(*slice(start, stop, given["step"]).indices(n))
    if place not in places:
        return walk.value(given["self"], at)
    return walk.value(given["src"], (*at[:dim], dimension(len(places), places.index(place)), *at[dim + 1 :]))


#: What a slice ends with that goes on to the end.
_NO_END = 2**63 - 1


def _copy(walk: Walk, call: Call, at: Indices) -> Value:
    return walk.broadcast(call.args[1], at)


def _filled(walk: Walk, call: Call, at: Indices) -> Value:
    return walk.broadcast(call.arguments()["value"], at)


def _constant_pad(walk: Walk, call: Call, at: Indices) -> Value:
    """Reads pads of dimensions that the pixels do not go along; of others, pads by nothing."""
    given, of = call.arguments(), call.args[0]
    amounts = dict(enumerate(zip(given["pad"][::2], given["pad"][1::2], strict=True)))
    inner = list(at)
    for back, (before, after) in amounts.items():
        dim = len(at) - 1 - back
        if is_same(before, 0) and is_same(after, 0):
            continue
        place, n = constant_place(at[dim], call), of.shape[dim]
        if not isinstance(n, int) or not isinstance(before, int):
            raise Refused(Why.NOT_A_FORMULA, f"{call.operator} of symbolic sizes")
        if not before <= place < before + n:
            return known(given["value"])
        inner[dim] = dimension(n, place - before)
    return walk.value(of, tuple(inner))


READERS: dict[Any, Reader] = {
    **dict.fromkeys((aten.clone.default, aten.alias.default, aten.lift_fresh_copy.default), _same),
    **dict.fromkeys((aten._to_copy.default, prims.convert_element_type.default), _same),
    **dict.fromkeys(
        (aten.view.default, aten._unsafe_view.default, aten.reshape.default, aten._reshape_alias.default), _view
    ),
    **dict.fromkeys((aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims), _view),
    aten.unsqueeze.default: _unsqueeze,
    aten.permute.default: _permute,
    aten.transpose.int: _transpose,
    aten.t.default: _reversed,
    aten.expand.default: _expand,
    aten.repeat.default: _repeat,
    aten.select.int: _select,
    aten.slice.Tensor: _slice,
    aten.flip.default: _flip,
    aten.unbind.int: _unbound,
    **dict.fromkeys((aten.split.Tensor, aten.split_with_sizes.default), _split),
    aten.stack.default: _stack,
    aten.cat.default: _cat,
    aten.select_scatter.default: _select_scatter,
    aten.slice_scatter.default: _slice_scatter,
    aten.copy.default: _copy,
    **dict.fromkeys((aten.fill.Scalar, aten.fill.Tensor), _filled),
    aten.constant_pad_nd.default: _constant_pad,
}
