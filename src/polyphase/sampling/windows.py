"""What each step reads: its window of taps, in the arithmetic eager uses.

Everything here is torch operations on sizes that may be symbolic, so the same few lines make the reference's tables
and, traced, the portable decompositions. No branch may depend on a symbolic size.

Float32 results equal eager's only if coordinates are rounded where eager's fused multiply-adds round, which is once,
after the whole expression. Hence the float64 detours that end in `.to(dtype)`, here and in the cubic filter.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from polyphase.sampling import filters
from polyphase.sampling.core_aten import arange, where
from polyphase.sampling.integers import SUMMED_IN
from polyphase.sampling.steps import Area, Box, Flip, IndexOnly, Nearest, Pad, Resize, Size, Slice, Weighted
from polyphase.sampling.taps import Taps, quantise


@dataclass(frozen=True)
class DeviceRules:
    """Where eager's own arithmetic differs from device to device; `calls/rules.py` knows which has which.

    bicubic_backward_fused: the gradient of plain bicubic rounds coordinates once, as its forward does everywhere.
    antialias_in_double: antialiased weights of float32 images are computed in float64, but for the ratio.
    nearest_in_double: nearest's ratio of a float64 image is a double.
    antialiases_half: 16-bit floats are antialiased.
    """

    bicubic_backward_fused: bool = True
    antialias_in_double: bool = False
    nearest_in_double: bool = True
    antialiases_half: bool = False


@dataclass(frozen=True)
class TapArithmetic:
    """How coefficients are computed, for an image's dtype as eager does or exactly.

    weights: the dtype that coordinates and weights are rounded to; nearest: what nearest's ratio is rounded to;
    quantised: weights become 16 bit integers; floor: what a coordinate is rounded to before its left neighbour is
    taken (ATen calls floorf, for doubles too); fused: whether bicubic's coordinates are rounded once (forward) or after
    each operation; antialiased: what antialiased weights are computed in, if not in their own dtype.
    """

    weights: torch.dtype
    nearest: torch.dtype
    quantised: bool = False
    floor: torch.dtype = torch.float32
    fused: bool = True
    antialiased: torch.dtype | None = None


def eager_arithmetic(dtype: torch.dtype, rules: DeviceRules = DeviceRules()) -> TapArithmetic:
    """Eager computes uint8 weights in float64 and rounds them to 16 bits; half precision has float32 weights. Integers
    that eager does not mix have float64 ones; which of their pixels is nearest, eager knows too."""
    if dtype == torch.uint8:
        return TapArithmetic(torch.float64, torch.float32, quantised=True)
    if dtype == torch.float64:
        return TapArithmetic(torch.float64, torch.float64 if rules.nearest_in_double else torch.float32)
    if dtype in SUMMED_IN:
        return TapArithmetic(torch.float64, torch.float32)
    return TapArithmetic(torch.float32, torch.float32, antialiased=torch.float64 if rules.antialias_in_double else None)


def backward_arithmetic(dtype: torch.dtype, rules: DeviceRules) -> TapArithmetic:
    """Eager's bicubic backward on the CPU, alone, is built for every CPU of its kind: on x86 without fused
    multiply-adds. At a few outputs, whose coordinate lies close to a pixel's, it is not quite the adjoint of its
    forward there."""
    return replace(eager_arithmetic(dtype, rules), fused=rules.bicubic_backward_fused)


def exact_arithmetic(dtype: torch.dtype) -> TapArithmetic:
    """The truth: weights in float64. Which pixel is nearest, and all of uint8, are definitions, not roundings."""
    eager = eager_arithmetic(dtype)
    if eager.quantised:
        return eager
    return TapArithmetic(torch.float64, eager.nearest, floor=torch.float64)


@dataclass(frozen=True, eq=False)
class Window:
    """Output i reads input start[i] + k with weight[k, i].

    ratio: 0-dim, input pixels per output pixel. peak: the largest weight there was while taps were folded, if any were.
    """

    start: Tensor
    weight: Tensor
    ratio: Tensor
    peak: Tensor | None = None


def weighted_taps(step: Weighted, in_size: Size, arithmetic: TapArithmetic, device: torch.device | None = None) -> Taps:
    window = _window(step, in_size, arithmetic, device)
    k = arange(window.weight.shape[0], device=device)[:, None]
    taps = Taps(in_size, torch.clamp(window.start + k, max=in_size - 1), window.weight)
    return quantise(taps, window.peak) if arithmetic.quantised else taps


def index_taps(step: IndexOnly, in_size: Size, arithmetic: TapArithmetic, device: torch.device | None = None) -> Taps:
    """The one input pixel per output of an index-only step; a constant border points at some pixel it does not read."""
    match step:
        case Nearest():
            return Taps(in_size, _nearest(step, in_size, arithmetic, device)[0][None])
        case Flip():
            return Taps(in_size, (-arange(in_size, device=device) + (in_size - 1))[None])
        case Slice(start, stop, stride):
            return Taps(in_size, torch.arange(start, stop, stride, device=device)[None])
        case Pad():
            return _pad(step, in_size, device)


def transposed_taps(
    step: Weighted | Nearest, in_size: Size, arithmetic: TapArithmetic, device: torch.device | None = None
) -> Taps:
    """The adjoint of a resize in gather form, with symbolic sizes: each input pixel looks at the outputs near it.

    The candidates begin one before the first that can reach the pixel, and a candidate that does not has weight 0.
    """
    out_size = step.size
    window = _window(step, in_size, arithmetic, device)
    pixel = arange(in_size, device=device)
    ratio = torch.clamp(window.ratio.double(), min=1.0 / out_size)  # 0 for align_corners with one pixel: all outputs
    first = torch.floor((pixel - _radius(step, ratio) - _origin(step, ratio)) / ratio).to(torch.int64) - 1
    output = torch.clamp(first, min=0) + arange(_most_rows(step, in_size), device=device)[:, None]
    within = torch.clamp(output, max=out_size - 1)
    k = pixel - window.start[within]
    length = window.weight.shape[0]
    reads = torch.logical_and(output < out_size, torch.logical_and(k >= 0, k < length))
    weight = where(reads, window.weight[torch.clamp(k, 0, length - 1), within], 0.0)
    return Taps(out_size, within, weight)


def _window(step: Weighted | Nearest, in_size: Size, arithmetic: TapArithmetic, device: torch.device | None) -> Window:
    match step:
        case Resize(antialias=True):
            return _antialiased(step, in_size, arithmetic, device)
        case Resize():
            return _interpolated(step, in_size, arithmetic, device)
        case Area():
            return _area(step, in_size, arithmetic, device)
        case Nearest():
            index, ratio = _nearest(step, in_size, arithmetic, device)
            return Window(index, torch.full((1, step.size), 1.0, dtype=arithmetic.weights, device=device), ratio)


def _interpolated(step: Resize, in_size: Size, arithmetic: TapArithmetic, device: torch.device | None) -> Window:
    """Bilinear and bicubic between the nearest 2 or 4 pixels; taps beyond the image fold onto its first or last."""
    dtype, linear = arithmetic.weights, step.filter == "bilinear"
    kernel = filters.PLAIN[step.filter]
    # Eager's float bicubic resamples an axis even if only its scale, not its size, changes; its uint8 one does not.
    ratio = _ratio(step, in_size, dtype, device, keep_equal=linear or arithmetic.quantised)
    i = arange(step.size, dtype=torch.float64, device=device)
    if linear or arithmetic.fused or step.align_corners:
        exactly = _placed(step, ratio.double() * i) if step.align_corners else _half_pixel_source(step, ratio, i)
        source = exactly.to(dtype)
    else:
        source = _placed(step, ratio.double() * (i + 0.5)).to(dtype) - 0.5
    if linear:
        source = torch.clamp(source, min=0)
    left = torch.clamp(torch.floor(source.to(arithmetic.floor)).to(dtype), max=in_size - 1)
    fraction = torch.clamp(source - left, 0, 1)

    reach = int(kernel.support)
    offset = arange(2 * reach, start=1 - reach, device=device)[:, None]
    pixel = torch.clamp(left.to(torch.int64) + offset, min=0, max=in_size - 1)
    # Distances as eager rounds them: from the left neighbour, and from the right one at 1 - fraction.
    distance = torch.where(offset > 0, (-fraction + 1) + (offset - 1).to(dtype), fraction - offset.to(dtype))
    weight = kernel.weight(distance)
    start = pixel[0]
    tap = arange(2 * reach, device=device)[:, None, None]
    folded = where(pixel - start == tap, weight, 0.0).sum(1)
    if not arithmetic.quantised:
        return Window(start, folded, ratio)
    # [k, j, i]: tap j, up to k, folded onto k's pixel
    so_far = torch.logical_and(pixel[:, None] == pixel, tap >= tap[:, 0])
    return Window(start, folded, ratio, where(so_far, weight, 0.0).sum(1).amax())


def _antialiased(step: Resize, in_size: Size, arithmetic: TapArithmetic, device: torch.device | None) -> Window:
    """The filter, stretched over the input pixels of one output pixel when shrinking, and normalised."""
    kernel = filters.ANTIALIAS[step.filter]
    # Eager has no box: its edges are found in float64 always, for a pixel that lies on one must not change sides.
    is_box = step.filter == "box"
    dtype = torch.float64 if is_box else arithmetic.antialiased or arithmetic.weights
    ratio = _ratio(step, in_size, dtype if is_box else arithmetic.weights, device, keep_equal=True)
    stretch = torch.clamp(ratio, min=1).double()
    support = (kernel.support * stretch).to(dtype)
    inverse = (1 / stretch).to(dtype)
    i = arange(step.size, dtype=torch.float64, device=device)
    centre = _placed(step, ratio.double() * (i + 0.5)).to(dtype)
    if arithmetic.antialiased is None or is_box:
        low, high = (centre - support).double(), (centre + support).double()
    else:  # bounds are still rounded to the weights' dtype, once before the half and once after it
        reach = support.to(arithmetic.weights)
        low, high = (centre - reach).to(arithmetic.weights), (centre + reach).to(arithmetic.weights)
    start = torch.clamp((low + 0.5).to(torch.int64), min=0)
    stop = torch.clamp((high + 0.5).to(torch.int64), max=in_size)

    pixel = start + arange(_most_taps(step, in_size), device=device)[:, None]
    distance = (((pixel.to(dtype) - centre).double() + 0.5) * inverse.double()).to(dtype)
    weight = where(pixel < stop, kernel.weight(distance), 0.0).double()
    total = weight.sum(0)
    weight = weight / where(total == 0, 1.0, total)
    return Window(start, weight.to(arithmetic.weights), ratio)


def _area(step: Area, in_size: Size, arithmetic: TapArithmetic, device: torch.device | None) -> Window:
    i = arange(step.size, device=device)
    start = torch.div(i * in_size, step.size, rounding_mode="floor")
    stop = torch.div((i + 1) * in_size + step.size - 1, step.size, rounding_mode="floor")
    pixel = start + arange(_ceiling(in_size, step.size) + 1, device=device)[:, None]
    inside = (pixel < stop).to(arithmetic.weights)
    ratio = _scalar(in_size, torch.float64, device) / _scalar(step.size, torch.float64, device)
    return Window(start, inside / inside.sum(0), ratio)


def _nearest(
    step: Nearest, in_size: Size, arithmetic: TapArithmetic, device: torch.device | None
) -> tuple[Tensor, Tensor]:
    """The pixel each output takes, and the ratio. The ratio of a float64 image is a double, its positions are not."""
    ratio = _ratio(step, in_size, arithmetic.nearest, device, keep_equal=False)
    i = arange(step.size, dtype=torch.float64, device=device)
    if step.exact:
        position = torch.clamp(_half_pixel_source(step, ratio, i).float(), min=0) + 0.5
    else:
        position = _placed(step, ratio.double() * i).float()
    return torch.clamp(position.to(torch.int64), max=in_size - 1), ratio


def _half_pixel_source(step: Resize | Nearest, ratio: Tensor, i: Tensor) -> Tensor:
    """ratio * (i + 0.5) - 0.5 in float64 with one rounding, as a fused multiply-add has it; from where a box begins.

    The ratio in two parts of at most 29 bits: both products are exact for any size below 2**24.
    """
    high = ratio.float().double()
    low = ratio.double() - high
    return (high * (i + 0.5) - (0.5 - _begin(step))) + low * (i + 0.5)


def _box(step: Weighted | Nearest) -> Box | None:
    return None if isinstance(step, Area) else step.box


def _begin(step: Weighted | Nearest) -> float:
    """Where on the axis the first output begins."""
    box = _box(step)
    return 0.0 if box is None else box[0]


def _placed(step: Resize | Nearest, position: Tensor) -> Tensor:
    """A position that is counted from where the box begins, on the axis."""
    return position if step.box is None else position + step.box[0]


def _pad(step: Pad, in_size: Size, device: torch.device | None) -> Taps:
    place = arange(step.before + in_size + step.after, device=device) - step.before
    border = None
    match step.mode:
        case "constant":
            border = torch.logical_or(place < 0, place >= in_size) * step.border
            place = torch.clamp(place, min=0, max=in_size - 1)
        case "replicate":
            place = torch.clamp(place, min=0, max=in_size - 1)
        case "circular":  # what is left after a crop is what repeats
            first = torch.sym_max(-step.before, 0)
            length = in_size - first - torch.sym_max(-step.after, 0)
            place = torch.remainder(place - first, length) + first
        case "reflect":
            place = -(place.abs() - (in_size - 1)).abs() + (in_size - 1)
        case "symmetric":  # mirrored at the outer edges: the first and the last pixel are repeated
            place = where(place < 0, -1 - place, place)
            place = torch.minimum(place, 2 * in_size - 1 - place)
    if isinstance(in_size, int) and in_size == 0:  # nothing to point at: no tap at all
        return Taps(in_size, place[None][:0], border=border)
    return Taps(in_size, place[None], border=border)


def _ratio(
    step: Resize | Nearest, in_size: Size, dtype: torch.dtype, device: torch.device | None, keep_equal: bool
) -> Tensor:
    """Input pixels per output pixel, rounded as eager rounds it.

    keep_equal: a scale that leaves the size as it is leaves the axis as it is.
    """
    length = in_size if step.box is None else step.box[1] - step.box[0]
    if isinstance(step, Resize) and step.align_corners:
        span = _scalar(length - 1, dtype, device) / _scalar(torch.sym_max(step.size - 1, 1), dtype, device)
        return where(_scalar(step.size, torch.int64, device) > 1, span, 0.0)
    if step.scale is None:
        return _scalar(length, dtype, device) / _scalar(step.size, dtype, device)
    ratio = _scalar(1.0 / step.scale, dtype, device)
    if not keep_equal:
        return ratio
    return where(torch.eq(_scalar(in_size, torch.int64, device), step.size), 1.0, ratio)


def _fraction(step: Weighted | Nearest, in_size: Size, whole: Callable[[float], int]) -> tuple[Size, Size]:
    """The ratio as two integers, where the sizes give it; `whole`: what a box is taken to be long.

    Table sizes are made from integers alone: torch 2.11 prints the maximum of two symbolic floats as one of integers.
    """
    box = _box(step)
    length = in_size if box is None else whole(box[1] - box[0])
    if isinstance(step, Resize) and step.align_corners:
        return length - 1, torch.sym_max(step.size - 1, 1)
    return length, step.size


def _scale(step: Weighted | Nearest) -> float | None:
    """The user's scale factor, where the step heeds one."""
    if isinstance(step, Area) or (isinstance(step, Resize) and step.align_corners):
        return None
    return step.scale


