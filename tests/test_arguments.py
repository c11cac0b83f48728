"""Every mistake a call can contain: eager's exception, our message. And what a call that is right means."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import polyphase.functional as P
from polyphase import arguments
from polyphase.errors import (
    NotATensorError,
    NotSupportedError,
    PolyphaseError,
    TooWidePadError,
    WrongArgumentError,
    WrongArgumentTypeError,
    WrongDimensionError,
    WrongSizeError,
)
from polyphase.sampling.axis_maps import AxisMap
from polyphase.sampling.programs import Axes
from polyphase.sampling.steps import Area, Nearest, Pad, Resize, Slice
from tests.support.programs import has_program, program_for
from tests.support.samples import HAS_LANCZOS, Sample, small

EAGER: dict[str, Callable[..., Tensor]] = {"interpolate": F.interpolate, "pad": F.pad, "flip": torch.flip}
OURS: dict[str, Callable[..., Tensor]] = {"interpolate": P.interpolate, "pad": P.pad, "flip": P.flip, "crop": P.crop}

LINE, IMAGE, VOLUME = torch.rand(2, 3, 8), torch.rand(2, 3, 8, 9), torch.rand(2, 3, 4, 5, 6)
BYTES, INTEGERS = IMAGE.byte(), IMAGE.long()


class Mistake(NamedTuple):
    """A call that must fail. `says`: what the message holds, something seen and something of the fix."""

    function: str
    image: Any
    arguments: tuple[Any, ...]
    options: dict[str, Any]
    says: tuple[str, ...]

    def call(self, functions: dict[str, Callable[..., Tensor]]) -> BaseException:
        with pytest.raises(Exception) as caught:  # noqa: PT011
            functions[self.function](self.image, *self.arguments, **self.options)
        return caught.value


def resize(image: Any, *says: str, **options: Any) -> Mistake:
    return Mistake("interpolate", image, (), options, says)


def pad(image: Any, amounts: Any, *says: str, **options: Any) -> Mistake:
    return Mistake("pad", image, (amounts,), options, says)


def flip(image: Any, dims: Any, *says: str) -> Mistake:
    return Mistake("flip", image, (dims,), {}, says)


AS_EAGER = [
    # interpolate: the mode.
    resize(IMAGE, "'sharp'", "choose one of", size=4, mode="sharp"),
    resize(IMAGE, "'sharp'", "choose one of", size=4, mode="sharp", antialias=True),
    resize(LINE, "3-dimensional", "use nearest or nearest-exact or area or linear", size=4, mode="bilinear"),
    resize(LINE, "3-dimensional", "or linear", size=4, mode="trilinear"),
    resize(LINE, "'bicubic'", "or linear", size=4, mode="bicubic"),
    resize(IMAGE, "4-dimensional", "bilinear or bicubic", size=4, mode="linear"),
    resize(VOLUME, "5-dimensional", "trilinear", size=4, mode="bilinear"),
    resize(LINE, "3-dimensional", "linear", size=4, mode="bilinear", antialias=True),
    resize(torch.rand(8, 9), "2-dimensional", "unsqueeze", size=4),
    resize(torch.rand(1, 1, 1, 1, 1, 1), "6-dimensional", "flatten", size=4),
    resize(IMAGE, "align_corners=False", "'nearest'", "leave it out", size=4, align_corners=False),
    resize(IMAGE, "align_corners=True", "'area'", "leave it out", size=4, mode="area", align_corners=True),
    resize(IMAGE, "antialias=True", "'nearest'", "bilinear", size=4, antialias=True),
    resize(IMAGE, "antialias=True", "'area'", "bilinear", size=4, mode="area", antialias=True),
    resize(IMAGE, "['bilinear']", "choose one of", size=4, mode=["bilinear"]),
    resize(IMAGE, "None", "choose one of", size=4, mode=None),
    resize(IMAGE, "['bilinear']", "choose one of", size=4, mode=["bilinear"], antialias=True),
    resize(IMAGE, "align_corners='yes'", "str", "True, False or None", size=4, mode="bilinear", align_corners="yes"),
    resize(IMAGE, "align_corners=1", "int", "True, False or None", size=4, mode="bilinear", align_corners=1),
    resize(IMAGE, "align_corners=[]", "list", "True, False or None", size=4, mode="bilinear", align_corners=[]),
    # interpolate: the size.
    resize(IMAGE, "neither", "give one"),
    resize(IMAGE, "size=4", "scale_factor", "the one or the other", size=4, scale_factor=2.0),
    resize(IMAGE, "size=4", "recompute_scale_factor", size=4, recompute_scale_factor=True),
    resize(IMAGE, "size=(4, 4, 4)", "(2, 3, 8, 9)", "give 2 numbers", size=(4, 4, 4)),
    resize(IMAGE, "scale_factor=(2.0,)", "give 2 numbers", scale_factor=(2.0,)),
    resize(torch.rand(8, 9), "size=(4, 4)", "(8, 9)", "unsqueeze", size=(4, 4)),
    resize(torch.tensor(1.0), "size=(4,)", "()", "unsqueeze", size=(4,)),
    resize(IMAGE, "(0, 0)", "at least 1", size=0),
    resize(IMAGE, "(-1, 3)", "at least 1", size=(-1, 3), mode="bilinear"),
    resize(IMAGE, "(0, 3)", "at least 1", size=[0, 3], mode="bilinear", antialias=True),
    resize(IMAGE, "(-2, -2)", "at least 0", size=-2, mode="area"),
    resize(IMAGE, "(0, 0)", "larger size or scale_factor", scale_factor=0.01, mode="bicubic"),
    resize(IMAGE, "(-8, -9)", "at least 1", scale_factor=-1.0),
    resize(IMAGE, "nan", "finite", scale_factor=float("nan")),
    resize(IMAGE, "inf", "finite", scale_factor=float("inf"), mode="bilinear"),
    resize(IMAGE, "scale_factor has", "greatest float", scale_factor=10**400),
    resize(IMAGE, "scale_factor 1e+308", "8 pixels", "a smaller one", scale_factor=1e308),
    resize(IMAGE, "4.5", "float", "integer", size=4.5),
    resize(IMAGE, "4.0", "float", "integer", size=(4.0, 4)),
    resize(IMAGE, "True", "bool", "integer", size=True),
    resize(IMAGE, "'4'", "str", "integer", size="4"),
    resize(IMAGE, "tensor([4, 5])", "integer", size=torch.tensor([4, 5])),
    resize(IMAGE, "'2'", "str", "a number", scale_factor="2"),
    resize(IMAGE, "tensor(2.)", "a number", scale_factor=torch.tensor(2.0)),
    # interpolate: the image.
    resize(torch.rand(2, 3, 0, 9), "(2, 3, 0, 9)", "at least one", size=4),
    resize(torch.rand(2, 3, 0, 9), "(2, 3, 0, 9)", "at least one", size=4, mode="area"),
    resize(torch.rand(2, 0, 8, 9), "(2, 0, 8, 9)", "at least one", size=4, mode="bilinear"),
    resize(INTEGERS, "int64", "cast", size=4, mode="bilinear"),
    resize(INTEGERS, "int64", "cast", size=4, mode="area"),
    resize(IMAGE.bool(), "bool", "cast", size=4, mode="bicubic"),
    resize(IMAGE.to(torch.complex64), "complex64", "cast", size=4, mode="bilinear", antialias=True),
    resize((1.0,), "tuple", "torch.as_tensor", size=4),
    resize(IMAGE.numpy(), "ndarray", "torch.from_numpy", size=4),
    resize(None, "NoneType", "torch.Tensor", size=4),
    # pad.
    pad(IMAGE, (1, 1, 1), "(1, 1, 1)", "two for every axis"),
    pad(IMAGE, (1, 1, 1), "(1, 1, 1)", "two for every axis", mode="reflect"),
    pad(IMAGE, (1,) * 10, "5 axes", "at most 8 numbers"),
    pad(IMAGE, (1,) * 8, "reflect pad of 4 axes", "4 for 3 or 4", mode="reflect"),
    pad(IMAGE, (1, 1), "4-dimensional", "4 for 3 or 4", mode="circular"),
    pad(IMAGE[0, 0, 0], (1, 1), "1-dimensional", "2 numbers for 2 or 3", mode="replicate"),
    pad(IMAGE, (), "0 axes", "4 for 3 or 4", mode="reflect"),
    pad(IMAGE, (9, 0, 0, 0), "(9, 0)", "at most 8", "'replicate'", mode="reflect"),
    pad(IMAGE, (0, 0, 0, 9), "(0, 9)", "8 pixels", "at most 8", mode="circular"),
    pad(IMAGE, (-5, -5), "(-5, -5)", "at most 9"),
    pad(IMAGE, (-10, 3), "(-10, 3)", "at most 9"),
    pad(IMAGE, (-5, -5, 0, 0), "(-5, -5)", "at most 9", mode="replicate"),
    pad(IMAGE, (-5, -5, 0, 0), "(-5, -5)", "at most 9", mode="reflect"),
    pad(IMAGE, (-5, -5, 0, 0), "(-5, -5)", "at most 9", mode="circular"),
    pad(torch.rand(2, 3, 0, 9), (1, 1, 0, 0), "(2, 3, 0, 9)", "'constant'", mode="replicate"),
    pad(torch.rand(2, 3, 0, 9), (1, 1, 1, 1), "(2, 3, 0, 9)", "'constant'", mode="reflect"),
    pad(torch.rand(0, 8, 9), (1, 1, 0, 0), "(0, 8, 9)", "'constant'", mode="reflect"),
    pad(IMAGE, (1, 1), "'mirror'", "choose one of", mode="mirror"),
    pad(IMAGE, (1, 1), "3", "int", "a string", mode=3),
    pad(IMAGE, 1, "pad=1", "int", "tuple or list"),
    pad(IMAGE, None, "None", "tuple or list"),
    pad(IMAGE, (1.0, 1), "1.0", "float", "integer"),
    pad(IMAGE, (True, 1), "True", "bool", "integer"),
    pad(IMAGE, (1, 1, 1, 1), "value=2.0", "leave it out", mode="reflect", value=2.0),
    pad(IMAGE, (1, 1), "'a'", "str", "a number", value="a"),
    pad(IMAGE, (1, 1), "1j", "complex", "a number", value=1j),
    pad(BYTES, (1, 1), "300", "uint8", "from 0 to 255", value=300),
    pad(BYTES, (1, 1), "-1", "uint8", "from 0 to 255", value=-1),
    pad(BYTES, (1, 1), "nan", "uint8", "from 0 to 255", value=float("nan")),
    pad(IMAGE.half(), (1, 1), "1000000.0", "float16", "65504", value=1e6),
    pad([1.0], (1, 1), "list", "torch.as_tensor"),
    # flip.
    flip(IMAGE, (1, 1), "dims=(1, 1)", "once"),
    flip(IMAGE, (1, -3), "dims=(1, -3)", "once"),
    flip(IMAGE, (4,), "dimension 4", "from -4 to 3"),
    flip(IMAGE, (-5,), "dimension -5", "from -4 to 3"),
    flip(torch.tensor(1.0), (1,), "dimension 1", "from -1 to 0"),
    flip(IMAGE, 1, "dims=1", "tuple or list"),
    flip(IMAGE, None, "None", "tuple or list"),
    flip(IMAGE, (1.0,), "1.0", "float", "integer"),
    flip(IMAGE, (True,), "True", "bool", "integer"),
    flip([1.0], (0,), "list", "torch.as_tensor"),
]
if HAS_LANCZOS:
    AS_EAGER += [
        resize(IMAGE, "'lanczos'", "antialias=True", size=4, mode="lanczos"),
        resize(IMAGE, "align_corners=True", "leave it out", size=4, mode="lanczos", antialias=True, align_corners=True),
    ]

OUR_OWN: list[tuple[type[PolyphaseError], Mistake]] = [
    (WrongArgumentError, resize(IMAGE, "'box'", "antialias=True", size=4, mode="box")),
    (WrongArgumentError, resize(LINE, "'hamming'", "antialias=True", size=4, mode="hamming")),
    (WrongArgumentError, resize(IMAGE, "leave it out", size=4, mode="box", antialias=True, align_corners=True)),
    (NotSupportedError, resize(IMAGE.to_sparse(), "sparse", "images on cpu", size=4, mode="hamming", antialias=True)),
    (WrongSizeError, pad(IMAGE, (-9, 3, 0, 0), "(-9, 3)", "at most 9", mode="circular")),
    (TooWidePadError, pad(IMAGE, (0, 0, 0, 9), "(0, 9)", "8 pixels", "at most 8", mode="symmetric")),
    (WrongArgumentError, Mistake("crop", IMAGE, (0, 0, -1, 4), {}, ("height -1", "not be negative"))),
    (WrongArgumentError, Mistake("crop", IMAGE[0, 0, 0], (0, 0, 1, 4), {}, ("(9,)", "two dimensions"))),
    (WrongArgumentTypeError, Mistake("crop", IMAGE, ("a", 0, 1, 4), {}, ("'a'", "str", "integer"))),
    (WrongArgumentTypeError, Mistake("crop", IMAGE, (0, 0, 1.5, 4), {}, ("1.5", "float", "integer"))),
    (WrongArgumentTypeError, Mistake("crop", IMAGE, (0, None, 1, 4), {}, ("None", "integer"))),
    (WrongArgumentTypeError, resize(IMAGE, "'warn'", "True, False or None", size=4, mode="bilinear", antialias="warn")),
    (WrongArgumentTypeError, resize(IMAGE, "[]", "True, False or None", size=4, mode="bilinear", antialias=[])),
    (WrongArgumentTypeError, resize(IMAGE, "2", "True", scale_factor=2.0, recompute_scale_factor=2)),
    (
        WrongArgumentTypeError,
        resize(IMAGE, "tensor([2., 2.])", scale_factor=torch.tensor([2.0, 2.0]), recompute_scale_factor=True),
    ),
    (WrongArgumentTypeError, pad(IMAGE, (1, 1), "value has", "greatest float", value=10**400)),
    (WrongArgumentTypeError, pad(IMAGE, (1, 1), "tensor([1, 2])", "a number", value=torch.tensor([1, 2]))),
    (NotATensorError, Mistake("crop", (1.0,), (0, 0, 1, 4), {}, ("tuple", "torch.as_tensor"))),
]


def label(mistake: Mistake) -> str:
    return f"{mistake.function}: {' ... '.join(mistake.says)}"


@pytest.mark.parametrize("mistake", AS_EAGER, ids=map(label, AS_EAGER))
def test_mistakes_raise_eagers_exception_with_our_message(mistake: Mistake) -> None:
    theirs, ours = mistake.call(EAGER), mistake.call(OURS)
    assert type(theirs) in type(ours).__bases__, f"{type(ours).__mro__} for {theirs!r}"
    assert isinstance(ours, PolyphaseError)
    for words in mistake.says:
        assert words in str(ours), str(ours)


@pytest.mark.parametrize(("error", "mistake"), OUR_OWN, ids=[label(mistake) for _, mistake in OUR_OWN])
def test_mistakes_eager_does_not_know(error: type[PolyphaseError], mistake: Mistake) -> None:
    ours = mistake.call(OURS)
    assert type(ours) is error
    for words in mistake.says:
        assert words in str(ours), str(ours)


def test_a_mistake_raises_the_same_where_a_gradient_is_recorded() -> None:
    """The operators have the same checks as the short way to the kernels."""
    for mistake in AS_EAGER:
        if isinstance(mistake.image, Tensor) and mistake.image.is_floating_point():
            recorded = mistake._replace(image=mistake.image.clone().requires_grad_())
            plain, through_the_operator = mistake.call(OURS), recorded.call(OURS)
            assert (type(through_the_operator), str(through_the_operator)) == (type(plain), str(plain))


@pytest.mark.parametrize(
    ("error", "builtin"),
    [
        (WrongArgumentError, ValueError),
        (WrongArgumentTypeError, TypeError),
        (NotATensorError, TypeError),
        (NotATensorError, AttributeError),
        (WrongSizeError, RuntimeError),
        (WrongDimensionError, IndexError),
        (NotSupportedError, NotImplementedError),
    ],
)
def test_errors_are_eagers_too(error: type[Exception], builtin: type[Exception]) -> None:
    with pytest.raises(builtin):
        raise error("no")


def maps_of(sample: Sample) -> tuple[AxisMap, ...]:
    """Our maps of a sample's call, for all its spatial axes."""
    given = sample.kwargs
    if sample.operator == "flip":
        maps = arguments.flip_maps(len(sample.shape), given["dims"])
    elif sample.operator == "pad":
        maps = arguments.pad_maps(sample.shape, given["pad"], given["mode"])
    else:
        names = ("size", "scale_factor", "mode", "align_corners", "recompute_scale_factor")
        options: dict[str, Any] = {name: given.get(name) for name in names}
        maps = arguments.resize_maps(sample.shape, sample.dtype, **options, antialias=sample.antialias)
    return (AxisMap(()),) * (sample.axes - len(maps)) + maps


