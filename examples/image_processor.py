"""An image processor as models' libraries have them: images of any kind and size to the `pixel_values` of a model."""

from __future__ import annotations

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
