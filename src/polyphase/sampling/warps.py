"""Warps: a coordinate per output pixel, read from a grid or computed: from an affine matrix, or by a formula.

Coordinates are PyTorch's: -1 and 1 are the first and last pixel's centres (align_corners) or the image's outer edges;
the last axis of a grid holds x, y (, z), the reverse of the image's axes. Everything is torch operations on sizes that
may be symbolic, shared by the reference (in float64) and the decompositions.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, TypeAlias

import torch
from torch import Tensor

from polyphase.errors import InvalidProgramError, UnknownNameError
from polyphase.sampling import filters
from polyphase.sampling.core_aten import arange, where
from polyphase.sampling.formulas import Formula, base_coordinates
from polyphase.sampling.steps import Size

#: In the order of ATen's integer codes.
MODES = ("bilinear", "nearest", "bicubic")
PADDINGS = ("zeros", "border", "reflection")
SOURCES = ("grid", "affine", "formula")
#: How what lies outside the image goes with what was sampled: torchvision's, OpenCV's and kornia's, Pillow's.
FILL_RULES = ("blend", "constant", "edge")

#: (pixel, weight, inside); no weight means 1.
Tap: TypeAlias = "tuple[Tensor, Tensor | None, Tensor]"


@dataclass(frozen=True)
class Warp:
    """`size`: the output's spatial size, where coordinates are computed; a grid has its own.

    fill: what lies outside, one number for all channels or one for each; none where padding alone says it. Let s be the
    sum of a pixel's taps inside the image and m that of their weights. fill_rule: `blend` is (s - fill) * m + fill;
    `constant` is s + (1 - m) * fill, as if pixels around the image had that value; `edge` is the fill where a position
    lies in no pixel of the image, and elsewhere sampled from the nearest pixels inside. The nearest pixel is itself or
    the fill.
    """

    source: str
    mode: str = "bilinear"
    padding: str = "zeros"
    align_corners: bool = False
    size: tuple[Size, ...] = ()
    fill: tuple[float, ...] = ()
    fill_rule: str = "blend"
    formula: Formula | None = None

    def __post_init__(self) -> None:
        # 0.0 and -0.0 are one, with one text; NaN is equal to itself.
        one_of_each = [math.nan if math.isnan(one) else float(one) + 0.0 for one in self.fill]
        object.__setattr__(self, "fill", tuple(one_of_each))
        for kind, seen, allowed in (
            ("warp source", self.source, SOURCES),
            ("warp mode", self.mode, MODES),
            ("padding mode", self.padding, PADDINGS),
            ("fill rule", self.fill_rule, FILL_RULES),
        ):
            if seen not in allowed:
                raise UnknownNameError(kind, seen, allowed)
        if (self.source != "grid") != bool(self.size):
            raise InvalidProgramError(
                f"warp from a {self.source} source with size {self.size}; computed coordinates need the output's "
                "spatial size, a grid has its own"
            )
        if (self.source == "formula") != (self.formula is not None) or (
            self.formula is not None and len(self.formula.axes) != len(self.size)
        ):
            raise InvalidProgramError(
                f"warp from a {self.source} source to {self.size} with formula {self.formula}; a formula source has "
                "one, of as many axes as the size, and no other source has"
            )
        if self.fill and self.padding != "zeros":
            raise InvalidProgramError(f"a fill with {self.padding} padding, which leaves nothing to fill; use zeros")
        spoils = self.fill_rule == "blend" and self.mode != "nearest"
        if spoils and not all(map(math.isfinite, self.fill)):
            raise InvalidProgramError(f"a blend with {self.fill}, which would spoil all pixels; use constant or edge")

    @staticmethod
    def of_options(size: Sequence[Size] | None, *options: Any) -> Warp:
        """A grid or, of a size, matrices, by what `options` gives."""
        mode, padding, align_corners, fill, fill_rule = options
        source = "affine" if size else "grid"
        return Warp(source, mode, padding, align_corners, tuple(size or ()), tuple(fill or ()), fill_rule)

    def options(self) -> tuple[Any, ...]:
        """Lists the warp's arguments as operators take them. A grid has no size: AOTInductor loses empty lists."""
        rules = self.mode, self.padding, self.align_corners
        return self.size or None, *rules, list(self.fill) or None, self.fill_rule

    @property
    def taps_padding(self) -> str:
        """How taps outside the image are padded: those of a hard edge are the nearest pixels inside."""
        has_hard_edge = self.fill and self.fill_rule == "edge" and self.mode != "nearest"
        return "border" if has_hard_edge else self.padding

    def without_fill(self) -> Warp:
        return replace(self, padding=self.taps_padding, fill=(), fill_rule="blend")


def fill_values(fill: Sequence[float], dtype: torch.dtype) -> tuple[float, ...]:
    """Gives a fill as pixels of a dtype that are only moved have it: integers rounded, ties to even, and saturated."""
    if dtype == torch.bool:
        return tuple(float(one != 0) for one in fill)
    if dtype.is_floating_point or dtype.is_complex:
        return tuple(fill)
    limits = torch.iinfo(dtype)
    return tuple(0 if math.isnan(one) else round(min(max(one, limits.min), limits.max)) for one in fill)


