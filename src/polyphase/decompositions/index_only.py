"""Decompositions of flip and of pads: every pixel moves, none changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from polyphase.decompositions.memory_order import dense, memory_order, stride_order
from polyphase.sampling.apply import apply_taps
from polyphase.sampling.axis_maps import AxisMap
from polyphase.sampling.evaluate import evaluate
from polyphase.sampling.steps import Flip, Pad, Size, Step
from polyphase.sampling.windows import eager_arithmetic
from polyphase.torch_private import OpOverload


def table() -> dict[OpOverload, Callable[..., Tensor]]:
    aten = torch.ops.aten
    found: dict[OpOverload, Callable[..., Tensor]] = {aten.flip.default: flip, aten.pad.default: pad}
    for axes in (1, 2, 3):
        found[getattr(aten, f"reflection_pad{axes}d").default] = _pad("reflect")
        found[getattr(aten, f"replication_pad{axes}d").default] = _pad("replicate")
    return found


def flip(image: Tensor, dims: Sequence[int]) -> Tensor:
    return _move(image, {dim % image.dim(): Flip() for dim in dims}, stride_order(image))


def pad(image: Tensor, pad: Sequence[Size], mode: str = "constant", value: float | None = None) -> Tensor:
    """What torch.export leaves of every pad."""
    if mode == "constant":
        return torch.constant_pad_nd(image, pad, value or 0)
    return _pad(mode)(image, pad)


def _pad(mode: str) -> Callable[..., Tensor]:
    def decomposition(image: Tensor, padding: Sequence[Size]) -> Tensor:
        pairs = zip(padding[::2], padding[1::2], strict=True)  # the last axis first
        steps: dict[int, Step] = {
            image.dim() - back: Pad(before, after, mode) for back, (before, after) in enumerate(pairs, start=1)
        }
        return _move(image, steps, memory_order(image))

    return decomposition


def _move(image: Tensor, steps: dict[int, Step], order: list[int]) -> Tensor:
    """The steps, by dimension, on the image permuted into memory order."""
    result = image.permute(order)
    for dim, step in steps.items():
        place = order.index(dim)
        taps = evaluate(AxisMap((step,)), result.shape[place], eager_arithmetic(image.dtype), image.device)
        result = apply_taps(result, taps, place)
    return dense(result if steps else result.clone(), order)
