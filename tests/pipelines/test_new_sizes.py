"""Images of sizes that were not seen before: by templates or as pictures, they are the same."""

from __future__ import annotations

import struct
import threading
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any

import pytest
import torch
from torch import Tensor

import polyphase
from polyphase import transforms as T
from polyphase.calls import binding
from polyphase.pipelines.picture import Picture
from polyphase.pipelines.pipeline import Pipeline
from polyphase.pipelines.templates import Sketch
from polyphase.pipelines.walks import Image, Walk, image_of
from polyphase.records.facts import facts
from polyphase.records.recipes import NUMBERS, RECORD, encode
from polyphase.sampling.programs import Axes
from tests.pipelines import chains
from tests.support.vision import torchvision

SEEDS = [
    pytest.param(range(40), id="some"),
    pytest.param(range(40, 1000), id="many", marks=pytest.mark.full),
]
LAST = [T.ToDtype(torch.float32, scale=True), T.Normalize(chains.MEAN, chains.STD)]
#: What C++ makes by itself.
BY_SIZE: dict[str, list[Any]] = {
    "evaluation": [T.Resize(40), T.CenterCrop(32), *LAST],
    "not longer than": [T.Resize(40, max_size=48), *LAST],
    "longer side": [T.Resize(None, max_size=37, interpolation="bicubic")],
    "to a size": [T.Resize((33, 47), interpolation="lanczos"), T.CenterCrop((30, 47)), T.CenterCrop((21, 20))],
    "crop, then resize": [T.CenterCrop((30, 40)), T.ToDtype(torch.float32), T.Resize(20), *LAST[1:]],
    "nearest": [T.Resize((33, 50), interpolation="nearest"), T.ToDtype(torch.float32, scale=True)],
    "nearest, exactly": [T.Resize(35, interpolation="nearest-exact"), T.CenterCrop(20)],
    "nested": [[T.Resize(40), [T.CenterCrop(32)]], T.ToImage(), T.ToPureTensor(), *LAST],
    "without antialias": [T.Resize(45, antialias=False), T.ConvertImageDtype(torch.float16)],
    "crop of a smaller one": [T.Resize(40), T.CenterCrop((60, 44)), *LAST],
    "border": [T.Resize((30, 40)), T.Pad((1, 2, 3, 4), fill=7), T.CenterCrop((31, 40)), *LAST],
    "reflected": [T.Pad(5, padding_mode="reflect"), T.Pad((2, 0), padding_mode="edge"), *LAST],
    "symmetric": [T.CenterCrop(50), T.Pad((3, 20), padding_mode="symmetric")],
    "letterbox": [T.Letterbox((50, 60), fill=114), *LAST],
    "letterbox at a corner": [T.Letterbox(40, centred=False), T.ToDtype(torch.float32, scale=True)],
    "smart": [T.SmartResize(14, 14 * 14 * 4, 14 * 14 * 20), *LAST],
    "border after arithmetic": [*LAST, T.Pad(4, fill=1), T.CenterCrop(50)],
    "a view": [T.CenterCrop(33), T.CenterCrop((20, 33))],
    "itself": [T.Resize(70, max_size=200), T.CenterCrop(70)],
}
OTHERS: dict[str, list[Any]] = {
    "patches": [T.SmartResize(8, 8 * 8 * 9, 8 * 8 * 40), *LAST, T.Patches(4, merge=2, frames=2)],
    "two programs": [T.Resize(50), T.Resize((20, 30)), *LAST],
    "border first": [T.Pad(3), T.Resize(30)],
}
RANDOM: dict[str, list[Any]] = {
    "training": [T.RandomResizedCrop(32), T.RandomHorizontalFlip(), *LAST],
    "flips": [T.RandomHorizontalFlip(), T.RandomVerticalFlip(), T.Resize(30), T.RandomHorizontalFlip(), *LAST],
    "crops": [T.Resize(40), T.RandomCrop(32, padding=3), T.RandomVerticalFlip(), *LAST],
    "small crops": [T.RandomCrop(60, pad_if_needed=True), T.CenterCrop((30, 70)), T.RandomCrop(20), *LAST],
    "two programs": [T.RandomResizedCrop((50, 40)), T.RandomHorizontalFlip(), T.Resize(20)],
    "chosen": [T.RandomApply([T.RandomCrop(30)]), T.RandomHorizontalFlip(), T.Resize(25)],
    "one of several": [T.RandomChoice([T.Resize(25, "bicubic"), T.Resize(25), T.CenterCrop(40)], p=[1, 2, 1])],
    "in any order": [T.RandomOrder([T.CenterCrop(32), T.RandomHorizontalFlip(), T.Pad((0, 1, 2, 3))]), *LAST],
    "a view": [T.RandomCrop(30), T.RandomHorizontalFlip(0.3), T.CenterCrop(20)],
    "of random size": [T.RandomResize(20, 60), T.RandomHorizontalFlip(), *LAST],
    "one of several sizes": [T.RandomShortestSize((20, 30, 60), 70), *LAST],
    "jittered": [T.ScaleJitter((40, 50), interpolation="bicubic"), T.RandomCrop(32, pad_if_needed=True), *LAST],
    "zoomed out": [T.RandomZoomOut(7, (1.0, 2.0)), T.RandomHorizontalFlip(), *LAST],
    "warped": [T.RandomRotation(20), T.RandomHorizontalFlip()],
}


