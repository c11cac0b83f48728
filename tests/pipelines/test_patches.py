"""Patches of images, written by the launch that makes them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import polyphase
from polyphase import transforms as T
from polyphase.calls import plain_torch
from polyphase.calls.binding import bind
from polyphase.errors import NotSupportedError, WrongArgumentError, WrongImageError, WrongInputError
from polyphase.pipelines.patched import Patched
from polyphase.records.facts import Facts, facts
from polyphase.records.patchwork import Blocks
from polyphase.sampling.axis_maps import AxisMap
from polyphase.sampling.programs import maps_program
from polyphase.sampling.steps import Flip
from tests.pipelines.chains import MEAN, STD, image

LAST = [T.ToDtype(torch.float32, scale=True), T.Normalize(MEAN, STD)]
CHAINS: dict[str, list[Any]] = {
    "evaluation": [T.Resize(64), T.CenterCrop(48), *LAST],
    "bytes": [T.Resize((24, 36))],
    "moved": [T.CenterCrop((24, 36)), T.RandomHorizontalFlip(1.0)],
    "cropped": [T.CenterCrop((24, 36))],
    "letterbox": [T.Letterbox((36, 24), fill=114), *LAST],
    "border after arithmetic": [T.CenterCrop(20), *LAST, T.Pad(2, fill=3)],
    "rotated": [T.CenterCrop(24), T.RandomRotation((20, 20))],
}
PATCHES = [T.Patches(4), T.Patches(12), T.Patches(6, merge=2, frames=2), T.Patches(3, merge=2, channels_last=True),
           T.Patches(1), T.Patches(2, merge=6, frames=3, channels_last=True)]  # fmt: skip


def in_patches(picture: Tensor, patches: Any) -> Tensor:
    """One by one, from a definition."""
    size, merge = patches.size, patches.merge
    found = []
    step = size * merge
    for top in range(0, picture.shape[-2], step):
        for left in range(0, picture.shape[-1], step):
            for down in range(merge):
                for across in range(merge):
                    y, x = top + down * size, left + across * size
                    patch = picture[..., y : y + size, x : x + size]
                    frames = patch[:, None].expand(-1, patches.frames, -1, -1)  # channels, frames, rows, columns
                    found.append((frames.permute(1, 2, 3, 0) if patches.channels_last else frames).reshape(-1))
    return torch.stack(found)


@pytest.mark.parametrize("patches", PATCHES, ids=str)
@pytest.mark.parametrize("chain", CHAINS)
def test_patches_are_those_of_the_picture(chain: str, patches: Any) -> None:
    for seed in (1, 3):  # which lie in memory one way and the other
        torch.manual_seed(0)
        expected = in_patches(polyphase.fuse(CHAINS[chain])(image(seed)), patches)
        torch.manual_seed(0)
        assert torch.equal(polyphase.fuse([*CHAINS[chain], patches])(image(seed)), expected)


@pytest.mark.cpu
@pytest.mark.parametrize("chain", CHAINS)
def test_one_launch(chain: str) -> None:
    fused, picture = polyphase.fuse([*CHAINS[chain], T.Patches(12)]), image(1)
    before = polyphase.stats()["kernels_launched"]
    fused(picture)
    assert polyphase.stats()["kernels_launched"] == before + (2 if chain == "rotated" else 1)


def test_batches_and_a_tensor_that_is_given() -> None:
    fused, images = (
        polyphase.fuse([*CHAINS["evaluation"], T.Patches(6, merge=2, frames=2)]),
        [image(i) for i in range(5)],
    )
    expected = torch.stack([fused(one) for one in images])
    assert expected.shape == (5, 64, 3 * 2 * 36)
    assert torch.equal(fused.batch(images), expected)
    out = torch.full((5, 66, 3 * 2 * 36 * 2), -9.0)
    fused.batch(images, out[:, 1:-1, ::2])
    assert torch.equal(out[:, 1:-1, ::2], expected)
    out[:, 1:-1, ::2] = -9
    assert bool((out == -9).all()), "nothing beside was written"
    with pytest.raises(WrongArgumentError, match="channels_last"):
        fused.batch(images, channels_last=True)
    stacked = torch.stack([image(1), image(1).flip(-1)])
    assert torch.equal(fused(stacked)[1], fused(image(1).flip(-1)))


def test_the_order_of_qwen() -> None:
    """As the model's processor has it: (grid, merged, channels, frames, pixels)."""
    picture = torch.rand(3, 24, 36)
    frames = picture.expand(2, -1, -1, -1).reshape(1, 2, 3, 2, 2, 6, 3, 2, 6).permute(0, 3, 6, 4, 7, 2, 1, 5, 8)
    assert torch.equal(polyphase.fuse(T.Patches(6, merge=2, frames=2))(picture), frames.reshape(24, 3 * 2 * 36))


