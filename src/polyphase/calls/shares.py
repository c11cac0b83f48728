"""Gradients of coordinates that are computed, as kernels leave them: a tensor of doubles.

First what each part of an image (a row, or a block of threads) adds to the gradient of its matrix or entries; behind
that the gradients of a formula's fields, dense, one field after the other, in the dtype of positions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from polyphase.records.facts import Sizes
from polyphase.records.records import GradientRecord


class Shares(NamedTuple):
    """by_parts: (batch, parts of an image, values). fields: (fields, batch, 1, out...)."""

    by_parts: Sizes
    fields: Sizes
    positions: torch.dtype

    @staticmethod
    def of(record: GradientRecord, parts: int, positions: torch.dtype) -> Shares:
        batch, *values = record.coordinates.shape
        fields = (len(record.fields.tensors), batch, 1, *record.gradient.shape[2:])
        return Shares((batch, parts, math.prod(values)), fields, positions)

    @property
    def doubles(self) -> int:
        """How many there are."""
        return math.prod(self.by_parts) + math.ceil(math.prod(self.fields) * self.positions.itemsize / 8)

    def added_up(self, found: Tensor, coordinates: Tensor, fields: Sequence[Tensor]) -> list[Tensor]:
        """Adds up the gradients of the coordinates and of the fields, in their shapes."""
        split = math.prod(self.by_parts)
        of_values = found[:split].view(self.by_parts).sum(1).view(coordinates.shape).to(coordinates.dtype)
        of_fields = found[split:].view(self.positions)[: math.prod(self.fields)].view(self.fields)
        return [of_values, *(of.sum_to_size(one.shape) for of, one in zip(of_fields, fields, strict=True))]


def are_shares(record: GradientRecord) -> bool:
    """Whether coordinates are computed. The gradient of a grid is itself."""
    return record.sampler.source != "grid"
