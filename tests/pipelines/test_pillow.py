"""Pillow's pictures: what is left to Pillow, and where their pixels are read and written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import polyphase
from polyphase import transforms as ours
from tests.pipelines.chains import outcome
from tests.support.vision import torchvision

numpy = pytest.importorskip("numpy")
Image = pytest.importorskip("PIL.Image")


@pytest.fixture(scope="module")
def v2() -> Any:
    return torchvision()


@pytest.fixture(scope="module")
def v1() -> Any:
    return torchvision("torchvision.transforms")


def picture(height: int = 60, width: int = 80, mode: str = "RGB", seed: int = 0) -> Any:
    made = torch.Generator().manual_seed(seed)
    shape = (height, width, 3) if mode == "RGB" else (height, width)
    return Image.fromarray(torch.randint(0, 256, shape, generator=made, dtype=torch.uint8).numpy())


def launches() -> int:
    return polyphase.stats()["kernels_launched"]


def check(own: Any, fused: Any, image: Any, seed: int = 0) -> None:
    expected, next_expected = outcome(own, image, seed)
    found, next_found = outcome(fused, image, seed)
    if isinstance(expected, Exception):
        assert type(found) is type(expected)
        return
    if isinstance(found, Exception):
        raise found
    assert next_found == next_expected
    assert (found.mode, found.size) == (expected.mode, expected.size)
    assert found.tobytes() == expected.tobytes()


#: What Pillow does by copying rows: by torchvision's names, with draws and without.
MOVES: list[Callable[[Any], list[Any]]] = [
    lambda t: [t.CenterCrop(30)],
    lambda t: [t.CenterCrop((30, 200))],
    lambda t: [t.RandomCrop(40, padding=3, pad_if_needed=True, fill=7), t.RandomHorizontalFlip()],
    lambda t: [t.RandomCrop(40), t.RandomVerticalFlip(), t.Pad((1, 2, 3, 4), fill=200)],
    lambda t: [t.RandomHorizontalFlip(1.0), t.Pad(5), t.CenterCrop(70)],
    lambda t: [t.RandomHorizontalFlip(0.0)],
]


@pytest.mark.parametrize("mode", ["RGB", "L"])
@pytest.mark.parametrize("moves", MOVES)
@pytest.mark.parametrize("version", ["torchvision.transforms", "torchvision.transforms.v2"])
def test_pixels_that_only_move_are_left_to_pillow(version: str, moves: Any, mode: str) -> None:
    t = torchvision(version)
    for given in (moves(t), t.Compose(moves(t)), torch.nn.Sequential(*moves(t))):
        fused, own = polyphase.fuse(given), t.Compose(moves(t))
        before = launches()
        for seed in range(4):
            check(own, fused, picture(mode=mode), seed)
        assert launches() == before


@pytest.mark.parametrize("moves", MOVES)
def test_so_are_our_own_and_pictures_within_samples(v2: Any, moves: Any) -> None:
    own, fused, image = v2.Compose(moves(v2)), polyphase.fuse(moves(ours)), picture()
    within = polyphase.fuse(moves(v2))
    before = launches()
    for seed in range(4):
        check(own, fused, image, seed)
        check(own, lambda one: within({"image": one, "label": 3})["image"], image, seed)
    assert launches() == before


@pytest.mark.parametrize(
    "steps",
    [
        lambda t: [t.Resize(40, interpolation=t.InterpolationMode.NEAREST), t.RandomHorizontalFlip()],
        lambda t: [t.RandomResizedCrop(50, interpolation=t.InterpolationMode.NEAREST_EXACT)],
        lambda t: [t.RandomRotation(20, fill=9), t.CenterCrop(40)],
        lambda t: [t.RandomRotation((90, 90), expand=True), t.RandomHorizontalFlip()],
        lambda t: [t.RandomChoice([t.CenterCrop(30), t.RandomVerticalFlip()])],
        lambda t: [t.RandomOrder([t.CenterCrop(30), t.RandomHorizontalFlip()])],
        lambda t: [t.RandomApply([t.CenterCrop(30), t.Pad(3)])],
    ],
)
@pytest.mark.parametrize("version", ["torchvision.transforms", "torchvision.transforms.v2"])
def test_so_is_what_pillow_does_by_rules_of_its_own(version: str, steps: Any) -> None:
    t = torchvision(version)
    fused, own = polyphase.fuse(t.Compose(steps(t))), t.Compose(steps(t))
    before = launches()
    for seed in range(5):
        check(own, fused, picture(), seed)
    assert launches() == before


def test_other_images_of_the_same_pipeline_are_not(v2: Any) -> None:
    steps = [v2.CenterCrop(30), v2.RandomHorizontalFlip(1.0)]
    image = v2.functional.pil_to_tensor(picture())
    before = launches()
    assert torch.equal(polyphase.fuse(steps)(image), v2.Compose(steps)(image))
    assert launches() > before


def test_a_resize_between_moves_is_one_launch(v2: Any) -> None:
    steps = [v2.CenterCrop(50), v2.Resize((30, 20)), v2.RandomHorizontalFlip(1.0)]
    fused, own, image = polyphase.fuse(steps), v2.Compose(steps), picture()
    before = launches()
    found = fused(image)
    assert launches() == before + 1
    expected = v2.functional.pil_to_tensor(own(image)).int()
    assert (v2.functional.pil_to_tensor(found).int() - expected).abs().max() <= 1


def test_pictures_are_not_read_before_a_kernel_does(v2: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from polyphase.pipelines import pillow

    def refuse(image: Any) -> Any:
        raise AssertionError("the picture is read")

    monkeypatch.setattr(pillow, "_block", refuse)
    image = picture()
    polyphase.fuse([ours.CenterCrop(30), ours.RandomHorizontalFlip()])(image)
    polyphase.fuse([v2.CenterCrop(30), v2.GaussianBlur(3)])(image)
    with pytest.raises(AssertionError, match="is read"):
        polyphase.fuse([ours.CenterCrop(30), ours.ToTensor()])(image)


def test_pictures_that_pillow_does_not_tell_the_place_of_are_copied(v2: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from polyphase.pipelines import pillow

    steps = [v2.Resize((20, 30)), v2.PILToTensor()]
    for mode in ("RGB", "L"):
        expected = polyphase.fuse(steps)(picture(mode=mode))
        with monkeypatch.context() as patched:
            patched.setattr(pillow, "_block", lambda image: (0, None))
            assert torch.equal(polyphase.fuse(steps)(picture(mode=mode)), expected)