def test_gradients_are_recorded() -> None:
    picture = image(1, torch.float32).requires_grad_()
    found = polyphase.fuse([T.Resize((24, 24)), T.Patches(6)])(picture)
    (gradient,) = torch.autograd.grad(found.square().sum(), picture)
    assert gradient.abs().sum() > 0
    torch.testing.assert_close(found.detach(), polyphase.fuse([T.Resize((24, 24)), T.Patches(6)])(picture.detach()))


def test_mistakes() -> None:
    with pytest.raises(NotSupportedError, match=r"\(20, 24\) pixels are not so many times 12: resize"):
        polyphase.fuse([T.CenterCrop((20, 24)), T.Patches(6, merge=2)])(image(1))
    with pytest.raises(NotSupportedError, match="put Patches at the end"):
        polyphase.fuse([T.CenterCrop(24), T.Patches(6), T.RandomHorizontalFlip(1.0)])(image(1))
    with pytest.raises(WrongImageError, match="image 1 becomes"):
        polyphase.fuse([T.Patches(20)]).batch([image(1)[:, :40, :40], image(1)[:, :20, :40]])
    for wrong in ({"size": 0}, {"size": 4, "merge": 0}, {"size": 4, "frames": 1.5}):
        with pytest.raises(WrongArgumentError, match="whole number"):
            T.Patches(**wrong)


# ---- the kernels

FLIPPED = maps_program(torch.uint8, (AxisMap((Flip(),)), AxisMap((Flip(),))))


def test_kernels_write_what_torch_operations_do() -> None:
    picture, patches = image(1)[:, :24, :36], Patched((3, 24, 36), 3, 2, 2, False)
    out = torch.empty(patches.out_shape, dtype=torch.uint8)
    lies, cut = patches.lie(facts(out))
    bind(FLIPPED, (facts(picture),), lies, patchwork=cut).into(out, picture)
    expected = torch.empty_like(out)
    cut.write(plain_torch.run(FLIPPED, picture), expected, lies)
    assert torch.equal(out, expected)
    assert torch.equal(out, patches.of(picture.flip(-1, -2)))


def test_nothing_is_written_outside() -> None:
    patches = Patched((3, 24, 36), 3, 2, 2, False)
    whole = Facts(torch.uint8, patches.out_shape, (54, 1), torch.device("cpu"))
    lies, cut = patches.lie(whole)
    shorter = whole._replace(shape=(whole.shape[0] - 1, whole.shape[1]))
    for wrong in (
        cut._replace(whole=shorter),
        cut._replace(copies=3),
        cut._replace(apart=10),
        cut._replace(rows=cut.rows._replace(outer=10**6)),
        cut._replace(columns=Blocks(5, 1, 1, 1)),
    ):
        with pytest.raises(WrongInputError, match="cut into"):
            bind(FLIPPED, (Facts(torch.uint8, (3, 24, 36), (864, 36, 1), whole.device),), lies, patchwork=wrong)


# ---- sizes that models want


@pytest.mark.parametrize(
    ("size", "expected"),
    [((345, 456), (336, 448)), ((20, 20), (56, 56)), ((3000, 2000), (1204, 812)), ((10, 300), (28, 308))],
)
def test_smart_resize(size: tuple[int, int], expected: tuple[int, int]) -> None:
    """Sizes as `smart_resize` of Qwen2-VL's processor gives them, but that no side is less than a factor."""
    picture = torch.zeros(3, *size, dtype=torch.uint8)
    assert polyphase.fuse(T.SmartResize())(picture).shape[-2:] == expected


def test_letterbox_rounds_as_ultralytics_does() -> None:
    """Of their `LetterBox`: round(n * ratio), half of the border before, round(d / 2 - 0.1)."""
    for height, width in [(345, 456), (17, 640), (639, 101), (200, 333)]:
        found = polyphase.fuse(T.Letterbox(320, fill=114))(torch.zeros(1, height, width))[0]
        ratio = min(320 / height, 320 / width)
        inside = (found != 114).nonzero()
        for axis, n in enumerate((height, width)):
            length = round(n * ratio)
            start = round((320 - length) / 2 - 0.1)
            assert inside[:, axis].min() == start
            assert inside[:, axis].max() == start + length - 1
