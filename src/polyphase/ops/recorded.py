"""Programs on tensors that are plain but for their gradients: kernels forward and backward, past the dispatcher.

What the operators `polyphase::resample` and `polyphase::warp` record, recorded in less time, which a small feature map
is worth. What these have no part in (derivatives of derivatives, `vmap` of gradients, tangents) is theirs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from polyphase.calls.again import Latest
from polyphase.calls.binding import bound, bound_gradients
from polyphase.calls.bound import Gradients
from polyphase.calls.plain import is_plain
from polyphase.ops.resample import in_order, resample
from polyphase.ops.warp import WARPS
from polyphase.records.facts import Facts, facts
from polyphase.records.layout import gradient_order, is_channels_last
from polyphase.sampling.axis_maps import AxisMap
from polyphase.sampling.programs import Axes, Program, maps_program
from polyphase.sampling.text import maps_to_text
from polyphase.sampling.warps import Warp
from polyphase.torch_private import SingleLevelFunction


def recorded(program: Program, image: Facts, kernel: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A kernel that was bound to a program without arithmetic, as a function that autograd records."""
    if isinstance(program.sampler, Warp):
        return RecordedWarp(kernel, program.sampler)
    return RecordedMaps(kernel, program.sampler, image)


class RecordedMaps:
    """A kernel of maps, of which one serves all calls that are alike."""

    def __init__(self, kernel: Callable[[Tensor], Tensor], axes: Axes, image: Facts) -> None:
        self.kernel = kernel
        self._maps: tuple[AxisMap, ...] = axes.maps
        self._in_size = tuple(image.shape[len(image.shape) - len(axes.maps) :])
        self._adjoint = maps_program(image.dtype, axes.maps, self._in_size)
        self._order = gradient_order(axes.maps, is_channels_last(image.shape, image.strides))
        self._latest = Latest()

    def __call__(self, image: Tensor) -> Tensor:
        result: Tensor = _MapsFunction.apply(image, self)
        return result

    def gradient(self, given: Tensor) -> Tensor:
        """The adjoint of the maps."""
        result: Tensor | None = self._latest.again(given)
        if result is not None:
            return result
        gradient = in_order(given, self._order)
        if not is_plain(gradient):
            return resample(gradient, maps_to_text(self._maps), None, self._in_size, True, 0)  # type: ignore[no-any-return]
        call = bound(self._adjoint, (facts(gradient),)).fresh
        if gradient is given:
            self._latest.follow(call, (gradient,))
        return call(gradient)


class _MapsFunction(SingleLevelFunction):
    @staticmethod
    def forward(ctx: Any, image: Tensor, recorded: RecordedMaps) -> Tensor:
        ctx.recorded = recorded
        return recorded.kernel(image)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return ctx.recorded.gradient(gradient), None


class RecordedWarp:
    """A kernel of a warp."""

    def __init__(self, kernel: Callable[[Tensor, Tensor], Tensor], sampler: Warp) -> None:
        self.kernel = kernel
        self._sampler = sampler
        self._latest: defaultdict[tuple[bool, bool], Latest] = defaultdict(Latest)  # by which gradients are needed

    def __call__(self, image: Tensor, coordinates: Tensor) -> Tensor:
        result: Tensor = _WarpFunction.apply(image, coordinates, self)
        return result

    def gradients(self, needed: tuple[bool, bool], gradient: Tensor, image: Tensor, coordinates: Tensor) -> Gradients:
        """Gives the gradients of the image and of the coordinates, None where not needed."""
        if self._sampler.mode != "nearest" or torch.is_grad_enabled():
            return self._launched(needed, gradient, image, coordinates)
        # The nearest pixel is that of coordinates nearby, too: their gradient is 0.
        of_image = self._launched((True, False), gradient, image, coordinates)[0] if needed[0] else None
        return of_image, torch.zeros_like(coordinates, memory_format=torch.contiguous_format) if needed[1] else None

    def _launched(self, needed: tuple[bool, bool], gradient: Tensor, image: Tensor, coordinates: Tensor) -> Gradients:
        tensors = (gradient, image, coordinates)
        in_their_turn = torch.is_grad_enabled()  # they are to be recorded too
        latest = self._latest[needed]
        result: Gradients | None = None if in_their_turn else latest.again(*tensors)
        if result is not None:
            return result
        if in_their_turn or not all(is_plain(one, recorded=True) for one in tensors):
            return WARPS.gradients(gradient, (image, coordinates), self._sampler.options(), needed)
        call = bound_gradients(self._sampler, *map(facts, tensors), needed)
        latest.follow(call, tensors)
        return call(*tensors)


class _WarpFunction(SingleLevelFunction):
    @staticmethod
    def forward(ctx: Any, image: Tensor, coordinates: Tensor, recorded: RecordedWarp) -> Tensor:
        ctx.save_for_backward(image, coordinates)
        ctx.recorded = recorded
        return recorded.kernel(image, coordinates)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        return *ctx.recorded.gradients(ctx.needs_input_grad[:2], gradient, *ctx.saved_tensors), None
