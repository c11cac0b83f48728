from __future__ import annotations

import math
import struct
from fractions import Fraction

import numpy
import PIL.Image
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import interpolate, pad

from polyphase.calls.rules import RULES
from polyphase.sampling import filters
from polyphase.sampling.apply import apply_taps
from polyphase.sampling.axis_maps import AxisMap
from polyphase.sampling.evaluate import evaluate
from polyphase.sampling.steps import Area, Nearest, Pad, Resize
from polyphase.sampling.taps import transpose
from polyphase.sampling.windows import (
    TapArithmetic,
    eager_arithmetic,
    exact_arithmetic,
    index_taps,
    transposed_taps,
    weighted_taps,
)
from polyphase.torch_versions import ROUNDS_LINEAR_POSITIONS_ONCE
from tests.sampling import eager
from tests.sampling.eager import TRUTH, dense
from tests.sampling.strategies import (
    EXTREME_SCALES,
    antialiased_resizes,
    boxed_nearest,
    boxed_resizes,
    brief,
    nearest_steps,
    plain_resizes,
    quick,
    scales,
    sizes,
    steady,
    weighted_steps,
)
from tests.support.samples import HAS_LANCZOS

FLOAT32 = eager_arithmetic(torch.float32)
UINT8 = eager_arithmetic(torch.uint8)

NO_SCALE: st.SearchStrategy[float | None] = st.none()
SUM_TOLERANCES = [(FLOAT32, 1e-6), (TRUTH, 1e-12)]


@st.composite
def size_pairs(draw: st.DrawFn, most: int = 60, least: int = 1) -> tuple[int, int]:
    """Input and output size; also 100 times smaller and larger."""
    small = draw(st.integers(least, 4))
    pairs = st.tuples(st.integers(least, most), st.integers(least, most))
    return draw(pairs | st.sampled_from([(small, 100 * small), (100 * small, small)]))


def resized(step: Resize | Area | Nearest, size: int, scale: float | None = None) -> Resize | Area | Nearest:
    match step:
        case Resize():
            return Resize(size, step.filter, step.antialias, step.align_corners, scale)
        case Nearest():
            return Nearest(size, step.exact, scale)
        case Area():
            return Area(size)


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        (torch.uint8, TapArithmetic(torch.float64, torch.float32, quantised=True)),
        (torch.float16, TapArithmetic(torch.float32, torch.float32)),
        (torch.bfloat16, TapArithmetic(torch.float32, torch.float32)),
        (torch.float32, TapArithmetic(torch.float32, torch.float32)),
        (torch.float64, TapArithmetic(torch.float64, torch.float64)),
    ],
)
def test_arithmetic(dtype: torch.dtype, expected: TapArithmetic) -> None:
    assert eager_arithmetic(dtype) == expected
    exact = expected if dtype == torch.uint8 else TapArithmetic(torch.float64, expected.nearest, floor=torch.float64)
    assert exact_arithmetic(dtype) == exact


@pytest.mark.parametrize(("arithmetic", "tolerance"), SUM_TOLERANCES, ids=["float32", "float64"])
@given(step=weighted_steps(scale=NO_SCALE), pair=size_pairs())
@quick
def test_rows_sum_to_one(arithmetic: TapArithmetic, tolerance: float, step: Resize, pair: tuple[int, int]) -> None:
    in_size, out_size = pair
    sums = dense(resized(step, out_size), in_size, arithmetic).sum(1)
    assert (sums - 1).abs().max() <= tolerance


@pytest.mark.parametrize(("arithmetic", "tolerance"), SUM_TOLERANCES, ids=["float32", "float64"])
@given(step=weighted_steps(scale=NO_SCALE), in_size=sizes(300), scale=scales())
@quick
def test_rows_sum_to_one_with_the_scale_of_the_size(
    arithmetic: TapArithmetic, tolerance: float, step: Resize, in_size: int, scale: float
) -> None:
    """As `interpolate` makes it: the size is the scaled size, rounded down."""
    out_size = int(in_size * scale)
    assume(1 <= out_size <= 2000)
    sums = dense(resized(step, out_size, scale), in_size, arithmetic).sum(1)
    assert (sums - 1).abs().max() <= tolerance


@given(step=plain_resizes(), in_size=sizes())
@quick
def test_rows_sum_to_one_with_any_scale(step: Resize, in_size: int) -> None:
    """Without antialias what lies beyond the image folds onto its last pixel."""
    assert (dense(step, in_size).sum(1) - 1).abs().max() <= 1e-12


