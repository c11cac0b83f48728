from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from hypothesis import given

from polyphase.errors import ProgramSyntaxError
from polyphase.sampling.axis_maps import AxisMap
from polyphase.sampling.pointwise import VALUE, Binary, Cast, Channel, Expression, Number, clamp, normalise
from polyphase.sampling.programs import Axes, Border, Program
from polyphase.sampling.steps import Flip, Pad, Resize, Slice, Step
from polyphase.sampling.text import from_text, to_text
from polyphase.sampling.warps import Warp
from tests.sampling.strategies import DTYPES, expressions, fitting_maps, programs, quick, steps, warps

GOLDEN = Path(__file__).parents[1] / "golden" / "programs"


def crop_and_flip(size: int) -> AxisMap:
    return AxisMap((Resize(size, "bilinear", antialias=True), Slice(16, 240), Flip()))


GOLDEN_PROGRAMS = {
    "resize_crop_flip_normalise": Program(
        torch.uint8,
        Axes((AxisMap((Resize(256, "bilinear", antialias=True), Slice(16, 240))), crop_and_flip(341))),
        epilogue=normalise(Binary("div", Cast(VALUE, torch.float32), Number(255.0))),
        order="contiguous",
    ),
    "affine_warp": Program(
        torch.float16,
        Warp("affine", "bicubic", "reflection", align_corners=True, size=(224, 160)),
        epilogue=Binary("mul", clamp(VALUE, 0, 1), Channel(0, torch.float16)),
    ),
    "pad_with_two_borders": Program(
        torch.float32,
        Axes(
            (
                AxisMap((Pad(1, 2, border=1), Pad(3, 3, border=2))),
                AxisMap((Resize(30, "bicubic", scale=0.3), Pad(-1, 4, "replicate"), Pad(0, 5, border=2))),
            )
        ),
        prologue=Binary("sub", VALUE, Number(-0.5)),
        epilogue=normalise(VALUE),
        borders=(Border(-math.inf), Border(0.1, stored=True)),
    ),
}


@pytest.mark.parametrize("name", GOLDEN_PROGRAMS)
def test_golden(name: str) -> None:
    """The text keys caches and travels through graphs: a change here makes every user's cache useless."""
    text = (GOLDEN / f"{name}.txt").read_text().strip()
    assert to_text(GOLDEN_PROGRAMS[name]) == text
    assert from_text(text) == GOLDEN_PROGRAMS[name]


def test_every_golden_file_has_a_program() -> None:
    assert {path.stem for path in GOLDEN.glob("*.txt")} == set(GOLDEN_PROGRAMS)


def assert_round_trip(node: object) -> None:
    text = to_text(node)
    again = from_text(text)
    assert again == node
    assert type(again) is type(node)
    assert to_text(again) == text


@given(steps())
@quick
def test_steps(step: Step) -> None:
    assert_round_trip(step)


@given(fitting_maps(first_border=1))
@quick
def test_maps(fitting: tuple[AxisMap, int]) -> None:
    assert_round_trip(fitting[0])


@given(expressions())
@quick
def test_expressions(expression: Expression) -> None:
    assert_round_trip(expression)


@given(warps())
@quick
def test_warps(warp: Warp) -> None:
    assert_round_trip(warp)


@given(programs())
@quick
def test_programs(program: Program) -> None:
    assert_round_trip(program)


@pytest.mark.parametrize("number", [math.inf, -math.inf, -0.0, 0.0, 1e-300, 5e-324, 0.1, -7, 2**70, True, False])
def test_numbers(number: float) -> None:
    again = from_text(to_text(Binary("add", VALUE, Number(number)))).right.value
    assert (repr(again), type(again)) == (repr(number), type(number))


def test_nan() -> None:
    assert to_text(Binary("mul", VALUE, Number(math.nan))) == "mul(x, nan)"
    assert math.isnan(from_text("mul(x, nan)").right.value)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_dtypes(dtype: torch.dtype) -> None:
    assert from_text(to_text(Cast(VALUE, dtype))) == Cast(VALUE, dtype)


