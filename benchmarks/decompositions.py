"""Antialiased bilinear, (N, 3, 345, 456) -> (270, 270), compiled by Inductor with our decompositions, against eager.

One CPU thread, both sides interleaved in one process, medians. Prints the Markdown that `decompositions.md` holds:

    python benchmarks/decompositions.py > benchmarks/decompositions.md
"""

from __future__ import annotations

import itertools
import platform
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.decompositions.inductor import decomposed

FORMATS = {"CF": torch.contiguous_format, "CL": torch.channels_last}


def resize(image: Tensor) -> Tensor:
    return F.interpolate(image, size=(270, 270), mode="bilinear", antialias=True)


def microseconds(function: Callable[[Tensor], Tensor], image: Tensor, calls: int = 10) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        function(image)
    return (time.perf_counter() - start) / calls * 1e6


def measure(image: Tensor, dynamic: bool, rounds: int = 15) -> tuple[float, float, bool]:
    torch._dynamo.reset()
    compiled: Any = torch.compile(resize, backend=decomposed, dynamic=dynamic)
    want, got = resize(image), compiled(image)
    if image.dtype == torch.uint8:
        right = torch.equal(got, want)
    else:
        right = torch.allclose(got, want, rtol=1.3e-6, atol=1e-5)
    times = [(microseconds(resize, image), microseconds(compiled, image)) for _ in range(rounds)]
    eager, ours = (statistics.median(column) for column in zip(*times, strict=True))
    return eager, ours, right and got.stride() == want.stride()


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    print("# Antialiased bilinear (N, 3, 345, 456) -> (270, 270): Inductor with our decompositions, against eager\n")
    print(f"torch {torch.__version__}, {torch.backends.cpu.get_cpu_capability()}, {platform.machine()}, one thread.\n")
    for dynamic in (False, True):
        print(f"## {'Dynamic' if dynamic else 'Static'} shapes\n")
        print_table(dynamic)
        print()


def print_table(dynamic: bool) -> None:
    print("| case | eager us | decomposition us | decomposition / eager | equal |\n| --- | --- | --- | --- | --- |")
    for n, dtype, layout in itertools.product((1, 4), (torch.float32, torch.uint8), FORMATS):
        image = torch.randint(0, 256, (n, 3, 345, 456), dtype=torch.uint8)
        image = image if dtype == torch.uint8 else image / 255
        eager, ours, right = measure(image.contiguous(memory_format=FORMATS[layout]), dynamic)
        name = {torch.float32: "f32", torch.uint8: "u8"}[dtype]
        print(f"| N={n} {name} {layout} | {eager:.0f} | {ours:.0f} | {ours / eager:.2f} | {right} |", flush=True)


if __name__ == "__main__":
    main()