@given(step=antialiased_resizes(), in_size=sizes())
@quick
def test_antialiased_rows_beyond_the_image_are_empty(step: Resize, in_size: int) -> None:
    """A scale that promises fewer outputs than there are leaves the rest with no pixel within the filter's support."""
    assume(step.scale is not None and not step.align_corners and step.size != in_size)
    ratio = 1 / step.scale if step.scale else 1.0
    support = filters.ANTIALIAS[step.filter].support * max(ratio, 1)
    matrix = dense(step, in_size)
    for i, row in enumerate(matrix):
        if int(ratio * (i + 0.5) - support + 0.5) >= in_size:
            assert not row.any()
        elif row.any():  # negative lobes alone can sum to nearly nothing, so the weights are large
            assert float(row.sum()) == pytest.approx(1, abs=1e-12 * max(1.0, float(row.abs().max())))


@given(step=weighted_steps(scale=NO_SCALE), pair=size_pairs(), scaled=st.booleans())
@quick
def test_quantised_rows_sum_to_nearly_one(step: Resize, pair: tuple[int, int], scaled: bool) -> None:
    in_size, out_size = pair
    scale = out_size / in_size if scaled else None
    taps = evaluate(AxisMap((resized(step, out_size, scale),)), in_size, UINT8)
    assert taps.weight is not None
    assert taps.one is not None
    length = taps.weight.shape[0]
    assert (taps.weight.sum(0) - taps.one).abs().max() <= length / 2 + 1


SELF_ADJOINT_STEPS = st.one_of(weighted_steps(), nearest_steps())


def assert_twins(step: Resize | Area | Nearest, in_size: int, arithmetic: TapArithmetic) -> None:
    taps = (
        index_taps(step, in_size, arithmetic) if isinstance(step, Nearest) else weighted_taps(step, in_size, arithmetic)
    )
    twin = transposed_taps(step, in_size, arithmetic)
    assert torch.equal(twin.dense(), transpose(taps).dense())
    assert twin.in_size == step.size
    assert twin.index.min() >= 0
    assert twin.index.max() < step.size


@pytest.mark.parametrize("arithmetic", [FLOAT32, TRUTH], ids=["float32", "float64"])
@given(step=SELF_ADJOINT_STEPS, pair=size_pairs())
@quick
def test_transposed_taps_with_the_ratio_of_the_sizes(
    arithmetic: TapArithmetic, step: Resize, pair: tuple[int, int]
) -> None:
    in_size, out_size = pair
    assert_twins(resized(step, out_size), in_size, arithmetic)


@pytest.mark.parametrize("arithmetic", [FLOAT32, TRUTH], ids=["float32", "float64"])
@given(step=SELF_ADJOINT_STEPS, pair=size_pairs(), scale=scales())
@quick
def test_transposed_taps_with_any_scale(
    arithmetic: TapArithmetic, step: Resize, pair: tuple[int, int], scale: float
) -> None:
    in_size, out_size = pair
    assert_twins(resized(step, out_size, scale), in_size, arithmetic)


@pytest.mark.parametrize("arithmetic", [FLOAT32, TRUTH], ids=["float32", "float64"])
@given(data=st.data(), in_size=sizes(60))
@quick
def test_transposed_taps_of_a_box(arithmetic: TapArithmetic, data: st.DataObject, in_size: int) -> None:
    assert_twins(data.draw(boxed_resizes(in_size, 100) | boxed_nearest(in_size, 100)), in_size, arithmetic)


@given(data=st.data(), in_size=sizes(60))
@quick
def test_rows_of_a_box_sum_to_one(data: st.DataObject, in_size: int) -> None:
    assert (dense(data.draw(boxed_resizes(in_size, 100)), in_size).sum(1) - 1).abs().max() <= 1e-12


EVERY_STEP: list[Resize | Area | Nearest] = [
    *(Resize(9, name, False, corners) for name in filters.PLAIN for corners in (False, True)),
    *(Resize(9, name, True, corners) for name in filters.ANTIALIAS for corners in (False, True)),
    Area(9),
    Nearest(9),
    Nearest(9, exact=True),
]


@pytest.mark.parametrize("step", EVERY_STEP, ids=str)
@pytest.mark.parametrize("scale", [None, *EXTREME_SCALES])
def test_transposed_taps_of_and_to_one_pixel(step: Resize | Area | Nearest, scale: float | None) -> None:
    for in_size, out_size in ((1, 1), (1, 7), (7, 1), (2, 1), (1, 2), (7, 7)):
        assert_twins(resized(step, out_size, scale), in_size, TRUTH)


