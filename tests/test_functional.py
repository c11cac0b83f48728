"""The functional API against eager, and what it has beyond."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import polyphase.functional as P
from polyphase import accelerate
from polyphase.ops import whole_calls
from polyphase.sampling import reference
from polyphase.sampling.axis_maps import AxisMap
from polyphase.sampling.programs import Axes, Program
from polyphase.sampling.steps import Area, Nearest, Resize, Step
from polyphase.torch_versions import ROUNDS_LINEAR_POSITIONS_ONCE
from tests.support.samples import DTYPES, PAD_MODES, PIXELS, Sample, image, small

OURS: dict[str, Callable[..., Tensor]] = {"interpolate": P.interpolate, "flip": P.flip, "pad": P.pad}
THROUGH_OPERATORS: dict[str, Callable[..., Tensor]] = {
    "interpolate": lambda x, size=None, scale_factor=None, mode="nearest", align_corners=None, **more: (
        whole_calls.interpolate(
            x, size, scale_factor, mode, align_corners, more.get("recompute_scale_factor"), more.get("antialias", False)
        )
    ),
    "flip": whole_calls.flip,
    "pad": whole_calls.pad,
}
SAMPLES = [sample for sample in small() if sample.operator in OURS]
HALF = (torch.float16, torch.bfloat16)


def is_index_only(sample: Sample) -> bool:
    return sample.operator != "interpolate" or "nearest" in str(sample.mode)


def grouped(samples: list[Sample]) -> dict[str, list[Sample]]:
    groups = defaultdict(list)
    for sample in samples:
        groups[f"{sample.operator}-{sample.mode}{'-aa' * sample.antialias}-{DTYPES[sample.dtype]}"].append(sample)
    return dict(groups)


GROUPS = grouped(SAMPLES)


def strides_may_differ(sample: Sample) -> bool:
    """Ours are channels last wherever the image is, and contiguous wherever it is not."""
    channels_last = sample.layout.endswith("CL")
    if sample.mode == "area":  # eager: contiguous in 3-D, and in 1-D by what the image looks like with an axis more
        return (sample.axes == 3 and channels_last) or (sample.axes == 1 and sample.layout == "transposed")
    if sample.mode == "circular":  # eager: always contiguous
        return channels_last
    only_crops = sample.operator == "pad" and max(sample.kwargs["pad"]) <= 0  # eager: a clone of a view
    return only_crops and sample.mode == "constant"


@pytest.mark.parametrize("group", GROUPS)
def test_equal_to_eager(group: str) -> None:
    for sample in GROUPS[group]:
        got, eager = OURS[sample.operator](sample.input, **sample.kwargs), sample.eager()
        assert (got.dtype, got.shape) == (eager.dtype, eager.shape), sample
        if not strides_may_differ(sample):
            assert got.stride() == eager.stride(), sample
        if not sample.eager_is_right:
            continue
        if is_index_only(sample) or sample.dtype == torch.uint8:
            assert torch.equal(got, eager), sample
        elif sample.dtype in HALF:
            in_float32 = OURS[sample.operator](sample.input.float(), **sample.kwargs)
            torch.testing.assert_close(got, in_float32.to(got.dtype), msg=str(sample))
        else:
            torch.testing.assert_close(got, eager, msg=str(sample))


@pytest.mark.parametrize("group", GROUPS)
def test_operators_give_what_the_short_way_gives(group: str) -> None:
    for sample in GROUPS[group]:
        got = THROUGH_OPERATORS[sample.operator](sample.input, **sample.kwargs)
        short = OURS[sample.operator](sample.input, **sample.kwargs)
        assert torch.equal(got, short), sample
        assert got.stride() == short.stride(), sample
        without_data = OURS[sample.operator](sample.input.to("meta"), **sample.kwargs)
        assert (without_data.shape, without_data.stride()) == (short.shape, short.stride()), sample


@pytest.mark.parametrize(
    "group", [group for group in GROUPS if GROUPS[group][0].dtype in (torch.float64, torch.complex128)]
)
def test_the_backward_is_the_adjoint(group: str) -> None:
    """<A x, y> = <x, A* y>, for a linear A: with no constant border but 0."""
    generator = torch.Generator().manual_seed(1)
    for sample in GROUPS[group]:
        given = {**sample.kwargs, "value": None} if sample.operator == "pad" else sample.kwargs
        x = sample.input.requires_grad_()
        result = OURS[sample.operator](x, **given)
        y = torch.rand(result.shape, generator=generator, dtype=torch.float64).to(sample.dtype)
        (back,) = torch.autograd.grad(result, x, y)
        torch.testing.assert_close((result.conj() * y).sum(), (x.conj() * back).sum(), msg=str(sample))


SMOOTH = [
    {"size": (5, 13), "mode": "bilinear"},
    {"size": (5, 13), "mode": "bilinear", "align_corners": True},
    {"size": (5, 13), "mode": "bicubic", "antialias": True},
    {"size": (5, 13), "mode": "area"},
    {"size": (16, 18), "mode": "nearest"},
    {"scale_factor": 0.7, "mode": "bilinear", "antialias": True},
]


@pytest.mark.parametrize("given", SMOOTH, ids=str)
@pytest.mark.parametrize("layout", ["CF", "CL", "sliced"])
def test_gradients_are_eagers(given: dict[str, Any], layout: str) -> None:
    x = image((2, 3, 8, 9), torch.float64, layout)
    ours, eager = (gradient(partial(function, **given), x) for function in (P.interpolate, F.interpolate))
    torch.testing.assert_close(ours, eager)


@pytest.mark.parametrize("mode", PAD_MODES)
def test_gradients_of_pads_are_eagers(mode: str) -> None:
    x, value = image((2, 3, 8, 9), torch.complex128), 2.0 if mode == "constant" else None
    given: dict[str, Any] = {"pad": (3, -2, 0, 4), "mode": mode, "value": value}
    ours, eager = (gradient(partial(function, **given), x) for function in (P.pad, F.pad))
    torch.testing.assert_close(ours, eager)


def gradient(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    x = x.detach().requires_grad_()
    result = function(x)
    weight = torch.rand(result.shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    return torch.autograd.grad(result, x, weight.to(result.dtype))[0]


def test_gradients_lie_in_memory_as_eagers_do() -> None:
    modes = (("bilinear", False), ("bilinear", True), ("bicubic", True), ("bicubic", False), ("nearest", False))
    for (mode, antialias), order in itertools.product(
        (*modes, ("area", False)), (torch.contiguous_format, torch.channels_last)
    ):
        x = torch.rand(2, 3, 8, 9).contiguous(memory_format=order).requires_grad_()
        strides = []
        for function in (P.interpolate, F.interpolate):
            result = function(x, (5, 6), mode=mode, antialias=antialias)
            incoming = torch.rand_like(result).to(memory_format=torch.channels_last)
            strides.append(torch.autograd.grad(result, x, incoming)[0].stride())
        assert strides[0] == strides[1], (mode, antialias, order)


def by_reference(x: Tensor, *steps: Step) -> Tensor:
    maps = tuple(AxisMap((step,)) for step in steps)
    return reference.run(Program(x.dtype, Axes(maps)), x).to(x.dtype)


@pytest.mark.parametrize("dtype", PIXELS, ids=str)
@pytest.mark.parametrize("axes", [1, 2, 3])
def test_antialiased_beyond_eager(dtype: torch.dtype, axes: int) -> None:
    """Filters, ranks and dtypes that eager has no kernel for."""
    x, size = image((2, 3, 17, 9, 6)[: axes + 2], dtype), (7, 12, 4)[:axes]
    linear = ("linear", "bilinear", "trilinear")[axes - 1]
    close: dict[str, Any] = (
        {"rtol": 1e-4, "atol": 1e-4} if dtype == torch.float32 else {}
    )  # its coordinates are eager's, not exact
    for mode in ("lanczos", "hamming", "box", linear, *(["bicubic"] if axes == 2 else [])):
        filter = "bilinear" if mode == linear else mode
        got = P.interpolate(x, size, mode=mode, antialias=True)
        wanted = by_reference(x, *(Resize(n, filter, antialias=True) for n in size))
        torch.testing.assert_close(got, wanted, **close)


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_uint8_in_modes_that_eager_has_for_floats_only(axes: int) -> None:
    x, size = image((2, 3, 17, 9, 6)[: axes + 2], torch.uint8), (7, 12, 4)[:axes]
    linear = ("linear", "bilinear", "trilinear")[axes - 1]
    assert torch.equal(P.interpolate(x, size, mode="area"), by_reference(x, *map(Area, size)))
    assert torch.equal(P.interpolate(x, size, mode=linear), by_reference(x, *(Resize(n, "bilinear") for n in size)))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_nearest_and_pads_move_every_dtype(dtype: torch.dtype) -> None:
    x = image((2, 3, 8, 9), dtype)
    assert torch.equal(P.interpolate(x, (5, 13)), reference.run(nearest(dtype), x))
    for mode in ("reflect", "replicate"):
        indices = P.pad(torch.arange(9).expand(1, 8, 9), (2, 1, 0, 0), mode)[0, 0]
        assert torch.equal(P.pad(x, (2, 1, 0, 0), mode), x[..., indices])


def nearest(dtype: torch.dtype) -> Program:
    return Program(dtype, Axes((AxisMap((Nearest(5),)), AxisMap((Nearest(13),)))))


def test_flip_of_many_dimensions() -> None:
    x = torch.rand(2, 3, 2, 4, 2, 3, 2)
    for dims in ((0, 1, 2, 3, 4, 5, 6), (0,), (-1, 2), ()):
        got = P.flip(x, dims)
        assert torch.equal(got, torch.flip(x, dims))
        assert got.data_ptr() != x.data_ptr()


def test_scalars_and_nothing() -> None:
    assert torch.equal(P.flip(torch.tensor(3), (0,)), torch.tensor(3))
    assert P.pad(torch.rand(1, 3, 0, 8), (1, 1, 1, 1), value=2.0).eq(2).all()
    assert P.interpolate(torch.rand(0, 3, 8, 9), 4, mode="bilinear").shape == (0, 3, 4, 4)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_autocast_gives_eagers_dtypes(dtype: torch.dtype) -> None:
    images = {axes: torch.rand(1, 2, *[4] * axes).to(dtype) for axes in (1, 2, 3)}
    linear = {1: "linear", 2: "bilinear", 3: "trilinear"}
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for axes, x in images.items():
            for mode in ("nearest", "nearest-exact", "area", linear[axes]):
                assert P.interpolate(x, 3, mode=mode).dtype == F.interpolate(x, 3, mode=mode).dtype, (mode, axes)
            for mode in PAD_MODES:
                amounts = [1] * (2 * axes)
                assert P.pad(x, amounts, mode).dtype == F.pad(x, amounts, mode).dtype, (mode, axes)
            assert P.flip(x, (-1,)).dtype == dtype
        assert P.interpolate(images[2], 3, mode="bilinear", antialias=True).dtype == dtype


def window(x: Tensor, top: int, left: int, height: int, width: int) -> Tensor:
    """The crop, pixel by pixel."""
    result = x.new_zeros(*x.shape[:-2], height, width)
    for i, j in itertools.product(range(height), range(width)):
        if 0 <= top + i < x.shape[-2] and 0 <= left + j < x.shape[-1]:
            result[..., i, j] = x[..., top + i, left + j]
    return result


def test_crop_is_a_view_within_the_image_and_zero_outside() -> None:
    x = torch.rand(2, 3, 4, 5) + 1
    within = P.crop(x, 1, 2, 3, 2)
    assert torch.equal(within, x[..., 1:4, 2:4])
    assert within.data_ptr() == x[..., 1:4, 2:4].data_ptr()
    assert P.crop(x, 4, 5, 0, 0).shape == (2, 3, 0, 0)
    for top, left in itertools.product((-9, -4, -2, 0, 3, 4, 11), (-8, -3, 0, 2, 5, 9)):
        for height, width in ((1, 1), (3, 4), (9, 12)):
            asked = (top, left, height, width)
            assert torch.equal(P.crop(x, *asked), window(x, *asked)), asked
    assert torch.equal(P.crop(x[0, 0], -1, -1, 6, 7), window(x[0, 0], -1, -1, 6, 7))


class Logged(Tensor):
    calls: list[Any] = []  # noqa: RUF012

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        cls.calls.append(func)
        return super().__torch_function__(func, types, args, kwargs or {})  # type: ignore[no-untyped-call]


def test_subclasses_see_the_call_and_come_back() -> None:
    x = torch.rand(1, 3, 4, 5)
    for function, more in ((P.interpolate, (3,)), (P.flip, ((-1,),)), (P.pad, ((1, 1),))):
        Logged.calls.clear()
        got = function(x.as_subclass(Logged), *more)
        assert function in Logged.calls
        assert isinstance(got, Logged)
        assert torch.equal(got.as_subclass(Tensor), function(x, *more))


@pytest.mark.filterwarnings("ignore:.*quantize")
def test_what_we_have_no_kernels_for_is_eagers() -> None:
    quantised = torch.quantize_per_tensor(torch.rand(1, 3, 4, 5), 0.1, 0, torch.quint8)
    for ours, eager, more in (
        (P.interpolate, F.interpolate, (3,)),
        (P.flip, torch.flip, ((-1,),)),
        (P.pad, F.pad, ((1, 1, 1, 1), "reflect")),
    ):
        got, wanted = (f(quantised, *more) for f in (ours, eager))
        assert got.dtype == torch.quint8
        assert torch.equal(got.int_repr(), wanted.int_repr())
    with pytest.raises(NotImplementedError):
        P.interpolate(torch.rand(1, 3, 4, 5).to_sparse(), 3)


def test_lazy_negation_and_conjugation() -> None:
    x = torch.complex(torch.rand(1, 2, 4, 5), torch.rand(1, 2, 4, 5)).conj()
    assert torch.equal(P.flip(x, (-1,)), torch.flip(x, (-1,)))
    assert x.imag.is_neg()
    torch.testing.assert_close(P.interpolate(x.imag, 3, mode="bilinear"), F.interpolate(x.imag, 3, mode="bilinear"))


def test_inference_mode() -> None:
    with torch.inference_mode():
        assert P.interpolate(torch.rand(1, 3, 4, 5), 3).is_inference()


def test_default_device() -> None:
    """A function mode, which every call passes through."""
    x = torch.rand(1, 3, 4, 5)
    with torch.device("cpu"):
        assert torch.equal(P.interpolate(x, 3), F.interpolate(x, 3))


def odd_pictures(dtype: torch.dtype) -> list[Tensor]:
    """As they come from arrays of (height, width, channels), and with gaps between pixels."""
    wide = torch.randint(0, 256, (70, 160, 4), generator=torch.Generator().manual_seed(0)).to(dtype)
    return [
        wide[..., :3].contiguous().permute(2, 0, 1)[None],
        wide[..., 0].contiguous()[None, None, :, ::2],
        wide[..., :3].permute(2, 0, 1)[None],
        wide.permute(2, 1, 0)[None],
    ]


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_pixels_that_do_not_lie_side_by_side(dtype: torch.dtype) -> None:
    positions = 2 * (160 + 160) * 2**-24 * 255  # of pixels from 0 to 255, where eager rounds them twice
    by_rounding: dict[str, Any] = {}
    if dtype.is_floating_point and not ROUNDS_LINEAR_POSITIONS_ONCE:
        by_rounding = {"rtol": 0, "atol": positions}
    for picture in odd_pictures(dtype):
        for size in ((9, 12), (30, 200), (130, 300)):
            for mode in ("bilinear", "nearest"):
                ours, eager = (function(picture, size, mode=mode) for function in (P.interpolate, F.interpolate))
                torch.testing.assert_close(ours, eager, **by_rounding)
                assert ours.stride() == eager.stride()
        for dims in ((-1,), (-2,)):
            assert torch.equal(P.flip(picture, dims), picture.flip(dims))
        assert torch.equal(P.pad(picture, (1, 2, 3, 4)), F.pad(picture, (1, 2, 3, 4)))


def test_pads_that_are_like_the_one_before() -> None:
    """What is remembered of the latest call must not be taken for another."""
    whole = torch.rand(1, 2, 5, 6)
    values = (0.0, -0.0, 0, 1, True, None, 2.5, 2.5)
    for value, amounts in itertools.product(values, ((1, 2, 3, 1), (1, 2), [1, 2, 3, 1])):
        for picture in (whole, whole, whole.double(), whole.mT, whole.clone().requires_grad_()):
            ours, eager = (function(picture, amounts, "constant", value) for function in (P.pad, F.pad))
            assert (ours.dtype, ours.requires_grad) == (eager.dtype, eager.requires_grad)
            torch.testing.assert_close(ours, eager, rtol=0, atol=0)
            assert torch.equal(ours.signbit(), eager.signbit())
    for amounts in ((1, 2), (True, 2)):  # they are equal
        with pytest.raises(TypeError) if amounts[0] is True else nullcontext():
            P.pad(whole, amounts)
            P.pad(whole, amounts)


def test_scale_factors_that_are_like_the_call_before() -> None:
    """Factors are remembered as sizes are; equal to a size, or given beside one, they are something else."""
    x = torch.rand(1, 2, 6, 8)
    wrong: list[dict[str, Any]] = [{"size": (3, 3), "scale_factor": 2.0}, {}, {"scale_factor": (2.0,)}]
    given: Any
    for given in (2.0, 2, 2.0, (2.0, 0.5), (2, 0.5), 1.5, [2.0, 2.0]) * 3:
        ours, eager = (resize(x, None, given, "bilinear") for resize in (P.interpolate, F.interpolate))
        torch.testing.assert_close(ours, eager)
        assert P.interpolate(x, 2, mode="bilinear").shape[-2:] == (2, 2)
        for recomputed in (None, True, False):
            both = (resize(x, None, 1.3, "nearest", None, recomputed) for resize in (P.interpolate, F.interpolate))
            assert torch.equal(*both)
        for arguments in (*wrong, {"scale_factor": float("nan")}):
            with pytest.raises((ValueError, RuntimeError)):
                P.interpolate(x, **arguments, mode="bilinear")


@pytest.mark.parametrize("wrong", [np.array([1, 1]), torch.tensor([1, 1]), (True, 1), (1.0, 1)], ids=repr)
@pytest.mark.parametrize("function", [P.interpolate, P.pad, P.flip])
def test_what_only_looks_like_the_call_before(function: Callable[..., Tensor], wrong: Any) -> None:
    """Arrays and numbers of other types may equal, or fail to compare with, the integers that were remembered."""
    right = (1, 2) if function is P.flip else (1, 1)
    for _ in range(3):
        function(torch.rand(1, 2, 4, 4), right)
    with pytest.raises(TypeError, match="integer"):
        function(torch.rand(1, 2, 4, 4), wrong)


@pytest.mark.parametrize("function", [P.pad, accelerate(F.pad)], ids=["function", "accelerated"])
def test_a_pad_that_only_crops_lies_in_memory_as_eagers(function: Callable[..., Tensor]) -> None:
    """Eager clones a view of the image, which keeps the order of its dimensions; and so is the gradient of a pad."""
    image = torch.arange(24.0).view(2, 3, 4).transpose(1, 2)
    function(image, (0, -1)).transpose(1, 2).view(2, -1)
    for amounts in ((0, -1), (-1, -1, -2, -1), (0, 0), (-3, 0)):
        expected = F.pad(image, amounts)
        for one in (image, image.clone().requires_grad_()):
            got = function(one, amounts)
            assert torch.equal(got, expected)
            assert got.stride() == expected.stride()
        assert P.pad(image.to("meta"), amounts).stride() == F.pad(image.to("meta"), amounts).stride()
        upward = F.pad(image, [-n for n in amounts]).transpose(0, 2).contiguous().transpose(0, 2)
        gradients: list[Tensor] = []
        for pad in (F.pad, function):
            leaf = image.clone().requires_grad_()
            gradients += torch.autograd.grad(pad(leaf, [-n for n in amounts]), leaf, upward)
        assert gradients[0].stride() == gradients[1].stride()
