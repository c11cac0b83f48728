"""Transforms of sizes: resizes, crops, borders and flips."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from polyphase.errors import WrongArgumentError
from polyphase.pipelines.doing import pad, resize, why_not_moved, why_not_padded, why_not_resized
from polyphase.pipelines.draws import (
    Canvas,
    Chance,
    Draws,
    Integer,
    JitteredSize,
    OneOf,
    Place,
    ResizedBox,
    whole_numbers,
)
from polyphase.pipelines.given import (
    amounts_of,
    check_fill,
    check_padding,
    check_probability,
    interpolation_name,
    pair,
)
from polyphase.pipelines.picture import Picture
from polyphase.pipelines.recording import Size, square_root
from polyphase.pipelines.vocabulary import NO_PARAMS, Params, Transform


@dataclass(frozen=True)
class Resize(Transform):
    """Resizes to another size, antialiased. `size`: (height, width), or of the shorter side. `max_size`: limits the
    longer side; alone, the longer side is that."""

    size: Any
    interpolation: Any = "bilinear"
    max_size: int | None = None
    antialias: bool | None = True
    in_floats: bool = field(default=False, repr=False)  # how v1 sums bytes

    def __post_init__(self) -> None:
        size = (self.size,) if isinstance(self.size, int) else None if self.size is None else tuple(self.size)
        if size is not None and (len(size) not in (1, 2) or not all(isinstance(n, int) and n > 0 for n in size)):
            raise WrongArgumentError(f"size={self.size}; give one number of pixels, or (height, width), of 1 or more")
        if size is None and self.max_size is None:
            raise WrongArgumentError("neither size nor max_size; give the size of the shorter, or of the longer side")
        if self.max_size is not None and size is not None and (len(size) == 2 or self.max_size <= size[0]):
            raise WrongArgumentError(
                f"size={self.size} and max_size={self.max_size}; max_size limits the longer side where size is of the "
                "shorter: give one number as the size, and a greater max_size"
            )
        object.__setattr__(self, "size", size)
        object.__setattr__(self, "interpolation", interpolation_name(self.interpolation))

    def why_not(self, picture: Picture) -> str | None:
        reason = why_not_resized(picture, self.interpolation, self.antialias, in_floats=self.in_floats)
        return reason or ("it would have no pixels" if 0 in self.sized(picture.height, picture.width) else None)

    def sized(self, height: Size, width: Size) -> tuple[Size, Size]:
        return _sized(self.size, self.max_size, height, width)

    def apply(self, picture: Picture, params: Params) -> None:
        size = self.sized(picture.height, picture.width)
        resize(picture, size, self.interpolation, self.antialias, in_floats=self.in_floats)


def _sized(size: tuple[Size, ...] | None, max_size: int | None, height: Size, width: Size) -> tuple[Size, Size]:
    """Computes the size, as torchvision rounds."""
    if size is not None and len(size) == 2:
        return size[0], size[1]
    shorter, longer = (width, height) if width <= height else (height, width)
    if size is None:
        new_shorter, new_longer = math.trunc(max_size * shorter / longer), max_size
    else:
        new_shorter, new_longer = size[0], math.trunc(size[0] * longer / shorter)
        if max_size and new_longer > max_size:
            new_shorter, new_longer = math.trunc(max_size * new_shorter / new_longer), max_size
    return (new_longer, new_shorter) if width <= height else (new_shorter, new_longer)


@dataclass(frozen=True)
class SmartResize(Transform):
    """Resizes to multiples of `factor` pixels, near the image's own sizes, and from `min_pixels` to `max_pixels` of
    them: as vision-language models have it (`smart_resize`)."""

    factor: int = 28
    min_pixels: int = 56 * 56
    max_pixels: int = 28 * 28 * 1280
    interpolation: Any = "bicubic"
    antialias: bool | None = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "interpolation", interpolation_name(self.interpolation))
        if not 0 < self.factor**2 <= self.max_pixels or self.min_pixels > self.max_pixels:
            raise WrongArgumentError(
                f"factor={self.factor}, min_pixels={self.min_pixels}, max_pixels={self.max_pixels}; a square of "
                "`factor` pixels must not be more than `max_pixels`, nor `min_pixels` be"
            )

    def why_not(self, picture: Picture) -> str | None:
        return why_not_resized(picture, self.interpolation, self.antialias)

    def sized(self, height: Size, width: Size) -> tuple[Size, Size]:
        factor = self.factor
        rows, columns = (round(n / factor) for n in (height, width))
        if rows * columns * factor**2 > self.max_pixels:
            shrink = square_root(height * width / self.max_pixels)
            rows, columns = (math.floor(n / shrink / factor) for n in (height, width))
        elif rows * columns * factor**2 < self.min_pixels:
            grow = square_root(self.min_pixels / (height * width))
            rows, columns = (math.ceil(n * grow / factor) for n in (height, width))
        return max(rows, 1) * factor, max(columns, 1) * factor

    def apply(self, picture: Picture, params: Params) -> None:
        resize(picture, self.sized(picture.height, picture.width), self.interpolation, self.antialias)


@dataclass(frozen=True)
class CenterCrop(Transform):
    """The middle of an image; what it lacks is black."""

    size: Any
    as_batch: bool = field(default=False, repr=False)  # how v1 pads

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", pair(self.size))

    def why_not(self, picture: Picture) -> str | None:
        return why_not_moved(picture)

    def apply(self, picture: Picture, params: Params) -> None:
        height, width = self.size
        if height > picture.height or width > picture.width:
            down, across = max(height - picture.height, 0), max(width - picture.width, 0)
            amounts = (across // 2, (across + 1) // 2, down // 2, (down + 1) // 2)
            picture.pad(amounts, 0, "constant", as_batch=self.as_batch)
        top, left = round((picture.height - height) / 2.0), round((picture.width - width) / 2.0)
        picture.crop(top, left, height, width)


@dataclass(frozen=True)
class RandomResizedCrop(Transform):
    """A part of an image, of a random area (`scale`: its share of the image) and ratio of width to height, resized."""

    size: Any
    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3.0 / 4.0, 4.0 / 3.0)
    interpolation: Any = "bilinear"
    antialias: bool | None = True
    in_floats: bool = field(default=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", pair(self.size))
        object.__setattr__(self, "scale", tuple(self.scale))
        object.__setattr__(self, "ratio", tuple(self.ratio))
        object.__setattr__(self, "interpolation", interpolation_name(self.interpolation))

    def why_not(self, picture: Picture) -> str | None:
        return why_not_resized(picture, self.interpolation, self.antialias, in_floats=self.in_floats)

    def draws(self) -> Draws:
        return (ResizedBox(self.scale, self.ratio),)

    def params(self, drawn: Iterator[float], height: int, width: int) -> Params:
        top, left, rows, columns = whole_numbers(drawn, 4)
        return {"top": top, "left": left, "height": rows, "width": columns}

    def apply(self, picture: Picture, params: Params) -> None:
        picture.crop(params["top"], params["left"], params["height"], params["width"])
        resize(picture, self.size, self.interpolation, self.antialias, in_floats=self.in_floats)


@dataclass(frozen=True)
class _RandomSize(Transform):
    """A resize to a size that is drawn: `size` of the parameters, as `Resize` has it."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "interpolation", interpolation_name(self.interpolation))  # type: ignore[attr-defined]

    def why_not(self, picture: Picture) -> str | None:
        return why_not_resized(picture, self.interpolation, self.antialias)  # type: ignore[attr-defined]

    def apply(self, picture: Picture, params: Params) -> None:
        size = _sized(params["size"], None, picture.height, picture.width)
        resize(picture, size, self.interpolation, self.antialias)  # type: ignore[attr-defined]


