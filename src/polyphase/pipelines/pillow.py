"""Pillow's pictures: where their pixels lie, and what is done to them by Pillow itself."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from polyphase.kernels.facts import Facts
from polyphase.pipelines.sources import CPU, Source

#: Pillow's modes that are bytes of pixels, and their channels.
PIL_CHANNELS = {"RGB": 3, "L": 1}
#: Bytes from a pixel to the next: of three channels, a fourth byte lies beside.
_PIXEL_BYTES = {"RGB": 4, "L": 1}


def is_pil(value: object) -> bool:
    pillow = sys.modules.get("PIL.Image")
    return pillow is not None and isinstance(value, pillow.Image)


def of_pil(image: Any) -> Source:
    """The source that a picture of one of `PIL_CHANNELS` is."""
    image.load()
    step, (width, height) = _PIXEL_BYTES[image.mode], image.size
    known = Facts(torch.uint8, (PIL_CHANNELS[image.mode], height, width), (1, width * step, step), CPU)
    return Source(known, PixelMemory(image), lambda: _copied(image).permute(2, 0, 1)[: known.shape[0]])


class PixelMemory:
    """The memory of a picture, which is not looked for before a kernel is to read it: where it lies, if that is one
    block, else a copy that lies likewise."""

    def __init__(self, image: Any) -> None:
        self._image, self._address = image, 0
        self._owner: object = None

    def data_ptr(self) -> int:
        if self._address == 0:
            self._address, self._owner = _block(self._image)
        if self._address == 0:
            copied = _copied(self._image)
            self._address, self._owner = copied.data_ptr(), copied
        return self._address


def _copied(image: Any) -> Tensor:
    """(height, width, bytes of a pixel)."""
    raw = image.tobytes("raw", {"RGB": "RGBX"}.get(image.mode, image.mode))
    return torch.frombuffer(bytearray(raw), dtype=torch.uint8).view(image.height, image.width, _PIXEL_BYTES[image.mode])


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


# ---- what Pillow does itself


class Edits:
    """What is done to a picture by moving its pixels, as Pillow does it: by copying rows: kernels are no quicker."""

    def __init__(self, image: Any, done: tuple[tuple[str, tuple[Any, ...]], ...] = ()) -> None:
        self._image, self._done = image, done

    def then(self, name: str, *arguments: Any) -> Edits:
        """`name`: of a function below."""
        return Edits(self._image, (*self._done, (name, arguments)))

    def made(self) -> Any:
        image = self._image
        for name, arguments in self._done:
            image = _EDITS[name](image, *arguments)
        return image


def _cropped(image: Any, top: int, left: int, height: int, width: int) -> Any:
    return image.crop((left, top, left + width, top + height))


def _flipped(image: Any, dim: int) -> Any:
    how = sys.modules["PIL.Image"].Transpose
    return image.transpose(how.FLIP_LEFT_RIGHT if dim == -1 else how.FLIP_TOP_BOTTOM)


def _padded(image: Any, amounts: tuple[int, int, int, int], value: float) -> Any:
    left, right, top, bottom = amounts
    colour = (int(value),) * PIL_CHANNELS[image.mode]
    made = sys.modules["PIL.Image"].new(image.mode, (left + image.width + right, top + image.height + bottom), colour)
    made.paste(image, (left, top))
    return made


_EDITS: dict[str, Callable[..., Any]] = {"crop": _cropped, "flip": _flipped, "pad": _padded}
