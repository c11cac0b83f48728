"""The calls of ATen that a function makes, without data: as they are below autograd, composite operators taken apart,
and functional, so that every tensor has one call that made it and keeps its values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from polyphase.decompositions.upsample import arguments_of
from polyphase.torch_private import TorchDispatchMode


@dataclass(frozen=True, eq=False)
class Call:
    """position: which of the results, where there are several."""

    operator: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    result: Tensor
    position: int | None = None

    def arguments(self) -> dict[str, Any]:
        """Lists the arguments by name, defaults filled in."""
        return arguments_of(self.operator, self.args, self.kwargs)


@dataclass
class Recording:
    """calls: by the identity of what they made."""

    result: Tensor | None = None
    inputs: list[Tensor] = field(default_factory=list)
    calls: dict[int, Call] = field(default_factory=dict)

    def made(self, tensor: Tensor) -> Call | None:
        return self.calls.get(id(tensor))

    def floats(self) -> set[torch.dtype]:
        """Dtypes that it computes in."""
        return {call.result.dtype for call in self.calls.values() if call.result.dtype.is_floating_point}

    def operators(self) -> set[Any]:
        return {call.operator for call in self.calls.values()}


class SizeAskedError(Exception):
    """A kernel in C++ asks for the value of a size that is left open, which would fix it: each other value would be
    compiled anew."""


#: What asks for values, and of what; operators that leave sizes open ask for symbols instead.
_ASKS: dict[Any, Callable[[Tensor], Sequence[Any]]] = {
    torch.ops.aten.size.default: Tensor.size,
    torch.ops.aten.stride.default: Tensor.stride,
    torch.ops.aten.storage_offset.default: lambda tensor: (tensor.storage_offset(),),
}


class _Recorder(TorchDispatchMode):  # type: ignore[misc]
    def __init__(self, recording: Recording) -> None:
        super().__init__()
        self._recording = recording

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function in _ASKS and any(isinstance(n, torch.SymInt) for n in _ASKS[function](args[0])):
            raise SizeAskedError(str(function))
        result = function(*args, **(kwargs or {}))
        several = isinstance(result, (tuple, list))
        for position, one in enumerate(result if several else [result]):
            if isinstance(one, Tensor):
                call = Call(function, args, kwargs or {}, one, position if several else None)
                self._recording.calls.setdefault(id(one), call)
        return result


def recorded(function: Callable[..., Any], inputs: Sequence[Tensor], fake_mode: Any) -> Recording:
    """What `function` calls for tensors like the inputs; its result is a tensor, or is not looked at."""
    recording = Recording()

    def functional(*tensors: Tensor) -> Any:
        return function(*tensors)

    with torch.no_grad(), fake_mode:
        recording.inputs = [torch.empty_strided(one.shape, one.stride(), dtype=one.dtype, device=one.device)
                            for one in inputs]  # fmt: skip
        with _Recorder(recording):
            result = torch.func.functionalize(functional, remove="mutations")(*recording.inputs)
    recording.result = result if isinstance(result, Tensor) else None
    return recording
