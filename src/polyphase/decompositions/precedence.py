"""Who decomposes first: torch's built-in Python decompositions, or the table a tracer is given.

torch attaches Python decompositions of its own to the upsample overloads (`py_impl` for Autograd and
CompositeImplicitAutograd). While tracing they come first: a table given to make_fx, AOTAutograd or torch.export never
sees a bilinear resize, and the result is torch's int64, planar, off-by-one-in-uint8 version.

What overloads and tables have is for the whole process, and other threads may be tracing too. So while any thread wants
something else there, what is there asks at every call which thread it is called in.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, TypeAlias

from polyphase.torch_private import (
    DispatchKey,
    OpOverload,
    call_under_key,
    decomposition_table,
    dispatch_cache_of,
    python_kernels_of,
)

Kernel: TypeAlias = Callable[..., Any]
Table: TypeAlias = MutableMapping[Any, Any]

_AUTOGRAD, _COMPOSITE, _META = DispatchKey.Autograd, DispatchKey.CompositeImplicitAutograd, DispatchKey.Meta
#: Where torch has no CUDA, what is under CompositeImplicitAutograd comes before Autograd for its fake tensors.
_AUTOGRAD_CUDA = DispatchKey.AutogradCUDA


def anywhere(op: OpOverload, *args: Any, **kwargs: Any) -> bool:
    return True


@dataclass(frozen=True)
class _Wish:
    """What overloads are to do, for arguments of which `where` says so."""

    kernels: Mapping[OpOverload, Kernel | None]
    where: Callable[..., bool]
    shapes: Mapping[OpOverload, Kernel]


class _Thread(threading.local):
    wishes: tuple[_Wish, ...] = ()  # the innermost first


_here = _Thread()


@contextmanager
def built_ins_replaced(
    kernels: Mapping[OpOverload, Kernel | None],
    where: Callable[..., bool] = anywhere,
    shapes: Mapping[OpOverload, Kernel] = MappingProxyType({}),
    tables: Sequence[Table] = (),
) -> Iterator[None]:
    """While the block runs, and in its thread, overloads have these Python kernels instead of torch's own; None leaves
    an overload whole.

    `where` says for which overload and arguments; elsewhere torch's own run. `shapes`: what overloads do without data,
    where torch cannot tell that of symbolic sizes. `tables`: of decompositions, in which it holds too. May be nested.
    What was there is put back, also after an error.
    """
    before = _here.wishes
    places = [place for op in kernels for place in _places(op, tables, op in shapes)]
    _put(places)
    _here.wishes = (_Wish(kernels, where, shapes), *before)
    try:
        yield
    finally:
        _here.wishes = before
        _take_away(places)


def _wish(op: OpOverload, args: Any, kwargs: Any) -> _Wish | None:
    """This thread's, for a call."""
    for one in _here.wishes:
        if op in one.kernels and one.where(op, *args, **kwargs):
            return one
    return None


# ---- what asks which thread it is called in, and where it is put


@dataclass(frozen=True)
class _Place:
    """An entry of an overload's Python kernels, or of a table of decompositions, and what takes its place: `asks` of
    the overload and of what is torch's own there."""

    holder: Table
    key: Any
    op: OpOverload
    asks: Callable[[OpOverload, Kernel], Kernel]


def _places(op: OpOverload, tables: Sequence[Table], has_shape: bool) -> Iterator[_Place]:
    kernels = python_kernels_of(op)
    yield _Place(kernels, _AUTOGRAD, op, _autograd)
    if _COMPOSITE in kernels:
        yield _Place(kernels, _COMPOSITE, op, _decomposed)
        yield _Place(kernels, _AUTOGRAD_CUDA, op, _autograd)
    if has_shape:
        yield _Place(kernels, _META, op, _without_data)
    if has_shape and op in decomposition_table:  # which fake tensors are shaped by
        yield _Place(decomposition_table, op, op, _shaped)
    for table in tables:
        if op in table:
            yield _Place(table, op, op, _decomposed)


def _autograd(op: OpOverload, torchs: Kernel) -> Kernel:
    own = partial(call_under_key(op), _AUTOGRAD)

    def kernel(*args: Any, **kwargs: Any) -> Any:
        wish = _wish(op, args, kwargs)
        return (torchs if wish is None else wish.kernels[op] or own)(*args, **kwargs)

    return kernel


def _decomposed(op: OpOverload, torchs: Kernel) -> Kernel:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        wish = _wish(op, args, kwargs)
        return (torchs if wish is None else wish.kernels[op] or _whole)(*args, **kwargs)

    return kernel


def _whole(*args: Any, **kwargs: Any) -> Any:
    """What a tracer takes for: not decomposed."""
    return NotImplemented


def _shaped(op: OpOverload, torchs: Kernel) -> Kernel:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        wish = _wish(op, args, kwargs)
        return (torchs if wish is None else wish.shapes.get(op, torchs))(*args, **kwargs)

    return kernel


def _without_data(op: OpOverload, torchs: Kernel) -> Kernel:
    """Serves any arguments: a meta tensor does not tell whose it is."""

    def kernel(*args: Any, **kwargs: Any) -> Any:
        shape = next((one.shapes[op] for one in _here.wishes if op in one.shapes), torchs)
        return shape(*args, **kwargs)

    return kernel


@dataclass
class _Taken:
    """A place that is taken, by how many, and what was there: None where nothing was."""

    kernel: Kernel
    before: Kernel | None
    users: int = 0


_taken: dict[tuple[int, Any], _Taken] = {}
_lock = threading.Lock()


def _put(places: Sequence[_Place]) -> None:
    with _lock:
        for one in places:
            found = _taken.get((id(one.holder), one.key))
            if found is None:
                before = one.holder.get(one.key)
                found = _Taken(one.asks(one.op, before or _torchs(one)), before)
                _taken[id(one.holder), one.key] = found
                _set(one, found.kernel)
            found.users += 1


def _torchs(place: _Place) -> Kernel:
    """Where there is no Python kernel: what CUDA's autograd has in common with the rest, or the dispatcher's own."""
    shared: Kernel | None = place.holder.get(_AUTOGRAD) if place.key == _AUTOGRAD_CUDA else None
    return shared or partial(call_under_key(place.op), place.key)


def _take_away(places: Sequence[_Place]) -> None:
    """Unless somebody else has put something there meanwhile, as torch.export does."""
    with _lock:
        for one in places:
            found = _taken[id(one.holder), one.key]
            found.users -= 1
            if not found.users:
                del _taken[id(one.holder), one.key]
                if one.holder.get(one.key) is found.kernel:
                    _set(one, found.before)


def _set(place: _Place, kernel: Kernel | None) -> None:
    before = place.holder.pop(place.key, place.key)
    if kernel is not None:
        place.holder[place.key] = kernel
    # An overload remembers what it dispatched to, its own kernels by their keys. Nothing is forgotten, only replaced:
    # torch in another thread may have looked just now, and asserts that it finds the same.
    remembered = dispatch_cache_of(place.op)
    for key, found in list(remembered.items()):
        if found is before or (found == before and before is place.key):
            remembered[key] = place.key if kernel is None else kernel