def test_maps_are_those_of_the_samples() -> None:
    """`tests/support/programs.py` is a second account of what a call means."""
    checked = 0
    for sample in small():
        if sample.operator in ("interpolate", "flip", "pad") and has_program(sample):
            sampler = program_for(sample).sampler
            assert isinstance(sampler, Axes)
            assert maps_of(sample) == sampler.maps, sample
            checked += 1
    assert checked > 300


def steps(shape: tuple[int, ...], dtype: torch.dtype = torch.float32, **options: Any) -> list[object]:
    defaults = {"size": None, "scale_factor": None, "mode": "bilinear", "align_corners": None}
    given = {**defaults, "recompute_scale_factor": None, "antialias": False, **options}
    maps = arguments.resize_maps(shape, dtype, **given)
    return [axis_map.steps[0] for axis_map in maps]


def test_where_a_scale_factor_is_kept() -> None:
    shape = (1, 1, 10, 21)
    assert steps(shape, scale_factor=0.55) == [Resize(5, "bilinear", scale=0.55), Resize(11, "bilinear", scale=0.55)]
    assert steps(shape, scale_factor=(2, 1.5), mode="nearest") == [Nearest(20, scale=2.0), Nearest(31, scale=1.5)]
    recomputed = steps(shape, scale_factor=0.55, recompute_scale_factor=True)
    assert recomputed == steps(shape, size=(5, 11)) == [Resize(5, "bilinear"), Resize(11, "bilinear")]
    assert steps(shape, scale_factor=0.55, mode="area") == [Area(5), Area(11)]