EAGER_STEPS: list[Resize | Area | Nearest] = [
    *(Resize(9, name, False, corners) for name in filters.PLAIN for corners in (False, True)),
    *(Resize(9, name, True, corners) for name in ("bilinear", "bicubic") for corners in (False, True)),
    *([Resize(9, "lanczos", True)] if HAS_LANCZOS else []),
    Area(9),
    Nearest(9),
    Nearest(9, exact=True),
]
TWO_TO_400 = st.integers(2, 60) | st.integers(2, 60) | st.integers(2, 400)
EAGER_TOLERANCES = [(torch.float32, 2e-6), (torch.float64, 1e-12)]


def same_rows(step: Resize | Area | Nearest, in_size: int, dtype: torch.dtype) -> Tensor:
    """The rows that do not fall on an edge between two pixels, where eager's kernels for nearest disagree.

    1-D and large images: floorf(fma(i + 0.5, scale, -0.5) + 0.5) or floorf(i * scale), in the image's dtype until the
    floorf. Small images: in float32 whatever the dtype, without the fused step.
    """
    i = torch.arange(step.size, dtype=torch.float64)
    if not isinstance(step, Nearest) or (dtype != torch.float64 and not step.exact):
        return i >= 0
    position = (i + 0.5 * step.exact) * (in_size / step.size if step.scale is None else 1 / step.scale)
    return (position - position.round()).abs() > 1e-4


def assert_eager(step: Resize | Area | Nearest, in_size: int, dtype: torch.dtype, tolerance: float) -> None:
    rows = same_rows(step, in_size, dtype)
    ours, theirs = dense(step, in_size, eager_arithmetic(dtype)), eager.matrix(step, in_size, dtype)
    if isinstance(step, Resize) and step.filter == "bilinear" and not (step.antialias or ROUNDS_LINEAR_POSITIONS_ONCE):
        tolerance = max(tolerance, in_size * torch.finfo(dtype).eps)
    torch.testing.assert_close(ours[rows], theirs[rows], rtol=0, atol=tolerance)


@pytest.mark.parametrize(("dtype", "tolerance"), EAGER_TOLERANCES, ids=["float32", "float64"])
@pytest.mark.parametrize("step", EAGER_STEPS, ids=str)
@given(in_size=TWO_TO_400, out_size=TWO_TO_400)
@steady
def test_eager_matrix_by_size(
    step: Resize | Area | Nearest, dtype: torch.dtype, tolerance: float, in_size: int, out_size: int
) -> None:
    assert_eager(resized(step, out_size), in_size, dtype, tolerance)


@pytest.mark.parametrize(("dtype", "tolerance"), EAGER_TOLERANCES, ids=["float32", "float64"])
@pytest.mark.parametrize("step", [step for step in EAGER_STEPS if not isinstance(step, Area)], ids=str)
@given(in_size=TWO_TO_400, scale=st.sampled_from([0.01, 1.0, 2.0, 100.0]) | st.floats(0.02, 8))
@steady
def test_eager_matrix_by_scale(
    step: Resize | Nearest, dtype: torch.dtype, tolerance: float, in_size: int, scale: float
) -> None:
    out_size = int(in_size * scale)
    assume(2 <= out_size <= 800)
    if isinstance(step, Nearest) and scale not in (1.0, 2.0):
        assume(out_size not in (in_size, 2 * in_size))  # eager takes shortcuts that forget the scale, in some layouts
    assert_eager(resized(step, out_size, scale), in_size, dtype, tolerance)


@pytest.mark.parametrize(
    ("step", "stays"),
    [
        (Resize(60, "bilinear", scale=1.012), True),
        (Resize(60, "bilinear", antialias=True, scale=1.012), True),
        (Resize(60, "bicubic", antialias=True, scale=1.012), True),
        (Resize(60, "bicubic", scale=1.012), False),
    ],
    ids=str,
)
def test_scale_that_leaves_the_size_as_it_is(step: Resize, stays: bool) -> None:
    """Eager's float bicubic alone resamples; of uint8 it does not."""
    assert_eager(step, 60, torch.float32, 2e-6)
    assert_eager(step, 60, torch.float64, 1e-12)
    unit = torch.eye(60, dtype=torch.float64)
    assert torch.equal(dense(step, 60, eager_arithmetic(torch.float64)), unit) == stays
    assert torch.equal(dense(step, 60, UINT8), unit)


