"""Whole calls of the functional API: what they are on images that are not plain, and as torch operators.

`polyphase::interpolate`, `flip`, `pad`, `grid_sample`, `affine_grid`, `affine_sample`, `perspective_sample` and
`displacement_sample` stand for a call in a Dynamo graph, where its arguments can still be read. Below, they are the
checks of `arguments` and one `polyphase::resample`, `polyphase::warp` or `polyphase::formula_warp`; an affine grid is
torch operations.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from polyphase import arguments
from polyphase.calls import devices, plain_torch
from polyphase.calls.plain import forward_mode_is_on
from polyphase.decompositions.warp import affine_grid_generator
from polyphase.errors import MismatchedTensorsError, NotSupportedError
from polyphase.ops import levels
from polyphase.ops.library import LIBRARY
from polyphase.ops.resample import resample
from polyphase.ops.warp import sample, warp
from polyphase.records.facts import HALF
from polyphase.sampling.programs import maps_program
from polyphase.sampling.templates import symbolic_to_slots
from polyphase.sampling.text import maps_to_text
from polyphase.sampling.warps import Warp
from polyphase.torch_versions import RESIZES_BY_LANCZOS

#: What eager's autocast takes from half precision to float32 on each device: modes and numbers of axes.
FLOAT32_UNDER_AUTOCAST = {
    "cpu": {
        *(("reflect", 1), ("reflect", 2), ("area", 3)),
        *(("replicate", 1), ("replicate", 2), ("replicate", 3)),
    },
    "cuda": {
        (mode, axes)
        for mode in ("nearest", "nearest-exact", "linear", "bilinear", "bicubic", "trilinear")
        for axes in (1, 2, 3)
    },
}


def interpolate(
    image: Tensor,
    size: Any,
    scale_factor: Any,
    mode: str,
    align_corners: bool | None,
    recompute_scale_factor: bool | None,
    antialias: bool,
    box: Any = None,
) -> Tensor:
    options = (size, scale_factor, mode, align_corners, recompute_scale_factor, antialias)
    if not _have_kernels(image):
        _check_eager_has(image, mode, antialias, box)
        return F.interpolate(image, *options)
    maps = arguments.resize_maps(image.shape, image.dtype, *options, box)
    return _resample(_as_under_autocast(image, mode, len(maps)), maps)


def flip(image: Tensor, dims: Any) -> Tensor:
    if not _have_kernels(image):
        return torch.flip(image, dims)
    return _resample(image, arguments.flip_maps(image.dim(), dims))


def pad(image: Tensor, pad: Any, mode: str, value: Any) -> Tensor:
    if not _have_kernels(image):
        return F.pad(image, pad, mode, value)
    amounts = arguments.pad_amounts(pad)
    maps = arguments.pad_maps(image.shape, amounts, mode)
    border = arguments.border_value(value, mode, image.dtype, amounts)
    return _resample(_as_under_autocast(image, mode, len(maps)), maps, border)


def grid_sample(image: Tensor, grid: Tensor, *options: Any) -> Tensor:
    have_kernels = _all_have_kernels(image, grid)
    if not have_kernels and _fill_of(options) is None:
        return F.grid_sample(image, grid, *arguments.warp_options(*options[:3]))
    check_dense("grid_sample with a fill", image, grid)
    image, grid = as_warped_under_autocast(image, grid)
    return (_warp if have_kernels else plain_torch.warp)(image, grid, arguments.grid_warp(image, grid, *options))


def affine_grid(theta: Tensor, size: Any, align_corners: Any) -> Tensor:
    aligned = arguments.corners_are_aligned(align_corners)
    if not _all_have_kernels(theta):
        return F.affine_grid(theta, size, aligned)
    size = arguments.affine_size(size)
    arguments.check_theta(theta.shape, theta.dtype, size)
    return affine_grid_generator(theta, size, aligned).contiguous()


def affine_sample(image: Tensor, theta: Tensor, size: Any, *options: Any) -> Tensor:
    have_kernels = _all_have_kernels(image, theta)
    if not have_kernels and _fill_of(options) is None:
        given = arguments.warp_options(*options[:3])
        return F.grid_sample(image, F.affine_grid(theta, size, given[-1]), *given)
    check_dense("affine_sample with a fill", image, theta)
    image, theta = as_warped_under_autocast(image, theta)
    sampler = arguments.affine_warp(image, theta, size, *options)
    return (_warp if have_kernels else plain_torch.warp)(image, theta, sampler)


def perspective_sample(image: Tensor, matrix: Tensor, size: Any, *options: Any) -> Tensor:
    check_dense("perspective_sample", image, matrix)
    image, matrix = as_warped_under_autocast(image, matrix)
    sampler = arguments.perspective_warp(image, matrix, size, *options)
    return _by_formula(sampler, *parts_of_matrix(image, matrix))


def displacement_sample(image: Tensor, field: Tensor, *options: Any) -> Tensor:
    check_dense("displacement_sample", image, field)
    image, field = as_warped_under_autocast(image, field)
    return _by_formula(arguments.displacement_warp(image, field, *options), *parts_of_field(image, field))


def _fill_of(options: tuple[Any, ...]) -> Any:
    """Behind mode, padding and alignment, if it is said."""
    return options[3] if len(options) > 3 else None


# What a formula's kernel is given: the image, entries (N, count) and fields (N, 1, out...). Half precision is computed
# with in float32.


def parts_of_matrix(image: Tensor, matrix: Tensor) -> tuple[Tensor, ...]:
    return image, (matrix.float() if matrix.dtype in HALF else matrix).flatten(1)


def parts_of_field(image: Tensor, field: Tensor) -> tuple[Tensor, ...]:
    field = field.float() if field.dtype in HALF else field
    return image, field.new_empty((image.shape[0], 0)), *field.unsqueeze(1).unbind(-1)


def _by_formula(sampler: Warp, image: Tensor, entries: Tensor, *fields: Tensor) -> Tensor:
    if _all_have_kernels(image, entries, *fields):
        return sample(image, entries, fields, sampler)
    return plain_torch.warp(image, entries, sampler, *fields)


def _warp(image: Tensor, coordinates: Tensor, sampler: Warp) -> Tensor:
    if _tangents_would_be_lost():
        return plain_torch.warp(image, coordinates, sampler)
    result: Tensor = warp(image, coordinates, *sampler.options())
    return result


def _resample(image: Tensor, maps: arguments.Maps, border: float = 0) -> Tensor:
    if not maps:
        return image.clone()
    if _tangents_would_be_lost():
        return plain_torch.run(maps_program(image.dtype, maps, border=border), image)
    maps, sizes = symbolic_to_slots(maps)
    result: Tensor = resample(image, maps_to_text(maps), sizes or None, None, False, border)
    return result


def _tangents_would_be_lost() -> bool:
    """Tells whether the operators would lose tangents, where torch has not all it takes for their derivatives."""
    return not levels.ARE_KNOWN and forward_mode_is_on()


def _have_kernels(image: Tensor) -> bool:
    """A meta tensor needs none."""
    return (image.device.type == "meta" or devices.has_kernels(image.device.type)) and _is_dense(image)


def _is_dense(tensor: Tensor) -> bool:
    return tensor.layout is torch.strided and not (tensor.is_quantized or tensor.is_nested)


def _all_have_kernels(*tensors: Tensor) -> bool:
    """Tells whether there are kernels for all tensors of a warp."""
    places = list(dict.fromkeys(str(one.device) for one in tensors))
    if len(places) > 1:
        raise MismatchedTensorsError(
            f"an image on {places[0]} with coordinates on {places[1]}; both must be on one device: move one with .to"
        )
    return all(map(_have_kernels, tensors))


def _check_eager_has(image: Tensor, mode: str, antialias: bool, box: Any) -> None:
    has_mode = mode not in ("hamming", "box") and (mode != "lanczos" or RESIZES_BY_LANCZOS)
    if not has_mode or (antialias and mode in arguments.FILTERS and image.dim() != 4) or box is not None:
        kind = "quantised" if image.is_quantized else f"{image.layout}"
        boxed = "" if box is None else f" and box={box}"
        raise NotSupportedError(
            f"interpolate mode {mode!r} with antialias={antialias}{boxed} of a {image.dim()}-dimensional {kind} image "
            f"on {image.device}; PyTorch has no such mode, and ours is for dense images on {_named_devices()}: move it "
            "there"
        )


def check_dense(name: str, *tensors: Tensor) -> None:
    """Refuses tensors that are not dense, for what PyTorch has no function of: where there are no kernels, torch
    operations do it, of dense tensors.
    """
    for one in tensors:
        if not _is_dense(one):
            kind = "nested" if one.is_nested else "quantised" if one.is_quantized else str(one.layout)
            fix = {"nested": "give each of .unbind()", "quantised": "use .dequantize()"}.get(kind, "use .to_dense()")
            raise NotSupportedError(f"{name} of a {kind} tensor; it takes dense tensors: {fix}")


def _named_devices() -> str:
    return " and ".join(device for device in devices.MODULES if devices.has_kernels(device)) or "no device"


def _as_under_autocast(image: Tensor, mode: str, axes: int) -> Tensor:
    listed = (mode, axes) in FLOAT32_UNDER_AUTOCAST.get(image.device.type, ())
    return _float32_under_autocast(image) if listed else image


def as_warped_under_autocast(image: Tensor, coordinates: Tensor) -> tuple[Tensor, Tensor]:
    """Casts as eager's autocast does for grid_sample: on the CPU to float32, on CUDA to the wider dtype of the two."""
    if image.device.type == "cuda" and torch.float32 not in (image.dtype, coordinates.dtype):
        return image, coordinates
    return _float32_under_autocast(image), _float32_under_autocast(coordinates)


