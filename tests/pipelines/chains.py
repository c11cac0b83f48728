"""Chains of transforms, by torchvision's names, and images for them, drawn from a seed; and whether two pictures are
the same."""

from __future__ import annotations

import random
from dataclasses import dataclass
from random import Random
from typing import Any

import torch
from torch import Tensor

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
#: Of v2's tensors: the share of values that may differ after a warp, by one level.
MOST_DIFFERENT = 0.002
WARPS = ("rotation", "affine", "perspective")
ONLY_IN_V2 = ("random size", "shortest size", "jitter", "zoom out")


@dataclass
class Chain:
    transforms: list[Any]
    kinds: list[str]

    @property
    def warps(self) -> bool:
        return any(kind in WARPS for kind in self.kinds)

    def sums(self) -> int:
        """How often pixels may be weighed."""
        return sum(kind in ("resize", "resized crop", "some", *ONLY_IN_V2[:3]) or kind in WARPS for kind in self.kinds)


def chain(seed: int, t: Any, *, pil: bool = False) -> Chain:
    """Of transforms of `t`: torchvision's v1 or v2, or ours, which draw as v2 does."""
    draw, made, is_v2 = Random(seed), list[Any](), hasattr(t, "ToImage")
    kinds = ["resize", "crop", "random crop", "resized crop", "flip", "vertical flip", "pad", "some"]
    kinds += ONLY_IN_V2 if is_v2 else ()
    kinds = draw.choices(kinds if pil else [*kinds, *WARPS], k=draw.randint(1, 4))
    made += [transform(kind, draw, t, is_v2, pil) for kind in kinds]
    if pil:
        made.append(getattr(t, draw.choice(["PILToTensor", "ToTensor", "ToImage" if is_v2 else "ToTensor"]))())
    if draw.random() < 0.7:
        if type(made[-1]).__name__ != "ToTensor":
            made.append(t.ToDtype(torch.float32, scale=True) if is_v2 else t.ConvertImageDtype(torch.float32))
        made.append(t.Normalize(MEAN, STD))
        if draw.random() < 0.3:
            kinds.append(draw.choice(["flip", "pad", "crop"]))
            made.append(transform(kinds[-1], draw, t, is_v2, False))
    return Chain(made, kinds)


def transform(kind: str, draw: Random, t: Any, is_v2: bool, pil: bool) -> Any:
    mode_of = getattr(t, "InterpolationMode", str)
    mode = mode_of(draw.choice(["bilinear", "bicubic"] if pil else ["bilinear", "bicubic", "nearest", "nearest-exact"]))
    smooth = {} if pil else {"antialias": draw.random() < 0.7}
    warp = {"interpolation": mode_of(draw.choice(["nearest", "bilinear"]))}
    warp["fill"] = draw.choice([0, 127, *([None, (3, 90, 200)] if is_v2 else [])])
    size, other = draw.randint(20, 90), draw.randint(20, 90)
    match kind:
        case "resize":
            return t.Resize(draw.choice([size, (size, other)]), interpolation=mode, **smooth)
        case "crop":
            return t.CenterCrop(draw.choice([size, (size, other + 40)]))
        case "random crop":
            return t.RandomCrop(size, padding=draw.choice([None, 3]), pad_if_needed=is_v2 or draw.random() < 0.5)
        case "resized crop":
            return t.RandomResizedCrop((size, other), interpolation=mode, **smooth)
        case "random size":
            return t.RandomResize(size, size + 20, interpolation=mode, **smooth)
        case "shortest size":
            return t.RandomShortestSize([size, other], draw.choice([None, 100]), interpolation=mode, **smooth)
        case "jitter":
            return t.ScaleJitter((size, other), (0.5, 1.5), interpolation=mode, **smooth)
        case "zoom out":
            return t.RandomZoomOut(draw.choice([0, 200]), (1.0, 2.0))
        case "flip":
            return t.RandomHorizontalFlip()
        case "vertical flip":
            return t.RandomVerticalFlip(0.7)
        case "pad":
            how = "constant" if pil else draw.choice(["constant", "constant", "edge", "reflect", "symmetric"])
            return t.Pad(draw.choice([5, (3, 6), (1, 2, 3, 4)]), fill=draw.choice([0, 200]), padding_mode=how)
        case "rotation":
            return t.RandomRotation(draw.choice([30, (10, 170)]), expand=draw.random() < 0.3, **warp)
        case "affine":
            return t.RandomAffine(20, (0.1, 0.2), (0.7, 1.3), 10, **warp)
        case "perspective":
            return t.RandomPerspective(0.4, 0.8, **warp)
    some = [t.Resize(size), t.RandomHorizontalFlip(), t.CenterCrop(other)]
    return draw.choice([t.RandomChoice, t.RandomApply, t.RandomOrder])(some)


def image(seed: int, dtype: torch.dtype = torch.uint8) -> Tensor:
    """(3, height, width), in one of the orders in which images lie."""
    draw, made = Random(~seed), torch.Generator().manual_seed(seed)
    pixels = torch.randint(0, 256, (draw.randint(40, 120), draw.randint(40, 120), 3), generator=made, dtype=torch.uint8)
    if dtype.is_floating_point:
        pixels = pixels.to(dtype) / 255
    return pixels.permute(2, 0, 1) if draw.random() < 0.4 else pixels.permute(2, 0, 1).contiguous()


def outcome(function: Any, picture: Any, seed: int) -> tuple[Any, tuple[float, float]]:
    """What comes of a picture, or the error; and what both generators give next."""
    torch.manual_seed(seed)
    random.seed(seed)
    try:
        result = function(picture)
    except Exception as error:
        return error, (0.0, 0.0)
    return result, (torch.rand(1).item(), random.random())


def differences(one: Tensor, other: Tensor, chain: Chain) -> Tensor:
    """In levels of a byte."""
    if not one.is_floating_point():
        return (one.double() - other.double()).abs()
    is_normalised = any(type(step).__name__ == "Normalize" for step in chain.transforms)
    return (one.double() - other.double()).abs() * 255 * (min(STD) if is_normalised else 1)


def lies_as(one: Tensor, other: Tensor) -> bool:
    """Whether dimensions are in the same order in memory; a view of something larger lies as a dense tensor does."""

    def order(tensor: Tensor) -> list[int]:
        return sorted((dim for dim, n in enumerate(tensor.shape) if n > 1), key=tensor.stride, reverse=True)

    return order(one) == order(other)