def _most_taps(step: Resize, in_size: Size) -> Size:
    """How many pixels an antialiased filter can reach: 2 * ceil(support * max(ratio, 1)) + 1."""
    support, scale = filters.ANTIALIAS[step.filter].support, _scale(step)
    if scale is not None:
        return 2 * math.ceil(support * max(1.0 / scale, 1.0)) + 1  # a ratio of 1 where the size stays as it is
    over, under = _fraction(step, in_size, math.ceil)
    return 2 * _ceiling(int(2 * support) * torch.sym_max(over, under), 2 * under) + 1


def _most_rows(step: Weighted | Nearest, in_size: Size) -> Size:
    """How many outputs can read one input pixel: 2 * radius / ratio, with room for a candidate too many on either side.

    A scale that promises fewer outputs than there are leaves the rest beyond the image, where they all fold onto its
    last pixel.
    """
    scale = _scale(step)
    if scale is not None:
        low, high = min(1.0 / scale, 1.0), max(1.0 / scale, 1.0)  # 1 where the size stays as it is
        beyond = torch.sym_max(step.size - math.floor(in_size / high), 0)
        rows = math.ceil(2 * _radius(step, high) / low) + 4 + beyond
    else:
        over, under = _fraction(step, in_size, math.floor)
        rows = _ceiling(_diameter(step, over, under), torch.sym_max(over, 1)) + 4
    most: Size = torch.sym_min(rows, step.size)
    return most


