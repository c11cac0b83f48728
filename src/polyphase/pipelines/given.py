"""Arguments of transforms, as torchvision takes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any

from polyphase.arguments.integers import number
from polyphase.errors import UnknownNameError, WrongArgumentError
from polyphase.pipelines.picture import ARRAY, FILTERS, IMAGE, NEAREST, PIL, TENSOR

#: Pillow's numbers of its filters.
BY_NUMBER = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic", 4: "box", 5: "hamming"}
INTERPOLATIONS = (*NEAREST, *FILTERS)
#: By torchvision's names: those of `polyphase.functional.pad`, and what it does not have.
PAD_MODES = {"constant": "constant", "edge": "replicate", "reflect": "reflect", "symmetric": "symmetric"}


def for_kind(given: Mapping[Any, Any], kind: str, missing: object = None) -> Any:
    """Finds what is for a kind, where it is given by type of image, as torchvision's dictionaries are."""
    names = {TENSOR: "Tensor", IMAGE: "Image", PIL: "Image", ARRAY: "ndarray"}
    for key, value in given.items():
        if getattr(key, "__name__", None) == names[kind] and (kind == PIL) == key.__module__.startswith("PIL"):
            return value
    return given.get("others", missing)


def colour_of(fill: Any, kind: str) -> tuple[float, ...] | None:
    if isinstance(fill, Mapping):
        fill = for_kind(fill, kind)
    if fill is None:
        return None
    return tuple(map(float, fill)) if isinstance(fill, (tuple, list)) else (float(fill),)


def interpolation_name(given: Any) -> str:
    name = getattr(given, "value", given)
    name = BY_NUMBER.get(name, name) if isinstance(name, int) else name
    if name not in INTERPOLATIONS:
        raise UnknownNameError("interpolation", given, INTERPOLATIONS)
    return str(name)


def pair(size: Any) -> tuple[int, int]:
    pair = (size, size) if isinstance(size, int) else tuple(size)
    pair = pair * 2 if len(pair) == 1 else pair
    if len(pair) != 2 or not all(isinstance(n, int) and n > 0 for n in pair):
        raise WrongArgumentError(f"size={size}; give one number of pixels for both, or (height, width), of 1 or more")
    return pair


def check_padding(padding: Any, mode: str) -> None:
    if mode not in PAD_MODES:
        raise UnknownNameError("padding mode", mode, PAD_MODES)
    if not isinstance(padding, int) and (len(padding) not in (1, 2, 4) or not all(isinstance(n, int) for n in padding)):
        raise WrongArgumentError(f"padding={padding}; give one number, (across, down), or (left, top, right, bottom)")


def amounts_of(padding: Any) -> tuple[int, int, int, int]:
    """left, right, top, bottom"""
    given = (padding,) if isinstance(padding, int) else tuple(padding)
    left, top, right, bottom = {1: given * 4, 2: given * 2}.get(len(given), given)
    return left, right, top, bottom


def numbers_of(given: Any, name: str, lengths: tuple[int, ...], instead: str = "") -> tuple[float, ...]:
    """`instead`: what else could be given."""
    is_row = isinstance(given, Sequence) and all(isinstance(one, Real) for one in given)
    if not is_row or len(given) not in lengths:
        raise WrongArgumentError(f"{name}={given!r}; give {instead}{' or '.join(map(str, lengths))} numbers")
    return tuple(number(one, name) for one in given)


def check_fill(fill: Any) -> None:
    """One value, or a dictionary with one for each type of image."""
    for one in fill.values() if isinstance(fill, Mapping) else (fill,):
        row = one if isinstance(one, (tuple, list)) else () if one is None else (one,)
        if not (row or one is None) or not all(isinstance(value, Real) for value in row):
            raise WrongArgumentError(f"fill={fill!r}; give a number, one for each channel, or None")
        for value in row:
            number(value, "fill")


def angle_range(given: Any, name: str, lengths: tuple[int, ...] = (2,)) -> tuple[float, ...]:
    if isinstance(given, Real):
        most = number(given, name)
        if most < 0:
            raise WrongArgumentError(f"{name}={given}; a single number must not be negative: give (least, most)")
        return (-most, most)
    return numbers_of(given, name, lengths, "one number, or ")


def check_probability(p: float) -> None:
    if not 0.0 <= p <= 1.0:
        raise WrongArgumentError(f"p={p}; a probability is from 0 to 1")


def centre_of(center: Any, height: int, width: int) -> tuple[float, float]:
    """(x, y), counted from the middle of the image."""
    return (0.0, 0.0) if center is None else (center[0] - width * 0.5, center[1] - height * 0.5)
