"""The transforms that are tried where a user names none: ImageNet's, as torchvision's own training script has them."""

from __future__ import annotations

from typing import Any

import torch

from polyphase.bench import libraries
from polyphase.errors import WrongCommandError

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def chains() -> dict[str, Any]:
    """Lists the chains by title."""
    v2 = libraries.imported("torchvision.transforms.v2")
    if isinstance(v2, str):
        raise WrongCommandError(
            f"what is tried without an argument are torchvision's transforms, and torchvision is {v2}: "
            "pip install torchvision, or name your own as package.module:name"
        )
    last = [v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)]
    return {
        "ImageNet, training": v2.Compose([v2.RandomResizedCrop(224), v2.RandomHorizontalFlip(), *last]),
        "ImageNet, evaluation": v2.Compose([v2.Resize(256), v2.CenterCrop(224), *last]),
    }
