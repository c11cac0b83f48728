"""The same function on eager and compiled by the backend: values, strides, gradients, launches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

import polyphase

BACKEND = "polyphase"
Function = Callable[..., Any]


def compiled(function: Function, **options: Any) -> Any:
    return torch.compile(function, backend=BACKEND, **options)


def launches(function: Function, *args: Any) -> tuple[Any, int]:
    """The result, and how many kernels of ours ran for it."""
    before = polyphase.stats()["kernels_launched"]
    result = function(*args)
    return result, polyphase.stats()["kernels_launched"] - before


def check(function: Function, *tensors: Tensor, run: Function | None = None, exact: bool | None = None) -> None:
    """`run`, by default the function compiled, gives what the function gives, on tensors that it may write to.

    Integers have to be equal, bit for bit; `exact` says it for floats.
    """
    theirs, ours = _copies(tensors), _copies(tensors)
    want, got = function(*theirs), (run or compiled(function))(*ours)
    same(got, want, exact)
    same(ours, theirs, exact)


def check_gradients(
    function: Function, *tensors: Tensor, run: Function | None = None, rtol: float | None = None
) -> None:
    """Outputs and gradients of all floating tensors. `rtol`: of gradients, where coordinates are computed in floats;
    outputs are then as far apart as both may be from the truth, which is a hundredth of it."""
    theirs, ours = _leaves(tensors), _leaves(tensors)
    want, got = function(*theirs), (run or compiled(function))(*ours)
    if rtol is None:
        same(got, want)
    else:
        torch.testing.assert_close(got, want, rtol=rtol / 100, atol=rtol / 100)
    incoming = [torch.cos(torch.arange(one.numel(), dtype=one.dtype)).view(one.shape) for one in _as_tuple(want)]
    wanted, found = (
        torch.autograd.grad(_as_tuple(outputs), [one for one in inputs if one.requires_grad], incoming)
        for outputs, inputs in ((want, theirs), (got, ours))
    )
    torch.testing.assert_close(found, wanted, rtol=rtol, atol=None if rtol is None else rtol)


def elements_saved(function: Function, *tensors: Tensor) -> list[int]:
    """Of every tensor that autograd keeps for the backward of a call."""
    found: list[int] = []

    def note(tensor: Tensor) -> Tensor:
        found.append(tensor.numel())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda one: one):
        function(*_leaves(tensors))
    return found


def same(got: Any, want: Any, exact: bool | None = None) -> None:
    ours, theirs = _as_tuple(got), _as_tuple(want)
    assert len(ours) == len(theirs)
    for one, other in zip(ours, theirs, strict=True):
        every_bit = not (other.is_floating_point() or other.is_complex()) if exact is None else exact
        torch.testing.assert_close(
            one, other, equal_nan=True, **({"rtol": 0.0, "atol": 0.0} if every_bit else {"rtol": None, "atol": None})
        )
        assert one.stride() == other.stride(), f"strides {one.stride()}, eager's {other.stride()}"


def _as_tuple(outputs: Any) -> tuple[Tensor, ...]:
    return (outputs,) if isinstance(outputs, Tensor) else tuple(outputs)


def _copies(tensors: Sequence[Tensor]) -> list[Tensor]:
    return [one.detach().clone() for one in tensors]


def _leaves(tensors: Sequence[Tensor]) -> list[Tensor]:
    return [one.detach().clone().requires_grad_(one.is_floating_point()) for one in tensors]
