"""`polyphase::resample`: axis maps on the last dimensions of a tensor, or their adjoint.

The operator is linear but for the constant border, which does not depend on the image. So its derivative backward is
itself with `transposed` turned over, its derivative forward is itself, and the same goes for the derivatives of those.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from polyphase.calls import binding
from polyphase.calls.plain import forward_mode_is_on
from polyphase.ops import levels
from polyphase.ops.library import LIBRARY, put
from polyphase.records.layout import gradient_order, keeps_strides
from polyphase.sampling.axis_maps import AxisMap
from polyphase.sampling.programs import adjoint_by_moving, forward_order
from polyphase.sampling.steps import Size
from polyphase.sampling.templates import filled_maps
from polyphase.sampling.text import maps_from_text
from polyphase.torch_private import SingleLevelFunction, suggest_memory_format

# maps: what `text.maps_to_text` writes; `sizes` fill their slots, so that one graph serves every size. transposed: from
# the sizes of the maps' output to `in_size`. What is not needed is None: AOTInductor loses empty lists. border: the
# value of a constant pad. The tag makes
# Inductor keep the image's strides, which the output's follow; asked for their order alone, torch 2.13 fails at those
# of a padded image of symbolic size.
LIBRARY.define(
    "resample(Tensor image, str maps, SymInt[]? sizes, SymInt[]? in_size, bool transposed, Scalar border) -> Tensor",
    tags=(torch.Tag.pt2_compliant_tag, torch.Tag.needs_exact_strides),
)
resample = torch.ops.polyphase.resample.default


def _on_device(
    image: Tensor, maps: str, sizes: Sequence[int] | None, in_size: Sequence[int] | None, transposed: bool, border: Any
) -> Tensor:
    axis_maps, before = filled_maps(maps, sizes), tuple(in_size or ())
    if transposed and image.is_complex():
        return _transposed_complex(image, axis_maps, before)
    return binding.resample(image, axis_maps, transposed=transposed, in_size=before, border=border)


def _transposed_complex(image: Tensor, maps: tuple[AxisMap, ...], in_size: tuple[int, ...]) -> Tensor:
    """An adjoint adds values and kernels add real ones: the two parts become the last dimension, mapped as it is."""
    maps_of_parts, size_of_parts = (*maps, AxisMap(())), (*in_size, 2)
    parts = binding.resample(torch.view_as_real(image), maps_of_parts, transposed=True, in_size=size_of_parts)
    return _empty_output(image, adjoint_by_moving(maps), parts.shape[:-1]).copy_(
        torch.view_as_complex(parts.contiguous())
    )


def _without_data(
    image: Tensor,
    maps: str,
    sizes: Sequence[Size] | None,
    in_size: Sequence[Size] | None,
    transposed: bool,
    border: Any,
) -> Tensor:
    axis_maps = filled_maps(maps, sizes)
    leading = image.dim() - len(axis_maps)
    before = image.shape[leading:]
    after = in_size or [one.output_size(n) for one, n in zip(axis_maps, before, strict=True)]
    moved = adjoint_by_moving(axis_maps) if transposed else axis_maps
    contiguous = not transposed and forward_order(maps_from_text(maps)) == "contiguous"
    return _empty_output(image, moved, (*image.shape[:leading], *after), contiguous)


def _empty_output(
    image: Tensor, maps: tuple[AxisMap, ...] | None, size: Sequence[Size], contiguous: bool = False
) -> Tensor:
    """Allocates an output as kernels lay it out: flips and crops keep any dense strides, as eager's do; other maps keep
    channels last. `maps`: None for an adjoint that sums.
    """
    if maps is not None and keeps_strides(maps):
        return image.as_strided(size, image.stride()).clone()  # empty_like of a meta tensor does not quite tell
    suggested = torch.contiguous_format if contiguous else suggest_memory_format(image)
    return torch.empty(size, dtype=image.dtype, device=image.device, memory_format=suggested)


def in_order(gradient: Tensor, order: str) -> Tensor:
    """Laid out so that what follows it lies in memory as `order` says."""
    formats = {"contiguous": torch.contiguous_format, "channels_last": _CHANNELS_LAST.get(gradient.dim())}
    wanted = formats.get(order)
    if wanted is None or suggest_memory_format(gradient) == wanted:
        return gradient
    return gradient.clone(memory_format=wanted)


_CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}


class _Differentiable(SingleLevelFunction):
    @staticmethod
    def forward(*arguments: Any) -> Tensor:
        result: Tensor = levels.forward(resample, *arguments)
        return result

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        image, ctx.maps, ctx.sizes, ctx.in_size, ctx.transposed, _ = inputs
        maps = maps_from_text(ctx.maps)
        ctx.image_size = image.shape[image.dim() - len(maps) :]
        channels_last = suggest_memory_format(image) != torch.contiguous_format
        ctx.order = "preserve" if ctx.transposed else gradient_order(maps, channels_last)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        in_size = None if ctx.transposed else ctx.image_size
        gradient = in_order(gradient, ctx.order)
        return resample(gradient, ctx.maps, ctx.sizes, in_size, not ctx.transposed, 0), None, None, None, None, None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *constants: None) -> Tensor:
        result: Tensor = resample(tangent, ctx.maps, ctx.sizes, ctx.in_size, ctx.transposed, 0)
        return result


def _with_derivatives(image: Tensor, *given: Any) -> Tensor:
    if image.requires_grad or forward_mode_is_on():
        result: Tensor = levels.recorded(_Differentiable, image, *given)
    else:
        result = levels.below_autograd(resample, image, *given)
    return result


def _batched(
    info: Any,
    in_dims: tuple[int | None, ...],
    image: Tensor,
    maps: str,
    *given: Any,
) -> tuple[Tensor, int]:
    """Leading dimensions are free: vmap's is one more."""
    batch = in_dims[0]
    assert batch is not None, "the image is the only tensor"
    return resample(image.movedim(batch, 0), maps, *given), 0


put("resample", _on_device, _without_data)
levels.register("resample", _with_derivatives, _Differentiable)
torch.library.register_vmap("polyphase::resample", _batched, lib=LIBRARY)