def images(count: int, seed: int) -> list[Tensor]:
    """Of many sizes and layouts: rows, pixels, parts of larger images, turned ones; some of one channel."""
    draw, made = Random(seed), list[Tensor]()
    for _ in range(count):
        channels, height, width = draw.choice([3, 3, 3, 3, 1, 4]), draw.randint(34, 90), draw.randint(34, 90)
        pixels = torch.randint(0, 256, (height, width, channels), dtype=torch.uint8)
        rows = pixels.permute(2, 0, 1).contiguous()
        top, left = draw.randint(0, 10), draw.randint(0, 10)
        kinds = [rows, rows, pixels.permute(2, 0, 1), rows[:, top:, left:], pixels.permute(2, 0, 1)[:, top:, left:]]
        made.append(draw.choice([*kinds, rows.mT, pixels.permute(2, 1, 0), rows[:, :, ::2]]))
    return made


def read(image: Any) -> Image:
    found = image_of(image)
    assert found is not None
    return found


def walked(pipeline: Pipeline, image: Any) -> Picture:
    """The plain twin."""
    walk = Walk(read(image).picture())
    walk.take(pipeline._steps)
    picture = walk.leaves[0]
    assert isinstance(picture, Picture)
    return picture


def assert_same(sketch: Sketch, picture: Picture) -> None:
    """Sizes, strides and steps are all that a request has of an image."""
    (stage,) = picture.stages()
    axes = stage.program.sampler
    assert isinstance(axes, Axes)
    numbers = sketch._steps[0] + sketch._steps[1]
    packed = struct.pack(f"={len(numbers) // NUMBERS * RECORD}", *numbers)
    assert packed == b"".join(map(encode, axes.maps))
    assert (sketch.out, sketch.shape, sketch.kind) == (stage.out, picture.shape, picture.kind)
    assert list(map(id, sketch.vectors)) == list(map(id, stage.vectors))
    assert torch.equal(sketch.run(), picture.run())


def assert_is_made(made: Tensor, image: Tensor, picture: Picture) -> None:
    """A view, or the image itself, where torchvision's would be."""
    expected = picture.value()
    assert facts(made) == facts(expected)
    assert torch.equal(made, expected)
    assert (made.data_ptr() == expected.data_ptr()) == picture.is_view
    assert (made is image) == (expected is image)


def made_in_c(pipeline: Pipeline, image: Tensor) -> Tensor | None:
    sized = pipeline._templates.sized(read(image))
    return None if sized is None else sized[0].call(image)


@pytest.mark.parametrize("name", [*BY_SIZE, *OTHERS])
def test_sketches_are_pictures(name: str) -> None:
    pipeline, followed, by_size = polyphase.fuse((BY_SIZE | OTHERS)[name]), 0, 0
    for image in images(60, seed=len(name)):
        normalised = any(isinstance(one, T.Normalize) for one in (BY_SIZE | OTHERS)[name])
        if normalised and image.shape[0] != 3:
            continue
        made, picture = made_in_c(pipeline, image), walked(pipeline, image)
        found = pipeline._templates.of(read(image))
        if isinstance(found, Sketch):
            assert_same(found, picture)
            followed += 1
        if made is not None:
            assert_is_made(made, image, picture)
            by_size += 1
    assert (followed > 10) == (name not in ("two programs", "border first"))
    assert (by_size > 10) == (name in BY_SIZE)


