"""Random numbers made in C++: those of torch and torchvision, to the bit, and the generator as they would leave it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode

import polyphase
from polyphase import errors, transforms
from polyphase.calls import devices
from polyphase.pipelines import drawing
from polyphase.pipelines.draws import (
    Chance,
    Choice,
    Corners,
    Draw,
    ErasedBox,
    Fork,
    Integer,
    Normal,
    Order,
    Place,
    ResizedBox,
    Shift,
    Uniform,
    all_by_torch,
)
from polyphase.pipelines.reading import Step, drawn, read
from polyphase.pipelines.walks import stand_in
from tests.support.vision import torchvision

COUNTS = [pytest.param(400, id="some"), pytest.param(100_000, id="many", marks=pytest.mark.full)]


def _two(of: Random, least: float, most: float) -> tuple[float, float]:
    first, second = sorted((of.uniform(least, most), of.uniform(least, most)))
    return first, second


#: Of each kind, drawn from a generator of Python's.
KINDS: dict[str, Callable[[Random], Draw]] = {
    "uniform": lambda of: Uniform(
        *of.choice([(-30, 30), (0.0, 0.0), (1.0, 1.0 + 2**-23), (-1e30, 1e30), _two(of, -9, 9)])
    ),
    "integer": lambda of: Integer(start := of.randint(-999, 999), start + of.randint(1, 2 ** of.randint(1, 27))),
    "normal": lambda of: Normal(of.uniform(-2, 2), of.uniform(0, 2)),
    "chance": lambda of: Chance(of.choice([0.0, 0.5, 0.3, 1.0]), (Uniform(0, 1), Integer(0, 9)), of.random() < 0.5),
    "fork": lambda of: Fork(tuple((Uniform(0, n),) * of.randint(0, 3) for n in range(of.randint(1, 5)))),
    "order": lambda of: Order(of.randint(1, 30)),
    "choice": lambda of: Choice((*[of.choice([0.0, of.random(), 1.0]) for _ in range(of.randint(0, 5))], 0.2)),
    "resized box": lambda of: ResizedBox(_two(of, 0, of.choice([1, 3])), _two(of, 0.1, 6)),
    "erased box": lambda of: ErasedBox(_two(of, 0, of.choice([1, 3])), _two(of, 0.1, 6)),
    "place": lambda of: Place(
        (of.randint(1, 90), of.randint(1, 90)),
        of.choice([(0, 0, 0, 0), (of.randint(0, 9), 2, 3, of.randint(0, 9))]),
        may_grow=True,
        both=of.random() < 0.5,
    ),
    "shift": lambda of: Shift((of.random(), of.choice([0.0, 0.1, 1.0]))),
    "corners": lambda of: Corners(of.choice([0.0, 1.0, of.random()])),
}


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("kind", KINDS)
def test_numbers_and_state_are_those_of_torch(kind: str, count: int) -> None:
    """Among draws of torch's own, which leave the generator anywhere, a kept normal included."""
    of, theirs, ours = Random(kind), torch.Generator(), torch.Generator()
    for number in range(count):
        if number % 100 == 0:
            theirs.manual_seed(of.randint(-(2**62), 2**62))
            torch.empty(of.randint(0, 1300)).uniform_(generator=theirs)
        if number % 7 == 0:
            torch.empty(1).normal_(generator=theirs)
        ours.set_state(theirs.get_state())
        draw, height, width = KINDS[kind](of), of.randint(1, 99), of.randint(1, 99)
        drawer = drawing.drawer_of((draw,))
        assert drawer is not None, "on this processor, torch draws as C++ does"
        found = drawer(ours, height, width)
        assert found == tuple(all_by_torch((draw,), height, width, theirs)), (number, draw, height, width)
        assert torch.equal(ours.get_state(), theirs.get_state()), (number, draw, height, width)


