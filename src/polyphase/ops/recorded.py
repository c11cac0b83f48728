"""Axis maps and warps of tensors that are plain but for their gradients: kernels forward and backward, past the
dispatcher.

What the operators `polyphase::resample` and `polyphase::warp` record, recorded in a quarter of the time, which a small
feature map is worth. What these have no part in (derivatives of derivatives, `vmap` of gradients, tangents) is theirs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import _SingleLevelFunction

from polyphase.cpu.launch import bound, facts
from polyphase.cpu.launch_warp import Gradients, bound_gradients
from polyphase.ops.resample import in_eager_order, resample
from polyphase.ops.warp import gradients, options
from polyphase.plain import NO_CALL, Latest, is_plain
from polyphase.sampling.axis_maps import AxisMap
from polyphase.sampling.text import maps_to_text
from polyphase.sampling.warps import Warp


class RecordedMaps:
    """A kernel that was bound to maps and to an image, of this shape; one for all calls that are alike."""

    def __init__(self, kernel: Callable[[Tensor], Tensor], maps: tuple[AxisMap, ...], shape: tuple[int, ...]) -> None:
        self.kernel = kernel
        self._maps = maps
        self._in_size = tuple(shape[len(shape) - len(maps) :])
        self._latest = NO_CALL

    def __call__(self, image: Tensor) -> Tensor:
        result: Tensor = _MapsFunction.apply(image, self)  # type: ignore[attr-defined]
        return result

    def gradient(self, given: Tensor) -> Tensor:
        """The adjoint of the maps."""
        latest = self._latest
        if latest.fits(given):
            return latest.call(given)
        gradient = in_eager_order(given, self._maps)
        if not is_plain(gradient):
            return resample(gradient, maps_to_text(self._maps), (), self._in_size, True, 0)  # type: ignore[no-any-return]
        call = bound(gradient.dtype, gradient.shape, gradient.stride(), self._maps, True, self._in_size, 0, "0")
        if gradient is given:
            self._latest = latest.followed_by((), call, gradient)
        return call(gradient)


class _MapsFunction(_SingleLevelFunction):
    @staticmethod
    def forward(ctx: Any, image: Tensor, recorded: RecordedMaps) -> Tensor:
        ctx.recorded = recorded
        return recorded.kernel(image)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return ctx.recorded.gradient(gradient), None


class RecordedWarp:
    """A kernel that was bound to a warp and to two tensors."""

    def __init__(self, kernel: Callable[[Tensor, Tensor], Tensor], sampler: Warp) -> None:
        self.kernel = kernel
        self._sampler = sampler
        self._latest: dict[tuple[bool, bool], Latest] = {}  # by which gradients are needed

    def __call__(self, image: Tensor, coordinates: Tensor) -> Tensor:
        result: Tensor = _WarpFunction.apply(image, coordinates, self)  # type: ignore[attr-defined]
        return result

    def gradients(self, needed: tuple[bool, bool], gradient: Tensor, image: Tensor, coordinates: Tensor) -> Gradients:
        """Of the image and of the coordinates, None where not needed."""
        tensors = (gradient, image, coordinates)
        recorded = torch.is_grad_enabled()  # in their turn
        latest = self._latest.get(needed, NO_CALL)
        if not recorded and latest.fits(*tensors):
            return latest.call(*tensors)  # type: ignore[return-value]
        moves = self._sampler.mode == "nearest" and needed[1]  # coordinates, whose gradient is 0: there is no kernel
        if recorded or moves or not all(is_plain(one, recorded=True) for one in tensors):
            return gradients(gradient, image, coordinates, options(self._sampler), needed)
        call = bound_gradients(facts(gradient), facts(image), facts(coordinates), self._sampler, needed)
        self._latest[needed] = latest.followed_by((), call, *tensors)  # type: ignore[arg-type]
        return call(*tensors)


class _WarpFunction(_SingleLevelFunction):
    @staticmethod
    def forward(ctx: Any, image: Tensor, coordinates: Tensor, recorded: RecordedWarp) -> Tensor:
        ctx.save_for_backward(image, coordinates)
        ctx.recorded = recorded
        return recorded.kernel(image, coordinates)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        return *ctx.recorded.gradients(ctx.needs_input_grad[:2], gradient, *ctx.saved_tensors), None
