"""A sample image through each filter, ours and eager's, as PNG; drawn and encoded here, without another library."""

from __future__ import annotations

import base64
import math
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

import polyphase.functional as P
from polyphase.bench.operations import POLYPHASE, PYTORCH, AffineWarp, Resize
from polyphase.bench.work import in_double, rounded
from polyphase.sampling import reference, text

SIDE = 192  # of the sample
SMALL, LARGE = (112, 112), (256, 256)
AMPLIFIED = 64
WINDOW = 112  # of a picture that is shown: the middle of a larger one


@dataclass(frozen=True)
class Picture:
    """`eager` is False where eager has no such filter, and the float64 reference stands in for it."""

    name: str
    ours: str
    theirs: str
    difference: str
    levels: int
    pixels: int  # that differ at all
    eager: bool


def pictures() -> list[Picture]:
    """Image data as URIs."""
    image = sample()
    return [_picture(image, one) for one in _filters()]


Filter = tuple[str, Callable[[Tensor], Tensor], Callable[[Tensor], Tensor], bool]


def _filters() -> list[Filter]:
    found: list[Filter] = []
    for mode in ("bilinear", "bicubic", "lanczos", "hamming", "box"):
        name = f"{mode}, antialiased, smaller"
        if hasattr(torch.ops.aten, f"_upsample_{mode}2d_aa"):  # lanczos is newer than the oldest torch we support
            found.append(_resize(name, Resize(SMALL, mode, antialias=True)))
        else:
            found.append((name, _ours(mode), _reference(mode), False))
    for mode in ("nearest-exact", "bilinear", "bicubic"):
        found.append(_resize(f"{mode}, larger", Resize(LARGE, mode)))
    warp = AffineWarp("bicubic", degrees=20.0, scale=0.9, shift=(0.0, 0.0))
    found.append(("bicubic, turned by 20 degrees", _warped(warp), _warped_in_double(warp), True))
    return found


def _resize(name: str, operation: Resize) -> Filter:
    return name, operation.function(POLYPHASE), operation.function(PYTORCH), True


def _ours(mode: str) -> Callable[[Tensor], Tensor]:
    return lambda image: P.interpolate(image, size=SMALL, mode=mode, antialias=True)


def _reference(mode: str) -> Callable[[Tensor], Tensor]:
    axes = ", ".join(f"axismap([resize({size}, {mode}, antialias=True)])" for size in SMALL)
    program = text.from_text(f"program(uint8, axes([{axes}]))")
    return lambda image: reference.run(program, image)


def _warped(warp: AffineWarp) -> Callable[[Tensor], Tensor]:
    return lambda image: warp.function(POLYPHASE)(image, warp.theta().float())


def _warped_in_double(warp: AffineWarp) -> Callable[[Tensor], Tensor]:
    """Eager does not warp bytes."""
    return lambda image: rounded(warp.function(PYTORCH)(*in_double((image, warp.theta()))), torch.uint8)


def _picture(image: Tensor, wanted: Filter) -> Picture:
    name, ours, theirs, eager = wanted
    mine, its = ours(image), theirs(image)
    off = (mine.int() - its.int()).abs()
    amplified = (off * AMPLIFIED).clamp(max=255).byte()
    return Picture(
        name, _uri(mine), _uri(its), _uri(amplified), int(off.max()), int(off.amax(1).count_nonzero()), eager
    )


def sample() -> Tensor:
    """(1, 3, SIDE, SIDE) bytes: rings that grow finer outwards, colours, hard edges and thin lines."""
    y, x = torch.meshgrid(*[torch.linspace(-1, 1, SIDE, dtype=torch.float64)] * 2, indexing="ij")
    rings = 0.5 + 0.5 * torch.cos(math.pi * SIDE / 4 * (x.square() + y.square()))
    image = torch.stack([rings, rings * (0.6 + 0.4 * x), rings * (0.6 - 0.4 * y)])
    left, top = x < -0.5, y < -0.5
    spokes = (torch.atan2(y + 0.75, x + 0.75) * 12 / math.pi).floor() % 2
    image = torch.where(left & top, spokes, image)
    lines = ((x * SIDE / 2).floor() % 6 == 0).double()
    ramp = torch.stack([(x + 1) / 2, (y + 1) / 2, 1 - (x + 1) / 2])
    image = torch.where(~top & (y > 0.6) & (x > 0.2), lines, image)
    image = torch.where(left & (y > 0.6), ramp, image)
    return (image * 255).round().byte()[None]


def _middle(image: Tensor) -> Tensor:
    height, width = image.shape[-2:]
    top, left = max(0, (height - WINDOW) // 2), max(0, (width - WINDOW) // 2)
    return image[0, :, top : top + WINDOW, left : left + WINDOW]


def _uri(image: Tensor) -> str:
    return uri_of_png(png(_middle(image)))


def uri_of_png(data: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(data).decode()}"


def png(image: Tensor) -> bytes:
    """Encodes (3, height, width) bytes as a PNG file."""
    _, height, width = image.shape
    rows = image.permute(1, 2, 0).reshape(height, 3 * width)
    filtered = F.pad(rows, (1, 0))  # each row begins with its filter's number: 0 is none
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    data = zlib.compress(bytes(filtered.flatten().tolist()), 9)
    return b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", header) + _chunk(b"IDAT", data) + _chunk(b"IEND", b"")


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
