"""What an operator's Autograd kernel calls, one level of differentiation at a time.

torch.func nests levels: the dispatcher comes to the kernel for each, and below autograd finds the next.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from polyphase.calls.plain import in_a_new_thread
from polyphase.ops.library import LIBRARY
from polyphase.torch_private import (
    AutoDispatchBelowAutograd,
    ForceDispatchKeyGuard,
    SingleLevelFunction,
    are_functorch_transforms_active,
    enable_single_level_autograd_function,
    excluded_keys,
    included_keys,
    set_fwd_grad_enabled,
)

#: Whether torch has all it takes. Where it has not, its own `torch.library.register_autograd` does for plain gradients.
ARE_KNOWN = SingleLevelFunction is not torch.autograd.Function and None not in (
    AutoDispatchBelowAutograd,
    are_functorch_transforms_active,
    enable_single_level_autograd_function,
    set_fwd_grad_enabled,
)


def register(name: str, kernel: Callable[..., Any], function: Any) -> None:
    """An operator's derivatives: its Autograd kernel, which has the `function` recorded where something is to be."""
    if ARE_KNOWN:
        LIBRARY.impl(name, kernel, "Autograd")
    else:
        torch.library.register_autograd(
            f"polyphase::{name}", function.backward, setup_context=function.setup_context, lib=LIBRARY
        )


def below_autograd(operator: Callable[..., Any], *arguments: Any) -> Any:
    """Nothing to record at this level."""
    with AutoDispatchBelowAutograd():
        return operator(*arguments)


def with_autograd(function: Callable[..., Any], *arguments: Any) -> Any:
    """Wraps what differentiates by itself, though called from below autograd, and records nothing."""
    if _AUTOGRAD is None:
        return in_a_new_thread(torch.no_grad()(function), *arguments)
    with torch.no_grad(), ForceDispatchKeyGuard(included_keys(), excluded_keys() - _AUTOGRAD):
        return function(*arguments)


def _autograd_keys() -> Any:
    """Gives the keys of autograd; None where they, or how to set them, cannot be known."""
    if None in (AutoDispatchBelowAutograd, included_keys, excluded_keys, ForceDispatchKeyGuard):
        return None
    before = excluded_keys()
    with AutoDispatchBelowAutograd():
        return excluded_keys() - before


_AUTOGRAD = _autograd_keys()


def recorded(function: Any, *arguments: Any) -> Any:
    """Records a call by a `SingleLevelFunction`, whose forward is `forward`."""
    with enable_single_level_autograd_function():
        return function.apply(*arguments)


def forward(operator: Callable[..., Any], *arguments: Any) -> Any:
    """An autograd function switches differentiation off for all that its forward calls: it is switched on again for
    the levels below."""
    if not are_functorch_transforms_active():
        return below_autograd(operator, *arguments)
    with torch.enable_grad(), set_fwd_grad_enabled(True):
        return below_autograd(operator, *arguments)
