"""For people who train with timm: its transforms, with what is ours fused, and everything else as itself, between.

`python examples/timm_transforms.py IMAGE OUT` writes a few pictures that training would see.
"""

from __future__ import annotations

import argparse
import math
import random
from typing import Any

import torch
from torch import Tensor

import polyphase
from polyphase import transforms as T

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class ColorJitter:
    """Brightness, contrast and saturation, as three factors: any function of a tensor is a transform."""

    def __init__(self, most: float = 0.4) -> None:
        self.most = most

    def __call__(self, image: Tensor) -> Tensor:
        bright, contrast, saturation = (random.uniform(1 - self.most, 1 + self.most) for _ in range(3))
        values = image.float() * bright
        grey = (values * torch.tensor([0.299, 0.587, 0.114], device=image.device)[:, None, None]).sum(0, keepdim=True)
        values = grey.mean() + (values - grey.mean()) * contrast
        return (grey + (values - grey) * saturation).round_().clamp_(0, 255).to(image.dtype)


class RandomErasing:
    """A rectangle of noise, on the image as the model sees it."""

    def __init__(self, p: float = 0.25) -> None:
        self.p = p

    def __call__(self, image: Tensor) -> Tensor:
        if random.random() >= self.p:
            return image
        height, width = image.shape[-2:]
        area, ratio = height * width * random.uniform(0.02, 1 / 3), math.exp(random.uniform(-1.2, 1.2))
        rows, columns = min(height, round(math.sqrt(area * ratio))), min(width, round(math.sqrt(area / ratio)))
        top, left = random.randint(0, height - rows), random.randint(0, width - columns)
        image[..., top : top + rows, left : left + columns].normal_()
        return image


def create_transform(size: int = 224, *, is_training: bool = True, jitter: float = 0.4) -> Any:
    """RandomResizedCropAndInterpolation, which takes one filter or another for each image, and what follows it."""
    last = [T.ToDtype(torch.float32, scale=True), T.Normalize(MEAN, STD)]
    if not is_training:
        return polyphase.fuse(
            [T.ToImage(), T.Resize(round(size / 0.875), interpolation="bicubic"), T.CenterCrop(size), *last]
        )
    crops = [T.RandomResizedCrop(size, interpolation=mode) for mode in ("bilinear", "bicubic")]
    return polyphase.fuse(
        [
            T.ToImage(),
            T.RandomChoice(crops),
            T.RandomHorizontalFlip(),
            *([ColorJitter(jitter)] if jitter else []),
            *last,
            RandomErasing(),
        ]
    )


def main() -> None:
    from PIL import Image

    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("image")
    parser.add_argument("out")
    given = parser.parse_args()
    image: Any = Image.open(given.image).convert("RGB")
    pictures = create_transform().batch([image] * 8)
    pixels = pictures * torch.tensor(STD)[:, None, None] + torch.tensor(MEAN)[:, None, None]
    side_by_side = torch.cat(list((pixels * 255).round().clamp(0, 255).to(torch.uint8)), dim=-1)
    Image.fromarray(side_by_side.permute(1, 2, 0).contiguous().numpy()).save(given.out)
    print(f"{given.out}: {len(pictures)} pictures of {tuple(pictures.shape[1:])} that training would see")


if __name__ == "__main__":
    main()
