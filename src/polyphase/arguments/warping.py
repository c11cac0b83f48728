"""From the arguments of `grid_sample`, `affine_grid` and the functions that need no grid to their warp."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Real
from typing import Any, TypeAlias

import torch
from torch import Tensor

from polyphase.arguments.filling import filled
from polyphase.arguments.integers import number, sizes, switch
from polyphase.errors import (
    MismatchedTensorsError,
    NotSupportedError,
    WrongArgumentError,
    WrongDimensionError,
    WrongSizeError,
)
from polyphase.records.facts import Facts
from polyphase.sampling.formulas import displacement, homography
from polyphase.sampling.integers import SUMMED_IN
from polyphase.sampling.steps import Size
from polyphase.sampling.warps import MODES, PADDINGS, Warp

Sizes: TypeAlias = Sequence[Size]
#: A tensor, or what is known of one.
Given: TypeAlias = Facts | Tensor

#: The dtypes a floating image's coordinates can have, its own first. Half precision gains by coordinates in float32.
COORDINATES = {
    torch.float16: (torch.float16, torch.float32),
    torch.bfloat16: (torch.bfloat16, torch.float32),
    torch.float32: (torch.float32,),
    torch.float64: (torch.float64,),
}
#: And those of every other image.
OTHER_COORDINATES = (torch.float32, torch.float64)


def warp_options(mode: Any, padding_mode: Any, align_corners: Any) -> tuple[str, str, bool]:
    """What a call says besides its tensors. Nothing said about corners means that they are not aligned."""
    if not isinstance(mode, str) or mode not in MODES:
        raise WrongArgumentError(f"unknown mode {mode!r} of a warp; choose one of: {', '.join(MODES)}")
    if not isinstance(padding_mode, str) or padding_mode not in PADDINGS:
        raise WrongArgumentError(f"unknown padding_mode {padding_mode!r}; choose one of: {', '.join(PADDINGS)}")
    return mode, padding_mode, corners_are_aligned(align_corners)


def corners_are_aligned(align_corners: Any) -> bool:
    return bool(switch(align_corners, "align_corners"))


def affine_size(size: Any) -> tuple[Size, ...]:
    """The (batch, channels, spatial...) of an affine grid's image."""
    return sizes(size, "size")


def grid_warp(image: Given, grid: Given, *options: Any) -> Warp:
    """`options`: mode, padding_mode, align_corners, fill and fill_rule, as functions have them; here and below."""
    rules = warp_options(*options[:3])
    _check_grid_shape(image.shape, grid.shape)
    _check_image("grid_sample", image.shape)
    _check_dtypes("grid_sample", image.dtype, "grid", grid.dtype, rules[0])
    return filled(Warp("grid", *rules), image, *options[3:])


def affine_warp(image: Given, theta: Given, size: Any, *options: Any) -> Warp:
    """`size` is as `affine_grid` has it. Its channels are not looked at, as those of eager's grid are not."""
    rules, size = warp_options(*options[:3]), affine_size(size)
    check_theta(theta.shape, theta.dtype, size)
    if len(image.shape) != len(size):
        raise WrongSizeError(
            f"affine_sample of an image of shape {tuple(image.shape)} to size {size}; both must have as many "
            "dimensions: (batch, channels, height, width), or for volumes (batch, channels, depth, height, width)"
        )
    if image.shape[0] != size[0]:
        raise MismatchedTensorsError(
            f"affine_sample of {image.shape[0]} images with {size[0]} matrices, size {size}; there must be one for "
            "each: expand the one or the other"
        )
    _check_image("affine_sample", image.shape)
    _check_dtypes("affine_sample", image.dtype, "theta", theta.dtype, rules[0])
    return filled(Warp("affine", *rules, size[2:]), image, *options[3:])


