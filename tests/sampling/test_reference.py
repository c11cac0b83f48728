from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from polyphase.errors import WrongInputError
from polyphase.sampling.axis_maps import AxisMap
from polyphase.sampling.pointwise import VALUE, Binary, Cast, Number, Operand, normalise
from polyphase.sampling.programs import Axes, Border, Program
from polyphase.sampling.reference import run
from polyphase.sampling.steps import Area, Flip, Pad, Resize, Slice
from polyphase.sampling.warps import Warp
from tests.sampling.strategies import quick
from tests.support.programs import has_program, program_for
from tests.support.samples import OPERATORS, Sample, image, select, small

IDENTITY = Axes((AxisMap(()), AxisMap(())))


def chosen(operator: str) -> list[Sample]:
    return [sample for sample in select(small(), operator=operator) if has_program(sample)]


def assert_same(ours: Tensor, theirs: Tensor, tolerance: float = 1e-12) -> None:
    assert ours.shape == theirs.shape
    assert ours.dtype == theirs.dtype
    torch.testing.assert_close(ours, theirs, rtol=0, atol=tolerance)


def in_float64(sample: Sample) -> Tensor:
    """The operator on the sample's tensors cast to float64."""
    return OPERATORS[sample.operator](*(tensor.double() for tensor in sample.args), **sample.kwargs)


def widened(tensor: Tensor) -> Tensor:
    return tensor.double() if tensor.is_floating_point() else tensor


@pytest.mark.parametrize("sample", chosen("interpolate"), ids=str)
def test_interpolate(sample: Sample) -> None:
    """Eager in float64; uint8 exactly; and which pixel is nearest is eager's choice for the image's own dtype."""
    if not sample.eager_is_right:
        pytest.skip("eager gives wrong pixels here")
    ours = run(program_for(sample), sample.input)
    as_it_is = sample.dtype == torch.uint8 or str(sample.mode).startswith("nearest")
    assert_same(ours, widened(sample.eager()) if as_it_is else in_float64(sample), 0 if as_it_is else 1e-12)


@pytest.mark.parametrize("sample", [*chosen("flip"), *chosen("pad")], ids=str)
def test_flip_and_pad(sample: Sample) -> None:
    assert_same(run(program_for(sample), sample.input), widened(sample.eager()), 0)


@pytest.mark.parametrize("sample", chosen("grid_sample"), ids=str)
def test_grid_sample(sample: Sample) -> None:
    picture, grid = sample.args
    assert_same(run(program_for(sample), picture, grid=grid), in_float64(sample))


@pytest.mark.filterwarnings("ignore:.*affine_grid behavior has changed")
@pytest.mark.parametrize("sample", chosen("affine_grid"), ids=str)
def test_affine_grid_and_grid_sample(sample: Sample) -> None:
    picture, corners = image(sample.kwargs["size"], sample.dtype, seed=sample.seed), sample.kwargs["align_corners"]
    theirs = functional.grid_sample(picture.double(), in_float64(sample), align_corners=corners)
    assert_same(run(program_for(sample), picture, theta=sample.input), theirs)


@pytest.mark.parametrize("layout", ["CF", "CL"])
@pytest.mark.parametrize("order", ["preserve", "contiguous", "channels_last"])
def test_memory_order(layout: str, order: str) -> None:
    program = Program(torch.float32, Axes((AxisMap((Flip(),)), AxisMap((Area(3),)))), order=order)
    result = run(program, image((2, 3, 4, 5), torch.float32, layout))
    last = order == "channels_last" or (order == "preserve" and layout == "CL")
    assert result.is_contiguous(memory_format=torch.channels_last if last else torch.contiguous_format)


MEAN, STD = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
CHANNELS = {0: MEAN, 1: STD}


def normalised(tensor: Tensor) -> Tensor:
    return (tensor - MEAN.double().view(-1, 1, 1)) / STD.double().view(-1, 1, 1)


@pytest.mark.parametrize("where", ["prologue", "epilogue"])
def test_uint8_to_float_and_normalise(where: str) -> None:
    expression = normalise(Binary("div", Cast(VALUE, torch.float32), Number(255.0)))
    picture = image((2, 3, 7, 6), torch.uint8)
    ours = run(Program(torch.uint8, IDENTITY, **{where: expression}), picture, channels=CHANNELS)  # type: ignore[arg-type]
    assert_same(ours, normalised(picture.double() / 255), 1e-14)