@pytest.mark.parametrize(
    ("draw", "height", "width"),
    [
        (Uniform(2.0, 1.0), 9, 9),
        (Uniform(float("nan"), 1.0), 9, 9),
        (Uniform(-3e38, 3e38), 9, 9),
        (Integer(4, 4), 9, 9),
        (Integer(0, 2**28), 9, 9),
        (Choice((0.5, -0.1)), 9, 9),
        (Choice((0.0, 0.0)), 9, 9),
        (Choice((float("inf"), 1.0)), 9, 9),
        (Order(10**6), 9, 9),
        (Fork(()), 9, 9),
        (Fork(((Choice((-1.0,)),),)), 9, 9),
        (ResizedBox((-0.5, 1.0), (1.0, 2.0)), 9, 9),
        (ResizedBox((0.5, 1.0), (2.0, 1.0)), 9, 9),
        (ResizedBox((0.5, 1.0), (-1.0, 1.0)), 9, 9),
        (Place((10, 3)), 9, 9),
        (Place((3, 3)), 0, 9),
        (Place((3, 3)), -1, 9),
        (Corners(1.5), 9, 9),
        (Shift((float("inf"), 0.1)), 9, 9),
    ],
)
def test_what_torch_may_refuse_is_left_to_it(draw: Draw, height: int, width: int) -> None:
    """With all that comes after, and the generator stays where it was."""
    table = (Uniform(0, 1), draw)
    drawer = drawing.drawer_of(table)
    assert drawer is not None
    generator = torch.Generator().manual_seed(3)
    before = generator.get_state()
    assert drawer(generator, height, width) is None
    assert torch.equal(generator.get_state(), before)


@pytest.mark.parametrize("table", [b"", b"\0" * 8, b"\xff" * 32, bytes(range(128)), (b"\0" * 7 + b"\x40") * 7])
def test_tables_that_are_none_are_refused(table: bytes) -> None:
    make = devices.wing_of(torch.device("cpu")).drawer
    assert make is not None
    assert make(table, 0, True)(torch.Generator(), 5, 5) == (() if table == b"" else None)


# ---- transforms


def _crops(of: Random, t: Any) -> Any:
    return t.RandomResizedCrop(24, scale=_two(of, 0.01, 1.2), ratio=_two(of, 0.2, 4))


TRANSFORMS: dict[str, Callable[[Random, Any], Any]] = {
    "resized crop": _crops,
    "crop": lambda of, t: t.RandomCrop(of.randint(1, 70), padding=of.choice([None, 4, (1, 5)]), pad_if_needed=True),
    "flip": lambda of, t: t.RandomHorizontalFlip(of.choice([0.0, 0.5, 0.3, 1.0])),
    "vertical flip": lambda of, t: t.RandomVerticalFlip(of.random()),
    "rotation": lambda of, t: t.RandomRotation(_two(of, -90, 90)),
    "affine": lambda of, t: t.RandomAffine(
        of.randint(0, 90),
        of.choice([None, (of.random(), 0.2)]),
        of.choice([None, (0.5, 2.0)]),
        of.choice([None, 10, (-3, 8), (-5, 5, -20, 7)]),
    ),
    "perspective": lambda of, t: t.RandomPerspective(of.random(), of.choice([0.5, 0.9])),
    "size": lambda of, t: t.RandomResize(of.randint(1, 40), of.randint(41, 90)),
    "one of several sizes": lambda of, t: t.RandomShortestSize(
        [of.randint(1, 90) for _ in range(of.randint(1, 5))], 80
    ),
    "jittered size": lambda of, t: t.ScaleJitter((of.randint(1, 90), of.randint(1, 90)), _two(of, 0.1, 3)),
    "zoom out": lambda of, t: t.RandomZoomOut(0, _two(of, 1, 5), of.random()),
}
ONLY_IN_V2 = ("size", "one of several sizes", "jittered size", "zoom out")


@pytest.fixture(params=["torchvision.transforms.v2", "torchvision.transforms"])
def vision(request: pytest.FixtureRequest) -> Any:
    return torchvision(request.param)


