"""For people who train on a folder of images, one folder within for each class: batches, and how many images a second.

`python examples/load_images.py FOLDER`. The dataset gives images as they were decoded, of any size. The pipeline makes
batches of them, in the workers: what is random is drawn image by image, and each becomes one launch, straight into the
batch.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

import polyphase
from polyphase import transforms as T

TRAINING = polyphase.fuse(
    [
        T.RandomResizedCrop(224),
        T.RandomHorizontalFlip(),
        T.ToImage(),
        T.ToDtype(torch.float32, scale=True),
        T.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    ]
)


class ImageFolder(Dataset[tuple[Any, int]]):
    def __init__(self, folder: Path) -> None:
        self.classes = sorted(one.name for one in folder.iterdir() if one.is_dir())
        self.files = sorted(one for one in folder.glob("*/*") if one.suffix.lower() in Image.registered_extensions())

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, number: int) -> tuple[Any, int]:
        file = self.files[number]
        return Image.open(file).convert("RGB"), self.classes.index(file.parent.name)


def batches(folder: Path, size: int, workers: int) -> DataLoader[Any]:
    return DataLoader(ImageFolder(folder), size, shuffle=True, num_workers=workers, collate_fn=TRAINING.collate)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--size", type=int, default=64, help="images of a batch")
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    start, count = time.perf_counter(), 0
    for images, labels in batches(given.folder, given.size, given.workers):
        count += len(labels)
        print(f"{count} images: {tuple(images.shape)} of {images.dtype}, {count / (time.perf_counter() - start):.0f}/s")


if __name__ == "__main__":
    main()
