"""Pipelines of torchvision's v1 and v2 drawn at random, and samples for them; and whether `fuse` does what they do:
results, where these lie, whose memory they share, errors, warnings, and what random numbers come next. A seed and a
number are a case, so what was found is found again:

python -m tests.hostile.pipelines --count 2000 --seed 7
python -m tests.hostile.pipelines --count 2000 --seed 7 --pictures     of Pillow's pictures, also of several blocks
python -m tests.hostile.pipelines --seed 7 --case 1234
"""

from __future__ import annotations

import argparse
import copy
import functools
import random as python_random
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils import _pytree

import polyphase
from tests.pipelines.chains import MEAN, STD, lies_as
from tests.support.vision import torchvision

V1, V2 = "torchvision.transforms", "torchvision.transforms.v2"
DTYPES = (*[torch.uint8] * 5, torch.float32, torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8)
DTYPES = (*DTYPES, torch.int16, torch.int32, torch.int64, torch.bool, torch.uint16)
MODES = (*["RGB"] * 8, "L", "L", "1", "LA", "RGBA", "CMYK", "P", "I", "F", "I;16", "HSV", "YCbCr")
SMALL = ((24, 32), (32, 24), (30, 30), (40, 57), (20, 20), (5, 3), (1, 1), (64, 48), (1, 9))
#: The last two are several blocks of Pillow's memory.
LARGE = ((375, 500), (1080, 700), (2100, 2100), (1500, 3000))
SIZES, LARGE_SIZES = (1, 2, 3, 7, 16, 20, 24, 31, 32, 33, 40, 50), (96, 224, 300, 448, 640)


@dataclass
class Case:
    """rough: by how many levels of 255 results may differ; None where that is not said, for what follows is steep."""

    transform: Any
    make: Callable[[], Any]
    rough: float | None

    def __str__(self) -> str:
        return f"{self.transform} of {described(self.make())}".replace("\n", " ")


def described(sample: Any) -> str:
    def one(leaf: Any) -> Any:
        if isinstance(leaf, Tensor):
            return f"{type(leaf).__name__} {leaf.dtype} {tuple(leaf.shape)} strides {leaf.stride()}"
        return f"Pillow {leaf.mode} {leaf.size}" if hasattr(leaf, "getbands") else repr(leaf)[:40]

    return str(_pytree.tree_map(one, sample))


# ---- transforms


class Given:
    """What transforms of a module are given. rough: as of `Case`, so far."""

    def __init__(self, random: Random, name: str, *, pillow: bool, large: bool) -> None:
        self.random, self.of, self.is_v2 = random, random.choice, name == V2
        self.t, self.rough, self.is_steep = torchvision(name), 0.0, False
        self._most_levels = 2.0 if pillow or not self.is_v2 else 1.0
        self._sizes = (*SIZES, *LARGE_SIZES) if large else SIZES

    def size(self, least: int = 1) -> int:
        return max(self.of(self._sizes), least)

    def pair(self, least: int = 1) -> Any:
        return self.of((self.size(least), (self.size(), self.size(least)), [self.size(least)], (24, 32)))

    def fill(self) -> Any:
        values: list[Any] = [0, 0, 0, 1, 127, 255, 0.5, (3, 90, 200), [1.0, 2.0, 3.0]]
        return self.of([*values, None, (7,), {"others": (1, 2, 3)}] if self.is_v2 else values)

    def mode(self, *names: str) -> Any:
        names = names or ("bilinear", "bilinear", "bicubic", "nearest", "nearest-exact", "lanczos")
        return self.t.InterpolationMode(self.of(names))

    def padding(self) -> Any:
        return self.of((0, 1, 5, (3, 6), (1, 2, 3, 4), (-1, 2, 0, -1), -2, [0, 0], 40, [2]))

    def border(self) -> str:
        return self.of(("constant", "constant", "edge", "reflect", "symmetric"))

    def step(self) -> Any:
        while True:
            kind = self.random.choices(KINDS, [one.weight for one in KINDS])[0]
            try:
                made = kind.make(self)
            except (AttributeError, TypeError, ValueError):  # v1 has not got it, or refuses
                continue
            self.rough = self.rough * kind.times + min(kind.levels, self._most_levels)
            self.is_steep |= kind.is_steep and self.rough > 0
            return made


class Kind(NamedTuple):
    """levels: by which results may come to differ; times: by which differences become greater; is_steep: any may."""

    make: Callable[[Given], Any]
    weight: int = 3
    levels: float = 0.0
    times: float = 1.0
    is_steep: bool = False


