"""Tables of draws say what transforms draw that run as themselves: torchvision's numbers, and its generator's state."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any, NamedTuple

import pytest
import torch

from polyphase.pipelines import drawing
from polyphase.pipelines.draws import Chance, Draws, ErasedBox, Fork, Integer, Order, Uniform, whole_numbers
from tests.support.vision import torchvision

UNIT = Uniform(0.0, 1.0)  # torch.rand(1)
#: Operations of the augmentations that are drawn: whether they have magnitudes, and a sign.
SIGNED = (True, True)
MAGNITUDES = (True, False)
NEITHER = (False, False)
OPERATIONS = {
    "Identity": NEITHER,
    "ShearX": SIGNED,
    "ShearY": SIGNED,
    "TranslateX": SIGNED,
    "TranslateY": SIGNED,
    "Rotate": SIGNED,
    "Brightness": SIGNED,
    "Color": SIGNED,
    "Contrast": SIGNED,
    "Sharpness": SIGNED,
    "Posterize": MAGNITUDES,
    "Solarize": MAGNITUDES,
    "AutoContrast": NEITHER,
    "Equalize": NEITHER,
    "Invert": NEITHER,
}


class Case(NamedTuple):
    """draws: of a transform. read: of the numbers for an image of a size, what torchvision's own function returns."""

    make: Callable[[Any], Any]
    draws: Callable[[Any], Draws]
    read: Callable[[Any, Iterator[float], int, int], Any]


def _jitter(t: Any) -> Draws:
    ranges = (t.brightness, t.contrast, t.saturation, t.hue)
    return (Order(4), *[Uniform(*one) for one in ranges if one is not None])


def _read_jitter(t: Any, drawn: Iterator[float], height: int, width: int) -> Any:
    names = ("brightness", "contrast", "saturation", "hue")
    order = whole_numbers(drawn, 4)
    return {"fn_idx": order} | {f"{name}_factor": None if getattr(t, name) is None else next(drawn) for name in names}


def _read_erased(t: Any, drawn: Iterator[float], height: int, width: int) -> Any:
    top, left, rows, columns = whole_numbers(drawn, 4)
    if top < 0:
        return {"i": 0, "j": 0, "h": height, "w": width, "v": None}
    return {"i": top, "j": left, "h": rows, "w": columns, "v": [[[0.0]]]}


def _distortion(t: Any) -> Draws:
    ranges = (t.brightness, t.contrast, t.saturation, t.hue)
    factors = [Chance(t.p, (Uniform(*one),)) for one in ranges]
    return (*factors, Chance(0.5), Chance(t.p, (Order(3),)))


def _read_distortion(t: Any, drawn: Iterator[float], height: int, width: int) -> Any:
    names = ("brightness_factor", "contrast_factor", "saturation_factor", "hue_factor")
    found: dict[str, Any] = {name: next(drawn) if next(drawn) else None for name in names}
    found["contrast_before"] = bool(next(drawn))
    return found | {"channel_permutation": whole_numbers(drawn, 3) if next(drawn) else None}


#: Those with `make_params`; without, the chance that they do anything is all they draw.
CASES: dict[str, Case] = {
    "ColorJitter": Case(lambda v2: v2.ColorJitter(0.4, 0.4, 0.4, 0.1), _jitter, _read_jitter),
    "ColorJitter, of hue": Case(lambda v2: v2.ColorJitter(hue=(-0.2, 0.4)), _jitter, _read_jitter),
    "RandomErasing": Case(
        lambda v2: v2.RandomErasing(scale=(0.02, 0.9)),
        lambda t: (ErasedBox(tuple(t.scale), tuple(t.ratio)),),
        _read_erased,
    ),
    "GaussianBlur": Case(
        lambda v2: v2.GaussianBlur(9, (0.1, 2.0)),
        lambda t: (Uniform(*t.sigma),),
        lambda t, drawn, height, width: {"sigma": [next(drawn)] * 2},
    ),
    "RandomPhotometricDistort": Case(lambda v2: v2.RandomPhotometricDistort(), _distortion, _read_distortion),
    "RandomChannelPermutation": Case(
        lambda v2: v2.RandomChannelPermutation(),
        lambda t: (Order(3),),
        lambda t, drawn, height, width: {"permutation": whole_numbers(drawn, 3)},
    ),
}

COUNTS = [pytest.param(200, id="some"), pytest.param(100_000, id="many", marks=pytest.mark.full)]


def numbers_and_state(
    draws: Draws, height: int, width: int, state: torch.Tensor
) -> tuple[Iterator[float], torch.Tensor]:
    """As C++ draws them from a state."""
    drawer = drawing.drawer_of(draws)
    assert drawer is not None
    generator = torch.Generator()
    generator.set_state(state)
    found = drawer(generator, height, width) or ()
    return iter(found), generator.get_state()


