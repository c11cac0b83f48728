"""Pillow's pictures: where their pixels lie, and what is done to them by Pillow itself."""

from __future__ import annotations

import ctypes
import functools
import struct
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import torch
from torch import Tensor

from polyphase.calls import devices
from polyphase.calls.binding import NOT_BUILT
from polyphase.pipelines.sources import CPU, Source
from polyphase.records.facts import Facts, Sizes
from polyphase.records.layout import BY_ROWS

#: Pillow's modes that are bytes of pixels, and their channels.
PIL_CHANNELS = {"RGB": 3, "L": 1}
#: Bytes from a pixel to the next: of three channels, a fourth byte lies beside.
_PIXEL_BYTES = {"RGB": 4, "L": 1}
#: What Pillow calls these bytes, all of them.
_RAW = {"RGB": "RGBX", "L": "L"}


def is_pil(value: object) -> bool:
    pillow = sys.modules.get("PIL.Image")
    return pillow is not None and isinstance(value, pillow.Image)


def of_pil(image: Any) -> Source:
    """The source that a picture of one of `PIL_CHANNELS` is: rows that lie where they do, as far as Pillow tells."""
    image.load()
    step, (width, height) = _PIXEL_BYTES[image.mode], image.size
    knows_rows = _place_of_rows() is not None
    strides = (1, BY_ROWS if knows_rows else width * step, step)
    known = Facts(torch.uint8, (PIL_CHANNELS[image.mode], height, width), strides, CPU)
    memory = RowMemory(image) if knows_rows else BlockMemory(image)
    return Source(known, memory, lambda: _copied(image).permute(2, 0, 1)[: known.shape[0]])


def told_of_pictures(mode: str) -> tuple[Any, ...] | None:
    """What C++ has to know to read pictures of a mode: their class, the mode, channels, bytes of a pixel, and the place
    of their rows; None where Pillow does not tell."""
    place = _place_of_rows()
    if place is None:
        return None
    return sys.modules["PIL.Image"].Image, mode, PIL_CHANNELS[mode], _PIXEL_BYTES[mode], place


def in_one_block(source: Source) -> Source:
    """The same picture, for what needs its rows at equal distances."""
    if source.facts.strides[-2] != BY_ROWS:
        return source
    assert isinstance(source.memory, RowMemory), "nothing else is given by rows"
    _, _, step = source.facts.strides
    known = source.facts._replace(strides=(1, source.facts.shape[-1] * step, step))
    return replace(source, facts=known, memory=BlockMemory(source.memory.image))


class NewPicture:
    """A picture of (channels, height, width) that is to be written, as it lies in one block: in its own memory, or else
    in a tensor that becomes one. A fourth byte is 0, as Pillow's own resizes leave it."""

    def __init__(self, shape: Sizes, strides: Sizes = (), dtype: torch.dtype = torch.uint8) -> None:
        channels, height, width = shape
        self._mode = next(mode for mode, count in PIL_CHANNELS.items() if count == channels)
        self._image = sys.modules["PIL.Image"].new(self._mode, (width, height), None)
        self._address, self._owner = _block(self._image)
        if self._address == 0:
            self._owner = torch.zeros(height, width, _PIXEL_BYTES[self._mode], dtype=torch.uint8)
            self._address = self._owner.data_ptr()

    def data_ptr(self) -> int:
        return self._address

    def image(self) -> Any:
        if not isinstance(self._owner, Tensor):
            return self._image
        return sys.modules["PIL.Image"].frombytes(
            self._mode, self._image.size, _bytes_of(self._owner), "raw", _RAW[self._mode]
        )


def lies_as(shape: Sizes) -> Facts:
    """How a picture of (channels, height, width) lies in one block."""
    channels, _, width = shape
    step = 4 if channels == 3 else 1
    return Facts(torch.uint8, shape, (1, width * step, step), CPU)


def _bytes_of(pixels: Tensor) -> bytes:
    return bytes(pixels.numpy()) if "numpy" in sys.modules else bytes(pixels.reshape(-1).tolist())


