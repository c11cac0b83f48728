"""The text form of programs and their parts: printed, and parsed back.

It is Python's call syntax over the dataclasses, fields in order, defaults left out, so the grammar is the dataclasses
themselves and the parser is Python's own:

    program(uint8, axes([axismap([resize(256, bilinear, antialias=True), slice(16, 240), flip()]), ...]),
            epilogue=div(sub(div(cast(x, float32), 255.0), channel(0)), channel(1)))
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import math
import types
import typing
from functools import lru_cache
from typing import Any, NoReturn

import torch

from polyphase.errors import PolyphaseError, ProgramSyntaxError
from polyphase.sampling import pointwise
from polyphase.sampling.axis_maps import AxisMap
from polyphase.sampling.formulas import Formula
from polyphase.sampling.programs import Axes, Border, Program
from polyphase.sampling.steps import Area, Flip, Nearest, Pad, Resize, SizeSlot, Slice
from polyphase.sampling.warps import Warp

_NODES: dict[str, type[Any]] = {
    node.__name__.lower(): node
    for node in (
        *(Resize, Area, Nearest, Flip, Slice, Pad, AxisMap, Axes, Warp, Formula, Border, Program),
        *(pointwise.Channel, pointwise.Operand, pointwise.Cast),
        *(pointwise.Place, pointwise.Base, pointwise.Entry, pointwise.Field, pointwise.Constant),
        pointwise.Select,
    )
}
_DTYPES: dict[str, torch.dtype] = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        *(torch.uint8, torch.int8, torch.int16, torch.uint16, torch.int32, torch.int64, torch.bool),
        *(torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128),
    )
}
#: What the fields of each node hold: the grammar.
_TYPES: dict[type[Any], dict[str, Any]] = {
    node: typing.get_type_hints(node) for node in (*_NODES.values(), pointwise.Unary, pointwise.Binary)
}
_CONSTANTS: dict[str, Any] = {"x": pointwise.VALUE, "inf": math.inf, "nan": math.nan, **_DTYPES}


def to_text(node: Any) -> str:
    """Stable: equal data gives equal text, and `from_text` gives the data back."""
    match node:
        case pointwise.Value():
            return "x"
        case pointwise.Number(value):
            return repr(value)
        case pointwise.Unary(op, of):
            return f"{op}({to_text(of)})"
        case pointwise.Binary(op, left, right):
            return f"{op}({to_text(left)}, {to_text(right)})"
        case SizeSlot(number):
            return f"size{number}"
        case torch.dtype():
            return str(node).removeprefix("torch.")
        case tuple():
            return f"[{', '.join(map(to_text, node))}]"
        case str() if node.isidentifier():
            return node
        case bool() | int() | float() | None:
            return repr(node)
    if type(node) not in _NODES.values():
        raise TypeError(f"{node!r} has no text form")
    return f"{type(node).__name__.lower()}({', '.join(_arguments(node))})"


def from_text(text: str) -> Any:
    try:
        return _build(ast.parse(text.strip(), mode="eval").body, text)
    except SyntaxError as error:
        raise ProgramSyntaxError(f"not a program: {error.msg} at column {error.offset} of {text!r}") from None
    except (MemoryError, RecursionError):
        raise ProgramSyntaxError(f"not a program: nested too deeply, in {text[:80]!r}...") from None


def _arguments(node: Any) -> list[str]:
    """Required fields by position, others by name where they differ from the default."""
    arguments = []
    for field in (field for field in dataclasses.fields(node) if field.init):
        value = getattr(node, field.name)
        if field.default is dataclasses.MISSING:
            arguments.append(to_text(value))
        elif value != field.default:
            arguments.append(f"{field.name}={to_text(value)}")
    return arguments


def _build(tree: ast.expr, text: str) -> Any:
    match tree:
        case ast.Constant(value) if isinstance(value, (bool, int, float)) or value is None:
            return value
        case ast.UnaryOp(ast.USub(), ast.Constant(int() | float() as value)) if not isinstance(value, bool):
            return -value
        case ast.UnaryOp(ast.USub(), ast.Name("inf")):
            return -math.inf
        case ast.Name(name) if name.startswith("size") and name[4:].isdecimal():
            return SizeSlot(int(name[4:]))
        case ast.Name(name):
            return _CONSTANTS.get(name, name)
        case ast.List(elements):
            return tuple(_build(element, text) for element in elements)
        case ast.Call(ast.Name(name), arguments, keywords) if all(keyword.arg for keyword in keywords):
            values = [_build(argument, text) for argument in arguments]
            named = {str(keyword.arg): _build(keyword.value, text) for keyword in keywords}
            return _call(name, values, named, text)
    return _fail(f"{ast.unparse(tree)!r} is no part of a program", text)


def _call(name: str, values: list[Any], named: dict[str, Any], text: str) -> Any:
    if name in pointwise.UNARY:
        node: type[Any] = pointwise.Unary
        values = [name, *values]
    elif name in pointwise.BINARY:
        node, values = pointwise.Binary, [name, *values]
    elif name in _NODES:
        node = _NODES[name]
    else:
        _fail(f"unknown name {name!r}; known are {', '.join([*_NODES, *pointwise.UNARY, *pointwise.BINARY])}", text)
    try:
        fields = inspect.signature(node).bind(*values, **named).arguments
        return node(**{field: _fitted(value, _TYPES[node][field]) for field, value in fields.items()})
    except (PolyphaseError, TypeError) as error:
        return _fail(f"wrong fields for {name}: {error}", text)


def _fitted(value: Any, expected: Any) -> Any:
    """The value, if a field of that type can hold it; a bare number where an expression is expected becomes one."""
    options = typing.get_args(expected) if _is_union(expected) else (expected,)
    if pointwise.Number in options and isinstance(value, (bool, int, float)):
        return pointwise.Number(value)
    for option in options:
        if typing.get_origin(option) is tuple and isinstance(value, tuple):
            return tuple(_fitted(item, typing.get_args(option)[0]) for item in value)
        if option is float and type(value) in (int, float):
            return value
        if option is int and isinstance(value, SizeSlot):
            return value
        if isinstance(option, type) and type(value) is option:
            return value
    raise TypeError(f"{value!r} is no {expected}")


def _is_union(expected: Any) -> bool:
    return typing.get_origin(expected) in (typing.Union, types.UnionType)


def _fail(why: str, text: str) -> NoReturn:
    raise ProgramSyntaxError(f"{why}, in {text!r}")


@lru_cache(maxsize=1024)
def maps_to_text(maps: tuple[AxisMap, ...]) -> str:
    """One map per dimension, as our torch operators carry them."""
    return to_text(maps)


@lru_cache(maxsize=1024)
def maps_from_text(text: str) -> tuple[AxisMap, ...]:
    maps = from_text(text)
    if not isinstance(maps, tuple) or not all(isinstance(axis_map, AxisMap) for axis_map in maps):
        _fail("not a list of axis maps", text)
    return maps