def _resize(of: Given) -> Any:
    extra = of.of(({}, {}, {"max_size": 60}, {"antialias": of.of((True, False, None))}))
    size = of.of((of.pair(2), of.pair(2), 20, None if of.is_v2 and extra else 20))
    return of.t.Resize(size, interpolation=of.mode(), **extra)


def _crop(of: Given) -> Any:
    return of.t.RandomCrop(
        of.pair(), of.of((None, None, of.padding())), of.of((True, True, False)), of.fill(), of.border()
    )


def _rotation(of: Given) -> Any:
    degrees = of.of((30, (0, 0), (90, 90), (180, 180), (360, 360), (-90, -90), 0, (10, 170)))
    mode = of.mode("nearest", "bilinear", "bicubic")
    return of.t.RandomRotation(degrees, mode, of.of((True, False, False)), of.of((None, None, (3, 4))), of.fill())


def _affine(of: Given) -> Any:
    numbers = ((0,), (20,), (0, (0.1, 0.2)), (20, (0.1, 0.2), (0.7, 1.3), 10), (0, None, (1, 1), (0, 0, 0, 5)))
    return of.t.RandomAffine(*of.of(numbers), interpolation=of.mode("nearest", "bilinear", "bicubic"), fill=of.fill())


def _perspective(of: Given) -> Any:
    mode = of.mode("nearest", "bilinear", "bicubic")
    return of.t.RandomPerspective(of.of((0.0, 0.4)), of.of((0.0, 0.8, 1.0)), mode, of.fill())


def _dtype(of: Given) -> Any:
    dtypes = (torch.float32, torch.float32, torch.uint8, torch.float64, torch.float16, torch.int16, torch.int32)
    dtype = of.of((*dtypes, torch.bool))
    if not of.is_v2:
        return of.t.ConvertImageDtype(dtype)
    image = torchvision("torchvision.tv_tensors").Image
    given = of.of((dtype, dtype, {"others": dtype}, {"others": None}, {image: dtype, "others": None}))
    return of.t.ToDtype(given, scale=of.of((True, True, False)))


def _normalize(of: Given) -> Any:
    count = of.of((3, 3, 3, 1))
    return of.t.Normalize(list(MEAN[:count]), STD[:count], inplace=of.of((True, False, False)))


def _container(of: Given) -> Any:
    some = [of.step() for _ in range(of.random.randint(1, 3))]
    name = of.of(("RandomApply", "RandomChoice", "RandomOrder", "Compose", "Sequential"))
    if name == "Sequential" and all(isinstance(one, torch.nn.Module) for one in some):
        return torch.nn.Sequential(*some)
    if name == "RandomApply":
        return of.t.RandomApply(some, p=of.of((0.0, 0.5, 1.0)))
    return getattr(of.t, "Compose" if name == "Sequential" else name)(some)


def _other_sizes(of: Given) -> Any:
    t, how = of.t, {"interpolation": of.mode()}
    sizes = (t.RandomShortestSize([20, 30], **how), t.RandomResize(20, 50, **how), t.ScaleJitter((30, 44), **how))
    return of.of((*sizes, t.RandomZoomOut(of.fill(), p=0.8)))


def _steep(of: Given) -> Any:
    t = of.t
    some = (t.RandomInvert(), t.RandomPosterize(4), t.RandomSolarize(100), t.RandomEqualize(), t.RandomAutocontrast())
    functions = (_in_place, _same, _transposed, _part)
    return of.of((*some, t.AutoAugment(), t.TrivialAugmentWide(), t.RandAugment(), *map(t.Lambda, functions)))


def _in_place(sample: Any) -> Any:
    return sample.mul_(2) if isinstance(sample, Tensor) and sample.dtype != torch.bool else sample


def _same(sample: Any) -> Any:
    return sample


def _transposed(sample: Any) -> Any:
    return sample.transpose(-1, -2) if isinstance(sample, Tensor) else sample


def _part(sample: Any) -> Any:
    return sample[..., ::2, 1:] if isinstance(sample, Tensor) else sample


