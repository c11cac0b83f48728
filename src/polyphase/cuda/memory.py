"""Tables on a device, in memory of our own: torch's allocator would free it under a captured graph, and
`reduce-overhead` checks it. Those of batches that no graph captures are in torch's."""

from __future__ import annotations

import weakref
from collections.abc import Callable

import torch
from torch import Tensor

from polyphase import torch_private
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


class TorchMemory:
    """Bytes that are made, copied and freed in the order of a device's current stream."""

    def __init__(self, device: int) -> None:
        self.device, self._there = device, torch.device("cuda", device)
        self.stream_of: Callable[[int], int] = torch_private.current_raw_stream

    def empty(self, size: int) -> Tensor:
        return torch.empty(size, dtype=torch.uint8, device=self._there)

    def staged(self, size: int) -> Tensor:
        """On the host, for `there`."""
        return torch.empty(size, dtype=torch.uint8, device="cpu", pin_memory=True)

    def there(self, staged: Tensor) -> Tensor:
        return staged.to(self._there, non_blocking=True)
