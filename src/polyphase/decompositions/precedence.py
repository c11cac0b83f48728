"""Who decomposes first: torch's built-in Python decompositions, or the table a tracer is given.

torch attaches Python decompositions of its own to the upsample overloads (`py_impl` for Autograd and
CompositeImplicitAutograd). While tracing they come first: a table given to make_fx, AOTAutograd or torch.export never
sees a bilinear resize, and the result is torch's int64, planar, off-by-one-in-uint8 version.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch._C import DispatchKey
from torch._ops import OpOverload

_KEYS = (DispatchKey.Autograd, DispatchKey.CompositeImplicitAutograd)
_lock = threading.RLock()


@contextmanager
def built_ins_replaced(replacements: Mapping[OpOverload, Callable[..., Any] | None]) -> Iterator[None]:
    """While the block runs, overloads have these Python kernels instead of torch's own; None leaves an overload whole.

    Holds for the whole process, one thread at a time. What was there is put back, also after an error. May be nested.
    """
    with _lock:
        before = {op: {key: op.py_kernels[key] for key in _KEYS if key in op.py_kernels} for op in replacements}
        for op, kernels in before.items():
            _set(op, dict.fromkeys(kernels, replacements[op]))
        try:
            yield
        finally:
            for op, kernels in before.items():
                _set(op, kernels)


def _set(op: OpOverload, kernels: Mapping[DispatchKey, Callable[..., Any] | None]) -> None:
    for key, kernel in kernels.items():
        op.py_kernels.pop(key, None)
        if kernel is not None:
            op.py_kernels[key] = kernel
    op._dispatch_cache.clear()  # an overload remembers which kernel it last dispatched to