@pytest.mark.parametrize("name", RANDOM)
def test_what_is_random_is_drawn_once(name: str) -> None:
    """By a sketch, and where C++ makes the picture; and the generator is left as by a walk."""
    pipeline, twin, followed, by_size = polyphase.fuse(RANDOM[name]), polyphase.fuse(RANDOM[name]), 0, 0
    for seed, image in enumerate(images(120, seed=3)):
        if image.shape[0] != 3 or image.shape[1] < 32 or image.shape[2] < 32:
            continue
        torch.manual_seed(seed)
        picture = walked(twin, image)
        expected, after = picture.value(), torch.get_rng_state()
        torch.manual_seed(seed)
        before = torch.get_rng_state()
        made = made_in_c(pipeline, image)
        assert torch.equal(torch.get_rng_state(), before if made is None else after)
        if made is not None:
            assert_is_made(made, image, picture)
            by_size += 1
        torch.manual_seed(seed)
        found = pipeline._templates.of(read(image))
        assert torch.equal(found.value(), expected)
        assert torch.equal(torch.get_rng_state(), after)
        if isinstance(found, Sketch):
            assert_same(found, picture)
            followed += 1
    assert (followed > 0, by_size > 0) == ((name not in ("two programs", "warped"),) * 2)


@pytest.mark.parametrize("seeds", SEEDS)
def test_random_chains_of_any_image(seeds: range) -> None:
    """Templates against walks: of every dtype that is summed, and however images lie."""
    by_template = 0
    for seed in seeds:
        transforms = chains.chain(seed, T).transforms
        pipeline, twin = (polyphase.fuse(transforms) for _ in range(2))
        some = [image for image in images(12, seed) if image.shape[0] == 3]
        dtypes = [torch.uint8, torch.float32, torch.int16]
        for number, image in enumerate([one.to(dtypes[seed % 3]) for one in some * 3]):
            expected, found = (_outcome_and_state(one, image, number % len(some)) for one in (twin.walk, pipeline))
            assert found[1] == expected[1], (seed, transforms)
            if isinstance(expected[0], Exception):
                assert type(found[0]) is type(expected[0]), (seed, transforms)
                continue
            if pipeline._parts(image) is None:
                assert facts(found[0]) == facts(expected[0]), (seed, transforms)
                assert torch.equal(found[0], expected[0]), (seed, transforms)
            else:  # a crop may be a view of what the part before it made, and floats are summed in another order
                torch.testing.assert_close(found[0], expected[0])
            by_template += made_in_c(pipeline, image) is not None
    assert by_template > len(seeds)


def _outcome_and_state(function: Any, image: Tensor, seed: int) -> tuple[Any, bytes]:
    torch.manual_seed(seed)
    made = _outcome(lambda one: made.value() if isinstance(made := function(one), Walk) else made, image)
    return made, bytes(torch.get_rng_state().numpy())


def test_batches_are_drawn_for_in_c(monkeypatch: pytest.MonkeyPatch) -> None:
    """Image by image, and not at all where one of them is for Python."""
    pipeline, twin = (polyphase.fuse(RANDOM["training"]) for _ in range(2))
    some = [
        image for image in images(40, seed=8) if image.shape[0] == 3 and image.stride() == image.contiguous().stride()
    ]
    torch.manual_seed(1)
    pipeline.batch(some)
    torch.manual_seed(1)
    expected, after = torch.stack([walked(twin, image).value() for image in some]), torch.get_rng_state()
    with monkeypatch.context() as without:
        without.setattr(Pipeline, "_pictures", None)
        for out in (None, torch.empty_like(expected)):
            torch.manual_seed(1)
            assert torch.equal(pipeline.batch(some, out), expected)
            assert torch.equal(torch.get_rng_state(), after)
    torch.manual_seed(1)
    odd = [*some[:3], some[3].permute(1, 2, 0).contiguous().permute(2, 0, 1), *some[4:]]
    assert torch.equal(pipeline.batch(odd), expected)
    assert torch.equal(torch.get_rng_state(), after)


@pytest.mark.parametrize("kind", ["array", "Pillow image", "image"])
def test_kinds_of_images(kind: str) -> None:
    v2 = torchvision()
    chain = v2.Compose([v2.Resize(40), v2.CenterCrop(36), v2.ToImage(), v2.ToDtype(torch.float32, scale=True)])
    pipeline, twin = polyphase.fuse(chain), polyphase.fuse(chain)
    made, Image = {"image": 0, "array": 0, "Pillow image": 0}, pytest.importorskip("PIL.Image")  # noqa: N806
    for pixels in (one.permute(1, 2, 0).contiguous() for one in images(40, seed=5) if one.shape[0] == 3):
        if kind == "image":
            image: Any = torchvision("torchvision.tv_tensors").Image(pixels.permute(2, 0, 1))
        else:
            image = pixels.numpy() if kind == "array" else Image.fromarray(pixels.numpy())
        found = pipeline._templates.of(read(image))
        if isinstance(found, Sketch):
            assert_same(found, walked(twin, image))
            made[kind] += 1
        assert torch.equal(pipeline(image), walked(twin, image).value())
    assert made[kind] > 10


