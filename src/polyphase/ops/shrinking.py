"""Antialiased warps: what a matrix shrinks is first made smaller by an antialiased resize, then sampled.

A bilinear warp of an image that has about one and a half pixels for each of the output's is nearer to the mean over the
output's pixels than any other that was tried: with fewer it is blurred twice, with more it leaves pixels out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.compiler import is_dynamo_compiling

from polyphase import arguments, torch_private
from polyphase.errors import WrongArgumentError
from polyphase.ops.whole_calls import as_warped_under_autocast, check_dense

#: The image's pixels that are left for each of the output's, along an axis.
LEFT = 1.5
#: By mode and number of axes: what the first step is called. There are no antialiased bicubic resizes of volumes.
_RESIZES = {
    ("bilinear", 2): "bilinear",
    ("bicubic", 2): "bicubic",
    ("bilinear", 3): "trilinear",
    ("bicubic", 3): "trilinear",
}


def affine_sample(
    resize: Callable[..., Tensor],
    sample: Callable[..., Tensor],
    input: Tensor,
    theta: Tensor,
    size: Sequence[int],
    mode: str,
    padding_mode: str,
    align_corners: bool | None,
    scale: float | Sequence[float] | None,
    *fill: object,
) -> Tensor:
    """`resize` and `sample`: `interpolate`, and the `affine_sample` that takes the image as it is. `scale`: pixels of
    the image for each of the output's, one for each axis in the image's order, or one for all. `fill`: and its rule."""
    mode, padding, aligned = arguments.warp_options(mode, padding_mode, align_corners)
    check_dense("affine_sample with antialias", input, theta)
    input, theta = as_warped_under_autocast(input, theta)
    shape, size = tuple(input.shape), arguments.affine_size(size)
    arguments.affine_warp(input, theta, size, mode, padding, aligned)
    arguments.check_shrinking(mode, padding, aligned)
    before, after = shape[2:], size[2:]
    said = None if scale is None else arguments.map_scales(scale, len(before))
    scales = [said] if said else _scales(theta, before, after, aligned)

    def sampled(image: Tensor, matrix: Tensor, by: Sequence[float]) -> Tensor:
        smaller = [_left_of(n, one) for n, one in zip(before, by, strict=True)]
        to = (image.shape[0], *size[1:])
        if list(before) == smaller:
            return sample(image, matrix, to, mode, padding, aligned, *fill)
        if aligned:
            matrix = _not_aligned(matrix, before, after)
        image = resize(image, size=smaller, mode=_RESIZES[mode, len(before)], antialias=True)
        return sample(image, matrix, to, mode, padding, False, *fill)

    if all(one == scales[0] for one in scales):
        return sampled(input, theta, scales[0])
    return torch.cat([sampled(input[n : n + 1], theta[n : n + 1], one) for n, one in enumerate(scales)])


def _left_of(n: int, scale: float) -> int:
    """So many pixels of n are left. A matrix of what is no number shrinks nothing; and how a scale was rounded does not
    show."""
    return max(1, math.ceil(n * LEFT / scale * (1 - 1e-9))) if scale > LEFT else n


def _scales(theta: Tensor, before: Sequence[int], after: Sequence[int], aligned: bool) -> list[tuple[float, ...]]:
    """Gives, of each matrix, how many pixels of the image lie, along an axis of it, from one pixel of the output to the
    next; the output's axes taken together.
    """
    traced = is_dynamo_compiling() or torch_private.is_fake(theta) or torch_private.is_functorch_wrapped_tensor(theta)
    if traced or theta.device.type != "cpu":
        raise WrongArgumentError(
            f"affine_sample with antialias by a matrix that is {'traced' if traced else f'on {theta.device}'}: how "
            "much it shrinks cannot be read without waiting for it; say it with scale=, in pixels of the image for "
            "each of the output's"
        )
    axes = len(before)
    own, others = ([max(n - 1, 1) if aligned else n for n in reversed(one)] for one in (before, after))

    def along(axis: int, row: list[float]) -> float:
        return math.hypot(*[entry * (own[axis] / n) for entry, n in zip(row[:axes], others, strict=True)])

    return [tuple([along(axis, rows[axis]) for axis in reversed(range(axes))]) for rows in theta.detach().tolist()]


def _not_aligned(theta: Tensor, before: Sequence[int], after: Sequence[int]) -> Tensor:
    """The matrix that leads to the same pixels where -1 and 1 are the outer edges, not the corners' centres."""
    rows = theta.new_tensor([(n - 1) / n for n in reversed(before)])
    columns = theta.new_tensor([*(n / max(n - 1, 1) for n in reversed(after)), 1.0])
    return theta * rows[:, None] * columns
