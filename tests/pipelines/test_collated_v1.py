"""Samples of an image and other things, through transforms of v1, which take images alone; and batches of what is an
image to torchvision, though not to kernels."""

from __future__ import annotations

import pickle
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor

import polyphase
from polyphase import transforms as T
from polyphase.errors import WrongImageError
from tests.pipelines.chains import MEAN, STD, image
from tests.support.vision import torchvision


@pytest.fixture(scope="module")
def v2() -> Any:
    return torchvision()


@pytest.fixture(scope="module")
def v1() -> Any:
    return torchvision("torchvision.transforms")


def pillow(seed: int, mode: str = "RGB") -> Any:
    pixels = image(seed).permute(1, 2, 0).contiguous().numpy()
    return pytest.importorskip("PIL.Image").fromarray(pixels).convert(mode)


def v1_chains(v1: Any) -> dict[str, Any]:
    last = [v1.ToTensor(), v1.Normalize(MEAN, STD)]
    return {
        "evaluation": v1.Compose([v1.Resize(40), v1.CenterCrop(32), *last]),
        "training": v1.Compose([v1.RandomResizedCrop(32), v1.RandomHorizontalFlip(), *last]),
        "with others": v1.Compose([v1.Resize((30, 40)), v1.ColorJitter(0.4), v1.Lambda(lambda one: one), *last]),
        "others alone": v1.Compose([v1.ColorJitter(0.4), lambda one: one.resize((20, 30)), *last[:1]]),
        "a function": v1.Compose([lambda one: one.resize((20, 30)), T.ToTensor(), v1.RandomGrayscale()]),
        "a list": [v1.Resize((30, 40)), v1.ToTensor()],
        "without a compose": v1.RandomResizedCrop(30),
    }


CHAINS = ["evaluation", "training", "with others", "others alone", "a function", "a list", "without a compose"]


@pytest.mark.parametrize("name", CHAINS)
@pytest.mark.parametrize("form", ["tuple", "dictionary", "image"])
def test_samples_are_collated(v1: Any, name: str, form: str) -> None:
    own = v1_chains(v1)[name]
    fused, images = polyphase.fuse(own), [pillow(seed) for seed in range(4)]
    samples: dict[str, list[Any]] = {
        "tuple": [(one, number) for number, one in enumerate(images)],
        "dictionary": [{"label": torch.tensor(number), "more": [one, "x"]} for number, one in enumerate(images)],
        "image": images,
    }
    for _ in range(2):
        torch.manual_seed(0)
        expected = torch.stack([fused(one) if name != "without a compose" else _tensor(fused(one)) for one in images])
        torch.manual_seed(0)
        found = fused.collate(samples[form])
        if form == "tuple":
            assert torch.equal(found[1], torch.arange(4))
            found = found[0]
        elif form == "dictionary":
            assert torch.equal(found["label"], torch.arange(4))
            assert found["more"][1] == ["x"] * 4
            found = found["more"][0]
        assert torch.equal(found, expected)


def _tensor(picture: Any) -> Tensor:
    made: Tensor = torchvision("torchvision.transforms").PILToTensor()(picture)
    return made


def test_arrays_and_tensors_are_collated(v1: Any) -> None:
    tensors = [image(seed) for seed in range(3)]
    own = v1.Compose([v1.Resize((30, 40))])
    found, labels = polyphase.fuse(own).collate([(one, torch.tensor([n, n])) for n, one in enumerate(tensors)])
    assert torch.equal(found, torch.stack([polyphase.fuse(own)(one) for one in tensors]))
    assert labels.tolist() == [[0, 0], [1, 1], [2, 2]]
    arrays = [one.permute(1, 2, 0).numpy() for one in tensors]
    found, _ = polyphase.fuse([v1.ToTensor(), own]).collate([(one, 1) for one in arrays])
    assert torch.equal(found, torch.stack([polyphase.fuse([v1.ToTensor(), own])(one) for one in arrays]))


def test_a_sample_of_no_one_image(v1: Any) -> None:
    fused = polyphase.fuse(v1.Resize((30, 40)))
    for sample in ((pillow(1), pillow(2)), ("a", 3)):
        with pytest.raises(WrongImageError, match="sample 0 of 1"):
            fused.collate([sample])


def test_samples_of_other_pillow_images(v1: Any, v2: Any) -> None:
    for m in (v1, v2):
        own = m.Compose([m.Resize((30, 40)), m.ToTensor()])
        for mode in ("RGBA", "LA", "1", "I", "F"):
            samples = [(pillow(seed, mode), seed) for seed in range(3)]
            found, labels = polyphase.fuse(own).collate(samples)
            assert torch.equal(found, torch.stack([own(one) for one, _ in samples])), mode
            assert labels.tolist() == [0, 1, 2]


