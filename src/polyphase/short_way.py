"""The short way of a call that is like an earlier one: straight to the kernel that was bound for it.

Written once, for all functions of `polyphase.functional`. A function says what program its arguments ask for; what was
bound for them is found again by the arguments and by what is known of the tensors.
"""

from __future__ import annotations

from collections.abc import Callable
from marshal import dumps
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.compiler import is_dynamo_compiling

from polyphase.kernels import devices
from polyphase.kernels.binding import BoundCall, bind, bound
from polyphase.kernels.facts import Facts
from polyphase.ops.recorded import recorded
from polyphase.plain import NO_ARGUMENTS, NO_CALL, is_plain
from polyphase.sampling.programs import Program

#: What a call asks for, from the facts of its tensors and its other arguments; None where the image stays as it is.
ProgramOf: TypeAlias = "Callable[..., Program | None]"

#: A version of marshal's format that writes equal values as equal bytes, whoever else refers to them.
_FORMAT = 2
#: So many calls of each function are remembered, then all are forgotten: each keeps its tables.
_MOST_CALLS = 256


class ShortWay:
    """Of one function, with so many arguments besides tensors: its latest call, and those before it."""

    def __init__(self, program_of: ProgramOf, arguments: int) -> None:
        self._program_of, self._are_same = program_of, _ARE_SAME[arguments]
        self._latest = NO_CALL
        self._calls: dict[tuple[Any, ...], Callable[..., Tensor]] = {}

    def find(self, given: tuple[Any, ...], tensors: tuple[Any, ...]) -> Callable[..., Tensor] | None:
        """What to call with the tensors; None where the call has to go through the operators.

        By their bytes arguments are found again: they need not be hashable, and 1, 1.0 and True are equal, as are 0.0
        and -0.0, but they do not ask for the same.
        """
        if is_dynamo_compiling():
            return None
        latest = self._latest
        if self._are_same(given, latest.objects) and latest.fits(tensors):
            return latest.call
        key: bytes | None
        try:
            key = dumps(given, _FORMAT)
        except ValueError:  # something other than numbers, names, and tuples and lists of them
            given = tuple([tuple(one) if type(one) is torch.Size else one for one in given])
            key = dumps(given, _FORMAT) if _are_builtin(given) else None
        if key == latest.given and latest.fits(tensors):
            return latest.call
        if not _are_plain(tensors):
            return None
        known = tuple([(one.dtype, one.shape, one.stride(), one.device, one.requires_grad) for one in tensors])
        call = self._calls.get((key, known))
        if call is None:
            if not devices.has_kernels(tensors[0].device.type):
                return None
            # Of a number of numpy, bytes are its memory alone, which others have too: no bytes of what is remembered
            # are like those.
            if not _are_builtin(given):
                return self._bind(bound, given, known)
            call = self._bind(bind, given, known)
            if len(self._calls) >= _MOST_CALLS:
                self._calls.clear()
            self._calls[key, known] = call
        self._latest = latest.followed_by(key, call, tensors, given if _cannot_change(given) else NO_ARGUMENTS)
        return call

    def _bind(
        self, bind: Callable[..., BoundCall], given: tuple[Any, ...], known: tuple[Any, ...]
    ) -> Callable[..., Tensor]:
        """`bind` that of `binding`, or `bound` for what only its program is found again by. `known`: the facts of each
        tensor, and whether it needs a gradient."""
        inputs = tuple([Facts(*one[:-1]) for one in known])
        program = self._program_of(*inputs, *given)
        if program is None:
            return torch.clone
        call = bind(program, inputs).fresh
        return recorded(program, inputs[0], call) if any(one[-1] for one in known) else call


def _are_builtin(values: tuple[Any, ...] | list[Any]) -> bool:
    """Whether bytes tell the values apart."""
    for one in values:
        kind = type(one)
        if kind is tuple or kind is list:
            if not _are_builtin(one):
                return False
        elif kind not in _BUILTIN:
            return False
    return True


def _cannot_change(values: tuple[Any, ...]) -> bool:
    """Of builtin values: whether there is no list among them."""
    return all(_cannot_change(one) if type(one) is tuple else type(one) is not list for one in values)


#: By how many there are: whether arguments are the very objects that others are, as literals of a call are each time,
#: which is sooner told than by their bytes.
_ARE_SAME: dict[int, Callable[[tuple[Any, ...], tuple[Any, ...]], bool]] = {
    1: lambda a, b: a[0] is b[0],
    3: lambda a, b: a[0] is b[0] and a[1] is b[1] and a[2] is b[2],
    4: lambda a, b: a[0] is b[0] and a[1] is b[1] and a[2] is b[2] and a[3] is b[3],
    6: lambda a, b: a[0] is b[0] and a[1] is b[1] and a[2] is b[2] and a[3] is b[3] and a[4] is b[4] and a[5] is b[5],
}

_BUILTIN = frozenset((int, float, bool, str, type(None)))


def _are_plain(tensors: tuple[Any, ...]) -> bool:
    for one in tensors:
        if not is_plain(one, recorded=True):
            return False
    # Integers have no derivatives, whatever they are sampled at: the operator knows.
    return tensors[0].is_floating_point() or not any(one.requires_grad for one in tensors[1:])
