"""Whether an image can go straight to a kernel, past torch's dispatcher, which costs more than a small resize.

What could be special about a tensor (device, layout, gradients, transforms, tracing, autocast, lazy negation) is in its
dispatch keys and the thread's. Dynamo's guard on the inputs of a graph compares all of them with an example's at once,
in less time than asking one by one. It is private. Where a version of torch has it no longer, nothing is plain and
every call takes the operator: slower, never wrong.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import product
from operator import attrgetter
from threading import Thread
from typing import Any, TypeAlias, TypeGuard, TypeVar

import torch
from torch import Tensor
from torch.compiler import is_dynamo_compiling
from torch.overrides import has_torch_function_unary

from polyphase.calls import devices
from polyphase.calls.bound import Kept
from polyphase.torch_private import (
    TensorGuards,
    forward_level,
    is_within_jvp,
    len_torch_dispatch_stack,
    warn_that_it_changed,
)

Check: TypeAlias = Callable[..., bool]
Result = TypeVar("Result")

DTYPES = (
    *(torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool),
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128),
)
#: Of images of our functions. Few of torch's operators take uint16.
IMAGES = (*DTYPES, torch.uint16)
DIFFERENTIABLE = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
MOST_DIMENSIONS = 8


def is_plain(image: object, *, recorded: bool = False) -> bool:
    """True only for a dense tensor of a common dtype and rank, on a device that has kernels, of which nothing is to be
    recorded, traced, transformed, cast or resolved. With `recorded`, one that needs a gradient may be recorded, by
    autograd alone."""
    if is_dynamo_compiling() or not _can_be_guarded(image):  # first: Dynamo cannot trace the rest
        return False
    needs_gradient = image.requires_grad
    if needs_gradient and not recorded:
        return False
    kind = (image.dtype, image.ndim, needs_gradient)
    if not _USUAL[kind](image) and not _fits_another(image, kind):
        return False
    return (
        not len_torch_dispatch_stack()  # Dynamo's guards overlook some modes
        and not has_torch_function_unary(image)  # of a tensor that is no subclass: whether a function mode is on
        and forward_level() < 0
    )


def are_plain(images: Sequence[Any]) -> bool:
    """Whether all are plain, and of one dtype, rank and device: by one check, where as many were seen before."""
    first = images[0]
    if not is_plain(first) or {*map(type, images)} != {Tensor} or any(map(_is_nested, images)):  # `_can_be_guarded`
        return False
    name = (len(images), first.dtype, first.ndim, first.device)
    check = _MANY.get(name)
    if check is not None and check(*images):
        return True
    if not all(is_plain(one) and (one.dtype, one.ndim, one.device) == name[1:] for one in images):
        return False
    made = guard_of(tuple(images), any_size=True)
    if made is not None:
        _MANY[name] = made
    return True


_is_nested = attrgetter("is_nested")
#: By how many there are of a kind.
_MANY: Kept[tuple[Any, ...], Check] = Kept(64)


def guard_of(tensors: tuple[Tensor, ...], any_size: bool) -> Check | None:
    """A check that tensors are as these, which are plain (or recorded), and of their sizes and strides unless those may
    be any. It does for `is_plain`, but for what `Parts` of `again.py` asks besides; None where torch has no guards."""
    if TensorGuards is None:
        return None
    if any_size:
        any_of_each = [[None] * one.dim() for one in tensors]
        return _guard(tensors, any_of_each, any_of_each)
    return _guard(tensors, [list(one.shape) for one in tensors], [list(one.stride()) for one in tensors])


def forward_mode_is_on() -> bool:
    """Whether tensors may carry tangents. A graph that Dynamo made of torch.func.jvp tells functorch alone."""
    return forward_level() >= 0 or is_within_jvp()


def _never(tensors: object) -> bool:
    return False


_Kind: TypeAlias = tuple[torch.dtype, int, bool]

#: By dtype, rank and whether a gradient is needed: the check that the latest such tensor passed, and all there are, for
#: every device that one was seen on.
_USUAL: defaultdict[_Kind, Check] = defaultdict(lambda: _never)
_CHECKS: dict[_Kind, list[Check]] = {}
_SEEN: set[tuple[torch.device, _Kind]] = set()


def _fits_another(image: Tensor, kind: _Kind) -> bool:
    """Whether an image passes another check than the usual one of its kind. Checks are made for the first such image on
    a device, once for all: what has kernels then is settled."""
    seen = (image.device, kind)
    if seen not in _SEEN:
        made = _new_checks(image.device, kind)
        if made is None:
            return False
        _CHECKS[kind] = [*_CHECKS.get(kind, ()), *made]  # a new list: other threads may be going over the old one
        _SEEN.add(seen)
    for check in _CHECKS[kind]:
        if check(image):
            _USUAL[kind] = check
            return True
    return False


def _new_checks(device: torch.device, kind: _Kind) -> list[Check] | None:
    """Makes a list of checks; None where there can be no threads any more, as the process ends."""
    dtype, rank, needs_gradient = kind
    fewest = 0 if device.type == "cpu" else 1  # no dimensions: not even an example is without an element
    known = dtype in (DIFFERENTIABLE if needs_gradient else IMAGES) and fewest <= rank <= MOST_DIMENSIONS
    if TensorGuards is None or not known or not devices.has_kernels(device.type):
        return []
    try:
        return in_a_new_thread(_checks, device, *kind)
    except TypeError:  # the guards' arguments are others now
        warn_that_it_changed("TensorGuards")
        return []
    except RuntimeError:
        return None


def in_a_new_thread(function: Callable[..., Result], *arguments: Any) -> Result:
    """A new thread has no mode, transform or autocast on and is below nothing, whatever this one has and is."""
    results: list[Result] = []
    errors: list[BaseException] = []

    def call() -> None:
        try:
            results.append(function(*arguments))
        except BaseException as error:
            errors.append(error)

    thread = Thread(target=call)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]


def _checks(device: torch.device, dtype: torch.dtype, rank: int, needs_gradient: bool) -> list[Check]:
    """Inference mode or not, for a tensor made in inference mode or not; neither is the common case, and first."""
    shape = [0] * rank  # nothing is allocated: a CUDA graph may be being captured
    if needs_gradient:
        return [_like(torch.empty(shape, dtype=dtype, device=device, requires_grad=True))]
    checks, modes = [], (False, True)
    for made_in, used_in in product(modes, modes):
        with torch.inference_mode(made_in):
            example = torch.empty(shape, dtype=dtype, device=device)
        with torch.inference_mode(used_in):
            checks.append(_like(example))
    return checks


def _can_be_guarded(image: object) -> TypeGuard[Tensor]:
    """Dynamo's guard asks for strides before anything else. A nested tensor has none, and its error, which nothing up
    the stack catches, would end the process."""
    return type(image) is Tensor and not image.is_nested


def _like(example: Tensor) -> Check:
    """Whether a tensor has the Python type, dtype, device and rank of the example, needs a gradient as it does or not,
    and has the same dispatch keys after the thread's own are added and taken away: it would call the same kernels."""
    any_of_it = [[None] * example.dim()]
    return _guard((example,), any_of_it, any_of_it)


def _guard(examples: tuple[Tensor, ...], sizes: list[Any], strides: list[Any]) -> Check:
    check: Check = TensorGuards(*examples, dynamic_dims_sizes=sizes, dynamic_dims_strides=strides).check
    return check
