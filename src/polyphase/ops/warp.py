"""`polyphase::warp` and `polyphase::formula_warp`: an image sampled at coordinates, or where a formula leads; and their
gradients, `polyphase::warp_backward` and `polyphase::formula_warp_backward`.

Kernels do the first derivative backward. Derivatives of that one, and all forward, are those of the plain twin's torch
operations, which can be differentiated any number of times.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor

from polyphase.calls import binding, plain_torch
from polyphase.calls.bound import Gradients
from polyphase.calls.plain import forward_mode_is_on
from polyphase.errors import ProgramSyntaxError
from polyphase.ops import levels
from polyphase.ops.library import LIBRARY, put
from polyphase.sampling.steps import Size
from polyphase.sampling.templates import filled_warp, warp_to_slots
from polyphase.sampling.text import from_text, to_text
from polyphase.sampling.warps import Warp
from polyphase.torch_private import OpOverload, SingleLevelFunction, is_batched_gradient

# coordinates: a grid (N, out..., axes), or matrices (N, axes, axes + 1) and in `size` the output's, which is spatial.
# entries: (N, count), of float32 or float64. fields: of the same dtype, of shapes that broadcast to (N, 1, out...).
# warp: the text of a `Warp`; `sizes` fill its slots. needed: which gradients, of the image, and of all others; an empty
# tensor stands for what is not. The tag makes Inductor keep the tensors' strides as they are: kernels take any.
_TAGS = (torch.Tag.pt2_compliant_tag, torch.Tag.needs_exact_strides)
_OPTIONS = "SymInt[]? size, str mode, str padding, bool align_corners, float[]? fill, str fill_rule"
for _name, _given, _gradients in (
    ("warp", f"Tensor image, Tensor coordinates, {_OPTIONS}", "(Tensor, Tensor)"),
    (
        "formula_warp",
        "Tensor image, Tensor entries, Tensor[] fields, str warp, SymInt[]? sizes",
        "(Tensor, Tensor, Tensor[])",
    ),
):
    LIBRARY.define(f"{_name}({_given}) -> Tensor", tags=_TAGS)
    LIBRARY.define(f"{_name}_backward(Tensor gradient, {_given}, bool[] needed) -> {_gradients}", tags=_TAGS)
warp = torch.ops.polyphase.warp.default
warp_backward = torch.ops.polyphase.warp_backward.default
formula_warp = torch.ops.polyphase.formula_warp.default
formula_warp_backward = torch.ops.polyphase.formula_warp_backward.default

Tensors: TypeAlias = tuple[Tensor, ...]
Given: TypeAlias = tuple[Any, ...]


def sample(image: Tensor, entries: Tensor, fields: Sequence[Tensor], sampler: Warp) -> Tensor:
    """Samples by a formula's operator; where there are tangents, or it has no derivatives, by torch operations."""
    assert sampler.formula is not None, "a grid or a matrix has an operator of its own"
    if forward_mode_is_on() or not levels.ARE_KNOWN:
        return plain_torch.warp(image, entries, sampler, *fields)
    symbolic = not all(isinstance(n, int | float) for n in (*sampler.size, *sampler.formula.numbers))
    by, sizes = warp_to_slots(sampler) if symbolic else (sampler, ())
    result: Tensor = formula_warp(image, entries, list(fields), _text(by), sizes or None)
    return result


@lru_cache(maxsize=1024)
def _text(sampler: Warp) -> str:
    return to_text(sampler)


@lru_cache(maxsize=1024)
def _parsed(text: str) -> Warp:
    sampler = from_text(text)
    if not isinstance(sampler, Warp) or sampler.formula is None:
        raise ProgramSyntaxError(f"not a warp by a formula: {text!r}")
    return sampler


def by_formula(text: str, sizes: Sequence[Size] | None) -> Warp:
    return filled_warp(_parsed(text), sizes) if sizes else _parsed(text)


