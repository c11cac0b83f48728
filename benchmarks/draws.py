"""What random parameters take, and training images beside evaluation images: fused, and by torchvision alone.

    python benchmarks/draws.py                 every row, in half a minute
    python benchmarks/draws.py --threads 16    batches by as many threads

Rows are of one run, and so are the ratios at the end: machines differ more than what is compared. torchvision has to be
installed. A batch is of 64 images of (375, 500), each a tensor of bytes.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import torch

import polyphase
from polyphase.bench.libraries import define_missing_operators

define_missing_operators()  # of a torchvision of another build
from torchvision.transforms import v2  # noqa: E402

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
REPEATS = 7


def chains() -> dict[str, Any]:
    last = [v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)]
    return {
        "training": v2.Compose([v2.RandomResizedCrop(224), v2.RandomHorizontalFlip(), *last]),
        "evaluation": v2.Compose([v2.Resize(256), v2.CenterCrop(224), *last]),
        "small": v2.Compose([v2.RandomCrop(32, padding=4), v2.RandomHorizontalFlip(), *last]),
    }


def microseconds(call: Callable[[], object], calls: int) -> float:
    """Of one call: the least of several means."""
    least = float("inf")
    for _ in range(REPEATS):
        started = time.perf_counter()
        for _ in range(calls):
            call()
        least = min(least, (time.perf_counter() - started) / calls)
    return least * 1e6


def rows(threads: int) -> dict[str, float]:
    image, small = (torch.randint(0, 256, (3, *size), dtype=torch.uint8) for size in ((375, 500), (32, 32)))
    images, many_small = [image] * 64, [small] * 128
    own = chains()
    fused = {name: polyphase.fuse(one) for name, one in own.items()}
    for name, pipeline in fused.items():
        for _ in range(8):
            pipeline(small if name == "small" else image)
    crop, flip = own["training"].transforms[:2]

    def by_torchvision() -> None:
        crop.make_params([image])
        torch.rand(1) < flip.p  # noqa: B015 a transform asks that itself

    found: dict[str, float] = {}
    torch.set_num_threads(1)
    (kind,) = fused["training"]._templates._kinds.values()
    assert kind is not None, "a template is for such images"
    follow = kind.calls.follow
    found["draws of a training image, and all that follows from them"] = microseconds(lambda: follow(375, 500), 2000)
    found["draws of a training image, torchvision"] = microseconds(by_torchvision, 200)
    for name in ("training", "evaluation"):
        found[f"{name} image"] = microseconds(lambda name=name: fused[name](image), 100)
        found[f"{name} image, torchvision"] = microseconds(lambda name=name: own[name](image), 20)
    found["small image"] = microseconds(lambda: fused["small"](small), 300)
    found["small image, torchvision"] = microseconds(lambda: own["small"](small), 50)
    found["small image of a batch of 128"] = microseconds(lambda: fused["small"].batch(many_small), 3) / 128
    torch.set_num_threads(threads)
    for name in ("training", "evaluation"):
        found[f"{name} image of a batch of 64, {threads} threads"] = microseconds(
            lambda name=name: fused[name].batch(images), 3
        ) / len(images)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    threads = parser.parse_args().threads
    found = rows(threads)
    for name, value in found.items():
        print(f"{value:10.1f} us  {name}")
    batched = [found[f"{name} image of a batch of 64, {threads} threads"] for name in ("evaluation", "training")]
    print(f"{found['training image'] / found['evaluation image']:10.2f}     a training image, in evaluation images")
    print(f"{batched[0] / batched[1]:10.2f}     images/s of a training batch, in those of an evaluation batch")


if __name__ == "__main__":
    main()
