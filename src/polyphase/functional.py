"""Resampling and warping with PyTorch's signatures, `crop`, and warps without a grid in memory.

A plain image (`calls/plain.py`) goes straight to a kernel, and so does one that is plain but for its gradient
(`ops/short_way.py`). Every other call goes through the operators in `ops`: under forward mode, `torch.func`, tracing,
modes or autocast. Where we have no kernel, PyTorch's own function runs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from numbers import Real
from typing import Any, TypeAlias, TypeVar

import torch
from torch import Tensor
from torch.compiler import is_dynamo_compiling
from torch.overrides import handle_torch_function, has_torch_function

from polyphase import arguments
from polyphase.calls.again import are_given_sizes
from polyphase.errors import NotATensorError, NotSupportedError, WrongArgumentError
from polyphase.ops import shrinking, whole_calls
from polyphase.ops.short_way import ShortWay, of_image
from polyphase.records.facts import Facts
from polyphase.sampling.programs import Program, maps_program, warp_program
from polyphase.sampling.warps import Warp, from_pixels

__all__ = [
    "affine_grid",
    "affine_sample",
    "crop",
    "displacement_sample",
    "flip",
    "grid_sample",
    "interpolate",
    "pad",
    "perspective_sample",
    "pixel_matrix",
]


#: An image, or a list of images, of any sizes: then the result is a list.
Images = TypeVar("Images", Tensor, list[Tensor])
#: What lies outside a warped image: one number, one for each channel, or nothing said.
Fill: TypeAlias = float | Sequence[float] | None

# What a call's arguments ask for.


def _resized(image: Facts, *given: Any) -> Program:
    return maps_program(image.dtype, arguments.resize_maps(image.shape, image.dtype, *given))


def _flipped(image: Facts, dims: Any) -> Program | None:
    maps = arguments.flip_maps(len(image.shape), dims)
    return maps_program(image.dtype, maps) if maps else None


def _padded(image: Facts, pad: Any, mode: Any, value: Any) -> Program | None:
    amounts = arguments.pad_amounts(pad)
    maps = arguments.pad_maps(image.shape, amounts, mode)
    border = arguments.border_value(value, mode, image.dtype, amounts)
    return maps_program(image.dtype, maps, border=border) if maps else None


def _by_warp(warp: Callable[..., Warp]) -> Callable[..., Program]:
    return lambda image, *given: warp_program(image.dtype, warp(image, *given))


def _sizes_alone(image: Tensor, size: Any, factor: Any, *others: Any) -> tuple[int, ...] | None:
    """Gives the sizes of a whole image's resize, one for each axis."""
    *_, box = others
    if type(size) not in (tuple, list) or factor is not None or box is not None or len(size) != image.ndim - 2:
        return None
    return tuple(size) if are_given_sizes(size) else None


_INTERPOLATE = ShortWay(
    _resized,
    any_size=lambda given: given[0] is not None,  # a factor's program has its result
    sizes_of=_sizes_alone,
)
_FLIP, _PAD = ShortWay(_flipped), ShortWay(_padded)
_GRID_SAMPLE, _AFFINE_SAMPLE = (ShortWay(_by_warp(one)) for one in (arguments.grid_warp, arguments.affine_warp))
_PERSPECTIVE_SAMPLE = ShortWay(_by_warp(arguments.perspective_warp), parts=whole_calls.parts_of_matrix)
_DISPLACEMENT_SAMPLE = ShortWay(_by_warp(arguments.displacement_warp), parts=whole_calls.parts_of_field)