class _Operator(NamedTuple):
    """leading: how many tensors it is given one by one, the rest being a list. given: how many arguments behind those.
    Here and below, tensors are flat: those of a list one by one."""

    overload: OpOverload
    leading: int
    given: int
    has_fields: bool

    def split(self, arguments: Given) -> tuple[Any, Given]:
        """Its tensors, and what else it is given. Likewise of dimensions that vmap says."""
        given = -self.given
        tensors = arguments[:given]
        return (*tensors[:-1], *tensors[-1]) if self.has_fields else tensors, arguments[given:]

    def flat(self, found: Sequence[Any]) -> Any:
        return (*found[:-1], *found[-1]) if self.has_fields else found

    def nested(self, tensors: Sequence[Any], leading: int) -> tuple[Any, ...]:
        return (*tensors[:leading], list(tensors[leading:])) if self.has_fields else tuple(tensors)

    def arguments(self, flat: tuple[Any, ...]) -> tuple[Any, ...]:
        """Its tensors and what else it is given, as it takes them."""
        return (*self.nested(flat[: -self.given], self.leading), *flat[-self.given :]) if self.has_fields else flat

    def __call__(self, *flat: Any) -> Any:
        return self.overload(*self.arguments(flat))


class _Warps:
    """An operator and the one that makes its gradients, as torch is told of them. sampler_of: what is given behind the
    tensors, as a warp."""

    def __init__(
        self, forward: OpOverload, backward: OpOverload, sampler_of: Callable[..., Warp], given: int, has_fields: bool
    ) -> None:
        self.forward = _Operator(forward, 2, given, has_fields)
        self.backward = _Operator(backward, 3, given + 1, has_fields)
        self.sampler_of = sampler_of
        self._differentiable, self._backward_differentiable = _differentiable(self), _backward_differentiable(self)

    def register(self, name: str) -> None:
        """Tells torch all of it."""
        if levels.ARE_KNOWN or not self.forward.has_fields:
            levels.register(name, self._with_derivatives, self._differentiable)
            levels.register(f"{name}_backward", self._backward_with_derivatives, self._backward_differentiable)
        put(name, self._on_device, self._without_data)
        put(f"{name}_backward", self._backward_on_device, self._backward_without_data)
        torch.library.register_vmap(f"polyphase::{name}", self._batched, lib=LIBRARY)
        torch.library.register_vmap(f"polyphase::{name}_backward", self._backward_batched, lib=LIBRARY)

    # ---- kernels

    def _on_device(self, *arguments: Any) -> Tensor:
        tensors, given = self.forward.split(arguments)
        return binding.warp(tensors[0], tensors[1], self.sampler_of(*given), *tensors[2:])

    def _without_data(self, *arguments: Any) -> Tensor:
        (image, coordinates, *_), given = self.forward.split(arguments)
        return image.new_empty((*image.shape[:2], *(self.sampler_of(*given).size or coordinates.shape[1:-1])))  # type: ignore[no-any-return]

    def _backward_on_device(self, *arguments: Any) -> Any:
        (gradient, image, coordinates, *fields), (*options, needed) = self.backward.split(arguments)
        sampler = self.sampler_of(*options)
        launched = (bool(needed[0]), bool(needed[1]) and sampler.mode != "nearest")  # nearby, that is the same pixel
        tensors, found = (image, coordinates, *fields), (None,) * (2 + len(fields))
        if any(launched):
            found = levels.with_autograd(launch_of(image), gradient, image, coordinates, sampler, launched, *fields)
        pairs = zip(found, tensors, _of_each(needed, tensors), strict=True)
        made = [of.new_zeros(of.shape if need else 0) if one is None else one.contiguous() for one, of, need in pairs]
        return self.backward.nested(made, 2)

    def _backward_without_data(self, *arguments: Any) -> Any:
        (_, *tensors), (*_, needed) = self.backward.split(arguments)
        pairs = zip(tensors, _of_each(needed, tensors), strict=True)
        return self.backward.nested([one.new_empty(one.shape if need else 0) for one, need in pairs], 2)

    # ---- derivatives

    def _with_derivatives(self, *arguments: Any) -> Any:
        """Integers have none, nor has what they are sampled at."""
        tensors, given = self.forward.split(arguments)
        image = tensors[0]
        differentiable = image.is_floating_point() or image.is_complex()
        if differentiable and forward_mode_is_on():
            sampler = self.sampler_of(*given)
            found = plain_torch.warp(image, tensors[1], sampler, *tensors[2:])
            return _with_a_gradient_of_0(found, tensors[1]) if sampler.mode == "nearest" else found
        if differentiable and any([one.requires_grad for one in tensors]):  # noqa: C419 a generator takes longer
            return levels.recorded(self._differentiable, *tensors, *given)
        return levels.below_autograd(self.forward.overload, *arguments)

    def _backward_with_derivatives(self, *arguments: Any) -> Any:
        tensors, given = self.backward.split(arguments)
        if any([one.requires_grad for one in tensors]):  # noqa: C419
            return self.backward.nested(levels.recorded(self._backward_differentiable, *tensors, *given), 2)
        return levels.below_autograd(self.backward.overload, *arguments)

    def gradients(self, gradient: Tensor, tensors: Tensors, given: Given, needed: Sequence[bool]) -> Gradients:
        """Computes the gradients that are needed of a warp of these options; they can be differentiated again."""
        if forward_mode_is_on() or (self.forward.has_fields and is_batched_gradient(gradient)):
            found = _gradients_by_torch(gradient, self.sampler_of(*given), *tensors)
        else:
            found = self.backward.flat(self.backward(gradient, *tensors, *given, needed))
        return tuple(one if need else None for one, need in zip(found, _of_each(needed, tensors), strict=True))

    # ---- vmap

    def _batched(self, info: Any, in_dims: tuple[Any, ...], *arguments: Any) -> tuple[Tensor, int]:
        """Images alone become channels of one, and grids alone rows of one: nothing is repeated. Else all is one
        batch."""
        dims, _ = self.forward.split(in_dims)
        tensors, given = self.forward.split(arguments)
        (image, coordinates, *_), (of_image, of_coordinates, *_) = tensors, dims
        if not self.forward.has_fields and None in dims:
            size, *_, fill, _ = given
            if of_image is not None and len(fill or ()) < 2:  # channels keep their numbers
                channels = image.movedim(of_image, 1)
                result: Tensor = warp(channels.flatten(1, 2), coordinates, *given)
                return result.unflatten(1, channels.shape[1:3]), 1
            if of_coordinates is not None and not size:
                rows = coordinates.movedim(of_coordinates, 1)
                result = warp(image, rows.flatten(1, 2), *given)
                return result.unflatten(2, rows.shape[1:3]), 2
        batch, tensors = _as_one_batch(info, dims, tensors)
        return self.forward(*tensors, *given).unflatten(0, batch), 0

    def _backward_batched(self, info: Any, in_dims: tuple[Any, ...], *arguments: Any) -> tuple[Any, Any]:
        """Every gradient is a batch's, also that of a tensor which is not."""
        dims, _ = self.backward.split(in_dims)
        (gradient, *tensors), given = self.backward.split(arguments)
        batch, tensors = _as_one_batch(info, dims[1:], tensors)
        gradient = _apart(info, gradient, dims[0]).flatten(0, 1)
        found = zip(
            self.backward.flat(self.backward(gradient, *tensors, *given)), _of_each(given[-1], tensors), strict=True
        )
        apart = [one.unflatten(0, batch) if need else one.expand(batch[0], 0) for one, need in found]
        return self.backward.nested(apart, 2), self.backward.nested([0] * len(apart), 2)


