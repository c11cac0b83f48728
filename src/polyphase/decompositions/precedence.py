"""Who decomposes first: torch's built-in Python decompositions, or the table a tracer is given.

torch attaches Python decompositions of its own to the upsample overloads (`py_impl` for Autograd and
CompositeImplicitAutograd). While tracing they come first: a table given to make_fx, AOTAutograd or torch.export never
sees a bilinear resize, and the result is torch's int64, planar, off-by-one-in-uint8 version.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, TypeAlias

from polyphase.torch_private import DispatchKey, OpOverload, dispatch_cache_of, python_kernels_of

Kernel: TypeAlias = Callable[..., Any]

_AUTOGRAD, _COMPOSITE = DispatchKey.Autograd, DispatchKey.CompositeImplicitAutograd
#: Of images on the CPU. A key in place of a kernel stands for ATen's own kernel of that key.
_AUTOGRAD_CPU = DispatchKey.AutogradCPU
_META = DispatchKey.Meta
_KEYS = (_AUTOGRAD, _COMPOSITE, _AUTOGRAD_CPU, _META)
_lock = threading.RLock()


def anywhere(*args: Any, **kwargs: Any) -> bool:
    return True


@contextmanager
def built_ins_replaced(
    replacements: Mapping[OpOverload, Kernel | None],
    where: Callable[..., bool] = anywhere,
    shapes: Mapping[OpOverload, Kernel] = MappingProxyType({}),
) -> Iterator[None]:
    """While the block runs, overloads have these Python kernels instead of torch's own; None leaves an overload whole.

    `where` says for which arguments; elsewhere torch's own run. Autograd can only tell the CPU from other devices.
    `shapes`: what overloads do without data, where torch cannot tell that of symbolic sizes.
    Holds for the whole process, one thread at a time. What was there is put back, also after an error. May be nested.
    """
    with _lock:
        before = {op: _kernels(op) for op in replacements}
        for op, kernels in before.items():
            shape = {_META: shapes[op]} if op in shapes and _META not in kernels else {}
            _set(op, {**_replaced(kernels, replacements[op], where), **shape})
        try:
            yield
        finally:
            for op, kernels in before.items():
                _set(op, kernels)


def _replaced(
    before: Mapping[DispatchKey, Any], kernel: Kernel | None, where: Callable[..., bool]
) -> dict[DispatchKey, Any]:
    if where is anywhere:
        kept = {_META: before[_META]} if _META in before else {}
        replaced = [key for key in before if key != _META]
        return kept if kernel is None else {**kept, **dict.fromkeys(replaced, kernel)}
    after = dict(before)
    if _COMPOSITE in before:
        after[_COMPOSITE] = _choice(where, kernel or _whole, before[_COMPOSITE])
    if kernel is not None or _AUTOGRAD in before:
        after[_AUTOGRAD_CPU] = kernel or _AUTOGRAD
    return after


def _whole(*args: Any, **kwargs: Any) -> Any:
    """What a tracer takes for: not decomposed."""
    return NotImplemented


def _choice(where: Callable[..., bool], one: Kernel, other: Kernel) -> Kernel:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        return (one if where(*args, **kwargs) else other)(*args, **kwargs)

    return kernel


def _kernels(op: OpOverload) -> dict[DispatchKey, Any]:
    return {key: kernel for key, kernel in python_kernels_of(op).items() if key in _KEYS}


def _set(op: OpOverload, kernels: Mapping[DispatchKey, Any]) -> None:
    for key in _KEYS:
        python_kernels_of(op).pop(key, None)
    python_kernels_of(op).update(kernels)
    dispatch_cache_of(op).clear()  # an overload remembers which kernel it last dispatched to
