"""Whether an image can go straight to a kernel, past torch's dispatcher, which costs more than a small resize.

What could be special about a tensor (device, layout, gradients, transforms, tracing, autocast, lazy negation) is in its
dispatch keys and the thread's. Dynamo's guard on the inputs of a graph compares all of them with an example's at once,
in less time than asking one by one. It is private and used here only. Where a version of torch has it no longer,
nothing is plain and every call takes the operator: slower, never wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.compiler import is_dynamo_compiling
from torch.overrides import has_torch_function_unary

try:
    from torch._C import _len_torch_dispatch_stack
    from torch._C._dynamo import guards

    _CAN_TELL = hasattr(guards, "TensorGuards") and hasattr(forward_ad, "_current_level")
except ImportError:
    _CAN_TELL = False

Check: TypeAlias = Callable[..., bool]

DTYPES = (
    *(torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool),
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128),
)
DIFFERENTIABLE = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
MOST_DIMENSIONS = 8


def is_plain(image: object, *, recorded: bool = False) -> bool:
    """True only for a dense CPU tensor of a common dtype and rank, of which nothing is to be recorded, traced,
    transformed, cast or resolved. With `recorded`, one that needs a gradient may be recorded, by autograd alone."""
    if is_dynamo_compiling() or type(image) is not Tensor:  # first: Dynamo cannot trace the rest
        return False
    needs_gradient = image.requires_grad
    if needs_gradient and not recorded:
        return False
    checks = _CHECKS.get((image.dtype, image.ndim, needs_gradient))
    return (
        checks is not None
        and (checks[0](image) or any(check(image) for check in checks[1:]))
        and not _len_torch_dispatch_stack()  # Dynamo's guards overlook some modes
        and not has_torch_function_unary(image)  # of a tensor that is no subclass: whether a function mode is on
        and forward_ad._current_level < 0
    )


def check_of_same(*tensors: Tensor) -> Check:
    """A check that tensors are as the given ones, which are plain (or recorded), and of their sizes and strides.

    It does for `is_plain` and for a look-up by shape, at a third of the cost of both.
    """
    same = _guard(tensors, [list(one.shape) for one in tensors], [list(one.stride()) for one in tensors])

    def check(*others: object) -> bool:
        return (
            same(*others)
            and not _len_torch_dispatch_stack()
            and not has_torch_function_unary(others[0])
            and forward_ad._current_level < 0
        )

    return check


class Latest(NamedTuple):
    """The latest call of a function. Most calls are like the one before: that is quicker to tell than what they are,
    and where an image has just gone through the caches, all that is looked up comes from far away. `fits` says whether
    tensors are like those it was for; it is made when the same call comes a second time."""

    given: Any
    fits: Check
    call: Callable[..., Tensor]

    def followed_by(self, given: Any, call: Callable[..., Tensor], *tensors: Tensor) -> Latest:
        again = call is self.call and call is not torch.clone
        return Latest(given, check_of_same(*tensors) if again else _never, call)


def _never(*tensors: object) -> bool:
    return False


NO_CALL = Latest(((), None, None), _never, torch.clone)


def forward_mode_is_on() -> bool:
    """Whether tensors may carry tangents; True where torch no longer tells."""
    return getattr(forward_ad, "_current_level", 0) >= 0


def _checks_of_a_new_thread() -> dict[tuple[torch.dtype, int, bool], list[Check]]:
    """By dtype, rank and whether a gradient is needed. A new thread has no mode, transform or autocast on, whatever the
    one that imports this has."""
    if not _CAN_TELL:
        return {}
    kinds = [(dtype, rank, False) for dtype in DTYPES for rank in range(MOST_DIMENSIONS + 1)]
    kinds += [(dtype, rank, True) for dtype in DIFFERENTIABLE for rank in range(MOST_DIMENSIONS + 1)]
    try:
        with ThreadPoolExecutor(1) as thread:
            return {kind: thread.submit(_checks, *kind).result() for kind in kinds}
    except TypeError:  # the guards' arguments are others now
        return {}


def _checks(dtype: torch.dtype, rank: int, needs_gradient: bool) -> list[Check]:
    """Inference mode or not, for a tensor made in inference mode or not; neither is the common case, and first."""
    if needs_gradient:
        return [_like(torch.empty([1] * rank, dtype=dtype, device="cpu", requires_grad=True))]
    checks, modes = [], (False, True)
    for made_in, used_in in product(modes, modes):
        with torch.inference_mode(made_in):
            example = torch.empty([1] * rank, dtype=dtype, device="cpu")
        with torch.inference_mode(used_in):
            checks.append(_like(example))
    return checks


def _like(example: Tensor) -> Check:
    """Whether a tensor has the Python type, dtype, device and rank of the example, needs a gradient as it does or not,
    and has the same dispatch keys after the thread's own are added and taken away: it would call the same kernels."""
    any_size = [[None] * example.dim()]
    return _guard((example,), any_size, any_size)


def _guard(examples: tuple[Tensor, ...], sizes: list[Any], strides: list[Any]) -> Check:
    guard_like: Any = guards.TensorGuards  # its stub is wrong
    check: Check = guard_like(*examples, dynamic_dims_sizes=sizes, dynamic_dims_strides=strides).check
    return check


_CHECKS = _checks_of_a_new_thread()
