"""Images of different sizes in one call, and as what collates a DataLoader's samples."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import polyphase
from polyphase import transforms as T
from polyphase.errors import NotSupportedError, UnknownNameError, WrongArgumentError, WrongImageError
from tests.pipelines.chains import MEAN, STD, image
from tests.support.vision import torchvision

LAST = [T.ToDtype(torch.float32, scale=True), T.Normalize(MEAN, STD)]
CHAINS: dict[str, list[Any]] = {
    "training": [T.RandomResizedCrop(48), T.RandomHorizontalFlip(), *LAST],
    "evaluation": [T.Resize(64), T.CenterCrop(48), *LAST],
    "as they are": [T.CenterCrop(20)],
    "two programs, or one": [T.RandomApply([T.Resize(30)]), T.RandomRotation(30), T.Resize((40, 30)), *LAST],
    "something unknown": [T.RandomCrop(40, pad_if_needed=True), lambda one: one // 2, T.RandomVerticalFlip(), *LAST],
}


@pytest.fixture(params=[1, 2], ids="{} threads".format)
def threads(request: pytest.FixtureRequest) -> Any:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("name", CHAINS)
def test_a_batch_is_its_images_one_by_one(name: str, channels_last: bool) -> None:
    """The unknown needs pixels, and so has to be drawn before: all else is drawn in the images' order."""
    fused, images = polyphase.fuse(CHAINS[name]), [image(seed) for seed in range(13)]
    torch.manual_seed(0)
    expected = torch.stack([fused(one) for one in images])
    torch.manual_seed(0)
    found = fused.batch(images, channels_last=channels_last)
    assert torch.equal(found, expected)
    assert found.is_contiguous(memory_format=torch.channels_last if channels_last else torch.contiguous_format)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_fewer_images_than_threads(count: int) -> None:
    fused = polyphase.fuse(CHAINS["evaluation"])
    images = [image(seed) for seed in range(count)]
    assert torch.equal(fused.batch(images), torch.stack([fused(one) for one in images]))


def test_into_a_tensor_that_is_given() -> None:
    fused, images = polyphase.fuse(CHAINS["evaluation"]), [image(seed) for seed in range(3)]
    out = torch.full((3, 3, 50, 60), -9.0)[..., 1:49, 4:52]
    assert fused.batch(images, out) is not None
    assert torch.equal(out, fused.batch(images))
    wrongs: list[Any] = [torch.empty(2, 3, 48, 48), torch.empty(3, 3, 48, 48, dtype=torch.float64), [1]]
    for wrong in wrongs:
        with pytest.raises(WrongArgumentError, match=r"out is .*the batch is torch.float32 of shape \(3, 3, 48, 48\)"):
            fused.batch(images, wrong)


def test_kinds_of_images_together() -> None:
    numpy, Image = pytest.importorskip("numpy"), pytest.importorskip("PIL.Image")  # noqa: N806
    fused, pixels = polyphase.fuse([T.ToImage(), *CHAINS["as they are"]]), image(1).permute(1, 2, 0).contiguous()
    images = [image(1), Image.fromarray(pixels.numpy()), pixels.numpy()[::-1], numpy.asfortranarray(pixels.numpy())]
    expected = fused(image(1))
    assert torch.equal(fused.batch(images), torch.stack([expected, expected, fused(image(1).flip(-2)), expected]))


def test_results_of_several_sizes() -> None:
    fused, images = polyphase.fuse(T.Resize(30)), [image(1), image(1), image(2)]
    with pytest.raises(WrongImageError, match=r"image 2 becomes .* and image 0 .*as_list=True"):
        fused.batch(images)
    for found, one in zip(fused.batch(images, as_list=True), images, strict=True):
        assert torch.equal(found, fused(one))


def test_images_of_several_dtypes() -> None:
    with pytest.raises(WrongImageError, match=r"image 1 becomes torch.float32.*image 0 torch.uint8"):
        polyphase.fuse(T.CenterCrop(30)).batch([image(1), image(1, torch.float32)])


def test_what_a_batch_has_one_of() -> None:
    fused, one = polyphase.fuse(T.CenterCrop(30)), image(1)
    for other, fix in (
        (one[:1], r"one number of channels: convert.*'RGB'"),
        (one.float(), "one dtype: put ToDtype"),
        (one.to("meta"), "one device: move them there"),
    ):
        with pytest.raises(WrongImageError, match=f"image 2 becomes .*{fix}"):
            fused.batch([one, one, other])
        found, mask = fused.batch([other, one, one], on_error="skip")
        assert mask.tolist() == [False, True, True]
        assert torch.equal(found, fused.batch([one, one]))


def test_an_image_that_cannot_be_done() -> None:
    fused = polyphase.fuse([T.RandomCrop(30), *LAST])
    images = [image(1), torch.zeros(3, 20, 40, dtype=torch.uint8), image(2), torch.zeros(1, 40, 40, dtype=torch.uint8)]
    with pytest.raises(WrongImageError, match=r"image 1 of 4: a random crop of \(30, 30\).*pad_if_needed"):
        fused.batch(images)
    torch.manual_seed(0)
    found, mask = fused.batch(images, on_error="skip")
    torch.manual_seed(0)
    assert mask.tolist() == [True, False, True, False]
    assert torch.equal(found, torch.stack([fused(images[0]), fused(images[2])]))
    with pytest.raises(WrongImageError, match="none of 1 images"):
        fused.batch(images[1:2], on_error="skip")


