"""Chains that are cut into parts: the pictures and draws of the whole chain, walked at once, and of torchvision's."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import polyphase
from polyphase import transforms as T
from polyphase.pipelines import parts
from polyphase.pipelines.pipeline import Pipeline
from polyphase.pipelines.reading import read
from tests.pipelines import chains
from tests.support.vision import torchvision

TWO = [T.Resize(50), T.Resize((20, 30))]
ENDS = [T.ToDtype(torch.float32, scale=True), T.Normalize(chains.MEAN, chains.STD)]


def counts(transforms: list[Any], *, of_pillow: bool = False) -> list[int]:
    """How many transforms each part has."""
    left, found = transforms, list[int]()
    while left:
        cut = parts.cut((left, read(left)), Pipeline, of_pillow=of_pillow and not found)
        rest = [] if cut is None else cut[1]
        found.append(len(left) - len(rest))
        left = rest
    return found


@pytest.mark.parametrize(
    ("transforms", "expected"),
    [
        ([*TWO, *ENDS], [1, 3]),
        ([T.CenterCrop(40), *TWO, T.Pad(3), T.CenterCrop(30)], [2, 3]),
        ([T.Pad(3), T.RandomResizedCrop(30), T.RandomHorizontalFlip(), *ENDS], [1, 4]),
        ([T.RandomApply([T.Resize(30)]), T.RandomRotation(20), *ENDS], [1, 3]),
        ([T.RandomRotation(20), T.RandomHorizontalFlip(), *ENDS], [4]),
        ([T.Resize(30), torch.nn.Identity(), torch.nn.Identity(), *ENDS], [1, 1, 1, 2]),
        ([T.Resize((30, 20)), T.Resize(40, "nearest"), T.RandomCrop(9, padding=2)], [3]),
    ],
)
def test_chains_are_cut_before_pixels_are_summed_again(transforms: list[Any], expected: list[int]) -> None:
    assert counts(transforms) == expected


def test_pictures_are_cut_after_what_pillow_makes() -> None:
    v2 = torchvision()
    nearest = v2.InterpolationMode.NEAREST
    transforms = [
        v2.CenterCrop(40),
        v2.RandomRotation(20),
        v2.Resize(20, nearest),
        v2.RandomHorizontalFlip(),
        v2.ToImage(),
    ]
    assert counts(transforms, of_pillow=True) == [3, 2]
    assert counts(transforms[:4], of_pillow=True) == [4]
    assert counts([v2.RandomApply([v2.RandomRotation(20, v2.InterpolationMode.BILINEAR)]), v2.ToImage()]) == [2]


def walked(fused: Pipeline, image: Any) -> Any:
    return fused.walk(image).value()


def same(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor):
        return one.dtype == other.dtype and chains.lies_as(one, other) and torch.equal(one, other)
    return type(one) is type(other) and (isinstance(one, Exception) or one.tobytes() == other.tobytes())


@pytest.mark.parametrize("kind", ["tensor", "picture"])
def test_parts_make_what_the_whole_chain_makes(kind: str) -> None:
    v2 = torchvision()
    cuts = 0
    for seed in range(60):
        pil = kind == "picture"
        transforms = chains.chain(seed, v2, pil=pil).transforms
        image = v2.functional.to_pil_image(chains.image(seed)) if pil else chains.image(seed)
        fused = polyphase.fuse(v2.Compose(transforms))
        cuts += fused._parts(image) is not None
        for call in range(3):
            expected, later = chains.outcome(functools.partial(walked, fused), image, call)
            found, ours = chains.outcome(fused, image, call)
            assert same(expected, found), (seed, transforms)
            assert later == ours, (seed, transforms)
    assert cuts > 10


@pytest.mark.parametrize(
    "steps",
    [
        lambda v2: [v2.TenCrop(20), v2.RandomRotation(20), v2.RandomVerticalFlip()],
        lambda v2: [v2.RandomRotation(20), v2.FiveCrop(20)],
        lambda v2: [v2.Resize(40), v2.GaussianBlur(3, (1.0, 1.0)), v2.Resize(20)],
        lambda v2: [v2.Lambda(lambda image: {"image": image}), v2.Resize(40), v2.Resize(30)],
    ],
)
def test_what_is_no_image_between_parts(steps: Callable[[Any], list[Any]]) -> None:
    v2 = torchvision()
    own = v2.Compose(steps(v2))
    for image in (chains.image(3), v2.functional.to_pil_image(chains.image(3))):
        expected, found = (chains.outcome(one, image, 0)[0] for one in (own, polyphase.fuse(own)))
        pairs = zip(*(torch.utils._pytree.tree_leaves(one) for one in (expected, found)), strict=True)
        for one, other in pairs:
            as_tensors = [v2.functional.pil_to_tensor(x) if hasattr(x, "getbands") else x for x in (one, other)]
            assert as_tensors[0].shape == as_tensors[1].shape
            assert (as_tensors[0].int() - as_tensors[1].int()).abs().max() <= 2
