"""`polyphase::warp` and `polyphase::warp_backward`: an image sampled at coordinates, and the gradients of both.

Kernels do the first derivative backward. Derivatives of that one, and all forward, are those of the plain twin's torch
operations, which can be differentiated any number of times.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor

from polyphase.calls import binding, plain_torch
from polyphase.calls.bound import Gradients
from polyphase.calls.plain import forward_mode_is_on
from polyphase.ops import levels
from polyphase.ops.library import KERNEL_KEYS, LIBRARY
from polyphase.sampling.steps import Size
from polyphase.sampling.warps import Warp
from polyphase.torch_private import SingleLevelFunction

Pair: TypeAlias = tuple[Tensor, Tensor]

# coordinates: a grid (N, out..., axes), or matrices (N, axes, axes + 1) and in `size` the output's, which is spatial.
# needed: which gradients, of the image and of the coordinates; an empty tensor stands for the other. The tag makes
# Inductor keep the tensors' strides as they are: kernels take any.
_SAMPLER = "SymInt[]? size, str mode, str padding, bool align_corners, float[]? fill, str fill_rule"
_TAGS = (torch.Tag.pt2_compliant_tag, torch.Tag.needs_exact_strides)
LIBRARY.define(f"warp(Tensor image, Tensor coordinates, {_SAMPLER}) -> Tensor", tags=_TAGS)
LIBRARY.define(
    f"warp_backward(Tensor gradient, Tensor image, Tensor coordinates, {_SAMPLER}, bool[] needed) -> (Tensor, Tensor)",
    tags=_TAGS,
)
warp = torch.ops.polyphase.warp.default
warp_backward = torch.ops.polyphase.warp_backward.default


def options(sampler: Warp) -> tuple[Any, ...]:
    """A sampler as the operators take it. A grid has no size: AOTInductor loses empty lists."""
    rules = sampler.mode, sampler.padding, sampler.align_corners
    return sampler.size or None, *rules, sampler.fill or None, sampler.fill_rule


def sampler_of(size: Sequence[Size] | None, *given: Any) -> Warp:
    mode, padding, align_corners, fill, fill_rule = given
    source = "affine" if size else "grid"
    return Warp(source, mode, padding, align_corners, tuple(size or ()), tuple(fill or ()), fill_rule)


def _on_device(image: Tensor, coordinates: Tensor, *given: Any) -> Tensor:
    return binding.warp(image, coordinates, sampler_of(*given))


def _without_data(image: Tensor, coordinates: Tensor, size: Sequence[Size] | None, *given: Any) -> Tensor:
    return image.new_empty((*image.shape[:2], *(size or coordinates.shape[1:-1])))


def _backward_on_device(gradient: Tensor, image: Tensor, coordinates: Tensor, *given: Any) -> Pair:
    *of_sampler, needed = given
    sampler = sampler_of(*of_sampler)
    moves = sampler.mode == "nearest"  # to where coordinates nearby do: their gradient is 0
    launched = (needed[0], needed[1] and not moves)
    found: Gradients = (None, None)
    if any(launched):
        found = levels.with_autograd(launch_of(image), gradient, image, coordinates, sampler, launched)
    of_image = _as_promised(found[0], image, needed[0])
    of_coordinates = _as_promised(found[1], coordinates, needed[1])
    return of_image, of_coordinates.zero_() if moves else of_coordinates


def launch_of(image: Tensor) -> Callable[..., Gradients]:
    """What finds gradients of a warp of such an image."""
    return _launch_complex if image.is_complex() else binding.warp_gradients


def _launch_complex(gradient: Tensor, image: Tensor, *given: Any) -> Gradients:
    """Gradients are added and kernels add real values: the two parts become channels."""
    gradient, image = (torch.view_as_real(one).movedim(-1, 2).flatten(1, 2) for one in (gradient, image))
    found, *of_others = binding.warp_gradients(gradient, image, *given)
    assert found is not None, "coordinates alone have none: only nearest takes complex images"
    return torch.view_as_complex(found.unflatten(1, (-1, 2)).movedim(2, -1).contiguous()), *of_others


def _as_promised(found: Tensor | None, of: Tensor, needed: bool) -> Tensor:
    """What was found, contiguous; without values where nothing was."""
    return of.new_empty(of.shape if needed else 0) if found is None else found.contiguous()


def _backward_without_data(gradient: Tensor, image: Tensor, coordinates: Tensor, *given: Any) -> Pair:
    return _empty_gradients(image, coordinates, given[-1])


def _empty_gradients(image: Tensor, coordinates: Tensor, needed: Sequence[bool]) -> Pair:
    of_image = image.new_empty(image.shape if needed[0] else 0)
    return of_image, coordinates.new_empty(coordinates.shape if needed[1] else 0)


class _Differentiable(SingleLevelFunction):
    @staticmethod
    def forward(*arguments: Any) -> Tensor:
        result: Tensor = levels.forward(warp, *arguments)
        return result

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs[:2])
        ctx.given = inputs[2:]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        image, coordinates = ctx.saved_tensors
        needed = ctx.needs_input_grad[:2]
        return *gradients(gradient, image, coordinates, ctx.given, needed), *(None for _ in ctx.given)


def gradients(
    gradient: Tensor, image: Tensor, coordinates: Tensor, given: Sequence[Any], needed: Sequence[bool]
) -> tuple[Tensor | None, Tensor | None]:
    """Computes the gradients that are needed of a warp of these options; they can be differentiated again."""
    if forward_mode_is_on():
        found = _gradients_by_torch(gradient, image, coordinates, *given)
    else:
        found = warp_backward(gradient, image, coordinates, *given, needed)
    return found[0] if needed[0] else None, found[1] if needed[1] else None


class _BackwardDifferentiable(SingleLevelFunction):
    @staticmethod
    def forward(*arguments: Any) -> Pair:
        result: Pair = levels.forward(warp_backward, *arguments)
        return result

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Pair) -> None:
        ctx.save_for_backward(*inputs[:3])
        ctx.given = inputs[3:]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        *given, needed = ctx.given

        def first(*tensors: Tensor) -> tuple[Tensor, ...]:
            found = _gradients_by_torch(*tensors, *given)
            return tuple(one for one, need in zip(found, needed, strict=True) if need)

        _, of_them = torch.func.vjp(first, *ctx.saved_tensors)
        found = of_them(tuple(one for one, need in zip(gradients, needed, strict=True) if need))
        return *found, *(None for _ in ctx.given)


def _gradients_by_torch(gradient: Tensor, image: Tensor, coordinates: Tensor, *given: Any) -> Pair:
    def by_torch(image: Tensor, coordinates: Tensor) -> Tensor:
        return plain_torch.warp(image, coordinates, sampler_of(*given))

    _, of_both = torch.func.vjp(by_torch, image, coordinates)
    found: Pair = of_both(gradient)
    return found


def _with_derivatives(image: Tensor, coordinates: Tensor, *given: Any) -> Tensor:
    """Integers have none, nor has what they are sampled at."""
    differentiable = image.is_floating_point() or image.is_complex()
    if differentiable and forward_mode_is_on():
        sampler = sampler_of(*given)
        found = plain_torch.warp(image, coordinates, sampler)
        return _with_a_gradient_of_0(found, coordinates) if sampler.mode == "nearest" else found
    if differentiable and (image.requires_grad or coordinates.requires_grad):
        result: Tensor = levels.recorded(_Differentiable, image, coordinates, *given)
    else:
        result = levels.below_autograd(warp, image, coordinates, *given)
    return result


def _with_a_gradient_of_0(result: Tensor, coordinates: Tensor) -> Tensor:
    """The same values, of which autograd knows that they depend on the coordinates."""
    nothing = torch.where(torch.zeros_like(coordinates, dtype=torch.bool), coordinates, 0).sum().to(result.dtype)
    return torch.where(torch.ones((), dtype=torch.bool, device=result.device), result, nothing)


def _backward_with_derivatives(gradient: Tensor, image: Tensor, coordinates: Tensor, *given: Any) -> Pair:
    if gradient.requires_grad or image.requires_grad or coordinates.requires_grad:
        result: Pair = levels.recorded(_BackwardDifferentiable, gradient, image, coordinates, *given)
    else:
        result = levels.below_autograd(warp_backward, gradient, image, coordinates, *given)
    return result


def _batched(
    info: Any, in_dims: tuple[int | None, ...], image: Tensor, coordinates: Tensor, size: Any, *given: Any
) -> tuple[Tensor, int]:
    """Images alone become channels of one, and grids alone rows of one: nothing is repeated. Else all is one batch."""
    of_image, of_coordinates = in_dims[:2]
    *_, fill, _ = given
    if of_image is not None and of_coordinates is None and len(fill or ()) < 2:  # channels keep their numbers
        channels = image.movedim(of_image, 1)
        result: Tensor = warp(channels.flatten(1, 2), coordinates, size, *given)
        return result.unflatten(1, channels.shape[1:3]), 1
    if of_image is None and of_coordinates is not None and not size:
        rows = coordinates.movedim(of_coordinates, 1)
        result = warp(image, rows.flatten(1, 2), size, *given)
        return result.unflatten(2, rows.shape[1:3]), 2
    batch, tensors = _as_one_batch(info, in_dims, image, coordinates)
    return warp(*tensors, size, *given).unflatten(0, batch), 0


def _backward_batched(info: Any, in_dims: tuple[int | None, ...], *arguments: Any) -> tuple[Pair, tuple[int, int]]:
    """Every gradient is a batch's, also that of a tensor which is not."""
    given, needed = arguments[3:], arguments[-1]
    batch, tensors = _as_one_batch(info, in_dims, *arguments[:3])
    of_image, of_coordinates = (
        one.unflatten(0, batch) if need else one.expand(batch[0], 0)
        for one, need in zip(warp_backward(*tensors, *given), needed, strict=True)
    )
    return (of_image, of_coordinates), (0, 0)


def _as_one_batch(info: Any, in_dims: Sequence[int | None], *tensors: Tensor) -> tuple[Sequence[Size], list[Tensor]]:
    """vmap's dimension joined with the batch; and both sizes, to part them again."""
    apart = [
        one.expand(info.batch_size, *one.shape) if dim is None else one.movedim(dim, 0)
        for one, dim in zip(tensors, in_dims, strict=False)
    ]
    return apart[0].shape[:2], [one.flatten(0, 1) for one in apart]


levels.register("warp", _with_derivatives, _Differentiable)
levels.register("warp_backward", _backward_with_derivatives, _BackwardDifferentiable)
for _name, _kernel, _fake, _vmap in (
    ("warp", _on_device, _without_data, _batched),
    ("warp_backward", _backward_on_device, _backward_without_data, _backward_batched),
):
    for _key in KERNEL_KEYS:
        LIBRARY.impl(_name, _kernel, _key)
    torch.library.register_fake(f"polyphase::{_name}", _fake, lib=LIBRARY)
    torch.library.register_vmap(f"polyphase::{_name}", _vmap, lib=LIBRARY)