@pytest.mark.parametrize(("exact", "in_size", "out_size"), [(False, 25, 385), (True, 2, 49)])
def test_float64_nearest_on_an_edge_between_pixels(exact: bool, in_size: int, out_size: int) -> None:
    """Output 77 of 25 -> 385 lies at pixel 5 exactly; 77 * (25 / 385) is a little less in float64."""
    image = torch.arange(in_size, dtype=torch.float64)[None, None]
    theirs = interpolate(image, size=(out_size,), mode="nearest-exact" if exact else "nearest")
    ours = index_taps(Nearest(out_size, exact), in_size, eager_arithmetic(torch.float64)).index[0]
    assert ours.tolist() == theirs[0, 0].tolist()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@given(in_size=sizes(200), out_size=sizes(200), align_corners=st.booleans())
@steady
def test_eager_linear(dtype: torch.dtype, in_size: int, out_size: int, align_corners: bool) -> None:
    """One spatial axis, which may also be one pixel long."""
    ours = dense(Resize(out_size, "bilinear", align_corners=align_corners), in_size, eager_arithmetic(dtype))
    image = torch.eye(in_size, dtype=dtype)[:, None]
    theirs = interpolate(image, size=(out_size,), mode="linear", align_corners=align_corners)[:, 0].T.double()
    torch.testing.assert_close(ours, theirs, rtol=0, atol=2e-6 if dtype == torch.float32 else 1e-12)


@pytest.mark.parametrize("step", [step for step in EAGER_STEPS if not isinstance(step, Area)], ids=str)
@given(
    channels=st.integers(1, 5),
    before=st.tuples(st.integers(1, 60), st.integers(2, 60)),
    after=st.tuples(st.integers(2, 60), st.integers(2, 60)),
    seed=st.integers(0, 2**31),
)
@brief
def test_eager_uint8(
    step: Resize | Nearest, channels: int, before: tuple[int, int], after: tuple[int, int], seed: int
) -> None:
    """Bit for bit: horizontally, rounded to uint8, then vertically."""
    generator = torch.Generator().manual_seed(seed)
    image = torch.randint(0, 256, (1, channels, *before), dtype=torch.uint8, generator=generator)
    ours = image
    for dim in (3, 2):
        axis_map = AxisMap((resized(step, after[dim - 2]),))
        ours = apply_taps(ours, evaluate(axis_map, before[dim - 2], UINT8), dim)
    theirs = interpolate(image, size=after, **eager.keywords(step))  # type: ignore[arg-type]
    rows, columns = (same_rows(resized(step, n), m, torch.uint8) for n, m in zip(after, before, strict=True))
    assert torch.equal(ours[:, :, rows][..., columns], theirs[:, :, rows][..., columns])


@pytest.mark.parametrize("name", ["bilinear", "bicubic"])
@pytest.mark.parametrize("antialias", [False, True])
@given(before=st.integers(2, 60), scale=st.floats(0.05, 3), seed=st.integers(0, 2**31))
@brief
def test_eager_uint8_by_scale(name: str, antialias: bool, before: int, scale: float, seed: int) -> None:
    after = int(before * scale)
    assume(after >= 2)
    generator = torch.Generator().manual_seed(seed)
    image = torch.randint(0, 256, (1, 3, before, before), dtype=torch.uint8, generator=generator)
    taps = evaluate(AxisMap((Resize(after, name, antialias, scale=scale),)), before, UINT8)
    ours = apply_taps(apply_taps(image, taps, 3), taps, 2)
    assert torch.equal(ours, interpolate(image, scale_factor=scale, mode=name, antialias=antialias))


def sinc(x: float) -> float:
    return math.sin(math.pi * x) / (math.pi * x) if x else 1.0


def hamming(x: float) -> float:
    return sinc(x) * (0.54 + 0.46 * math.cos(math.pi * x)) if abs(x) < 1 else 0.0


def box(x: float) -> float:
    return float(-0.5 < x <= 0.5)


PILLOW = {"hamming": (hamming, 1.0), "box": (box, 0.5)}


def pillow_matrix(name: str, in_size: int, out_size: int) -> Tensor:
    """`precompute_coeffs` of Pillow's Resample.c, in Python's floats."""
    weight, support = PILLOW[name]
    scale = in_size / out_size
    stretch = max(scale, 1.0)
    support, inverse = support * stretch, 1 / stretch
    matrix = torch.zeros(out_size, in_size, dtype=torch.float64)
    for i in range(out_size):
        centre = (i + 0.5) * scale
        first, end = max(int(centre - support + 0.5), 0), min(int(centre + support + 0.5), in_size)
        row = [weight((x - centre + 0.5) * inverse) for x in range(first, end)]
        matrix[i, first:end] = torch.tensor(row, dtype=torch.float64) / sum(row)
    return matrix


