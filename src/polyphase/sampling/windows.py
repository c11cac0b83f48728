"""What each step reads: its window of taps, in the arithmetic eager uses.

Everything here is torch operations on sizes that may be symbolic, so the same few lines make the reference's tables
and, traced, the portable decompositions. No branch may depend on a symbolic size.

Float32 results equal eager's only if coordinates are rounded where eager's fused multiply-adds round, which is once,
after the whole expression. Hence the float64 detours that end in `.to(dtype)`. Given those coordinates, weights are
computed in float64 and rounded once, which is closer to the truth than eager's own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from polyphase.sampling import filters
from polyphase.sampling.steps import Area, Flip, IndexOnly, Nearest, Pad, Resize, Size, Slice, Weighted
from polyphase.sampling.taps import Taps


@dataclass(frozen=True)
class Arithmetic:
    """How coefficients are computed, for an image's dtype as eager does or exactly.

    weights: the dtype that coordinates and weights are rounded to; nearest: likewise for nearest's coordinates;
    quantised: weights become 16 bit integers.
    """

    weights: torch.dtype
    nearest: torch.dtype
    quantised: bool = False


def eager_arithmetic(dtype: torch.dtype) -> Arithmetic:
    """Eager computes uint8 weights in float64 and rounds them to 16 bits; half precision has float32 weights."""
    if dtype == torch.uint8:
        return Arithmetic(torch.float64, torch.float32, quantised=True)
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    return Arithmetic(wide, wide)


def exact_arithmetic(dtype: torch.dtype) -> Arithmetic:
    """The truth: weights in float64. Which pixel is nearest, and 16 bit weights, are definitions, not roundings."""
    eager = eager_arithmetic(dtype)
    return Arithmetic(torch.float64, eager.nearest, eager.quantised)


@dataclass(frozen=True, eq=False)
class Window:
    """Output i reads input start[i] + k with weight[k, i].

    ratio, origin and radius say where: output i lies at `origin + ratio * i` on the input axis, and reads pixels less
    than `radius` away.
    """

    start: Tensor
    weight: Tensor
    ratio: Tensor
    origin: Tensor
    radius: Tensor


def weighted_taps(step: Weighted, in_size: Size, arithmetic: Arithmetic, device: torch.device | None = None) -> Taps:
    window = _window(step, in_size, arithmetic, device)
    k = torch.arange(window.weight.shape[0], device=device)[:, None]
    return Taps(in_size, torch.clamp(window.start + k, max=in_size - 1), window.weight)


def index_taps(step: IndexOnly, in_size: Size, arithmetic: Arithmetic, device: torch.device | None = None) -> Taps:
    """The one input pixel per output of an index-only step; a constant border points at some pixel it does not read."""
    match step:
        case Nearest():
            return Taps(in_size, _nearest(step, in_size, arithmetic, device)[0][None])
        case Flip():
            return Taps(in_size, (in_size - 1 - torch.arange(in_size, device=device))[None])
        case Slice(start, stop, stride):
            return Taps(in_size, torch.arange(start, stop, stride, device=device)[None])
        case Pad():
            return _pad(step, in_size, device)


def transposed_taps(
    step: Weighted | Nearest, in_size: Size, arithmetic: Arithmetic, device: torch.device | None = None
) -> Taps:
    """The adjoint of a resize in gather form, with symbolic sizes: each input pixel looks at the outputs near it.

    The candidates begin one before the first that can reach the pixel, and a candidate that does not has weight 0.
    """
    out_size = step.size
    window = _window(step, in_size, arithmetic, device)
    pixel = torch.arange(in_size, device=device)
    ratio = torch.clamp(window.ratio.double(), min=1.0 / out_size)  # 0 for align_corners with one pixel: all outputs
    first = torch.floor((pixel - window.radius - window.origin) / ratio).to(torch.int64) - 1
    output = torch.clamp(first, min=0) + torch.arange(_most_rows(step, in_size), device=device)[:, None]
    within = torch.clamp(output, max=out_size - 1)
    k = pixel - window.start[within]
    length = window.weight.shape[0]
    reads = (output < out_size) & (k >= 0) & (k < length)
    weight = torch.where(reads, window.weight[torch.clamp(k, 0, length - 1), within], 0.0)
    return Taps(out_size, within, weight)


def _window(step: Weighted | Nearest, in_size: Size, arithmetic: Arithmetic, device: torch.device | None) -> Window:
    match step:
        case Resize(antialias=True):
            return _antialiased(step, in_size, arithmetic, device)
        case Resize():
            return _interpolated(step, in_size, arithmetic, device)
        case Area():
            return _area(step, in_size, arithmetic, device)
        case Nearest():
            index, ratio = _nearest(step, in_size, arithmetic, device)
            weight = torch.ones_like(index, dtype=arithmetic.weights)[None]
            origin = (0.5 if step.exact else 0.0) * ratio
            return Window(index, weight, ratio, origin, torch.ones_like(ratio))


def _interpolated(step: Resize, in_size: Size, arithmetic: Arithmetic, device: torch.device | None) -> Window:
    """Bilinear and bicubic between the nearest 2 or 4 pixels; taps beyond the image fold onto its first or last."""
    dtype, linear = arithmetic.weights, step.filter == "bilinear"
    kernel = filters.PLAIN[step.filter]
    # Eager's float bicubic resamples an axis even if only its scale, not its size, changes; its uint8 one does not.
    ratio = _ratio(step, in_size, dtype, device, keep_equal=linear or arithmetic.quantised)
    i = torch.arange(step.size, dtype=torch.float64, device=device)
    source = (ratio.double() * i if step.align_corners else ratio.double() * (i + 0.5) - 0.5).to(dtype)
    if linear:
        source = torch.clamp(source, min=0)
    left = torch.clamp(torch.floor(source), max=in_size - 1)
    fraction = torch.clamp(source - left, 0, 1)

    reach = int(kernel.support)
    offset = torch.arange(1 - reach, 1 + reach, device=device)[:, None]
    pixel = torch.clamp(left.to(torch.int64) + offset, min=0, max=in_size - 1)
    weight = kernel.weight(fraction.double() - offset)
    start = pixel[0]
    slot = torch.arange(2 * reach, device=device)[:, None, None]
    folded = torch.where(pixel - start == slot, weight, 0.0).sum(1).to(dtype)

    origin = torch.zeros_like(ratio) if step.align_corners else 0.5 * ratio - 0.5
    radius = torch.full_like(ratio, kernel.support)
    return Window(start, folded, ratio, origin, radius)


def _antialiased(step: Resize, in_size: Size, arithmetic: Arithmetic, device: torch.device | None) -> Window:
    """The filter, stretched over the input pixels of one output pixel when shrinking, and normalised."""
    dtype, kernel = arithmetic.weights, filters.ANTIALIAS[step.filter]
    ratio = _ratio(step, in_size, dtype, device, keep_equal=True)
    stretch = torch.clamp(ratio, min=1).double()
    support = (kernel.support * stretch).to(dtype)
    inverse = (1 / stretch).to(dtype)
    i = torch.arange(step.size, dtype=torch.float64, device=device)
    centre = (ratio.double() * (i + 0.5)).to(dtype)
    start = torch.clamp(((centre - support).double() + 0.5).to(torch.int64), min=0)
    stop = torch.clamp(((centre + support).double() + 0.5).to(torch.int64), max=in_size)

    widest = kernel.support * _at_least_one(_ratio_bounds(step, in_size)[1])
    pixel = start + torch.arange(2 * math.ceil(widest) + 1, device=device)[:, None]
    distance = (((pixel.to(dtype) - centre).double() + 0.5) * inverse.double()).to(dtype)
    weight = torch.where(pixel < stop, kernel.weight(distance.double()), 0.0)
    total = weight.sum(0)
    weight = (weight / torch.where(total == 0, 1.0, total)).to(dtype)
    return Window(start, weight, ratio, 0.5 * ratio - 0.5, support)


def _area(step: Area, in_size: Size, arithmetic: Arithmetic, device: torch.device | None) -> Window:
    i = torch.arange(step.size, device=device)
    start = torch.div(i * in_size, step.size, rounding_mode="floor")
    stop = torch.div((i + 1) * in_size + step.size - 1, step.size, rounding_mode="floor")
    pixel = start + torch.arange((in_size + step.size - 1) // step.size + 1, device=device)[:, None]
    inside = (pixel < stop).to(arithmetic.weights)
    ratio = _scalar(in_size, torch.float64, device) / _scalar(step.size, torch.float64, device)
    radius = 0.5 * ratio + 1
    return Window(start, inside / inside.sum(0), ratio, 0.5 * ratio - 0.5, radius)


def _nearest(
    step: Nearest, in_size: Size, arithmetic: Arithmetic, device: torch.device | None
) -> tuple[Tensor, Tensor]:
    """The pixel each output takes, and the ratio; in float32 except for float64 images, as eager."""
    ratio = _ratio(step, in_size, arithmetic.nearest, device, keep_equal=False)
    i = torch.arange(step.size, dtype=arithmetic.nearest, device=device)
    position = (i + 0.5 if step.exact else i) * ratio
    return torch.clamp(position.to(torch.int64), max=in_size - 1), ratio


def _pad(step: Pad, in_size: Size, device: torch.device | None) -> Taps:
    place = torch.arange(step.before + in_size + step.after, device=device) - step.before
    border = None
    match step.mode:
        case "constant":
            border = torch.where((place >= 0) & (place < in_size), 0, step.border)
            place = torch.clamp(place, min=0, max=in_size - 1)
        case "replicate":
            place = torch.clamp(place, min=0, max=in_size - 1)
        case "circular":
            place = torch.remainder(place, in_size)
        case "reflect":
            place = (in_size - 1) - ((in_size - 1) - place.abs()).abs()
    if isinstance(in_size, int) and in_size == 0:  # nothing to point at: no tap at all
        return Taps(in_size, place[None][:0], place[None][:0], border=border)
    return Taps(in_size, place[None], border=border)


def _ratio(
    step: Resize | Nearest, in_size: Size, dtype: torch.dtype, device: torch.device | None, keep_equal: bool
) -> Tensor:
    """Input pixels per output pixel, rounded as eager rounds it.

    keep_equal: a scale that leaves the size as it is leaves the axis as it is.
    """
    if isinstance(step, Resize) and step.align_corners:
        span = _scalar(in_size - 1, dtype, device) / _scalar(torch.sym_max(step.size - 1, 1), dtype, device)
        return torch.where(_scalar(step.size, torch.int64, device) > 1, span, 0.0)
    if step.scale is None:
        return _scalar(in_size, dtype, device) / _scalar(step.size, dtype, device)
    ratio = _scalar(1.0 / step.scale, dtype, device)
    if not keep_equal:
        return ratio
    return torch.where(torch.eq(_scalar(in_size, torch.int64, device), step.size), 1.0, ratio)


def _ratio_bounds(step: Weighted | Nearest, in_size: Size) -> tuple[float, float]:
    """The least and the greatest the ratio can be, as numbers to size tables with."""
    if isinstance(step, Resize) and step.align_corners:
        ratio = (in_size - 1) / torch.sym_max(step.size - 1, 1)
        return ratio, ratio
    scale = _scale(step)
    if scale is None:
        return in_size / step.size, in_size / step.size
    return min(1.0 / scale, 1.0), max(1.0 / scale, 1.0)  # 1 where the size stays as it is


def _scale(step: Weighted | Nearest) -> float | None:
    """The user's scale factor, where the step heeds one."""
    if isinstance(step, Area) or (isinstance(step, Resize) and step.align_corners):
        return None
    return step.scale


def _most_rows(step: Weighted | Nearest, in_size: Size) -> Size:
    """How many outputs can read one input pixel, with room for a candidate too many on either side.

    An output closer than the stretched support reads it. A scale that promises fewer outputs than there are leaves
    the rest beyond the image, where they all fold onto its last pixel.
    """
    low, high = _ratio_bounds(step, in_size)
    match step:
        case Resize(antialias=True):
            reach = filters.ANTIALIAS[step.filter].support * _at_least_one(high)
        case Resize():
            reach = filters.PLAIN[step.filter].support
        case Area():
            reach = 0.5 * high + 1
        case Nearest():
            reach = 1.0
    rows = math.ceil(2 * reach / torch.sym_max(low, 1.0 / step.size)) + 4
    if _scale(step) is not None:
        rows = rows + torch.sym_max(step.size - math.floor(in_size / high), 0)
    most: Size = torch.sym_min(rows, step.size)
    return most


def _at_least_one(ratio: float) -> float:
    stretch: float = torch.sym_max(ratio, 1.0)
    return stretch


def _scalar(value: Size | float, dtype: torch.dtype, device: torch.device | None) -> Tensor:
    return torch.scalar_tensor(value, dtype=dtype, device=device)
