"""A dataset of images of different sizes, for processes that load it, and what they see."""

from __future__ import annotations

import multiprocessing
import sys
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

import polyphase
from polyphase import transforms as T
from tests.pipelines.chains import MEAN, STD, image

CHAIN = [
    T.RandomResizedCrop(48),
    T.RandomHorizontalFlip(),
    T.ToDtype(torch.float32, scale=True),
    T.Normalize(MEAN, STD),
]


class Images(Dataset[Any]):
    def __init__(self, count: int, transform: Any = None) -> None:
        self.count, self.transform = count, transform

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, number: int) -> tuple[Any, int]:
        picture = image(number)
        if self.transform is None:
            return picture, number
        torch.manual_seed(number)
        return self.transform(picture), number


def epoch(method: str | None, workers: int, *, collates: bool) -> list[Any]:
    """One epoch of 12 images, in batches of 4; `collates`: the pipeline makes the batches."""
    fused = polyphase.fuse(CHAIN)
    data = Images(12, None if collates else fused)
    made = torch.Generator().manual_seed(5)
    collate = fused.collate if collates else None
    patience = 120 if workers else 0
    loader = DataLoader(
        data,
        4,
        num_workers=workers,
        multiprocessing_context=method,
        collate_fn=collate,
        generator=made,
        timeout=patience,
    )
    return list(loader)


def built(started: Any, results: Any) -> None:
    """Waits for the others, makes one picture, and tells how many kernels that built."""
    started.wait(120)
    torch.manual_seed(0)
    made = polyphase.fuse(CHAIN)(image(3))
    results.put((polyphase.stats()["kernels_built"], made.sum().item()))


def main(count: int) -> None:
    """So many processes that begin at once, with nothing built before: how many kernels each of them built."""
    context = multiprocessing.get_context("fork")
    started, results = context.Barrier(count), context.Queue()
    workers = [context.Process(target=built, args=(started, results)) for _ in range(count)]
    for worker in workers:
        worker.start()
    found = [results.get(timeout=300) for _ in workers]
    for worker in workers:
        worker.join()
    print(sum(kernels for kernels, _ in found), len({picture for _, picture in found}))


if __name__ == "__main__":
    main(int(sys.argv[1]))