@pytest.fixture
def compared_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that ours are taken from the first draw on."""
    monkeypatch.setattr(drawing, "_COMPARED", 0)


@pytest.mark.usefixtures("compared_once")
@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms_draw_as_torchvision(vision: Any, name: str, count: int) -> None:
    """A new transform for every ten images."""
    if name in ONLY_IN_V2 and not hasattr(vision, "ToImage"):
        pytest.skip("v1 has no such transform")
    of = Random(name)
    for seed in range(count // 10 + 1):
        itself = TRANSFORMS[name](of, vision)
        step = read(itself)
        assert isinstance(step, Step)
        assert step.known is not None
        assert step.known.drawer is not None
        sizes = [(of.randint(2, 90), of.randint(2, 90)) for _ in range(10)]
        outcomes = []
        for plain in (True, False):
            torch.manual_seed(seed)
            with_draws = copy.copy(step)
            if plain:
                object.__setattr__(with_draws, "known", None)
            params = [drawn(with_draws, [stand_in((3, *size))], *size) for size in sizes]
            outcomes.append((params, torch.get_rng_state().tolist()))
        expected, found = outcomes
        assert found[1] == expected[1], (seed, itself)
        for one, other in zip(found[0], expected[0], strict=True):
            assert drawing._are_equal(other, one), (seed, itself)


def test_the_first_draws_are_torchvisions() -> None:
    """Ours are taken when they were seen to be the same."""
    v2 = torchvision()
    itself = v2.RandomResizedCrop(24)
    asked, plainly = list[int](), itself.make_params

    def make_params(flat_inputs: list[Any]) -> Any:
        asked.append(1)
        return plainly(flat_inputs)

    itself.make_params = make_params
    fused = polyphase.fuse(itself)
    for _ in range(6):
        fused(torch.zeros(3, 60, 50, dtype=torch.uint8))
    assert len(asked) == drawing._COMPARED


def test_a_transform_that_draws_otherwise_is_asked_itself() -> None:
    """As another version of torchvision may."""
    v2 = torchvision()
    itself = v2.RandomResizedCrop(24)
    itself.make_params = lambda flat_inputs: {
        "top": int(torch.randint(0, 9, (1,))),
        "left": 1,
        "height": 24,
        "width": 24,
    }
    fused = polyphase.fuse(itself)
    image = torch.randint(0, 256, (3, 60, 50), dtype=torch.uint8)
    for seed in range(9):
        torch.manual_seed(seed)
        top = int(torch.randint(0, 9, (1,)))
        torch.manual_seed(seed)
        assert torch.equal(fused(image), image[:, top : top + 24, 1:25])


def test_arguments_that_change_later_are_drawn_by() -> None:
    v2 = torchvision()
    itself = v2.RandomHorizontalFlip(1.0)
    fused = polyphase.fuse(itself)
    image = torch.arange(3 * 4 * 5, dtype=torch.uint8).view(3, 4, 5)
    for _ in range(4):
        assert torch.equal(fused(image), image.flip(-1))
    itself.p = 0.0
    assert torch.equal(fused(image), image)


# ---- chains


#: The last one crops to nothing, and would draw again afterwards.
SOME = (*range(40), 448)


@pytest.mark.parametrize(
    "seeds", [pytest.param(SOME, id="some"), pytest.param(range(2000), id="many", marks=pytest.mark.full)]
)
def test_chains_draw_as_torchvision(vision: Any, seeds: Sequence[int]) -> None:
    """The same pictures, or mistakes, image by image and in a batch, and the generator as torchvision leaves it after
    each. Where floats are rounded, each resize may take another of two levels that are as near."""
    for seed in seeds:
        of = Random(seed)
        names = [of.choice(["resized crop", "crop", "flip", "vertical flip", "resize", "centre"]) for _ in range(4)]
        itself = vision.Compose([_step(of, vision, name) for name in names])
        fused = polyphase.fuse(itself)
        images = [
            torch.randint(0, 256, (3, of.randint(30, 60), of.randint(30, 60)), dtype=torch.uint8) for _ in range(6)
        ]
        levels = max(1, sum(name in ("resized crop", "resize") for name in names))
        torch.manual_seed(seed)
        expected = [(_outcome(itself, one), torch.get_rng_state()) for one in images]
        for _ in range(2):
            torch.manual_seed(seed)
            for image, (outcome, state) in zip(images, expected, strict=True):
                assert _are_near(_outcome(fused, image), outcome, levels), (seed, itself)
                assert torch.equal(torch.get_rng_state(), state), (seed, itself)
        if any(outcome is None for outcome, _ in expected):
            continue
        torch.manual_seed(seed)
        batch = fused.batch(images, as_list=True)
        assert torch.equal(torch.get_rng_state(), expected[-1][1]), (seed, itself)
        assert all(_are_near(one, outcome, levels) for one, (outcome, _) in zip(batch, expected, strict=True))


def _outcome(function: Any, image: torch.Tensor) -> torch.Tensor | None:
    """A picture; None of a mistake: a crop may be less than a pixel high, which ours says in its own words."""
    try:
        return function(image)  # type: ignore[no-any-return]
    except (RuntimeError, errors.InvalidStepError):
        return None


def _are_near(one: torch.Tensor | None, other: torch.Tensor | None, levels: int) -> bool:
    if one is None or other is None:
        return one is other
    return one.shape == other.shape and bool((one.int() - other.int()).abs().max() <= levels)


def _step(of: Random, t: Any, name: str) -> Any:
    if name == "resize":
        return t.Resize(of.choice([of.randint(20, 90), (of.randint(9, 90), of.randint(9, 90))]), antialias=True)
    return t.CenterCrop(of.randint(9, 90)) if name == "centre" else TRANSFORMS[name](of, t)


def test_all_steps_are_drawn_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of torch draws, once transforms are known."""
    v2 = torchvision()
    fused = polyphase.fuse(v2.Compose([v2.RandomResizedCrop(24), v2.RandomHorizontalFlip(), v2.RandomCrop(20)]))
    images = [torch.zeros(3, 60, 50 + n, dtype=torch.uint8) for n in range(5)]
    for image in images:
        fused(image)
    for name in ("rand", "randint", "empty"):
        monkeypatch.setattr(torch, name, None)
    fused(images[0])
    fused.batch(images, as_list=True, out=None)


