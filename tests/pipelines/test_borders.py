"""Borders as torchvision has them: negative ones, those of videos and batches of them, too wide ones."""

from __future__ import annotations

import itertools
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor

import polyphase
from polyphase import transforms as T
from polyphase.errors import NotSupportedError, TooWidePadError, WrongSizeError
from tests.pipelines.chains import image, lies_as
from tests.support.vision import torchvision

MODES = ["constant", "edge", "reflect", "symmetric"]


@pytest.fixture(scope="module")
def v2() -> Any:
    return torchvision()


@pytest.fixture(scope="module")
def v1() -> Any:
    return torchvision("torchvision.transforms")


def check(own: Any, picture: Tensor) -> None:
    torch.manual_seed(0)
    expected = own(picture)
    torch.manual_seed(0)
    found = polyphase.fuse(own)(picture)
    assert torch.equal(found, expected), own
    assert lies_as(found, expected), (own, found.stride(), expected.stride())


@pytest.mark.parametrize("padding", [(-1, 2, 0, -1), (-3, -2, -1, -4), (4, -5), (0, 3), (-30, 0, 45, 0)])
@pytest.mark.parametrize("seed", [0, 2, 3])
def test_colours_around_what_is_cropped(v2: Any, padding: Any, seed: int) -> None:
    """Of images in several orders in memory."""
    check(v2.Pad(padding, fill=[1, 2, 3]), image(seed))
    check(v2.Compose([v2.CenterCrop(33), v2.Pad(padding, fill=[1, 2, 3]), v2.Pad(2, fill=[7, 8, 9])]), image(seed))
    check(v2.RandomCrop(20, padding=padding, fill=(0.5, 2, 3), pad_if_needed=True), image(seed, torch.float32))


def test_too_much_is_cropped(v2: Any) -> None:
    own = v2.Pad((-300, 2), fill=[1, 2, 3])
    for one in (own, polyphase.fuse(own), polyphase.fuse(T.Pad((-300, 2), fill=[1, 2, 3]))):
        with pytest.raises(RuntimeError):
            one(image(1))


def test_too_much_is_cropped_of_what_is_mirrored(v2: Any, v1: Any) -> None:
    """Before anything is drawn of the size that is left."""
    for m in (v2, v1):
        for own in (m.Pad((-3, -2), padding_mode="symmetric"), m.RandomCrop(4, -2, True, padding_mode="symmetric")):
            for one in (own, polyphase.fuse(own)):
                with pytest.raises(IndexError):
                    one(torch.rand(1, 1, 1))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32, torch.int32])
@pytest.mark.parametrize("mode", MODES)
def test_videos_and_batches_of_them(v2: Any, v1: Any, mode: str, dtype: torch.dtype) -> None:
    made = (
        torch.randint(0, 200, (2, 1, 3, 4, 12, 14), dtype=dtype) if dtype != torch.float32 else torch.rand(6, 4, 12, 14)
    )
    made = made.reshape(2, 1, 3, 4, 12, 14)
    swapped = made.transpose(1, 2).transpose(3, 4).contiguous().transpose(3, 4)
    strided = made.repeat(1, 1, 1, 1, 2, 1)[..., ::2, :]
    for rank, picture in itertools.product((4, 5, 6), (made, swapped, strided)):
        picture = picture[(0,) * (6 - rank)]
        for fill in (3, [1, 2, 3, 4]) if mode == "constant" else (0,):
            for padding in ((1, 2, 3, 4), 0, (-2, 1), (-2, -1)):
                check(v2.Pad(padding, fill=fill, padding_mode=mode), picture)
            check(v2.RandomCrop((15, 13), pad_if_needed=True, fill=fill, padding_mode=mode), picture)
        own = v1.Pad((1, 2), padding_mode=mode)
        try:
            own(picture)
        except (RuntimeError, NotImplementedError) as error:
            with pytest.raises(type(error)):
                polyphase.fuse(own)(picture)
        else:
            check(own, picture)


def test_our_own_of_videos(v2: Any) -> None:
    picture = torch.rand(2, 3, 3, 12, 14)
    for mode in MODES:
        expected = v2.Pad(3, padding_mode=mode)(picture)
        assert torch.equal(polyphase.fuse(T.Pad(3, padding_mode=mode))(picture), expected)


def test_a_border_wider_than_the_image(v2: Any, v1: Any) -> None:
    """Each of the errors that people catch."""
    for m in (v2, v1, T):
        fused = polyphase.fuse([m.Pad((0, 61), padding_mode="symmetric")])
        for error in (IndexError, RuntimeError, WrongSizeError, TooWidePadError):
            with pytest.raises(error, match="at most 60"):
                fused(torch.rand(3, 60, 70))
    with pytest.raises(IndexError, match="at most 60"):
        polyphase.functional.pad(torch.rand(1, 3, 60, 70), (0, 0, 61, 0), mode="symmetric")
    with pytest.raises(IndexError):
        polyphase.fuse(v2.RandomCrop(500, pad_if_needed=True, padding_mode="symmetric"))(torch.rand(3, 60, 70))


def test_nothing_is_scaled_without_a_dtype(v2: Any) -> None:
    """torchvision's warning, at every call; ours says the same."""
    tv = torchvision("torchvision.tv_tensors")
    for dtypes in ({"others": None}, {tv.Image: None, "others": torch.float32}):
        own = v2.Compose([v2.CenterCrop(20), v2.ToDtype(dtypes, scale=True)])
        fused = polyphase.fuse(own)
        for picture in (tv.Image(image(1)), {"image": tv.Image(image(1)), "label": 3}):
            for _ in range(2):
                with pytest.warns(UserWarning, match="no scaling will be done"):
                    fused(picture)
    with pytest.warns(UserWarning, match="no scaling will be done"):
        polyphase.fuse(T.ToDtype({"others": None}, scale=True))(image(1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        polyphase.fuse(v2.ToDtype({"others": None}))(image(1))
        polyphase.fuse(v2.ToDtype({torch.Tensor: torch.float32, "others": None}, scale=True))(image(1))
        pillow = pytest.importorskip("PIL.Image").fromarray(image(0).permute(1, 2, 0).contiguous().numpy())
        polyphase.fuse(v2.ToDtype({"others": None}, scale=True))(pillow)


def test_v1_refuses_what_it_refuses(v1: Any) -> None:
    pillow = pytest.importorskip("PIL.Image").fromarray(image(0).permute(1, 2, 0).contiguous().numpy())
    for own, picture in (
        (v1.Pad(2, fill=(1, 2, 3)), image(1)),
        (v1.RandomCrop(20, padding=1, fill=(1, 2, 3)), image(1)),
        (v1.ConvertImageDtype(torch.float32), pillow),
    ):
        with pytest.raises(TypeError) as seen:
            own(picture)
        with pytest.raises(TypeError) as found:
            polyphase.fuse(own)(picture)
        assert not isinstance(found.value, NotSupportedError)
        assert str(found.value) == str(seen.value)