def interpolate(
    input: Images,
    size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
    box: Any = None,
) -> Images:
    """Resize a (batch, channels, spatial...) image of 1 to 3 spatial dimensions; as `torch.nn.functional.interpolate`.

    Beyond PyTorch:

    * `antialias=True` also with `linear` and `trilinear`, and in float16 and bfloat16;
    * the antialias filters `lanczos` (also in 1-D and 3-D), `hamming` and `box`, which are Pillow's;
    * `nearest` and `nearest-exact` of every dtype; uint8 in every mode, rounded;
    * int16, uint16 and int32 in every mode: summed in float32, int32 in float64, rounded to the nearest (ties to even)
      and saturated;
    * `box=(left, top, right, bottom)`: the part of the image that becomes `size`, in pixels and fractions of them. For
      a line it is `(left, right)`, for a volume `(left, top, front, right, bottom, back)`. A box lies inside the image,
      and works with all modes but `area`. Filters see pixels outside of it, as with Pillow's `resize(box=...)`, so that
      tiles made by boxes side by side join without a seam. With `align_corners=True`, the output's corners are the
      centres of the box's first and last pixels. So ONNX's crop-and-resize of the region from (x0, y0) to (x1, y1), to
      2 pixels or more, is `box=(x0 * (W - 1), y0 * (H - 1), x1 * (W - 1) + 1, y1 * (H - 1) + 1)` with
      `align_corners=True`; along an axis that becomes 1 pixel, it is the same box without `align_corners`;
    * a list of images, of any sizes: the result is a list, and threads go from one image to the next. `box` is for all
      images, or a list of one for each.
    """
    if not is_dynamo_compiling():
        result: Images | None = _INTERPOLATE.again(
            input, size, scale_factor, mode, align_corners, recompute_scale_factor, antialias, box
        )
        if result is not None:
            return result
    elif isinstance(input, Tensor):
        size, scale_factor = (whole_calls.one_per_axis(one, input) for one in (size, scale_factor))
    given: tuple[Any, ...] = (size, scale_factor, mode, align_corners, recompute_scale_factor, antialias)
    if isinstance(input, list):
        boxes = _one_each(tuple(box) if _is_one_box(box) else box, len(input), "box")
        return _of_each("interpolate", _INTERPOLATE, [(one,) for one in input], [(*given, one) for one in boxes])
    return _called("interpolate", _INTERPOLATE, (input,), (*given, box))


def _is_one_box(box: Any) -> bool:
    return isinstance(box, list) and all(isinstance(side, Real) for side in box)


def flip(input: Tensor, dims: Sequence[int]) -> Tensor:
    """Reverse the order of the elements along dimensions; as `torch.flip`."""
    if not is_dynamo_compiling():
        result: Tensor | None = _FLIP.again(input, dims)
        if result is not None:
            return result
    return _called("flip", _FLIP, (input,), (dims,))


