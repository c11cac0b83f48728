"""ATen's operators as samplers: which call is a resize, a flip, a pad, a warp, and of what.

Calls are nodes of a graph or calls on tensors: the same readers serve both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.fx import Node

from polyphase.arguments.resampling import WEIGHTED_DTYPES
from polyphase.arguments.warping import COORDINATES
from polyphase.calls.plain import DTYPES
from polyphase.decompositions.upsample import Family, arguments_of, overloads, resize_steps
from polyphase.records.facts import HALF
from polyphase.sampling.steps import Area, Flip, Nearest, Pad, Resize, Size, SizeSlot, Slice, Step
from polyphase.sampling.templates import warp_with_sizes, with_sizes
from polyphase.sampling.text import from_text, maps_from_text
from polyphase.sampling.warps import MODES, PADDINGS, Warp
from polyphase.sampling.windows import DeviceRules
from polyphase.torch_private import OpOverload, suggest_memory_format
from polyphase.torch_versions import samples

aten = torch.ops.aten

FLOATS = tuple(COORDINATES)
ANTIALIASED_DTYPES = (torch.uint8, torch.float32, torch.float64)

#: Makes a slot of a program for a size, which may be symbolic.
NewSlot: TypeAlias = Callable[[Size], Size]


@dataclass(frozen=True)
class MapsOf:
    """Steps of an image's last axes, one each, None for an axis that stays; `border`: a constant pad's value."""

    image: Any  # a node or a tensor, as the call's arguments are
    steps: tuple[Step | None, ...]
    adjoint_of: tuple[Size, ...] = ()
    border: float = 0.0


@dataclass(frozen=True)
class WarpOf:
    """coordinates: the grid, the matrices, or the entries of a formula, which reads fields too."""

    image: Any
    coordinates: Any
    sampler: Warp
    fields: tuple[Any, ...] = ()


Sampling: TypeAlias = "MapsOf | WarpOf"


def sampling_of(node: Node, new_slot: NewSlot) -> Sampling | None:
    """What a node samples, if it does. Sizes become slots."""
    if node.op != "call_function" or node.target not in READERS or not isinstance(node.meta.get("val"), Tensor):
        return None
    return READERS[node.target](call_of(node), new_slot)


def slice_of(node: Node, new_slot: NewSlot) -> MapsOf:
    """A slice: a view by itself, part of a kernel behind one."""
    call = call_of(node)
    dim = call.tensor("self").dim() - call["dim"] % call.tensor("self").dim()
    start, stop = 0 if call["start"] is None else call["start"], 2**63 - 1 if call["end"] is None else call["end"]
    step = Slice(new_slot(start), new_slot(stop), call["step"])
    return MapsOf(call.given("self"), (step, *[None] * (dim - 1)))


def call_of(node: Node) -> AtenCall:
    assert isinstance(node.target, OpOverload)
    return AtenCall(node.target, node.args, dict(node.kwargs))


class AtenCall:
    """A call's arguments by name, defaults filled in. Tensors and symbolic sizes may be nodes, which have values."""

    def __init__(self, op: OpOverload, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        self._given = arguments_of(op, args, kwargs)

    def given(self, name: str) -> Any:
        return self._given[name]

    def tensor(self, name: str) -> Tensor:
        found = self[name]
        assert isinstance(found, Tensor), name
        return found

    def __getitem__(self, name: str) -> Any:
        return _value(self._given[name])

    def values(self) -> dict[str, Any]:
        return {name: _value(given) for name, given in self._given.items()}


def _value(argument: Any) -> Any:
    if isinstance(argument, (list, tuple)):
        return [_value(one) for one in argument]
    return argument.meta.get("val") if isinstance(argument, Node) else argument


Reader: TypeAlias = "Callable[[AtenCall, NewSlot], Sampling | None]"


@dataclass(frozen=True)
class Operator:
    """An operator of ATen that we take.

    dtypes: what eager takes; the rest is refused as ever. rank: of its image, None where any will do, or it checks
    itself. decomposes: Inductor knows it only taken apart, so that it cannot be given back. picks: of nearest pixels,
    which Inductor knows whole in some calls only (`can_be_given_back`). antialiases: eager takes 16-bit floats too, on
    devices whose rules say so.
    """

    read: Reader
    dtypes: tuple[torch.dtype, ...]
    rank: int | None = None
    decomposes: bool = False
    picks: bool = False
    antialiases: bool = False

    def takes(self, dtype: torch.dtype, rules: DeviceRules) -> bool:
        return dtype in self.dtypes or (self.antialiases and rules.antialiases_half and dtype in HALF)


def _aten_operators() -> dict[OpOverload, Operator]:
    found = {
        aten.flip.default: Operator(_flip, DTYPES),
        aten.constant_pad_nd.default: Operator(_constant_pad, DTYPES),
    }
    for family, forward, backward in overloads():
        antialiased = isinstance(family.step, Resize) and family.step.antialias
        no_bytes = isinstance(family.step, Resize) and family.axes != 2
        dtypes = ANTIALIASED_DTYPES if antialiased else FLOATS if no_bytes else WEIGHTED_DTYPES
        picks = isinstance(family.step, Nearest)
        forth, back, rank = _resize(family), _resize(family, backward=True), family.axes + 2
        found[forward.default] = Operator(forth, dtypes, rank, picks=picks, antialiases=antialiased)
        found[backward.default] = Operator(back, dtypes, rank, antialiases=antialiased)
    padded = tuple(dtype for dtype in DTYPES if dtype != torch.bool)
    for axes in (1, 2, 3):
        for name, mode in (("reflection", "reflect"), ("replication", "replicate")):
            forward, backward = (getattr(aten, f"{name}_pad{axes}d{kind}").default for kind in ("", "_backward"))
            found[forward] = Operator(_pad(mode), padded, decomposes=True)
            found[backward] = Operator(_pad_backward(mode), FLOATS, decomposes=True)
    for axes in (2, 3):
        found[getattr(aten, f"_adaptive_avg_pool{axes}d").default] = Operator(_area, FLOATS)
        found[getattr(aten, f"_adaptive_avg_pool{axes}d_backward").default] = Operator(_area_backward(axes), FLOATS)
        found[getattr(aten, f"grid_sampler_{axes}d").default] = Operator(_grid_sampler, FLOATS)
    return found


def _resize(family: Family, backward: bool = False) -> Reader:
    def read(call: AtenCall, new_slot: NewSlot) -> MapsOf | None:
        values = call.values()
        if not all(isinstance(scale, (int, float)) for scale in _scales(values)):
            return None
        steps = tuple(resize_steps(family, values, [new_slot(n) for n in values["output_size"]]))
        if backward:
            return MapsOf(call.given("grad_output"), steps, tuple(new_slot(n) for n in values["input_size"][2:]))
        return MapsOf(call.given("self"), steps)

    return read


def _scales(values: dict[str, Any]) -> list[Any]:
    """Lists the scales that are given."""
    named = (values.get(name) for name in ("scales", "scales_d", "scales_h", "scales_w"))
    return [scale for scale in named if scale is not None]


def _flip(call: AtenCall, new_slot: NewSlot) -> MapsOf | None:
    rank, dims = call.tensor("self").dim(), call["dims"]
    flipped = {dim % rank for dim in dims} if rank else set()
    if not flipped or len(flipped) < len(dims) or not all(-rank <= dim < rank for dim in dims):
        return None
    return MapsOf(call.given("self"), tuple(Flip() if dim in flipped else None for dim in range(min(flipped), rank)))


def _pads(amounts: Sequence[Size], mode: str, new_slot: NewSlot, border: int = 0) -> tuple[Step | None, ...]:
    """ATen's amounts begin with the last axis."""
    pairs = list(zip(amounts[::2], amounts[1::2], strict=True))[::-1]
    return tuple(
        None if _is_nothing(before, after) else Pad(new_slot(before), new_slot(after), mode, border)
        for before, after in pairs
    )


def _leaves_pixels(image: Tensor, amounts: Sequence[Size]) -> bool:
    """Whether a crop leaves something of every axis. Where it does not, eager has a result or an error by mode."""
    for n, before, after in zip(reversed(image.shape), amounts[::2], amounts[1::2], strict=False):
        if type(n) is type(before) is type(after) is int and n + min(before, 0) + min(after, 0) < 1:
            return False
    return True


def _holds(dtype: torch.dtype, value: float) -> bool:
    """Whether eager converts a border to the image's dtype: integers have limits, and no NaN."""
    if dtype.is_floating_point or dtype.is_complex or dtype == torch.bool:
        return True
    return torch.iinfo(dtype).min <= value <= torch.iinfo(dtype).max


def _is_nothing(before: Size, after: Size) -> bool:
    return type(before) is type(after) is int and before == after == 0


def _constant_pad(call: AtenCall, new_slot: NewSlot) -> MapsOf | None:
    steps, value = _pads(call["pad"], "constant", new_slot, border=1), call["value"]
    if not any(steps) or not isinstance(value, (int, float)) or not _leaves_pixels(call.tensor("self"), call["pad"]):
        return None
    if not _holds(call.tensor("self").dtype, value):
        return None
    return MapsOf(call.given("self"), steps, border=float(value))


#: Without data they are contiguous by torch's own rule; with it they lie as the volume does.
_PADDED_VOLUMES = (aten.reflection_pad3d.default, aten.replication_pad3d.default)


def is_taken_apart(op: OpOverload, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    """Tells what Inductor knows only taken apart, so that it cannot be given back later: what will be no step of ours,
    as nothing is padded, or would lie otherwise than eager's.
    """
    operator = ATEN_OPERATORS.get(op)
    if operator is None or not operator.decomposes:
        return False
    call = AtenCall(op, args, kwargs)
    if all(_is_nothing(n, n) for n in call["padding"]):
        return True
    return op in _PADDED_VOLUMES and suggest_memory_format(call.tensor("self")) != torch.contiguous_format


def can_be_given_back(node: Node) -> bool:
    """Whether Inductor knows what was kept whole, so that it may stay in the graph."""
    operator = ATEN_OPERATORS.get(node.target)  # type: ignore[call-overload]
    if operator is None or not operator.picks:
        return operator is None or not operator.decomposes
    # Its loop has the sizes of axes as numbers, and scales, which are floats, make floats of integers.
    values = call_of(node).values()
    image, sizes = values["self"], values["output_size"]
    is_promoted = not image.dtype.is_floating_point and bool(_scales(values))
    return not is_promoted and all(type(n) is int for n in (*image.shape[2:], *sizes))


def _pad(mode: str) -> Reader:
    def read(call: AtenCall, new_slot: NewSlot) -> MapsOf | None:
        steps = _pads(call["padding"], mode, new_slot)
        return MapsOf(call.given("self"), steps) if any(steps) else None

    return read


def _pad_backward(mode: str) -> Reader:
    def read(call: AtenCall, new_slot: NewSlot) -> MapsOf | None:
        steps = _pads(call["padding"], mode, new_slot)
        before = call.tensor("self").shape[-len(steps) :]
        return MapsOf(call.given("grad_output"), steps, tuple(map(new_slot, before))) if any(steps) else None

    return read


def _area(call: AtenCall, new_slot: NewSlot) -> MapsOf:
    return MapsOf(call.given("self"), tuple(Area(new_slot(n)) for n in call["output_size"]))


def _area_backward(axes: int) -> Reader:
    def read(call: AtenCall, new_slot: NewSlot) -> MapsOf:
        after, before = (call.tensor(name).shape[-axes:] for name in ("grad_output", "self"))
        return MapsOf(call.given("grad_output"), tuple(Area(new_slot(n)) for n in after), tuple(map(new_slot, before)))

    return read


def _grid_sampler(call: AtenCall, new_slot: NewSlot) -> WarpOf | None:
    sampler = grid_sampler(call)
    if not samples(sampler.mode, call.tensor("input").dim() - 2):
        return None
    return WarpOf(call.given("input"), call.given("grid"), sampler)


def grid_sampler(call: AtenCall) -> Warp:
    """What a call of ATen's `grid_sampler`, or of its backward, samples by."""
    mode, padding = MODES[call["interpolation_mode"]], PADDINGS[call["padding_mode"]]
    return Warp("grid", mode, padding, bool(call["align_corners"]))


def _warp(call: AtenCall, new_slot: NewSlot) -> WarpOf:
    size, *options = (call[name] for name in ("size", "mode", "padding", "align_corners", "fill", "fill_rule"))
    sampler = Warp.of_options([new_slot(n) for n in size or ()], *options)
    return WarpOf(call.given("image"), call.given("coordinates"), sampler)


def _formula_warp(call: AtenCall, new_slot: NewSlot) -> WarpOf:
    sizes = call["sizes"]
    own = from_text(call["warp"])
    sampler = warp_with_sizes(own, lambda n: new_slot(sizes[n.number] if isinstance(n, SizeSlot) else n))
    return WarpOf(call.given("image"), call.given("entries"), sampler, tuple(call.given("fields")))


def _resample(call: AtenCall, new_slot: NewSlot) -> MapsOf | None:
    """Reads a call of our own functions. Each axis is one step there, but for a border that nothing is known of."""
    sizes, border = call["sizes"], call["border"]
    own = maps_from_text(call["maps"])
    maps = with_sizes(own, lambda n: new_slot(sizes[n.number]) if isinstance(n, SizeSlot) else n)
    if any(len(one.steps) > 1 for one in maps) or not isinstance(border, (int, float)):
        return None
    steps = tuple(one.steps[0] if one.steps else None for one in maps)
    before = tuple(map(new_slot, call["in_size"])) if call["transposed"] else ()
    return MapsOf(call.given("image"), steps, before, float(border))


ATEN_OPERATORS = _aten_operators()
#: The readers of every overload that we take: ATen's, and our own, which are in graphs only.
READERS: dict[object, Reader] = {
    torch.ops.polyphase.resample.default: _resample,
    torch.ops.polyphase.warp.default: _warp,
    torch.ops.polyphase.formula_warp.default: _formula_warp,
    **{op: operator.read for op, operator in ATEN_OPERATORS.items()},
}