def test_prologue_comes_before_sampling_and_epilogue_after() -> None:
    """A resize of uint8 rounds; after a cast to float it does not."""
    axes = Axes((AxisMap((Area(3),)), AxisMap((Resize(4, "bilinear", antialias=True), Slice(1, 3), Flip()))))
    to_float = Binary("div", Cast(VALUE, torch.float32), Number(255.0))
    picture = image((1, 3, 7, 6), torch.uint8)

    def resized(tensor: Tensor) -> Tensor:
        wide = functional.interpolate(tensor, size=(7, 4), mode="bilinear", antialias=True)[..., 1:3].flip(-1)
        return functional.interpolate(wide.double(), size=(3, 2), mode="area")

    early = run(Program(torch.uint8, axes, prologue=to_float, epilogue=normalise(VALUE)), picture, channels=CHANNELS)
    assert_same(early, normalised(resized(picture.double() / 255)))
    late = run(Program(torch.uint8, axes, epilogue=Cast(VALUE, torch.float32)), picture)
    expected = torch.floor(resized(picture) + 0.5)
    assert (late - expected).abs().max() <= 1  # 16 bit weights may round a half the other way
    assert torch.equal(late, late.round())


def test_tensor_operand() -> None:
    picture, other = image((1, 2, 4, 4)), image((1, 2, 4, 8), seed=1)
    axes = Axes((AxisMap(()), AxisMap((Pad(2, 2, "circular"),))))
    program = Program(torch.float32, axes, epilogue=Binary("add", VALUE, Operand(0)))
    ours = run(program, picture, tensors={0: other})
    assert_same(ours, functional.pad(picture, (2, 2, 0, 0), "circular").double() + other.double())


@pytest.mark.parametrize("stored", [False, True])
def test_a_border_goes_through_the_epilogue_only_if_put_on_before_it(stored: bool) -> None:
    axes = Axes((AxisMap((Pad(1, 0, border=1),)), AxisMap((Pad(0, 2, border=1),))))
    program = Program(torch.float32, axes, epilogue=normalise(VALUE), borders=(Border(0.25, stored),))
    picture = image((2, 3, 4, 5))
    around = (0, 2, 1, 0)
    expected = (
        functional.pad(normalised(picture.double()), around, value=0.25)
        if stored
        else normalised(functional.pad(picture.double(), around, value=0.25))
    )
    assert_same(run(program, picture, channels=CHANNELS), expected)


@pytest.mark.parametrize("stored", [False, True])
def test_a_border_never_goes_through_the_prologue(stored: bool) -> None:
    axes = Axes((AxisMap(()), AxisMap((Pad(1, 1, border=1),))))
    prologue = Binary("mul", VALUE, Number(100))
    picture = image((1, 1, 2, 3))
    ours = run(Program(torch.float32, axes, prologue, borders=(Border(0.5, stored),)), picture)
    assert_same(ours, functional.pad(picture.double() * 100, (1, 1), value=0.5))


@pytest.mark.parametrize("stored", [(False, False), (False, True), (True, True)])
@given(
    inner=st.lists(st.integers(0, 3), min_size=4, max_size=4), outer=st.lists(st.integers(0, 3), min_size=4, max_size=4)
)
@quick
def test_two_nested_borders(stored: tuple[bool, bool], inner: list[int], outer: list[int]) -> None:
    maps = [
        AxisMap((Pad(inner[at], inner[at + 1], border=1), Flip(), Pad(outer[at], outer[at + 1], border=2)))
        for at in (2, 0)
    ]
    borders = (Border(2.0, stored[0]), Border(3.0, stored[1]))
    program = Program(torch.float32, Axes(tuple(maps)), epilogue=normalise(VALUE), borders=borders)
    picture = image((1, 3, 2, 3))
    expected = picture.double()
    for around, value, after in ((inner, 2.0, stored[0]), (outer, 3.0, stored[1])):
        if after and not (around is outer and stored[0]):
            expected = normalised(expected)
        expected = functional.pad(expected, around, value=value)
        if around is inner:
            expected = expected.flip(-1, -2)
    if not stored[1]:
        expected = normalised(expected)
    assert_same(run(program, picture, channels=CHANNELS), expected)


def test_a_border_of_a_resized_uint8_image() -> None:
    axes = Axes((AxisMap((Resize(5, "bicubic"), Pad(1, 1, border=1))), AxisMap((Resize(4, "bicubic"),))))
    picture = image((1, 3, 8, 8), torch.uint8)
    theirs = functional.pad(functional.interpolate(picture, size=(5, 4), mode="bicubic"), (0, 0, 1, 1), value=114)
    assert torch.equal(run(Program(torch.uint8, axes, borders=(Border(114),)), picture), theirs)


@pytest.mark.parametrize(("dtype", "value"), [(torch.float64, 0.1), (torch.int32, 2.0**24 + 1)])
def test_border_values_are_exact(dtype: torch.dtype, value: float) -> None:
    axes = Axes((AxisMap((Pad(1, 0, border=1),)),))
    result = run(Program(dtype, axes, borders=(Border(value),)), torch.zeros(1, 1, 1, dtype=dtype))
    assert result[0, 0, 0].item() == value


