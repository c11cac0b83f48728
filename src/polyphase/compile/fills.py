"""Warps with a fill, as libraries spell them: ones beside the image as one more channel, all of it warped, and what
came of the ones used to mix the image with a colour.

    cat([image, ones]) -> warp -> s, m = slices -> (s - fill) * m + fill

Such a chain becomes one warp in the functional graph, before programs are made of it: by a grid, by matrices or by a
formula. What is written in place there are slices that are scattered back and sliced again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor
from torch.fx import Graph, Node
from torch.fx.experimental.symbolic_shapes import statically_known_true

from polyphase.compile.arithmetic import BINARY
from polyphase.compile.nodes import same, value
from polyphase.compile.reasons import Why
from polyphase.compile.recognise import call_of, grid_sampler
from polyphase.ops.warp import formula_warp, warp
from polyphase.sampling.steps import Size
from polyphase.sampling.text import from_text, to_text
from polyphase.sampling.warps import Warp

aten, prims = torch.ops.aten, torch.ops.prims

_BINARY = {operator: name for operator, name in BINARY.items() if name in ("add", "sub", "mul")}
_VIEWS = (aten.view.default, aten.reshape.default, aten.unsqueeze.default)
#: What changes no number of a constant: at most how it lies.
_SAME_NUMBERS = (
    aten.lift_fresh_copy.default,
    aten.clone.default,
    aten.alias.default,
    aten.expand.default,
    *_VIEWS,
)
#: Of a colour. What is longer is no colour.
MOST_NUMBERS = 4096

#: An operator, and what it is given.
Call: TypeAlias = "tuple[Any, tuple[Any, ...]]"

#: What is sampled, the share of it that lies inside, and where that is less than a half; then nested tuples of them, of
#: numbers and of operations.
SAMPLED, SHARE, OUTSIDE = "s", "m", "outside"


# ---- warps


@dataclass(frozen=True)
class _Warped:
    """A call of an operator. filled(image, sampler): a call of one of ours, of another image and sampler."""

    image: Node
    sampler: Warp
    filled: Callable[[Node, Warp], Call]


def _by_grid(node: Node) -> _Warped:
    call = call_of(node)
    return _of_coordinates(call.given("input"), call.given("grid"), grid_sampler(call))


def _by_coordinates(node: Node) -> _Warped:
    image, coordinates, *given = node.args
    return _of_coordinates(image, coordinates, Warp.of_options(*given))  # type: ignore[arg-type]


def _of_coordinates(image: Any, coordinates: Any, sampler: Warp) -> _Warped:
    return _Warped(image, sampler, lambda image, by: (warp, (image, coordinates, *by.options())))


def _by_formula(node: Node) -> _Warped:
    image, entries, fields, text, sizes = node.args
    sampler = from_text(str(text))
    assert isinstance(sampler, Warp), "what formula_warp takes"
    return _Warped(image, sampler, lambda image, by: (formula_warp, (image, entries, fields, to_text(by), sizes)))  # type: ignore[arg-type]


_WARPS: dict[Any, Callable[[Node], _Warped]] = {
    aten.grid_sampler_2d.default: _by_grid,
    aten.grid_sampler_3d.default: _by_grid,
    warp: _by_coordinates,
    formula_warp: _by_formula,
}


def mixed_with_ones(node: Node) -> Node | None:
    """The image of a warp that ones were put beside: (batch, channels, spatial...)."""
    if node.target not in _WARPS:
        return None
    warped = _WARPS[node.target](node)
    beside = warped.image
    if beside.target is not aten.cat.default or warped.sampler.padding != "zeros" or warped.sampler.fill:
        return None
    together = call_of(beside)
    if together["dim"] % value(beside).dim() != 1 or len(together.given("tensors")) != 2:
        return None
    image, ones = together.given("tensors")
    has_one_channel = statically_known_true(value(ones).shape[1] == 1)
    has_dtype = value(image).dtype == value(beside).dtype
    return image if has_one_channel and has_dtype and _numbers(ones) == Numbers((1.0,)) else None


class Replaced(NamedTuple):
    """call: what stands for the node `last`. strides: of what is in its place in the user's code, where that is a part
    of something larger."""

    call: Call
    last: Node
    strides: Sequence[Size] | None


def replaced(graph: Graph, node: Node, image: Node) -> Replaced | Why:
    """A warp with ones beside its image."""
    warped = _WARPS[node.target](node)
    if len(warped.image.users) > 1:
        return Why.NOT_ALONE
    strides = _without_scatters(graph, node)
    found = _find(node, value(image).shape[1])
    if isinstance(found, Why):
        return found
    last, fill, rule = found
    call = warped.filled(image, replace(warped.sampler, fill=fill, fill_rule=rule))
    return Replaced(call, last, strides.get(last))


# ---- what is written in place


def _without_scatters(graph: Graph, node: Node) -> dict[Node, Sequence[Size]]:
    """Finds slices along the channels of what was scattered: what was scattered, or a slice of what it went to. Gives
    the strides of those slices, by what is in their place.
    """
    strides: dict[Node, Sequence[Size]] = {}
    for user in list(node.users):
        if user.target is not aten.slice_scatter.default or user.args[0] is not node:
            continue
        source: Any = user.args[1]
        place = list(user.args[2:])
        for one in list(user.users):
            if one.target is not aten.slice.Tensor:
                continue
            if list(one.args[1:]) == place:
                strides[source] = value(one).stride()
                one.replace_all_uses_with(source)
                graph.erase_node(one)
            elif _are_apart(one.args[1:], place, node):
                one.args = (node, *one.args[1:])
        strides |= _without_scatters(graph, user)
        if not user.users:
            graph.erase_node(user)
    return strides


def _are_apart(one: Sequence[Any], other: Sequence[Any], of: Node) -> bool:
    """Whether one of two slices is of the channels before the last, and one of the last."""
    channels = value(of).shape[1] - 1
    return {_part(one, channels), _part(other, channels)} == {SAMPLED, SHARE}


def _part(place: Sequence[Any], channels: Any) -> str | None:
    """Says which part a slice is: all channels but the last, or the last."""
    whole: list[Any] = [0, 0, 2**63 - 1, 1]  # what is not said
    given: list[Any] = [*place, *whole[len(place) :]]
    dim, start, end, step = given
    if dim != 1 or step != 1 or not isinstance(start, int) or not isinstance(end, int):
        return None
    from_first = start == 0
    from_last = start == -1 or statically_known_true(start == channels)
    to_last = end == -1 or statically_known_true(end == channels)
    to_end = end > 0 and statically_known_true(end > channels)
    return SAMPLED if from_first and to_last else SHARE if from_last and to_end else None


# ---- what is made of both


def _find(node: Node, channels: Any) -> tuple[Node, tuple[float, ...], str] | Why:
    """The last node where a fill is complete, its numbers and its rule."""
    meanings: dict[Node, Any] = {}
    mode = _WARPS[node.target](node).sampler.mode
    for user in node.users:
        part = _part(user.args[1:], channels) if user.target is aten.slice.Tensor else None
        if part is None:
            return Why.NOT_A_FILL
        meanings[user] = part
    why, complete = Why.NOT_A_FILL, []
    one = node.next
    while one.op != "output":
        if one not in meanings and any(of in meanings for of in one.all_input_nodes):
            meaning = meanings[one] = _meaning(one, meanings)
            why = meaning if meaning is Why.FILL_IS_COMPUTED else why
            fill = _rule_of(meaning, mode)
            if fill is not None and _is_picture(one, node, channels):
                complete.append((one, *fill))
        one = one.next
    alone = [found for found in complete if _is_all(found[0], node, meanings)]
    return alone[-1] if alone else Why.NOT_ALONE if complete else why


def _meaning(node: Node, meanings: dict[Node, Any]) -> Any:
    """What it means, or why it means nothing that a warp has."""

    def of(argument: Any) -> Any:
        if isinstance(argument, Node) and argument in meanings:
            return meanings[argument]
        if isinstance(argument, (int, float)):
            return (float(argument),)
        found = _numbers(argument)
        is_colour = found is None or len(found.values) == 1 or found.dim == 1 - value(node).dim()
        return Why.NOT_A_FILL if not is_colour else found and found.values

    target, args = node.target, node.args
    if target in (aten.expand.default, aten.clone.default, aten.alias.default):
        return meanings[args[0]]  # type: ignore[index]
    if target is aten.lt.Scalar and of(args[0]) == SHARE and args[1] == 0.5:
        return OUTSIDE
    if target is aten.where.self:
        op, sides = "where", [of(one) for one in args]
    elif target in _BINARY and len(args) == 2 and not node.kwargs:
        op, sides = _BINARY[target], [of(one) for one in args]
    else:
        return Why.NOT_A_FILL
    if any(isinstance(one, Why) for one in sides):
        return Why.NOT_A_FILL
    if None in sides:
        return Why.FILL_IS_COMPUTED
    return (op, *(sorted(sides, key=_rank) if op in ("add", "mul") else sides))


def _rank(meaning: Any) -> int:
    """Sides of a sum or a product in one order: what is sampled, its share, numbers."""
    return 2 if _are_numbers(meaning) else 1 if meaning == SHARE else 0


def _rule_of(meaning: Any, mode: str) -> tuple[tuple[float, ...], str] | None:
    match meaning:
        case ("where", "outside", fill, "s") if mode == "nearest":  # the share is 0 or 1
            rule = "blend"
        case ("add", ("mul", ("sub", "s", fill), "m"), again) if fill == again:
            rule = "blend"
        case ("add", ("mul", "s", "m"), ("mul", ("sub", (1.0,), "m"), fill)):
            rule = "blend"
        case ("mul", "s", "m"):  # less 0, and 0 more
            rule, fill = "blend", (0.0,)
        case ("add", "s", ("mul", ("sub", (1.0,), "m"), fill)) | ("add", ("mul", ("sub", (1.0,), "m"), fill), "s"):
            rule = "constant"
        case _:
            return None
    is_colour = _are_numbers(fill) and all(map(math.isfinite, fill))  # infinity times a share of 0 is NaN
    return (fill, rule) if is_colour else None


def _are_numbers(meaning: Any) -> bool:
    return isinstance(meaning, tuple) and all(isinstance(one, float) for one in meaning)


def _is_picture(last: Node, sampler: Node, channels: Any) -> bool:
    """Whether it is as large as what is sampled, and of its dtype: a colour may broadcast, and promote."""
    batch, _, *size = value(sampler).shape
    return same(value(last).shape, (batch, channels, *size)) and value(last).dtype == value(sampler).dtype


def _is_all(last: Node, sampler: Node, meanings: dict[Node, Any]) -> bool:
    """Whether nobody else reads what the fill is made of."""
    made_of, new = set[Node](), [last]
    while new:
        one = new.pop()
        made_of.add(one)
        new += [of for of in one.all_input_nodes if of in meanings and of not in made_of]
    read_by = {user for one in (made_of - {last}) | {sampler} for user in one.users}
    return read_by <= made_of


# ---- constants


class Numbers(NamedTuple):
    """dim: along which they lie one after the other, from the last on."""

    values: tuple[float, ...]
    dim: int = -1


def _numbers(node: Any) -> Numbers | None:
    """Reads a constant that is the same for all pixels: one number, or several along a dimension."""
    if not isinstance(node, Node) or not isinstance(node.meta.get("val"), Tensor):
        return None
    if node.target is aten.full.default:
        number = node.args[1]
        return Numbers((float(number),)) if isinstance(number, (int, float)) else None
    if node.target in _SAME_NUMBERS:
        found = _numbers(node.args[0])
        return found if found is None or len(found.values) == 1 else _regrouped(found, node)
    if node.op == "get_attr":
        constant = getattr(node.graph.owning_module, str(node.target), None)
        if type(constant) is Tensor and constant.dim() == 1 and 0 < constant.numel() <= MOST_NUMBERS:
            return Numbers(tuple(map(float, constant.tolist())))
    return None


def _regrouped(numbers: Numbers, node: Node) -> Numbers | None:
    if node.target not in _VIEWS:
        return numbers
    shape = value(node).shape
    longer = [dim for dim, n in enumerate(shape) if not statically_known_true(n == 1)]
    is_row = len(longer) == 1 and statically_known_true(shape[longer[0]] == len(numbers.values))
    return numbers._replace(dim=longer[0] - len(shape)) if is_row else None