def test_defaults_are_left_out() -> None:
    assert to_text(Resize(5, "bilinear")) == "resize(5, bilinear)"
    assert to_text(Resize(5, "bilinear", scale=2.0)) == "resize(5, bilinear, scale=2.0)"
    assert from_text("resize(size=5, filter=bilinear, antialias=False)") == Resize(5, "bilinear")


def test_lines_and_spaces_do_not_matter() -> None:
    text = "\n  axismap([\n  flip(),  slice(1, 4)\n ])\n"
    assert from_text(text) == AxisMap((Flip(), Slice(1, 4)))


BAD = [
    ("", "not a program: invalid syntax"),
    ("flip(", r"not a program: .*'\(' was never closed at column 5 of 'flip\('"),
    ("flip(\0)", "not a program"),
    ("flop()", "unknown name 'flop'; known are resize, area,.*flip,.*maximum, in 'flop"),
    ("axismap([flip(), resise(4, bilinear)])", "unknown name 'resise'.*in 'axismap"),
    ("resize(4, cubic)", "unknown filter without antialias 'cubic'; choose one of: bicubic, bilinear, in"),
    ("resize(0, bilinear)", "resize to 0 pixels; the output size must be at least 1, in"),
    ("resize(4, bilinear, colour=True)", "wrong fields for resize: .*unexpected keyword argument 'colour'"),
    ("resize(4)", "wrong fields for resize: .*missing a required argument: 'filter'"),
    ("flip(3)", "wrong fields for flip: "),
    ("neg(x, x)", "wrong fields for neg: "),
    ("add(x)", "wrong fields for add: .*'right'"),
    ("axismap([pad(1, 1, replicate), area(3)])", "Area.* not merged after Pad.*a border before a weighted step"),
    ("program(int64, axes([axismap([area(3)])]))", "weighted map of torch.int64"),
    ("program(uint9, axes([axismap([])]))", "wrong fields for program"),
    ("warp(affine)", "computed coordinates need the output's spatial size"),
    ("'text'", "\"'text'\" is no part of a program"),
    ("1j", "'1j' is no part of a program"),
    ("1 + 2", r"'1 \+ 2' is no part of a program"),
    ("x.real", "'x.real' is no part of a program"),
    ("neg(x)(x)", "is no part of a program"),
    ("lambda: x", "is no part of a program"),
    ("[flip() for _ in x]", "is no part of a program"),
    ("__import__('os').system('x')", "is no part of a program"),
    ("flip(__import__('os').system('x'))", r"\"__import__\('os'\).system\('x'\)\" is no part of a program"),
    ("__import__(os)", "unknown name '__import__'"),
    ("eval(x)", "unknown name 'eval'"),
    ("flip(); flip()", "not a program: invalid syntax"),
    ("import os", "not a program: invalid syntax"),
]


@pytest.mark.parametrize(("text", "message"), BAD)
def test_bad_text(text: str, message: str) -> None:
    with pytest.raises(ProgramSyntaxError, match=message):
        from_text(text)


@pytest.mark.parametrize(
    "text",
    [
        "-x",
        "-[1]",
        "program(uint8, axes([1]))",
        "program(uint8, axes([axismap([])]), prologue=cast(x, flaot32), epilogue=x)",
        "-" * 3000 + "1",
        "flip(**x)",
        "neg(1.0)",
        "resize(large, bilinear)",
        "slice(a, b)",
        "axismap([3])",
        "program(uint8, 5)",
        "cast(x, flaot32)",
    ],
)
def test_fields_of_the_wrong_kind(text: str) -> None:
    with pytest.raises(ProgramSyntaxError):
        from_text(text)


def test_equal_data_gives_equal_text() -> None:
    for one in (Number(1), Number(1.0), Number(True)):
        for other in (Number(1), Number(1.0), Number(True)):
            assert (one == other) == (to_text(one) == to_text(other))


def test_what_has_no_text_form() -> None:
    for thing in (object(), "two words", [1]):
        with pytest.raises(TypeError, match="has no text form"):
            to_text(thing)