KINDS = (
    Kind(_resize, levels=2),
    Kind(lambda of: of.t.CenterCrop(of.pair())),
    Kind(_crop),
    Kind(
        lambda of: of.t.RandomResizedCrop(
            of.pair(2), scale=of.of(((0.08, 1.0), (0.3, 0.5), (1.0, 1.0))), interpolation=of.mode()
        ),
        levels=2,
    ),
    Kind(lambda of: of.t.RandomHorizontalFlip(of.of((0.0, 0.5, 1.0)))),
    Kind(lambda of: of.t.RandomVerticalFlip(of.of((0.0, 0.5, 1.0)))),
    Kind(lambda of: of.t.Pad(of.padding(), of.fill(), of.border())),
    Kind(_rotation, levels=2),
    Kind(_affine, levels=2),
    Kind(_perspective, levels=2),
    Kind(_dtype, is_steep=True),
    Kind(lambda of: of.t.ToTensor()),
    Kind(lambda of: of.t.PILToTensor()),
    Kind(lambda of: of.t.ToImage()),
    Kind(_normalize, times=5),
    Kind(_container),
    Kind(_other_sizes, levels=2),
    Kind(lambda of: of.t.ToPureTensor(), weight=1),
    Kind(lambda of: of.t.ToPILImage(), weight=1),
    Kind(lambda of: of.t.Identity(), weight=1),
    Kind(lambda of: of.t.ColorJitter(of.of((0, 0.4)), contrast=of.of((0, 0.4))), weight=1, times=3),
    Kind(lambda of: of.of((of.t.Grayscale(3), of.t.Grayscale(1), of.t.RandomGrayscale(0.5))), weight=1),
    Kind(lambda of: of.t.RandomErasing(of.of((0.0, 1.0)), inplace=of.of((True, False))), weight=1),
    Kind(lambda of: of.t.GaussianBlur(3), weight=1),
    Kind(lambda of: of.of((of.t.FiveCrop(16), of.t.TenCrop(16))), weight=1),
    Kind(lambda of: of.t.ElasticTransform(), weight=1, levels=1),
    Kind(_steep, weight=2, is_steep=True),
)


# ---- samples


def tensor(random: Random, dtype: torch.dtype, channels: int) -> Tensor:
    generator = torch.Generator().manual_seed(random.getrandbits(40))
    height, width = random.choice((*SMALL * 10, (0, 5)))
    lead = random.choice(((), (), (), (2,), (1,), (2, 2), (1, 2, 1)))
    shape = (*lead, channels, height, width)
    if dtype.is_floating_point or dtype == torch.bool:
        made = torch.rand(shape, generator=generator, dtype=torch.float64)
        made = made > 0.5 if dtype == torch.bool else made.to(dtype)
    else:
        most = min(torch.iinfo(dtype).max, 2**20) + 1
        made = torch.randint(0, most, shape, generator=generator, dtype=torch.int64).to(dtype)
    match random.choice(("dense", "dense", "last", "sliced", "transposed", "expanded")):
        case "last":
            return made.movedim(-3, -1).contiguous().movedim(-1, -3)
        case "sliced":
            larger = made.repeat(*[1] * len(lead), 1, 2, 2)
            larger[..., ::2, 1 : 1 + width] = made
            return larger[..., ::2, 1 : 1 + width]
        case "transposed":
            return made.transpose(-1, -2).contiguous().transpose(-1, -2)
        case "expanded":
            return made[..., :1, :, :].expand(*lead, channels, height, width)
    return made


def picture(random: Random, mode: str, *, large: bool) -> Any:
    from PIL import Image

    generator = torch.Generator().manual_seed(random.getrandbits(40))
    height, width = random.choice(LARGE if large else SMALL)
    pixels = torch.randint(0, 256, (height, width, 3), generator=generator, dtype=torch.uint8)
    if mode == "I;16":
        return Image.fromarray((pixels[..., 0].to(torch.int32) * 200).to(torch.uint16).numpy())
    return Image.fromarray(pixels.numpy()).convert(mode)


class Sample(NamedTuple):
    """How a sample is made: again and again the same."""

    seed: int
    form: str
    kind: Callable[[Random], Any]

    def make(self) -> Any:
        again = Random(self.seed)
        image = self.kind(again)
        match self.form:
            case "pair":
                return image, 3
            case "dict":
                return {"label": torch.tensor(3), "image": [image, "name"]}
            case "two":
                return image, self.kind(again), image
            case "boxes":
                tv = torchvision("torchvision.tv_tensors")
                size = tuple(image.shape[-2:] if isinstance(image, Tensor) else image.size[::-1])
                boxes = tv.BoundingBoxes(torch.tensor([[1.0, 2, 3, 4]]), format="XYXY", canvas_size=size)
                return {"image": image, "boxes": boxes, "mask": tv.Mask(torch.ones(1, *size, dtype=torch.uint8))}
        return image


