"""For people with more images than one machine does: a folder of images to Parquet, by Ray Data.

`python examples/ray_preprocess.py IMAGES OUT`. Tasks decode and transform, in processes that stay; kernels are built
once on each machine. Progress is shown by Ray. Run it again after it was stopped, or when there are more images: it
does what was not written yet, by Ray's checkpoints. A worker that dies is begun anew, and its images with it.
"""

from __future__ import annotations

import argparse
import io
import time
from pathlib import Path
from typing import Any

import ray
import torch
from PIL import Image
from ray.data.checkpoint import CheckpointConfig

import polyphase
from polyphase import transforms as T


def decoded(data: bytes) -> Any:
    return Image.open(io.BytesIO(data)).convert("RGB")


#: What is no transform of images, as decoding, runs as itself, within the pipeline.
TRANSFORMS = [
    decoded,
    T.Resize(256),
    T.CenterCrop(224),
    T.ToImage(),
    T.ToDtype(torch.float32, scale=True),
    T.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
]


def preprocess(images: str, out: str, *, size: int = 64) -> None:
    """`size`: images of a batch. Files that are no images are left out."""
    checkpoints = f"{out.rstrip('/')}.checkpoints"
    if "://" not in out:
        Path(checkpoints).mkdir(parents=True, exist_ok=True)
    ray.data.DataContext.get_current().checkpoint_config = CheckpointConfig(
        "path", checkpoints, delete_checkpoint_on_success=False
    )
    files = ray.data.read_binary_files(images, include_paths=True)
    pictures = files.map_batches(polyphase.OnColumn(TRANSFORMS, "bytes", "pixels", on_error="skip"), batch_size=size)
    pictures.drop_columns(["bytes"]).write_parquet(out, mode="append")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("images", help="a folder, here or in the cloud")
    parser.add_argument("out", help="the folder of Parquet files")
    parser.add_argument("--size", type=int, default=64, help="images of a batch")
    given = parser.parse_args()
    start = time.perf_counter()
    preprocess(given.images, given.out, size=given.size)
    seconds, there = time.perf_counter() - start, ray.data.read_parquet(given.out).count()
    print(f"{there} images are in {given.out}; this run took {seconds:.0f} s")


if __name__ == "__main__":
    main()
