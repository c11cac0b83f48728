"""Axis maps on an image that is plain but for its gradient: kernels forward and backward, past the dispatcher.

What the operator `polyphase::resample` records, recorded in a quarter of the time, which a small feature map is worth.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from polyphase.cpu.launch import bound
from polyphase.ops.resample import in_eager_order, resample
from polyphase.plain import NO_CALL, is_plain
from polyphase.sampling.axis_maps import AxisMap
from polyphase.sampling.text import maps_to_text


class Recorded:
    """Calls a kernel that was bound to an image, of this shape, and the maps. Has no part in it that could differ from
    call to call, so that one serves all."""

    def __init__(self, kernel: Callable[[Tensor], Tensor], maps: tuple[AxisMap, ...], shape: tuple[int, ...]) -> None:
        self.kernel = kernel
        self._maps = maps
        self._in_size = tuple(shape[len(shape) - len(maps) :])
        self._latest = NO_CALL

    def __call__(self, image: Tensor) -> Tensor:
        result: Tensor = _Function.apply(image, self)  # type: ignore[no-untyped-call]
        return result

    def gradient(self, given: Tensor) -> Tensor:
        """The adjoint of the maps. By the operator where there is more to it: derivatives of derivatives, `vmap`."""
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


class _Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, image: Tensor, recorded: Recorded) -> Tensor:
        ctx.recorded = recorded
        return recorded.kernel(image)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return ctx.recorded.gradient(gradient), None
