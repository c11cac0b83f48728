"""Attention at sampled places, by kernels; by torch operations where there are none."""

from __future__ import annotations

import struct
from typing import NamedTuple

import torch
from torch import Tensor

from polyphase.calls import devices
from polyphase.calls.binding import NOT_BUILT, warn_once
from polyphase.records.facts import HALF
from polyphase.sampling import attention as by_torch
from polyphase.sampling.attention import Attention

MOST_LEVELS = 8  # kMostLevels of warp/attention_call.h
DTYPES = (torch.float32, torch.float64, *HALF)


class Gradients(NamedTuple):
    value: Tensor | None
    places: Tensor
    weights: Tensor


class Tensors(NamedTuple):
    """Holds tensors as kernels read them: channels side by side, places and weights dense. other: the output, or its
    gradient."""

    other: Tensor
    value: Tensor
    places: Tensor
    weights: Tensor

    @classmethod
    def of(cls, other: Tensor, value: Tensor, places: Tensor, weights: Tensor) -> Tensors:
        other, value = (one if one.stride(-1) == 1 else one.contiguous() for one in (other, value))
        return cls(other, value, places.contiguous(), weights.contiguous())

    def packed(self, attention: Attention, gradients: Gradients | None = None) -> bytes:
        """An `AttentionCall`."""
        batch, queries, heads, channels = self.other.shape
        sizes = (batch, queries, heads, channels, self.weights.shape[-1], self.value.shape[1])
        levels = [n for one in attention.levels() for n in (one.first_pixel, one.height, one.width, one.points)]
        levels += [0] * (4 * MOST_LEVELS - len(levels))
        strides = (*_apart(self.value), *_apart(self.other))
        numbers = (*sizes, attention.align_corners, len(attention.sizes), *levels, *strides)
        addresses = [0 if one is None else one.data_ptr() for one in (*self, *(gradients or (None,) * 3))]
        return struct.pack(f"={len(addresses)}Q{len(numbers)}q", *addresses, *numbers)


def _apart(tensor: Tensor) -> tuple[int, ...]:
    """Strides of all dimensions but the channels."""
    return tensor.stride()[:3]


def attend(value: Tensor, places: Tensor, weights: Tensor, attention: Attention) -> Tensor:
    """(batch, queries, heads, channels), contiguous."""
    attention.check(value, places, weights)
    wing = _wing_for(value, weights, attention)
    if wing is not None:
        out = value.new_empty((*weights.shape[:3], value.shape[-1]))
        try:
            wing.attend(out, value, places, weights, attention)
            return out
        except NOT_BUILT as error:
            warn_once(error)
    return plainly(value, places, weights, attention)


def gradients(
    gradient: Tensor, value: Tensor, places: Tensor, weights: Tensor, attention: Attention, of_value: bool
) -> Gradients:
    """Contiguous; the value's is None where it is not asked for."""
    attention.check(value, places, weights)
    wing = _wing_for(value, weights, attention)
    if wing is not None:
        try:
            return wing.attend_gradients(gradient, value, places, weights, attention, of_value)
        except NOT_BUILT as error:
            warn_once(error)
    return plain_gradients(gradient, value, places, weights, attention)


def _wing_for(value: Tensor, weights: Tensor, attention: Attention) -> devices.Wing | None:
    """None where there is no kernel, or nothing to sum."""
    if not (
        devices.has_kernels(value.device.type)
        and value.dtype in DTYPES
        and len(attention.sizes) <= MOST_LEVELS
        and value.shape[1] < 2**31  # kernels count pixels in 32 bits
        and value.numel()
        and weights.numel()
    ):
        return None
    return devices.wing_of(value.device)


# ---- the plain twins


def plainly(value: Tensor, places: Tensor, weights: Tensor, attention: Attention) -> Tensor:
    value_, places_, weights_ = (one.float() if one.dtype in HALF else one for one in (value, places, weights))
    return by_torch.attend(value_, places_, weights_, attention).to(value.dtype)


def plain_gradients(
    gradient: Tensor, value: Tensor, places: Tensor, weights: Tensor, attention: Attention
) -> Gradients:
    with torch.enable_grad():
        given = [one.detach() for one in (value, places, weights)]
        _, of_all = torch.func.vjp(lambda one, at, by: plainly(one, at, by, attention), *given)
        return Gradients(*(one.contiguous() for one in of_all(gradient)))
