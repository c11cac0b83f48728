"""Pillow's pictures: what is left to Pillow, and where their pixels are read and written."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
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
        lambda t: [t.RandomRotation((90, 90), expand=True), t.RandomHorizontalFlip()],
        lambda t: [t.RandomChoice([t.CenterCrop(30), t.RandomVerticalFlip()])],
        lambda t: [t.RandomOrder([t.CenterCrop(30), t.RandomHorizontalFlip()])],
        lambda t: [t.RandomApply([t.CenterCrop(30), t.Pad(3)])],
        lambda t: [t.GaussianBlur(3, (0.5, 2.0)), t.CenterCrop(30)],
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


# ---- in which order rows and columns are summed


def resized(image: torch.Tensor, sizes: list[tuple[int, int]], mode: str) -> torch.Tensor:
    """By eager, one size after the other."""
    for size in sizes:
        if size != tuple(image.shape[-2:]):
            image = torch.nn.functional.interpolate(image[None], size, mode=mode, antialias=True)[0]
    return image


@pytest.mark.parametrize("order", [None, (0, 0, 0, 0), (1, 0, -100, 0), (1, -1, -2, 2)])
@pytest.mark.parametrize("mode", ["RGB", "L"])
@pytest.mark.parametrize("name", ["bilinear", "bicubic"])
def test_bytes_are_rounded_in_pillows_order(
    v2: Any, order: Any, mode: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the bit, one axis after the other; where the order is not known, by Pillow."""
    from polyphase.pipelines import doing, pillow

    monkeypatch.setattr(doing, "order_of_sums", lambda: order)
    sizes = [
        ((31, 23), (21, 18)),
        ((32, 23), (21, 18)),
        ((210, 37), (53, 90)),
        ((304, 3), (60, 2)),
        ((40, 60), (80, 9)),
    ]
    steps = {new: [v2.Resize(new, v2.InterpolationMode(name)), v2.PILToTensor()] for _, new in sizes}
    fused = {new: polyphase.fuse(v2.Compose(some)) for new, some in steps.items()}
    for (size, new), margin in itertools.product(sizes, [(0, 0), (3, 5)]):
        height, width = (n + 2 * more for n, more in zip(size, margin, strict=True))
        image = picture(height, width, mode, seed=height)
        pixels = v2.functional.pil_to_tensor(image)[:, margin[0] :, margin[1] :][:, : size[0], : size[1]]
        crop = polyphase.fuse([v2.CenterCrop(size), *steps[new]])
        before = launches()
        some = [crop(image), *([fused[new](image)] * 3 if margin == (0, 0) else [])]  # by size, from the second on
        some.append(polyphase.fuse([v2.CenterCrop(size), *steps[new]]).batch([image] * 3)[1])
        if order is None:
            expected = v2.Compose([v2.CenterCrop(size), *steps[new]])(image)
        else:
            assert launches() > before
            first = (new[0], size[1]) if pillow.sums_rows_first(order, size, new) else (size[0], new[1])
            expected = resized(pixels, [first, new], name)
        assert all(torch.equal(one, expected) for one in some), (size, new, margin)


def test_the_order_is_found_out_by_trying(monkeypatch: pytest.MonkeyPatch) -> None:
    from polyphase.pipelines import pillow

    own, found_out = Image.Image.resize, pillow.order_of_sums.__wrapped__
    assert found_out() in pillow._ORDERS, "of the Pillow that is installed"
    for order in (*pillow._ORDERS, (1, 0, 0, 0), (1, -1, -1, 1)):

        def by_axes(image: Any, size: Any, filter: Any, order: Any = order) -> Any:
            rows_first = pillow.sums_rows_first(order, image.size[::-1], size[::-1])
            between = (image.size[0], size[1]) if rows_first else (size[0], image.size[1])
            return own(own(image, between, filter), size, filter)

        monkeypatch.setattr(Image.Image, "resize", by_axes)
        assert found_out() == (order if order in pillow._ORDERS else None)