def _named(random: Random, name: str, **options: Any) -> Any:
    return getattr(torchvision("torchvision.tv_tensors"), name)(tensor(random, **options))


def draw(random: Random, *, pictures: bool = False) -> Case:
    """`pictures`: nothing but Pillow's."""
    name, is_pillow = random.choice((V1, V2, V2)), pictures or random.random() < 0.4
    large = pictures and random.random() < 0.25
    options: dict[str, Any] = {"dtype": random.choice(DTYPES), "channels": random.choice((3, 3, 3, 1, 4, 2))}
    kind: Callable[[Random], Any] = functools.partial(tensor, **options)
    if is_pillow:
        kind = functools.partial(picture, mode=random.choice(MODES), large=large)
    elif name == V2 and random.random() < 0.4:
        kind = functools.partial(_named, name=random.choice(("Image", "Image", "Image", "Mask")), **options)
    forms = ("alone",) * 4 + ("pair", "dict", "two", "boxes")
    form = random.choice(forms) if name == V2 or random.random() < 0.1 else "alone"
    sample = Sample(random.getrandbits(40), form, kind)
    given = Given(random, name, pillow=is_pillow, large=large)
    steps = [given.step() for _ in range(random.randint(1, 4))]
    whole = given.t.Compose(steps) if random.random() < 0.8 else steps[0] if len(steps) == 1 else steps
    return Case(whole, sample.make, None if given.is_steep else given.rough)


# ---- what is compared


@dataclass
class Seen:
    """lies: of the result's tensors. given, spoilt: the sample after the call, and once the result is written to."""

    result: Any
    lies: list[Tensor]
    warned: list[str]
    later: tuple[float, float]
    given: list[bytes]
    spoilt: list[bytes]


def leaves(sample: Any) -> list[Any]:
    return _pytree.tree_leaves(sample)


def tensors(sample: Any) -> list[Tensor]:
    return [leaf.as_subclass(Tensor) for leaf in leaves(sample) if isinstance(leaf, Tensor)]


def pictures_of(sample: Any) -> list[Any]:
    return [leaf for leaf in leaves(sample) if hasattr(leaf, "getbands")]


def contents(sample: Any) -> list[bytes]:
    as_bytes = [bytes(one.contiguous().view(-1).view(torch.uint8).numpy()) for one in tensors(sample)]
    return as_bytes + [one.tobytes() for one in pictures_of(sample)]


def spoil(sample: Any) -> None:
    for one in tensors(sample):
        if one.numel():
            torch.as_strided(one, (1,), (1,), one.storage_offset()).fill_(3)
    for one in pictures_of(sample):
        if 0 not in one.size:
            one.putpixel((0, 0), 3 if len(one.getbands()) == 1 else (3,) * len(one.getbands()))


def seen(function: Callable[[Any], Any], sample: Any, seed: int) -> Seen:
    torch.manual_seed(seed)
    python_random.seed(seed)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            result = function(sample)
        except Exception as error:
            result = error
    later, given, kept = (torch.rand(1).item(), python_random.random()), contents(sample), result
    if not isinstance(result, Exception):
        kept = _pytree.tree_map(lambda leaf: leaf.clone() if isinstance(leaf, Tensor) else copy.deepcopy(leaf), result)
        spoil(result)
    said = sorted({f"{one.category.__name__}: {str(one.message)[:60]}" for one in warned})
    return Seen(kept, tensors(result), said, later, given, contents(sample))


