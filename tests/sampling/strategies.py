"""Hypothesis strategies for the data of the sampling core: everything drawn is valid, and a map fits its axis."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from polyphase.sampling import filters, pointwise
from polyphase.sampling.axis_maps import AxisMap
from polyphase.sampling.pointwise import Expression
from polyphase.sampling.programs import ORDERS, Axes, Border, Program
from polyphase.sampling.steps import Area, Box, Flip, Nearest, Pad, Resize, Slice, Step, output_size
from polyphase.sampling.warps import FILL_RULES, MODES, PADDINGS, Warp

quick = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""Exact properties: new examples in every run."""

brief = settings(quick, max_examples=12)
"""Likewise, for a test with many parameters besides."""

steady = settings(quick, max_examples=8, derandomize=True)
"""Comparisons with eager within a tolerance: the same examples in every run."""

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
DTYPES = (*INTEGERS, *FLOATS, torch.bool, torch.complex64, torch.complex128)

EXTREME_SCALES = (0.01, 0.5, 1.0, 2.0, 100.0)


def sizes(most: int = 24) -> st.SearchStrategy[int]:
    return st.integers(1, most)


def scales() -> st.SearchStrategy[float]:
    return st.sampled_from(EXTREME_SCALES) | st.floats(0.05, 20)


def plain_resizes(most: int = 24, scale: st.SearchStrategy[float | None] | None = None) -> st.SearchStrategy[Resize]:
    given = st.none() | scales() if scale is None else scale
    return st.builds(
        Resize, sizes(most), st.sampled_from(sorted(filters.PLAIN)), align_corners=st.booleans(), scale=given
    )


def antialiased_resizes(
    most: int = 24, scale: st.SearchStrategy[float | None] | None = None
) -> st.SearchStrategy[Resize]:
    given = st.none() | scales() if scale is None else scale
    names = st.sampled_from(sorted(filters.ANTIALIAS))
    aligned = st.booleans()
    return st.builds(Resize, sizes(most), names, st.just(True), align_corners=aligned, scale=given)


def weighted_steps(
    most: int = 24, scale: st.SearchStrategy[float | None] | None = None
) -> st.SearchStrategy[Resize | Area]:
    return plain_resizes(most, scale) | antialiased_resizes(most, scale) | st.builds(Area, sizes(most))


def nearest_steps(most: int = 24) -> st.SearchStrategy[Nearest]:
    return st.builds(Nearest, sizes(most), st.booleans(), st.none() | scales())


@st.composite
def boxes(draw: st.DrawFn, in_size: int, least: float = 0.0) -> Box:
    """Of an axis of `in_size` pixels, `least` pixels or more; the whole axis and whole pixels among them."""
    places = st.integers(0, in_size).map(float) | st.floats(0, in_size)
    begin, end = sorted((draw(places), draw(places)))
    return (begin, end) if begin < end and end - begin >= least else (0.0, float(in_size))


@st.composite
def boxed_resizes(draw: st.DrawFn, in_size: int, most: int = 24) -> Resize:
    step = draw(plain_resizes(most, st.none()) | antialiased_resizes(most, st.none()))
    return replace(step, box=draw(boxes(in_size, least=1.0 if step.align_corners else 0.0)))


@st.composite
def boxed_nearest(draw: st.DrawFn, in_size: int, most: int = 24) -> Nearest:
    return Nearest(draw(sizes(most)), draw(st.booleans()), box=draw(boxes(in_size)))


@st.composite
def slices(draw: st.DrawFn, in_size: int, max_step: int = 3) -> Slice:
    """At least one pixel is left."""
    start = draw(st.integers(0, in_size - 1))
    return Slice(start, draw(st.integers(start + 1, in_size)), draw(st.integers(1, max_step)))


@st.composite
def pads(draw: st.DrawFn, in_size: int, border: int = 0) -> Pad:
    """At least one pixel is left of the axis; constant only if there is a `border` to give it."""
    modes = ("reflect", "replicate", "circular", *(["constant"] if border else []))
    mode = draw(st.sampled_from(modes))
    most = {"reflect": in_size - 1, "circular": in_size}.get(mode, 5)
    before = draw(st.integers(1 - in_size, most))
    after = draw(st.integers(max(1 - in_size, 1 - in_size - before), most))
    return Pad(before, after, mode, border if mode == "constant" else 0)


def crops_and_flips(in_size: int) -> st.SearchStrategy[Step]:
    return st.one_of(st.builds(Flip), slices(in_size, max_step=1))


def index_steps(in_size: int, border: int = 0) -> st.SearchStrategy[Step]:
    return st.one_of(st.builds(Flip), slices(in_size), nearest_steps(), boxed_nearest(in_size), pads(in_size, border))


@st.composite
def axis_maps(draw: st.DrawFn, in_size: int, *, weighted: bool = True, first_border: int = 0) -> AxisMap:
    """A map in the normal form for an axis of `in_size` pixels; its constant borders count up from `first_border`."""
    steps: list[Step] = []
    border = first_border

    def grow(strategy: Callable[[int], st.SearchStrategy[Step]]) -> None:
        nonlocal in_size
        steps.append(draw(strategy(in_size)))
        in_size = output_size(steps[-1], in_size)

    if weighted and draw(st.booleans()):
        for _ in range(draw(st.integers(0, 2))):
            grow(crops_and_flips)
        grow(lambda size: weighted_steps() | boxed_resizes(size))
    for _ in range(draw(st.integers(0, 3))):
        grow(partial(index_steps, border=border))
        last = steps[-1]
        if isinstance(last, Pad) and last.border:
            border += 1
    return AxisMap(tuple(steps))


