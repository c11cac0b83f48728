"""What eager computes, for tests to compare with."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from polyphase.sampling.axis_maps import AxisMap
from polyphase.sampling.evaluate import evaluate
from polyphase.sampling.steps import Area, Nearest, Resize, Step
from polyphase.sampling.windows import TapArithmetic, exact_arithmetic

TRUTH: TapArithmetic = exact_arithmetic(torch.float64)


def dense(step: Step | AxisMap, in_size: int, arithmetic: TapArithmetic = TRUTH) -> Tensor:
    axis_map = step if isinstance(step, AxisMap) else AxisMap((step,))
    return evaluate(axis_map, in_size, arithmetic).dense()


def mode_of(step: Resize | Area | Nearest) -> str:
    if isinstance(step, Nearest):
        return "nearest-exact" if step.exact else "nearest"
    return "area" if isinstance(step, Area) else step.filter


def keywords(step: Resize | Area | Nearest) -> dict[str, bool | str]:
    """The arguments of `interpolate` for a step, except the size."""
    if not isinstance(step, Resize):
        return {"mode": mode_of(step)}
    return {"mode": step.filter, "antialias": step.antialias, "align_corners": step.align_corners}


def matrix(step: Resize | Area | Nearest, in_size: int, dtype: torch.dtype) -> Tensor:
    """Eager's (out, in) matrix of a step along the width: `interpolate` on the unit vectors.

    Each is an image of two equal rows, which stay two.
    """
    image = torch.eye(in_size, dtype=dtype)[:, None, None, :].expand(in_size, 1, 2, in_size).contiguous()
    scale = None if isinstance(step, Area) else step.scale
    if scale is None:
        result = interpolate(image, size=(2, step.size), **keywords(step))  # type: ignore[arg-type]
    else:
        result = interpolate(image, scale_factor=(1.0, scale), **keywords(step))  # type: ignore[arg-type]
    return result[:, 0, 0].T.double()
