"""What is known of a tensor without looking at its values: all that a call is bound to."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor

#: Dtypes of half precision: summed as float32.
HALF = (torch.float16, torch.bfloat16)
Sizes: TypeAlias = tuple[int, ...]


class Facts(NamedTuple):
    dtype: torch.dtype
    shape: Sizes
    strides: Sizes
    device: torch.device

    @property
    def elements(self) -> int:
        return elements(self.shape)


def facts(tensor: Tensor) -> Facts:
    return Facts(tensor.dtype, tensor.shape, tensor.stride(), tensor.device)


def elements(shape: Sizes) -> int:
    count = 1
    for n in shape:
        count *= n
    return count
