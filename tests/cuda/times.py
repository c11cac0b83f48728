"""How long the first call of a kernel takes, once CUDA is up, and what memory calls hold.

A process builds kernels into an empty cache, a second one finds them there. Bounds are those the project set itself.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import polyphase.functional as P

BUILT_SECONDS, CACHED_SECONDS = 0.6, 0.02
AGAIN = 200
AA: dict[str, Any] = {"mode": "bilinear", "antialias": True}

CUBIC: dict[str, Any] = {"mode": "bicubic", "align_corners": False}
#: Made before anything is timed.
_TURNED: dict[torch.device, Tensor] = {}


def turned(image: Tensor) -> Tensor:
    """Matrices on the image's device, one for both of its pictures."""
    if image.device not in _TURNED:
        matrix = torch.tensor([[0.9, -0.3, 0.1], [0.3, 0.9, 0.0]])
        _TURNED[image.device] = matrix.expand(image.shape[0], 2, 3).contiguous().to(image.device)
    return _TURNED[image.device]


FIRST = "the first of all"
#: Each needs a kernel of its own. The first also needs what all need: the wing, NVRTC, and the launcher.
CALLS: dict[str, tuple[tuple[int, ...], torch.dtype, Callable[[Tensor], Tensor]]] = {
    FIRST: ((1, 3, 40, 50), torch.float32, lambda x: P.flip(x, (-1,))),
    "small, float32": ((1, 3, 345, 456), torch.float32, lambda x: P.interpolate(x, (270, 270), **AA)),
    "large, float32": ((8, 3, 1234, 1345), torch.float32, lambda x: P.interpolate(x, (2345, 2456), mode="bicubic")),
    "shrunk, float32": ((4, 3, 1080, 1920), torch.float32, lambda x: P.interpolate(x, (224, 224), **AA)),
    "shrunk, uint8": ((4, 3, 1080, 1920), torch.uint8, lambda x: P.interpolate(x, (224, 224), **AA)),
    "turned, bicubic": ((2, 3, 345, 456), torch.float32, lambda x: P.affine_sample(x, turned(x), x.shape, **CUBIC)),
    "volume, bfloat16": ((1, 2, 9, 10, 11), torch.bfloat16, lambda x: P.interpolate(x, (4, 5, 6), mode="trilinear")),
}


def main(device: str) -> int:
    """How many figures miss their bounds."""
    missed = 0
    with tempfile.TemporaryDirectory() as cache:
        for state, bound in (("built", BUILT_SECONDS), ("from the disk cache", CACHED_SECONDS)):
            command = [sys.executable, "-m", "tests.cuda.times", device]
            done = subprocess.run(
                command, env={**os.environ, "POLYPHASE_CACHE_DIR": cache}, stdout=subprocess.PIPE, text=True
            )
            if done.returncode:
                print(f"WRONG times: ended with status {done.returncode}")
                return 1
            for name, found in json.loads(done.stdout.splitlines()[-1]).items():
                seconds, held = found["first"], found["held"]
                judged = name != FIRST
                late = judged and seconds > bound
                missed += late + bool(held)
                mark = "MISS" if late else "ok  " if judged else "    "
                print(
                    f"{mark} first call, {state}: {name:20s} {seconds * 1e3:7.1f} ms (at most {bound * 1e3:g}), then "
                    f"{found['again'] * 1e6:.1f} us; {'HOLDS' if held else 'held'} {held} bytes beyond its output"
                )
    return missed


def measured(device: str) -> dict[str, dict[str, float]]:
    on_gpu = device == "cuda"
    more = AGAIN if on_gpu else 2
    torch.zeros(8, device=device).add_(1).sum().item()  # CUDA is up then
    found = {}
    for name, (shape, dtype, call) in CALLS.items():
        image = (torch.rand(shape, device=device) * 255).to(dtype)
        turned(image)
        _wait(on_gpu)
        began = time.perf_counter()
        output = call(image)
        _wait(on_gpu)
        first = time.perf_counter() - began
        held = _held(call, image, output) if on_gpu else 0
        began = time.perf_counter()
        for _ in range(more):
            output = call(image)
        _wait(on_gpu)
        again = (time.perf_counter() - began) / more
        found[name] = {"first": first, "again": again, "held": held}
    return found


def _held(call: Callable[[Tensor], Tensor], image: Tensor, output: Tensor) -> int:
    """Bytes that calls take beyond their output, of torch's memory at any time, or of the device's after many."""
    alone = _peak(lambda: torch.empty_strided(output.shape, output.stride(), dtype=output.dtype, device=output.device))
    call(image)
    torch.cuda.synchronize()
    free = torch.cuda.mem_get_info()[0]
    beyond = _peak(lambda: call(image)) - alone
    for _ in range(AGAIN):
        call(image)
    torch.cuda.synchronize()
    return max(0, beyond) + max(0, free - torch.cuda.mem_get_info()[0])


def _peak(make: Callable[[], Tensor]) -> int:
    """Bytes that torch's allocator has given out at most while a tensor is made. It rounds them, in ways of its own."""
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    made = make()
    peak = torch.cuda.max_memory_allocated() - before
    del made
    return peak


def _wait(on_gpu: bool) -> None:
    if on_gpu:
        torch.cuda.synchronize()


if __name__ == "__main__":
    print(json.dumps(measured(sys.argv[1])))
