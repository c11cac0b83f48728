"""A program of axis maps on a device: what the launcher asks for while it binds calls of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch

from polyphase import torch_private
from polyphase.calls import devices
from polyphase.calls.binding import NOT_BUILT
from polyphase.cuda import launcher, loading, maps, ways
from polyphase.errors import DriverError
from polyphase.kernels.plans import MapsPlan
from polyphase.sampling.programs import Program

#: A kernel, and where its state lies.
Known: TypeAlias = "tuple[loading.Kernel, int]"


@dataclass(frozen=True, eq=False)
class OnDevice:
    """Ways are as the launcher packs them."""

    plan: MapsPlan
    device: int

    def choose(self, own: bytes, servers: Sequence[bytes]) -> tuple[int, tuple[Known, ...]]:
        """Which does a call: its own kernel (-1), or the number of a server, the best first, the one that serves most
        sizes last. It is there on return; and all kernels. A program's first call waits for what serves most."""
        kernel, others = self._kernel(own), [self._kernel(one) for one in servers]
        place = -1 if kernel.is_loaded or not others else _server(others)
        loading.function_of((others[place] if place >= 0 else kernel).name)
        return place, tuple([(one, one.address) for one in (kernel, *others)])

    def ask(self, own: bytes, waits: bool) -> Known | None:
        """For the kernel that a size which comes again is worth: it is being built, or there. None where it cannot
        be."""
        kernel = self._kernel(own)
        if kernel.error is not None:
            return None
        if waits:
            try:
                loading.function_of(kernel.name)
            except NOT_BUILT:
                return None
        elif not kernel.is_loaded:
            loading.ask_for(kernel)
        return kernel, kernel.address

    def stream_of(self, device: int) -> int:
        return torch_private.current_raw_stream(device)

    def tap_maker(self, device: int) -> int:
        return loading.tap_maker(device, self.plan.architecture)

    def refused(self, device: int) -> None:
        """Raises what says why there is no memory for tables."""
        devices.wing_of(torch.device("cuda", device))  # which was lost by a fork
        raise DriverError("the CUDA driver gives no memory for tables of taps")

    def _kernel(self, way: bytes) -> loading.Kernel:
        return loading.kernel(loading.Name(self.plan, ways.unpacked(way), self.device))


def _server(kernels: Sequence[loading.Kernel]) -> int:
    last = len(kernels) - 1
    is_first = not loading.is_asked_for(kernels[last])
    for one in kernels[last:] if is_first else kernels:
        loading.ask_for(one)
    loaded = (place for place, one in enumerate(kernels) if one.is_loaded)
    return next(loaded, -1 if is_first else last)


#: By what their calls have in common, the device, and what few and many are: what the launcher knows them by.
_programs: dict[tuple[object, ...], object] = {}


def part_of(program: Program, device: int, architecture: str) -> object:
    kind = maps.kind_of(program, architecture)
    facts = maps.facts_of(kind)
    name = (kind.plan, device, facts)
    found = _programs.get(name)
    if found is None:
        found = _programs[name] = launcher.program(facts, device, OnDevice(kind.plan, device))
    return found


def forget() -> None:
    _programs.clear()
