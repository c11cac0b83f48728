"""Whole calls of the functional API: what they are on images that are not plain, and as torch operators.

`polyphase::interpolate`, `flip` and `pad` stand for a call in a Dynamo graph, where its arguments can still be read.
Below, they are the checks of `arguments.py` and one `polyphase::resample`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from polyphase import arguments
from polyphase.errors import NotSupportedError
from polyphase.ops.library import LIBRARY
from polyphase.ops.resample import resample
from polyphase.sampling.text import maps_to_text

HALF = (torch.float16, torch.bfloat16)
#: What eager's CPU autocast takes from half precision to float32: modes and numbers of axes.
FLOAT32_UNDER_AUTOCAST = {
    *(("reflect", 1), ("reflect", 2), ("area", 3)),
    *(("replicate", 1), ("replicate", 2), ("replicate", 3)),
}


def interpolate(
    image: Tensor,
    size: Any,
    scale_factor: Any,
    mode: str,
    align_corners: bool | None,
    recompute_scale_factor: bool | None,
    antialias: bool,
) -> Tensor:
    options = (size, scale_factor, mode, align_corners, recompute_scale_factor, antialias)
    if not _have_kernels(image):
        _check_eager_has(image, mode, antialias)
        return F.interpolate(image, *options)
    maps = arguments.resize_maps(image.shape, image.dtype, *options)
    return _resample(_as_under_autocast(image, mode, len(maps)), maps)


def flip(image: Tensor, dims: Any) -> Tensor:
    if not _have_kernels(image):
        return torch.flip(image, dims)
    return _resample(image, arguments.flip_maps(image.dim(), dims))


def pad(image: Tensor, pad: Any, mode: str, value: Any) -> Tensor:
    if not _have_kernels(image):
        return F.pad(image, pad, mode, value)
    amounts = arguments.pad_amounts(pad)
    symbolic = any(isinstance(n, torch.SymInt) for n in image.shape)  # which no cache can have as a key
    maps_of = arguments.pad_maps if symbolic else arguments.remembered_pad_maps
    maps = maps_of(image.shape, amounts, mode)
    border = arguments.border_value(value, mode, image.dtype, amounts)
    return _resample(_as_under_autocast(image, mode, len(maps)), maps, border)


def _resample(image: Tensor, maps: arguments.Maps, border: float = 0) -> Tensor:
    if not maps:
        return image.clone()
    result: Tensor = resample(image, maps_to_text(maps), (), False, border)
    return result


def _have_kernels(image: Tensor) -> bool:
    """A meta tensor needs none."""
    return (
        image.device.type in ("cpu", "meta")
        and image.layout is torch.strided
        and not (image.is_quantized or image.is_nested)
    )


def _check_eager_has(image: Tensor, mode: str, antialias: bool) -> None:
    ours_alone = mode in ("hamming", "box") or (antialias and mode in arguments.FILTERS and image.dim() != 4)
    if ours_alone:
        kind = "quantised" if image.is_quantized else f"{image.layout}"
        raise NotSupportedError(
            f"interpolate mode {mode!r} with antialias={antialias} of a {image.dim()}-dimensional {kind} image on "
            f"{image.device}; PyTorch has no such mode, and ours is for dense images on the CPU: move it there"
        )


def _as_under_autocast(image: Tensor, mode: str, axes: int) -> Tensor:
    if (mode, axes) in FLOAT32_UNDER_AUTOCAST and image.dtype in HALF and torch.is_autocast_enabled("cpu"):
        return image.float()
    return image


LIBRARY.define(
    "interpolate(Tensor input, SymInt[]? size, float[]? scale_factor, str mode, bool? align_corners, "
    "bool? recompute_scale_factor, bool antialias) -> Tensor",
    tags=torch.Tag.pt2_compliant_tag,
)
LIBRARY.define("flip(Tensor input, int[] dims) -> Tensor", tags=torch.Tag.pt2_compliant_tag)
LIBRARY.define("pad(Tensor input, SymInt[] pad, str mode, float? value) -> Tensor", tags=torch.Tag.pt2_compliant_tag)
LIBRARY.impl("interpolate", interpolate, "CompositeImplicitAutograd")
LIBRARY.impl("flip", flip, "CompositeImplicitAutograd")
LIBRARY.impl("pad", pad, "CompositeImplicitAutograd")


def one_per_axis(value: Any, image: Tensor) -> Sequence[Any] | None:
    """An argument of `interpolate` as its operator takes it."""
    if value is None or isinstance(value, (tuple, list)):
        return value
    return [value] * (image.dim() - 2)
