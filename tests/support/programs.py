"""The programs of the shared samples: what each call of an operator means, as data."""

from __future__ import annotations

import math

from polyphase.sampling.axis_maps import AxisMap
from polyphase.sampling.programs import Axes, Border, Program
from polyphase.sampling.steps import Area, Flip, Nearest, Pad, Resize, Step
from polyphase.sampling.warps import Warp
from tests.support.samples import Sample, output_size


def has_program(sample: Sample) -> bool:
    """False where a flip or a pad reaches the batch or the channels, which are no axes of a program."""
    if sample.operator == "flip":
        return all(dim % len(sample.shape) >= 2 for dim in sample.kwargs["dims"])
    if sample.operator == "pad":
        return len(sample.kwargs["pad"]) <= 2 * sample.axes
    return True


def program_for(sample: Sample) -> Program:
    """The program of one call. That of `affine_grid` also samples, bilinear with zeros around, an image of the size
    asked for and the matrix's dtype."""
    if not has_program(sample):
        raise ValueError(f"{sample} reaches the batch or the channels; ask has_program first")
    borders: tuple[Border, ...] = ()
    match sample.operator:
        case "grid_sample":
            keywords = sample.kwargs
            warp = Warp("grid", keywords["mode"], keywords["padding_mode"], keywords["align_corners"])
            return Program(sample.dtype, warp)
        case "affine_grid":
            size = tuple(sample.kwargs["size"][2:])
            return Program(sample.dtype, Warp("affine", align_corners=sample.kwargs["align_corners"], size=size))
        case "interpolate":
            steps = [[_resize(sample, axis)] for axis in range(sample.axes)]
        case "flip":
            flipped = {dim % len(sample.shape) - 2 for dim in sample.kwargs["dims"]}
            steps = [[Flip()] if axis in flipped else [] for axis in range(sample.axes)]
        case "pad":
            steps = [_pad(sample, axis) for axis in range(sample.axes)]
            if sample.mode == "constant":
                borders = (Border(float(sample.kwargs["value"] or 0)),)
    return Program(sample.dtype, Axes(tuple(AxisMap(tuple(axis)) for axis in steps)), borders=borders)


def _resize(sample: Sample, axis: int) -> Step:
    size, scale, mode = output_size(sample.shape, sample.kwargs)[axis], _scale(sample, axis), sample.mode
    match mode:
        case "area":
            return Area(size)
        case "nearest" | "nearest-exact":
            return Nearest(size, mode == "nearest-exact", scale)
    name = mode if mode in ("bicubic", "lanczos") else "bilinear"
    return Resize(size, name, sample.antialias, bool(sample.kwargs.get("align_corners")), scale)


def _scale(sample: Sample, axis: int) -> float | None:
    factors = sample.kwargs.get("scale_factor")
    if factors is None or sample.kwargs.get("recompute_scale_factor"):
        return None
    factor: float = factors if isinstance(factors, float) else factors[axis]
    assert math.isfinite(factor)
    return factor


def _pad(sample: Sample, axis: int) -> list[Step]:
    """The amounts come in pairs, the last axis first."""
    amounts = sample.kwargs["pad"]
    first = 2 * (sample.axes - 1 - axis)
    if first >= len(amounts):
        return []
    mode = str(sample.mode)
    return [Pad(amounts[first], amounts[first + 1], mode, border=1 if mode == "constant" else 0)]
