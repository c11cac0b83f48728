"""Pillow's pictures by torchvision's v2 and fused, on one thread: random pipelines of geometry, each picture of a size
of its own; and an `ImageFolder` of JPEG or PNG files with a `DataLoader`, decoding included.

    python -m benchmarks.pillow_pictures pipelines --count 240 --seed 1
    python -m benchmarks.pillow_pictures folders --files 400 > benchmarks/folders.md

Of pipelines: CPU times, which other work on the machine disturbs least. Of folders: images a second of a whole pass,
the best of three.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import torch
from torch.utils.data import DataLoader

import polyphase
from polyphase.bench.environment import cpu_model
from tests.support.vision import torchvision

PICTURES, WARMED_UP, LEAST, MOST = 16, 6, 150, 1100
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def photo(draw: Random, height: int, width: int) -> Any:
    """With something to see at all scales, so that files are as large as photographs' are."""
    from PIL import Image

    made = torch.Generator().manual_seed(draw.randrange(2**31))
    coarse = torch.rand(1, 3, height // 16 + 2, width // 16 + 2, generator=made)
    smooth = torch.nn.functional.interpolate(coarse, (height, width), mode="bilinear")[0]
    pixels = smooth * 235 + torch.rand(3, height, width, generator=made) * 20
    return Image.fromarray(pixels.to(torch.uint8).permute(1, 2, 0).contiguous().numpy())


# ---- pipelines drawn at random


def geometry(draw: Random, v2: Any) -> list[Any]:
    """One transform to three; then, by half of the pipelines, what makes normalised floats."""
    mode = v2.InterpolationMode
    weighed = draw.choice([mode.BILINEAR, mode.BILINEAR, mode.BICUBIC, mode.NEAREST, mode.NEAREST_EXACT])
    warped = {"interpolation": draw.choice([mode.NEAREST, mode.BILINEAR, mode.BICUBIC]), "fill": draw.choice([0, 114])}
    size = draw.randint(64, 448)
    every: Sequence[Callable[[], Any]] = (
        lambda: v2.Resize(draw.choice([size, (size, draw.randint(64, 448))]), weighed),
        lambda: v2.RandomResizedCrop(size, interpolation=weighed),
        lambda: v2.RandomResize(16, 400, interpolation=weighed),
        lambda: v2.RandomShortestSize([size, size + 32, size + 64], interpolation=weighed),
        lambda: v2.ScaleJitter((size, size), interpolation=weighed),
        lambda: v2.CenterCrop(size),
        lambda: v2.RandomCrop(size, pad_if_needed=True, fill=draw.choice([0, 114])),
        lambda: v2.Pad(draw.randint(1, 40), fill=draw.choice([0, 114])),
        lambda: v2.RandomHorizontalFlip(),
        lambda: v2.RandomVerticalFlip(),
        lambda: v2.RandomZoomOut(side_range=(1.0, 2.0)),
        lambda: v2.RandomRotation(30, expand=draw.random() < 0.3, **warped),
        lambda: v2.RandomAffine(15, (0.1, 0.1), (0.8, 1.2), 5, **warped),
        lambda: v2.RandomPerspective(0.3, **warped),
    )
    steps = [one() for one in draw.choices(every, k=draw.randint(1, 3))]
    ends = [v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)]
    return [*steps, *(ends if draw.random() < 0.5 else [])]


def thread_seconds(function: Callable[[Any], Any], picture: Any, seed: int) -> float:
    torch.manual_seed(seed)
    start = time.thread_time()
    function(picture)
    return time.thread_time() - start