def perspective_warp(image: Given, matrix: Given, size: Any, *options: Any) -> Warp:
    """`size` is as `affine_warp` has it."""
    rules, size, shape = warp_options(*options[:3]), affine_size(size), image.shape
    if len(shape) != 4 or len(size) != 4:
        raise WrongSizeError(
            f"perspective_sample of an image of shape {tuple(shape)} to size {size}; both must be (batch, channels, "
            "height, width)"
        )
    if tuple(matrix.shape) != (shape[0], 3, 3) or shape[0] != size[0]:
        raise MismatchedTensorsError(
            f"perspective_sample of {shape[0]} images to size {size} with a matrix of shape {tuple(matrix.shape)}; it "
            f"must be one of 3 x 3 for each: give {(size[0], 3, 3)}, or expand the one or the other"
        )
    _check_output(size)
    _check_image("perspective_sample", shape)
    _check_dtypes("perspective_sample", image.dtype, "matrix", matrix.dtype, rules[0])
    return filled(Warp("formula", *rules, size[2:], formula=homography()), image, *options[3:])


def displacement_warp(image: Given, field: Given, *options: Any) -> Warp:
    mode, padding, align_corners = warp_options(*options[:3])
    _check_grid_shape(image.shape, field.shape, "displacement_sample", "field")
    _check_image("displacement_sample", image.shape)
    _check_dtypes("displacement_sample", image.dtype, "field", field.dtype, mode)
    size = tuple(field.shape[1:-1])
    _check_output(size)
    # Aligned coordinates of an axis of one pixel all lead to it. Only reflection, which folds there, asks for them.
    aligned = align_corners and padding == "reflection"
    formula = displacement(tuple(image.shape[2:]), aligned)
    return filled(Warp("formula", mode, padding, aligned, size, formula=formula), image, *options[3:])


def pixel_matrix_rows(shape: Sizes, dtype: torch.dtype) -> int:
    """How many rows a matrix between pixels has."""
    if len(shape) < 2 or tuple(shape[-2:]) not in ((2, 3), (3, 3)) or not dtype.is_floating_point:
        raise WrongArgumentError(
            f"a matrix of {dtype} of shape {tuple(shape)}; it must be floating point, 2 x 3 (affine) or 3 x 3"
        )
    return int(shape[-2])


def image_size(size: Any, name: str) -> tuple[Size, Size]:
    """The height and width that a size ends with."""
    found = sizes(size, name)
    if len(found) not in (2, 3, 4) or any(n <= 0 for n in found[-2:]):
        raise WrongSizeError(
            f"{name} {found}; it must be (height, width), each at least 1, or the shape of images that ends with them"
        )
    return found[-2], found[-1]


def check_shrinking(mode: str, padding: str, align_corners: bool) -> None:
    """Refuses what an antialiased warp cannot have."""
    if mode == "nearest":
        raise WrongArgumentError("affine_sample with mode 'nearest' and antialias; use 'bilinear' or 'bicubic'")
    if padding == "reflection" and align_corners:
        raise NotSupportedError(
            "affine_sample with antialias, padding_mode 'reflection' and align_corners: a smaller image would fold "
            "elsewhere, for it has other corners; leave align_corners out, or use 'border'"
        )


def map_scales(scale: Any, axes: int) -> tuple[float, ...]:
    found = tuple(scale) if isinstance(scale, list | tuple) else (scale,) * axes
    numbers = tuple(number(one, "scale") for one in found if isinstance(one, Real))
    if not len(found) == len(numbers) == axes or not all(0 < one < math.inf for one in numbers):
        raise WrongArgumentError(
            f"scale {scale!r}; it is how many pixels of the image there are for each of the output's: a number above "
            f"0, or {axes} in the order of the image's axes"
        )
    return numbers


def _check_output(size: tuple[Size, ...]) -> None:
    if any(n <= 0 for n in size):
        raise WrongArgumentError(f"a warp to size {size}; every number in it must be at least 1")