def test_a_new_size_makes_no_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does a new crop."""
    fixed, random = polyphase.fuse(BY_SIZE["evaluation"]), polyphase.fuse(RANDOM["training"])
    before = [torch.zeros(3, n, 70, dtype=torch.uint8) for n in (60, 61, 80)]
    before += [image.mT.contiguous() for image in before]
    for _ in range(20):  # flipped and not
        for image in before:
            fixed(image)
            random(image)
    monkeypatch.setattr(binding, "record_of", None)
    for n in range(100, 120):
        assert fixed(torch.zeros(3, n, n + 30, dtype=torch.uint8)).shape == (3, 32, 32)
        assert random(torch.zeros(3, n, n + 30, dtype=torch.uint8)).shape == (3, 32, 32)
    fixed.batch([torch.zeros(3, n, 77, dtype=torch.uint8) for n in range(120, 130)])
    with pytest.raises(TypeError):
        fixed(torch.zeros(3, 100, 130))


@pytest.mark.parametrize("name", BY_SIZE)
def test_calls_are_told_in_c(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of any size, once there were a few; what is not like those takes the longer way."""
    pipeline = polyphase.fuse(BY_SIZE[name])
    for n in range(50, 56):
        pipeline(torch.zeros(3, n, n + 20, dtype=torch.uint8))
    some = [image for image in images(40, seed=9) if image.shape[0] == 3]
    expected = [walked(pipeline, image).value() for image in some]
    for image in some:  # for each way they go
        pipeline(image)
    longer = list[Tensor]()

    def read_in_python(image: Tensor) -> Image | None:
        longer.append(image)
        return image_of(image)

    monkeypatch.setattr("polyphase.pipelines.pipeline.image_of", read_in_python)
    for image, one in zip(some, expected, strict=True):
        made = pipeline(image)
        assert torch.equal(made, one)
        assert made.stride() == one.stride()
    assert len(longer) < len(some)


@pytest.mark.parametrize("threads", [1, 3])
def test_more_sizes_than_are_kept(threads: int) -> None:
    """The oldest makes room for a new one, also while it runs in another thread."""
    pipeline = polyphase.fuse(BY_SIZE["evaluation"])
    sizes = [(50 + n % 7, 60 + n) for n in range(300)]
    some = [torch.randint(0, 256, (3, *size), dtype=torch.uint8) for size in sizes]
    expected = [polyphase.fuse(BY_SIZE["evaluation"])(image) for image in some[::29]]

    def wrong(_: int) -> list[int]:
        found = list[int]()
        for turn in range(2):
            made = [pipeline(image) for image in some[turn:]]
            found += [n for n, one in enumerate(expected[1:], 1) if not torch.equal(made[29 * n - turn], one)]
        return found

    with ThreadPoolExecutor(threads) as workers:
        assert not any(workers.map(wrong, range(threads)))


def test_a_call_that_only_looks_like_the_latest() -> None:
    pipeline, image = polyphase.fuse(BY_SIZE["evaluation"]), torch.zeros(3, 60, 80, dtype=torch.uint8)
    for n in range(5):
        pipeline(torch.zeros(3, 60, 90 + n, dtype=torch.uint8))
    expected = pipeline(image)
    assert torch.equal(pipeline._latest.again(image, torch.float32, "cpu"), expected)
    for other in (image[:1], image[None], image.mT, image[:, :1], image.float(), image.to_sparse()):
        assert pipeline._latest.again(other, torch.float32, "cpu") is None
    assert pipeline._latest.again(image, torch.float64, "cpu") is None
    with torch.device("cpu"):  # a mode of torch's functions
        assert pipeline._latest.again(image, torch.float32, "cpu") is None
        assert torch.equal(pipeline(image), expected)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", ["evaluation", "crop, then resize", "nearest"])
