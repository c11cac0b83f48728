"""The short way of a call that is like an earlier one: straight to the kernel that was bound for it.

Written once, for all functions of `polyphase.functional`. A function says what program its arguments ask for; what was
bound for them is found again by the arguments and by what is known of the tensors.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from marshal import dumps
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.compiler import is_dynamo_compiling

from polyphase.kernels import devices
from polyphase.kernels.binding import bind, bound
from polyphase.kernels.facts import Facts
from polyphase.ops.recorded import recorded
from polyphase.plain import NO_CALL, is_plain
from polyphase.sampling.programs import Program

#: What a call asks for, from the facts of its tensors and its other arguments; None where the image stays as it is.
ProgramOf: TypeAlias = "Callable[..., Program | None]"

#: A version of marshal's format that writes equal values as equal bytes, whoever else refers to them.
_FORMAT = 2


class ShortWay:
    """Of one function: its latest call, and those before it."""

    def __init__(self, program_of: ProgramOf, kind: str = devices.MAPS) -> None:
        self._program_of, self._kind = program_of, kind
        self._latest = NO_CALL
        self._call_for = lru_cache(maxsize=256)(self._bind)  # each keeps its tables

    def find(self, given: tuple[Any, ...], *tensors: Any) -> Callable[..., Tensor] | None:
        """What to call with the tensors; None where the call has to go through the operators."""
        if is_dynamo_compiling():
            return None
        try:
            key = dumps(given, _FORMAT)
        except ValueError:  # something other than numbers, names, and tuples and lists of them
            key = None
        latest = self._latest
        if key == latest.given and latest.fits(*tensors):
            return latest.call
        return self._find_earlier(key, given, tensors)

    def _find_earlier(
        self, key: bytes | None, given: tuple[Any, ...], tensors: tuple[Any, ...]
    ) -> Callable[..., Tensor] | None:
        if not _are_plain(tensors) or not devices.has_kernels(tensors[0].device.type, self._kind):
            return None
        known = [(one.dtype, one.shape, one.stride(), one.device, one.requires_grad) for one in tensors]
        if key is not None and _are_builtin(given):
            call = self._call_for(_Key(key).of(given), *known)
            self._latest = self._latest.followed_by(key, call, *tensors)
            return call
        plain = tuple(tuple(one) if type(one) is torch.Size else one for one in given)
        if _are_builtin(plain):
            return self._call_for(_Key(dumps(plain, _FORMAT)).of(plain), *known)
        return self._bind(_Key().of(given), *known)

    def _bind(self, key: _Key, *known: tuple[Any, ...]) -> Callable[..., Tensor]:
        """`known`: the facts of each tensor, and whether it needs a gradient."""
        inputs = tuple(Facts(*one[:-1]) for one in known)
        program = self._program_of(*inputs, *key.given)
        if program is None:
            return torch.clone
        # What has no key is not found again by it, but by its program.
        call = (bind if key else bound)(program, inputs).fresh
        return recorded(program, inputs[0], call) if any(one[-1] for one in known) else call


class _Key(bytes):
    """A call's arguments as bytes, and themselves. By their bytes they are found again: they need not be hashable, and
    1, 1.0 and True are equal, as are 0.0 and -0.0, but they do not ask for the same."""

    given: tuple[Any, ...]

    def of(self, given: tuple[Any, ...]) -> _Key:
        self.given = given
        return self


def _are_builtin(values: tuple[Any, ...] | list[Any]) -> bool:
    """Whether bytes tell the values apart. Of a number of numpy they are its memory alone, which others have too; no
    bytes of what is remembered are like those."""
    for one in values:
        kind = type(one)
        if kind is tuple or kind is list:
            if not _are_builtin(one):
                return False
        elif kind not in _BUILTIN:
            return False
    return True


_BUILTIN = frozenset((int, float, bool, str, type(None)))


def _are_plain(tensors: tuple[Any, ...]) -> bool:
    for one in tensors:
        if not is_plain(one, recorded=True):
            return False
    # Integers have no derivatives, whatever they are sampled at: the operator knows.
    return tensors[0].is_floating_point() or not any(one.requires_grad for one in tensors[1:])
