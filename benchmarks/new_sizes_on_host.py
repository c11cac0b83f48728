"""What binding a call of a new size on CUDA takes of the host: with a stand-in for the driver, so without a GPU.
Its functions are Python's, which take a few microseconds each.

python -m benchmarks.new_sizes_on_host
"""

from __future__ import annotations

import contextlib
import itertools
import random
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from polyphase import torch_private
from polyphase.cuda import driver, launch, loading
from tests.cuda import host
from tests.cuda.stand_in import Driver
from tests.cuda.test_kernels_on_host import AA, CUBIC, resized

MODES: dict[str, dict[str, Any]] = {
    "bilinear, antialiased": AA,
    "bilinear": {"mode": "bilinear", "antialias": False},
    "bicubic": CUBIC,
    "nearest": {"mode": "nearest", "antialias": False},
}
ROUNDS, SIZES = 4, 50


def stand_in(folder: Path, patches: pytest.MonkeyPatch) -> None:
    numbers = itertools.count(1)
    Driver().install(folder, patches)
    patches.setattr(loading, "_loaded", lambda *name: next(numbers))
    patches.setattr(torch.cuda, "device", lambda device: contextlib.nullcontext())
    patches.setattr(torch.cuda, "device_count", lambda: 1)
    patches.setattr(launch, "architecture", lambda device=None: host.ARCHITECTURE)
    patches.setattr(loading, "tap_maker", lambda device, architecture: next(numbers))
    patches.setattr(launch, "uploaded", lambda device, *parts: ([4096] * len(parts), None))
    patches.setitem(torch_private.__dict__, "current_raw_stream", lambda device: 77)
    patches.setattr(driver, "most_shared_bytes", lambda device: 1 << 16)


def microseconds(dtype: torch.dtype, mode: dict[str, Any]) -> float:
    """Of the quickest round, on this thread alone."""
    draw, image = random.Random(3), torch.empty(1, 3, 480, 640, dtype=dtype)
    sizes = [(draw.randrange(64, 900), draw.randrange(64, 900)) for _ in range((ROUNDS + 1) * SIZES)]
    records = [host.record_for(resized(image, size, **mode), [image]) for size in sizes]
    times = []
    for first in range(0, len(records), SIZES):
        began = time.thread_time()
        for record in records[first : first + SIZES]:
            launch.bind(record)
        times.append(time.thread_time() - began)
        while loading._workers:
            threading.Event().wait(0.01)
    return min(times[1:]) / SIZES * 1e6


def main() -> None:
    patches = pytest.MonkeyPatch()
    stand_in(Path(tempfile.mkdtemp()), patches)
    for dtype, (name, mode) in itertools.product((torch.float32, torch.uint8), MODES.items()):
        print(f"{dtype!s:14} {name:22} {microseconds(dtype, mode):7.1f} us")


if __name__ == "__main__":
    main()
