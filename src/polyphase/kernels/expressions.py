"""Pointwise expressions as C++, computing to the bit what torch computes on the CPU, operation by operation.

An expression becomes one C++ expression over `value`, `channel<slot>`, `reciprocal<slot>` and `operand<slot>`, so that
a loop over a row vectorises. It needs `polyphase/core/scalar.h` and its namespace, and `-ffp-contract=off`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from polyphase.errors import InvalidProgramError
from polyphase.sampling.pointwise import (
    COMPARISONS,
    Binary,
    Cast,
    Channel,
    Expression,
    Number,
    Operand,
    Scalar,
    Unary,
    Value,
    dtype_of,
    nodes_of,
    scalar_tensor,
)

#: The types of elements in memory.
CPP_TYPES: dict[torch.dtype, str] = {
    torch.uint8: "uint8_t",
    torch.int8: "int8_t",
    torch.int16: "int16_t",
    torch.uint16: "uint16_t",
    torch.int32: "int32_t",
    torch.int64: "int64_t",
    torch.bool: "boolean",
    torch.float16: "half",
    torch.bfloat16: "bfloat16",
    torch.float32: "float",
    torch.float64: "double",
}

#: Of a warp's taps: `warp/rules.h`.
CPP_FILTERS = {"nearest": "Nearest", "bilinear": "Linear", "bicubic": "Cubic"}

#: Eager computes every operation on these in float32, and rounds its result.
ROUNDED = (torch.float16, torch.bfloat16)

_SIGNS = {"add": "+", "sub": "-", "mul": "*", "div": "/", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_FUNCTIONS = {"round": "round_half_even"}  # where the name is not the operation's


@dataclass(frozen=True)
class Fragment:
    """C++ text that computes a value of `dtype`: a float16 or bfloat16 as the float equal to it.

    That float is stored without another rounding, be it as a half, a bfloat16 or a float.
    """

    text: str
    dtype: torch.dtype
    byte: str = ""  # of a byte, or one made a float: the byte


def cpp_expression(expression: Expression, value: torch.dtype) -> Fragment:
    """Variables have the types in `CPP_TYPES`; in place of a half or bfloat16 a float equal to it will do."""
    dtype = dtype_of(expression, value)  # raises where the expression computes no image
    if dtype not in CPP_TYPES:
        allowed = ", ".join(map(str, CPP_TYPES))
        raise InvalidProgramError(f"{expression} is {dtype}, kernels compute {allowed}: cast it beforehand")

    def side(node: Expression) -> Fragment | Scalar:
        return node.value if isinstance(node, Number) else cpp_expression(node, value)

    match expression:
        case Value():
            text = _variable("value", dtype)
        case Channel(slot):
            text = _variable(f"channel{slot}", dtype)
        case Operand(slot):
            text = _variable(f"operand{slot}", dtype)
        case Cast(of):
            text = _converted(cpp_expression(of, value), dtype)
        case Unary(op, of):
            text = _unary(op, cpp_expression(of, value), dtype)
        case Binary("div", left, right) if _helps(expression, value):
            text = _quotient(cpp_expression(left, value), right, side(right))
        case Binary(op, left, right) if op in COMPARISONS:
            compared = dtype_of(Binary("maximum", left, right), value)
            text = f"({_side(op, side(left), compared)} {_SIGNS[op]} {_side(op, side(right), compared)})"
        case Binary(op, left, right):
            text = _binary(op, side(left), side(right), dtype)
    return Fragment(text, dtype, _byte(expression, value, text))


def _byte(expression: Expression, value: torch.dtype, text: str) -> str:
    if isinstance(expression, Cast) and expression.dtype == torch.float32:
        return cpp_expression(expression.of, value).byte
    return text if isinstance(expression, Value) and value == torch.uint8 else ""


def divides_often(expression: Expression, value: torch.dtype) -> bool:
    """Whether somewhere in it many values are divided by one: by a channel's number, or by one number for all."""
    return any(_helps(node, value) for node in nodes_of(expression))


def divided_often(expression: Expression, value: torch.dtype) -> set[int]:
    """The vectors by which values are divided, of those whose reciprocal is worth having."""
    divisors = [node.right for node in nodes_of(expression) if isinstance(node, Binary) and _helps(node, value)]
    return {one.slot for one in divisors if isinstance(one, Channel)}


def _helps(node: Expression, value: torch.dtype) -> bool:
    """Whether many values are divided by one, in float32."""
    if not isinstance(node, Binary) or node.op != "div":
        return False
    left, right = node.left, node.right
    of_channel = isinstance(right, Channel) and right.dtype == torch.float32
    is_often = (of_channel or isinstance(right, Number)) and not isinstance(left, Number)
    return is_often and dtype_of(node, value) == torch.float32


