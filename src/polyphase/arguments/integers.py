"""Sizes, dimensions and amounts as plain integers, other numbers as floats, and switches as plain booleans."""

from __future__ import annotations

import operator
from typing import Any

import torch

from polyphase.errors import WrongArgumentTypeError
from polyphase.sampling.steps import Size


def integers(values: Any, name: str) -> tuple[int, ...]:
    """Plain integers, which can key a cache: 2.0, True and a tensor compare equal to what they are not."""
    _check_sequence(values, name)
    for value in values:
        if type(value) is not int:
            return tuple(integer(each, name) for each in values)
    return tuple(values)


def sizes(values: Any, name: str) -> tuple[Size, ...]:
    """Reads sizes as `integers` does, but symbolic ones stay symbolic."""
    _check_sequence(values, name)
    if are_known(*values):
        return tuple(values)
    return tuple(each if type(each) in (int, torch.SymInt) else integer(each, name) for each in values)


def are_known(*values: Size) -> bool:
    """Whether none is symbolic, which no cache can have as a key."""
    for value in values:  # noqa: SIM110 a generator takes longer
        if type(value) is not int:
            return False
    return True


def integer(value: Any, name: str) -> int:
    """Reads one integer: a number, one of numpy's, a tensor of one element, or a symbolic size, which becomes a
    constant.
    """
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise WrongArgumentTypeError(f"{name} has {value!r} of type {type(value).__name__}; it must be an integer")
    try:
        return operator.index(value)
    except TypeError as error:
        raise WrongArgumentTypeError(f"{name} has {value!r}, which is no integer; give plain integers") from error


def number(value: Any, name: str) -> float:
    """Reads what is known to be a number, or a tensor of one element."""
    try:
        return float(value)
    except OverflowError as error:
        raise WrongArgumentTypeError(f"{name} has a number beyond the greatest float; give a smaller one") from error


def switch(value: Any, name: str) -> bool | None:
    """On, off, or None where nothing was said. Other values are true or false too, but hardly meant so."""
    if value is None or type(value) is bool:
        return value
    if type(value).__module__ == "numpy" and type(value).__name__ in ("bool", "bool_"):
        return bool(value)
    raise WrongArgumentTypeError(f"{name}={value!r} of type {type(value).__name__}; it must be True, False or None")


def _check_sequence(values: Any, name: str) -> None:
    if not isinstance(values, (tuple, list)):
        raise WrongArgumentTypeError(
            f"{name}={values!r} of type {type(values).__name__}; it must be a tuple or list of integers"
        )