@pytest.mark.parametrize("name", PILLOW)
@given(pair=size_pairs(200))
@quick
def test_filters_eager_does_not_have(name: str, pair: tuple[int, int]) -> None:
    in_size, out_size = pair
    ours = dense(Resize(out_size, name, antialias=True), in_size)
    torch.testing.assert_close(ours, pillow_matrix(name, in_size, out_size), rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", PILLOW)
@pytest.mark.parametrize(("before", "after"), [((40, 31), (17, 9)), ((7, 5), (20, 33)), ((9, 8), (3, 24))])
def test_pillow_itself(name: str, before: tuple[int, int], after: tuple[int, int]) -> None:
    image = torch.rand(before)
    filters_ = {"hamming": PIL.Image.Resampling.HAMMING, "box": PIL.Image.Resampling.BOX}
    theirs = torch.tensor(numpy.asarray(PIL.Image.fromarray(image.numpy()).resize(after[::-1], filters_[name])))
    taps = [evaluate(AxisMap((Resize(n, name, True),)), m, TRUTH) for n, m in zip(after, before, strict=True)]
    ours = apply_taps(apply_taps(image, taps[1], 1), taps[0], 0)
    torch.testing.assert_close(ours.float(), theirs, rtol=0, atol=1e-6)


@pytest.mark.parametrize("mode", ["constant", "reflect", "replicate", "circular"])
@given(in_size=sizes(), data=st.data())
@quick
def test_pads(mode: str, in_size: int, data: st.DataObject) -> None:
    """Against eager; negative amounts crop."""
    most = {"reflect": in_size - 1, "circular": in_size}.get(mode, 9)
    least = 0 if mode == "circular" else 1 - in_size
    before, after = data.draw(st.integers(least, most)), data.draw(st.integers(0, most))
    step = Pad(before, after, mode, border=4 if mode == "constant" else 0)
    taps = index_taps(step, in_size, TRUTH)
    image = torch.arange(1.0, in_size + 1)
    expected = pad(image[None, None], (before, after), mode)[0, 0]
    read = image[taps.index[0]] if taps.border is None else torch.where(taps.border == 4, 0.0, image[taps.index[0]])
    assert torch.equal(read, expected)
    assert taps.border is None or set(taps.border.tolist()) <= {0, 4}


@pytest.mark.parametrize("amounts", [(0, 0), (3, 2), (5, 5), (-2, 3), (1, -3)])
def test_symmetric_pads(amounts: tuple[int, int]) -> None:
    """Mirrored at the outer edges, as NumPy has it; negative amounts crop first."""
    image = numpy.arange(5)
    before, after = amounts
    left = image[max(-before, 0) : 5 - max(-after, 0)]
    taps = index_taps(Pad(before, after, "symmetric"), 5, TRUTH)
    expected = numpy.pad(left, (max(before, 0), max(after, 0)), "symmetric")
    assert taps.index[0].tolist() == expected.tolist()


def test_circular_pad_that_crops() -> None:
    image = torch.arange(9.0)
    taps = index_taps(Pad(-2, 3, "circular"), 9, TRUTH)
    assert image[taps.index[0]].tolist() == pad(image[None, None], (-2, 3), "circular")[0, 0].tolist()


def test_bounds_on_cuda_are_rounded_to_floats() -> None:
    """There the centre is fused into both bounds: a pixel that lies on one changes sides by a rounding."""

    def rounded(exact: Fraction) -> Fraction:
        return Fraction(struct.unpack("f", struct.pack("f", float(exact)))[0])

    in_size, out_size, half = 1063, 895, Fraction(1, 2)
    scale = rounded(Fraction(in_size, out_size))
    expected = [
        max(0, int(rounded(rounded(scale * (i + half) - scale) + half)))  # a bilinear filter reaches one scale far
        for i in range(out_size)
    ]
    arithmetic = eager_arithmetic(torch.float32, RULES["cuda"])
    taps = weighted_taps(Resize(out_size, "bilinear", antialias=True), in_size, arithmetic)
    assert taps.index[0].tolist() == expected
    exactly = [max(0, int(scale * (i + half) - scale + half)) for i in range(out_size)]
    assert exactly != expected, "the size was chosen for it"