def _float32_under_autocast(tensor: Tensor) -> Tensor:
    device = tensor.device.type
    cast = device in FLOAT32_UNDER_AUTOCAST and tensor.dtype in HALF and torch.is_autocast_enabled(device)
    return tensor.float() if cast else tensor


_OPTIONS = 'str mode, str padding_mode, bool? align_corners, float[]? fill=None, str fill_rule="blend"'
for _call, _given in {
    interpolate: "Tensor input, SymInt[]? size, float[]? scale_factor, str mode, bool? align_corners, "
    "bool? recompute_scale_factor, bool antialias, float[]? box=None",
    flip: "Tensor input, int[] dims",
    pad: "Tensor input, SymInt[] pad, str mode, float? value",
    grid_sample: f"Tensor input, Tensor grid, {_OPTIONS}",
    affine_grid: "Tensor theta, SymInt[] size, bool? align_corners",
    affine_sample: f"Tensor input, Tensor theta, SymInt[] size, {_OPTIONS}",
    perspective_sample: f"Tensor input, Tensor matrix, SymInt[] size, {_OPTIONS}",
    displacement_sample: f"Tensor input, Tensor field, {_OPTIONS}",
}.items():
    LIBRARY.define(f"{_call.__name__}({_given}) -> Tensor", tags=torch.Tag.pt2_compliant_tag)
    for _key in ("CompositeImplicitAutograd", "FuncTorchBatchedDecomposition"):
        LIBRARY.impl(_call.__name__, _call, _key)


def one_per_axis(value: Any, image: Tensor) -> Sequence[Any] | None:
    """An argument of `interpolate` as its operator takes it."""
    if value is None or isinstance(value, (tuple, list)):
        return value
    return [value] * (image.dim() - 2)