#: Ways in which a kernel reads a picture's rows, in steps of v2.
READS: dict[str, Callable[[Any], list[Any]]] = {
    "shrinks": lambda t: [t.Resize((30, 41)), t.PILToTensor()],
    "grows": lambda t: [t.Resize((130, 241)), t.PILToTensor()],
    "to a picture": lambda t: [t.Resize((30, 41), t.InterpolationMode.BICUBIC), t.RandomHorizontalFlip(1.0)],
    "a part": lambda t: [t.CenterCrop((40, 33)), t.Resize((20, 17)), t.ToImage(), *ends(t)],
    "a narrow part": lambda t: [t.CenterCrop((40, 20)), t.Resize((39, 7)), t.PILToTensor()],
    "rows alone": lambda t: [t.Resize((20, 80)), t.PILToTensor()],
    "columns alone": lambda t: [t.Resize((60, 33)), t.Pad(3, fill=9), t.PILToTensor()],
    "arithmetic first": lambda t: [t.ToImage(), *ends(t), t.Resize((30, 41))],
    "arithmetic": lambda t: [t.ToImage(), *ends(t)],
    "as it is": lambda t: [t.ToImage()],
    "turned": lambda t: [t.RandomHorizontalFlip(1.0), t.RandomVerticalFlip(1.0), t.Pad((2, 3)), t.PILToTensor()],
    "upside down": lambda t: [t.ToImage(), t.RandomVerticalFlip(1.0)],
    "upside down, in planes": lambda t: [t.ToTensor(), t.RandomVerticalFlip(1.0)],
    "from left to right, in planes": lambda t: [t.ToTensor(), t.RandomHorizontalFlip(1.0)],
    "nearest": lambda t: [t.ToImage(), t.Resize((33, 37), t.InterpolationMode.NEAREST)],
    "a warp": lambda t: [t.CenterCrop(50), t.ToImage(), t.RandomRotation(30, t.InterpolationMode.BILINEAR)],
    "a warp of numbers": lambda t: [t.ToImage(), *ends(t), t.RandomAffine(20)],
}


def ends(t: Any) -> list[Any]:
    return [t.ToDtype(torch.float32, scale=True), t.Normalize([0.5, 0.4, 0.3], [0.2, 0.3, 0.4])]


def bytes_of(made: Any) -> tuple[Any, ...]:
    if isinstance(made, torch.Tensor):
        return made.shape, made.stride(), made.dtype, made.contiguous().numpy().tobytes()
    raw = made.tobytes("raw", "RGBX") if made.mode == "RGB" else made.tobytes()
    return made.mode, made.size, raw


@pytest.fixture
def small_blocks() -> Iterator[None]:
    before = Image.core.get_block_size()
    Image.core.set_block_size(4096)
    yield
    Image.core.set_block_size(before)


def at_equal_distances(monkeypatch: pytest.MonkeyPatch, function: Callable[[], Any]) -> Any:
    """The plain twin: a picture is copied to one block."""
    from polyphase.pipelines import pillow

    with monkeypatch.context() as patched:
        patched.setattr(pillow, "_place_of_rows", lambda: None)
        patched.setattr(pillow, "_block", lambda image: (0, None))
        return function()


@pytest.mark.filterwarnings("ignore:The transform `ToTensor:UserWarning")
@pytest.mark.parametrize("mode", ["RGB", "L"])
@pytest.mark.parametrize("name", READS)
@pytest.mark.parametrize("in_batches", [False, True])
def test_rows_are_read_wherever_they_lie(
    v2: Any, name: str, mode: str, in_batches: bool, monkeypatch: pytest.MonkeyPatch, small_blocks: None
) -> None:
    """Of pictures as they come; and of such with one row, one column, or rows of few bytes."""
    steps = READS[name](v2)
    if mode == "L":
        steps = [v2.Normalize([0.5], [0.2]) if isinstance(one, v2.Normalize) else one for one in steps]
    for size in ((60, 80), (1, 1), (1, 2), (1, 9), (9, 1), (2, 3), (30, 30), (3, 90)):
        image = picture(*size, mode)

        def made(image: Any = image) -> list[Any]:
            fused = polyphase.fuse(steps)
            torch.manual_seed(0)
            several = (fused.batch([image] * 3) if in_batches else fused(image) for _ in range(3))  # as new, and known
            return [bytes_of(one) for one in several]

        assert made() == at_equal_distances(monkeypatch, made), size