@dataclass(frozen=True)
class RandomResize(_RandomSize):
    """The shorter side as long as a random number, from `min_size` on and less than `max_size`."""

    min_size: int
    max_size: int
    interpolation: Any = "bilinear"
    antialias: bool | None = True

    def draws(self) -> Draws:
        return (Integer(self.min_size, self.max_size),)

    def params(self, drawn: Iterator[float], height: int, width: int) -> Params:
        return {"size": tuple(whole_numbers(drawn, 1))}


@dataclass(frozen=True)
class RandomShortestSize(_RandomSize):
    """The shorter side as long as one of several numbers. `max_size`: limits the longer side."""

    min_size: Any
    max_size: int | None = None
    interpolation: Any = "bilinear"
    antialias: bool | None = True

    def __post_init__(self) -> None:
        super().__post_init__()
        sizes = (self.min_size,) if isinstance(self.min_size, int) else tuple(self.min_size)
        object.__setattr__(self, "min_size", sizes)

    def draws(self) -> Draws:
        return (OneOf(self.min_size),)

    def params(self, drawn: Iterator[float], height: int, width: int) -> Params:
        ratio = next(drawn) / min(height, width)
        if self.max_size is not None:
            ratio = min(ratio, self.max_size / max(height, width))
        return {"size": (math.trunc(height * ratio), math.trunc(width * ratio))}


@dataclass(frozen=True)
class ScaleJitter(_RandomSize):
    """Resizes to as large as fits into (width, height), and then so many times as large, between two numbers."""

    target_size: tuple[int, int]
    scale_range: tuple[float, float] = (0.1, 2.0)
    interpolation: Any = "bilinear"
    antialias: bool | None = True

    def draws(self) -> Draws:
        return (JitteredSize(tuple(self.target_size), tuple(self.scale_range)),)  # type: ignore[arg-type]

    def params(self, drawn: Iterator[float], height: int, width: int) -> Params:
        return {"size": tuple(whole_numbers(drawn, 2))}


