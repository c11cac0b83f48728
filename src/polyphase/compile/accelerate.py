"""`polyphase.accelerate()`: ATen's own operators run on our kernels, for eager code that nobody has to change.

The kernels of the operators we know are replaced in torch's dispatcher, on devices that have kernels of ours and for
the whole process: ATen's autograd, vmap and autocast stay as they are, and no other operator pays for it. What we do
not take runs as it would have.
"""

from __future__ import annotations

import functools
import threading
import warnings
from collections.abc import Callable, Sequence
from contextlib import ContextDecorator
from typing import Any, TypeVar, overload

import torch
from torch import Tensor

from polyphase import torch_private
from polyphase.arguments.warping import COORDINATES
from polyphase.compile.recognise import AtenCall, Sampling, WarpOf, aten_operators
from polyphase.errors import PolyphaseError, WrongArgumentTypeError, WrongSettingError
from polyphase.kernels import binding, devices
from polyphase.kernels.facts import Facts, facts
from polyphase.kernels.layout import dense_strides
from polyphase.sampling.axis_maps import AxisMap
from polyphase.sampling.programs import maps_program, warp_program
from polyphase.sampling.warps import MODES, PADDINGS, Warp
from polyphase.torch_private import OpOverload

Function = TypeVar("Function", bound=Callable[..., Any])

aten = torch.ops.aten


class _Acceleration(ContextDecorator):
    def __enter__(self) -> None:
        _overrides.use(+1)

    def __exit__(self, *exception: object) -> None:
        _overrides.use(-1)


@overload
def accelerate(enabled: None = None) -> _Acceleration: ...
@overload
def accelerate(enabled: bool) -> None: ...
@overload
def accelerate(enabled: Function) -> Function: ...
def accelerate(enabled: Any = None) -> Any:
    """Run PyTorch's resizes, warps, flips and pads on Polyphase's kernels, without torch.compile.

    `with accelerate():` and `@accelerate()` for a block or a function; `accelerate(True)` and `accelerate(False)` for
    the process. While any is on, it is on for all threads, and for workers forked from them. Switching takes a
    millisecond or two: not for every image.
    """
    if enabled is None:
        return _Acceleration()
    if isinstance(enabled, bool):
        _overrides.switch(enabled)
        return None
    if not callable(enabled):
        raise WrongArgumentTypeError(
            f"accelerate({enabled!r}); it takes True, False, a function to decorate, or nothing for a block"
        )
    return _Acceleration()(enabled)


