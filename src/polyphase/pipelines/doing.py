"""What several transforms do to a picture, and why they cannot."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from polyphase.errors import NotSupportedError
from polyphase.pipelines.given import BY_NUMBER, PAD_MODES, colour_of
from polyphase.pipelines.picture import NEAREST, PIL, Picture
from polyphase.pipelines.pillow import order_of_sums, sums_rows_first

#: What is only moved by a warp, or weighed. Others would have coordinates of half precision.
WARPED = (torch.uint8, torch.int16, torch.int32, torch.float32, torch.float64)
RESIZED = (*WARPED, torch.int8, torch.float16, torch.bfloat16)
COMPUTED_BY_PIPELINES = (*RESIZED, torch.int64, torch.bool)
#: Of which any is exactly a float32, by way of which torchvision pads them.
SMALL = (torch.uint8, torch.int8, torch.int16)


def resize(
    picture: Picture, size: tuple[int, int], mode: str, antialias: bool | None, *, in_floats: bool = False
) -> None:
    if size == (picture.height, picture.width):
        return
    if min(size) < 1:
        _refuse(picture, size)
    elif picture.kind != PIL:
        picture.resize(*size, mode, bool(antialias) and mode not in NEAREST, in_floats=in_floats)
    else:
        _resize_pillow(picture, size, mode)


def _refuse(picture: Picture, size: tuple[int, int]) -> None:
    """Raises the error that there is for a size without pixels."""
    if picture.kind == PIL:
        picture.by_pillow(lambda image: image.resize(size[::-1]))
    else:
        picture.by_torch(lambda image: torch.nn.functional.interpolate(image.reshape(-1, *image.shape[-3:]), size))


def _resize_pillow(picture: Picture, size: tuple[int, int], mode: str) -> None:
    order = order_of_sums()
    if mode in NEAREST or order is None:
        number = next(number for number, name in BY_NUMBER.items() if name == mode.removesuffix("-exact"))
        picture.by_pillow(lambda image: image.resize(size[::-1], number))
    else:  # which Pillow always smooths
        picture.resize(*size, mode, True, rows_first=sums_rows_first(order, (picture.height, picture.width), size))


def pad(picture: Picture, amounts: tuple[int, ...], fill: Any, mode: str) -> None:
    colour = colour_of(fill, picture.kind) or (0.0,)
    named = PAD_MODES[mode]
    if len(set(colour)) > 1:
        picture.by_torch(lambda image: _coloured(image, amounts, colour))
    else:
        picture.pad(amounts, colour[0] if named == "constant" else 0, named)


def _coloured(image: Tensor, amounts: tuple[int, ...], colour: tuple[float, ...]) -> Tensor:
    """Pads with a border of one value for each channel; negative amounts crop."""
    left, right, top, bottom = amounts
    padded = torch.nn.functional.pad(image.reshape(-1, *image.shape[-3:]), amounts)
    height, width = padded.shape[-2:]
    values = torch.tensor(colour, device=image.device).to(image.dtype).reshape(-1, 1, 1)
    for dim, start, length in ((-2, 0, top), (-2, height - bottom, bottom), (-1, 0, left), (-1, width - right, right)):
        if length > 0:
            padded.narrow(dim, start, length).copy_(values)
    return padded.reshape(*image.shape[:-2], height, width)


def why_not_moved(picture: Picture) -> str | None:
    return (
        None if len(picture.shape) >= 3 else f"it has the shape {tuple(picture.shape)}: (..., channels, height, width)"
    )


def why_not_resized(picture: Picture, mode: str, antialias: bool | None, *, in_floats: bool = False) -> str | None:
    if picture.kind == PIL:
        return "a Pillow image is always antialiased: leave antialias out" if antialias is False else None
    if picture.dtype not in RESIZED and not (mode in NEAREST and picture.dtype == torch.int64):
        return f"kernels do not resize {picture.dtype}: convert it"
    if mode in ("box", "hamming") or (mode == "lanczos" and (in_floats or not antialias)):
        return f"torchvision has no {mode} for such tensors"
    return why_not_moved(picture)


def why_not_padded(picture: Picture, fill: Any, mode: str) -> str | None:
    colour = colour_of(fill, picture.kind)
    if colour is not None and len(colour) not in (1, picture.channels):
        return f"there are {len(colour)} values to fill {picture.channels} channels with"
    if colour is not None and len(set(colour)) > 1 and mode != "constant":
        return "only a constant border has colours"
    if picture.kind == PIL and (mode != "constant" or len(set(colour or (0,))) > 1 or (colour or (0.0,))[0] % 1):
        return "Pillow pads its images by rules of its own"
    if mode in ("edge", "reflect") and not (picture.dtype.is_floating_point or picture.dtype in SMALL):
        return f"torchvision pads {picture.dtype} by way of floats"
    return why_not_moved(picture)


def why_not_warped(picture: Picture, mode: str, fill: Any) -> str | None:
    if picture.kind == PIL:
        return "Pillow warps its images by rules of its own: put ToImage() before"
    if mode not in ("nearest", "bilinear"):
        return f"torchvision warps tensors by nearest and bilinear, not {mode}"
    if picture.dtype not in WARPED:
        return f"kernels do not warp {picture.dtype}: convert it"
    if len(picture.shape) not in (3, 4):
        return f"it has the shape {tuple(picture.shape)}: (channels, height, width), or a batch of them"
    colour = colour_of(fill, picture.kind)
    if colour is not None and len(colour) not in (1, picture.channels):
        return f"there are {len(colour)} values to fill {picture.channels} channels with"
    if colour is not None and not all(map(math.isfinite, colour)):
        return f"the picture would be blended with {colour}: give finite numbers"
    return None


def not_an_image(transform: object, sample: object) -> NotSupportedError:
    seen = f"shape {tuple(sample.shape)} of {sample.dtype}" if isinstance(sample, Tensor) else repr(sample)[:60]
    return NotSupportedError(
        f"{transform} of a {type(sample).__name__}, {seen}; give an image: a tensor (..., channels, height, width) "
        "that is not empty, a Pillow image of mode RGB or L (convert others), or an array (height, width, channels)"
    )


def not_fused(transform: object, picture: Picture, reason: str) -> NotSupportedError:
    return NotSupportedError(
        f"{transform} of a {picture.kind} of {picture.dtype}, shape {tuple(picture.shape)}: {reason}"
    )