#: What makes pictures of pictures, in steps of v2.
MADE: dict[str, Callable[[Any], list[Any]]] = {
    "resized": lambda t: [t.Resize((30, 41))],
    "cut": lambda t: [t.RandomResizedCrop(40), t.RandomHorizontalFlip()],
    "with a border": lambda t: [
        t.Resize(33, t.InterpolationMode.BICUBIC),
        t.Pad((1, 2, 3, 4), fill=9),
        t.CenterCrop(32),
    ],
    "by ours": lambda t: [ours.Resize((50, 60)), ours.RandomCrop(20), ours.RandomVerticalFlip()],
    "larger than a block": lambda t: [t.Resize((150, 90))],
}


@pytest.mark.parametrize("mode", ["RGB", "L"])
@pytest.mark.parametrize("name", MADE)
def test_pictures_of_new_sizes_are_made_as_the_first_is(v2: Any, name: str, mode: str, small_blocks: None) -> None:
    from polyphase.pipelines.templates import Sketch
    from polyphase.pipelines.walks import image_of

    steps = MADE[name](v2)
    fused = polyphase.fuse(steps)
    for seed, size in enumerate([(60, 80), (61, 83), (80, 60), (200, 31), (60, 80)]):
        image = picture(*size, mode, seed)
        torch.manual_seed(seed)
        found = fused(image)
        torch.manual_seed(seed)
        assert bytes_of(found) == bytes_of(polyphase.fuse(steps)(image)), size
        torch.manual_seed(seed)
        together = fused.batch([image, image])
        assert together.shape == (2, *v2.functional.pil_to_tensor(found).shape)
        assert torch.equal(together[0], v2.functional.pil_to_tensor(found))
        last = image_of(image)
    assert last is not None
    assert isinstance(fused._templates.of(last), Sketch), "and by less than a walk"