def test_batches_are_told_in_c(name: str, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of sizes that were never seen, among them one that a resize leaves as it is."""
    pipeline, twin = polyphase.fuse(BY_SIZE[name]), polyphase.fuse(BY_SIZE[name])
    whole = {"evaluation": (40, 40), "crop, then resize": (30, 40), "nearest": (33, 50)}[name]
    for size in ((60, 70), (61, 72), (62, 70), whole, whole):
        pipeline(torch.zeros(3, *size, dtype=torch.uint8))
    rows = [torch.randint(0, 256, (3, 50 + n, 90 - n), dtype=torch.uint8) for n in range(9)]
    rows.append(torch.randint(0, 256, (3, *whole), dtype=torch.uint8))
    expected = torch.stack([walked(twin, image).value() for image in rows])
    monkeypatch.setattr(Pipeline, "_pictures", None)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for images_ in (rows, rows[:3], rows[:1], tuple(rows)):
            assert torch.equal(pipeline.batch(images_), expected[: len(images_)])
        last = pipeline.batch(rows, channels_last=True)
        assert last.is_contiguous(memory_format=torch.channels_last)
        assert torch.equal(last, expected)
        out = torch.empty_like(expected)
        assert pipeline.batch(rows, out) is out
        assert torch.equal(out, expected)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("kind", ["image", "array", "Pillow image"])
def test_batches_of_other_images_are_told_in_c(kind: str, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bit by bit what they are one by one. Pillow resizes tall images itself: these take the longer way."""
    Image, tv_image = pytest.importorskip("PIL.Image"), torchvision("torchvision.tv_tensors").Image  # noqa: N806
    v2 = torchvision()
    chain = v2.Compose([v2.Resize(40), v2.CenterCrop(36), v2.ToImage(), v2.ToDtype(torch.float32, scale=True)])
    if kind == "array":
        chain = v2.Compose([v2.ToImage(), chain])
    pipeline, twin = polyphase.fuse(chain), polyphase.fuse(chain)

    def made(height: int, width: int) -> Any:
        pixels = torch.randint(0, 256, (height, width, 3), dtype=torch.uint8)
        if kind == "image":
            return tv_image(pixels.permute(2, 0, 1).contiguous())
        return pixels.numpy() if kind == "array" else Image.fromarray(pixels.numpy())

    for n in range(5):
        pipeline(made(60 + n, 70))
    some, tall = [made(50 + n, 90 - n) for n in range(9)], made(90, 45)
    expected = torch.stack([walked(twin, one).value() for one in some])
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with monkeypatch.context() as without:
            without.setattr(Pipeline, "_pictures", None)
            assert torch.equal(pipeline.batch(some), expected)
            assert torch.equal(pipeline.batch(some[:1], channels_last=True), expected[:1])
            if kind == "array":
                assert torch.equal(pipeline.batch([some[0], some[1].copy(order="F")]), expected[:2])
        both = pipeline.batch([some[0], tall])
        assert torch.equal(both, torch.stack([expected[0], walked(twin, tall).value()]))
        assert type(both) is Tensor
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("spoilt", [None, "text"])
def test_a_batch_says_which_image_it_is(spoilt: Any) -> None:
    pytest.importorskip("numpy")
    pipeline = polyphase.fuse([T.ToImage(), T.Resize(40), T.CenterCrop(36), *LAST])
    some: list[Any] = [torch.zeros(50 + n, 70, 3, dtype=torch.uint8).numpy() for n in range(6)]
    pipeline.batch(some)
    with pytest.raises(polyphase.errors.WrongImageError, match="image 4 of 6"):
        pipeline.batch([*some[:4], spoilt, some[5]])


def test_batches_that_are_not_told_in_c() -> None:
    pipeline = polyphase.fuse([T.Resize(40), *LAST])
    for n in range(5):
        pipeline(torch.zeros(3, 60, 70 + n, dtype=torch.uint8))
    square = torch.randint(0, 256, (3, 50, 50), dtype=torch.uint8)
    alike = torch.stack([pipeline(square)] * 2)
    with pytest.raises(polyphase.errors.WrongImageError, match="one size"):
        pipeline.batch([square, square[:, :40]])
    with pytest.raises(polyphase.errors.WrongArgumentError, match="out is"):
        pipeline.batch([square, square], torch.empty(3, 3, 40, 40))
    apart = torch.zeros(2, 3, 40, 80)[..., ::2]
    assert torch.equal(pipeline.batch([square, square], apart), alike)
    assert torch.equal(pipeline.batch([square, square.permute(1, 2, 0).contiguous().permute(2, 0, 1)]), alike)
    assert torch.equal(pipeline.batch([square, square.numpy().transpose(1, 2, 0)]), alike)


@pytest.mark.parametrize("name", ["training", "evaluation"])
def test_samples_are_sketched(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The image of a sample is done as one alone is; a sample with more of torchvision's tensors takes a walk."""
    chain, v2, tv = (BY_SIZE | RANDOM)[name], torchvision(), torchvision("torchvision.tv_tensors")
    pipeline, twin = polyphase.fuse(chain), polyphase.fuse(chain)
    some = [image for image in images(40, seed=4) if image.shape[0] == 3 and min(image.shape[1:]) >= 34]
    samples = [(image, n, {"weight": torch.tensor(n / 2)}) for n, image in enumerate(some)]
    for _ in range(2):
        torch.manual_seed(0)
        found = pipeline.collate(samples)
        torch.manual_seed(0)
        expected = [twin.walk(one).value() for one in samples]
        assert torch.equal(found[0], torch.stack([one for one, *_ in expected]))
        assert torch.equal(found[2]["weight"], torch.arange(len(some)) / 2)
    assert sum(isinstance(pipeline._sample(one).leaves[0], Sketch) for one in samples) > 10
    walks = polyphase.fuse([v2.Resize((20, 30))])
    assert isinstance(walks._sample((tv.Image(some[0]), tv.Mask(some[0][:1]))), Walk)
    monkeypatch.setattr(binding, "record_of", None)
    pipeline.collate([(torch.zeros(3, n, 70, dtype=torch.uint8), 0) for n in range(100, 110)])


def test_what_is_not_followed() -> None:
    pipeline, image = polyphase.fuse(BY_SIZE["evaluation"]), torch.rand(3, 50, 60)
    numpy = pytest.importorskip("numpy")
    for other in (image, torch.rand(3, 60, 50)):
        pipeline(other)
    assert isinstance(pipeline._templates.of(read(image)), Sketch)
    backwards = numpy.zeros((50, 60, 3), dtype=numpy.float32)[::-1]
    for other in (image[None], image.clone().requires_grad_(), image.mT, image[:, :1], backwards):
        for _ in range(3):
            assert isinstance(pipeline._templates.of(read(other)), Walk)


def test_a_step_that_has_to_run_as_itself() -> None:
    """What it draws, it draws itself."""
    v2 = torchvision()
    chain = v2.Compose([v2.RandomResizedCrop(20), v2.RandomHorizontalFlip()])
    pipeline = polyphase.fuse(chain)
    for seed in range(5):
        image = torch.randint(0, 2, (3, 40, 50 + seed), dtype=torch.bool)
        torch.manual_seed(seed)
        expected, after = _outcome(chain, image), torch.rand(1)
        torch.manual_seed(seed)
        found = _outcome(pipeline, image)
        assert torch.equal(found, expected) if isinstance(expected, Tensor) else type(found) is type(expected)
        assert torch.rand(1) == after


def _outcome(function: Any, image: Tensor) -> Any:
    try:
        return function(image)
    except Exception as error:
        return error


def test_the_default_dtype_is_part_of_a_kind() -> None:
    numpy = pytest.importorskip("numpy")
    pipeline, image = polyphase.fuse([T.ToTensor(), T.Resize(30)]), numpy.zeros((40, 50, 3), dtype=numpy.uint8)
    for dtype in (torch.float32, torch.float64, torch.float32):
        torch.set_default_dtype(dtype)
        try:
            assert {pipeline(image).dtype for _ in range(3)} == {dtype}
        finally:
            torch.set_default_dtype(torch.float32)


def test_large_results_are_asked_for_first() -> None:
    pipeline = polyphase.fuse([T.Resize((2**15, 2**15))])
    pipeline._templates.of(read(torch.zeros(1, 50, 60, dtype=torch.uint8)))
    for n in range(3):
        found = pipeline._templates.of(read(torch.zeros(1, 50, 60 + n, dtype=torch.uint8)))
        assert isinstance(found, Walk)
        one = torch.zeros(1, 50, 60 + n, dtype=torch.uint8)
        assert made_in_c(pipeline, one) is None


def test_threads_at_once() -> None:
    pipeline, failed = polyphase.fuse([T.Resize(30), T.CenterCrop((28, 40))]), list[Exception]()

    def work(seed: int) -> None:
        try:
            for image in images(30, seed):
                pipeline(image)
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert not failed