def check_theta(shape: Sizes, dtype: torch.dtype, size: tuple[Size, ...]) -> None:
    """Whether matrices of this shape and dtype make a grid for an image of `size`."""
    if not dtype.is_floating_point:
        raise WrongArgumentError(f"theta of {dtype}; it must be floating point: cast it with theta.float()")
    if len(size) not in (4, 5):
        raise NotSupportedError(
            f"affine grid of size {size}; the size must be (batch, channels, height, width), or for volumes (batch, "
            "channels, depth, height, width)"
        )
    axes = len(size) - 2
    if len(shape) != 3 or tuple(shape[1:]) != (axes, axes + 1):
        raise WrongArgumentError(
            f"theta of shape {tuple(shape)} for size {size}; it must be a batch of {axes} x {axes + 1} matrices: "
            f"give {(size[0], axes, axes + 1)}"
        )
    if any(n <= 0 for n in size):
        raise WrongArgumentError(f"affine grid of size {size}; every number in it must be at least 1")
    if shape[0] != size[0]:
        raise MismatchedTensorsError(
            f"theta of shape {tuple(shape)} for size {size}; there must be a matrix for each of the {size[0]} images: "
            "expand theta, or give another size"
        )
    if dtype not in COORDINATES:
        raise NotSupportedError(f"theta of {dtype}; it can be {_named(COORDINATES)}: cast it with theta.float()")


def _check_grid_shape(shape: Sizes, grid_shape: Sizes, name: str = "grid_sample", grid: str = "grid") -> None:
    """`name` and `grid`: of the function, and of what it is given."""
    if not shape or not grid_shape:
        raise WrongDimensionError(
            f"{name} of an image of shape {tuple(shape)} with a {grid} of shape {tuple(grid_shape)}; "
            "neither can be a scalar: add dimensions with unsqueeze"
        )
    if shape[0] != grid_shape[0]:
        raise MismatchedTensorsError(
            f"{name} of {shape[0]} images, shape {tuple(shape)}, with {grid_shape[0]} {grid}s, shape "
            f"{tuple(grid_shape)}; there must be one for each: expand the one or the other"
        )
    axes = len(shape) - 2
    if axes not in (2, 3):
        raise WrongSizeError(
            f"{name} of an image of shape {tuple(shape)}; it takes (batch, channels) and 2 or 3 spatial "
            "dimensions: add or remove dimensions with unsqueeze or flatten"
        )
    if len(grid_shape) != len(shape) or grid_shape[-1] != axes:
        raise WrongSizeError(
            f"{name} of an image of shape {tuple(shape)} with a {grid} of shape {tuple(grid_shape)}; a {grid} has the "
            f"batch, {axes} output sizes and the {axes} coordinates {', '.join('xyz'[:axes])}"
        )


def _check_image(name: str, shape: Sizes) -> None:
    if 0 in shape[2:]:
        raise WrongSizeError(
            f"{name} of an image of shape {tuple(shape)}, without pixels; every spatial dimension needs at least "
            "one element"
        )


def _check_dtypes(name: str, dtype: torch.dtype, given: str, coordinates: torch.dtype, mode: str) -> None:
    """`given`: what the coordinates are called."""
    if dtype in COORDINATES:
        if coordinates not in COORDINATES[dtype]:
            raise MismatchedTensorsError(
                f"{name} of a {dtype} image with a {given} of {coordinates}; the {given} must be "
                f"{_named(COORDINATES[dtype])}: cast it with {given}.to({dtype})"
            )
        return
    if mode != "nearest" and dtype not in (torch.uint8, *SUMMED_IN):
        raise NotSupportedError(
            f"{name} with mode {mode!r} of a {dtype} image; it mixes pixels, which can be "
            f"{_named((torch.uint8, *SUMMED_IN, *COORDINATES))}: cast the image, or use mode 'nearest'"
        )
    if coordinates not in OTHER_COORDINATES:
        raise NotSupportedError(
            f"{name} of a {dtype} image with a {given} of {coordinates}; the {given} must be "
            f"{_named(OTHER_COORDINATES)}: cast it with {given}.float()"
        )


def _named(dtypes: Sequence[torch.dtype] | dict[torch.dtype, Any]) -> str:
    return " or ".join(map(str, dtypes)) if len(dtypes) < 3 else ", ".join(map(str, dtypes))
