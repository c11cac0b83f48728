"""Attention at sampled places on the CPU. Kernels are of floats and doubles; 16-bit floats become floats before."""

from __future__ import annotations

import torch
from torch import Tensor

from polyphase.calls.attention import Gradients, Tensors
from polyphase.cpu import isa, libraries
from polyphase.records.facts import HALF
from polyphase.sampling.attention import Attention


def attend(out: Tensor, value: Tensor, places: Tensor, weights: Tensor, attention: Attention) -> None:
    wide = torch.empty_like(out, dtype=torch.float32) if out.dtype in HALF else out
    _run(Tensors.of(wide, *_wide(value, places, weights)), attention)
    if wide is not out:
        out.copy_(wide)


def gradients(
    gradient: Tensor, value: Tensor, places: Tensor, weights: Tensor, attention: Attention, of_value: bool
) -> Gradients:
    tensors = Tensors.of(*_wide(gradient, value, places, weights))
    contiguous = torch.contiguous_format
    found = Gradients(
        torch.zeros_like(tensors.value, memory_format=contiguous) if of_value else None,
        torch.empty_like(tensors.places),
        torch.empty_like(tensors.weights),
    )
    _run(tensors, attention, found)
    of_places, of_weights = (one.to(value.dtype) for one in found[1:])
    return Gradients(None if found.value is None else found.value.to(value.dtype), of_places, of_weights)


def _wide(*tensors: Tensor) -> list[Tensor]:
    return [one.float() if one.dtype in HALF else one for one in tensors]


def _run(tensors: Tensors, attention: Attention, gradients: Gradients | None = None) -> None:
    kernel = libraries.attention(tensors.value.dtype, gradients is not None, isa.chosen())
    libraries.launcher().attend(kernel, tensors.packed(attention, gradients))
