"""`polyphase.accelerate()`: ATen's own operators run on our kernels, for eager code that nobody has to change.

The CPU kernels of the operators we know are replaced in torch's dispatcher, for the whole process: ATen's autograd,
vmap and autocast stay as they are, and no other operator pays for it. What we do not take runs as it would have.
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
from torch._C import DispatchKeySet
from torch._ops import OpOverload

from polyphase.arguments.resampling import WEIGHTED_DTYPES
from polyphase.arguments.warping import COORDINATES
from polyphase.compile.recognise import Call, Sampling, Warped, aten_readers
from polyphase.cpu import launch, launch_warp
from polyphase.cpu.launch import facts
from polyphase.cpu.layout import dense_strides
from polyphase.errors import PolyphaseError
from polyphase.plain import DTYPES
from polyphase.sampling.axis_maps import AxisMap
from polyphase.sampling.warps import MODES, PADDINGS, Warp

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
    """Run PyTorch's resizes, warps, flips and pads of CPU tensors on Polyphase's kernels, without torch.compile.

    `with accelerate():` and `@accelerate()` for a block or a function; `accelerate(True)` and `accelerate(False)` for
    the process. While any is on, it is on for all threads, and for workers forked from them. Switching takes a
    millisecond or two: not for every image.
    """
    if enabled is None:
        return _Acceleration()
    if isinstance(enabled, bool):
        _overrides.switch(enabled)
        return None
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
                for op, kernel in _kernels().items():
                    self._library.impl(op, kernel, "CPU", with_keyset=True, allow_override=True)
        elif not wanted and self._library is not None:
            self._library._destroy()
            self._library = None


_overrides = _Overrides()


@functools.cache
def _kernels() -> dict[OpOverload, Callable[..., Any]]:
    """Made once, before anything is overridden: each keeps ATen's own kernel, for what it does not take."""
    kernels = {op: _kernel(op, _sampled) for op in aten_readers()}
    for axes in (2, 3):
        op = getattr(aten, f"grid_sampler_{axes}d_backward").default
        kernels[op] = _kernel(op, _warp_gradients)
    return kernels


def _kernel(op: OpOverload, bind: Callable[..., Callable[..., Any] | None]) -> Callable[..., Any]:
    own = torch.library.get_kernel(op, "CPU")

    @functools.lru_cache(maxsize=256)
    def bound(*call: Any) -> Callable[..., Any] | None:
        try:
            return bind(op, [_argument(key) for key in call])
        except PolyphaseError:
            return None  # ATen's own kernel says what is wrong, in its words

    def kernel(keys: DispatchKeySet, *args: Any) -> Any:
        run = bound(*[_key(one) for one in args])
        if run is None:
            return own.call_boxed(keys, *args)
        return run(*[one for one in args if isinstance(one, Tensor)])

    return kernel


def _key(argument: Any) -> Any:
    """What a call depends on, to be remembered by. -0.0 and 0.0, 1 and True are equal, but not the same."""
    if isinstance(argument, Tensor):
        return argument.dtype, argument.shape, argument.stride()
    if isinstance(argument, list):
        return tuple(argument)
    return argument if argument is None or type(argument) is int else (type(argument), repr(argument), argument)


def _argument(key: Any) -> Any:
    """The argument again; of a tensor, what is known of it."""
    match key:
        case (torch.dtype() as dtype, shape, strides):
            return torch.empty_strided(shape, strides, dtype=dtype, device="meta")
        case (type(), str(), value):
            return value
        case tuple():
            return list(key)
    return key


def _sampled(op: OpOverload, args: Sequence[Any]) -> Callable[..., Any] | None:
    image = args[0]
    sampling: Sampling | None = aten_readers()[op](Call(op, args, {}), lambda size: size)
    if sampling is None or 0 in image.shape or not (_has_rank(op, image) and _has_dtype(op, image.dtype)):
        return None
    if isinstance(sampling, Warped):
        if image.dtype not in COORDINATES or sampling.coordinates.dtype not in COORDINATES[image.dtype]:
            return None
        return launch_warp.bound(facts(image), facts(sampling.coordinates), sampling.sampler)
    maps = tuple(AxisMap(() if step is None else (step,)) for step in sampling.steps)
    adjoint = bool(sampling.adjoint_of)
    gradient = _contiguous if op is aten.upsample_bicubic2d_backward.default else _as_it_is
    strides = gradient(image).stride()
    run = launch.bound(
        image.dtype, image.shape, strides, maps, adjoint, sampling.adjoint_of, sampling.border, repr(sampling.border)
    )
    return lambda image, *others: run(gradient(image))


def _has_rank(op: OpOverload, image: Tensor) -> bool:
    """A resize is of (batch, channels, spatial...); other operators check what they need, or take any."""
    axes = [int(letter) for letter in op._schema.name if letter.isdecimal()]
    return "upsample" not in op._schema.name or image.dim() == axes[0] + 2


def _has_dtype(op: OpOverload, dtype: torch.dtype) -> bool:
    """What eager refuses is refused as ever."""
    name = op._schema.name.removeprefix("aten::")
    if name in ("flip", "constant_pad_nd"):
        return dtype in DTYPES
    if "_pad" in name and not name.endswith("_backward"):
        return dtype in DTYPES and dtype != torch.bool
    if "_pad" in name or "pool" in name or "grid_sampler" in name:
        return dtype in COORDINATES
    if "_aa" in name:
        return dtype in (torch.uint8, torch.float32, torch.float64)
    return dtype in WEIGHTED_DTYPES


def _as_it_is(gradient: Tensor) -> Tensor:
    return gradient


def _contiguous(gradient: Tensor) -> Tensor:
    """What eager makes of a gradient in plain bicubic, and only there; of one channel too, by its strides."""
    return gradient.contiguous().as_strided(gradient.shape, dense_strides(gradient.shape, False))


def _warp_gradients(op: OpOverload, args: Sequence[Any]) -> Callable[..., Any] | None:
    gradient, image, grid, mode, padding, align_corners, needed = args
    if image.dtype not in COORDINATES or grid.dtype not in COORDINATES[image.dtype]:
        return None
    sampler = Warp("grid", MODES[mode], PADDINGS[padding], align_corners)
    return launch_warp.bound_gradients(facts(gradient), facts(image), facts(grid), sampler, (needed[0], needed[1]))