@pytest.mark.parametrize("images", [[], (), torch.zeros(3, 3, 40, 40), "images", 3])
def test_no_images(images: Any) -> None:
    with pytest.raises(WrongArgumentError, match="a list of images"):
        polyphase.fuse(T.Resize(20)).batch(images)


def test_no_such_option() -> None:
    with pytest.raises(UnknownNameError, match="on_error"):
        polyphase.fuse(T.Resize(20)).batch([image(1)], on_error="ignore")
    with pytest.raises(WrongArgumentError, match="as_list"):
        polyphase.fuse(T.Resize(20)).batch([image(1)], image(1), as_list=True)
    with pytest.raises(WrongImageError, match="image 0 of 1") as error:
        polyphase.fuse([T.Resize(20), lambda one: "no image"]).batch([image(1)])
    assert isinstance(error.value.__cause__, NotSupportedError)


@pytest.mark.cpu
def test_a_batch_is_one_launch_per_image() -> None:
    fused, images = polyphase.fuse(CHAINS["training"]), [image(seed) for seed in range(5)]
    before = polyphase.stats()["kernels_launched"]
    fused.batch(images)
    assert polyphase.stats()["kernels_launched"] == before + 5


def test_gradients_are_recorded() -> None:
    picture = image(1, torch.float32).requires_grad_()
    found = polyphase.fuse([T.Resize((20, 20)), T.Normalize(MEAN, STD)]).batch([picture, picture.detach()])
    (gradient,) = torch.autograd.grad(found.square().sum(), picture)
    assert gradient.abs().sum() > 0


# ---- as collate_fn


def test_samples_are_collated_as_by_default() -> None:
    fused = polyphase.fuse(CHAINS["evaluation"])
    images = [image(seed) for seed in range(3)]
    expected = fused.batch(images)
    found = fused.collate([(one, number) for number, one in enumerate(images)])
    assert torch.equal(found[0], expected)
    assert torch.equal(found[1], torch.tensor([0, 1, 2]))
    named = [{"image": one, "name": "x", "more": (1.5, torch.ones(2))} for one in images]
    found = fused.collate(named)
    assert torch.equal(found["image"], expected)
    assert found["name"] == ["x"] * 3
    assert torch.equal(found["more"][1], torch.ones(3, 2))
    assert torch.equal(fused.collate(images), expected)


def test_samples_that_cannot_be_collated() -> None:
    fused = polyphase.fuse([T.RandomCrop(30)])
    with pytest.raises(WrongImageError, match="sample 1 of 2: a random crop"):
        fused.collate([(image(1), 0), (image(1)[:, :20], 0)])
    with pytest.raises(WrongImageError, match="several forms"):
        fused.collate([(image(1), 0), image(1)])
    with pytest.raises(WrongImageError, match="image 1 becomes"):
        polyphase.fuse(T.Resize(20)).collate([(image(1), 0), (image(2), 0)])


def test_boxes_go_with_their_images() -> None:
    v2, tv = torchvision(), torchvision("torchvision.tv_tensors")
    own = v2.Compose([v2.RandomHorizontalFlip(), v2.Resize((30, 40))])
    samples = []
    for seed in range(4):
        picture = image(seed)
        boxes = tv.BoundingBoxes([[3, 4, 20, 30]], format="XYXY", canvas_size=picture.shape[-2:])
        samples.append((tv.Image(picture), boxes))
    torch.manual_seed(0)
    expected = [own(one) for one in samples]
    torch.manual_seed(0)
    images, boxes = polyphase.fuse(own).collate(samples)
    assert torch.equal(images, torch.stack([one.as_subclass(Tensor) for one, _ in expected]))
    assert torch.equal(boxes, torch.stack([one.as_subclass(Tensor) for _, one in expected]))


# ---- the launcher


@pytest.mark.cpu
def test_the_launcher_checks_what_it_is_given() -> None:
    """No read beyond a tuple, and no launch of what was not bound."""
    from polyphase.calls.binding import bind
    from polyphase.cpu import libraries
    from polyphase.records.facts import facts
    from polyphase.sampling.axis_maps import AxisMap
    from polyphase.sampling.programs import maps_program
    from polyphase.sampling.steps import Flip

    launch_all, picture = libraries.launcher().launch_all, image(1)
    handle = bind(maps_program(picture.dtype, (AxisMap((Flip(),)),)), (facts(picture),)).handle
    out = torch.zeros_like(picture)
    good = (handle, out, picture)
    for wrong in ((), good[:2], (*good, out), (*good, *[out] * 30), (3, *good[1:])):
        with pytest.raises(ValueError, match=r"launch|more tensors|invalid PyCapsule"):
            launch_all(good, wrong)
    with pytest.raises((TypeError, SystemError)):
        launch_all([*good])
    assert not out.any(), "nothing is run where one call is wrong"
    launch_all()
    launch_all(good)
    assert torch.equal(out, picture.flip(-1))
