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


def on_a_gpu(image: Any) -> torch.Tensor:
    """The bytes of a decoded image, on the worker's GPU; where it stays, if there is none."""
    pixels = torch.frombuffer(bytearray(image.tobytes()), dtype=torch.uint8).view(image.height, image.width, 3)
    return pixels.permute(2, 0, 1).to("cuda" if torch.cuda.is_available() else "cpu")


#: What is no transform of images, as decoding, runs as itself, within the pipeline.
TRANSFORMS = [
    decoded,
    T.Resize(256),
    T.CenterCrop(224),
    T.ToImage(),
    T.ToDtype(torch.float32, scale=True),
    T.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
]


def preprocess(images: str, out: str, *, size: int = 64, gpus: int = 0) -> None:
    """`size`: images of a batch. `gpus`: so many actors transform, each with a GPU of its own; 0 is tasks, on the CPU.
    Files that are no images are left out."""
    checkpoints = f"{out.rstrip('/')}.checkpoints"
    if "://" not in out:
        Path(checkpoints).mkdir(parents=True, exist_ok=True)
    ray.data.DataContext.get_current().checkpoint_config = CheckpointConfig(
        "path", checkpoints, delete_checkpoint_on_success=False
    )
    files = ray.data.read_binary_files(images, include_paths=True)
    if gpus:
        decode, *others = TRANSFORMS
        given = ([decode, on_a_gpu, *others], "bytes", "pixels")
        pictures = files.map_batches(
            polyphase.OnColumn,
            fn_constructor_args=given,
            fn_constructor_kwargs={"on_error": "skip"},
            batch_size=size,
            num_gpus=1,
            compute=ray.data.ActorPoolStrategy(size=gpus),
        )
    else:
        on_column = polyphase.OnColumn(TRANSFORMS, "bytes", "pixels", on_error="skip")
        pictures = files.map_batches(on_column, batch_size=size)
    pictures.drop_columns(["bytes"]).write_parquet(out, mode="append")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("images", help="a folder, here or in the cloud")
    parser.add_argument("out", help="the folder of Parquet files")
    parser.add_argument("--size", type=int, default=64, help="images of a batch")
    parser.add_argument("--gpus", type=int, default=0, help="actors, each with a GPU of its own")
    given = parser.parse_args()
    start = time.perf_counter()
    preprocess(given.images, given.out, size=given.size, gpus=given.gpus)
    seconds, there = time.perf_counter() - start, ray.data.read_parquet(given.out).count()
    print(f"{there} images are in {given.out}; this run took {seconds:.1f} s")


if __name__ == "__main__":
    main()
