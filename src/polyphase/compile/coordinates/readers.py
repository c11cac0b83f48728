"""Which operators of ATen a walk follows."""

from __future__ import annotations

from typing import Any

import torch

from polyphase.compile.coordinates import values, views
from polyphase.compile.coordinates.walk import Reader

aten = torch.ops.aten


#: What is not here ends a walk.
READERS: dict[Any, Reader] = views.READERS | values.READERS


#: What makes a tensor without values.
EMPTY = (aten.empty.memory_format, aten.new_empty.default, aten.empty_like.default, aten.empty_strided.default)


#: What reads the shape of a tensor, and none of its values.
OF_SHAPES = (
    *(aten.ones_like.default, aten.zeros_like.default, aten.full_like.default, aten.empty_like.default),
    *(aten.new_ones.default, aten.new_zeros.default, aten.new_full.default, aten.new_empty.default),
)


#: How functional calls end that were to write to their arguments.
WRITTEN_BACK = (aten.copy_.default, aten.as_strided_.default)


def is_known(operator: Any) -> bool:
    return operator in READERS or operator in EMPTY or operator in WRITTEN_BACK
