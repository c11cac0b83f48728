"""What an image is read from: a tensor, a numpy array or a Pillow image, by address and strides, where it lies."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from polyphase.kernels.facts import Facts, facts
from polyphase.plain import is_plain

CPU = torch.device("cpu")

#: Pillow's modes that are bytes of pixels, and their channels.
PIL_CHANNELS = {"RGB": 3, "L": 1}


@dataclass(frozen=True)
class Memory:
    """Memory of the CPU that somebody else owns. Kernels ask for nothing but its address."""

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
    memory: Tensor | Memory
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
            Memory(self.memory.address + offset, self.memory),
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


def is_pil(value: object) -> bool:
    pillow = sys.modules.get("PIL.Image")
    return pillow is not None and isinstance(value, pillow.Image)


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


def of_pil(image: Any) -> Source:
    """An image of one of `PIL_CHANNELS`: where it lies, if that is one block of memory, else a copy."""
    image.load()
    channels, (width, height) = PIL_CHANNELS[image.mode], image.size
    address, owner = _block(image)
    if address == 0:
        return _of_pixels(image, channels, height, width)
    step = 1 if channels == 1 else 4  # of three channels, a fourth byte lies beside
    known = Facts(torch.uint8, (channels, height, width), (1, width * step, step), CPU)
    return Source(known, Memory(address, (image, owner)), lambda: _of_pixels(image, channels, height, width).tensor())


def _of_pixels(image: Any, channels: int, height: int, width: int) -> Source:
    pixels = torch.frombuffer(bytearray(image.tobytes()), dtype=torch.uint8)
    return of_tensor(pixels.view(height, width, channels).permute(2, 0, 1))


class _ArrowArray(ctypes.Structure):
    """As Arrow's C data interface has it, as far as it is read."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("length", "null_count", "offset", "n_buffers", "n_children")),
        ("buffers", ctypes.POINTER(ctypes.c_void_p)),
        ("children", ctypes.POINTER(ctypes.c_void_p)),
    )


_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


def _block(image: Any) -> tuple[int, object]:
    """The address of the pixels and what keeps them there; 0 where they are not one block, or Pillow does not tell."""
    export = getattr(image, "__arrow_c_array__", None)
    if export is None or 0 in image.size:
        return 0, None
    try:
        schema, array = export()
    except (ValueError, OSError, MemoryError):  # more than one block
        return 0, None
    found = _ArrowArray.from_address(_pointer(array, b"arrow_array"))
    width, height = image.size
    pixels = found if image.mode == "L" else _ArrowArray.from_address(found.children[0])
    expected = width * height * (1 if image.mode == "L" else 4)
    if found.offset or pixels.offset or pixels.length != expected or pixels.n_buffers != 2:
        return 0, None
    return pixels.buffers[1] or 0, (schema, array)