@pytest.mark.parametrize("on_error", ["raise", "skip"])
@pytest.mark.parametrize("wrong", [0, 2, 5])
def test_an_image_that_cannot_be_done(wrong: int, on_error: str) -> None:
    """The generator is left as by images done one after the other, up to where that one goes wrong."""
    v2 = torchvision()
    own = v2.Compose([v2.RandomHorizontalFlip(), v2.RandomVerticalFlip(), v2.RandomCrop(40), v2.RandomHorizontalFlip()])
    fused = polyphase.fuse(own)
    images = [torch.randint(0, 256, (3, 50, 50 + n), dtype=torch.uint8) for n in range(6)]
    for one in images:
        fused(one)
    images[wrong] = images[wrong][:, :30]
    torch.manual_seed(9)
    expected = []
    for one in images:
        try:
            expected.append(own(one))
        except ValueError:
            if on_error == "raise":
                break
    state = torch.get_rng_state()
    torch.manual_seed(9)
    if on_error == "raise":
        with pytest.raises(errors.WrongImageError, match=f"image {wrong} of 6"):
            fused.batch(images)
    else:
        made, mask = fused.batch(images, on_error="skip")
        assert torch.equal(made, torch.stack(expected))
        assert mask.tolist() == [number != wrong for number in range(6)]
    assert torch.equal(torch.get_rng_state(), state)


def test_an_error_between_two_draws_leaves_what_was_not_drawn() -> None:
    """Of an image whose numbers are drawn at once: the flip after the step that fails is not drawn for."""
    fused = polyphase.fuse(
        [transforms.RandomVerticalFlip(), transforms.Resize(1, max_size=3), transforms.RandomVerticalFlip()]
    )
    for _ in range(3):
        fused(torch.zeros(3, 40, 50, dtype=torch.uint8))
    torch.manual_seed(4)
    torch.rand(1)
    state = torch.get_rng_state()
    torch.manual_seed(4)
    with pytest.raises(errors.NotSupportedError, match="no pixels"):
        fused(torch.zeros(3, 4000, 2, dtype=torch.uint8))
    assert torch.equal(torch.get_rng_state(), state)


