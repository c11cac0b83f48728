"""What a pipeline is: one launch where it can be, nothing built at a new size, any kind of image, to be pickled."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import polyphase
from polyphase import transforms as T
from polyphase.errors import (
    NotSupportedError,
    UnknownNameError,
    WrongArgumentError,
    WrongArgumentTypeError,
    WrongSizeError,
)
from polyphase.pipelines.grids import AffineGrid, PerspectiveGrid, inverse_affine, perspective_coefficients
from tests.pipelines.chains import MEAN, STD, image, lies_as
from tests.support.vision import torchvision

LAST = [T.ToDtype(torch.float32, scale=True), T.Normalize(MEAN, STD)]
EVALUATION = [T.Resize(64), T.CenterCrop(48), *LAST]


@pytest.fixture(scope="module")
def v2() -> Any:
    return torchvision()


def counted(name: str, function: Callable[[], object]) -> int:
    before = polyphase.stats()[name]
    function()
    return polyphase.stats()[name] - before


# ---- launches and builds

ONE_LAUNCH: dict[str, list[Any]] = {
    "evaluation": EVALUATION,
    "training": [T.RandomResizedCrop(48), T.RandomHorizontalFlip(1.0), *LAST],
    "resize between arithmetic": [T.ToDtype(torch.float32, scale=True), T.Resize(40), T.Normalize(MEAN, STD)],
    "pad at the end": [T.Resize(40), T.Pad(4, fill=7), *LAST],
    "letterbox": [T.Letterbox((64, 64), fill=114), *LAST],
    "rotation": [T.RandomRotation((20, 20)), T.CenterCrop(30), T.RandomHorizontalFlip(1.0), *LAST],
    "crop before a rotation": [T.CenterCrop(30), T.RandomRotation((20, 20))],
    "what lies outside is blended": [T.RandomRotation((20, 20), "bilinear", fill=3), *LAST],
    "nested": [T.Compose([T.RandomApply([T.Resize(40)], p=1.0)]), T.RandomOrder([T.RandomVerticalFlip(1.0)]), *LAST],
}
TWO_LAUNCHES: dict[str, list[Any]] = {
    "two resizes": [T.Resize(40), T.Resize(30), *LAST],
    "resize and rotation": [T.Resize(40), T.RandomRotation((20, 20)), *LAST],
    "pad before a resize": [T.Pad(4), T.Resize(30), *LAST],
}


@pytest.mark.cpu
@pytest.mark.parametrize(("chain", "launches"), [(c, 1) for c in ONE_LAUNCH] + [(c, 2) for c in TWO_LAUNCHES])
def test_launches(chain: str, launches: int) -> None:
    fused = polyphase.fuse((ONE_LAUNCH | TWO_LAUNCHES)[chain])
    assert counted("kernels_launched", lambda: fused(image(1))) == launches


@pytest.mark.parametrize("chain", [*ONE_LAUNCH, *TWO_LAUNCHES])
def test_programs_are_the_transforms_one_after_the_other(chain: str) -> None:
    """Fused, and each of them alone."""
    steps = (ONE_LAUNCH | TWO_LAUNCHES)[chain]
    torch.manual_seed(0)
    found = polyphase.fuse(steps)(image(1))
    torch.manual_seed(0)
    expected = image(1)
    for step in steps:
        expected = polyphase.fuse(step)(expected)
    torch.testing.assert_close(found, expected)


@pytest.mark.cpu
def test_nothing_is_built_for_another_size_crop_or_flip() -> None:
    fused = polyphase.fuse(ONE_LAUNCH["training"])
    half = polyphase.fuse([T.RandomResizedCrop(40, interpolation="bicubic"), T.RandomHorizontalFlip(), *LAST])
    fused(image(0))
    assert counted("kernels_built", lambda: [one(image(seed)) for seed in range(20) for one in (fused, half)]) == 0


def test_the_tensor_that_is_given_stays_as_it_is() -> None:
    picture = image(3, torch.float32)
    before = picture.clone()
    polyphase.fuse([T.Normalize(MEAN, STD)])(picture)
    assert torch.equal(picture, before)


def test_a_crop_alone_is_a_view() -> None:
    picture = image(3)
    found = polyphase.fuse(T.CenterCrop(20))(picture)
    assert found.untyped_storage().data_ptr() == picture.untyped_storage().data_ptr()


def test_nothing_done_is_the_image_itself() -> None:
    picture = image(3)
    assert polyphase.fuse([T.RandomHorizontalFlip(0.0)])(picture) is picture


# ---- kinds of images


def arrays() -> dict[str, Any]:
    numpy = pytest.importorskip("numpy")
    pixels = image(5).permute(1, 2, 0).contiguous().numpy()
    frozen = pixels.copy()
    frozen.flags.writeable = False
    return {
        "plain": pixels,
        "read-only": frozen,
        "upside down": pixels[::-1],
        "both ways": pixels[::-1, ::-1],
        "every second": pixels[::2, ::-2],
        "other channels first": pixels[..., ::-1],
        "columns first": numpy.asfortranarray(pixels),
        "grey": pixels[..., 0],
        "one channel": pixels[..., :1],
        "floats": (pixels / 255).astype(numpy.float32),
        "within larger numbers": numpy.zeros(pixels.shape, dtype=[("a", "u1"), ("b", "<i4")])["b"],
    }


ARRAYS = ["plain", "read-only", "upside down", "both ways", "every second", "columns first", "other channels first"]


@pytest.mark.parametrize("name", [*ARRAYS, "grey", "one channel", "floats", "within larger numbers"])
def test_arrays_are_taken_as_by_to_image(v2: Any, name: str) -> None:
    array = arrays()[name]
    for own in (
        v2.Compose([v2.ToImage(), v2.Resize(40), v2.CenterCrop(30)]),
        v2.Compose([v2.ToImage(), v2.RandomRotation((20, 20)), v2.ToDtype(torch.float32)]),
        v2.ToImage(),
    ):
        expected, found = own(array.copy()), polyphase.fuse(own)(array)
        assert type(found) is type(expected)
        torch.testing.assert_close(found.as_subclass(Tensor), expected.as_subclass(Tensor))
        assert lies_as(found, expected)
    expected = v2.Resize(40)(v2.ToImage()(array.copy())).as_subclass(Tensor)
    torch.testing.assert_close(polyphase.fuse([T.Resize(40)])(array), expected)


def test_arrays_of_dtypes_that_torch_lacks(v2: Any) -> None:
    other = arrays()["plain"].astype(">u2")
    with pytest.raises(NotSupportedError, match="Resize"):
        polyphase.fuse([T.Resize(40)])(other)


def test_v1_to_tensor_of_an_array(v2: Any) -> None:
    v1 = torchvision("torchvision.transforms")
    own = v1.Compose([v1.ToTensor(), v1.Normalize(MEAN, STD)])
    for name in ("plain", "upside down", "floats"):
        assert torch.equal(polyphase.fuse(own)(arrays()[name]), own(arrays()[name].copy()))


def test_a_chain_that_ends_with_a_pillow_image(v2: Any) -> None:
    Image = pytest.importorskip("PIL.Image")  # noqa: N806
    for picture in (Image.fromarray(arrays()["plain"]), Image.fromarray(arrays()["grey"])):
        own = v2.Compose([v2.RandomHorizontalFlip(1.0), v2.Pad(3), v2.ColorJitter(), v2.CenterCrop(30)])
        torch.manual_seed(0)
        expected = own(picture)
        torch.manual_seed(0)
        found = polyphase.fuse(own)(picture)
        assert (found.mode, found.size, found.tobytes()) == (expected.mode, expected.size, expected.tobytes())


def test_boxes_and_masks_go_the_way_they_would_have_gone(v2: Any) -> None:
    tv = torchvision("torchvision.tv_tensors")
    picture = image(7)
    size = picture.shape[-2:]
    sample = {
        "image": tv.Image(picture),
        "boxes": tv.BoundingBoxes([[3, 4, 20, 30], [5, 5, 9, 9]], format="XYXY", canvas_size=size),
        "mask": tv.Mask(torch.randint(0, 2, size)),
        "label": torch.tensor(3),
        "name": "seven",
    }
    own = v2.Compose(
        [
            v2.ToImage(),
            v2.RandomResizedCrop(40),
            v2.RandomHorizontalFlip(),
            v2.RandomRotation(30),
            v2.ToDtype({tv.Image: torch.float32, tv.Mask: torch.int64, "others": None}, scale=True),
            v2.Normalize(MEAN, STD),
            v2.SanitizeBoundingBoxes(labels_getter=None),
        ]
    )
    pillow = pytest.importorskip("PIL.Image").fromarray(picture.permute(1, 2, 0).contiguous().numpy())
    for seed in range(10):
        given = sample if seed % 2 else sample | {"image": pillow}
        torch.manual_seed(seed)
        expected = own(given)
        torch.manual_seed(seed)
        found = polyphase.fuse(own)(given)
        assert found["name"] == "seven"
        for key in ("image", "boxes", "mask", "label"):
            assert type(found[key]) is type(expected[key])
            assert torch.equal(found[key], expected[key]), key


def test_samples_of_an_image_and_a_label(v2: Any) -> None:
    own = v2.Compose([v2.RandomHorizontalFlip(1.0), v2.Resize(30)])
    picture, label = image(2), torch.arange(5)
    for arguments in ((picture, label), ((picture, label),)):
        expected, found = own(*arguments), polyphase.fuse(own)(*arguments)
        assert type(found) is type(expected)
        assert torch.equal(found[0], expected[0])
        assert found[1] is label


def test_what_is_not_known_runs_as_itself_between(v2: Any) -> None:
    class Doubled(v2.Resize):  # type: ignore[misc]
        def transform(self, inpt: Any, params: Any) -> Any:
            return super().transform(inpt, params).flip(-1)

    own = v2.Compose([v2.CenterCrop(40), v2.Lambda(lambda one: one // 2), Doubled(30), v2.RandomVerticalFlip(1.0)])
    assert torch.equal(polyphase.fuse(own)(image(2)), own(image(2)))
    plain = polyphase.fuse([T.Resize(30), torch.nn.Identity(), lambda one: one + 1, T.RandomVerticalFlip(1.0)])
    assert torch.equal(plain(image(2)), (polyphase.fuse(T.Resize(30))(image(2)) + 1).flip(-2))


@pytest.mark.cpu
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.float32])
@pytest.mark.parametrize("name", ["torchvision.transforms", "torchvision.transforms.v2"])
def test_warps_with_a_fill_are_one_launch(name: str, dtype: torch.dtype) -> None:
    """Of torchvision's own objects, with its pictures: bytes within a level, the nearest pixels to the bit."""
    t = torchvision(name)
    bilinear, picture = t.InterpolationMode.BILINEAR, image(2, dtype)
    worst = 5e-5 if dtype.is_floating_point else 1  # floats near 200 are 1.5e-5 apart
    for own in (
        t.RandomRotation((20, 20), bilinear),
        t.RandomRotation((20, 20), bilinear, expand=True, fill=(200, 3, 90)),
        t.RandomAffine((20, 20), shear=(5, 5), interpolation=bilinear, fill=127),
        t.RandomRotation((20, 20), fill=(200, 3, 90)),
    ):
        fused, found = polyphase.fuse(own), list[Tensor]()
        assert counted("kernels_launched", lambda: found.append(fused(picture))) == 1  # noqa: B023
        apart = (found[0].double() - own(picture).double()).abs()
        assert apart.max() <= (worst if own.interpolation == bilinear else 0)
        assert dtype.is_floating_point or (apart > 0).double().mean() <= 0.002


