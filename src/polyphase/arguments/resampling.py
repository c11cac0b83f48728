"""From the arguments of `interpolate`, `flip` and `pad` to their axis maps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from numbers import Real
from typing import Any, TypeAlias

import torch
from torch import Tensor

from polyphase.arguments.boxes import SIDES, boxes_of
from polyphase.arguments.integers import are_known, integers, number, switch
from polyphase.arguments.integers import sizes as sizes_of
from polyphase.errors import (
    NotSupportedError,
    PolyphaseError,
    TooWidePadError,
    WrongArgumentError,
    WrongArgumentTypeError,
    WrongDimensionError,
    WrongSizeError,
)
from polyphase.sampling.axis_maps import AxisMap
from polyphase.sampling.integers import SUMMED_IN
from polyphase.sampling.steps import PAD_MODES, Area, Box, Flip, Nearest, Pad, Resize, Size, Slice, Step

Maps: TypeAlias = tuple[AxisMap, ...]

#: How many spatial axes each mode of `interpolate` is for.
AXES: dict[str, tuple[int, ...]] = {
    "nearest": (1, 2, 3),
    "nearest-exact": (1, 2, 3),
    "area": (1, 2, 3),
    "linear": (1,),
    "bilinear": (2,),
    "trilinear": (3,),
    "bicubic": (2,),
    "lanczos": (1, 2, 3),
    "hamming": (1, 2, 3),
    "box": (1, 2, 3),
}
#: The filter of each mode that has one. These modes can be antialiased.
FILTERS = {
    "linear": "bilinear",
    "bilinear": "bilinear",
    "trilinear": "bilinear",
    "bicubic": "bicubic",
    "lanczos": "lanczos",
    "hamming": "hamming",
    "box": "box",
}
ONLY_ANTIALIASED = ("lanczos", "hamming", "box")
TAKES_ALIGN_CORNERS = ("linear", "bilinear", "trilinear", "bicubic")

#: What eager mixes pixels in. Modes that only move pixels take every dtype.
WEIGHTED_DTYPES = (torch.uint8, torch.float16, torch.bfloat16, torch.float32, torch.float64)
#: And what our functions do.
MIXED_DTYPES = (*WEIGHTED_DTYPES, *SUMMED_IN)

#: The ranks that a pad of so many axes takes, unless its border is constant: with or without a batch.
PAD_RANKS = {1: (2, 3), 2: (3, 4), 3: (4, 5)}


def resize_maps(
    shape: Sequence[Size],
    dtype: torch.dtype,
    size: Any,
    scale_factor: Any,
    mode: str,
    align_corners: bool | None,
    recompute_scale_factor: bool | None,
    antialias: bool,
    box: Any = None,
) -> Maps:
    """The maps of `interpolate`, one per spatial axis.

    A scale factor is kept where eager hands it down to its kernels: it then gives the ratio, not only the size.
    """
    axes = len(shape) - 2
    align_corners = switch(align_corners, "align_corners")
    recompute_scale_factor = switch(recompute_scale_factor, "recompute_scale_factor")
    antialias = bool(switch(antialias, "antialias"))
    if not isinstance(mode, str):
        raise _unknown_mode(mode, antialias)
    scales = None
    if box is not None and (scale_factor is not None or recompute_scale_factor):
        raise WrongArgumentError(f"interpolate with box={box} and a scale_factor; give the size that the box becomes")
    if scale_factor is None and not recompute_scale_factor:
        sizes = (size,) * axes if type(size) is int else _sizes(size, shape)
    else:
        scales = _scales(size, scale_factor, shape, tensors_too=recompute_scale_factor or mode == "area")
        sizes = tuple(_scaled(n, scale) for n, scale in zip(shape[2:], scales, strict=True))
        if recompute_scale_factor or mode == "area":
            scales = None
    maps_of = _remembered_resize_maps if are_known(*sizes) else _resize_maps
    boxes = None if box is None or axes not in SIDES else boxes_of(box, shape, mode, align_corners)
    maps = maps_of(mode, axes, dtype, sizes, scales, align_corners, antialias, boxes)
    if 0 in shape:
        _check_not_empty(shape, mode)
    return maps


def _scaled(size: Size, scale: float) -> Size:
    if are_known(size) and math.isinf(size * scale):
        raise WrongSizeError(
            f"scale_factor {scale} of an axis of {size} pixels; no memory has so many: give a smaller one"
        )
    return int(size * scale) if are_known(size) else torch.sym_int(size * scale)


def _resize_maps(
    mode: str,
    axes: int,
    dtype: torch.dtype,
    sizes: tuple[Size, ...],
    scales: tuple[float, ...] | None,
    align_corners: bool | None,
    antialias: bool,
    boxes: tuple[Box, ...] | None,
) -> Maps:
    _check_mode(mode, axes, align_corners, antialias)
    least = 0 if mode == "area" else 1
    if any([size < least for size in sizes]):  # noqa: C419 a generator takes longer
        raise WrongSizeError(
            f"interpolate to size {sizes} with mode {mode!r}; every output size must be at least {least}: "
            "give a larger size or scale_factor"
        )
    if mode not in ("nearest", "nearest-exact") and dtype not in MIXED_DTYPES:
        raise NotSupportedError(
            f"interpolate with mode {mode!r} of a {dtype} image; it mixes pixels, which can be "
            f"{', '.join(map(str, MIXED_DTYPES))}: cast the image, or use mode 'nearest'"
        )
    given = zip(sizes, scales or (None,) * axes, boxes or (None,) * axes, strict=True)
    map_of = _remembered_resize_map if are_known(*sizes) else _resize_map
    return tuple([map_of(size, scale, box, mode, bool(align_corners), bool(antialias)) for size, scale, box in given])


def _resize_map(
    size: Size, scale: float | None, box: Box | None, mode: str, align_corners: bool, antialias: bool
) -> AxisMap:
    step: Step
    if mode == "area":
        step = Area(size) if size > 0 else Slice(0, 0)  # eager has a mean of nothing, an empty image
    elif mode in FILTERS:
        step = Resize(size, FILTERS[mode], antialias, align_corners, scale, box)
    else:
        step = Nearest(size, mode == "nearest-exact", scale, box)
    return AxisMap((step,))


#: Images of many sizes are resized to one: their maps are the same. Else sizes recur, though not together.
_remembered_resize_maps = lru_cache(maxsize=256)(_resize_maps)
_remembered_resize_map = lru_cache(maxsize=1024)(_resize_map)


def _check_mode(mode: str, axes: int, align_corners: bool | None, antialias: bool) -> None:
    if align_corners is not None and mode in ("nearest", "nearest-exact", "area"):
        raise WrongArgumentError(
            f"align_corners={align_corners} with mode {mode!r}; only {', '.join(TAKES_ALIGN_CORNERS)} know it: "
            "leave it out"
        )
    if mode not in AXES:
        raise _unknown_mode(mode, antialias)
    # Eager asks for antialias first, and calls whatever is wrong with it a ValueError.
    wrong = WrongArgumentError if antialias else NotSupportedError
    if antialias and mode not in FILTERS:
        raise wrong(f"antialias=True with mode {mode!r}; only {', '.join(FILTERS)} can be antialiased: leave it out")
    if axes not in AXES[mode]:
        fitting = [name for name, counts in AXES.items() if axes in counts and (name in FILTERS or not antialias)]
        raise wrong(
            f"interpolate mode {mode!r} of a {axes + 2}-dimensional image; it takes (batch, channels) and "
            f"{' or '.join(map(str, AXES[mode]))} spatial dimensions: "
            + (f"use {' or '.join(fitting)}" if fitting else "add or remove dimensions with unsqueeze or flatten")
        )
    if mode in ONLY_ANTIALIASED and not antialias:
        raise WrongArgumentError(f"mode {mode!r} without antialias; it exists only antialiased: pass antialias=True")
    given = bool(align_corners) if mode in ONLY_ANTIALIASED else align_corners is not None  # as eager's lanczos has it
    if given and mode not in TAKES_ALIGN_CORNERS:
        raise WrongArgumentError(
            f"align_corners={align_corners} with mode {mode!r}; only {', '.join(TAKES_ALIGN_CORNERS)} know it: "
            "leave it out"
        )


def _unknown_mode(mode: Any, antialias: bool) -> PolyphaseError:
    wrong = WrongArgumentError if antialias else NotSupportedError
    return wrong(f"unknown interpolate mode {mode!r}; choose one of: {', '.join(AXES)}")


def _sizes(size: Any, shape: Sequence[Size]) -> tuple[Size, ...]:
    if size is None:
        raise WrongArgumentError("interpolate with neither size nor scale_factor; give one of them")
    if isinstance(size, (tuple, list)):
        _check_length(size, "size", shape)
    else:
        size = (size,) * (len(shape) - 2)
    return sizes_of(size, "size")


def _scales(size: Any, scale_factor: Any, shape: Sequence[Size], tensors_too: bool) -> tuple[float, ...]:
    if size is not None:
        what = "scale_factor" if scale_factor is not None else "recompute_scale_factor"
        raise WrongArgumentError(f"interpolate with size={size} and {what}; give the one or the other")
    if scale_factor is None:
        raise WrongArgumentError("recompute_scale_factor=True without scale_factor; give a scale_factor")
    if not isinstance(scale_factor, (tuple, list)):
        return (_scale(scale_factor, tensors_too),) * (len(shape) - 2)
    _check_length(scale_factor, "scale_factor", shape)
    return tuple(_scale(factor, tensors_too) for factor in scale_factor)


def _scale(factor: Any, tensors_too: bool) -> float:
    if not isinstance(factor, (float, Real, torch.SymFloat)) and not (tensors_too and isinstance(factor, Tensor)):
        raise WrongArgumentTypeError(
            f"scale_factor {factor!r} of type {type(factor).__name__}; it must be a number, or one per spatial axis"
        )
    if isinstance(factor, Tensor) and factor.numel() != 1:
        raise WrongArgumentTypeError(f"scale_factor {factor!r}; give numbers, or tensors of one element")
    scale = number(factor, "scale_factor")
    if not math.isfinite(scale):
        raise WrongSizeError(f"scale_factor {scale}; it must be a finite number greater than 0")
    return scale


def _check_length(values: Sequence[Any], name: str, shape: Sequence[Size]) -> None:
    axes = len(shape) - 2
    if len(values) != axes:
        raise WrongArgumentError(
            f"{name}={tuple(values)} for an image of shape {tuple(shape)}; its spatial dimensions are those after "
            "(batch, channels): "
            + (f"give {axes} numbers, or a single one for all" if axes > 0 else "add dimensions with unsqueeze")
        )


def _check_not_empty(shape: Sequence[Size], mode: str) -> None:
    """No batch is fine; without channels, eager lets only area through, and not of volumes."""
    needed = shape[2:] if mode == "area" and len(shape) < 5 else shape[1:]
    if 0 in needed:
        raise WrongSizeError(
            f"interpolate of an empty image, of shape {tuple(shape)}; only the batch can be empty: "
            "every other dimension needs at least one element"
        )


def flip_maps(rank: int, dims: Any) -> Maps:
    """The maps of `flip` from the first flipped dimension on; none where nothing is flipped."""
    return _flip_maps(rank, integers(dims, "dims"))


@lru_cache(maxsize=256)
def _flip_maps(rank: int, dims: tuple[int, ...]) -> Maps:
    flipped = set()
    for dim in dims:
        most = max(rank, 1)  # a scalar has dimension 0 to the user
        if not -most <= dim < most:
            raise WrongDimensionError(
                f"flip of dimension {dim} of a {rank}-dimensional image; dims must be from {-most} to {most - 1}"
            )
        if dim % most in flipped:
            raise WrongSizeError(f"flip of dimension {dim} twice, dims={dims}; name every dimension once")
        flipped.add(dim % most)
    if rank == 0 or not flipped:
        return ()
    return tuple(AxisMap((Flip(),) if dim in flipped else ()) for dim in range(min(flipped), rank))


def pad_maps(shape: Sequence[Size], amounts: tuple[Size, ...], mode: str) -> Maps:
    """The maps of `pad`, for as many of the last dimensions as there are pairs of amounts; none where a constant border
    is nowhere."""
    axes = _check_pad(len(shape), amounts, mode)
    pairs = list(zip(amounts[::2], amounts[1::2], strict=True))[::-1]  # the user's begin with the last dimension
    if mode in ("reflect", "replicate", "symmetric"):
        _check_pixels(shape, axes, mode)
    for n, (before, after) in zip(shape[len(shape) - axes :], pairs, strict=True):
        _check_pad_fits(n, before, after, mode)
    return (_remembered_pads if are_known(*amounts) else _pads)(tuple(pairs), mode)


def _pads(pairs: tuple[tuple[Size, Size], ...], mode: str) -> Maps:
    border = 1 if mode == "constant" else 0
    maps = tuple(AxisMap((Pad(before, after, mode, border),)) for before, after in pairs)
    return maps if mode != "constant" or any(one.steps for one in maps) else ()


#: Images of many sizes get one border.
_remembered_pads = lru_cache(maxsize=256)(_pads)


def rectangle(*given: Any) -> tuple[Size, ...]:
    """The top, left, height and width of `crop`."""
    return sizes_of(given, "(top, left, height, width)")


def pad_amounts(pad: Any) -> tuple[Size, ...]:
    return sizes_of(pad, "pad")


def _check_pad(rank: int, amounts: tuple[Size, ...], mode: str) -> int:
    """The number of axes that are padded."""
    if not isinstance(mode, str):
        raise WrongArgumentTypeError(f"pad mode {mode!r} of type {type(mode).__name__}; it must be a string")
    if mode not in PAD_MODES:
        raise NotSupportedError(f"unknown pad mode {mode!r}; choose one of: {', '.join(PAD_MODES)}")
    if len(amounts) % 2:
        raise WrongSizeError(f"pad={amounts} has {len(amounts)} numbers; give two for every axis, the last axis first")
    axes = len(amounts) // 2
    if mode == "constant" and axes > rank:
        raise WrongSizeError(
            f"pad={amounts} for {axes} axes of a {rank}-dimensional image; give at most {2 * rank} numbers"
        )
    if mode != "constant" and rank not in PAD_RANKS.get(axes, ()):
        raise NotSupportedError(
            f"{mode} pad of {axes} axes of a {rank}-dimensional image; it pads all axes after the channels: "
            "2 numbers for 2 or 3 dimensions, 4 for 3 or 4, 6 for 4 or 5"
        )
    return axes


def _check_pad_fits(n: Size, before: Size, after: Size, mode: str) -> None:
    """A crop leaves something to crop, and what is repeated is there."""
    most = {"reflect": n - 1, "circular": n, "symmetric": n}.get(mode)
    error = TooWidePadError if mode == "symmetric" else WrongSizeError
    if most is not None and max(before, after) > most:
        raise error(
            f"{mode} pad of ({before}, {after}) on an axis of {n} pixels; at most {most} on each side: "
            "pad less, or use mode 'replicate'"
        )
    left = n + min(before, 0) + min(after, 0)
    cropped = before + n + after if mode in ("reflect", "replicate", "symmetric") else left
    wraps = mode == "circular" and max(before, after) > 0
    if cropped < 0 or (wraps and left < 1):
        raise error(
            f"{mode} pad of ({before}, {after}) crops more than the {n} pixels of the axis; "
            f"negative numbers may take away at most {n} together"
        )


def _check_pixels(shape: Sequence[Size], axes: int, mode: str) -> None:
    """Refuses images without pixels: only a batch can be empty, and a batch is there only with one dimension more than
    channels and axes."""
    pixels = shape[1:] if len(shape) == axes + 2 else shape
    if 0 in pixels:
        raise WrongSizeError(
            f"{mode} pad of an empty image, of shape {tuple(shape)}; only the batch can be empty: use mode 'constant'"
        )


def border_value(value: Any, mode: str, dtype: torch.dtype, amounts: tuple[Size, ...]) -> float | int | bool:
    """A constant pad's value as the image's dtype holds it."""
    if value is None:
        return 0
    if not isinstance(value, Real) and not (isinstance(value, Tensor) and value.numel() == 1):
        raise WrongArgumentTypeError(f"pad value {value!r} of type {type(value).__name__}; it must be a number")
    border = number(value, "value")
    if mode != "constant" and border != 0:
        raise WrongSizeError(f"pad mode {mode!r} with value={value}; only mode 'constant' has a value: leave it out")
    if mode != "constant" or not any(amount > 0 for amount in amounts):
        return 0
    if dtype == torch.bool:
        return border != 0
    limits = torch.finfo(dtype) if dtype.is_floating_point or dtype.is_complex else torch.iinfo(dtype)
    exact = isinstance(limits, torch.iinfo)
    if not limits.min <= border <= limits.max and (exact or math.isfinite(border)):
        raise WrongSizeError(f"pad value {value} of a {dtype} image; it must be from {limits.min} to {limits.max}")
    return int(border) if exact else border
