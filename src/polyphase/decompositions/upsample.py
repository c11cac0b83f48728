"""Decompositions of the upsample operators and their backwards.

Forward: the axis maps' taps, one axis after the other. Backward: the transposed taps, a gather like the forward, so no
index_put and the same bits on every run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import torch
from torch import Tensor

from polyphase import torch_private
from polyphase.calls.rules import rules_of
from polyphase.decompositions.memory_order import dense, materialised, memory_order
from polyphase.sampling.apply import apply_taps
from polyphase.sampling.axis_maps import AxisMap, drop_identities
from polyphase.sampling.evaluate import evaluate
from polyphase.sampling.steps import Nearest, Resize, Size
from polyphase.sampling.taps import Taps
from polyphase.sampling.windows import eager_arithmetic, transposed_taps
from polyphase.torch_private import OpOverload, OpOverloadPacket

ResizeStep: TypeAlias = "Resize | Nearest"


@dataclass(frozen=True)
class Family:
    """One ATen operator: `aten.NAME`, its `.vec` and its `_backward`."""

    name: str
    axes: int
    step: ResizeStep  # its size, scale and align_corners are the call's


def families() -> list[Family]:
    plain = [("linear1d", 1, "bilinear"), ("bilinear2d", 2, "bilinear"), ("trilinear3d", 3, "bilinear")]
    plain.append(("bicubic2d", 2, "bicubic"))
    return [
        *(Family(f"upsample_{name}", axes, Resize(1, filter)) for name, axes, filter in plain),
        *(Family(f"_upsample_{f}2d_aa", 2, Resize(1, f, antialias=True)) for f in ("bilinear", "bicubic", "lanczos")),
        *(Family(f"upsample_nearest{axes}d", axes, Nearest(1)) for axes in (1, 2, 3)),
        *(Family(f"_upsample_nearest_exact{axes}d", axes, Nearest(1, exact=True)) for axes in (1, 2, 3)),
    ]


def table() -> dict[OpOverload, Callable[..., Tensor]]:
    found: dict[OpOverload, Callable[..., Tensor]] = {}
    for family, forward, backward in overloads():
        found[forward.default] = _forward(family, forward.default)
        found[forward.vec] = _vector(family, forward.vec)
        found[backward.default] = _backward(family, backward.default)
    return found


def overloads() -> Iterator[tuple[Family, OpOverloadPacket, OpOverloadPacket]]:
    for family in families():
        if hasattr(torch.ops.aten, family.name):  # lanczos is newer than the oldest torch we support
            forward, backward = (getattr(torch.ops.aten, family.name + suffix) for suffix in ("", "_backward"))
            yield family, forward, backward


def _forward(family: Family, op: OpOverload) -> Callable[..., Tensor]:
    def decomposition(*args: Any, **kwargs: Any) -> Tensor:
        call = arguments_of(op, args, kwargs)
        return resample(call["self"], resize_steps(family, call, call["output_size"]))

    return decomposition


def _vector(family: Family, op: OpOverload) -> Callable[..., Tensor]:
    """The overload F.interpolate calls: either the size is given or the scale factors."""

    def decomposition(*args: Any, **kwargs: Any) -> Tensor:
        call = arguments_of(op, args, kwargs)
        return resample(call["input"], resize_steps(family, call, _vector_size(call), call["scale_factors"]))

    return decomposition


def vectors_as_default() -> dict[OpOverload, Callable[..., Tensor]]:
    """`.vec` overloads as calls of their `.default`, which stays whole. ATen's own do not know symbolic sizes."""
    return {forward.vec: _vector_as_default(forward.vec, forward.default) for _, forward, _ in overloads()}


def _vector_as_default(op: OpOverload, default: OpOverload) -> Callable[..., Tensor]:
    def decomposition(*args: Any, **kwargs: Any) -> Tensor:
        call = arguments_of(op, args, kwargs)
        size = _vector_size(call)
        flags = [call["align_corners"]] if "align_corners" in call else []
        result: Tensor = default(call["input"], size, *flags, *(call["scale_factors"] or [None] * len(size)))
        return result

    return decomposition


