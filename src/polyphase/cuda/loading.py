"""Kernels in memory, by device: brought there by a call that waits, or by threads in the background.

A kernel is built, or loaded, once. What fails is forgotten, so that the next call tries again.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import os
import threading
from collections import deque
from contextlib import suppress
from typing import NamedTuple

from polyphase.cuda import build, driver, emit
from polyphase.cuda.ways import Way
from polyphase.errors import DriverError
from polyphase.kernels.plans import MapsPlan, WarpPlan, purpose

#: Threads that build at the same time, at most.
WORKERS = max(1, min(4, (os.cpu_count() or 1) // 2))


class Name(NamedTuple):
    plan: MapsPlan | WarpPlan
    way: Way
    device: int


class State(ctypes.Structure):
    """`KernelState` of device_calls.h. ready: 1 as soon as the function is there, or the kernel's error says why it
    will not be. waits: whether the kernel itself waits for those before it."""

    _fields_ = (("ready", ctypes.c_int64), ("function", ctypes.c_int64), ("waits", ctypes.c_int64))


class Kernel:
    """A kernel on its way into memory. state: C++ reads it, at `address`. begun: some thread builds it, or did."""

    def __init__(self, name: Name) -> None:
        self.name, self.begun, self.error = name, False, None  # type: Name, bool, Exception | None
        self.state = State()
        self.address = ctypes.addressof(self.state)
        self.done = threading.Event()

    @property
    def function(self) -> int:
        return int(self.state.function)

    @property
    def is_loaded(self) -> bool:
        return self.function != 0


_lock = threading.Lock()
_kernels: dict[Name, Kernel] = {}
_asked: deque[Kernel] = deque()
_workers: set[threading.Thread] = set()


def kernel(name: Name) -> Kernel:
    """As it is known, on its way or not."""
    with _lock:
        found = _kernels.get(name)
        if found is None:
            found = _kernels[name] = Kernel(name)
        return found


def ask_for(one: Kernel) -> None:
    """Has a kernel brought into memory, in the background, unless somebody does so already."""
    if one.begun:
        return
    with _lock:
        if one.begun or one in _asked:
            return
        _asked.append(one)
        if len(_workers) < WORKERS:
            worker = threading.Thread(target=_work, name="polyphase-builds", daemon=True)
            _workers.add(worker)
            worker.start()


def is_asked_for(one: Kernel) -> bool:
    return one.begun or one in _asked


def function_of(name: Name) -> int:
    """The kernel's function; waits until it is there."""
    one = kernel(name)
    if one.is_loaded:
        return one.function
    build.built["waited"] += 1
    if _begin(one):
        _bring(one)
    one.done.wait()
    if one.error is not None:
        raise one.error
    return one.function


def count() -> int:
    return sum(one.is_loaded for one in [*_kernels.values()])


def forget() -> None:
    """Forgets kernels, so that they are built or loaded anew; those in memory stay there for calls that have them."""
    with _lock:
        _asked.clear()
        _kernels.clear()


def _begin(one: Kernel) -> bool:
    """Whether this thread is to bring it."""
    with _lock:
        begins, one.begun = not one.begun, True
        with suppress(ValueError):
            _asked.remove(one)
        return begins


def _bring(one: Kernel) -> None:
    try:
        function = _loaded(*one.name)
        one.state.waits = driver.waits(one.name.device, function)
        one.state.function = function
    except Exception as error:  # whoever waits for it is told
        one.error = error
        with _lock:
            if _kernels.get(one.name) is one:
                del _kernels[one.name]
    one.state.ready = 1
    one.done.set()


@functools.cache
def tap_maker(device: int, architecture: str) -> int:
    """The function of the kernel that makes tables; waits until it is there."""
    build.built["waited"] += 1
    image = build.image(emit.tap_maker_source(), architecture, "tables of taps")
    return driver.load(device, image, emit.KERNEL_SYMBOL, driver.most_shared_bytes(device))


def build_from(text: str | None) -> None:
    """Sets the source of all kernels from now on; None for their own."""
    global _instead
    _instead = text


_instead: str | None = None


def _loaded(plan: MapsPlan | WarpPlan, way: Way, device: int) -> int:
    source, most = _instead or emit.kernel_source(plan, way), driver.most_shared_bytes(device)
    ready = build.prebuilt_image(source, plan.architecture)
    if ready is not None:
        with suppress(DriverError):  # a driver older than the NVRTC that made it may refuse it
            return driver.load(device, ready, emit.KERNEL_SYMBOL, most)
    image = build.image(source, plan.architecture, f"{purpose(plan)}, {way.template}")
    return driver.load(device, image, emit.KERNEL_SYMBOL, most)


def _work() -> None:
    while True:
        with _lock:
            if not _asked:
                _workers.discard(threading.current_thread())
                return
            one = _asked.popleft()
            if one.begun:
                continue
            one.begun = True
        _bring(one)


def _end() -> None:
    """What is being built ends before the process does; nothing else begins."""
    with _lock:
        _asked.clear()
        running = [*_workers]
    for one in running:
        one.join()


atexit.register(_end)