def test_a_fill_that_is_no_number_is_torchvisions_own(v2: Any) -> None:
    own = v2.RandomRotation((20, 20), v2.InterpolationMode.BILINEAR, fill=float("inf"))
    picture = image(2, torch.float32)
    torch.testing.assert_close(polyphase.fuse(own)(picture), own(picture), equal_nan=True)


def test_a_pipeline_is_fused_already() -> None:
    fused = polyphase.fuse(EVALUATION)
    assert polyphase.fuse(fused) is fused


def test_sequential_and_lists(v2: Any) -> None:
    steps = [v2.Resize(30), v2.CenterCrop(20)]
    for given in (torch.nn.Sequential(*steps), steps, tuple(steps), v2.Compose(steps)):
        assert torch.equal(polyphase.fuse(given)(image(2)), v2.Compose(steps)(image(2)))


def test_batches_and_videos(v2: Any) -> None:
    tv = torchvision("torchvision.tv_tensors")
    own = v2.Compose(
        [v2.Resize(30), v2.RandomRotation((20, 20)), v2.CenterCrop(20), v2.ToDtype(torch.float32, scale=True)]
    )
    batch = torch.randint(0, 256, (4, 3, 40, 50), dtype=torch.uint8)
    for one in (batch, batch.to(memory_format=torch.channels_last), tv.Video(batch), batch[None]):
        expected, found = own(one), polyphase.fuse(own)(one)
        assert type(found) is type(expected)
        assert torch.equal(found, expected)