def affine_grid(theta: Tensor, size: Sequence[Size], align_corners: bool) -> Tensor:
    """The grid (N, *size, d) of an affine matrix (N, d, d + 1); `size` is spatial, 2-D or 3-D, in the image's order."""
    dims = len(size)
    columns = theta.reshape(theta.shape[0], *[1] * dims, *theta.shape[1:])
    grid = columns[..., dims]
    for axis, n in enumerate(size):
        place = base_coordinates(n, align_corners, theta).reshape([n] + [1] * (dims - axis))
        grid = grid + place * columns[..., dims - 1 - axis]
    return grid


def from_pixels(
    matrix: Tensor, input_size: Sequence[Size], output_size: Sequence[Size], *, inverse: bool, align_corners: bool
) -> Tensor:
    """A 3 x 3 matrix from the output's coordinates to the image's, of one between their pixels: from the image's to the
    output's, or with `inverse` the other way round. Computed in float64."""
    wide = matrix.double()
    if matrix.shape[-2] == 2:
        last = wide.new_tensor([0.0, 0.0, 1.0]).expand(*matrix.shape[:-2], 1, 3)
        wide = torch.cat([wide, last], dim=-2)
    if not inverse:
        wide = torch.linalg.inv(wide)
    after = torch.linalg.inv(_pixels_to_coordinates(output_size, align_corners, wide))
    result: Tensor = _pixels_to_coordinates(input_size, align_corners, wide) @ wide @ after
    return result.to(matrix.dtype)


def _pixels_to_coordinates(size: Sequence[Size], align_corners: bool, like: Tensor) -> Tensor:
    """Makes the matrix that takes (x, y, 1) of a pixel to coordinates; `size`: height and width."""
    (height, width), result = size, torch.eye(3, dtype=like.dtype, device=like.device)
    for row, n in enumerate((width, height)):
        steps = max(n - 1, 1) if align_corners else n
        result[row, row], result[row, 2] = 2 / steps, (1 - n) / steps  # a single pixel is at 0, aligned or not
    return result


def sample(
    image: Tensor,
    grid: Tensor,
    mode: str,
    padding: str,
    align_corners: bool,
    *,
    settled: torch.dtype | None = None,
    fill: Sequence[float] = (),
    fill_rule: str = "blend",
) -> Tensor:
    """`image` (N, C, *spatial) at `grid`'s coordinates (N, *out, d): (N, C, *out), in the grid's dtype if weighted.

    A NaN coordinate is what it is to eager's 2-D kernels: for nearest outside the image, for bicubic NaN, for bilinear
    NaN with zeros padding; otherwise padding takes it for the first pixel. A tap of weight 0 touches no value.

    `settled`: weighted modes take a position that is, in all axes, as near to a whole or half pixel as rounding to that
    dtype may have moved it to lie there. Has no gradient with respect to the grid.

    fill, fill_rule: as `Warp` has them; `padding` is its `taps_padding`.
    """
    spatial = image.shape[2:]
    positions = [
        _unnormalise(grid[..., len(spatial) - 1 - axis], size, align_corners) for axis, size in enumerate(spatial)
    ]
    if settled is not None and mode != "nearest":
        positions = _settle(positions, spatial, torch.finfo(settled).eps)
    axes = [
        _axis_taps(position, size, mode, padding, align_corners)
        for position, size in zip(positions, spatial, strict=True)
    ]
    total = None
    for combination in itertools.product(*axes):
        indices, weights, insides = zip(*combination, strict=True)
        touched = reduce(torch.logical_and, insides)[:, None]
        values = _take_pixels(image, indices)
        if mode != "nearest":
            weight = reduce(torch.mul, weights)
            values = values.to(grid.dtype)
            # A finite value changes nothing where its weight is 0, but there the weight may have a slope.
            is_finite = values.abs() < float("inf")
            touched = torch.logical_and(touched, torch.logical_or((weight != 0)[:, None], is_finite))
        values = where(touched, values, 0)
        term = values if mode == "nearest" else values * weight[:, None]
        total = term if total is None else total + term
    assert total is not None
    if not fill:
        return total
    if mode != "nearest" and fill_rule == "edge":
        return _filled(total, _lie_in_pixels(positions, spatial), fill, "edge")
    share = reduce(torch.mul, [_share_inside(taps, mode) for taps in axes])
    return _filled(total, share, fill, "edge" if mode == "nearest" else fill_rule)


def _share_inside(taps: Sequence[Tap], mode: str) -> Tensor:
    """Along an axis: of a weighted mode, how much of each pixel; exactly 1 where all of it lies inside, not the sum of
    rounded weights. Of the nearest, whether it does."""
    if mode == "nearest":
        return taps[0][2]
    whole = reduce(torch.logical_and, [inside for _, _, inside in taps])
    return where(whole, 1.0, reduce(torch.add, [weight * inside for _, weight, inside in taps]))  # type: ignore[operator]