def test_numbers_of_every_kind() -> None:
    wanted = steps((1, 1, 8, 9), size=(4, 5))
    numpy = pytest.importorskip("numpy")
    for size in ([4, 5], torch.Size([4, 5]), (numpy.int64(4), 5), (torch.tensor(4), torch.tensor(5))):
        assert steps((1, 1, 8, 9), size=size) == wanted
    assert steps((1, 1, 8, 9), size=numpy.int32(4)) == steps((1, 1, 8, 9), size=torch.tensor(4))
    for scale in (2, 2.0, numpy.float32(2), [2, 2.0]):
        assert steps((1, 1, 8, 9), scale_factor=scale) == steps((1, 1, 8, 9), scale_factor=(2.0, 2.0))
    assert steps((1, 1, 8), scale_factor=torch.tensor(2.0), mode="area") == [Area(16)]
    assert arguments.pad_amounts([1, numpy.int64(2), torch.tensor(3), 4]) == (1, 2, 3, 4)
    assert arguments.flip_maps(2, [numpy.int64(-1)]) == arguments.flip_maps(2, (1,))


def test_a_cache_does_not_take_for_an_integer_what_equals_one() -> None:
    assert P.interpolate(IMAGE, (1, 4)).shape == (2, 3, 1, 4)
    for size in ((1, 4.0), (True, 4)):
        with pytest.raises(TypeError):
            P.interpolate(IMAGE, size)  # type: ignore[arg-type]
    tensor = torch.tensor(4)
    assert P.interpolate(IMAGE, (1, tensor)).shape[3] == 4  # type: ignore[arg-type]
    tensor += 1
    assert P.interpolate(IMAGE, (1, tensor)).shape[3] == 5  # type: ignore[arg-type]