def test_border_around_an_empty_image() -> None:
    axes = Axes((AxisMap((Pad(1, 1, border=1),)),))
    result = run(Program(torch.float32, axes, borders=(Border(0.5),)), torch.zeros(1, 1, 0))
    assert result.tolist() == [[[0.5, 0.5]]]


def test_result_is_float64_where_the_target_is_floating() -> None:
    program = Program(torch.uint8, IDENTITY, epilogue=Binary("div", VALUE, Number(255.0)))
    assert run(program, image((1, 1, 2, 2), torch.uint8)).dtype == torch.float64


def test_uint8_warp_rounds_to_the_nearest() -> None:
    picture = torch.tensor([[[[0, 10], [3, 200]]]], dtype=torch.uint8)
    grid = torch.tensor([[[[0.0, 0.0], [0.2, -0.5], [5, 5]]]])
    assert run(Program(torch.uint8, Warp("grid")), picture, grid=grid).tolist() == [[[[53, 7, 0]]]]


GRID_WARP, AFFINE_WARP = Program(torch.float32, Warp("grid")), Program(torch.float32, Warp("affine", size=(2, 2)))
SPATIAL = Program(torch.float32, IDENTITY)
IMAGE = torch.zeros(1, 3, 4, 5)


WRONG: list[tuple[Program, Tensor, dict[str, Any], str]] = [
    (SPATIAL, IMAGE.double(), {}, "image is torch.float64, the program was made for torch.float32: cast it"),
    (SPATIAL, IMAGE.byte(), {}, "image is torch.uint8"),
    (SPATIAL, IMAGE[0], {}, r"image is \(3, 4, 5\); it needs \(N, C\) and 2 spatial dimensions"),
    (SPATIAL, IMAGE[None], {}, r"image is \(1, 1, 3, 4, 5\)"),
    (GRID_WARP, IMAGE, {}, r"warps by a grid; it is None, needed is \(1, \*out, 2\)"),
    (AFFINE_WARP, IMAGE, {}, r"by an affine matrix; theta is None, needed is \(1, 2, 3\)"),
    (
        Program(torch.float32, IDENTITY, epilogue=normalise(VALUE)),
        IMAGE,
        {"channels": {0: MEAN}},
        r"reads vector operand 1, but only \[0\] were given",
    ),
    (
        Program(torch.float32, IDENTITY, epilogue=normalise(VALUE)),
        IMAGE,
        {"channels": {0: MEAN.double(), 1: STD}},
        "vector operand 0 is torch.float64, the program was made for torch.float32",
    ),
]


@pytest.mark.parametrize(("program", "picture", "given_", "message"), WRONG)
def test_wrong_inputs(program: Program, picture: Tensor, given_: dict[str, Any], message: str) -> None:
    with pytest.raises(WrongInputError, match=message):
        run(program, picture, **given_)


UNCHECKED: list[tuple[Program, Tensor, dict[str, Any]]] = [
    (GRID_WARP, IMAGE[0], {"grid": torch.zeros(3, 1, 1)}),
    (GRID_WARP, IMAGE, {"grid": torch.zeros(1, 2, 2, 2, 3)}),
    (GRID_WARP, torch.zeros(3, 1, 4, 4), {"grid": torch.zeros(2, 1, 1, 2)}),
    (AFFINE_WARP, IMAGE, {"theta": torch.zeros(1, 3, 4)}),
    (AFFINE_WARP, torch.zeros(2, 1, 4, 4), {"theta": torch.zeros(1, 2, 3)}),
    (AFFINE_WARP, IMAGE[..., None], {"theta": torch.zeros(1, 2, 3)}),
    (
        Program(torch.float32, IDENTITY, epilogue=normalise(VALUE)),
        IMAGE[:, :2],
        {"channels": CHANNELS},
    ),
    (
        Program(torch.float32, IDENTITY, epilogue=Binary("add", VALUE, Operand(0))),
        IMAGE,
        {"tensors": {0: torch.zeros(7, 3, 4, 5)}},
    ),
]


@pytest.mark.parametrize(("program", "picture", "given_"), UNCHECKED)
def test_wrong_shapes(program: Program, picture: Tensor, given_: dict[str, Any]) -> None:
    with pytest.raises(WrongInputError):
        run(program, picture, **given_)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_empty_batch(dtype: torch.dtype) -> None:
    axes = Axes((AxisMap((Resize(5, "bicubic", antialias=True),)), AxisMap((Pad(1, 1, border=1),))))
    assert run(Program(dtype, axes, borders=(Border(1),)), torch.zeros(0, 3, 8, 4, dtype=dtype)).shape == (0, 3, 5, 6)