def test_gradients_are_recorded(v2: Any) -> None:
    picture = image(2, torch.float32).requires_grad_()
    for fused in (polyphase.fuse([T.Resize(30), T.RandomHorizontalFlip(1.0)]), polyphase.fuse(v2.Resize(30))):
        (gradient,) = torch.autograd.grad(fused(picture).square().sum(), picture)
        assert gradient.abs().sum() > 0


# ---- pickled, shown, without torchvision


def test_a_pipeline_can_be_pickled(v2: Any) -> None:
    for made in (EVALUATION, v2.Compose([v2.RandomResizedCrop(40), v2.RandomHorizontalFlip()])):
        fused = polyphase.fuse(made)
        fused(image(1))
        torch.manual_seed(0)
        expected = fused(image(1))
        torch.manual_seed(0)
        assert torch.equal(pickle.loads(pickle.dumps(fused))(image(1)), expected)


def test_it_shows_its_program_and_draws_nothing() -> None:
    torch.manual_seed(0)
    text = repr(polyphase.fuse([*EVALUATION, torch.nn.Identity(), T.RandomHorizontalFlip()]))
    drawn = torch.rand(1)
    torch.manual_seed(0)
    assert drawn == torch.rand(1)
    assert "program(uint8, axes([axismap([resize(64, bilinear, antialias=True), slice(8, 56)])," in text
    assert "Identity()  # as itself" in text