class RowMemory:
    """Where the rows of a picture begin: Pillow's own list of that, which is read at once."""

    def __init__(self, image: Any) -> None:
        self.image = image
        self._held: object = None  # what the list belongs to; the picture may get another one meanwhile

    def data_ptr(self) -> int:
        place = _place_of_rows()
        assert place is not None, "Pillow tells"
        self._held = self.image.getim()
        return _word_at(_struct_of(self._held) + place)


class BlockMemory:
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
    raw = image.tobytes("raw", _RAW[image.mode])
    return torch.frombuffer(bytearray(raw), dtype=torch.uint8).view(image.height, image.width, _PIXEL_BYTES[image.mode])


#: What Pillow's pixels are, where they are not bytes.
_PIL_DTYPES = {"I": torch.int32, "F": torch.float32, "I;16": torch.uint16}


def tensor_of_pil(image: Any) -> Tensor:
    """An image of any mode as torchvision's `pil_to_tensor` has it: (channels, height, width)."""
    if image.mode == "1":
        return tensor_of_pil(image.convert("L")) != 0
    (width, height), dtype = image.size, _PIL_DTYPES.get(image.mode, torch.uint8)
    data = bytearray(image.tobytes())
    pixels = torch.frombuffer(data, dtype=dtype) if data else torch.empty(0, dtype=dtype)
    return pixels.view(height, width, len(image.getbands())).permute(2, 0, 1)


# ---- where pixels lie in Pillow's memory