def _diameter(step: Weighted | Nearest, over: Size, under: Size) -> Size:
    """2 * radius for a ratio of over / under, times under."""
    match step:
        case Resize(antialias=True):
            stretched: Size = torch.sym_max(over, under)
            return int(2 * filters.ANTIALIAS[step.filter].support) * stretched
        case Resize():
            return int(2 * filters.PLAIN[step.filter].support) * under
        case Area():
            return over + 2 * under
        case Nearest():
            return 2 * under


def _ceiling(over: Size, under: Size) -> Size:
    return (over + under - 1) // under


def _origin(step: Weighted | Nearest, ratio: Tensor) -> Tensor | float:
    """Where output 0 lies on the input axis, in pixels between pixel centres; output i lies `ratio * i` further."""
    match step:
        case Resize(align_corners=True, antialias=False):
            return _begin(step)
        case Nearest(exact=exact):
            return ratio * 0.5 + _begin(step) if exact else _begin(step)
    return ratio * 0.5 - (0.5 - _begin(step))


def _radius(step: Weighted | Nearest, ratio: Any) -> Any:
    """How far from its place an output can read, in pixels. For a ratio that is a tensor, or a float."""
    match step:
        case Resize(antialias=True):
            stretch = torch.clamp(ratio, min=1) if isinstance(ratio, Tensor) else max(ratio, 1.0)
            return stretch * filters.ANTIALIAS[step.filter].support
        case Resize():
            return filters.PLAIN[step.filter].support
        case Area():
            return ratio * 0.5 + 1
        case Nearest():
            return 1.0


def _scalar(value: Size | float, dtype: torch.dtype, device: torch.device | None) -> Tensor:
    return torch.scalar_tensor(value, dtype=dtype, device=device)