def test_torchvision_is_not_needed_nor_dynamo() -> None:
    code = (
        "import sys; sys.modules.update(dict.fromkeys(('torchvision', 'PIL', 'numpy')))\n"
        "import torch\nbefore = set(sys.modules)\n"
        "import polyphase\nfrom polyphase import transforms as T\nfrom polyphase.transforms import *\n"
        f"run = polyphase.fuse([T.RandomResizedCrop(40), {LAST[0]}, {LAST[1]}])\n"
        "assert run(torch.zeros(3, 50, 60, dtype=torch.uint8)).shape == (3, 40, 40)\n"
        "assert 'torch._dynamo' not in sys.modules.keys() - before, 'which takes seconds to import'"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True)


# ---- mistakes


def test_an_image_smaller_than_its_crop(v2: Any) -> None:
    with pytest.raises(WrongSizeError, match=r"crop of \(100, 100\).*image of \(20, 30\).*pad_if_needed"):
        polyphase.fuse(T.RandomCrop(100))(torch.zeros(3, 20, 30))
    with pytest.raises(ValueError, match="larger than"):
        polyphase.fuse(v2.RandomCrop(100))(torch.zeros(3, 20, 30))


def test_a_grey_image_among_three_means(v2: Any) -> None:
    grey = torch.rand(1, 20, 30)
    with pytest.raises(NotSupportedError, match=r"1 channels.*3 means.*convert"):
        polyphase.fuse(T.Normalize(MEAN, STD))(grey)
    assert torch.equal(polyphase.fuse(v2.Normalize(MEAN, STD))(grey), v2.Normalize(MEAN, STD)(grey))
    v1 = torchvision("torchvision.transforms")
    with pytest.raises(RuntimeError, match="broadcast"):
        polyphase.fuse(v1.Normalize(MEAN, STD))(grey)