# ---- results that kernels do not compute


@pytest.mark.parametrize("mode", ["LA", "RGBA", "CMYK", "P", "1", "I", "F", "I;16", "HSV"])
def test_batches_of_pillow_images_of_other_modes(v2: Any, mode: str) -> None:
    if mode == "I;16":
        make = pytest.importorskip("PIL.Image").fromarray
        images = [make(torch.randint(0, 40000, (40 + n, 50), dtype=torch.uint16).numpy()) for n in range(3)]
    else:
        images = [pillow(seed, mode) for seed in range(3)]
    own = v2.CenterCrop((33, 44))
    fused = polyphase.fuse(own)
    expected = torch.stack([v2.PILToTensor()(own(one)) for one in images])
    assert torch.equal(fused.batch(images), expected)
    assert torch.equal(torch.stack(fused.batch(images, as_list=True)), expected)
    assert torch.equal(fused.batch(images, out=torch.empty_like(expected)), expected)
    assert fused.batch(images, channels_last=True).is_contiguous(memory_format=torch.channels_last)
    found, _ = fused.collate([(one, 0) for one in images])
    assert torch.equal(found, expected)


@pytest.mark.parametrize(
    "make", [lambda n: torch.randint(0, 9, (3, 40 + n, 50)).to(torch.uint16), lambda n: torch.rand(3, 40 + n, 50) + 1j]
)
def test_batches_of_dtypes_that_are_not_computed(v2: Any, make: Any) -> None:
    images = [make(n) for n in range(3)]
    fused = polyphase.fuse([v2.CenterCrop(30)])
    assert torch.equal(fused.batch(images), torch.stack([fused(one) for one in images]))
    mixed = [images[0], image(1).to(images[0].dtype), image(1)]
    found, there = fused.batch(mixed, on_error="skip")
    assert there.tolist() == [True, True, False]
    assert torch.equal(found, torch.stack([fused(one) for one in mixed[:2]]))


def test_batches_of_empty_images(v2: Any) -> None:
    fused = polyphase.fuse(v2.RandomHorizontalFlip())
    for shape in ((3, 0, 5), (0, 4, 5), (3, 4, 0)):
        assert fused.batch([torch.empty(shape)] * 2).shape == (2, *shape)
    crop = polyphase.fuse(v2.Lambda(lambda one: one[:, :0]))
    assert crop.batch([image(1), image(1)]).shape[:3] == (2, 3, 0)
    with pytest.raises(WrongImageError, match="one size"):
        fused.batch([torch.empty(3, 0, 5), torch.empty(3, 0, 6)])


# ---- what is no transform


class Processor:
    def __call__(self, picture: Any) -> Any:
        return {"pixel_values": picture}


@pytest.mark.parametrize("given", [Processor(), torch.nn.Sequential(torch.nn.Conv2d(3, 3, 1), torch.nn.ReLU()), len])
def test_what_is_no_transform_says_what_it_will_do(given: Any) -> None:
    with pytest.warns(UserWarning, match=f"{type(given).__name__}.*runs it as itself"):
        fused = polyphase.fuse(given)
    assert "# as itself" in repr(fused)
    assert "none: nothing becomes a kernel" in repr(fused)


def test_transforms_say_nothing(v1: Any, v2: Any) -> None:
    class Own(v2.Transform):  # type: ignore[misc]
        def transform(self, inpt: Any, params: Any) -> Any:
            return inpt

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for given in (
            v2.ColorJitter(),
            v1.ColorJitter(),
            Own(),
            [T.Resize(3), Processor()],
            v2.Compose([v2.Lambda(len)]),
        ):
            fused = polyphase.fuse(given)
        pickle.loads(pickle.dumps(polyphase.fuse([T.Resize(3), Processor()])))
        assert "as itself" in repr(fused)


def test_a_model_is_shown_on_one_line() -> None:
    with pytest.warns(UserWarning, match="as itself"):
        text = repr(polyphase.fuse([torch.nn.ModuleList([torch.nn.ReLU()]).append(torch.nn.ReLU()).forward]))
    model = torch.nn.TransformerEncoderLayer(8, 2)
    lines = repr(polyphase.fuse([T.Resize(40), model])).splitlines()
    assert [line for line in lines if "TransformerEncoderLayer" in line] == [
        "  TransformerEncoderLayer( ...  # as itself"
    ]
    assert "as itself" in text
