"""What an operator's Autograd kernel calls, one level of differentiation at a time.

torch.func nests levels: the dispatcher comes to the kernel for each, and below autograd finds the next.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._C import _are_functorch_transforms_active
from torch._functorch.utils import enable_single_level_autograd_function
from torch.autograd.forward_ad import _set_fwd_grad_enabled


def below_autograd(operator: Callable[..., Any], *arguments: Any) -> Any:
    """Nothing to record at this level."""
    with torch._C._AutoDispatchBelowAutograd():
        return operator(*arguments)


def with_autograd(function: Callable[..., Any], *arguments: Any) -> Any:
    """For what differentiates by itself, though called from below autograd, and records nothing."""
    include, exclude = torch._C._dispatch_tls_local_include_set(), torch._C._dispatch_tls_local_exclude_set()
    with torch.no_grad(), torch._C._ForceDispatchKeyGuard(include, exclude - _AUTOGRAD):
        return function(*arguments)


def _autograd_keys() -> torch._C.DispatchKeySet:
    before = torch._C._dispatch_tls_local_exclude_set()
    with torch._C._AutoDispatchBelowAutograd():
        return torch._C._dispatch_tls_local_exclude_set() - before


_AUTOGRAD = _autograd_keys()


def recorded(function: Any, *arguments: Any) -> Any:
    """By a `_SingleLevelFunction`, whose forward is `forward`."""
    with enable_single_level_autograd_function():
        return function.apply(*arguments)


def forward(operator: Callable[..., Any], *arguments: Any) -> Any:
    """An autograd function switches differentiation off for all that its forward calls: it is switched on again for
    the levels below."""
    if not _are_functorch_transforms_active():
        return below_autograd(operator, *arguments)
    with torch.enable_grad(), _set_fwd_grad_enabled(True):
        return below_autograd(operator, *arguments)