def test_area_to_nothing_is_empty_as_in_eager() -> None:
    assert steps((1, 1, 8, 9), size=(0, 3), mode="area") == [Slice(0, 0), Area(3)]
    for size in ((0, 3), 0):
        assert P.interpolate(IMAGE, size, mode="area").shape == F.interpolate(IMAGE, size, mode="area").shape


def test_pads_begin_with_the_last_axis() -> None:
    maps = arguments.pad_maps((2, 3, 8, 9), (1, 2, 3, -4), "constant")
    assert maps == (AxisMap((Pad(3, -4, "constant", 1),)), AxisMap((Pad(1, 2, "constant", 1),)))
    assert arguments.pad_maps((2, 3, 8, 9), (), "constant") == ()


@pytest.mark.parametrize(
    ("value", "dtype", "border"),
    [
        (None, torch.uint8, 0),
        (3.7, torch.uint8, 3),
        (-7.9, torch.int64, -7),
        (0.5, torch.bool, True),
        (2, torch.float32, 2.0),
        (torch.tensor(2.5), torch.float16, 2.5),
        (float("inf"), torch.float16, float("inf")),
        (1.5, torch.complex64, 1.5),
    ],
)
def test_border_values(value: Any, dtype: torch.dtype, border: object) -> None:
    got = arguments.border_value(value, "constant", dtype, (1, 1))
    assert (got, type(got)) == (border, type(border))
    image = torch.ones(1, 1, 2, 2).to(dtype)
    assert torch.equal(P.pad(image, (1, 1), value=value), F.pad(image, (1, 1), value=value))


def test_a_value_that_fills_nothing_is_not_checked() -> None:
    """As in eager."""
    assert torch.equal(P.pad(BYTES, (-1, 0), value=300), F.pad(BYTES, (-1, 0), value=300))
    assert P.pad(IMAGE, (1, 1, 1, 1), mode="reflect", value=0).shape == (2, 3, 10, 11)
