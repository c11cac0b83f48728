"""`polyphase.accelerate()`: ATen's own operators run on our kernels, for eager code that nobody has to change.

The kernels of the operators we know are replaced in torch's dispatcher, on devices that have kernels of ours and for
the whole process: ATen's autograd, vmap and autocast stay as they are, and no other operator pays for it. What we do
not take runs as it would have.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ContextDecorator
from typing import Any, TypeVar, overload

from polyphase.compile.overrides import Override, new_overrides
from polyphase.errors import WrongArgumentTypeError

Function = TypeVar("Function", bound=Callable[..., Any])


class _Acceleration(ContextDecorator):
    def __enter__(self) -> None:
        _switch.use(+1)

    def __exit__(self, *exception: object) -> None:
        _switch.use(-1)


@overload
def accelerate(enabled: None = None) -> _Acceleration: ...
@overload
def accelerate(enabled: bool) -> None: ...
@overload
def accelerate(enabled: Function) -> Function: ...
def accelerate(enabled: Any = None) -> Any:
    """Run PyTorch's resizes, warps, flips and pads on Polyphase's kernels, without torch.compile.

    `with accelerate():` and `@accelerate()` for a block or a function; `accelerate(True)` and `accelerate(False)` for
    the rest of the program. While any is on, it is on for the whole process: for all threads, and for workers forked
    from them.
    """
    if enabled is None:
        return _Acceleration()
    if isinstance(enabled, bool):
        _switch.turn(enabled)
        return None
    if not callable(enabled):
        raise WrongArgumentTypeError(
            f"accelerate({enabled!r}); it takes True, False, a function to decorate, or nothing for a block"
        )
    return _Acceleration()(enabled)


class _Switch:
    """On while it is turned on, or anybody uses it.

    To put an override into the dispatcher takes longer than a small image. So they stay there when it is switched off,
    and a block that is entered again and again finds them there. An operator that is called outside runs as it would
    have, a few microseconds late: after a few such calls its override is taken away, until it is switched on again.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users, self._turned_on = 0, False
        self._on = False
        self._away: list[Override] | None = None  # those that are not in the dispatcher; None before the first use

    def use(self, more: int) -> None:
        with self._lock:
            self._users += more
            self._update()

    def turn(self, on: bool) -> None:
        with self._lock:
            self._turned_on = on
            self._update()

    def _update(self) -> None:
        self._on = self._turned_on or self._users > 0
        if self._on and self._away is None:
            self._away = new_overrides(self._is_on)
        while self._on and self._away:
            self._away[-1].put()
            self._away.pop()

    def _is_on(self, called: Override) -> bool:
        if not self._on and called.is_in_the_way():
            self._take_away(called)
        return self._on

    def _take_away(self, override: Override) -> None:
        with self._lock:
            if not self._on and self._away is not None and override not in self._away:  # nor has another thread
                override.take_away()
                self._away.append(override)


_switch = _Switch()
