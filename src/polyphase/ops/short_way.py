"""The short way of a call that is like an earlier one: straight to the kernel that was bound for it.

Written once, for all functions of `polyphase.functional`. A function says what program its arguments ask for; what was
bound for them is found again by the arguments and by what is known of the tensors: their sizes and strides only where
the program depends on them, or the device's wing binds one size at a time.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from marshal import dumps, loads
from typing import Any, TypeAlias

import torch
from torch import Tensor

from polyphase.calls import devices
from polyphase.calls.again import GivenSizes, Latest
from polyphase.calls.binding import bind, bound, for_any_size, for_given_sizes
from polyphase.calls.bound import BoundCall, Kept
from polyphase.calls.plain import is_plain
from polyphase.errors import WrongImageError
from polyphase.ops.recorded import recorded
from polyphase.records.facts import facts
from polyphase.sampling.programs import Program

#: What a call asks for, from the facts of its tensors and its other arguments; None where the image stays as it is.
ProgramOf: TypeAlias = "Callable[..., Program | None]"

#: Of the image and the other arguments, the sizes that its axes become; None where they say more, or are none.
SizesOf: TypeAlias = "Callable[..., tuple[int, ...] | None]"

#: A version of marshal's format that writes equal values as equal bytes, whoever else refers to them.
_FORMAT = 2


class ShortWay(Latest):
    """The calls of one function: its latest, and those before it. `any_size`: whether arguments ask for one program,
    whatever the sizes of the tensors are. `parts`: what the kernel is given instead of the tensors themselves; such
    calls are bound to one size, and what needs gradients goes through the operators. `sizes_of`: where the first
    argument may be sizes alone, which calls are then given one by one."""

    def __init__(
        self,
        program_of: ProgramOf,
        any_size: Callable[[tuple[Any, ...]], bool] = lambda given: True,
        parts: Callable[..., tuple[Tensor, ...]] | None = None,
        sizes_of: SizesOf | None = None,
    ) -> None:
        super().__init__()
        self._program_of, self._any_size, self._parts, self._sizes_of = program_of, any_size, parts, sizes_of
        self._calls: Kept[tuple[Any, ...], Callable[..., Tensor]] = Kept()
        self._by_sizes: Kept[tuple[Any, ...], Callable[..., Tensor] | None] = Kept()

    def forget(self) -> None:
        super().forget()
        self._calls.clear()
        self._by_sizes.clear()

    def find(self, given: tuple[Any, ...], tensors: tuple[Any, ...]) -> Callable[..., Tensor] | None:
        """What to call with the tensors; None where the call has to go through the operators.

        By their bytes arguments are found again: they need not be hashable, and 1, 1.0 and True are equal, as are 0.0
        and -0.0, but they do not ask for the same.
        """
        if not _are_plain(tensors) or (self._parts is not None and _need_gradients(tensors)):
            return None
        try:
            key = dumps(given, _FORMAT)
        except ValueError:  # something other than numbers, names, and tuples and lists of them
            given = tuple([tuple(one) if type(one) is torch.Size else one for one in given])
            key = dumps(given, _FORMAT) if _are_builtin(given) else b""
        kinds = tuple([(one.dtype, one.ndim, one.device, one.requires_grad) for one in tensors])
        call = self._calls.get((key, kinds))
        any_size = call is not None
        if call is None:
            known = tuple(map(facts, tensors)), kinds
            call = self._calls.get((key, known))
        if call is None:
            if not devices.has_kernels(tensors[0].device.type):
                return None
            # Of a number of numpy, bytes are its memory alone, which others have too: no bytes of what is remembered
            # are like those.
            if not _are_builtin(given):
                return self._bound(bound, given, tensors)
            call = self._given_sizes(given, tensors, kinds) or self._bound_to_any_size(given, tensors)
            any_size = call is not None
            call = call or self._bound(bind, given, tensors)
            self._calls[key, kinds if any_size else known] = call
        if call is not torch.clone:
            self.follow(call, tensors, given if _cannot_change(given) else loads(key), any_size)
        return call

    def each(self, given: Sequence[tuple[Any, ...]], images: Sequence[tuple[Any, ...]]) -> list[Tensor] | None:
        """Makes many calls, of tensors and of what else each is given: every thread takes the next one when it is done
        with one. None where calls are to be made one by one."""
        if torch.get_num_threads() == 1 or not images or not all(is_plain(one) for each in images for one in each):
            return None  # alone, a thread is quicker that way: it has no new size bound by Python
        device = images[0][0].device
        launch_all = devices.wing_of(device).launch_all if devices.has_kernels(device.type) else None
        if launch_all is None or any(one.device != device for each in images for one in each):
            return None
        calls, results = list[tuple[Any, ...]](), list[Tensor]()
        for number, (tensors, others) in enumerate(zip(images, given, strict=True)):
            with of_image(number, len(images)):
                inputs = tuple(map(facts, tensors))
                program = self._program_of(*inputs, *others)
                call = None if program is None else bound(program, inputs)
            if call is None or call.handle is None:
                results.append(torch.clone(tensors[0]) if call is None else call.fresh(*tensors))
                continue
            _, shape, strides, _ = call.out
            results.append(torch.empty_strided(shape, strides, dtype=call.out.dtype, device=device))
            calls.append((call.handle, results[-1], *tensors))
        launch_all(*calls)
        return results

    def _bound(
        self, bind: Callable[..., BoundCall], given: tuple[Any, ...], tensors: tuple[Tensor, ...]
    ) -> Callable[..., Tensor]:
        """Binds to sizes. `bind`: that of `binding`, or `bound` for what only its program is found again by."""
        inputs = tuple(map(facts, tensors))
        program = self._program_of(*inputs, *given)
        if program is None:
            return torch.clone
        if self._parts is not None:
            return _of_parts(bind(program, tuple(map(facts, self._parts(*tensors)))).fresh, self._parts)
        call = bind(program, inputs).fresh
        return recorded(program, inputs[0], call) if _need_gradients(tensors) else call

    def _bound_to_any_size(self, given: tuple[Any, ...], tensors: tuple[Tensor, ...]) -> Callable[..., Tensor] | None:
        if self._parts is not None or not self._any_size(given) or _need_gradients(tensors):
            return None
        inputs = tuple(map(facts, tensors))
        program = self._program_of(*inputs, *given)
        otherwise = functools.partial(self._once, given)
        return None if program is None else for_any_size(program, inputs, otherwise)

    def _given_sizes(
        self, given: tuple[Any, ...], tensors: tuple[Tensor, ...], kinds: tuple[Any, ...]
    ) -> Callable[..., Tensor] | None:
        """Finds what was bound for any sizes among the arguments."""
        sizes = None if self._sizes_of is None else self._sizes_of(tensors[0], *given)
        if sizes is None or _need_gradients(tensors):
            return None
        name = dumps(given[1:], _FORMAT), kinds
        if name not in self._by_sizes:
            self._by_sizes[name] = self._bound_to_given_sizes(sizes, given, tensors)
        call = self._by_sizes[name]
        return None if call is None else GivenSizes(call, sizes)

    def _bound_to_given_sizes(
        self, sizes: tuple[int, ...], given: tuple[Any, ...], tensors: tuple[Tensor, ...]
    ) -> Callable[..., Tensor] | None:
        inputs, rest = tuple(map(facts, tensors)), loads(dumps(given[1:]))

        def otherwise(*given: Any) -> Tensor:
            return self._once((given[: len(sizes)], *rest), *given[len(sizes) :])

        return for_given_sizes(lambda some: self._program_of(*inputs, some, *rest), sizes, inputs, otherwise)

    def _once(self, given: tuple[Any, ...], *tensors: Tensor) -> Tensor:
        return self._bound(bound, given, tensors)(*tensors)


def _of_parts(call: Callable[..., Tensor], parts: Callable[..., tuple[Tensor, ...]]) -> Callable[..., Tensor]:
    return lambda *tensors: call(*parts(*tensors))


@contextmanager
def of_image(number: int, count: int) -> Iterator[None]:
    """A mistake says of which image of a list it is."""
    try:
        yield
    except Exception as error:
        raise WrongImageError(f"image {number} of {count}: {error}") from error


def _need_gradients(tensors: tuple[Tensor, ...]) -> bool:
    return any([one.requires_grad for one in tensors])  # noqa: C419 a generator takes longer


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
    """Tells of builtin values whether there is no list among them."""
    return all(_cannot_change(one) if type(one) is tuple else type(one) is not list for one in values)


_BUILTIN = frozenset((int, float, bool, str, type(None)))


def _are_plain(tensors: tuple[Any, ...]) -> bool:
    for one in tensors:
        if not is_plain(one, recorded=True):
            return False
    # Integers have no derivatives, whatever they are sampled at: the operator knows.
    return tensors[0].is_floating_point() or not _need_gradients(tensors[1:])