def pad(input: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> Tensor:
    """Put borders around the last dimensions, or crop them with negative numbers; as `torch.nn.functional.pad`.

    Beyond PyTorch: `reflect` and `replicate` of every dtype; `symmetric`, mirrored at the outer edges, so that the
    first and the last pixel are repeated, as NumPy and torchvision have it.
    """
    if not is_dynamo_compiling():
        result: Tensor | None = _PAD.again(input, pad, mode, value)
        if result is not None:
            return result
    return _called("pad", _PAD, (input,), (pad, mode, value))


def crop(input: Images, top: Any, left: Any, height: Any, width: Any) -> Images:
    """The rectangle of the last two dimensions whose upper left pixel is (top, left); as torchvision's `crop`.

    Where the rectangle lies within the image, the result is a view. What lies outside is zero. For a list of images the
    result is a list; each number is for all images, or a list of one for each.
    """
    if isinstance(input, list):
        given = {"top": top, "left": left, "height": height, "width": width}
        numbers = [_one_each(one, len(input), name) for name, one in given.items()]
        return _one_by_one(_cropped, list(zip(input, *numbers, strict=True)))
    return _cropped(input, top, left, height, width)


def _cropped(input: Tensor, top: int, left: int, height: int, width: int) -> Tensor:
    _check_tensor("crop", input)
    top, left, height, width = arguments.rectangle(top, left, height, width)
    if input.is_nested:
        raise NotSupportedError("crop of a nested tensor; its images have sizes of their own: crop each of .unbind()")
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
    fill: Fill = None,
    fill_rule: str = "blend",
) -> Tensor:
    """Sample a (batch, channels, spatial...) image or volume where a grid says; as `torch.nn.functional.grid_sample`.

    Corners are not aligned unless asked for; there is no warning that they once were, as eager has it. Beyond PyTorch:

    * uint8, int16, uint16 and int32 images in every mode, rounded to the nearest (ties to even) and saturated, and
      `nearest` of every dtype, all with a float32 or float64 grid. Sums are in the grid's dtype, those of int32 in
      float64. To get all 16 bits of a large image right takes the positions of a float64 grid;
    * volumes by `bicubic`, which PyTorch has from 2.15 on;
    * float32 grids for float16 and bfloat16 images. Coordinates of half precision are computed in float32 too;
    * `fill`: what lies outside the image, with padding mode `zeros`: a number, or one for each channel. `fill_rule`
      says how it mixes with pixels at the edge. Let s be the sum of a pixel's taps inside the image, and m the sum of
      their weights. If a pixel lies half over the edge of an image of 100, and the fill is 200, it becomes by

      * `"blend"`: 125, as in torchvision's transforms: (s - fill) * m + fill;
      * `"constant"`: 150, as in OpenCV and kornia: s + (1 - m) * fill, as if the fill were all around the image;
      * `"edge"`: 100, as in Pillow: a pixel whose position lies within the image counts as wholly inside.

      Integer images are rounded after that. Mode `nearest` takes a pixel or the fill, whatever the rule.
    """
    if not is_dynamo_compiling():
        result: Tensor | None = _GRID_SAMPLE.again(input, grid, mode, padding_mode, align_corners, fill, fill_rule)
        if result is not None:
            return result
    return _called("grid_sample", _GRID_SAMPLE, (input, grid), (mode, padding_mode, align_corners, fill, fill_rule))


def affine_grid(theta: Tensor, size: Sequence[int], align_corners: bool | None = None) -> Tensor:
    """The grid of a batch of affine matrices; as `torch.nn.functional.affine_grid`.

    `size`: (batch, channels, spatial...) of the output. Corners are not aligned unless asked for. `affine_sample` needs
    no grid in memory.
    """
    return _through_operators("affine_grid", (theta,), (size, align_corners))


def affine_sample(
    input: Images,
    theta: Any,
    size: Sequence[int],
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool | None = None,
    fill: Fill = None,
    fill_rule: str = "blend",
    *,
    antialias: bool = False,
    scale: float | Sequence[float] | None = None,
) -> Images:
    """`grid_sample(input, affine_grid(theta, size))`, with no grid in memory.

    `size` is (batch, channels, spatial...) of the output, as in `affine_grid`. The output has the input's channels,
    whatever `size` says, as in that composition. Dtypes, `fill` and `fill_rule` are as in `grid_sample`. For a list of
    images the result is a list; `theta` is for all images, or a list of one for each.

    `antialias`: where the matrix shrinks the image, an antialiased resize first makes the image smaller, to one and a
    half pixels for each pixel of the output. `scale` says how much the matrix shrinks, in pixels of the image for each
    pixel of the output: a number, or one for each axis in the image's order. Without `scale`, that is found from each
    matrix, if it is on the CPU.
    """
    if antialias is not False and arguments.switch(antialias, "antialias"):
        return _antialiased(input, theta, size, (mode, padding_mode, align_corners, scale, fill, fill_rule))
    if scale is not None:
        raise WrongArgumentError(
            f"scale={scale!r} without antialias=True, which is all it is for; say both, or neither"
        )
    if not is_dynamo_compiling():
        result: Images | None = _AFFINE_SAMPLE.again(
            input, theta, size, mode, padding_mode, align_corners, fill, fill_rule
        )
        if result is not None:
            return result
    given = (size, mode, padding_mode, align_corners, fill, fill_rule)
    if isinstance(input, list):
        pairs = list(zip(input, _one_each(theta, len(input), "theta"), strict=True))
        return _of_each("affine_sample", _AFFINE_SAMPLE, pairs, [given] * len(pairs))
    return _called("affine_sample", _AFFINE_SAMPLE, (input, theta), given)


