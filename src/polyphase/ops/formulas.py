"""`polyphase::formula_warp` and `polyphase::formula_warp_backward`: an image sampled where a formula leads.

As `polyphase::warp`, whose coordinates are one tensor: kernels do the first derivative backward, the plain twin all
others.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import torch
from torch import Tensor

from polyphase.calls import binding, plain_torch
from polyphase.calls.plain import forward_mode_is_on
from polyphase.errors import ProgramSyntaxError
from polyphase.ops import levels
from polyphase.ops.library import KERNEL_KEYS, LIBRARY
from polyphase.ops.warp import launch_of
from polyphase.sampling.steps import Size
from polyphase.sampling.templates import filled_warp, warp_to_slots
from polyphase.sampling.text import from_text, to_text
from polyphase.sampling.warps import Warp
from polyphase.torch_private import SingleLevelFunction, is_batched_gradient

#: Of the image, of the entries, of the fields.
Of: TypeAlias = tuple[Tensor, Tensor, list[Tensor]]

# entries: (N, count), of float32 or float64. fields: of the same dtype, of shapes that broadcast to (N, 1, out...).
# warp: the text of a `Warp`; `sizes` fill its slots. needed: which gradients, of the image, and of entries and fields.
_SAMPLER = "Tensor image, Tensor entries, Tensor[] fields, str warp, SymInt[]? sizes"
_TAGS = (torch.Tag.pt2_compliant_tag, torch.Tag.needs_exact_strides)
LIBRARY.define(f"formula_warp({_SAMPLER}) -> Tensor", tags=_TAGS)
LIBRARY.define(
    f"formula_warp_backward(Tensor gradient, {_SAMPLER}, bool[] needed) -> (Tensor, Tensor, Tensor[])", tags=_TAGS
)
formula_warp = torch.ops.polyphase.formula_warp.default
formula_warp_backward = torch.ops.polyphase.formula_warp_backward.default


def sample(image: Tensor, entries: Tensor, fields: Sequence[Tensor], sampler: Warp) -> Tensor:
    """Samples by the operator; where there are tangents, or the operator has no derivatives, by torch operations."""
    assert sampler.formula is not None, "a grid or a matrix has operators of its own"
    if forward_mode_is_on() or not levels.ARE_KNOWN:
        return plain_torch.warp(image, entries, sampler, *fields)
    symbolic = not all(isinstance(n, int | float) for n in (*sampler.size, *sampler.formula.numbers))
    warp, sizes = warp_to_slots(sampler) if symbolic else (sampler, ())
    result: Tensor = formula_warp(image, entries, list(fields), _text(warp), sizes or None)
    return result


@lru_cache(maxsize=1024)
def _text(warp: Warp) -> str:
    return to_text(warp)


@lru_cache(maxsize=1024)
def _parsed(text: str) -> Warp:
    warp = from_text(text)
    if not isinstance(warp, Warp) or warp.formula is None:
        raise ProgramSyntaxError(f"not a warp by a formula: {text!r}")
    return warp


def _sampler(text: str, sizes: Sequence[Size] | None) -> Warp:
    return filled_warp(_parsed(text), sizes) if sizes else _parsed(text)


def _on_device(
    image: Tensor, entries: Tensor, fields: Sequence[Tensor], warp: str, sizes: Sequence[int] | None
) -> Tensor:
    return binding.warp(image, entries, _sampler(warp, sizes), *fields)


def _without_data(
    image: Tensor, entries: Tensor, fields: Sequence[Tensor], warp: str, sizes: Sequence[Size] | None
) -> Tensor:
    return image.new_empty((*image.shape[:2], *_sampler(warp, sizes).size))


def _backward_on_device(
    gradient: Tensor,
    image: Tensor,
    entries: Tensor,
    fields: Sequence[Tensor],
    warp: str,
    sizes: Sequence[int] | None,
    needed: Sequence[bool],
) -> Of:
    sampler = _sampler(warp, sizes)
    asked = (bool(needed[0]), bool(needed[1]) and sampler.mode != "nearest")  # nearby, the nearest pixel is the same
    tensors, wanted = (image, entries, *fields), (needed[0], *[needed[1]] * (1 + len(fields)))
    found: Sequence[Tensor | None] = [None] * len(tensors)
    if any(asked):
        found = levels.with_autograd(launch_of(image), gradient, image, entries, sampler, asked, *fields)
    of_image, of_entries, *of_fields = (
        of.new_zeros(of.shape if want else 0) if one is None else one.contiguous()
        for one, of, want in zip(found, tensors, wanted, strict=True)
    )
    return of_image, of_entries, of_fields


def _backward_without_data(
    gradient: Tensor, image: Tensor, entries: Tensor, fields: Sequence[Tensor], warp: str, sizes: Any, needed: Any
) -> Of:
    return _empty_gradients(image, entries, fields, needed)


def _empty_gradients(image: Tensor, entries: Tensor, fields: Sequence[Tensor], needed: Sequence[bool]) -> Of:
    """An empty tensor stands for what is not needed."""
    of_image = image.new_empty(image.shape if needed[0] else 0)
    of_entries, *of_fields = (one.new_empty(one.shape if needed[1] else 0) for one in (entries, *fields))
    return of_image, of_entries, of_fields


# ---- derivatives, of functions whose tensors come last, one by one


class _Differentiable(SingleLevelFunction):
    @staticmethod
    def forward(*arguments: Any) -> Tensor:
        warp, sizes, image, entries, *fields = arguments
        result: Tensor = levels.forward(formula_warp, image, entries, fields, warp, sizes)
        return result

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.warp, ctx.sizes, *tensors = inputs
        ctx.save_for_backward(*tensors)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        image, entries, *fields = ctx.saved_tensors
        of_image, *of_others = ctx.needs_input_grad[2:]
        needed = [of_image, any(of_others)]
        if forward_mode_is_on() or is_batched_gradient(gradient):
            flat = _gradients_by_torch(gradient, _sampler(ctx.warp, ctx.sizes), *ctx.saved_tensors)
        else:
            found = formula_warp_backward(gradient, image, entries, fields, ctx.warp, ctx.sizes, needed)
            flat = (found[0], found[1], *found[2])
        wanted = (needed[0], *[needed[1]] * len(of_others))
        return None, None, *(one if want else None for one, want in zip(flat, wanted, strict=True))


def _gradients_by_torch(gradient: Tensor, sampler: Warp, *tensors: Tensor) -> tuple[Tensor, ...]:
    _, of_all = torch.func.vjp(lambda image, at, *rest: plain_torch.warp(image, at, sampler, *rest), *tensors)
    found: tuple[Tensor, ...] = of_all(gradient)
    return found


class _BackwardDifferentiable(SingleLevelFunction):
    @staticmethod
    def forward(*arguments: Any) -> tuple[Tensor, ...]:
        warp, sizes, needed, gradient, image, entries, *fields = arguments
        found = levels.forward(formula_warp_backward, gradient, image, entries, fields, warp, sizes, needed)
        return found[0], found[1], *found[2]

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.warp, ctx.sizes, ctx.needed, *tensors = inputs
        ctx.save_for_backward(*tensors)

    @staticmethod
    def backward(ctx: Any, of_image: Tensor, *of_others: Tensor) -> tuple[Tensor | None, ...]:
        sampler, needed = _sampler(ctx.warp, ctx.sizes), ctx.needed

        def first(gradient: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
            image, *others = _gradients_by_torch(gradient, sampler, *tensors)
            found: tuple[Tensor, ...] = (image,) * needed[0] + tuple(others) * needed[1]
            return found

        _, of_first = torch.func.vjp(first, *ctx.saved_tensors)
        return None, None, None, *of_first((of_image,) * needed[0] + of_others * needed[1])


def _with_derivatives(image: Tensor, entries: Tensor, fields: Sequence[Tensor], warp: str, sizes: Any) -> Tensor:
    """Integers have none, nor has what they are sampled at."""
    tensors = (image, entries, *fields)
    differentiable = image.is_floating_point() or image.is_complex()
    if differentiable and any(one.requires_grad for one in tensors):
        result: Tensor = levels.recorded(_Differentiable, warp, sizes, *tensors)
    else:
        result = levels.below_autograd(formula_warp, image, entries, fields, warp, sizes)
    return result


def _backward_with_derivatives(
    gradient: Tensor, image: Tensor, entries: Tensor, fields: Sequence[Tensor], *given: Any
) -> Of:
    tensors = (gradient, image, entries, *fields)
    if not any(one.requires_grad for one in tensors):
        result: Of = levels.below_autograd(formula_warp_backward, gradient, image, entries, fields, *given)
        return result
    of_image, of_entries, *of_fields = levels.recorded(_BackwardDifferentiable, *given, *tensors)
    return of_image, of_entries, of_fields


# ---- vmap: all is one batch


def _batched(
    info: Any, in_dims: tuple[Any, ...], image: Tensor, entries: Tensor, fields: Sequence[Tensor], *given: Any
) -> tuple[Tensor, int]:
    batch, (image, entries, *fields) = _as_one_batch(info, in_dims, image, entries, fields)
    return formula_warp(image, entries, fields, *given).unflatten(0, batch), 0


def _backward_batched(
    info: Any,
    in_dims: tuple[Any, ...],
    gradient: Tensor,
    image: Tensor,
    entries: Tensor,
    fields: Sequence[Tensor],
    *given: Any,
) -> tuple[Of, tuple[Any, ...]]:
    batch, tensors = _as_one_batch(info, in_dims[1:], image, entries, fields)
    of_gradient = _apart(info, gradient, in_dims[0]).flatten(0, 1)
    needed = given[-1]
    found = formula_warp_backward(of_gradient, tensors[0], tensors[1], tensors[2:], *given)
    of_image, of_entries, *of_fields = (
        one.unflatten(0, batch) if need else one.expand(batch[0], 0)
        for one, need in zip(
            (found[0], found[1], *found[2]), (needed[0], *[needed[1]] * (1 + len(fields))), strict=True
        )
    )
    return (of_image, of_entries, of_fields), (0, 0, [0] * len(fields))


def _as_one_batch(
    info: Any, in_dims: Sequence[Any], image: Tensor, entries: Tensor, fields: Sequence[Tensor]
) -> tuple[Sequence[Size], list[Tensor]]:
    """vmap's dimension joined with the batch, of which a field may have one for all; and both sizes."""
    images, values = _apart(info, image, in_dims[0]), _apart(info, entries, in_dims[1])
    batch = images.shape[:2]
    spread = [_apart(info, one, dim) for one, dim in zip(fields, in_dims[2], strict=True)]
    spread = [one.expand(*batch, *one.shape[2:]) for one in spread]
    return batch, [one.flatten(0, 1) for one in (images, values, *spread)]


def _apart(info: Any, tensor: Tensor, dim: int | None) -> Tensor:
    return tensor.expand(info.batch_size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)


if levels.ARE_KNOWN:
    LIBRARY.impl("formula_warp", _with_derivatives, "Autograd")
    LIBRARY.impl("formula_warp_backward", _backward_with_derivatives, "Autograd")
for _name, _kernel, _fake, _vmap in (
    ("formula_warp", _on_device, _without_data, _batched),
    ("formula_warp_backward", _backward_on_device, _backward_without_data, _backward_batched),
):
    for _key in KERNEL_KEYS:
        LIBRARY.impl(_name, _kernel, _key)
    torch.library.register_fake(f"polyphase::{_name}", _fake, lib=LIBRARY)
    torch.library.register_vmap(f"polyphase::{_name}", _vmap, lib=LIBRARY)