def wrong_with(case: Case, seed: int) -> Iterator[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fused = polyphase.fuse(case.transform)
    own = functools.partial(_in_turn, case.transform) if isinstance(case.transform, list) else case.transform
    before = contents(case.make())
    for call in range(3):
        theirs, ours = (seen(function, case.make(), seed + call // 2) for function in (own, fused))
        found = list(compared(theirs, ours, case.rough, before))
        if found:
            yield from (f"call {call}: {one}" for one in found)
            return


def _in_turn(transforms: list[Any], sample: Any) -> Any:
    return functools.reduce(lambda made, one: one(made), transforms, sample)


def compared(theirs: Seen, ours: Seen, rough: float | None, before: list[bytes]) -> Iterator[str]:
    expected, found = theirs.result, ours.result
    if isinstance(expected, Exception) or isinstance(found, Exception):
        if not (isinstance(expected, Exception) and isinstance(found, type(expected))):
            yield f"{shown(found)}, torchvision's {shown(expected)}"
        return
    if theirs.warned != ours.warned:
        yield f"warned {ours.warned}, torchvision {theirs.warned}"
    if theirs.later != ours.later:
        yield "other draws"
    if (theirs.given == before) != (ours.given == before):
        yield f"the sample is changed: {ours.given != before}, by torchvision {theirs.given != before}"
    if (theirs.spoilt == theirs.given) != (ours.spoilt == ours.given):
        yield f"memory is shared: {ours.spoilt != ours.given}, torchvision's {theirs.spoilt != theirs.given}"
    one, other = leaves(expected), leaves(found)
    if len(one) != len(other):
        yield f"{len(other)} leaves, torchvision's {len(one)}"
        return
    for a, b in zip(one, other, strict=True):
        yield from of_leaves(a, b, rough)
    for a, b in zip(theirs.lies, ours.lies, strict=True):
        if a.shape == b.shape and a.numel() and not lies_as(b, a):
            yield f"strides {b.stride()} of {tuple(b.shape)}, torchvision's {a.stride()}"


def of_leaves(expected: Any, found: Any, rough: float | None) -> Iterator[str]:
    if type(expected) is not type(found):
        yield f"{type(found)}, torchvision's {type(expected)}"
    elif isinstance(expected, Tensor):
        a, b = expected.as_subclass(Tensor), found.as_subclass(Tensor)
        if (a.shape, a.dtype) != (b.shape, b.dtype):
            yield f"{described(b)}, torchvision's {described(a)}"
        elif rough is not None and a.numel():
            yield from of_values(a, b, rough)
    elif hasattr(expected, "getbands"):
        if (expected.mode, expected.size) != (found.mode, found.size):
            yield f"{described(found)}, torchvision's {described(expected)}"
        elif expected.mode in ("RGB", "L", "RGBA") and 0 not in expected.size and rough is not None:
            a, b = (torch.frombuffer(bytearray(one.tobytes()), dtype=torch.uint8) for one in (expected, found))
            yield from of_values(a, b, rough)
    elif isinstance(expected, (int, float, str)) and expected != found:
        yield f"{found!r}, torchvision's {expected!r}"


#: What rounding alone makes different, of floats.
EPSILON = {torch.float16: 2e-3, torch.bfloat16: 2e-2, torch.float32: 1e-6, torch.float64: 1e-6}


def of_values(expected: Tensor, found: Tensor, rough: float) -> Iterator[str]:
    if expected.dtype == torch.bool:
        if rough == 0 and not torch.equal(expected, found):
            yield "other values"
        return
    a, b = expected.double(), found.double()
    if not torch.equal(a.isfinite(), b.isfinite()):
        yield "not finite elsewhere"
        return
    most = (a - b).abs().nan_to_num(0).max().item()
    greatest = max(a.abs().nan_to_num(0, 0, 0).max().item(), 1.0)
    level = greatest / 255 if expected.dtype.is_floating_point else max(greatest / 255, 1.0)
    allowed = rough * level * 1.01 + EPSILON.get(expected.dtype, 0.0) * greatest
    if most > allowed:
        yield f"values differ by {most}, allowed {allowed}, greatest {greatest}"


def shown(result: Any) -> str:
    return repr(result)[:160] if isinstance(result, Exception) else described(result)[:160]


def case_of(seed: int, number: int, *, pictures: bool) -> Case:
    return draw(Random(f"{seed}.{number}"), pictures=pictures)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--pictures", action="store_true", help="Pillow's alone, of small and of many pixels")
    parser.add_argument("--case", type=int, help="one number, to find again what was found")
    given = parser.parse_args()
    warnings.simplefilter("ignore")  # of transforms that are made; calls are watched
    numbers = range(given.count) if given.case is None else [given.case]
    wrong = 0
    for number in numbers:
        case = case_of(given.seed, number, pictures=given.pictures)
        found = list(wrong_with(case, number))
        wrong += bool(found)
        if found or given.case is not None:
            print(f"{number}: {str(case)[:900]}", *found, sep="\n   ", flush=True)
    print(f"seed {given.seed}: {len(numbers)} pipelines, {wrong} wrong")
    return min(wrong, 1)


if __name__ == "__main__":
    raise SystemExit(main())