def _antialiased(input: Images, theta: Any, size: Sequence[int], given: tuple[Any, ...]) -> Images:
    def one(image: Tensor, matrix: Tensor) -> Tensor:
        for tensor, what in ((image, "image"), (matrix, "theta")):
            _check_tensor("affine_sample", tensor, what)
        return shrinking.affine_sample(interpolate, affine_sample, image, matrix, size, *given)

    if isinstance(input, list):
        pairs = list(zip(input, _one_each(theta, len(input), "theta"), strict=True))
        return _one_by_one(one, pairs)
    return one(input, theta)


def perspective_sample(
    input: Tensor,
    matrix: Tensor,
    size: Sequence[int],
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool | None = None,
    fill: Fill = None,
    fill_rule: str = "blend",
) -> Tensor:
    """Sample images where a homography leads, with no grid in memory, forward or backward.

    `matrix`: (batch, 3, 3), from the output to the image, in the coordinates of `affine_grid` (whose theta is the first
    two rows). It leads from (x, y, 1) to (u, v, w), and the image is sampled at (u / w, v / w). `pixel_matrix` makes
    such a matrix from one of OpenCV's or kornia's. `size` and the rest are as in `affine_sample`.
    """
    if not is_dynamo_compiling():
        result: Tensor | None = _PERSPECTIVE_SAMPLE.again(
            input, matrix, size, mode, padding_mode, align_corners, fill, fill_rule
        )
        if result is not None:
            return result
    given = (size, mode, padding_mode, align_corners, fill, fill_rule)
    return _called("perspective_sample", _PERSPECTIVE_SAMPLE, (input, matrix), given)


def displacement_sample(
    input: Tensor,
    field: Tensor,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool | None = None,
    fill: Fill = None,
    fill_rule: str = "blend",
) -> Tensor:
    """Sample an image or volume at every pixel moved by a field, with no grid in memory, forward or backward.

    `field`: (batch, out..., axes), in pixels of the image, x first, as in a grid: output pixel (y, x) is the image at
    (y + field[..., 1], x + field[..., 0]). For a flow (batch, axes, out...) give `flow.movedim(1, -1)`, which is not
    copied. The output is as large as the field. `align_corners` says where `reflection` folds: at the outer pixels'
    centres, or at their edges. `fill` and `fill_rule` are as in `grid_sample`.
    """
    if not is_dynamo_compiling():
        result: Tensor | None = _DISPLACEMENT_SAMPLE.again(
            input, field, mode, padding_mode, align_corners, fill, fill_rule
        )
        if result is not None:
            return result
    given = (mode, padding_mode, align_corners, fill, fill_rule)
    return _called("displacement_sample", _DISPLACEMENT_SAMPLE, (input, field), given)


def pixel_matrix(
    matrix: Tensor,
    input_size: Sequence[int],
    output_size: Sequence[int],
    *,
    inverse: bool = False,
    align_corners: bool | None = None,
) -> Tensor:
    """Make the matrix that `affine_sample` or `perspective_sample` takes from one in pixels, as in OpenCV and kornia.

    `matrix`: (..., 2, 3) or (..., 3, 3); the result has the same shape. It leads from pixels (x, y) of the image to
    pixels of the output, as in `cv2.warpAffine` and `kornia.geometry.warp_perspective`; with `inverse`, the other way
    round, as with `cv2.WARP_INVERSE_MAP`. Sizes end with height and width. Give `align_corners` the value that the
    function which samples is given.
    """
    _check_tensor("pixel_matrix", matrix, "matrix")
    rows = arguments.pixel_matrix_rows(matrix.shape, matrix.dtype)
    before, after = arguments.image_size(input_size, "input_size"), arguments.image_size(output_size, "output_size")
    aligned, inverse = arguments.corners_are_aligned(align_corners), bool(arguments.switch(inverse, "inverse"))
    return from_pixels(matrix, before, after, inverse=inverse, align_corners=aligned)[..., :rows, :]