def test_a_picture_beyond_a_block_is_not_copied(v2: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from polyphase.pipelines import pillow

    if pillow._place_of_rows() is None:
        pytest.skip("this Pillow does not tell where rows lie")
    steps, image = [v2.Resize((64, 66))], picture(2100, 2200)
    assert pillow._block(image)[0] == 0, "it is several blocks"
    monkeypatch.setattr(pillow, "_copied", None)
    found = v2.functional.pil_to_tensor(polyphase.fuse(steps)(image)).int()
    assert (v2.functional.pil_to_tensor(v2.Compose(steps)(image)).int() - found).abs().max() <= 1


@pytest.mark.parametrize("version", ["torchvision.transforms", "torchvision.transforms.v2"])
def test_true_is_any_byte(version: str) -> None:
    """Pillow's pictures of mode 1 become tensors of bools whose bytes are 255."""
    t = torchvision(version)
    to_dtype = t.ToDtype if hasattr(t, "ToDtype") else t.ConvertImageDtype
    image = picture(mode="L").convert("1")
    for dtype in (torch.float32, torch.float16, *([torch.uint8, torch.int32] if hasattr(t, "ToDtype") else [])):
        for moves in ([], [t.Pad(1)], [t.RandomHorizontalFlip(1.0), t.CenterCrop(70)]):
            own = t.Compose([t.PILToTensor(), *moves, to_dtype(dtype), *moves])
            expected = own(image)
            assert expected.max() == 1
            assert torch.equal(polyphase.fuse(own)(image), expected)


def test_a_new_picture_has_pillows_fourth_byte(v2: Any) -> None:
    steps = [v2.Resize((30, 41)), v2.RandomHorizontalFlip(1.0)]
    found, expected = (
        make(picture()).tobytes("raw", "RGBX")[3::4] for make in (polyphase.fuse(steps), v2.Compose(steps))
    )
    assert found == expected


def test_pictures_edited_in_place_are_read_anew(v2: Any) -> None:
    fused, image = polyphase.fuse([v2.Resize((30, 41)), v2.PILToTensor()]), picture()
    first = fused(image)
    image.paste((1, 2, 3), (0, 0, *image.size))
    assert fused(image)[:, 0, 0].tolist() == [1, 2, 3]
    image = image.resize((90, 70))
    assert fused(image)[:, 0, 0].tolist() == [1, 2, 3]
    assert torch.equal(fused(picture()), first)


def test_read_only_pictures_stay_as_they_are(v2: Any) -> None:
    pixels = picture().tobytes()
    image = Image.frombuffer("L", (80, 60), pixels[: 80 * 60], "raw", "L", 0, 1)
    fused = polyphase.fuse([v2.Resize((30, 41))])
    expected = v2.functional.pil_to_tensor(v2.Resize((30, 41))(image)).int()
    assert (v2.functional.pil_to_tensor(fused(image)).int() - expected).abs().max() <= 1
    assert image.tobytes() == pixels[: 80 * 60]


def test_closed_and_truncated_pictures_are_as_torchvisions(v2: Any, tmp_path: Path) -> None:
    steps = [v2.Resize((30, 41)), v2.PILToTensor()]
    path = tmp_path / "cut.png"
    picture().save(path)
    path.write_bytes(path.read_bytes()[:900])
    for make in (v2.Compose(steps), polyphase.fuse(steps)):
        with pytest.raises(OSError, match="truncated"):
            make(Image.open(path))
        closed = picture()
        closed.close()
        with pytest.raises(ValueError, match="closed"):
            make(closed)


def test_three_of_four_bytes_of_a_tensor() -> None:
    """Rows of all lengths, the last byte of which is the last there is."""
    for width in (*range(1, 40), 97, 300):
        data = (
            torch.arange(5 * 4 * width, dtype=torch.int32).mul(37).remainder(251).to(torch.uint8)[: 5 * 4 * width - 1]
        )
        apart = torch.as_strided(data, (1, 3, 5, width), (0, 1, 4 * width, 4))
        dense = apart.contiguous(memory_format=torch.channels_last)
        size = (3, max(width * 2 // 3, 1))
        for image in (apart, apart.flip(0)):
            found = polyphase.functional.interpolate(image, size=size, mode="bilinear", antialias=True)
            assert torch.equal(
                found, polyphase.functional.interpolate(dense, size=size, mode="bilinear", antialias=True)
            )
        assert torch.equal(polyphase.functional.flip(apart, [-1]), dense.flip(-1))


def test_pictures_are_not_read_before_a_kernel_does(v2: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from polyphase.pipelines import pillow

    def refuse(image: Any) -> Any:
        raise AssertionError("the picture is read")

    monkeypatch.setattr(pillow, "_block", refuse)
    monkeypatch.setattr(pillow.RowMemory, "data_ptr", refuse)
    image = picture()
    polyphase.fuse([ours.CenterCrop(30), ours.RandomHorizontalFlip()])(image)
    polyphase.fuse([v2.CenterCrop(30), v2.GaussianBlur(3)])(image)
    with pytest.raises(AssertionError, match="is read"):
        polyphase.fuse([ours.CenterCrop(30), ours.ToTensor()])(image)


def test_pictures_that_pillow_does_not_tell_the_place_of_are_copied(v2: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from polyphase.pipelines import pillow

    def refuse(image: Any) -> Any:
        raise AssertionError("Arrow is asked for a picture that was given")

    for steps, mode in itertools.product(
        ([v2.Resize((20, 30)), v2.PILToTensor()], [v2.Resize((20, 30))]), ("RGB", "L")
    ):
        expected = polyphase.fuse(steps)(picture(mode=mode))
        with monkeypatch.context() as patched:
            patched.setattr(pillow, "_place_of_rows", lambda: None)
            patched.setattr(pillow, "_block_by_arrow", refuse)
            assert bytes_of(polyphase.fuse(steps)(picture(mode=mode))) == bytes_of(expected)


@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_new_pictures_of_new_sizes_are_one_call_into_cpp(
    v2: Any, mode: str, small_blocks: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    from polyphase.pipelines import pillow
    from polyphase.pipelines.templates import Templates

    steps = [v2.Resize(40), v2.RandomHorizontalFlip(1.0), v2.CenterCrop((31, 33))]
    fused = polyphase.fuse(v2.Compose(steps))
    for seed in range(4):
        fused(picture(60 + seed, 80, mode))

    def refuse(*all: Any) -> Any:
        raise AssertionError("Python is asked")

    if pillow._place_of_rows() is not None:
        monkeypatch.setattr(Templates, "of", refuse)
    for seed in range(4):
        image = picture(70, 90 + seed, mode)
        check(lambda one: fused.walk(one).value(), fused, image, seed)


#: Warps of pictures, in steps of torchvision's.
WARPS: dict[str, Callable[[Any, Any], list[Any]]] = {
    "rotation": lambda t, mode: [t.RandomRotation(180, mode)],
    "expanded": lambda t, mode: [t.RandomRotation((-80, 80), mode, expand=True, fill=114), t.RandomHorizontalFlip()],
    "affine": lambda t, mode: [t.RandomAffine(30, (0.2, 0.3), (0.3, 2), 20, mode, fill=3)],
    "perspective": lambda t, mode: [t.RandomPerspective(0.7, 0.8, mode, fill=9)],
    "beside others": lambda t, mode: [t.CenterCrop(70), t.RandomRotation(20, mode, center=(3, 4)), t.Pad(2)],
    "right angles": lambda t, mode: [t.RandomRotation((90, 90), mode, expand=True)],
    "nothing": lambda t, mode: [t.RandomPerspective(p=0.0, interpolation=mode), t.RandomRotation((0, 0), mode)],
}


@pytest.mark.parametrize("mode", ["RGB", "L"])
@pytest.mark.parametrize("name", WARPS)
@pytest.mark.parametrize("by", ["NEAREST", "BILINEAR", "BICUBIC"])
@pytest.mark.parametrize("version", ["torchvision.transforms", "torchvision.transforms.v2"])
def test_warps_are_pillows_to_the_bit(version: str, by: str, name: str, mode: str, small_blocks: None) -> None:
    from polyphase.pipelines import pillow

    t = torchvision(version)
    steps = WARPS[name](t, t.InterpolationMode[by])
    own, fused = t.Compose(steps), polyphase.fuse(t.Compose(steps))
    before = launches()
    for seed in range(8):
        image = picture(*((60, 80), (1, 1), (9, 3), (40, 131))[seed % 4], mode, seed)
        image.info["from"] = "a camera"
        check(own, fused, image, seed)
        expected, found = outcome(own, image, seed)[0], outcome(fused, image, seed)[0]
        if not isinstance(expected, Exception):
            assert bytes_of(found) == bytes_of(expected), "the fourth byte too"
            assert found.info == expected.info
    assert type(found) is Image.Image
    if pillow._place_of_rows() is not None:  # else they are Pillow's
        assert (launches() > before) == (name not in ("right angles", "nothing"))


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_threads_share_a_warp(v2: Any, threads: int) -> None:
    steps = [v2.RandomRotation((33, 33), v2.InterpolationMode.BILINEAR)]
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        check(v2.Compose(steps), polyphase.fuse(steps), picture(400, 500))
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("by", ["NEAREST", "BILINEAR", "BICUBIC"])
def test_warps_by_any_numbers_are_pillows(by: str) -> None:
    """Beyond what fixed numbers hold, and by none but scales and distances; pixels that lie on edges."""
    from polyphase.pipelines.pillow import warped_by

    draw = Random(by)
    for case in range(60):
        image = picture(draw.randint(1, 50), draw.randint(1, 50), draw.choice(["RGB", "L"]), case)
        numbers = [draw.choice([0.0, 0.5, 1.0, -1.0, 2.0, draw.uniform(-2, 2)]) for _ in range(6)]
        numbers += [draw.choice([0.0, draw.uniform(-0.05, 0.05)]) for _ in range(2 * draw.randrange(2))]
        for n in (2, 5):
            numbers[n] += draw.choice([0, 0, draw.randint(-9, 40), 3e4, 1e9])
        how = Image.Transform.AFFINE if len(numbers) == 6 else Image.Transform.PERSPECTIVE
        options = {"fillcolor": draw.choice([None, 7])} if image.mode == "L" else {}
        given = (draw.randint(1, 70), draw.randint(1, 70)), how, numbers, Image.Resampling[by]
        made = warped_by(lambda one, given=given, options=options: one.transform(*given, **options), image)  # type: ignore[misc]
        assert bytes_of(made) == bytes_of(image.transform(*given, **options)), (case, given)


def test_other_warps_are_left_to_pillow(v2: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from polyphase.calls import binding
    from polyphase.pipelines import pillow

    steps = WARPS["rotation"](v2, v2.InterpolationMode.BILINEAR)
    other = picture().convert("RGBA")
    check(v2.Compose(steps), polyphase.fuse(steps), other)

    def refuse(*all: Any) -> Any:
        raise binding.NOT_BUILT[0]("there is no compiler")

    monkeypatch.setattr(pillow.RowMemory, "data_ptr", refuse)
    check(v2.Compose(steps), polyphase.fuse(steps), picture())


#: Modes that no kernel is for, and how a picture of one is made.
OTHER_MODES = ("RGBA", "LA", "P", "1", "CMYK", "YCbCr", "HSV", "I", "I;16", "F")


@pytest.mark.parametrize("mode", OTHER_MODES)
@pytest.mark.parametrize("name", ["to a picture", "to a tensor", "moved", "warped"])
def test_other_modes_are_as_torchvisions(v2: Any, name: str, mode: str) -> None:
    nearest = v2.InterpolationMode.NEAREST
    steps = {
        "to a picture": [v2.Resize((30, 41)), v2.RandomHorizontalFlip(1.0)],
        "to a tensor": [v2.Resize((30, 41), nearest), v2.PILToTensor()],
        "moved": [v2.CenterCrop(50), v2.Pad(3)],
        "warped": [v2.RandomRotation(30, v2.InterpolationMode.BILINEAR)],
    }[name]
    image = picture().convert("L").convert("I;16") if mode == "I;16" else picture().convert(mode)
    expected, found = (outcome(make, image, 0)[0] for make in (v2.Compose(steps), polyphase.fuse(steps)))
    assert type(found) is type(expected)
    if not isinstance(expected, Exception):
        assert bytes_of(found) == bytes_of(expected)


def test_pictures_that_share_memory_are_read_where_it_is_and_never_written(v2: Any, tmp_path: Path) -> None:
    """Arrays, files that are mapped into memory, Arrow's arrays, and pictures of a class of their own."""
    first, path, pixels = picture(mode="L"), tmp_path / "mapped.ppm", numpy.arange(60 * 80, dtype=numpy.uint8)
    first.save(path)
    of_array = Image.frombuffer("L", (80, 60), pixels, "raw", "L", 0, 1)
    pictures = [of_array, Image.open(path), first.copy()]
    if hasattr(Image, "fromarrow"):
        pictures.append(Image.fromarrow(first.copy(), "L", first.size))  # Pillow 12 exports no array that was given
    steps = [v2.Resize((30, 41)), v2.RandomHorizontalFlip(1.0)]
    fused = polyphase.fuse(steps)
    for image in pictures:
        image.load()
        before, plain = image.tobytes(), image.copy()
        assert bytes_of(fused(image)) == bytes_of(polyphase.fuse(steps)(plain))
        assert image.tobytes() == before
    pixels[:] = 77
    assert set(fused(of_array).tobytes()) == {77}, "read anew"


def test_six_threads_over_one_picture(v2: Any) -> None:
    steps = [v2.Resize((120, 90)), v2.CenterCrop(80)]
    fused, image = polyphase.fuse(steps), picture(300, 401)
    expected = fused(image).tobytes()
    with ThreadPoolExecutor(6) as threads:
        made = list(threads.map(lambda _: fused(image).tobytes(), range(60)))
    assert set(made) == {expected}
