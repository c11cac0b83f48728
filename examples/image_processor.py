"""For people who write image processors of models: images of any kind and size to the `pixel_values` of a model.

`python examples/image_processor.py IMAGE ...` says what becomes of each, and how long all take together.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

import polyphase
from polyphase import transforms as T


class ImageProcessor:
    """Letterboxed to a square: nothing is cut off. Images are tensors, arrays or Pillow images."""

    def __init__(self, size: int = 384, fill: int = 127, half: bool = False) -> None:
        self.pipeline = polyphase.fuse(
            [
                T.ToImage(),
                T.Letterbox(size, fill=fill, interpolation="bicubic"),
                T.ToDtype(torch.float32, scale=True),
                T.Normalize((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
                *([T.ToDtype(torch.bfloat16)] if half else []),
            ]
        )

    def __call__(self, images: Any) -> dict[str, Tensor]:
        is_list = isinstance(images, Sequence)
        return {"pixel_values": self.pipeline.batch(images if is_list else [images])}


def main() -> None:
    from PIL import Image

    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("images", nargs="+")
    images = [Image.open(one).convert("RGB") for one in parser.parse_args().images]
    processor = ImageProcessor()
    processor(images)  # the first call loads kernels
    start = time.perf_counter()
    pixels = processor(images)["pixel_values"]
    seconds = time.perf_counter() - start
    for image, values in zip(images, pixels, strict=True):
        low, high = values.aminmax()
        print(f"{image.width}x{image.height} to {tuple(values.shape)}, values from {low:.2f} to {high:.2f}")
    print(f"{len(images)} images in {1e3 * seconds:.1f} ms")


if __name__ == "__main__":
    main()