def _of_each(
    name: str,
    way: ShortWay,
    images: list[tuple[Any, ...]],
    given: Sequence[tuple[Any, ...]],
) -> list[Tensor]:
    """The results of many calls, from the tensors of each (`images`) and its other arguments (`given`)."""
    found = None if is_dynamo_compiling() else way.each(given, images)
    if found is not None:
        return found
    return _one_by_one(functools.partial(_called, name, way), list(zip(images, given, strict=True)))


def _one_by_one(function: Callable[..., Tensor], images: list[tuple[Any, ...]]) -> list[Tensor]:
    if is_dynamo_compiling():
        return [function(*one) for one in images]
    found = []
    for number, one in enumerate(images):
        with of_image(number, len(images)):
            found.append(function(*one))
    return found


def _one_each(given: Any, count: int, name: str) -> Sequence[Any]:
    if not isinstance(given, list):
        return [given] * count
    if len(given) != count:
        raise WrongArgumentError(f"{name} is a list of {len(given)}, for {count} images; give one for all, or {count}")
    return given


def _called(name: str, way: ShortWay, tensors: tuple[Tensor, ...], given: tuple[Any, ...]) -> Tensor:
    """A call that is not the latest one of its function once more."""
    call = None if is_dynamo_compiling() else way.find(given, tensors)
    return _through_operators(name, tensors, given) if call is None else call(*tensors)


def _through_operators(name: str, tensors: tuple[Tensor, ...], given: tuple[Any, ...]) -> Tensor:
    """A call whose tensors are not plain. A tensor subclass or a function mode may do with it what it likes; in a
    Dynamo graph the call stays one operator, of the function's name."""
    result: Tensor
    if has_torch_function(tensors):
        result = handle_torch_function(_FUNCTIONS[name], tensors, *tensors, *given)
        return result
    for tensor, what in zip(tensors, _TENSORS[name], strict=True):
        _check_tensor(name, tensor, what)
    if not is_dynamo_compiling():
        result = getattr(whole_calls, name)(*tensors, *given)
        return result
    if name in _FILLED:
        given = *given[:-2], arguments.fill_numbers(given[-2]), given[-1]
    result = getattr(torch.ops.polyphase, name)(*tensors, *given)
    return result


#: Functions whose last arguments are a fill, and its rule.
_FILLED = ("grid_sample", "affine_sample", "perspective_sample", "displacement_sample")
#: What the tensors of each function are called.
_TENSORS = {
    **dict.fromkeys(("interpolate", "flip", "pad"), ("image",)),
    "grid_sample": ("image", "grid"),
    "affine_grid": ("theta",),
    "affine_sample": ("image", "theta"),
    "perspective_sample": ("image", "matrix"),
    "displacement_sample": ("image", "field"),
}
_FUNCTIONS: dict[str, Any] = {name: globals()[name] for name in _TENSORS}


def _crop_amounts(start: int, length: int, size: int) -> tuple[int, int]:
    """How much to pad an axis of `size` before and after, to get `length` from `start`; negative amounts crop."""
    before = min(max(-start, -size), length)
    return before, length - size - before


def _check_tensor(name: str, tensor: object, what: str = "image") -> None:
    if not isinstance(tensor, Tensor):
        raise NotATensorError(
            f"{name} of a {type(tensor).__name__}; the {what} must be a torch.Tensor: "
            "convert it with torch.as_tensor or torch.from_numpy"
        )
