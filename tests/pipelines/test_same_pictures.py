"""The same seeds, the same pictures as torchvision's: chains drawn at random, and the two that everybody uses."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import polyphase
from polyphase import transforms
from tests.pipelines.chains import MEAN, MOST_DIFFERENT, STD, Chain, chain, differences, image, lies_as, outcome
from tests.support.vision import torchvision

SEEDS = [pytest.param(range(60), id="some"), pytest.param(range(60, 1000), id="many", marks=pytest.mark.full)]


@pytest.fixture(scope="module")
def v2() -> Any:
    return torchvision()


@pytest.fixture(scope="module")
def v1() -> Any:
    return torchvision("torchvision.transforms")


def check(drawn: Chain, own: Any, fused: Any, picture: Any, seed: int, most: float, worst: float = 1.0) -> None:
    """`most`: the share of values that may differ by one level; `worst`: by how many levels at most."""
    expected, next_expected = outcome(own, picture, seed)
    found, next_found = outcome(fused, picture, seed)
    context = f"seed {seed}: {drawn.transforms}"
    if isinstance(expected, Exception):
        assert isinstance(found, type(expected)), context
        return
    if isinstance(found, Exception):
        raise AssertionError(context) from found
    assert next_found == next_expected, f"{context}: another number of draws"
    assert type(found) is type(expected), context
    expected, found = expected.as_subclass(Tensor), found.as_subclass(Tensor)
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype), context
    assert lies_as(found, expected), f"{context}: {found.stride()} for {expected.stride()}"
    levels = differences(found, expected, drawn)
    assert levels.max() <= worst * 1.01, context
    assert (levels > 0.02).double().mean() <= most, context


@pytest.mark.parametrize("seeds", SEEDS)
def test_v2_of_tensors(v2: Any, seeds: range) -> None:
    for seed in seeds:
        drawn = chain(seed, v2)
        own = v2.Compose(drawn.transforms)
        picture = image(seed, torch.float32 if seed % 5 == 4 and (seed > 60 or not drawn.warps) else torch.uint8)
        check(drawn, own, polyphase.fuse(own), picture, seed, MOST_DIFFERENT if drawn.warps else 0.0)


@pytest.mark.parametrize("seeds", SEEDS)
def test_v1_of_tensors(v1: Any, seeds: range) -> None:
    """Floats are summed in another order, and rounded to bytes: a few come out as the next one."""
    for seed in seeds:
        drawn = chain(seed, v1)
        own = v1.Compose(drawn.transforms)
        check(drawn, own, polyphase.fuse(own), image(seed), seed, MOST_DIFFERENT)


@pytest.mark.parametrize("name", ["torchvision.transforms", "torchvision.transforms.v2"])
@pytest.mark.parametrize("seeds", SEEDS)
def test_pillow_images(name: str, seeds: range) -> None:
    """Pillow's weights have more bits than ours; of small images more values differ than the 1.5% of large ones."""
    from PIL import Image

    t = torchvision(name)
    for seed in seeds:
        drawn = chain(seed, t, pil=True)
        if drawn.sums() > 1:
            continue
        own = t.Compose(drawn.transforms)
        picture = Image.fromarray(image(seed).permute(1, 2, 0).contiguous().numpy())
        if seed % 4 == 3 and not any(type(one).__name__ == "Normalize" for one in drawn.transforms):
            picture = picture.convert("L")
        check(drawn, own, polyphase.fuse(own), picture, seed, 0.06 if drawn.sums() else 0.0, 2.0)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic", "lanczos"])
def test_resized_pillow_images_of_usual_sizes(v2: Any, mode: str) -> None:
    from PIL import Image

    picture = Image.fromarray(torch.randint(0, 256, (345, 456, 3), dtype=torch.uint8).numpy())
    own = v2.Compose([v2.Resize(256, interpolation=v2.InterpolationMode(mode)), v2.PILToTensor()])
    levels = (own(picture).int() - polyphase.fuse(own)(picture).int()).abs()
    assert levels.max() <= 2
    assert (levels == 0).double().mean() >= 0.985


@pytest.mark.parametrize("seeds", SEEDS)
def test_our_transforms_draw_as_v2(v2: Any, seeds: range) -> None:
    for seed in seeds:
        drawn = chain(seed, v2)
        fused = polyphase.fuse(chain(seed, transforms).transforms)
        check(drawn, v2.Compose(drawn.transforms), fused, image(seed), seed, MOST_DIFFERENT if drawn.warps else 0.0)


def usual(v2: Any) -> dict[str, Any]:
    last = [v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)]
    return {
        "evaluation": v2.Compose([v2.Resize(256), v2.CenterCrop(224), *last]),
        "training": v2.Compose([v2.RandomResizedCrop(224), v2.RandomHorizontalFlip(), *last]),
    }


@pytest.mark.parametrize("seeds", [pytest.param(range(10), id="some"), *SEEDS[1:]])
@pytest.mark.parametrize("name", ["evaluation", "training"])
def test_imagenet_chains_are_the_same_to_the_bit(v2: Any, name: str, seeds: range) -> None:
    own = usual(v2)[name]
    fused = polyphase.fuse(own)
    for seed in seeds:
        made = torch.Generator().manual_seed(seed)
        height, width = torch.randint(200, 500, (2,), generator=made).tolist()
        picture = torch.randint(0, 256, (3, height, width), generator=made, dtype=torch.uint8)
        torch.manual_seed(seed)
        expected = own(picture)
        torch.manual_seed(seed)
        found = fused(picture)
        assert torch.equal(found, expected), seed
        assert found.stride() == expected.stride()