def _plain(params: Any) -> Any:
    return {name: one.tolist() if isinstance(one, torch.Tensor) else one for name, one in params.items()}


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("name", CASES)
def test_parameters(name: str, count: int) -> None:
    of, case = Random(name), CASES[name]
    itself = case.make(torchvision())
    draws = case.draws(itself)
    torch.manual_seed(len(name))
    for number in range(count):
        height, width = of.randint(2, 700), of.randint(2, 700)
        before = torch.get_rng_state()
        expected = itself.make_params([torch.empty(1).expand(3, height, width)])
        drawn, after = numbers_and_state(draws, height, width, before)
        assert case.read(itself, drawn, height, width) == _plain(expected), number
        assert next(drawn, None) is None
        assert torch.equal(after, torch.get_rng_state()), number


@pytest.mark.parametrize(
    "name", ["RandomGrayscale", "RandomInvert", "RandomAutocontrast", "RandomEqualize", "RandomErasing"]
)
def test_chances(name: str) -> None:
    of, v2 = Random(name), torchvision()
    for _ in range(100):
        itself, done = getattr(v2, name)(p=of.choice([0.0, 0.5, 1.0, of.random()])), list[int]()
        itself.transform = lambda image, params, done=done: done.append(1)
        itself.make_params = lambda flat_inputs: {}
        before = torch.get_rng_state()
        itself(torch.zeros(3, 4, 5, dtype=torch.uint8))
        drawn, after = numbers_and_state((Chance(itself.p),), 4, 5, before)
        assert next(drawn) == len(done)
        assert torch.equal(after, torch.get_rng_state())


# ---- augmentations that are drawn: operations in order, each with its magnitude's number, and whether it is negative

Operation = tuple[str, int | None, bool]
SIGN = Chance(0.5, with_p=True)


def _one_of_all(names: list[str], *magnitude: Integer) -> Fork:
    branches = [(magnitude if OPERATIONS[one][0] else ()) + ((SIGN,) if OPERATIONS[one][1] else ()) for one in names]
    return Fork(tuple(branches))


def _read_one(names: list[str], drawn: Iterator[float], fixed: int | None) -> Operation:
    name = names[int(next(drawn))]
    number = (int(next(drawn)) if fixed is None else fixed) if OPERATIONS[name][0] else None
    return name, number, bool(OPERATIONS[name][1] and next(drawn))


def _policy(policy: Any) -> Draws:
    """Of AutoAugment's operations with their probabilities."""
    signs = {name: (SIGN,) if OPERATIONS[name][1] else () for name, _, _ in policy}
    return tuple(Chance(p, signs[name], with_p=True) for name, p, _ in policy)


def _read_policy(policy: Any, drawn: Iterator[float]) -> list[Operation]:
    found = list[Operation]()
    for name, _, number in policy:
        if next(drawn):
            found.append((name, number if OPERATIONS[name][0] else None, bool(OPERATIONS[name][1] and next(drawn))))
    return found


def _recorded(itself: Any, image: torch.Tensor) -> list[tuple[str, float]]:
    found = list[tuple[str, float]]()

    def record(image: Any, name: str, magnitude: float, interpolation: Any, fill: Any) -> Any:
        found.append((name, magnitude))
        return image

    itself._apply_image_or_video_transform = record
    itself(image)
    return found


def _with_magnitudes(itself: Any, operations: list[Operation], bins: int, height: int, width: int) -> Any:
    found = []
    for name, number, negative in operations:
        magnitudes = itself._AUGMENTATION_SPACE[name][0](bins, height, width)
        magnitude = 0.0 if number is None else float(magnitudes[number])
        found.append((name, -magnitude if negative else magnitude))
    return found


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("name", ["RandAugment", "TrivialAugmentWide", "imagenet", "cifar10", "svhn"])
def test_augmentations(name: str, count: int) -> None:
    of, v2 = Random(name), torchvision()
    own = getattr(v2, name, None)
    itself = v2.AutoAugment(v2.AutoAugmentPolicy(name)) if own is None else own()
    names, bins = list(itself._AUGMENTATION_SPACE), 10 if own is None else itself.num_magnitude_bins
    if name == "RandAugment":
        draws: Draws = (_one_of_all(names),) * itself.num_ops
    elif own is not None:
        draws = (_one_of_all(names, Integer(0, bins)),)
    else:
        draws = (Fork(tuple(map(_policy, itself._policies))),)

    def read(drawn: Iterator[float]) -> list[Operation]:
        if name == "RandAugment":
            return [_read_one(names, drawn, itself.magnitude) for _ in range(itself.num_ops)]
        if own is not None:
            return [_read_one(names, drawn, None)]
        return _read_policy(itself._policies[int(next(drawn))], drawn)

    torch.manual_seed(len(name))
    for number in range(count):
        height, width = of.randint(2, 700), of.randint(2, 700)
        before = torch.get_rng_state()
        expected = _recorded(itself, torch.empty(1, dtype=torch.uint8).expand(3, height, width))
        drawn, after = numbers_and_state(draws, height, width, before)
        assert _with_magnitudes(itself, read(drawn), bins, height, width) == expected, number
        assert torch.equal(after, torch.get_rng_state()), number
