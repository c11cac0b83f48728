"""The latest call of a function, once more.

Most calls are like the one before: that is quicker to tell than what they are, and where an image has just gone through
the caches, all that is looked up comes from far away. It is told in C (`launch/again.h`), from the arguments to the
kernel; where nothing can be built, by the plain twin below.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol
from weakref import WeakSet

import torch
from torch import Tensor
from torch.overrides import has_torch_function_unary

from polyphase.calls import devices
from polyphase.calls.plain import guard_of
from polyphase.torch_private import forward_level, len_torch_dispatch_stack


class Parts(NamedTuple):
    """call: with the tensors, of which there are so many; before them the sizes that stand in this place of the other
    arguments, which may be any then (-1: in none). given: the other arguments, in objects that nobody changes. guard:
    whether tensors are like those that the call was for, asked where none is nested. The rest is the same for all
    calls."""

    call: Callable[..., Any]
    tensors: int
    given: tuple[Any, ...]
    guard: Callable[..., bool]
    place_of_sizes: int = -1
    tensor_type: type = Tensor
    dispatch_modes: Callable[[], int] = len_torch_dispatch_stack  # Dynamo's guards overlook some
    has_function_mode: Callable[[Any], bool] = has_torch_function_unary  # asked of a tensor that is no subclass
    forward_level: Callable[[], int] = forward_level
    size_type: type = torch.Size


@dataclass(frozen=True)
class GivenSizes:
    """A call of a function that is given sizes before its tensors."""

    call: Callable[..., Any]
    sizes: tuple[int, ...]

    def __call__(self, *tensors: Tensor) -> Any:
        return self.call(*self.sizes, *tensors)


class Latest:
    """again: of tensors and the other arguments the result, or None where this is another call than the latest."""

    def __init__(self) -> None:
        self.again = never
        self._call: Callable[..., Any] | None = None
        forgets(self)

    def forget(self) -> None:
        self.again, self._call = never, None

    def follow(
        self,
        call: Callable[..., Any],
        tensors: tuple[Tensor, ...],
        given: tuple[Any, ...] = (),
        any_size: bool = False,
        place_of_sizes: int = 0,
    ) -> None:
        """A call that is not like the latest was made, with tensors that are plain (or recorded). It can be made again
        when it comes a second time. `given`: as `Parts` has them. any_size: for tensors of other sizes too.
        place_of_sizes: of those that a call is given, if it is."""
        if isinstance(call, GivenSizes):
            call = call.call
        else:
            place_of_sizes = -1
        guard = guard_of(tensors, any_size) if call is self._call else None
        self._call = call
        if guard is None:
            self.again = never
        else:
            made = devices.wing_of(tensors[0].device).again() or plainly
            self.again = made(Parts(call, len(tensors), given, guard, place_of_sizes))


class Forgets(Protocol):
    def forget(self) -> None: ...


_ALL: WeakSet[Forgets] = WeakSet()


def forgets(one: Forgets) -> None:
    """Has `forget` ask it to forget its calls, too."""
    _ALL.add(one)


def forget() -> None:
    """Forgets all calls that are made again by what was bound before."""
    for one in [*_ALL]:
        one.forget()


def never(*arguments: Any) -> Any:
    return None


def plainly(parts: Parts) -> Callable[..., Any]:
    """The plain twin of `again.h`."""

    def again(*arguments: Any) -> Any:
        tensors: tuple[Any, ...] = arguments[: parts.tensors]
        given, place, sizes = arguments[parts.tensors :], parts.place_of_sizes, tuple[int, ...]()
        if place >= 0 and len(given) == len(parts.given) and _is_row_of(given[place], len(parts.given[place])):
            sizes, given = tuple(given[place]), (*given[:place], parts.given[place], *given[place + 1 :])
        elif place >= 0:
            return None
        if len(tensors) < parts.tensors or not are_same(given, parts.given):
            return None
        for one in tensors:
            if type(one) is not Tensor or one.is_nested:
                return None
        alike = (
            parts.guard(*tensors)
            and not parts.dispatch_modes()
            and not parts.has_function_mode(tensors[0])
            and parts.forward_level() < 0
        )
        return parts.call(*sizes, *tensors) if alike else None

    return again


def _is_row_of(row: Any, count: int) -> bool:
    """Whether this is a row of so many sizes that calls may be given."""
    return type(row) in (tuple, list, torch.Size) and len(row) == count and are_given_sizes(row)


def are_given_sizes(row: Sequence[Any]) -> bool:
    """Whether what was bound to any sizes may be given these: what becomes one pixel may be another program. The C++
    twin is `read_sizes` of `launch/again.h`."""
    return all(type(one) is int and 1 < one < 2**31 for one in row)


def are_same(a: Any, b: Any) -> bool:
    """Whether an argument asks for what another does, which consists of numbers, names, None, and tuples and lists of
    them. A torch.Size is as good as a tuple. 1, 1.0 and True are equal, as are 0.0 and -0.0, but they are not the
    same."""
    if a is b:
        return True
    kind: Any = type(a)
    kind = tuple if kind is torch.Size else kind
    if kind is not type(b):
        return False
    if kind is tuple or kind is list:
        return len(a) == len(b) and all(map(are_same, a, b))
    return bool(a.hex() == b.hex() if kind is float else a == b)