def _lie_in_pixels(positions: Sequence[Tensor], sizes: Sequence[Size]) -> Tensor:
    pairs = zip(positions, sizes, strict=True)
    return reduce(torch.logical_and, [torch.logical_and(p >= -0.5, p < size - 0.5) for p, size in pairs])


def _filled(sampled: Tensor, share: Tensor, values: Sequence[float], rule: str) -> Tensor:
    """`share`: how much of each pixel lies inside; by the rule `edge`, whether it does."""
    share, shape = share[:, None], [-1] + [1] * (sampled.dim() - 2)
    dtype, device = sampled.dtype, sampled.device
    numbers = [torch.full((1,), one, dtype=dtype, device=device) for one in fill_values(values, dtype)]
    fill = torch.cat(numbers).reshape(shape)
    if rule == "edge":
        return torch.where(share, sampled, fill)
    if rule == "blend":
        return (sampled - fill) * share + fill
    outside = 1 - share
    seen = torch.logical_or(outside != 0, fill.abs() < float("inf"))  # 0 of what is not finite is nothing of it
    return sampled + outside * where(seen, fill, 0)


def _axis_taps(position: Tensor, size: Size, mode: str, padding: str, align_corners: bool) -> list[Tap]:
    """Lists the taps of each position, along one axis."""
    if mode == "bicubic":  # padding applies to each tap, not to the coordinate
        first, offsets = torch.floor(position), range(-1, 3)
        places = [_pad_position(first + offset, size, padding, align_corners) for offset in offsets]
    else:
        position = _pad_position(position, size, padding, align_corners)
        if mode == "nearest":
            pixel, inside = _pixel(torch.round(position), size)
            return [(pixel, None, inside)]
        first, offsets = torch.floor(position), range(2)
        places = [first + offset for offset in offsets]
    fraction = position - first
    if mode == "bilinear":  # spelt out: the triangle has no slope at its top, where every pixel's own centre is
        weights = [-fraction + 1, fraction]
    else:
        weights = [filters.PLAIN[mode].weight(fraction - offset) for offset in offsets]
    pixels = [_pixel(place, size) for place in places]
    return [(pixel, weight, inside) for weight, (pixel, inside) in zip(weights, pixels, strict=True)]


def _unnormalise(coordinate: Tensor, size: Size, align_corners: bool) -> Tensor:
    """Turns coordinates into pixels. Eager fuses the last multiplication and subtraction: one rounding, after both."""
    if align_corners:
        return (coordinate + 1) * ((size - 1) / 2)
    return ((coordinate + 1).double() * (size / 2) - 0.5).to(coordinate.dtype)


def _settle(positions: Sequence[Tensor], sizes: Sequence[Size], rounding: float) -> list[Tensor]:
    halves = [torch.round(2 * position) / 2 for position in positions]
    near = [torch.sym_min(size * rounding, 2**-10) for size in sizes]
    close = [(p - half).abs() <= limit for p, half, limit in zip(positions, halves, near, strict=True)]
    everywhere = reduce(torch.logical_and, close)
    return [torch.where(everywhere, half, p) for p, half in zip(positions, halves, strict=True)]


def _pad_position(position: Tensor, size: Size, padding: str, align_corners: bool) -> Tensor:
    if padding == "zeros":
        return position
    if padding == "reflection":
        position = _reflect(position, size, align_corners)
    return torch.clamp(where(torch.isnan(position), 0.0, position), 0, size - 1)


def _reflect(position: Tensor, size: Size, align_corners: bool) -> Tensor:
    """Folded at the centres (align_corners) or the outer edges of the first and last pixel."""
    low = 0.0 if align_corners else -0.5
    span = size - 1 if align_corners else size
    twice = torch.sym_max(2 * span, 1)  # one pixel with align_corners has no span: everything folds onto pixel 0
    distance = (position - low).abs()
    rest = distance - torch.trunc(distance / twice) * twice
    return torch.minimum(rest, -rest + 2 * span) + low


def _pixel(place: Tensor, size: Size) -> tuple[Tensor, Tensor]:
    """An index that is safe to read, and whether the place was inside the image (NaN is not)."""
    inside = torch.logical_and(place >= 0, place <= size - 1)
    return where(inside, place, 0.0).to(torch.int64), inside


def _take_pixels(image: Tensor, indices: Sequence[Tensor]) -> Tensor:
    """image[n, c, *indices[n]] for every channel."""
    lead = [1] * (indices[0].dim() - 1)
    batch = arange(image.shape[0], device=image.device).reshape(-1, 1, *lead)
    channel = arange(image.shape[1], device=image.device).reshape(1, -1, *lead)
    return torch.ops.aten.index.Tensor(image, [batch, channel, *(i[:, None] for i in indices)])  # type: ignore[no-any-return]