class _ArrowArray(ctypes.Structure):
    """As Arrow's C data interface has it, as far as it is read."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("length", "null_count", "offset", "n_buffers", "n_children")),
        ("buffers", ctypes.POINTER(ctypes.c_void_p)),
        ("children", ctypes.POINTER(ctypes.c_void_p)),
    )


_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
#: Of the capsule that has C's picture.
_CAPSULE = b"Pillow Imaging"


def _block(image: Any) -> tuple[int, object]:
    """The address of the pixels and what keeps them there; 0 where they are not one block, or Pillow does not tell.
    Arrow is not asked: of several blocks, and of arrays that were given, Pillow 11 and 12 may end the process."""
    place = _place_of_rows()
    if place is None:
        return 0, None
    held, (width, height) = image.getim(), image.size
    line = width * _PIXEL_BYTES[image.mode]
    rows = _words_at(_word_at(_struct_of(held) + place), height)
    is_one = rows == list(range(rows[0], rows[0] + height * line, line))
    return (rows[0], held) if is_one else (0, None)


def _block_by_arrow(image: Any) -> tuple[int, object]:
    """`_block` of a small new picture, which Arrow can be asked for."""
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
    expected = width * height * _PIXEL_BYTES[image.mode]
    if found.offset or pixels.offset or pixels.length != expected or pixels.n_buffers != 2:
        return 0, None
    return pixels.buffers[1] or 0, (schema, array)


#: Fields of C's picture, of 8 bytes each, that are looked through: fewer than any version of Pillow has.
_FIELDS = 10
#: Pictures of which one field alone is the list of rows; of one mode two are.
_SAMPLES = (("RGB", (7, 5)), ("L", (13, 9)), ("RGB", (32, 3)))


@functools.cache
def _place_of_rows() -> int | None:
    """Where C's picture has the address of its list of rows, in bytes; None where this Pillow does not tell. Versions
    differ, so it is looked for in small pictures, of which Arrow tells where their rows are."""
    image = sys.modules["PIL.Image"]
    if not hasattr(image.Image, "getim") or not hasattr(image.Image, "__arrow_c_array__"):
        return None
    try:
        found = [_fields_with_rows(image.new(mode, size)) for mode, size in _SAMPLES]
    except (ValueError, OSError):  # a capsule of another name, a system without a list of its memory
        return None
    places = set.intersection(*found)
    return places.pop() if len(places) == 1 else None


def _fields_with_rows(image: Any) -> set[int]:
    first, owner = _block_by_arrow(image)
    held = image.getim()
    width, height = image.size
    if first == 0 or owner is None:
        return set()
    wanted = [first + y * width * _PIXEL_BYTES[image.mode] for y in range(height)]
    fields = _words_at(_struct_of(held), _FIELDS)
    readable = _readable_memory()
    found = set()
    for number, value in enumerate(fields):
        end = value + height * 8
        if value % 8 == 0 and any(low <= value and end <= high for low, high in readable):
            found |= {8 * number} if _words_at(value, height) == wanted else set()
    return found


def _readable_memory() -> list[tuple[int, int]]:
    """Lists memory that can be read, from where to where, by the system's list: what a wrong field says is an address
    is not read."""
    with open("/proc/self/maps") as lines:
        parts = [line.split(maxsplit=2) for line in lines]
    ranges = [place.split("-") for place, allowed, _ in parts if allowed[0] == "r"]
    return [(int(low, 16), int(high, 16)) for low, high in ranges]


def _struct_of(capsule: object) -> int:
    return _pointer(capsule, _CAPSULE)  # type: ignore[no-any-return]


def _words_at(address: int, count: int) -> list[int]:
    return memoryview((ctypes.c_uint64 * count).from_address(address)).cast("B").cast("Q").tolist()


def _word_at(address: int) -> int:
    return ctypes.c_uint64.from_address(address).value


# ---- in which order Pillow sums

#: In which order bytes are summed in a resize: rows first where they become fewer and where the sum of these numbers
#: times the height, the new height, the width and the new width is more than 0; else columns first.
Order: TypeAlias = tuple[int, int, int, int]

COLUMNS_FIRST: Order = (0, 0, 0, 0)
#: Those of versions up to 12.1, of 12.2 and 12.3 (pictures more than 100 times as high as wide), and of 13.
_ORDERS: tuple[Order, ...] = (COLUMNS_FIRST, (1, 0, -100, 0), (1, -1, -2, 2))


def sums_rows_first(order: Order, size: tuple[int, int], new: tuple[int, int]) -> bool:
    weighed = sum(weight * n for weight, n in zip(order, (size[0], new[0], size[1], new[1]), strict=True))
    return new[0] < size[0] and weighed > 0


#: From which height and width to which: around where orders change.
_RESIZES = (
    *(((31, 23), (21, 18)), ((32, 23), (21, 18)), ((23, 31), (21, 40)), ((21, 31), (23, 40)), ((9, 40), (8, 11))),
    *(((40, 9), (11, 12)), ((90, 12), (80, 7)), ((90, 13), (80, 7)), ((303, 3), (200, 2)), ((300, 3), (298, 2))),
    *(((303, 3), (302, 2)), ((303, 3), (400, 2)), ((17, 29), (18, 3)), ((29, 17), (3, 18)), ((64, 48), (32, 24))),
)


@functools.cache
def order_of_sums() -> Order | None:
    """That of this Pillow, found out by trying: what is rounded in between differs. None of one that is not known."""
    tried = {sizes: _order_tried(*sizes) for sizes in _RESIZES}
    fits = [order for order in _ORDERS if all(sums_rows_first(order, *sizes) == was for sizes, was in tried.items())]
    return fits[0] if len(fits) == 1 else None


def _order_tried(size: tuple[int, int], new: tuple[int, int]) -> bool | None:
    """Whether a resize sums rows first; None where it does neither, or both are the same."""
    pillow, (height, width), (new_height, new_width) = sys.modules["PIL.Image"], size, new
    noise, bilinear = bytes((n * n * 31 + n * 7919) % 251 for n in range(height * width)), pillow.Resampling.BILINEAR
    image, target = pillow.frombytes("L", (width, height), noise), (new_width, new_height)
    resized = image.resize(target, bilinear).tobytes()
    rows_first, columns_first = (
        image.resize(between, bilinear).resize(target, bilinear).tobytes()
        for between in ((width, new_height), (new_width, height))
    )
    is_one_of_them = (resized == rows_first) != (resized == columns_first)
    return resized == rows_first if is_one_of_them else None


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


def _copy(image: Any) -> Any:
    return image.copy()


_EDITS: dict[str, Callable[..., Any]] = {"copy": _copy, "crop": _cropped, "flip": _flipped, "pad": _padded}


# ---- what Pillow does more slowly than a kernel


def warped_by(function: Callable[[Any], Any], image: Any) -> Any:
    """What a function makes of a picture by Pillow's own methods, with its warps done by a kernel; and of anything
    else, as it is."""
    if not is_pil(image) or image.mode not in PIL_CHANNELS or 0 in image.size or _place_of_rows() is None:
        return function(image)
    image.load()
    warped = _with_kernels()()
    warped.im, warped.info = image.im, image.info
    vars(warped).update(_mode=image.mode, _size=image.size)  # which Pillow lets nobody set
    made = function(warped)
    return image if made is warped else made


#: Of a warp, as `launch/pictures.h` has it; and `Filter` there, which are Pillow's numbers but for the second.
_WARP = struct.Struct("=6q8d")
_NEAREST, _FIXED_NEAREST, _BILINEAR, _BICUBIC = range(4)
#: Fixed numbers are less, and the sides of pictures that they are for.
_MOST_FIXED = 1 << 15


@functools.cache
def _with_kernels() -> type[Any]:
    """Pillow's class of pictures, but for how `transform` warps, which `rotate` calls too."""
    pillow = sys.modules["PIL.Image"]

    class Warped(pillow.Image):  # type: ignore[misc, name-defined]
        def transform(
            self, size: Any, method: Any, data: Any = None, resample: Any = 0, fill: Any = 1, fillcolor: Any = None
        ) -> Any:
            count = {pillow.Transform.AFFINE: 6, pillow.Transform.PERSPECTIVE: 8}.get(method)
            if count is not None and len(data) >= count and min(size) > 0:
                by = _filter(int(resample), data[:count], (self.size, size))
                made = None if by is None else _warped(self, size, data[:count], by, fillcolor)
                if made is not None:
                    return made
            return super().transform(size, method, data, resample, fill, fillcolor)

    return Warped


