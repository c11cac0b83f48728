"""Results share memory with the image that was given exactly where torchvision's do: what is done to them in place
later, is done to the caller's image, or is not."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import polyphase
from polyphase import transforms as T
from tests.pipelines.chains import MEAN, STD
from tests.support.vision import torchvision

SIZE = (30, 30)
#: By name, with arguments that change nothing, or little; what v1 has not, or takes otherwise, is left out there.
#: `m`: the module with the transforms.
MADE: dict[str, list[Callable[[Any], Any]]] = {
    "AugMix": [lambda m: m.AugMix()],
    "AutoAugment": [lambda m: m.AutoAugment()],
    "CenterCrop": [lambda m: m.CenterCrop(30), lambda m: m.CenterCrop(20), lambda m: m.CenterCrop((34, 30))],
    "ClampBoundingBoxes": [lambda m: m.ClampBoundingBoxes()],
    "ClampKeyPoints": [lambda m: m.ClampKeyPoints()],
    "ColorJitter": [lambda m: m.ColorJitter(), lambda m: m.ColorJitter(0.5)],
    "Compose": [lambda m: m.Compose([m.CenterCrop(30), m.RandomHorizontalFlip(0.0)])],
    "ConvertBoundingBoxFormat": [lambda m: m.ConvertBoundingBoxFormat("XYXY")],
    "ConvertImageDtype": [lambda m: m.ConvertImageDtype(torch.float32), lambda m: m.ConvertImageDtype(torch.float64)],
    "ElasticTransform": [lambda m: m.ElasticTransform()],
    "FiveCrop": [],  # several images
    "GaussianBlur": [lambda m: m.GaussianBlur(3)],
    "GaussianNoise": [lambda m: m.GaussianNoise()],
    "Grayscale": [lambda m: m.Grayscale(), lambda m: m.Grayscale(3)],
    "Identity": [lambda m: m.Identity()],
    "JPEG": [],  # of bytes
    "Lambda": [lambda m: m.Lambda(lambda one: one)],
    "LinearTransformation": [],  # of one size
    "Normalize": [lambda m: m.Normalize(MEAN, STD), lambda m: m.Normalize(MEAN, STD, inplace=True)],
    "PILToTensor": [lambda m: m.PILToTensor()],
    "Pad": [
        lambda m: m.Pad(0),
        lambda m: m.Pad((0, 0, 0, 0), padding_mode="reflect"),
        lambda m: m.Pad(0, padding_mode="edge"),
        lambda m: m.Pad((0, 0), padding_mode="symmetric"),
        lambda m: m.Pad(0, fill=(1, 2, 3)),
        lambda m: m.Pad((-3, -2)),
        lambda m: m.Pad(2),
    ],
    "RGB": [lambda m: m.RGB()],
    "RandAugment": [lambda m: m.RandAugment()],
    "RandomAdjustSharpness": [lambda m: m.RandomAdjustSharpness(2, p=0.0)],
    "RandomAffine": [lambda m: m.RandomAffine(0)],
    "RandomApply": [lambda m: m.RandomApply([m.Pad(0)], p=1.0), lambda m: m.RandomApply([m.Pad(0)], p=0.0)],
    "RandomAutocontrast": [lambda m: m.RandomAutocontrast(0.0)],
    "RandomChannelPermutation": [lambda m: m.RandomChannelPermutation()],
    "RandomChoice": [lambda m: m.RandomChoice([m.CenterCrop(30), m.Pad(0)])],
    "RandomCrop": [
        lambda m: m.RandomCrop(30),
        lambda m: m.RandomCrop(20),
        lambda m: m.RandomCrop(30, padding=0),
        lambda m: m.RandomCrop(30, padding=0, pad_if_needed=True),
        lambda m: m.RandomCrop(30, padding=(0, 0), padding_mode="edge"),
        lambda m: m.RandomCrop(30, pad_if_needed=True),
        lambda m: m.RandomCrop(32, padding=1),
    ],
    "RandomEqualize": [lambda m: m.RandomEqualize(0.0)],
    "RandomErasing": [lambda m: m.RandomErasing(1.0, inplace=True), lambda m: m.RandomErasing(0.0, inplace=True)],
    "RandomGrayscale": [lambda m: m.RandomGrayscale(0.0)],
    "RandomHorizontalFlip": [lambda m: m.RandomHorizontalFlip(0.0), lambda m: m.RandomHorizontalFlip(1.0)],
    "RandomInvert": [lambda m: m.RandomInvert(0.0)],
    "RandomIoUCrop": [],  # of boxes
    "RandomOrder": [lambda m: m.RandomOrder([m.CenterCrop(25), m.CenterCrop(25)])],
    "RandomPerspective": [lambda m: m.RandomPerspective(p=0.0), lambda m: m.RandomPerspective(0.0, p=1.0)],
    "RandomPhotometricDistort": [lambda m: m.RandomPhotometricDistort(p=0.0)],
    "RandomPosterize": [lambda m: m.RandomPosterize(8, p=0.0)],
    "RandomResize": [lambda m: m.RandomResize(30, 31)],
    "RandomResizedCrop": [
        lambda m: m.RandomResizedCrop(30, scale=(1.0, 1.0), ratio=(1.0, 1.0)),
        lambda m: m.RandomResizedCrop(20, scale=(4 / 9, 4 / 9), ratio=(1.0, 1.0)),
    ],
    "RandomRotation": [
        lambda m: m.RandomRotation((0, 0)),
        lambda m: m.RandomRotation((360, 360)),
        lambda m: m.RandomRotation((360, 360), expand=True),
        lambda m: m.RandomRotation((0, 0), center=(3, 4)),
        lambda m: m.RandomRotation((180, 180)),
        lambda m: m.RandomRotation((90, 90)),
    ],
    "RandomShortestSize": [lambda m: m.RandomShortestSize(30)],
    "RandomSolarize": [lambda m: m.RandomSolarize(0.5, p=0.0)],
    "RandomVerticalFlip": [lambda m: m.RandomVerticalFlip(0.0), lambda m: m.RandomVerticalFlip(1.0)],
    "RandomZoomOut": [lambda m: m.RandomZoomOut(p=0.0), lambda m: m.RandomZoomOut(side_range=(1.0, 1.0), p=1.0)],
    "Resize": [
        lambda m: m.Resize(30),
        lambda m: m.Resize(SIZE, interpolation=m.InterpolationMode.NEAREST),
        lambda m: m.Resize(20),
    ],
    "SanitizeBoundingBoxes": [],  # of boxes
    "SanitizeKeyPoints": [],
    "ScaleJitter": [lambda m: m.ScaleJitter(SIZE, scale_range=(1.0, 1.0))],
    "SetClampingMode": [lambda m: m.SetClampingMode("soft")],
    "TenCrop": [],  # several images
    "ToDtype": [
        lambda m: m.ToDtype(torch.float32),
        lambda m: m.ToDtype(torch.float32, scale=True),
        lambda m: m.ToDtype({"others": None}),
        lambda m: m.ToDtype(torch.float64, scale=True),
    ],
    "ToImage": [lambda m: m.ToImage()],
    "ToPILImage": [lambda m: m.ToPILImage()],
    "ToPureTensor": [lambda m: m.ToPureTensor()],
    "ToTensor": [lambda m: m.ToTensor()],
    "TrivialAugmentWide": [lambda m: m.TrivialAugmentWide()],
    "UniformTemporalSubsample": [],  # of videos
}
NO_TRANSFORMS = {"AutoAugmentPolicy", "CutMix", "InterpolationMode", "MixUp", "Transform"}
V1, V2 = "torchvision.transforms", "torchvision.transforms.v2"
KINDS = ["tensor", "bytes", "image", "pillow", "array"]


def pictures(kind: str) -> Any:
    pixels = torch.randint(0, 256, (3, *SIZE), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    match kind:
        case "bytes":
            return pixels
        case "image":
            return torchvision("torchvision.tv_tensors").Image(pixels / 255)
        case "pillow":
            return pytest.importorskip("PIL.Image").fromarray(pixels.permute(1, 2, 0).contiguous().numpy())
        case "array":
            return (pixels[:1] / 255).permute(1, 2, 0).numpy()
    return pixels / 255


def spoil(result: Any) -> None:
    """What somebody may do to a result."""
    if isinstance(result, Tensor):
        result.view(torch.uint8 if result.dtype == torch.bool else result.dtype).fill_(3)
    else:
        result.paste(3, (0, 0, *result.size))


def leave(result: Any) -> None:
    """Nothing is done to it."""


def seen(own: Any, given: Any, spoiling: Callable[[Any], None]) -> tuple[object, bytes]:
    """The kind of the result, and the picture that was given once the result is spoilt; or the error."""
    torch.manual_seed(0)
    random.seed(0)
    try:
        result = own(given)
        spoiling(result)
    except Exception as error:
        return type(error), b""
    kind = Tensor if isinstance(result, Tensor) else type(result)
    return kind, given.tobytes() if hasattr(given, "tobytes") else given.numpy().tobytes()


def test_all_transforms_are_in_the_table() -> None:
    there = {name for module in (V1, V2) for name, one in vars(torchvision(module)).items() if isinstance(one, type)}
    assert there - NO_TRANSFORMS <= set(MADE)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("module", [V1, V2])
@pytest.mark.parametrize("name", MADE)
def test_memory_is_shared_where_torchvisions_is(name: str, module: str, kind: str) -> None:
    m = torchvision(module)
    for make in MADE[name] if hasattr(m, name) else []:
        if kind == "array" and name not in ("ToImage", "ToTensor"):
            continue  # which torchvision passes by
        for number, before in enumerate(([], [m.CenterCrop(30)], [m.CenterCrop(28), m.CenterCrop(27)])):
            if before and kind == "array":
                continue
            own = m.Compose([*before, make(m)])
            fused = polyphase.fuse(own)
            for _ in range(2):  # as new, and as it is known
                given, other = pictures(kind), pictures(kind)
                assert seen(fused, other, spoil) == seen(own, given, spoil), (number, own)


@pytest.mark.parametrize("module", [V1, V2])
@pytest.mark.parametrize(
    "name", ["Pad", "RandomCrop", "RandomRotation", "Resize", "CenterCrop", "RandomHorizontalFlip"]
)
def test_steps_in_place_change_what_they_change_in_torchvision(name: str, module: str) -> None:
    m = torchvision(module)
    last: list[Any] = [m.Normalize(MEAN, STD, inplace=True), m.RandomErasing(1.0, inplace=True)]
    last.append(m.Lambda(lambda one: one.mul_(0.5)))
    for make in MADE[name]:
        for step in last:
            own, given = m.Compose([make(m), step]), pictures("tensor")
            fused, other = polyphase.fuse(own), pictures("tensor")
            for _ in range(3):
                assert seen(fused, other, leave)[0] == seen(own, given, leave)[0], own
                torch.testing.assert_close(other, given, msg=repr(own))


def test_ours_share_memory_as_v2() -> None:
    m = torchvision()
    for name, made in MADE.items():
        for make in made if hasattr(T, name) else []:
            try:
                ours = polyphase.fuse([make(T)])
            except (AttributeError, TypeError):  # torchvision's enumeration, or a function
                continue
            given, other = pictures("tensor"), pictures("tensor")
            expected = seen(make(m), given, spoil)
            assert seen(ours, other, spoil) == expected, ours


def test_sizes_that_were_learnt_before() -> None:
    """An image to which nothing is done, after others of its kind."""
    m = torchvision()
    for steps in ([m.Resize(30)], [m.CenterCrop(30)], [m.Resize(30), m.Pad(0)], [m.RandomCrop(30, pad_if_needed=True)]):
        own = m.Compose(steps)
        fused = polyphase.fuse(own)
        for size in (40, 43, 50, 30, 30, 34, 30):
            picture = torch.rand(3, size, size)
            twin = copy.deepcopy(picture)
            assert seen(fused, picture, spoil) == seen(own, twin, spoil), (size, steps)


def test_programs_change_nothing() -> None:
    picture = pictures("tensor")
    before = picture.clone()
    polyphase.fuse([T.CenterCrop(20), T.Normalize(MEAN, STD, inplace=True)]).programs(picture)
    assert torch.equal(picture, before)
