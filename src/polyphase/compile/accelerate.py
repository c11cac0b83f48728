"""`polyphase.accelerate()`: ATen's own operators run on our kernels, for eager code that nobody has to change.

The kernels of the operators that we know are replaced in torch's dispatcher, for the whole process, on devices that
have kernels of ours. ATen's autograd, vmap and autocast stay as they are, and no other operator pays for it. Calls that
we do not take run as before.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ContextDecorator, nullcontext
from typing import Any, TypeVar, overload

from polyphase import torch_private
from polyphase.calls.dispatched import Kernels
from polyphase.compile.overrides import Mode, Override, new_overrides, unwarned
from polyphase.errors import WrongArgumentTypeError

Function = TypeVar("Function", bound=Callable[..., Any])


class _Acceleration(ContextDecorator):
    def __init__(self, mode: Mode) -> None:
        self._mode = mode

    def __enter__(self) -> None:
        _switch.use(self._mode, +1)

    def __exit__(self, *exception: object) -> None:
        _switch.use(self._mode, -1)


@overload
def accelerate(enabled: None = None, *, check: bool = False) -> _Acceleration: ...
@overload
def accelerate(enabled: bool, *, check: bool = False) -> None: ...
@overload
def accelerate(enabled: Function, *, check: bool = False) -> Function: ...
def accelerate(enabled: Any = None, *, check: bool = False) -> Any:
    """Run PyTorch's resizes, warps, flips and pads on Polyphase's kernels, without torch.compile.

    `with accelerate():` and `@accelerate()` for a block or a function; `accelerate(True)` and `accelerate(False)` for
    the rest of the program. While any of these is on, it is on for the whole process: for all threads, and for workers
    forked from them.

    With `check`, every call that our kernels take is also run by PyTorch's own kernel, and `DiffersFromEagerError` is
    raised at the first result that differs. Calls that PyTorch is known to get wrong are not compared.
    """
    mode = Mode.CHECKED if check else Mode.ON
    if enabled is None:
        return _Acceleration(mode)
    if isinstance(enabled, bool):
        _switch.turn(mode if enabled else Mode.OFF)
        return None
    if not callable(enabled):
        raise WrongArgumentTypeError(
            f"accelerate({enabled!r}); it takes True, False, a function to decorate, or nothing for a block"
        )
    return _Acceleration(mode)(enabled)


class _Switch:
    """On while it is turned on, or any block uses it; with checks while anybody asks for them.

    To put an override into the dispatcher takes longer than a small image. So overrides stay there when the switch goes
    off, and a block that is entered again and again finds them there. An operator that is called outside a block runs
    as before, a few microseconds late. After a few such calls its override is taken away, until the switch goes on.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = {Mode.ON: 0, Mode.CHECKED: 0}
        self._turned_to = self.mode = Mode.OFF
        self._away: list[Override] | None = None  # those that are not in the dispatcher; None before the first use
        self._in_c: list[Kernels] = []  # launchers that have kernels there

    def use(self, mode: Mode, more: int) -> None:
        with self._lock:
            self._users[mode] += more
            self._update()

    def turn(self, mode: Mode) -> None:
        with self._lock:
            self._turned_to = mode
            self._update()

    def _update(self) -> None:
        if self._turned_to is Mode.CHECKED or self._users[Mode.CHECKED]:
            self.mode = Mode.CHECKED
        else:
            self.mode = Mode.ON if self._users[Mode.ON] else self._turned_to
        for kernels in self._in_c:
            kernels.direct(self.mode is Mode.ON)
        if self.mode is Mode.OFF:
            return
        if self._away is None:
            self._away = new_overrides(self)
        with unwarned() if self._away else nullcontext():
            while self._away:
                self._away[-1].put()
                self._away.pop()

    def called_while_off(self, override: Override) -> None:
        if override.is_in_the_way() and not _python_dispatches():
            self._take_away(override)

    def called_again(self, override: Override) -> None:
        """An operator was called as it was before: it is worth a kernel in C++."""
        if _python_dispatches():
            return
        with self._lock:
            if self.mode is Mode.ON and self._away is not None and override not in self._away:
                kernels = override.put_in_c()
                if kernels is not None and kernels not in self._in_c:
                    self._in_c.append(kernels)
                    kernels.direct(True)

    def _take_away(self, override: Override) -> None:
        with self._lock:
            if self.mode is Mode.OFF and self._away is not None and override not in self._away:  # by another thread
                override.take_away()
                self._away.append(override)


def _python_dispatches() -> bool:
    """Whether torch dispatches through Python, as while Inductor compiles, also where it calls operators with data to
    measure them. If an override is taken away during such a call, torch ends the process."""
    keys = torch_private.included_keys
    return keys is None or bool(keys().has(torch_private.DispatchKey.PythonDispatcher))


_switch = _Switch()