def test_threads_draw_whole_images() -> None:
    """Each picture is one of those that a single thread makes of the same seed, in some order."""
    pipeline = polyphase.fuse(
        [transforms.RandomCrop(8), transforms.RandomHorizontalFlip(), transforms.RandomVerticalFlip()]
    )
    image = torch.arange(3 * 200 * 200, dtype=torch.float32).view(3, 200, 200)
    for _ in range(3):
        pipeline(image)
    torch.manual_seed(1)
    expected = sorted(pipeline(image)[0, :2, :2].flatten().tolist() for _ in range(400))
    state = torch.get_rng_state()
    torch.manual_seed(1)
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda _: pipeline(image)[0, :2, :2].flatten().tolist(), range(400)))
    assert sorted(found) == expected
    assert torch.equal(torch.get_rng_state(), state)


# ---- what is not as usual


@pytest.fixture
def afresh() -> Iterator[None]:
    """Nothing is known of how torch draws, before and after."""
    for forgotten in range(2):
        for one in (drawing._is_as_torch, drawing._rounding, drawing._address_of_exp):
            one.cache_clear()
        if not forgotten:
            yield


@pytest.mark.usefixtures("afresh")
@pytest.mark.parametrize("tampers", ["a number", "the state"])
def test_a_generator_that_was_tampered_with_is_left(monkeypatch: pytest.MonkeyPatch, tampers: str) -> None:
    """The first use finds out, and torch draws."""
    wing = devices.wing_of(torch.device("cpu"))
    make = wing.drawer
    assert make is not None

    def tampered(*given: Any) -> Any:
        drawer = make(*given)

        def draw(generator: torch.Generator, height: int, width: int) -> tuple[float, ...]:
            found = drawer(generator, height, width) or ()
            if tampers == "the state":
                torch.rand(1, generator=generator)
                return found
            return (*found[:-1], found[-1] * (1 + 2**-23))

        return draw

    object.__setattr__(wing, "drawer", tampered)
    try:
        for kind in (Uniform(-0.1, 0.7), ResizedBox((0.08, 1.0), (0.75, 1.3)), Chance(0.5), Order(4)):
            assert drawing.drawer_of((kind,)) is None, kind
        ours = polyphase.fuse([transforms.RandomResizedCrop(16), transforms.RandomHorizontalFlip()])
        image = torch.randint(0, 256, (3, 40, 50), dtype=torch.uint8)
        torch.manual_seed(3)
        found = [ours(image) for _ in range(4)]
    finally:
        object.__setattr__(wing, "drawer", make)
    v2 = torchvision()
    own = v2.Compose([v2.RandomResizedCrop(16), v2.RandomHorizontalFlip()])
    torch.manual_seed(3)
    assert all(torch.equal(one, own(image)) for one in found)


class _Watching(TorchFunctionMode):
    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        _seen.append(function)
        return function(*args, **(kwargs or {}))


_seen: list[Any] = []


def test_function_modes_see_torch_draw() -> None:
    ours = polyphase.fuse([transforms.RandomHorizontalFlip()])
    image = torch.zeros(3, 4, 5, dtype=torch.uint8)
    ours(image)
    _seen.clear()
    with _Watching():
        ours(image)
    assert torch.rand in _seen


def test_other_default_dtypes_are_torchs() -> None:
    """A double takes two words."""
    v2 = torchvision()
    own = v2.Compose([v2.RandomResizedCrop(16), v2.RandomRotation(20)])
    fused, image = polyphase.fuse(own), torch.randint(0, 256, (3, 40, 50), dtype=torch.uint8)
    for dtype in (torch.float32, torch.float64):
        torch.set_default_dtype(dtype)
        try:
            states = []
            for one in (own, fused):
                torch.manual_seed(5)
                for _ in range(4):
                    one(image)
                states.append(torch.get_rng_state())
        finally:
            torch.set_default_dtype(torch.float32)
        assert torch.equal(*states), dtype


def test_default_devices_are_torchs() -> None:
    fused = polyphase.fuse([transforms.RandomHorizontalFlip()])
    image = torch.zeros(3, 4, 5, dtype=torch.uint8)
    fused(image)
    before = torch.get_rng_state()
    with torch.device("meta"), pytest.raises(Exception, match="meta"):
        fused(image)
    assert torch.equal(torch.get_rng_state(), before)
