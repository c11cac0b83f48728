"""Eager code run on the decompositions: a dispatch mode, and what it saw."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

from polyphase.compile.eager_faults import Call
from polyphase.decompositions import table

TABLE = table()


class Recorded(TorchDispatchMode):
    """While active, `calls` lists the overloads of our table that are called. They run as ever.

    Autograd lies above: a backward pass under the mode reaches it as the `_backward` overloads.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: list[Call] = []

    def __torch_dispatch__(
        self, func: OpOverload, types: Sequence[type], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func not in TABLE:
            return func(*args, **kwargs)
        self.calls.append(Call(func, _by_name(func, args, kwargs)))
        return self.implementation(func)(*args, **kwargs)

    def implementation(self, func: OpOverload) -> Callable[..., Any]:
        return func

    @property
    def forward(self) -> Call | None:
        """The only forward call; None if there was none or more than one."""
        return _only([call for call in self.calls if not call.is_backward])

    @property
    def backward(self) -> Call | None:
        return _only([call for call in self.calls if call.is_backward])

    @property
    def replaced(self) -> Counter[str]:
        """How often each ATen operator was replaced."""
        return Counter(call.name for call in self.calls)


class Decomposed(Recorded):
    """While active, every overload of our table runs our decomposition."""

    def implementation(self, func: OpOverload) -> Callable[..., Any]:
        return TABLE[func]


def decomposed(function: Callable[[], Tensor]) -> tuple[Tensor, Decomposed]:
    """What a function of no arguments returns on our decompositions, and the calls they replaced."""
    with Decomposed() as mode:
        return function(), mode


def ours(function: Callable[..., Tensor], *args: Any, **kwargs: Any) -> Tensor:
    """`function(*args, **kwargs)` on our decompositions, which must have run."""
    result, mode = decomposed(lambda: function(*args, **kwargs))
    assert mode.calls, f"{function} reached none of our decompositions"
    return result


def gradient(function: Callable[[Tensor], Tensor], image: Tensor, weight: Tensor | Sequence[float]) -> Tensor:
    """The derivative of `(function(image) * weight).sum()`."""
    image = image.detach().clone().requires_grad_()
    result = function(image)
    weight = torch.as_tensor(weight, dtype=result.dtype).reshape(result.shape)
    return torch.autograd.grad(result, image, weight)[0]


@contextmanager
def threads(number: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _only(calls: list[Call]) -> Call | None:
    return calls[0] if len(calls) == 1 else None


def _by_name(func: OpOverload, args: Sequence[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    names = [argument.name for argument in func._schema.arguments]
    defaults = {argument.name: argument.default_value for argument in func._schema.arguments}
    return {**defaults, **dict(zip(names, args, strict=False)), **kwargs}
