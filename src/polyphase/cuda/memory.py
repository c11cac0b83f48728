"""Tables on a device, in memory of our own: torch's allocator would free it under a captured graph, and
`reduce-overhead` checks it. Those of batches that no graph captures are in torch's."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence

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


def uploaded(device: int, *parts: bytes | None) -> tuple[list[int], DeviceMemory | None]:
    """The addresses of copies of what is on the host, one after the other in one piece of memory; 0 for None. They are
    there on return: no stream has to wait for them."""
    places, data = joined(parts)
    if not data:
        return places, None
    begin, memory = _room(device, len(data))
    driver.upload(device, begin, data)
    return [0 if one is None else begin + at for one, at in zip(parts, places, strict=True)], memory


#: Tables of many calls have one piece of memory: the driver takes longer to give one out than to copy a table.
_CHUNK, _PIECE = 1 << 20, 256
#: By device: the piece that is given out, and how much of it is.
_latest: dict[int, tuple[DeviceMemory, int]] = {}
_lock = threading.Lock()


def _room(device: int, size: int) -> tuple[int, DeviceMemory]:
    """Gives out so many bytes, and what they are part of. They are given out once: nobody may still read what was
    there."""
    if size > _CHUNK // 4:
        memory = DeviceMemory(device, size)
        return memory.address, memory
    with _lock:
        memory, begin = _latest.get(device) or (DeviceMemory(device, _CHUNK), 0)
        if begin + size > _CHUNK:
            memory, begin = DeviceMemory(device, _CHUNK), 0
        _latest[device] = memory, begin + -(-size // _PIECE) * _PIECE
    return memory.address + begin, memory


def joined(parts: Sequence[bytes | None]) -> tuple[list[int], bytes]:
    """Where each part begins in one piece, at a multiple of 16, and that."""
    places, pieces, at = [], list[bytes](), 0
    for part in parts:
        places.append(at)
        if part is not None:
            padding = -len(part) % 16 or (0 if part else 16)
            pieces += (part, bytes(padding))
            at += len(part) + padding
    return places, b"".join(pieces)


class TorchMemory:
    """Bytes that are made, copied and freed in the order of a device's current stream."""

    def __init__(self, device: int) -> None:
        self.device, self._there = device, torch.device("cuda", device)
        self.stream_of: Callable[[int], int] = torch_private.current_raw_stream

    def empty(self, size: int) -> Tensor:
        return torch.empty(size, dtype=torch.uint8, device=self._there)

    def staged(self, size: int) -> Tensor:
        """Makes room on the host for bytes that `there` copies."""
        return torch.empty(size, dtype=torch.uint8, device="cpu", pin_memory=True)

    def there(self, staged: Tensor) -> Tensor:
        return staged.to(self._there, non_blocking=True)