def test_bytes_are_not_normalised(v2: Any) -> None:
    with pytest.raises(NotSupportedError, match=r"torch.uint8: put ToDtype\(torch.float32, scale=True\) before"):
        polyphase.fuse(T.Normalize(MEAN, STD))(image(1))
    with pytest.raises(TypeError, match="float tensor"):
        polyphase.fuse(v2.Normalize(MEAN, STD))(image(1))


@pytest.mark.parametrize("sample", ["a picture", 3, None, torch.zeros(4), torch.zeros(3, 0, 5), {"a": 1}])
def test_no_image(sample: Any) -> None:
    with pytest.raises(NotSupportedError, match=r"Resize.*give an image"):
        polyphase.fuse(T.Resize(20))(sample)


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: polyphase.fuse(3), TypeError),
        (lambda: T.Resize(0), WrongArgumentError),
        (lambda: T.Resize((1, 2, 3)), WrongArgumentError),
        (lambda: T.Resize(None), WrongArgumentError),
        (lambda: T.Resize(20, max_size=10), WrongArgumentError),
        (lambda: T.Resize(20, "cubic"), UnknownNameError),
        (lambda: T.Pad((1, 2, 3)), WrongArgumentError),
        (lambda: T.Pad(1, padding_mode="wrap"), UnknownNameError),
        (lambda: T.RandomHorizontalFlip(2.0), WrongArgumentError),
        (lambda: T.RandomRotation(-3), WrongArgumentError),
        (lambda: T.RandomRotation("a"), WrongArgumentError),
        (lambda: T.RandomRotation(("a", "b")), WrongArgumentError),
        (lambda: T.RandomRotation(None), WrongArgumentError),
        (lambda: T.RandomRotation(10**400), WrongArgumentTypeError),
        (lambda: T.RandomRotation(3, center=(1,)), WrongArgumentError),
        (lambda: T.RandomRotation(3, fill="red"), WrongArgumentError),
        (lambda: T.RandomRotation(3, fill=torch.ones(3)), WrongArgumentError),
        (lambda: T.RandomRotation(3, fill={torch.Tensor: (1, None)}), WrongArgumentError),
        (lambda: T.RandomPerspective(fill=()), WrongArgumentError),
        (lambda: T.RandomAffine(3, fill=10**400), WrongArgumentTypeError),
        (lambda: T.RandomAffine(3, translate=(2, 0)), WrongArgumentError),
        (lambda: T.RandomAffine(3, translate=0.5), WrongArgumentError),
        (lambda: T.RandomAffine(3, scale=(1,)), WrongArgumentError),
        (lambda: T.Pad(3, fill="red"), WrongArgumentError),
        (lambda: T.RandomCrop(3, fill=(1, "red")), WrongArgumentError),
        (lambda: T.Compose([]), WrongArgumentError),
        (lambda: T.RandomChoice([T.Resize(3)], p=[1, 2]), WrongArgumentError),
        (lambda: T.ToDtype("float"), WrongArgumentError),
    ],
)
def test_arguments_that_make_no_sense(make: Callable[[], object], error: type[Exception]) -> None:
    with pytest.raises(error):
        make()


def test_arguments_torchvision_does_not_look_at_before_it_runs(v2: Any) -> None:
    fused = polyphase.fuse(v2.Resize(20, interpolation="cubic"))
    with pytest.raises(ValueError, match=r"[Ii]nterpolation"):
        fused(image(1))


def test_grids_by_elements_are_the_cpus() -> None:
    """Which other devices make: with the same roundings, but for one in millions."""
    cpu = torch.device("cpu")
    matrix = inverse_affine([3.0, -2.0], 17.0, [4.0, 9.0], 1.1, [3.0, -5.0])
    corners = [[0, 0], [89, 0], [89, 69], [0, 69]], [[4, 2], [80, 7], [85, 66], [3, 61]]
    for grid in (AffineGrid(matrix, (70, 90), (63, 81)), PerspectiveGrid(perspective_coefficients(*corners), (70, 90))):
        for dtype, most in ((torch.float32, 1e-7), (torch.float64, 1e-14)):
            expected, got = grid.made(dtype, cpu), grid.by_elements(dtype, cpu)
            torch.testing.assert_close(got, expected, rtol=most, atol=most)
            assert (got != expected).float().mean() < 1e-3 or dtype == torch.float64
