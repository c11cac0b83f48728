"""Resampling with PyTorch's signatures: `interpolate`, `flip`, `pad` as in torch, and `crop`.

A plain image goes straight to a kernel. Every other call goes through the operators in `ops`: gradients, `torch.func`,
tracing, modes, autocast; and what has no kernel of ours goes to PyTorch's own function.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.compiler import is_dynamo_compiling
from torch.overrides import handle_torch_function, has_torch_function_unary

from polyphase import arguments
from polyphase.cpu.launch import bound, resample
from polyphase.errors import NotATensorError, WrongArgumentError
from polyphase.ops import whole_calls
from polyphase.plain import check_of_same, is_plain

__all__ = ["crop", "flip", "interpolate", "pad"]


def interpolate(
    input: Tensor,
    size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:
    """Resize a (batch, channels, spatial...) image of 1 to 3 spatial dimensions; as `torch.nn.functional.interpolate`.

    Beyond PyTorch:

    * `antialias=True` also with `linear` and `trilinear`, and in float16 and bfloat16;
    * the antialias filters `lanczos` (also in 1-D and 3-D), `hamming` and `box`, which are Pillow's;
    * `nearest` and `nearest-exact` of every dtype; uint8 in every mode, rounded.
    """
    if is_plain(input):
        if scale_factor is None and not recompute_scale_factor and _are_integers(size):
            return _resized(input.dtype, input.shape, input.stride(), size, mode, align_corners, antialias)(input)
        maps = arguments.resize_maps(
            input.shape, input.dtype, size, scale_factor, mode, align_corners, recompute_scale_factor, antialias
        )
        return resample(input, maps)
    options = (size, scale_factor, mode, align_corners, recompute_scale_factor, antialias)
    if has_torch_function_unary(input):
        return _overridden(interpolate, input, *options)
    _check_tensor("interpolate", input)
    if is_dynamo_compiling():
        size, scale_factor = (whole_calls.one_per_axis(given, input) for given in (size, scale_factor))
        return torch.ops.polyphase.interpolate(input, size, scale_factor, *options[2:])  # type: ignore[no-any-return]
    return whole_calls.interpolate(input, *options)


class _Latest(NamedTuple):
    """The call of the latest flip. `fits` says whether an image is like the one it was for; it is made when the same
    call comes a second time."""

    dims: tuple[int, ...]
    fits: Callable[[object], bool]
    call: Callable[[Tensor], Tensor]


def _never(image: object) -> bool:
    return False


_latest_flip = _Latest((), _never, torch.clone)


def flip(input: Tensor, dims: Sequence[int]) -> Tensor:
    """Reverse the order of the elements along dimensions; as `torch.flip`."""
    # Eager flips a small image in 2 us. Most flips are like the one before: that is quicker to tell than what they are.
    latest = _latest_flip
    if not is_dynamo_compiling() and dims == latest.dims and _are_integers(dims) and latest.fits(input):
        return latest.call(input)
    if is_plain(input):
        if _are_integers(dims):
            return _flip_and_remember(input, dims)
        maps = arguments.flip_maps(input.ndim, dims)
        return resample(input, maps) if maps else input.clone()
    if has_torch_function_unary(input):
        return _overridden(flip, input, dims)
    _check_tensor("flip", input)
    if is_dynamo_compiling():
        return torch.ops.polyphase.flip(input, dims)  # type: ignore[no-any-return]
    return whole_calls.flip(input, dims)


def _flip_and_remember(input: Tensor, dims: Any) -> Tensor:
    global _latest_flip
    call = _flipped(input.dtype, input.shape, input.stride(), dims)
    again = call is _latest_flip.call and call is not torch.clone
    _latest_flip = _Latest(dims, check_of_same(input) if again else _never, call)
    return call(input)


def pad(input: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> Tensor:
    """Put borders around the last dimensions, or crop them with negative numbers; as `torch.nn.functional.pad`.

    Beyond PyTorch: `reflect` and `replicate` of every dtype.
    """
    if is_plain(input):
        amounts = arguments.pad_amounts(pad)
        maps = arguments.remembered_pad_maps(input.shape, amounts, mode)
        if not maps:
            return input.clone()
        return resample(input, maps, border=arguments.border_value(value, mode, input.dtype, amounts))
    if has_torch_function_unary(input):
        return _overridden(_pad, input, pad, mode, value)
    _check_tensor("pad", input)
    if is_dynamo_compiling():
        return torch.ops.polyphase.pad(input, pad, mode, value)  # type: ignore[no-any-return]
    return whole_calls.pad(input, pad, mode, value)


_pad = pad  # for itself, where `pad` is its argument


def crop(input: Tensor, top: int, left: int, height: int, width: int) -> Tensor:
    """The rectangle of the last two dimensions whose upper left pixel is (top, left); as torchvision's `crop`.

    A view where the rectangle lies within the image. What lies outside is zero.
    """
    _check_tensor("crop", input)
    if input.dim() < 2 or height < 0 or width < 0:
        raise WrongArgumentError(
            f"crop to height {height} and width {width} of an image of shape {tuple(input.shape)}; the image needs two "
            "dimensions or more, and the sizes must not be negative"
        )
    rows, columns = input.shape[-2:]
    if top >= 0 and left >= 0 and top + height <= rows and left + width <= columns:
        return input[..., top : top + height, left : left + width]
    return pad(input, (*_crop_amounts(left, width, columns), *_crop_amounts(top, height, rows)))


def _are_integers(values: Any) -> bool:
    """Whether a size, or several, can key a cache: 2.0, True and a tensor equal what they are not."""
    if type(values) is not tuple:
        return type(values) is int
    for value in values:  # noqa: SIM110 a generator takes three times as long
        if type(value) is not int:
            return False
    return True


# Calls seen before find their kernel by what they are given.


@lru_cache(maxsize=128)
def _resized(
    dtype: torch.dtype,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    size: int | tuple[int, ...],
    mode: str,
    align_corners: bool | None,
    antialias: bool,
) -> Callable[[Tensor], Tensor]:
    return bound(
        dtype, shape, strides, arguments.resize_maps(shape, dtype, size, None, mode, align_corners, None, antialias)
    )


@lru_cache(maxsize=128)
def _flipped(
    dtype: torch.dtype, shape: tuple[int, ...], strides: tuple[int, ...], dims: int | tuple[int, ...]
) -> Callable[[Tensor], Tensor]:
    maps = arguments.flip_maps(len(shape), dims)
    return bound(dtype, shape, strides, maps) if maps else torch.clone


def _crop_amounts(start: int, length: int, size: int) -> tuple[int, int]:
    """What to put before and after an axis of `size` to have `length` from `start`; less than nothing is cropped."""
    before = min(max(-start, -size), length)
    return before, length - size - before


def _overridden(function: Callable[..., Tensor], input: Tensor, *options: object) -> Tensor:
    """What a tensor subclass or a function mode makes of the call."""
    result: Tensor = handle_torch_function(function, (input,), input, *options)
    return result


def _check_tensor(name: str, input: object) -> None:
    if not isinstance(input, Tensor):
        raise NotATensorError(
            f"{name} of a {type(input).__name__}; the image must be a torch.Tensor: "
            "convert it with torch.as_tensor or torch.from_numpy"
        )