class _Overrides:
    """Whether the overrides are there: while they are switched on, or anybody uses them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users, self._switched = 0, False
        self._library: torch.library.Library | None = None

    def use(self, more: int) -> None:
        with self._lock:
            self._users += more
            self._update()

    def switch(self, on: bool) -> None:
        with self._lock:
            self._switched = on
            self._update()

    def _update(self) -> None:
        wanted = self._switched or self._users > 0
        if wanted and self._library is None:
            self._library = torch.library.Library("aten", "IMPL")
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", r"(?s).*Overriding a previously registered kernel")
                for (op, key), kernel in _kernels().items():
                    self._library.impl(op, kernel, key, with_keyset=True, allow_override=True)
        elif not wanted and self._library is not None:
            self._library = None  # which takes its kernels away


_overrides = _Overrides()


@functools.cache
def _kernels() -> dict[tuple[OpOverload, str], Callable[..., Any]]:
    """By operator and dispatch key. Made once, before anything is overridden: each keeps ATen's own kernel, for what it
    does not take."""
    torch_private.schema_of  # noqa: B018 an error here and now, where torch has no such thing
    takes = dict.fromkeys(aten_operators(), _sampled)
    takes |= {getattr(aten, f"grid_sampler_{axes}d_backward").default: _warp_gradients for axes in (2, 3)}
    keys = [device.upper() for device in devices.MODULES if devices.has_kernels(device, devices.GRAPHS)]
    return {(op, key): _kernel(op, key, take) for key in keys for op, take in takes.items()}


def _kernel(op: OpOverload, key: str, take: Callable[..., Callable[..., Any] | None]) -> Callable[..., Any]:
    own = torch.library.get_kernel(op, key)

    @functools.lru_cache(maxsize=256)
    def call_for(*arguments: Any) -> Callable[..., Any] | None:
        found = {one[3] for one in arguments if type(one) is tuple and one and type(one[0]) is torch.dtype}
        if len(found) > 1:
            return None
        try:
            return take(op, found.pop(), [_argument(one) for one in arguments])
        except WrongSettingError:
            raise
        except PolyphaseError:
            return None  # ATen's own kernel says what is wrong, in its words

    def kernel(keys: Any, *args: Any) -> Any:
        run = call_for(*[_key(one) for one in args])
        if run is None:
            return own.call_boxed(keys, *args)
        return run(*[one for one in args if isinstance(one, Tensor)])

    return kernel


def _key(argument: Any) -> Any:
    """What a call depends on, to be remembered by. -0.0 and 0.0, 1 and True are equal, but not the same."""
    if isinstance(argument, Tensor):
        return argument.dtype, argument.shape, argument.stride(), argument.device
    if isinstance(argument, list):
        return tuple(argument)
    return argument if argument is None or type(argument) is int else (type(argument), repr(argument), argument)


def _argument(key: Any) -> Any:
    """The argument again; of a tensor, one without data."""
    match key:
        case (torch.dtype() as dtype, shape, strides, _):
            return torch.empty_strided(shape, strides, dtype=dtype, device="meta")
        case (type(), str(), value):
            return value
        case tuple():
            return list(key)
    return key


def _sampled(op: OpOverload, device: torch.device, args: Sequence[Any]) -> Callable[..., Any] | None:
    """What to call with the tensors of a call; None where ATen's own kernel is to do it. `args` have no data."""
    image, operator = args[0], aten_operators()[op]
    if 0 in image.shape or image.dtype not in operator.dtypes or operator.rank not in (None, image.dim()):
        return None
    sampling: Sampling | None = operator.read(AtenCall(op, args, {}), lambda size: size)
    if sampling is None:
        return None
    if isinstance(sampling, WarpOf):
        if sampling.coordinates.dtype not in COORDINATES[image.dtype]:
            return None
        call = binding.bound(warp_program(image.dtype, sampling.sampler), _on(device, image, sampling.coordinates))
        return None if call.by_torch else call.fresh
    maps = tuple(AxisMap(() if step is None else (step,)) for step in sampling.steps)
    program = maps_program(image.dtype, maps, sampling.adjoint_of, sampling.border)
    gradient = _contiguous if op is aten.upsample_bicubic2d_backward.default else _as_it_is
    call = binding.bound(program, _on(device, gradient(image)))
    return None if call.by_torch else lambda image, *others: call.fresh(gradient(image))


def _on(device: torch.device, *tensors: Tensor) -> tuple[Facts, ...]:
    return tuple(facts(one)._replace(device=device) for one in tensors)


def _as_it_is(gradient: Tensor) -> Tensor:
    return gradient


def _contiguous(gradient: Tensor) -> Tensor:
    """What eager makes of a gradient in plain bicubic, and only there; of one channel too, by its strides."""
    return gradient.contiguous().as_strided(gradient.shape, dense_strides(gradient.shape, False))


def _warp_gradients(op: OpOverload, device: torch.device, args: Sequence[Any]) -> Callable[..., Any] | None:
    gradient, image, grid, mode, padding, align_corners, needed = args
    if image.dtype not in COORDINATES or grid.dtype not in COORDINATES[image.dtype]:
        return None
    sampler = Warp("grid", MODES[mode], PADDINGS[padding], align_corners)
    return binding.bound_gradients(sampler, *_on(device, gradient, image, grid), (needed[0], needed[1]))
