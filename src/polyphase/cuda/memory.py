"""Tables on a device, in memory of our own: torch's allocator would free it under a captured graph, and
`reduce-overhead` checks it."""

from __future__ import annotations

import weakref

from torch import Tensor

from polyphase.cuda import driver

#: What a captured graph reads: such a graph may be replayed at any time.
_kept_forever: set[DeviceMemory] = set()


class DeviceMemory:
    """Bytes on a device, freed with the last reference; never once a graph was captured that reads them."""

    def __init__(self, device: int, size: int) -> None:
        self.address = driver.allocate(device, size)
        self._release = weakref.finalize(self, driver.free, device, self.address)
        self._release.atexit = False  # the driver frees all by itself, and may be gone

    def keep_forever(self) -> None:
        _kept_forever.add(self)


def on_device(device: int, data: Tensor) -> DeviceMemory:
    """A copy of bytes on the host. It is there on return: no stream has to wait for it."""
    memory = DeviceMemory(device, data.nbytes)
    driver.upload(device, memory.address, data.data_ptr(), data.nbytes)
    return memory
