"""Antialiased bilinear, (N, 3, 345, 456) -> (270, 270), compiled by Inductor with our decompositions, against eager.

One CPU thread, both sides interleaved in one process, medians. Prints a Markdown table:

    python benchmarks/decompositions.py [--dynamic]
"""

from __future__ import annotations

import argparse
import itertools
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
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dynamic", action="store_true", help="compile with dynamic shapes")
    dynamic = parser.parse_args().dynamic
    torch.set_num_threads(1)
    torch.manual_seed(0)
    print("| case | eager us | decomposition us | decomposition / eager | equal |\n| --- | --- | --- | --- | --- |")
    for n, dtype, layout in itertools.product((1, 4), (torch.float32, torch.uint8), FORMATS):
        image = torch.randint(0, 256, (n, 3, 345, 456), dtype=torch.uint8)
        image = image if dtype == torch.uint8 else image / 255
        eager, ours, right = measure(image.contiguous(memory_format=FORMATS[layout]), dynamic)
        name = {torch.float32: "f32", torch.uint8: "u8"}[dtype]
        print(f"| N={n} {name} {layout} | {eager:.0f} | {ours:.0f} | {ours / eager:.2f} | {right} |", flush=True)


if __name__ == "__main__":
    main()
