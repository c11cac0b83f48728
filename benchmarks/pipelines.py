"""Pipelines of transforms drawn at random on tensors, fused and by torchvision alone: those that are no quicker fused.

    python benchmarks/pipelines.py                   100 pipelines, of images of about (375, 500), in some minutes
    python benchmarks/pipelines.py 300 --size 64     of small images

A row for each pipeline below 0.9 of torchvision's speed, then how many these are. Times are the thread's own,
the least of several rounds in which both take turns with the same seeds. torchvision has to be installed.
"""

from __future__ import annotations

import argparse
import time
from random import Random
from typing import Any

import torch
from torch import Tensor

import polyphase
from polyphase.bench.libraries import define_missing_operators

define_missing_operators()  # of a torchvision of another build
from torchvision.transforms import v2  # noqa: E402

ROUNDS, CALLS = 5, 8
LEAST = 0.9


def chain(draw: Random, size: int) -> list[Any]:
    """One to four transforms that move, resize or warp, of sizes near the image's."""
    kinds = draw.choices(list(TRANSFORMS), k=draw.randint(1, 4))
    return [TRANSFORMS[kind](draw, draw.randint(size // 2, size)) for kind in kinds]


def _mode(draw: Random) -> Any:
    return draw.choice([v2.InterpolationMode.BILINEAR, v2.InterpolationMode.BICUBIC, v2.InterpolationMode.NEAREST])


TRANSFORMS: dict[str, Any] = {
    "resize": lambda of, size: v2.Resize(size, interpolation=_mode(of)),
    "resize to": lambda of, size: v2.Resize((size, size), interpolation=_mode(of)),
    "centre": lambda of, size: v2.CenterCrop(size),
    "crop": lambda of, size: v2.RandomCrop(size, padding=of.choice([None, 4]), pad_if_needed=True),
    "resized crop": lambda of, size: v2.RandomResizedCrop(size, interpolation=_mode(of)),
    "flip": lambda of, size: v2.RandomHorizontalFlip(of.choice([0.0, 0.5, 1.0])),
    "upside down": lambda of, size: v2.RandomVerticalFlip(),
    "pad": lambda of, size: v2.Pad(of.choice([4, (3, 8)]), padding_mode=of.choice(["constant", "reflect", "edge"])),
    "some": lambda of, size: of.choice([v2.RandomApply, v2.RandomChoice, v2.RandomOrder])(
        [v2.Resize(size), v2.RandomHorizontalFlip(), v2.CenterCrop(size)]
    ),
    "rotation": lambda of, size: v2.RandomRotation(20, interpolation=v2.InterpolationMode.BILINEAR),
    "affine": lambda of, size: v2.RandomAffine(10, (0.1, 0.1), (0.8, 1.2)),
    "perspective": lambda of, size: v2.RandomPerspective(),
}


def seconds(sides: list[Any], images: list[Tensor]) -> list[float]:
    """A call of each side takes so long at least."""
    least = [float("inf")] * len(sides)
    for seed in range(ROUNDS):
        for i, side in enumerate(sides):
            torch.manual_seed(seed)
            started = time.thread_time()
            for n in range(CALLS):
                side(images[n % len(images)])
            least[i] = min(least[i], (time.thread_time() - started) / CALLS)
    return least


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("count", type=int, nargs="?", default=100)
    parser.add_argument("--size", type=int, default=375, help="the height of images; they are a third wider")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    torch.set_num_threads(1)
    images = [torch.randint(0, 256, (3, given.size + n, given.size * 4 // 3 - n), dtype=torch.uint8) for n in range(4)]
    slower = 0
    for seed in range(given.seed, given.seed + given.count):
        own = v2.Compose(chain(Random(seed), given.size))
        fused = polyphase.fuse(own)
        for _ in range(4):
            for image in images:
                fused(image)
        theirs, ours = seconds([own, fused], images)
        if theirs / ours < LEAST:
            slower += 1
            print(
                f"{theirs / ours:5.2f}  {theirs * 1e6:8.1f} us, fused {ours * 1e6:8.1f}  {own.transforms}", flush=True
            )
    print(f"{slower} of {given.count} pipelines are below {LEAST} of torchvision's speed")


if __name__ == "__main__":
    main()