def _of_each(needed: Sequence[bool], tensors: Sequence[Tensor]) -> list[bool]:
    """Which gradients are needed, of the image and of all others, for each of these."""
    return [needed[0], *[needed[1]] * (len(tensors) - 1)]


def launch_of(image: Tensor) -> Callable[..., Gradients]:
    """What finds gradients of a warp of such an image."""
    return _launch_complex if image.is_complex() else binding.warp_gradients


def _launch_complex(gradient: Tensor, image: Tensor, *given: Any) -> Gradients:
    """Gradients are added and kernels add real values: the two parts become channels."""
    gradient, image = (torch.view_as_real(one).movedim(-1, 2).flatten(1, 2) for one in (gradient, image))
    found, *of_others = binding.warp_gradients(gradient, image, *given)
    assert found is not None, "coordinates alone have none: only nearest takes complex images"
    return torch.view_as_complex(found.unflatten(1, (-1, 2)).movedim(2, -1).contiguous()), *of_others


# ---- what autograd records: functions of flat tensors, and of what is given behind them


def _differentiable(warps: _Warps) -> Any:
    class Differentiable(SingleLevelFunction):
        @staticmethod
        def forward(*arguments: Any) -> Any:
            return levels.forward(warps.forward.overload, *warps.forward.arguments(arguments))

        @staticmethod
        def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
            ctx.given = inputs[-warps.forward.given :]
            ctx.save_for_backward(*inputs[: -warps.forward.given])

        @staticmethod
        def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
            of_image, *of_others = ctx.needs_input_grad[: len(ctx.saved_tensors)]
            found = warps.gradients(gradient, ctx.saved_tensors, ctx.given, [of_image, any(of_others)])
            return *found, *(None for _ in ctx.given)

    return Differentiable