def times_as_fast(steps: list[Any], draw: Random, v2: Any) -> float:
    """torchvision's time over ours, of pictures that are each given to both by turns."""
    sides, taken = (v2.Compose(steps), polyphase.fuse(v2.Compose(steps))), [0.0, 0.0]
    for number in range(WARMED_UP + PICTURES):
        picture = photo(draw, draw.randint(LEAST, MOST), draw.randint(LEAST, MOST))
        thread_seconds(sides[0], picture, number)  # so that neither finds it in a colder cache
        for n in (0, 1) if number % 2 else (1, 0):
            seconds = thread_seconds(sides[n], picture, number)
            taken[n] += seconds if number >= WARMED_UP else 0
    return taken[0] / taken[1]


def pipelines(count: int, seed: int) -> None:
    torch.set_num_threads(1)
    v2, ratios = torchvision(), list[float]()
    for number in range(count):
        draw = Random(f"{seed} {number}")
        steps = geometry(draw, v2)
        ratios.append(times_as_fast(steps, draw, v2))
        if ratios[-1] < 0.9:
            print(f"{ratios[-1]:.2f}x  {steps}", flush=True)
    mean, slower = statistics.mean(ratios), sum(one < 0.9 for one in ratios)
    print(f"{count} pipelines: {mean:.2f}x torchvision on average, worst {min(ratios):.2f}x, {slower} below 0.9x")


# ---- folders of files


class Pass(NamedTuple):
    files: str
    workers: int
    plain: float  # images a second
    fused: float


def write_folder(where: Path, suffix: str, files: int) -> None:
    draw = Random(0)
    for number in range(files):
        folder = where / f"class{number % 4}"
        folder.mkdir(parents=True, exist_ok=True)
        photo(draw, draw.randint(333, 500), draw.randint(375, 500)).save(folder / f"{number}{suffix}")


def images_a_second(where: Path, transform: Any, workers: int) -> float:
    from torchvision.datasets import ImageFolder

    data = ImageFolder(str(where), transform)
    loader = DataLoader(data, batch_size=32, num_workers=workers, persistent_workers=workers > 0)
    best = 0.0
    for _ in range(3):
        start = time.perf_counter()
        for _ in loader:
            pass
        best = max(best, len(data) / (time.perf_counter() - start))
    return best


ABOUT = (
    "`ImageFolder` and a `DataLoader` with batches of 32, ImageNet's training transforms, {files} files of 333 to 500\n"
    "by 375 to 500 pixels, decoded by Pillow {pillow}: images a second, torch {torch}, {cpu}.\n"
    "Written by `python -m benchmarks.pillow_pictures folders`."
)


def folders(files: int) -> None:
    from PIL import __version__

    torch.set_num_threads(1)
    v2, made = torchvision(), list[Pass]()
    steps = [v2.RandomResizedCrop(224), v2.RandomHorizontalFlip(), v2.ToImage()]
    own = v2.Compose([*steps, v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)])
    for suffix in (".jpg", ".png"):
        with tempfile.TemporaryDirectory() as folder:
            write_folder(Path(folder), suffix, files)
            for workers in (0, 2):
                rates = (images_a_second(Path(folder), one, workers) for one in (own, polyphase.fuse(own)))
                made.append(Pass(suffix[1:].upper(), workers, *rates))
    about = ABOUT.format(files=files, cpu=cpu_model(), pillow=__version__, torch=torch.__version__)
    print(f"# Folders of pictures\n\n{about}\n")
    print("| files | workers | torchvision, images/s | fused, images/s | |\n| --- | --- | --- | --- | --- |")
    for one in made:
        print(f"| {one.files} | {one.workers} | {one.plain:.0f} | {one.fused:.0f} | {one.fused / one.plain:.2f}x |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    kinds = parser.add_subparsers(dest="kind", required=True)
    random = kinds.add_parser("pipelines")
    random.add_argument("--count", type=int, default=240)
    random.add_argument("--seed", type=int, default=0)
    kinds.add_parser("folders").add_argument("--files", type=int, default=400)
    given = parser.parse_args()
    pipelines(given.count, given.seed) if given.kind == "pipelines" else folders(given.files)


if __name__ == "__main__":
    main()