def _quotient(left: Fragment, right: Expression, divisor: Fragment | Scalar) -> str:
    """Needs `kFast`, `unsafe` and, for a channel, its reciprocal where it stands."""
    by = _side("div", divisor, torch.float32)
    if left.byte and isinstance(right, Number) and 2.0**-40 <= abs(right.value) <= 2.0**40:
        return f"quotient_of_byte({left.byte}, {by}, reciprocal_of({by}))"
    reciprocal = f"reciprocal{right.slot}" if isinstance(right, Channel) else f"reciprocal_of({by})"
    return f"quotient<kFast>({_converted(left, torch.float32)}, {by}, {reciprocal}, unsafe)"


def _variable(name: str, dtype: torch.dtype) -> str:
    if dtype == torch.bool:
        return f"bool({name})"
    return f"float({name})" if dtype in ROUNDED else name


def _converted(of: Fragment, dtype: torch.dtype) -> str:
    if of.dtype == dtype:
        return of.text
    if dtype in ROUNDED:  # float64 and integers are rounded twice, also in torch
        return f"rounded<{CPP_TYPES[dtype]}>({_converted(of, torch.float32)})"
    if of.dtype in ROUNDED and dtype == torch.float32:
        return of.text
    return f"cast<{'bool' if dtype == torch.bool else CPP_TYPES[dtype]}>({of.text})"


def _unary(op: str, of: Fragment, dtype: torch.dtype) -> str:
    """Writes a unary operation. But for roots, the results are exact, hence not rounded: a float16 from 2^10 on, a
    bfloat16 from 2^7 on is an integer."""
    if op == "sqrt":
        root = f"sqrt({_converted(of, dtype)})"
        return f"rounded<{CPP_TYPES[dtype]}>({root})" if dtype in ROUNDED else root
    if op in ("round", "floor", "ceil") and not of.dtype.is_floating_point:
        return of.text
    return f"{_FUNCTIONS.get(op, op)}({of.text})"


def _binary(op: str, left: Fragment | Scalar, right: Fragment | Scalar, dtype: torch.dtype) -> str:
    """torch brings both sides to the result's dtype first; dividing integers, that is float32."""
    if op == "div" and not isinstance(left, Fragment):
        # torch has number / tensor as tensor.reciprocal() * number, which rounds twice.
        reciprocal = _arithmetic("div", _literal(1, dtype), _side(op, right, dtype), dtype)
        return _arithmetic("mul", reciprocal, _side("mul", left, dtype), dtype)
    sides = _side(op, left, dtype), _side(op, right, dtype)
    return f"{op}({sides[0]}, {sides[1]})" if op in ("minimum", "maximum") else _arithmetic(op, *sides, dtype)


def _side(op: str, side: Fragment | Scalar, dtype: torch.dtype) -> str:
    if isinstance(side, Fragment):
        return _converted(side, dtype)
    # Next to a float16 or bfloat16 a factor or divisor stays a float32, any other number is rounded like the tensor.
    # Divisors are divided by: no kernel of torch's multiplies by 1 / number on the CPU.
    return _literal(side, torch.float32 if op in ("mul", "div") and dtype in ROUNDED else dtype)


def _arithmetic(op: str, left: str, right: str, dtype: torch.dtype) -> str:
    if not dtype.is_floating_point:
        return f"{op}({left}, {right})"
    computed = f"{left} {_SIGNS[op]} {right}"
    return f"rounded<{CPP_TYPES[dtype]}>({computed})" if dtype in ROUNDED else f"({computed})"


def _literal(number: Scalar, dtype: torch.dtype) -> str:
    """The number as torch brings it to a dtype: integers wrap, floats are rounded (to 16 bits by way of float32)."""
    exact = scalar_tensor(number, dtype, torch.device("cpu")).item()
    if dtype == torch.bool:
        return "true" if exact else "false"
    if not dtype.is_floating_point:
        return _integer_literal(int(exact), CPP_TYPES[dtype])
    return _float_literal(float(exact), "" if dtype == torch.float64 else "f")


def _integer_literal(number: int, cpp_type: str) -> str:
    least = number == torch.iinfo(torch.int64).min  # its magnitude is no int64, so that C++ has no literal of it
    return "INT64_MIN" if least else f"{cpp_type}({number})"


def _float_literal(number: float, suffix: str) -> str:
    if math.isnan(number):
        return f'__builtin_nan{suffix}("")'
    magnitude = f"__builtin_inf{suffix}()" if math.isinf(number) else f"{abs(number)!r}{suffix}"
    return f"(-{magnitude})" if math.copysign(1, number) < 0 else magnitude