def _filter(resample: int, numbers: Sequence[float], sizes: tuple[tuple[int, int], tuple[int, int]]) -> int | None:
    """None where Pillow does it alone: where it copies parts of rows, or does not know the filter. Its affine warps by
    nearest pixels are in fixed numbers if all corners are small enough for these."""
    if resample != _NEAREST or len(numbers) == 8:
        return resample if resample in (_NEAREST, _BILINEAR, _BICUBIC) else None
    a, b, c, d, e, f = numbers
    given, (width, height) = sizes
    corners = [(x, y) for x in (0, width) for y in (0, height)]
    is_small = max(given) < _MOST_FIXED
    is_small = is_small and all(max(abs(x * a + y * b + c), abs(x * d + y * e + f)) < _MOST_FIXED for x, y in corners)
    return _FIXED_NEAREST if is_small and (b != 0 or d != 0) else None


def _warped(image: Any, size: tuple[int, int], numbers: Sequence[float], by: int, fill: Any) -> Any:
    """A new picture, of which each pixel lies at `numbers` of its centre; None where no kernel can be had."""
    warp = devices.wing_of(CPU).warp_picture if devices.has_kernels("cpu") else None
    made, (width, height) = sys.modules["PIL.Image"].new(image.mode, size, fill), size
    bands = PIL_CHANNELS[image.mode]
    packed = _WARP.pack(image.height, image.width, height, width, bands, by, *numbers, *[0.0] * (8 - len(numbers)))
    try:
        if warp is None or not warp(packed, RowMemory(image), RowMemory(made)):
            return None
    except NOT_BUILT:
        return None
    made.info = image.info.copy()
    return made
