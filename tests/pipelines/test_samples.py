"""Samples of several images: each transform of v2 is given those that torchvision would give it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils import _pytree

import polyphase
from tests.pipelines.chains import image, lies_as
from tests.support.vision import torchvision

Image = pytest.importorskip("PIL.Image")

pytestmark = pytest.mark.filterwarnings("ignore:The transform `ToTensor:UserWarning")


@pytest.fixture(scope="module")
def v2() -> Any:
    return torchvision()


def pillow(seed: int, mode: str = "RGB") -> Any:
    return Image.fromarray(image(seed).permute(1, 2, 0).contiguous().numpy()).resize((40, 30)).convert(mode)


def tensor(dtype: torch.dtype = torch.uint8) -> Tensor:
    return torch.randint(0, 2, (3, 30, 40), generator=torch.Generator().manual_seed(7)).to(dtype)


#: Some of their images are not read by kernels, are of a kind that hides others, or stop being so.
SAMPLES: dict[str, Any] = {
    "another mode first": lambda tv: (pillow(1, "LA"), pillow(2)),
    "another mode last": lambda tv: [pillow(1), pillow(2, "1")],
    "a tensor first": lambda tv: (tensor(), pillow(1)),
    "a tensor that is not computed": lambda tv: (tensor(torch.uint16), pillow(1), tensor()),
    "a parameter": lambda tv: (torch.nn.Parameter(tensor(torch.float32), requires_grad=False), tensor(torch.float32)),
    "a label": lambda tv: {"label": torch.tensor(3), "image": pillow(1)},
    "a label last": lambda tv: {"image": pillow(1), "label": torch.tensor(3)},
    "a video": lambda tv: (tv.Video(tensor()[None]), pillow(1)),
    "an image and a tensor": lambda tv: (tensor(), tv.Image(tensor())),
    "an array": lambda tv: (tensor().permute(1, 2, 0).contiguous().numpy(), pillow(1)),
    "two": lambda tv: (pillow(1), pillow(2)),
    "two tensors": lambda tv: (tensor(), tensor()),
}
CHAINS: dict[str, Any] = {
    "a border": lambda t: [t.Pad(3)],
    "to an image": lambda t: [t.ToImage(), t.RandomHorizontalFlip(1.0)],
    "to a tensor": lambda t: [t.PILToTensor(), t.RandomVerticalFlip(1.0), t.Pad((1, 2))],
    "to numbers": lambda t: [t.ToTensor(), t.CenterCrop((33, 20))],
    "to a tensor later": lambda t: [t.CenterCrop(25), t.ToImage(), t.ToPureTensor(), t.Pad(1)],
}


def done(function: Any, sample: Any) -> Any:
    try:
        return function(sample)
    except Exception as error:
        return type(error)


@pytest.mark.parametrize("sample", SAMPLES)
@pytest.mark.parametrize("name", CHAINS)
def test_the_same_images_are_transformed(v2: Any, name: str, sample: str) -> None:
    tv, own = torchvision("torchvision.tv_tensors"), v2.Compose(CHAINS[name](v2))
    fused = polyphase.fuse(own)
    for _ in range(2):
        expected, found = done(own, SAMPLES[sample](tv)), done(fused, SAMPLES[sample](tv))
        if isinstance(expected, type):
            assert isinstance(found, type)
            assert issubclass(found, expected)
            continue
        for one, other in zip(*map(_pytree.tree_leaves, (found, expected)), strict=True):
            assert type(one) is type(other)
            if isinstance(other, Tensor):
                assert torch.equal(one, other)
            elif hasattr(other, "tobytes"):
                assert one.tobytes() == other.tobytes()


@pytest.mark.parametrize("version", ["torchvision.transforms", "torchvision.transforms.v2"])
@pytest.mark.parametrize("shape", [(1, 3, 9, 7), (2, 3, 9, 7), (2, 2, 3, 9, 7), (1, 2, 3, 9, 7), (1, 2, 1, 4, 9, 7)])
def test_several_images_lie_as_torchvisions(version: str, shape: tuple[int, ...]) -> None:
    """v2 takes them for one batch and apart again; v1 resizes no more than a batch."""
    t = torchvision(version)
    made = torch.rand(shape)
    orders = (made, made.movedim(-3, -1).contiguous().movedim(-1, -3), made.transpose(-1, -2).contiguous().mT)
    nearest = t.InterpolationMode.NEAREST
    for steps in (
        [t.Resize((12, 8))],
        [t.Resize((12, 8), nearest), t.Pad(2)],
        [t.Pad(3)],
        [t.Pad(2, padding_mode="edge"), t.CenterCrop((4, 20))],
        [t.RandomCrop(16, pad_if_needed=True), t.RandomHorizontalFlip(1.0)],
    ):
        own = t.Compose(steps)
        fused = polyphase.fuse(own)
        for picture in orders:
            torch.manual_seed(0)
            expected = done(own, picture)
            torch.manual_seed(0)
            found = done(fused, picture)
            if isinstance(expected, type):
                assert isinstance(found, type), (own, found)
                assert issubclass(found, expected)
                continue
            torch.testing.assert_close(found, expected)
            assert lies_as(found, expected), (own, found.stride(), expected.stride())
