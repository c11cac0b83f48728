"""Gradients of warps with a fill, by the kernels of warps without one.

Let s be what is sampled with zeros around, f the fill, and m what is sampled of ones: the share of each pixel inside.
Of s + (1 - m) f, gradients are those of a warp of the image less f. Of (s - f) m + f, they are those of s times m and
of m times (s - f), which are channels of one warp. With a hard edge, pixels outside have none.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from polyphase.calls import plain_torch
from polyphase.records.facts import HALF
from polyphase.sampling.warps import Warp


def gradients(
    sampler: Warp,
    needed: tuple[bool, bool],
    warp: Callable[..., Tensor],
    warp_gradients: Callable[..., tuple[Tensor | None, ...]],
    gradient: Tensor,
    image: Tensor,
    coordinates: Tensor,
    *fields: Tensor,
) -> tuple[Tensor | None, ...]:
    """Computes what `BoundGradients` does, where `warp` and `warp_gradients` are those of kernels without a fill."""
    unfilled, dtypes = sampler.without_fill(), (image.dtype, coordinates.dtype)
    if sampler.mode == "nearest":
        return warp_gradients(gradient, image, coordinates, unfilled, needed, *fields)
    if not all(map(math.isfinite, sampler.fill)):
        return plain_torch.warp_gradients(gradient, image, coordinates, sampler, needed, fields)
    if image.dtype in HALF:
        gradient, image, coordinates = gradient.float(), image.float(), coordinates.float()
    fill = torch.tensor(sampler.fill, dtype=image.dtype, device=image.device).reshape([-1] + [1] * (image.dim() - 2))
    ones = image.new_ones(()).expand(image.shape[0], 1, *image.shape[2:])
    channels = image.shape[1]
    if sampler.fill_rule == "constant":
        image = image - fill if needed[1] else image
    elif sampler.fill_rule == "edge":
        inside = warp(ones, coordinates, replace(sampler, fill=(0.0,)), *fields)
        gradient = torch.where(inside != 0, gradient, 0)
    else:
        of_sampled = gradient * warp(ones, coordinates, unfilled, *fields)
        if needed[1]:
            of_share = gradient * (warp(image, coordinates, unfilled, *fields) - fill)
            gradient = torch.cat([of_sampled, of_share.sum(1, keepdim=True)], dim=1)
            image = torch.cat([image, ones], dim=1)
        else:
            gradient = of_sampled
    found = warp_gradients(gradient, image, coordinates, unfilled, needed, *fields)
    of_image = None if found[0] is None else found[0][:, :channels].to(dtypes[0]).contiguous()
    return of_image, *(None if one is None else one.to(dtypes[1]) for one in found[1:])
