"""What became of each transform of a chain."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import polyphase
from polyphase import transforms as T
from polyphase.pipelines.accounts import ANOTHER, Done, account
from tests.support.vision import torchvision

PHOTO = torch.arange(3 * 40 * 60).remainder(256).reshape(3, 40, 60).to(torch.uint8)
LAST = [T.ToDtype(torch.float32, scale=True), T.Normalize((0.5,) * 3, (0.2,) * 3)]


def doubled(image: Tensor) -> Tensor:
    return image * 2


@pytest.mark.parametrize(
    ("chain", "launches"),
    [
        ([T.Resize(20), T.CenterCrop(10), T.RandomHorizontalFlip(), *LAST], [1, 1, 1, 1, 1]),
        ([T.Resize(20), T.Resize(10), *LAST], [1, 2, 2, 2]),
        ([T.CenterCrop(30), T.Pad(4), T.Resize(20)], [1, 1, 2]),
        ([T.RandomRotation(9), T.CenterCrop(20), T.RandomAffine(9)], [1, 1, 2]),
        ([T.Resize(20), doubled, *LAST], [1, None, 2, 2]),
        ([doubled, T.Resize(20), doubled], [None, 1, None]),
        ([T.RandomApply([T.Resize(20), T.Resize(10)], p=1.0), T.RandomChoice([T.CenterCrop(8)])], [1, 2, 2]),
    ],
)
def test_launches(chain: list[Any], launches: list[int | None]) -> None:
    found = account(chain, PHOTO)
    assert [one.launch for one in found] == launches
    if doubled not in chain:
        assert max(one for one in launches if one is not None) == len(polyphase.fuse(chain).programs(PHOTO))
    begun = 1
    for one in found:
        assert (one.why == ANOTHER) == (one.launch == begun + 1 and doubled not in chain), one
        begun = one.launch or begun


def test_why_a_function_runs_as_itself() -> None:
    _, one = account([T.Resize(20), doubled], PHOTO)
    assert one == Done(f"{__name__}.doubled", None, f"{__name__}.doubled is not a transform that Polyphase knows")


def test_why_torchvisions_run_as_themselves() -> None:
    v2 = torchvision()
    names = v2.Compose([v2.RandomHorizontalFlip(), v2.ColorJitter(0.4), v2.Resize((20, 20))])
    flip, jitter, resize = account(names, PHOTO.long())
    assert flip.launch == 1
    assert "ColorJitter is not a transform that Polyphase knows" in jitter.why
    assert resize.why == "kernels do not resize torch.int64: convert it"


def test_samples_of_several_parts() -> None:
    v2 = torchvision()
    tv_tensors = torchvision("torchvision.tv_tensors")
    boxes = tv_tensors.BoundingBoxes([[1, 2, 9, 9]], format="XYXY", canvas_size=(40, 60))
    chain = v2.Compose([v2.RandomHorizontalFlip(1.0), v2.Resize((20, 20))])
    found = account(chain, (tv_tensors.Image(PHOTO), {"boxes": boxes}), unpacks=True)
    assert [one.launch for one in found] == [1, 1]


def test_what_is_no_image() -> None:
    (one,) = account(torchvision().Resize((4, 4)), {"label": 3})
    assert (one.launch, one.why) == (None, "there is no image that Polyphase reads")
