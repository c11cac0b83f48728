from __future__ import annotations

import math

import pytest
import torch
from hypothesis import assume, given
from torch import Tensor

from polyphase.errors import UnknownNameError, WrongInputError
from polyphase.sampling.pointwise import (
    VALUE,
    Binary,
    Cast,
    Channel,
    Expression,
    Number,
    Operand,
    Unary,
    Value,
    clamp,
    dtype_of,
    evaluate,
    normalise,
    operands_of,
)
from tests.sampling.strategies import FLOATS, INTEGERS, brief, computable, expressions, quick

SHAPE = (2, 3, 4, 5)


def image(dtype: torch.dtype, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    if dtype.is_floating_point:
        return (torch.rand(SHAPE, generator=generator) * 200 - 100).to(dtype)
    return torch.randint(0, 120, SHAPE, generator=generator).to(dtype)


CHANNELS = {0: torch.tensor([0.5, -1.0, 3.25]), 1: torch.tensor([2.0, 0.1, 7.0])}
TENSORS = {0: image(torch.float16, seed=1)}


def source_of(node: Expression) -> str:
    """Eager code for an expression, as a person would write it."""
    match node:
        case Value():
            return "x"
        case Number(number):
            return repr(number)
        case Channel(slot):
            return f"channels[{slot}].view(-1, 1, 1)"
        case Operand(slot):
            return f"tensors[{slot}]"
        case Cast(of, dtype):
            return f"({source_of(of)}).to({dtype})"
        case Unary(op, of):
            return f"torch.{op}({source_of(of)})"
        case Binary(("minimum" | "maximum") as op, left, right):
            bound = "max" if op == "minimum" else "min"
            if isinstance(right, Number):
                return f"torch.clamp({source_of(left)}, {bound}={source_of(right)})"
            if isinstance(left, Number):
                return f"torch.clamp({source_of(right)}, {bound}={source_of(left)})"
            return f"torch.{op}({source_of(left)}, {source_of(right)})"
        case Binary(op, left, right):
            sign = {"add": "+", "sub": "-", "mul": "*", "div": "/"}[op]
            return f"({source_of(left)} {sign} {source_of(right)})"
    raise TypeError(f"{node} is no arithmetic")


def eager(expression: Expression, x: Tensor) -> Tensor:
    names = {"torch": torch, "x": x, "channels": CHANNELS, "tensors": TENSORS}
    result: Tensor = eval(source_of(expression), names)
    return result


@pytest.mark.parametrize("dtype", [*INTEGERS, *FLOATS], ids=str)
@given(expression=computable())
@brief
def test_equals_eager_code_bit_for_bit(dtype: torch.dtype, expression: Expression) -> None:
    x = image(dtype)
    ours, theirs = evaluate(expression, x, CHANNELS, TENSORS), eager(expression, x)
    assert ours.dtype == theirs.dtype
    torch.testing.assert_close(ours, theirs, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", [*INTEGERS, *FLOATS, torch.bool], ids=str)
@given(expression=computable())
@brief
def test_dtype_is_predicted(dtype: torch.dtype, expression: Expression) -> None:
    x = image(dtype)
    try:
        theirs = eager(expression, x)
    except RuntimeError:  # what torch does not have for bool
        assume(False)
    assert dtype_of(expression, dtype) == theirs.dtype


PROMOTIONS: list[tuple[Expression, torch.dtype, torch.dtype]] = [
    (Binary("add", VALUE, Number(1)), torch.uint8, torch.uint8),
    (Binary("add", VALUE, Number(1)), torch.float16, torch.float16),
    (Binary("add", VALUE, Number(1.0)), torch.int64, torch.float32),
    (Binary("mul", VALUE, Number(True)), torch.int8, torch.int8),
    (Binary("mul", VALUE, Number(2)), torch.bool, torch.int64),
    (Binary("div", VALUE, Number(2)), torch.uint8, torch.float32),
    (Binary("maximum", VALUE, Number(0.5)), torch.int32, torch.float32),
    (Binary("add", VALUE, Channel(0)), torch.float16, torch.float32),
    (Binary("add", VALUE, Channel(0)), torch.float64, torch.float64),
    (Binary("add", VALUE, Channel(0, torch.float16)), torch.bfloat16, torch.float32),
    (Binary("add", VALUE, Operand(0, torch.int64)), torch.uint8, torch.int64),
    (Cast(Binary("div", VALUE, Number(255.0)), torch.float64), torch.uint8, torch.float64),
    (VALUE, torch.complex64, torch.complex64),
]


@pytest.mark.parametrize(("expression", "value", "dtype"), PROMOTIONS)
def test_promotion(expression: Expression, value: torch.dtype, dtype: torch.dtype) -> None:
    assert dtype_of(expression, value) == dtype


@pytest.mark.parametrize("low", [None, -0.5, 2])
@pytest.mark.parametrize("high", [None, 0.5, 1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int32])
def test_clamp(low: float | None, high: float | None, dtype: torch.dtype) -> None:
    """Also where the bounds cross."""
    if low is None and high is None:
        assert clamp(VALUE) == VALUE
        return
    x = (
        torch.tensor([[-2, -0.25, 0.75, 3, math.nan]]).nan_to_num()
        if dtype == torch.int32
        else torch.tensor([[math.nan]])
    )
    ours, theirs = evaluate(clamp(VALUE, low, high), x.to(dtype)), torch.clamp(x.to(dtype), low, high)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=0, equal_nan=True)


def test_clamp_and_cast_to_uint8() -> None:
    expression = Cast(clamp(Unary("round", VALUE), 0, 255), torch.uint8)
    x = torch.tensor([[-3.0, 0.5, 1.5, 254.6, 300.0]])
    assert evaluate(expression, x).tolist() == [[0, 0, 2, 255, 255]]
    assert dtype_of(expression, torch.float32) == torch.uint8


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_channels_stand_along_the_second_axis(dims: int) -> None:
    x = torch.zeros(2, 3, *[3] * dims)
    result = evaluate(Binary("add", VALUE, Channel(0)), x, {0: torch.tensor([1.0, 2.0, 3.0])})
    assert result.movedim(1, 0).flatten(1).unique(dim=1).tolist() == [[1], [2], [3]]


def test_normalise() -> None:
    expression = normalise(Binary("div", Cast(VALUE, torch.float32), Number(255.0)))
    x = image(torch.uint8)
    mean, std = (CHANNELS[slot].view(-1, 1, 1) for slot in (0, 1))
    assert torch.equal(evaluate(expression, x, CHANNELS), (x.to(torch.float32) / 255.0 - mean) / std)
    assert evaluate(expression, x, CHANNELS, exact=True).dtype == torch.float64
    expected = (x.double() / 255 - mean.double()) / std.double()
    torch.testing.assert_close(evaluate(expression, x, CHANNELS, exact=True), expected, rtol=0, atol=1e-14)


def test_exact_skips_the_rounding_of_casts() -> None:
    x = torch.tensor([[0.1]], dtype=torch.float64)
    assert evaluate(Cast(VALUE, torch.float16), x, exact=True).item() == 0.1
    assert evaluate(Cast(VALUE, torch.float16), x).item() != 0.1
    assert evaluate(Cast(Binary("mul", VALUE, Number(25)), torch.uint8), x, exact=True).dtype == torch.uint8


@pytest.mark.parametrize(
    "expression", [Binary("div", VALUE, Number(255.0)), Binary("add", VALUE, Number(0.1)), clamp(VALUE, 0.1)]
)
def test_exact_widens_what_promotion_makes_floating(expression: Expression) -> None:
    assert evaluate(expression, image(torch.uint8), exact=True).dtype == torch.float64


@given(expressions())
@quick
def test_operands_of(expression: Expression) -> None:
    leaves = operands_of(expression)
    assert all(isinstance(leaf, (Channel, Operand)) for leaf in leaves)
    text = repr(expression)
    assert len(leaves) == text.count("Channel(") + text.count("Operand(")
    places = [0]
    for leaf in leaves:
        places.append(text.index(repr(leaf), places[-1]) + 1)


def test_operands_stand_from_left_to_right() -> None:
    assert operands_of(normalise(Binary("add", VALUE, Operand(3)))) == [Operand(3), Channel(0), Channel(1)]


def test_unknown_operations() -> None:
    with pytest.raises(UnknownNameError, match="unknown pointwise operation 'tan'; choose one of: abs, ceil"):
        Unary("tan", VALUE)
    with pytest.raises(UnknownNameError, match="unknown pointwise operation 'pow'; choose one of: add, div"):
        Binary("pow", VALUE, VALUE)


@pytest.mark.parametrize(
    ("leaf", "message"),
    [
        (Channel(2), r"reads vector operand 2, but only \[0, 1\] were given"),
        (Operand(1), r"reads tensor operand 1, but only \[0\] were given"),
        (
            Channel(0, torch.float64),
            "vector operand 0 is torch.float32, the program was made for torch.float64: cast it",
        ),
        (Operand(0), "tensor operand 0 is torch.float16, the program was made for torch.float32: cast it"),
    ],
)
def test_wrong_operands(leaf: Expression, message: str) -> None:
    with pytest.raises(WrongInputError, match=message):
        evaluate(Binary("add", VALUE, leaf), image(torch.float32), CHANNELS, TENSORS)


def test_no_operands_at_all() -> None:
    with pytest.raises(WrongInputError, match=r"reads vector operand 0, but only \[\] were given"):
        evaluate(normalise(VALUE), image(torch.float32))