@st.composite
def fitting_maps(draw: st.DrawFn, *, weighted: bool = True, first_border: int = 0) -> tuple[AxisMap, int]:
    """A map and a size it fits."""
    in_size = draw(sizes())
    return draw(axis_maps(in_size, weighted=weighted, first_border=first_border)), in_size


def steps() -> st.SearchStrategy[Step]:
    """Any step, for axes of 30 pixels and more."""
    return st.one_of(weighted_steps(), boxed_resizes(30), index_steps(30, border=2))


def numbers() -> st.SearchStrategy[float | int | bool]:
    """Any scalar but NaN, which does not equal itself."""
    odd = st.sampled_from([math.inf, -math.inf, -0.0, 0.0, 1e-300, -7, 2**40, True, False])
    return odd | st.integers() | st.floats(allow_nan=False) | st.booleans()


def dtypes() -> st.SearchStrategy[torch.dtype]:
    return st.sampled_from(DTYPES)


def expressions() -> st.SearchStrategy[Expression]:
    """Any tree, whether or not it computes something sensible; a number is one side of an operation, never both."""
    slots = st.integers(0, 5)
    leaves = st.one_of(
        st.just(pointwise.VALUE),
        st.builds(pointwise.Channel, slots, dtypes()),
        st.builds(pointwise.Operand, slots, dtypes()),
    )

    def larger(inner: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
        return st.one_of(
            st.builds(pointwise.Cast, inner, dtypes()),
            st.builds(pointwise.Unary, st.sampled_from(sorted(pointwise.UNARY)), inner),
            st.builds(pointwise.Binary, operations, inner, inner),
            st.builds(pointwise.Binary, operations, inner, literals),
            st.builds(pointwise.Binary, operations, literals, inner),
        )

    operations, literals = st.sampled_from(sorted(pointwise.BINARY)), st.builds(pointwise.Number, numbers())
    return st.recursive(leaves, larger, max_leaves=8)


@st.composite
def computable(draw: st.DrawFn, *, channels: bool = True, tensors: bool = True, depth: int = 3) -> Expression:
    """Arithmetic on the value that torch runs for every real dtype: each node reads the value, casts are to floats.

    Numbers fit every integer dtype and are no bools: torch refuses to clamp uint8 to 300, wraps a clamp to -1 and
    subtracts no bool. So nothing is compared, either.
    """
    if depth == 0:
        return pointwise.VALUE
    inner = draw(computable(channels=channels, tensors=tensors, depth=depth - 1))
    kind = draw(st.sampled_from(["same", "cast", "unary", "binary", "binary"]))
    if kind == "cast":
        return pointwise.Cast(inner, draw(st.sampled_from(FLOATS)))
    if kind == "unary":
        return pointwise.Unary(draw(st.sampled_from(sorted(pointwise.UNARY))), inner)
    if kind == "binary":
        others: list[st.SearchStrategy[Expression]] = [
            st.builds(pointwise.Number, st.integers(0, 100) | st.floats(0, 100)),
            st.just(pointwise.VALUE),
        ]
        if channels:
            others.append(st.builds(pointwise.Channel, st.integers(0, 1)))
        if tensors:
            others.append(st.builds(pointwise.Operand, st.just(0), st.just(torch.float16)))
        other = draw(st.one_of(others))
        left, right = draw(st.permutations([inner, other]))
        op = draw(st.sampled_from(sorted(pointwise.BINARY.keys() - pointwise.COMPARISONS.keys())))
        return pointwise.Binary(op, left, right)
    return inner


@st.composite
def warps(draw: st.DrawFn) -> Warp:
    source = draw(st.sampled_from(["grid", "affine"]))
    size = tuple(draw(st.lists(sizes(), min_size=2, max_size=3))) if source == "affine" else ()
    modes = MODES if len(size) < 3 else ("bilinear", "nearest")
    mode, padding = draw(st.sampled_from(modes)), draw(st.sampled_from(PADDINGS))
    fill = tuple(draw(st.lists(numbers().map(float), max_size=3))) if padding == "zeros" else ()
    rules = FILL_RULES if all(map(math.isfinite, fill)) else ("constant", "edge")
    return Warp(source, mode, padding, draw(st.booleans()), size, fill, draw(st.sampled_from(rules)))


@st.composite
def borders(draw: st.DrawFn) -> tuple[Border, ...]:
    values = draw(st.lists(numbers().map(float), max_size=4))
    inside = draw(st.integers(0, len(values)))
    return tuple(Border(value, stored=number >= inside) for number, value in enumerate(values))


@st.composite
def programs(draw: st.DrawFn) -> Program:
    prologue = draw(computable(tensors=False, depth=2))
    epilogue = draw(computable(depth=2))
    order = draw(st.sampled_from(ORDERS))
    if draw(st.booleans()):
        source = draw(st.sampled_from([torch.uint8, *FLOATS]))
        sampler = draw(warps())
        return Program(source, sampler, pointwise.Cast(prologue, torch.float32), epilogue, order=order)
    listed = draw(borders())
    maps = [draw(axis_maps(30, first_border=min(1, len(listed)))) for _ in range(draw(st.integers(1, 3)))]
    if any(step.border > len(listed) for axis in maps for step in axis.steps if isinstance(step, Pad)):
        maps = [AxisMap(())]
    if any(axis.weighted for axis in maps):
        prologue = pointwise.Cast(prologue, torch.float32)
    source = draw(st.sampled_from([*INTEGERS, *FLOATS]))
    return Program(source, Axes(tuple(maps)), prologue, epilogue, listed, order)
