"""What an image is read from: a tensor, a numpy array or a Pillow image, by address and strides, where it lies."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from polyphase.calls.plain import is_plain
from polyphase.records.facts import Facts, facts

CPU = torch.device("cpu")


class Addressed(Protocol):
    """What kernels read: nothing is asked of it but its address."""

    def data_ptr(self) -> int: ...


@dataclass(frozen=True)
class Memory:
    """Memory of the CPU that somebody else owns."""

    address: int
    owner: object  # kept, so that the memory is

    def data_ptr(self) -> int:
        return self.address


@dataclass(frozen=True)
class Source:
    """An image (..., channels, height, width) in memory.

    flipped: of the last two axes, which are to be read back to front: strides are positive always. copied: the image as
    a tensor of its own, for what is done by torch operations.
    """

    facts: Facts
    memory: Tensor | Addressed
    copied: Callable[[], Tensor]
    flipped: tuple[bool, bool] = (False, False)

    def tensor(self) -> Tensor:
        return self.memory if isinstance(self.memory, Tensor) else self.copied()

    def cropped(self, top: int, left: int, height: int, width: int) -> Source:
        """A rectangle within the image, where it lies; of an image that is not flipped."""
        dtype, shape, strides, device = self.facts
        if isinstance(self.memory, Tensor):
            return of_tensor(self.memory[..., top : top + height, left : left + width])
        offset = (top * strides[-2] + left * strides[-1]) * dtype.itemsize
        return Source(
            Facts(dtype, (*shape[:-2], height, width), strides, device),
            Memory(self.memory.data_ptr() + offset, self.memory),
            lambda: self.copied()[..., top : top + height, left : left + width],
        )


def of_tensor(tensor: Tensor) -> Source:
    return Source(facts(tensor), tensor, lambda: tensor)


def can_be_read(tensor: Tensor) -> bool:
    """Whether kernels may be given a tensor, or torch operations that nobody watches."""
    return is_plain(tensor)


def is_array(value: object) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.ndarray)


def array_dtype(array: Any) -> torch.dtype | None:
    """None of what torch has no dtype for, as numbers in another order of bytes."""
    return getattr(torch, array.dtype.name, None) if array.dtype.isnative and array.dtype.kind in "buif" else None


def of_array(array: Any) -> Source:
    """An array (height, width, channels), or (height, width) of one channel; of a dtype that torch has."""
    if array.ndim == 2:
        array = array[:, :, None]
    size = array.dtype.itemsize
    if array.ndim != 3 or any(stride % size for stride in array.strides) or array.strides[2] < 0:
        array = array.copy()
    height, width, channels = array.shape
    flipped = array.strides[0] < 0, array.strides[1] < 0
    along_y, along_x, along_c = (abs(stride) // size for stride in array.strides)
    first = array.__array_interface__["data"][
        0
    ]  # of pixel (0, 0), which is the last in memory where an axis is flipped
    for n, stride in zip(array.shape, array.strides, strict=True):
        first += min(stride, 0) * (n - 1) if n else 0
    known = Facts(array_dtype(array) or torch.uint8, (channels, height, width), (along_c, along_y, along_x), CPU)
    return Source(known, Memory(first, array), lambda: torch.from_numpy(array.copy()).permute(2, 0, 1), flipped)


def in_order(array: Any) -> Tensor | None:
    """The array as a tensor (channels, height, width) in the same memory, if that is in this order already; else
    None."""
    if array is None:
        return None
    pixels = array if array.ndim == 3 else array[:, :, None]
    return torch.from_numpy(pixels).permute(2, 0, 1) if pixels.transpose(2, 0, 1).flags.c_contiguous else None
