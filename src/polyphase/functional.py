"""Resampling and warping with PyTorch's signatures, and `crop` and `affine_sample`.

A plain image goes straight to a kernel, and so does one that is plain but for its gradient. Every other call goes
through the operators in `ops`: forward mode, `torch.func`, tracing, modes, autocast; and what has no kernel of ours
goes to PyTorch's own function.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.compiler import is_dynamo_compiling
from torch.overrides import handle_torch_function, has_torch_function_unary, has_torch_function_variadic

from polyphase import arguments
from polyphase.cpu.launch import bound
from polyphase.cpu.launch_warp import bound as bound_warp
from polyphase.errors import NotATensorError, WrongArgumentError
from polyphase.ops import whole_calls
from polyphase.ops.recorded import RecordedMaps, RecordedWarp
from polyphase.plain import NO_CALL, is_plain
from polyphase.sampling.warps import Warp

_Facts: TypeAlias = tuple[torch.dtype, tuple[int, ...], tuple[int, ...], bool]

__all__ = ["affine_grid", "affine_sample", "crop", "flip", "grid_sample", "interpolate", "pad"]


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
    global _latest_interpolate
    given = (size, scale_factor, mode, align_corners, antialias)
    known, fits, latest = _latest_interpolate
    usual = not is_dynamo_compiling() and not recompute_scale_factor
    if (
        usual
        and ((size is known[0] and scale_factor is known[1]) or _are_numbers(size, scale_factor))
        and given == known
        and fits(input)
    ):
        return latest(input)
    if is_plain(input, recorded=True):
        if usual and _are_numbers(size, scale_factor):
            call = _resized(_facts(input), *given)
            _latest_interpolate = _latest_interpolate.followed_by(given, call, input)
            return call(input)
        maps = arguments.resize_maps(
            input.shape, input.dtype, size, scale_factor, mode, align_corners, recompute_scale_factor, antialias
        )
        return _bound(_facts(input), maps)(input)
    options = (size, scale_factor, mode, align_corners, recompute_scale_factor, antialias)
    if has_torch_function_unary(input):
        return _overridden(interpolate, (input,), *options)
    _check_tensor("interpolate", input)
    if is_dynamo_compiling():
        size, scale_factor = (whole_calls.one_per_axis(given, input) for given in (size, scale_factor))
        return torch.ops.polyphase.interpolate(input, size, scale_factor, *options[2:])  # type: ignore[no-any-return]
    return whole_calls.interpolate(input, *options)


_latest_interpolate = _latest_flip = _latest_pad = _latest_grid_sample = NO_CALL


def flip(input: Tensor, dims: Sequence[int]) -> Tensor:
    """Reverse the order of the elements along dimensions; as `torch.flip`."""
    global _latest_flip
    latest = _latest_flip
    if not is_dynamo_compiling() and _are_integers(dims) and dims == latest.given and latest.fits(input):
        return latest.call(input)
    if is_plain(input, recorded=True):
        if _are_integers(dims):
            call = _flipped(_facts(input), dims)
            _latest_flip = latest.followed_by(dims, call, input)
            return call(input)
        return _bound(_facts(input), arguments.flip_maps(input.ndim, dims))(input)
    if has_torch_function_unary(input):
        return _overridden(flip, (input,), dims)
    _check_tensor("flip", input)
    if is_dynamo_compiling():
        return torch.ops.polyphase.flip(input, dims)  # type: ignore[no-any-return]
    return whole_calls.flip(input, dims)


def pad(input: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> Tensor:
    """Put borders around the last dimensions, or crop them with negative numbers; as `torch.nn.functional.pad`.

    Beyond PyTorch: `reflect` and `replicate` of every dtype.
    """
    global _latest_pad
    known, fits, latest = _latest_pad
    if (
        not is_dynamo_compiling()
        and (pad is known[0] or _are_integers(pad))
        and (pad, mode) == known[:2]
        and value is known[2]  # 0.0 == -0.0 == 0
        and fits(input)
    ):
        return latest(input)
    if is_plain(input, recorded=True):
        amounts = arguments.pad_amounts(pad)
        maps = arguments.remembered_pad_maps(input.shape, amounts, mode)
        border = arguments.border_value(value, mode, input.dtype, amounts)
        call = _bound(_facts(input), maps, border, repr(border))
        if type(pad) is tuple and _are_integers(pad):
            _latest_pad = _latest_pad.followed_by((pad, mode, value), call, input)
        return call(input)
    if has_torch_function_unary(input):
        return _overridden(_pad, (input,), pad, mode, value)
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


def grid_sample(
    input: Tensor,
    grid: Tensor,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool | None = None,
) -> Tensor:
    """Sample a (batch, channels, spatial...) image or volume where a grid says; as `torch.nn.functional.grid_sample`.

    Corners are not aligned unless asked for; eager warns that they once were. Beyond PyTorch:

    * uint8 images in every mode, rounded to the nearest (ties to even) and saturated, and `nearest` of every dtype,
      both with a float32 or float64 grid;
    * float32 grids for float16 and bfloat16 images. Coordinates of half precision are computed in float32 too.
    """
    global _latest_grid_sample
    latest, given = _latest_grid_sample, (mode, padding_mode, align_corners)
    if (
        not is_dynamo_compiling()
        and given == latest.given
        and align_corners is latest.given[-1]  # 1 == True
        and latest.fits(input, grid)
    ):
        return latest.call(input, grid)
    if _are_plain(input, grid):
        options = arguments.warp_options(*given)
        sampler = arguments.remembered_grid_warp(input.shape, input.dtype, grid.shape, grid.dtype, *options)
        call = _bound_warp(_facts(input), _facts(grid), sampler)
        _latest_grid_sample = latest.followed_by(given, call, input, grid)
        return call(input, grid)
    if has_torch_function_variadic(input, grid):
        return _overridden(grid_sample, (input, grid), *given)
    _check_tensor("grid_sample", input)
    _check_tensor("grid_sample", grid, "grid")
    if is_dynamo_compiling():
        return torch.ops.polyphase.grid_sample(input, grid, *given)  # type: ignore[no-any-return]
    return whole_calls.grid_sample(input, grid, *given)


def affine_grid(theta: Tensor, size: Sequence[int], align_corners: bool | None = None) -> Tensor:
    """The grid of a batch of affine matrices; as `torch.nn.functional.affine_grid`.

    `size`: (batch, channels, spatial...) of the output. Corners are not aligned unless asked for. `affine_sample` does
    without a grid in memory.
    """
    if has_torch_function_unary(theta):
        return _overridden(affine_grid, (theta,), size, align_corners)
    _check_tensor("affine_grid", theta, "theta")
    if is_dynamo_compiling():
        return torch.ops.polyphase.affine_grid(theta, size, align_corners)  # type: ignore[no-any-return]
    return whole_calls.affine_grid(theta, size, align_corners)


def affine_sample(
    input: Tensor,
    theta: Tensor,
    size: Sequence[int],
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool | None = None,
) -> Tensor:
    """`grid_sample(input, affine_grid(theta, size))`, with no grid in memory.

    `size` is as `affine_grid` has it: (batch, channels, spatial...) of the output. The channels are the input's,
    whatever `size` says, as they are in that composition.
    """
    if _are_plain(input, theta):
        options = arguments.warp_options(mode, padding_mode, align_corners)
        sampler = arguments.remembered_affine_warp(
            input.shape, input.dtype, theta.shape, theta.dtype, arguments.affine_size(size), *options
        )
        return _bound_warp(_facts(input), _facts(theta), sampler)(input, theta)
    given = (size, mode, padding_mode, align_corners)
    if has_torch_function_variadic(input, theta):
        return _overridden(affine_sample, (input, theta), *given)
    _check_tensor("affine_sample", input)
    _check_tensor("affine_sample", theta, "theta")
    if is_dynamo_compiling():
        return torch.ops.polyphase.affine_sample(input, theta, *given)  # type: ignore[no-any-return]
    return whole_calls.affine_sample(input, theta, *given)


def _are_integers(values: Any) -> bool:
    """Whether a size, or several, can key a cache, and be compared: 2.0, True and a tensor equal what they are not, and
    whether an array does cannot be told."""
    if type(values) is not tuple:
        return type(values) is int
    for value in values:  # noqa: SIM110 a generator takes three times as long
        if type(value) is not int:
            return False
    return True


def _are_numbers(size: Any, scale_factor: Any) -> bool:
    """As `_are_integers`, of a size or of scale factors, whichever is given. The factors 2 and 2.0 are the same."""
    if scale_factor is None:
        return _are_integers(size)
    if size is not None:
        return False
    if type(scale_factor) is not tuple:
        return type(scale_factor) in (float, int)
    return all(type(factor) in (float, int) for factor in scale_factor)


# Calls seen before find their kernel by what they are given.


@lru_cache(maxsize=128)
def _resized(
    image: _Facts,
    size: int | tuple[int, ...] | None,
    scale_factor: float | tuple[float, ...] | None,
    mode: str,
    align_corners: bool | None,
    antialias: bool,
) -> Callable[[Tensor], Tensor]:
    dtype, shape, *_ = image
    return _bound(image, arguments.resize_maps(shape, dtype, size, scale_factor, mode, align_corners, None, antialias))


@lru_cache(maxsize=128)
def _flipped(image: _Facts, dims: int | tuple[int, ...]) -> Callable[[Tensor], Tensor]:
    return _bound(image, arguments.flip_maps(len(image[1]), dims))


@lru_cache(maxsize=128)
def _bound(image: _Facts, maps: arguments.Maps, border: float = 0, border_text: str = "") -> Callable[[Tensor], Tensor]:
    """`border_text` tells -0.0 from 0.0."""
    *facts, needs_gradient = image
    if not maps:
        return torch.clone
    call = bound(*facts, maps, border=border, border_text=border_text)
    return RecordedMaps(call, maps, image[1]) if needs_gradient else call


@lru_cache(maxsize=256)
def _bound_warp(image: _Facts, coordinates: _Facts, sampler: Warp) -> Callable[[Tensor, Tensor], Tensor]:
    call = bound_warp(image[:3], coordinates[:3], sampler)
    return RecordedWarp(call, sampler) if image[3] or coordinates[3] else call


def _are_plain(image: Tensor, coordinates: Tensor) -> bool:
    """Integers have no derivatives, whatever they are sampled at: the operator knows."""
    return (
        is_plain(image, recorded=True)
        and is_plain(coordinates, recorded=True)
        and (not coordinates.requires_grad or image.is_floating_point())
    )


def _facts(image: Tensor) -> _Facts:
    """What a kernel is bound to."""
    return image.dtype, image.shape, image.stride(), image.requires_grad


def _crop_amounts(start: int, length: int, size: int) -> tuple[int, int]:
    """What to put before and after an axis of `size` to have `length` from `start`; less than nothing is cropped."""
    before = min(max(-start, -size), length)
    return before, length - size - before


def _overridden(function: Callable[..., Tensor], tensors: tuple[Tensor, ...], *options: object) -> Tensor:
    """What a tensor subclass or a function mode makes of the call."""
    result: Tensor = handle_torch_function(function, tensors, *tensors, *options)
    return result


def _check_tensor(name: str, tensor: object, what: str = "image") -> None:
    if not isinstance(tensor, Tensor):
        raise NotATensorError(
            f"{name} of a {type(tensor).__name__}; the {what} must be a torch.Tensor: "
            "convert it with torch.as_tensor or torch.from_numpy"
        )
