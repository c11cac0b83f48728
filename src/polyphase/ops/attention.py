"""`polyphase::attention` and `polyphase::attention_backward`: attention at sampled places, and its gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor

from polyphase.calls import attention as kernels
from polyphase.ops import levels
from polyphase.ops.library import LIBRARY, put
from polyphase.sampling.attention import from_lists
from polyphase.sampling.steps import Size

Three: TypeAlias = tuple[Tensor, Tensor, Tensor]

# value: (batch, pixels, heads, channels). places: (batch, queries, heads, points, x and y). weights: (batch, queries,
# heads, points). sizes: the height and width of each level in turn. points: how many each level has.
_GIVEN = "Tensor value, Tensor places, Tensor weights, SymInt[] sizes, SymInt[] points, bool align_corners"
_TAGS = (torch.Tag.pt2_compliant_tag, torch.Tag.needs_exact_strides)
LIBRARY.define(f"attention({_GIVEN}) -> Tensor", tags=_TAGS)
LIBRARY.define(f"attention_backward(Tensor gradient, {_GIVEN}, bool of_value) -> (Tensor, Tensor, Tensor)", tags=_TAGS)
attention = torch.ops.polyphase.attention.default
attention_backward = torch.ops.polyphase.attention_backward.default


def _on_device(value: Tensor, places: Tensor, weights: Tensor, *given: Any) -> Tensor:
    return kernels.attend(value, places, weights, from_lists(*given))


def _without_data(
    value: Tensor, places: Tensor, weights: Tensor, sizes: Sequence[Size], points: Sequence[Size], align_corners: bool
) -> Tensor:
    return value.new_empty((*weights.shape[:3], value.shape[3]))


def _backward_on_device(gradient: Tensor, value: Tensor, places: Tensor, weights: Tensor, *options: Any) -> Three:
    *of_attention, of_value = options
    given = gradient, value, places, weights, from_lists(*of_attention), of_value
    found = levels.with_autograd(kernels.gradients, *given)
    return value.new_empty(0) if found.value is None or not of_value else found.value, found.places, found.weights


def _backward_without_data(gradient: Tensor, value: Tensor, places: Tensor, weights: Tensor, *given: Any) -> Three:
    of_value = value.new_empty(value.shape if given[-1] else 0)
    return of_value, places.new_empty(places.shape), weights.new_empty(weights.shape)


def _remember(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:3])
    ctx.given = inputs[3:]


def _backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
    of_value = ctx.needs_input_grad[0]
    found = attention_backward(gradient, *ctx.saved_tensors, *ctx.given, of_value)
    return found[0] if of_value else None, found[1], found[2], *(None for _ in ctx.given)


put("attention", _on_device, _without_data)
put("attention_backward", _backward_on_device, _backward_without_data)
torch.library.register_autograd("polyphase::attention", _backward, setup_context=_remember, lib=LIBRARY)