def _vector_size(call: dict[str, Any]) -> list[Size]:
    if call["output_size"] is not None:
        return list(call["output_size"])
    return [torch.sym_int(n * scale) for n, scale in zip(call["input"].shape[2:], call["scale_factors"], strict=True)]


def _backward(family: Family, op: OpOverload) -> Callable[..., Tensor]:
    def decomposition(*args: Any, **kwargs: Any) -> Tensor:
        call = arguments_of(op, args, kwargs)
        steps = resize_steps(family, call, call["output_size"])
        return resample_transposed(call["grad_output"], steps, call["input_size"][2:])

    return decomposition


def resample(image: Tensor, steps: Sequence[ResizeStep]) -> Tensor:
    """One step per spatial axis.

    uint8 goes from the last axis to the first, as eager rounds after each; floats from the first, because the last
    axis, whose reads are not contiguous, then has fewer rows to do when shrinking.
    """
    arithmetic = eager_arithmetic(image.dtype, rules_of(image.device))

    def taps(axis: int, in_size: Size) -> Taps | None:
        axis_map = AxisMap((steps[axis],))
        if isinstance(in_size, int) and isinstance(steps[axis].size, int):
            axis_map = drop_identities(axis_map, in_size)
        return evaluate(axis_map, in_size, arithmetic, image.device) if axis_map.steps else None

    passes = reversed(range(len(steps))) if image.dtype == torch.uint8 else range(len(steps))
    return _passes(image, taps, list(passes))


def resample_transposed(gradient: Tensor, steps: Sequence[ResizeStep], in_sizes: Sequence[Size]) -> Tensor:
    """The adjoint of `resample` for an image of `in_sizes`."""
    # Eager's float64 nearest goes forward with a double ratio and backward with a float one. Ours is its own adjoint.
    arithmetic = eager_arithmetic(gradient.dtype, rules_of(gradient.device))

    def taps(axis: int, out_size: Size) -> Taps:
        return transposed_taps(steps[axis], in_sizes[axis], arithmetic, gradient.device)

    return _passes(gradient, taps, list(range(len(steps))))


def _passes(image: Tensor, taps: Callable[[int, Size], Taps | None], axes: Sequence[int]) -> Tensor:
    order = memory_order(image)
    result, touched = image.permute(order), False
    for axis in axes:
        dim = order.index(axis + 2)
        own = taps(axis, result.shape[dim])
        if own is None:
            continue
        if own.weight is not None:
            result = materialised(result) if touched else result
            own = _materialised_taps(own)
        result, touched = apply_taps(result, own, dim), True
    result = result if touched else result.clone()  # never the input itself
    return dense(result.to(image.dtype), order)


def _materialised_taps(taps: Taps) -> Taps:
    assert taps.weight is not None
    one = None if taps.one is None else materialised(taps.one)
    return replace(taps, index=materialised(taps.index), weight=materialised(taps.weight), one=one)


def resize_steps(
    family: Family, call: dict[str, Any], size: Sequence[Size], scales: Sequence[float] | None = None
) -> list[ResizeStep]:
    if scales is None:
        names = ("scales_d", "scales_h", "scales_w")[-family.axes :] if family.axes > 1 else ("scales",)
        scales = [call.get(name) for name in names]  # type: ignore[misc]
    steps: list[ResizeStep] = []
    for n, scale in zip(size, scales, strict=True):
        step = replace(family.step, size=n, scale=scale if scale and scale > 0 else None)
        if isinstance(step, Resize):
            step = replace(step, align_corners=call["align_corners"])
        steps.append(step)
    return steps


def arguments_of(op: OpOverload, args: Sequence[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    """A call's arguments by name, defaults filled in."""
    arguments = torch_private.schema_of(op).arguments
    given = {argument.name: value for argument, value in zip(arguments, args, strict=False)}
    defaults = {argument.name: argument.default_value for argument in arguments}
    return {**defaults, **given, **kwargs}