@dataclass(frozen=True)
class Letterbox(Transform):
    """Resized to be as large as fits into (height, width), with a border around, or below and to the right (`centred`
    False). Not torchvision's: detectors and processors of models use it.

    Sizes are rounded to the nearest (ties to even), and of an odd border the greater part is below and to the right: as
    ultralytics' `LetterBox` does, whose images are resized without antialias.
    """

    size: Any
    fill: float = 0
    interpolation: Any = "bilinear"
    antialias: bool | None = True
    centred: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", pair(self.size))
        object.__setattr__(self, "interpolation", interpolation_name(self.interpolation))

    def why_not(self, picture: Picture) -> str | None:
        return why_not_resized(picture, self.interpolation, self.antialias)

    def apply(self, picture: Picture, params: Params) -> None:
        ratio = min(self.size[0] / picture.height, self.size[1] / picture.width)
        size = max(round(picture.height * ratio), 1), max(round(picture.width * ratio), 1)
        resize(picture, size, self.interpolation, self.antialias)
        down, across = self.size[0] - picture.height, self.size[1] - picture.width
        top, left = (down // 2, across // 2) if self.centred else (0, 0)
        if down or across:
            picture.pad((left, across - left, top, down - top), self.fill, "constant")


@dataclass(frozen=True)
class Pad(Transform):
    """A border around. `padding`: one number, (left and right, top and bottom), or (left, top, right, bottom)."""

    padding: Any
    fill: Any = 0
    padding_mode: str = "constant"

    def __post_init__(self) -> None:
        check_padding(self.padding, self.padding_mode)
        check_fill(self.fill)

    def why_not(self, picture: Picture) -> str | None:
        return why_not_padded(picture, self.fill, self.padding_mode)

    def apply(self, picture: Picture, params: Params) -> None:
        pad(picture, amounts_of(self.padding), self.fill, self.padding_mode)


@dataclass(frozen=True)
class RandomCrop(Transform):
    """A part of an image at a random place, after borders were put around it if `padding` says so."""

    size: Any
    padding: Any = None
    pad_if_needed: bool = False
    fill: Any = 0
    padding_mode: str = "constant"
    as_v1: bool = field(default=False, repr=False)  # draws, pads and crops also where that changes nothing

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", pair(self.size))
        if self.padding is not None:
            check_padding(self.padding, self.padding_mode)
        check_fill(self.fill)

    def why_not(self, picture: Picture) -> str | None:
        if self.padding is not None or self.pad_if_needed:
            return why_not_padded(picture, self.fill, self.padding_mode)
        return why_not_moved(picture)

    def draws(self) -> Draws:
        left, right, top, bottom = amounts_of(self.padding) if self.padding else (0, 0, 0, 0)
        return (Place(self.size, (left, top, right, bottom), self.pad_if_needed, self.as_v1),)

    def params(self, drawn: Iterator[float], height: int, width: int) -> Params:
        top, left, *border = whole_numbers(drawn, 6)
        rows, columns = height + border[1] + border[3], width + border[0] + border[2]
        return {
            "needs_crop": (rows, columns) != self.size,
            "top": top,
            "left": left,
            "height": self.size[0],
            "width": self.size[1],
            "needs_pad": any(border),
            "padding": border,
        }

    def apply(self, picture: Picture, params: Params) -> None:
        if any(params["padding"]) or (self.as_v1 and self.padding is not None):
            pad(picture, amounts_of(params["padding"]), self.fill, self.padding_mode)
        if self.as_v1 or (params["height"], params["width"]) != (picture.height, picture.width):
            picture.crop(params["top"], params["left"], params["height"], params["width"])


@dataclass(frozen=True)
class RandomZoomOut(Transform):
    """Somewhere on a canvas whose sides are a random number of times as long, with probability `p`."""

    fill: Any = 0
    side_range: tuple[float, float] = (1.0, 4.0)
    p: float = 0.5

    def __post_init__(self) -> None:
        check_fill(self.fill)
        check_probability(self.p)
        if len(self.side_range) != 2 or not 1 <= self.side_range[0] <= self.side_range[1]:
            raise WrongArgumentError(f"side_range={self.side_range}; give two numbers of 1 or more, the lesser first")

    def why_not(self, picture: Picture) -> str | None:
        return why_not_padded(picture, self.fill, "constant")

    def draws(self) -> Draws:
        return (Chance(self.p, (Canvas(tuple(self.side_range)),)),)  # type: ignore[arg-type]

    def params(self, drawn: Iterator[float], height: int, width: int) -> Params | None:
        return {"padding": whole_numbers(drawn, 4)} if next(drawn) else None

    def apply(self, picture: Picture, params: Params) -> None:
        pad(picture, amounts_of(params["padding"]), self.fill, "constant")


# ---- flips


@dataclass(frozen=True)
class _RandomFlip(Transform):
    p: float = 0.5

    def __post_init__(self) -> None:
        check_probability(self.p)

    def why_not(self, picture: Picture) -> str | None:
        return why_not_moved(picture)

    def draws(self) -> Draws:
        return (Chance(self.p),)

    def params(self, drawn: Iterator[float], height: int, width: int) -> Params | None:
        return NO_PARAMS if next(drawn) else None


@dataclass(frozen=True)
class RandomHorizontalFlip(_RandomFlip):
    """Mirrored left to right, with probability `p`."""

    def apply(self, picture: Picture, params: Params) -> None:
        picture.flip(-1)


@dataclass(frozen=True)
class RandomVerticalFlip(_RandomFlip):
    """Upside down, with probability `p`."""

    def apply(self, picture: Picture, params: Params) -> None:
        picture.flip(-2)