def _backward_differentiable(warps: _Warps) -> Any:
    class BackwardDifferentiable(SingleLevelFunction):
        @staticmethod
        def forward(*arguments: Any) -> Any:
            found = levels.forward(warps.backward.overload, *warps.backward.arguments(arguments))
            return warps.backward.flat(found)

        @staticmethod
        def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
            ctx.given = inputs[-warps.backward.given :]
            ctx.save_for_backward(*inputs[: -warps.backward.given])

        @staticmethod
        def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
            *options, needed = ctx.given
            wanted, sampler = _of_each(needed, gradients), warps.sampler_of(*options)

            def first(gradient: Tensor, *tensors: Tensor) -> Tensors:
                found = _gradients_by_torch(gradient, sampler, *tensors)
                return tuple(one for one, want in zip(found, wanted, strict=True) if want)

            _, of_them = torch.func.vjp(first, *ctx.saved_tensors)
            found = of_them(tuple(one for one, want in zip(gradients, wanted, strict=True) if want))
            return *found, *(None for _ in ctx.given)

    return BackwardDifferentiable


def _gradients_by_torch(gradient: Tensor, sampler: Warp, *tensors: Tensor) -> Tensors:
    _, of_all = torch.func.vjp(lambda image, at, *fields: plain_torch.warp(image, at, sampler, *fields), *tensors)
    found: Tensors = of_all(gradient)
    return found


def _with_a_gradient_of_0(result: Tensor, coordinates: Tensor) -> Tensor:
    """The same values, of which autograd knows that they depend on the coordinates."""
    nothing = torch.where(torch.zeros_like(coordinates, dtype=torch.bool), coordinates, 0).sum().to(result.dtype)
    return torch.where(torch.ones((), dtype=torch.bool, device=result.device), result, nothing)


# ---- all as one batch


def _as_one_batch(info: Any, dims: Sequence[int | None], tensors: Sequence[Tensor]) -> tuple[Sequence[Size], Tensors]:
    """vmap's dimension joined with the batch, of which a field may have one for all; and both sizes."""
    images, coordinates, *fields = (_apart(info, one, dim) for one, dim in zip(tensors, dims, strict=True))
    batch = images.shape[:2]
    spread = [one.expand(*batch, *one.shape[2:]) for one in fields]
    return batch, tuple(one.flatten(0, 1) for one in (images, coordinates, *spread))


def _apart(info: Any, tensor: Tensor, dim: int | None) -> Tensor:
    return tensor.expand(info.batch_size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)


WARPS = _Warps(warp, warp_backward, Warp.of_options, given=6, has_fields=False)
FORMULA_WARPS = _Warps(formula_warp, formula_warp_backward, by_formula, given=2, has_fields=True)
WARPS.register("warp")
FORMULA_WARPS.register("formula_warp")
