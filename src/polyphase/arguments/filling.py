"""From the arguments `fill` and `fill_rule` to a warp that has them."""

from __future__ import annotations

from dataclasses import replace
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from polyphase.arguments.integers import number
from polyphase.errors import WrongArgumentError, WrongArgumentTypeError, WrongSizeError
from polyphase.records.facts import Facts
from polyphase.sampling.warps import FILL_RULES, Warp


def filled(warp: Warp, image: Facts | Tensor, fill: Any = None, rule: Any = "blend") -> Warp:
    if not isinstance(rule, str) or rule not in FILL_RULES:
        raise WrongArgumentError(f"unknown fill_rule {rule!r}; choose one of: {', '.join(FILL_RULES)}")
    numbers = fill_numbers(fill)
    if numbers is None:
        return warp
    if warp.padding != "zeros":
        raise WrongArgumentError(
            f"fill={fill!r} with padding_mode {warp.padding!r}, which leaves nothing to fill; use padding_mode 'zeros'"
        )
    if len(numbers) not in (1, image.shape[1]):
        raise WrongSizeError(
            f"fill has {len(numbers)} numbers for an image of shape {tuple(image.shape)}; give one, or one for each "
            f"of its {image.shape[1]} channels"
        )
    most = torch.finfo(torch.float64 if image.dtype == torch.float64 else torch.float32).max
    if rule == "blend" and warp.mode != "nearest" and not all(-most <= one <= most for one in numbers):
        raise WrongArgumentError(
            f"fill={fill!r} with fill_rule 'blend', which would spoil every pixel of a {image.dtype} image; give "
            f"finite numbers, of {most} at most, or use 'constant' or 'edge'"
        )
    return replace(warp, fill=tuple(numbers), fill_rule=rule)


def fill_numbers(fill: Any) -> list[float] | None:
    """Gives a fill as operators take it."""
    if fill is None:
        return None
    given = fill if isinstance(fill, (tuple, list)) else [fill]
    if not given or not all(isinstance(one, Real) for one in given):
        raise WrongArgumentTypeError(
            f"fill={fill!r} of type {type(fill).__name__}; give a number, or a tuple with one for each channel"
        )
    return [number(one, "fill") for one in given]
