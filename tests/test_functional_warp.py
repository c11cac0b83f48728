"""grid_sample, affine_grid and affine_sample: against eager, beyond it, and every mistake a call can contain."""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

import polyphase.functional as P
from polyphase.errors import PolyphaseError
from polyphase.sampling import reference
from polyphase.sampling.programs import Program
from polyphase.sampling.warps import PADDINGS, Warp
from tests.support import eager
from tests.support.samples import DTYPES, FLOATS, GRID_MODES, LAYOUTS, image

HALF = (torch.float16, torch.bfloat16)
IMAGE, GRID = torch.rand(2, 3, 4, 5), torch.rand(2, 6, 7, 2)
VOLUME, VOLUME_GRID = torch.rand(2, 3, 4, 5, 6), torch.rand(2, 3, 2, 4, 3)
THETA, VOLUME_THETA = torch.rand(2, 2, 3), torch.rand(2, 3, 4)
SIZE, VOLUME_SIZE = (2, 3, 6, 7), (2, 3, 4, 5, 6)
SETTINGS = [
    (axes, mode, padding, aligned)
    for axes in (2, 3)
    for mode, padding, aligned in itertools.product(GRID_MODES[axes], PADDINGS, (False, True))
]


def composed(
    input: Tensor,
    theta: Tensor,
    size: Any,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool | None = None,
) -> Tensor:
    """What affine_sample is in eager."""
    return eager.grid_sample(input, F.affine_grid(theta, size, align_corners), mode, padding_mode, align_corners)


EAGER: dict[str, Callable[..., Tensor]] = {
    "grid_sample": eager.grid_sample,
    "affine_grid": F.affine_grid,
    "affine_sample": composed,
}
OURS: dict[str, Callable[..., Tensor]] = {
    "grid_sample": P.grid_sample,
    "affine_grid": P.affine_grid,
    "affine_sample": P.affine_sample,
}


@pytest.fixture(autouse=True)
def _silence() -> Any:
    """Eager's warnings that corners were once aligned."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*affine_grid behavior has changed")
        yield


class Mistake(NamedTuple):
    """A call that must fail. `says`: what the message holds, something seen and something of the fix."""

    function: str
    arguments: tuple[Any, ...]
    options: dict[str, Any]
    says: tuple[str, ...]

    def call(self, functions: dict[str, Callable[..., Tensor]]) -> BaseException:
        with pytest.raises(Exception) as caught:  # noqa: PT011
            functions[self.function](*self.arguments, **self.options)
        return caught.value


def sampled(image: Any, grid: Any, *says: str, **options: Any) -> Mistake:
    return Mistake("grid_sample", (image, grid), options, says)


def gridded(theta: Any, size: Any, *says: str, **options: Any) -> Mistake:
    return Mistake("affine_grid", (theta, size), options, says)


def warped(image: Any, theta: Any, size: Any, *says: str, **options: Any) -> Mistake:
    return Mistake("affine_sample", (image, theta, size), options, says)


MISTAKES = [
    # What is no tensor.
    sampled([1.0], GRID, "list", "image", "torch.as_tensor"),
    sampled(IMAGE, None, "NoneType", "grid", "torch.Tensor"),
    sampled(IMAGE, GRID.numpy(), "ndarray", "grid", "torch.from_numpy"),
    gridded([1.0], SIZE, "list", "theta"),
    # Options.
    sampled(IMAGE, GRID, "'sharp'", "choose one of: bilinear, nearest, bicubic", mode="sharp"),
    sampled(IMAGE, GRID, "['bilinear']", "choose one of", mode=["bilinear"]),
    sampled(IMAGE, GRID, "None", "choose one of", mode=None),
    sampled(IMAGE, GRID, "'circular'", "choose one of: zeros, border, reflection", padding_mode="circular"),
    sampled(IMAGE, GRID, "align_corners=1", "int", "True, False or None", align_corners=1),
    sampled(IMAGE, GRID, "'yes'", "str", "True, False or None", align_corners="yes"),
    gridded(THETA, SIZE, "1.0", "float", "True, False or None", align_corners=1.0),
    warped(IMAGE, THETA, SIZE, "'sharp'", "choose one of", mode="sharp"),
    # Shapes.
    sampled(torch.tensor(1.0), GRID, "()", "unsqueeze"),
    sampled(IMAGE[0], GRID, "3 images", "2 grids", "one for each"),
    sampled(IMAGE[:, 0], GRID, "(2, 4, 5)", "2 or 3 spatial"),
    sampled(VOLUME[None], VOLUME_GRID[None], "(1, 2, 3, 4, 5, 6)", "2 or 3 spatial"),
    sampled(IMAGE, GRID[:, 0], "(2, 7, 2)", "2 output sizes", "x, y"),
    sampled(IMAGE, VOLUME_GRID, "(2, 3, 2, 4, 3)", "2 output sizes", "x, y"),
    sampled(VOLUME, GRID, "(2, 6, 7, 2)", "3 output sizes", "x, y, z"),
    sampled(IMAGE, torch.rand(2, 6, 7, 3), "(2, 6, 7, 3)", "2 coordinates x, y"),
    sampled(IMAGE, torch.rand(3, 6, 7, 2), "2 images", "3 grids", "expand"),
    sampled(IMAGE, GRID[:1], "2 images", "1 grids", "expand"),
    sampled(torch.rand(2, 3, 0, 5), GRID, "(2, 3, 0, 5)", "at least one"),
    sampled(torch.rand(0, 3, 4, 0), GRID[:0], "(0, 3, 4, 0)", "at least one"),
    # Dtypes.
    sampled(IMAGE, GRID.double(), "float32 image", "float64", "grid.to(torch.float32)"),
    sampled(IMAGE.double(), GRID, "float64 image", "float32", "grid.to(torch.float64)"),
    sampled(IMAGE, GRID.half(), "float32 image", "float16", "cast"),
    sampled(IMAGE, GRID.long(), "float32 image", "int64", "cast"),
    sampled(IMAGE.half(), GRID.double(), "float16 image", "torch.float16 or torch.float32", "cast"),
    sampled(IMAGE.long(), GRID, "int64", "'bilinear'", "'nearest'"),
    sampled(IMAGE.bool(), GRID, "bool", "'bicubic'", "'nearest'", mode="bicubic"),
    sampled(IMAGE.to(torch.complex64), GRID, "complex64", "'nearest'"),
    sampled(IMAGE.int(), GRID.int(), "int32", "float32 or torch.float64", "grid.float()", mode="nearest"),
    sampled(IMAGE.byte(), GRID.half(), "uint8", "float16", "grid.float()"),
    # Devices and layouts.
    sampled(IMAGE, GRID.to("meta"), "cpu", "meta", "one device"),
    sampled(IMAGE.to("meta"), GRID, "meta", "cpu", "one device"),
    # Matrices and sizes.
    gridded(THETA.long(), SIZE, "int64", "theta.float()"),
    gridded(THETA.to(torch.complex64), SIZE, "complex64", "floating point"),
    gridded(THETA.to(torch.float8_e4m3fn), SIZE, "float8", "theta.float()"),
    gridded(THETA[0], SIZE, "(2, 3)", "2 x 3", "(2, 2, 3)"),
    gridded(THETA[None], SIZE, "(1, 2, 2, 3)", "2 x 3"),
    gridded(VOLUME_THETA, SIZE, "(2, 3, 4)", "2 x 3"),
    gridded(THETA, VOLUME_SIZE, "(2, 2, 3)", "3 x 4"),
    gridded(THETA, (3, 3, 6, 7), "(2, 2, 3)", "(3, 3, 6, 7)", "expand"),
    gridded(THETA[:0], SIZE, "(0, 2, 3)", "expand"),
    gridded(THETA, (2, 3, 4), "(2, 3, 4)", "(batch, channels, height, width)"),
    gridded(THETA, (), "()", "(batch, channels, height, width)"),
    gridded(THETA, (2, 3, 4, 5, 6, 7), "depth"),
    *(gridded(THETA, size, str(size), "at least 1") for size in ((2, 3, 0, 5), (2, 3, 4, -1), (2, 0, 4, 5))),
    gridded(THETA[:0], (0, 3, 4, 5), "(0, 3, 4, 5)", "at least 1"),
    gridded(THETA, 5, "size=5", "int", "tuple or list"),
    gridded(THETA, None, "None", "tuple or list"),
    gridded(THETA, "abcd", "'abcd'", "tuple or list"),
    gridded(THETA, (2.0, 3, 4, 5), "2.0", "float", "integer"),
    gridded(THETA, (True, 3, 4, 5), "True", "bool", "integer"),
    gridded(THETA, torch.tensor(SIZE), "tensor", "tuple or list"),
    warped(IMAGE, THETA.long(), SIZE, "int64", "theta.float()"),
    warped(IMAGE, THETA, (2, 3, 0, 5), "(2, 3, 0, 5)", "at least 1"),
    warped(IMAGE, THETA, (2, -3, 4, 5), "(2, -3, 4, 5)", "at least 1"),
    warped(IMAGE, VOLUME_THETA, VOLUME_SIZE, "(2, 3, 4, 5)", "(2, 3, 4, 5, 6)", "(batch, channels, height, width)"),
    warped(IMAGE, THETA[:1], (1, 3, 4, 5), "2 images", "1 matrices", "expand"),
    warped(IMAGE, THETA.double(), SIZE, "float32 image", "theta of torch.float64", "theta.to(torch.float32)"),
    warped(IMAGE.long(), THETA, SIZE, "int64", "'nearest'"),
    warped(torch.rand(2, 3, 0, 5), THETA, SIZE, "(2, 3, 0, 5)", "at least one"),
    warped(IMAGE, THETA.to("meta"), SIZE, "cpu", "meta", "one device"),
]


@pytest.mark.parametrize("mistake", MISTAKES, ids=[f"{one.function}: {' ... '.join(one.says)}" for one in MISTAKES])
def test_mistakes_raise_eagers_exception_with_our_message(mistake: Mistake) -> None:
    theirs, ours = mistake.call(EAGER), mistake.call(OURS)
    assert type(theirs) in type(ours).__bases__, f"{type(ours).__mro__} for {theirs!r}"
    assert isinstance(ours, PolyphaseError)
    for words in mistake.says:
        assert words in str(ours), str(ours)


def test_a_mistake_raises_the_same_where_a_gradient_is_recorded() -> None:
    for mistake in MISTAKES:
        first = mistake.arguments[0]
        if isinstance(first, Tensor) and first.is_floating_point() and first.dtype.itemsize > 1:
            recorded = mistake._replace(arguments=(first.clone().requires_grad_(), *mistake.arguments[1:]))
            plain, through_the_operator = mistake.call(OURS), recorded.call(OURS)
            assert (type(through_the_operator), str(through_the_operator)) == (type(plain), str(plain))


@pytest.mark.parametrize("which", [0, 1], ids=["image", "coordinates"])
def test_sparse_tensors_are_eagers(which: int) -> None:
    given = [IMAGE, GRID]
    given[which] = given[which].to_sparse()
    for functions in (EAGER, OURS):
        with pytest.raises(NotImplementedError, match="SparseCPU"):
            functions["grid_sample"](*given)
    with pytest.raises(NotImplementedError, match="SparseCPU"):
        P.affine_grid(THETA.to_sparse(), SIZE)


@pytest.mark.filterwarnings("ignore:.*quantize")
def test_quantised_images_are_eagers() -> None:
    quantised = torch.quantize_per_tensor(IMAGE, 0.1, 0, torch.quint8)
    got, want = (function(quantised, GRID, align_corners=False) for function in (P.grid_sample, F.grid_sample))
    assert torch.equal(got.int_repr(), want.int_repr())
    assert P.affine_sample(quantised, THETA, SIZE).dtype == torch.quint8


def test_a_call_seen_before_makes_no_equal_one_right() -> None:
    """1 == 1.0 == True, to a cache too."""
    for _ in range(4):
        P.grid_sample(IMAGE, GRID, align_corners=True)
        P.affine_sample(IMAGE[:1], THETA[:1], (1, 1, 6, 7), align_corners=True)
    for wrong in (1, 1.0):
        with pytest.raises(TypeError):
            P.grid_sample(IMAGE, GRID, align_corners=wrong)  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            P.affine_sample(IMAGE[:1], THETA[:1], (1, 1, 6, 7), align_corners=wrong)  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            P.affine_sample(IMAGE[:1], THETA[:1], (1, wrong, 6.0, 7), align_corners=True)  # type: ignore[arg-type]


def test_a_call_like_the_one_before_is_not_mistaken_for_it() -> None:
    """The latest call is remembered, by all that may differ."""
    other_image, other_grid = IMAGE.flip(-1), GRID * 2 - 1
    calls: list[tuple[tuple[Tensor, Tensor], dict[str, Any]]] = [
        ((IMAGE, GRID), {}),
        ((other_image, other_grid), {}),
        ((IMAGE, GRID), {"mode": "nearest"}),
        ((IMAGE, other_grid), {"padding_mode": "border"}),
        ((IMAGE, GRID), {"align_corners": True}),
        ((IMAGE.to(memory_format=torch.channels_last), GRID), {}),
        ((IMAGE, other_grid.transpose(1, 2)), {}),
        ((IMAGE.double(), GRID.double()), {}),
        ((IMAGE[:1], GRID[:1]), {}),
        ((IMAGE.clone().requires_grad_(), GRID), {}),
    ]
    for (first, first_options), (second, second_options) in itertools.permutations(calls, 2):
        for _ in range(3):
            P.grid_sample(*first, **first_options)
        got, want = (function(*second, **second_options) for function in (P.grid_sample, F.grid_sample))
        torch.testing.assert_close(got, want)
        assert got.requires_grad == want.requires_grad


def test_nothing_warns_of_corners(recwarn: pytest.WarningsRecorder) -> None:
    warnings.simplefilter("error")
    assert torch.equal(P.grid_sample(IMAGE, GRID), P.grid_sample(IMAGE, GRID, align_corners=False))
    assert torch.equal(P.affine_grid(THETA, SIZE), P.affine_grid(THETA, SIZE, False))
    assert torch.equal(P.affine_sample(IMAGE, THETA, SIZE), P.affine_sample(IMAGE, THETA, SIZE, align_corners=False))
    assert P.affine_grid(THETA, (2, 3, 1, 1), True).shape == (2, 1, 1, 2)


# Values.


def pair(axes: int, dtype: torch.dtype, layout: str = "CF", grid_layout: str = "CF") -> tuple[Tensor, Tensor]:
    before, after = (7, 9, 5)[:axes], (5, 6, 4)[:axes]
    grid_dtype = dtype if dtype.is_floating_point else torch.float32
    grid = image((2, *after, axes), grid_dtype, grid_layout, seed=1, low=-1.3, high=1.3)
    return image((2, 3, *before), dtype, layout), grid


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("axes", [2, 3])
def test_layouts_of_images_and_grids(axes: int, dtype: torch.dtype) -> None:
    for layout, grid_layout in itertools.product(LAYOUTS, LAYOUTS):
        given = pair(axes, dtype, layout, grid_layout)
        for mode in GRID_MODES[axes]:
            functions = (P.grid_sample, eager.grid_sample)
            got, want = (function(*given, mode, align_corners=False) for function in functions)
            torch.testing.assert_close(got, want)
            assert got.is_contiguous()


@pytest.mark.parametrize(("axes", "mode", "padding", "aligned"), SETTINGS)
def test_affine_sample_is_its_composition(axes: int, mode: str, padding: str, aligned: bool) -> None:
    """In float64, where positions on the edge of two pixels are few."""
    for layout in LAYOUTS:
        of, _ = pair(axes, torch.float64, layout)
        theta = image((2, axes, axes + 1), torch.float64, "transposed", low=-1.1, high=1.1)
        given: tuple[Any, ...] = (of, theta, (2, 5, 8, 3, 4)[: axes + 2], mode, padding, aligned)
        torch.testing.assert_close(P.affine_sample(*given), composed(*given))
        gradients = []
        for function in (P.affine_sample, composed):
            leaves = tuple(one.detach().requires_grad_() for one in given[:2])
            output = function(*leaves, *given[2:])
            gradients.append(torch.autograd.grad(output, leaves, image(tuple(output.shape), torch.float64, seed=4)))
        torch.testing.assert_close(*gradients)


@pytest.mark.parametrize(("axes", "mode", "padding", "aligned"), SETTINGS)
def test_uint8_is_the_rounded_reference(axes: int, mode: str, padding: str, aligned: bool) -> None:
    for layout in ("CF", "CL", "sliced"):
        of, grid = pair(axes, torch.uint8, layout)
        grid = grid.double()
        got = P.grid_sample(of, grid, mode, padding, aligned)
        assert (got.dtype, got.is_contiguous()) == (torch.uint8, True)
        want = eager.grid_sample(of.double(), grid, mode, padding, aligned)
        assert torch.equal(got, want.round().clamp(0, 255).to(torch.uint8))
        apart = P.grid_sample(of, grid.float(), mode, padding, aligned).int() - got.int()
        assert (apart != 0).double().mean() < 0.02 or mode == "nearest"


def test_uint8_rounds_ties_to_even_and_saturates() -> None:
    halfway = torch.zeros(1, 1, 3, 2)  # the mean of two neighbours
    for left, right, want in ((0, 1, 0), (1, 2, 2), (2, 3, 2), (254, 255, 254), (255, 255, 255)):
        of = torch.tensor([left, right], dtype=torch.uint8).view(1, 1, 1, 2)
        assert P.grid_sample(of, halfway, padding_mode="border").eq(want).all()
    step = torch.tensor([0, 0, 255, 255], dtype=torch.uint8).view(1, 1, 1, 4).expand(1, 1, 4, 4)
    grid = P.affine_grid(torch.eye(2, 3)[None], (1, 1, 1, 40))
    overshoots = P.grid_sample(step.float(), grid, "bicubic", "border")
    assert overshoots.min() < -1
    assert overshoots.max() > 256
    torch.testing.assert_close(
        P.grid_sample(step, grid, "bicubic", "border").float(), overshoots.clamp(0, 255).round(), rtol=0, atol=0
    )


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("axes", [2, 3])
def test_nearest_moves_every_dtype(axes: int, dtype: torch.dtype) -> None:
    of, grid = pair(axes, dtype)
    grid = grid.to(dtype if dtype == torch.float64 else torch.float32)
    places = P.grid_sample(torch.arange(of[:, 0].numel()).reshape(of[:, :1].shape), grid, "nearest", "border")
    pixels = of.transpose(0, 1).flatten(1)[:, places.flatten()].reshape(3, 2, *places.shape[2:]).transpose(0, 1)
    got = P.grid_sample(of, grid, "nearest", "border")
    assert torch.equal(got, pixels)
    theta = image((2, axes, axes + 1), torch.float32, low=-1, high=1).to(grid.dtype)
    size = (2, 3, *places.shape[2:])
    at_once = P.affine_sample(of, theta, size, "nearest", "border")
    if not dtype.is_complex and dtype.itemsize < 4:
        assert torch.equal(at_once, P.affine_sample(of.float(), theta.float(), size, "nearest", "border").to(dtype))


@pytest.mark.parametrize("dtype", HALF, ids=str)
@pytest.mark.parametrize("axes", [2, 3])
def test_half_is_float32_rounded(axes: int, dtype: torch.dtype) -> None:
    """In the last bit at most, sums in another order show where they are rounded."""

    def same(found: Tensor, want: Tensor) -> None:
        torch.testing.assert_close(found, want, rtol=torch.finfo(dtype).eps, atol=1e-6)

    of, grid = pair(axes, dtype)
    theta = image((2, axes, axes + 1), dtype, low=-1, high=1)
    size = (2, 3, *grid.shape[1:-1])
    for mode in GRID_MODES[axes]:
        want = P.grid_sample(of.float(), grid.float(), mode).to(dtype)
        same(P.grid_sample(of, grid, mode), want)
        same(P.grid_sample(of, grid.float(), mode), want)
        want = P.affine_sample(of.float(), theta.float(), size, mode).to(dtype)
        same(P.affine_sample(of, theta, size, mode), want)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("aligned", [False, True])
def test_affine_grids(dtype: torch.dtype, aligned: bool) -> None:
    for axes, layout in itertools.product((2, 3), ("CF", "transposed", "expanded")):
        theta = image((2, axes, axes + 1), dtype, layout, low=-1.3, high=1.3)
        size = (2, 1, 31, 17, 5)[: axes + 2]
        got, theirs = P.affine_grid(theta, size, aligned), EAGER["affine_grid"](theta, size, aligned)
        assert (got.dtype, got.shape, got.stride()) == (theirs.dtype, theirs.shape, theirs.stride())
        truth = EAGER["affine_grid"](theta.double(), size, aligned)
        error, allowed = ((one.double() - truth).abs().mean() for one in (got, theirs))
        assert error <= 1.2 * allowed + 1e-12  # eager's matrix product fuses multiplications and additions
        torch.testing.assert_close(got.double(), truth, rtol=0, atol=4 * torch.finfo(dtype).eps)


def test_affine_grids_of_numbers_of_every_kind() -> None:
    numpy = pytest.importorskip("numpy")
    sizes: list[Any] = [list(SIZE), torch.Size(SIZE), (numpy.int64(2), 3, torch.tensor(6), 7)]
    for size in sizes:
        assert torch.equal(P.affine_grid(THETA, size), P.affine_grid(THETA, SIZE))
        assert torch.equal(P.affine_sample(IMAGE, THETA, size), P.affine_sample(IMAGE, THETA, SIZE))


def test_channels_of_an_affine_size_are_not_looked_at() -> None:
    """As in eager's composition."""
    for channels in (1, 3, 99):
        size = (2, channels, 6, 7)
        assert torch.equal(P.affine_sample(IMAGE, THETA, size), P.affine_sample(IMAGE, THETA, SIZE))
        assert composed(IMAGE, THETA, size).shape == SIZE


@pytest.mark.parametrize("sizes", [(0, 3, 6), (2, 0, 6), (2, 3, 0)], ids=["batch", "channels", "output"])
@pytest.mark.parametrize("axes", [2, 3])
def test_empty_as_eager(sizes: tuple[int, int, int], axes: int) -> None:
    batch, channels, out = sizes
    for mode in GRID_MODES[axes]:
        results = []
        for function in (P.grid_sample, eager.grid_sample):
            of = torch.rand(batch, channels, *[4] * axes, requires_grad=True)
            grid = torch.rand(batch, *[5] * (axes - 1), out, axes, requires_grad=True)
            result = function(of, grid, mode, align_corners=False)
            plain = function(of.detach(), grid.detach(), mode, align_corners=False)
            gradients = torch.autograd.grad(result.sum(), (of, grid))
            results.append(
                [(one.shape, one.stride(), float(one.detach().sum())) for one in (result, plain, *gradients)]
            )
        assert results[0] == results[1]


def test_one_pixel() -> None:
    theta = torch.eye(2, 3, dtype=torch.float64).repeat(2, 1, 1)
    of = torch.rand(2, 3, 1, 1, dtype=torch.float64)
    for aligned in (False, True):
        for padding in PADDINGS:
            given = (of, theta, (2, 3, 3, 1), "bilinear", padding, aligned)
            torch.testing.assert_close(P.affine_sample(*given), composed(*given))


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("aligned", [False, True])
def test_gradients_on_pixels_are_eagers(mode: str, aligned: bool) -> None:
    """At the identity every coordinate lies on a pixel: all taps but one weigh nothing, but their slopes count."""
    grid = F.affine_grid(torch.eye(2, 3, dtype=torch.float64)[None], [1, 1, 4, 4], aligned)
    of = image((1, 1, 4, 4), torch.float64)
    for padding in PADDINGS:
        found: list[Tensor] = []
        for function in (P.grid_sample, F.grid_sample):
            leaf = grid.clone().requires_grad_()
            found += torch.autograd.grad(function(of, leaf, mode, padding, aligned).sum(), leaf)
        torch.testing.assert_close(*found)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_forward_mode_on_pixels_is_the_gradients(mode: str) -> None:
    grid = F.affine_grid(torch.eye(2, 3, dtype=torch.float64)[None], [1, 1, 4, 4], True)
    of, along = image((1, 1, 4, 4), torch.float64), torch.ones_like(grid)
    function = partial(P.grid_sample, of, mode=mode, align_corners=True)
    _, tangent = torch.func.jvp(function, (grid,), (along,))
    (gradient,) = torch.func.vjp(function, grid)[1](torch.ones_like(tangent))
    torch.testing.assert_close(tangent.sum(), (gradient * along).sum())


# Accuracy.


@pytest.mark.parametrize("kind", ["smooth", "noisy"])
@pytest.mark.parametrize("dtype", [torch.float32, *HALF], ids=str)
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("aligned", [False, True])
def test_affine_sample_is_no_farther_from_float64_than_eager(
    kind: str, dtype: torch.dtype, mode: str, aligned: bool
) -> None:
    angle = torch.tensor(0.5)
    theta = torch.tensor([[angle.cos(), -angle.sin(), 0.05], [angle.sin(), angle.cos(), -0.1]])[None] / 0.9
    rows, columns = torch.arange(160.0)[:, None], torch.arange(120.0)
    waves = (torch.sin(rows / 9 + columns / 7) + 1) / 2
    of = (waves if kind == "smooth" else image((160, 120))).reshape(1, 1, 160, 120)
    of, theta = of.to(dtype), theta.to(dtype)
    options = (of.shape, mode, "border", aligned)
    truth = composed(of.double(), theta.double(), *options)
    ours, theirs = ((f(of, theta, *options).double() - truth).abs() for f in (P.affine_sample, composed))
    assert ours.mean() <= 1.05 * theirs.nan_to_num(float("inf")).mean()


def test_reference() -> None:
    """The slow float64 reference says the same."""
    for axes, mode in itertools.product((2, 3), ("bilinear", "bicubic")):
        of, grid = pair(axes, torch.float64)
        want = reference.run(Program(torch.float64, Warp("grid", mode)), of, grid=grid)
        torch.testing.assert_close(P.grid_sample(of, grid, mode), want)


# What is not plain.


@pytest.mark.parametrize("dtypes", list(itertools.product(FLOATS, FLOATS)), ids=str)
def test_autocast_gives_eagers_dtypes(dtypes: tuple[torch.dtype, torch.dtype]) -> None:
    of, grid, theta = IMAGE.to(dtypes[0]), GRID.to(dtypes[1]), THETA.to(dtypes[1])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        if torch.float64 in dtypes and dtypes[0] != dtypes[1]:
            with pytest.raises(RuntimeError):
                P.grid_sample(of, grid)
            return
        assert P.grid_sample(of, grid).dtype == F.grid_sample(of, grid).dtype
        assert P.affine_sample(of, theta, SIZE).dtype == P.grid_sample(of, grid).dtype
        assert P.affine_grid(theta, SIZE).dtype == theta.dtype
        assert P.grid_sample(IMAGE.byte(), GRID).dtype == torch.uint8


class Logged(Tensor):
    calls: list[Any] = []  # noqa: RUF012

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        cls.calls.append(func)
        return super().__torch_function__(func, types, args, kwargs or {})  # type: ignore[no-untyped-call]


CALLS: dict[Callable[..., Tensor], tuple[Any, ...]] = {
    P.grid_sample: (IMAGE, GRID),
    P.affine_grid: (THETA, SIZE),
    P.affine_sample: (IMAGE, THETA, SIZE),
}


@pytest.mark.parametrize("function", CALLS)
def test_subclasses_see_the_call_and_come_back(function: Callable[..., Tensor]) -> None:
    given = CALLS[function]
    for place in (place for place, one in enumerate(given) if isinstance(one, Tensor)):
        special = [one.as_subclass(Logged) if index == place else one for index, one in enumerate(given)]
        Logged.calls.clear()
        got = function(*special)
        assert function in Logged.calls
        assert isinstance(got, Logged)
        assert torch.equal(got.as_subclass(Tensor), function(*given))


def test_function_modes_see_the_call() -> None:
    seen = []

    class Mode(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(func)
            return func(*args, **(kwargs or {}))

    for _ in range(3):
        P.grid_sample(IMAGE, GRID)
    with Mode():
        for function, given in CALLS.items():
            function(*given)
    assert set(CALLS) <= set(seen)


def test_lazy_negation_and_conjugation() -> None:
    lazy = torch.complex(IMAGE, IMAGE).conj()
    assert torch.equal(P.grid_sample(lazy, GRID, "nearest"), P.grid_sample(lazy.resolve_conj(), GRID, "nearest"))
    assert lazy.imag.is_neg()
    torch.testing.assert_close(P.grid_sample(lazy.imag, GRID), -P.grid_sample(IMAGE, GRID))


def test_inference_mode() -> None:
    with torch.inference_mode():
        assert P.grid_sample(IMAGE, GRID).is_inference()
        assert torch.equal(P.grid_sample(IMAGE, GRID), P.grid_sample(IMAGE.clone(), GRID.clone()))


def test_vmap_of_affine_grids() -> None:
    """Eager's cannot be mapped over theta's of another batch."""
    thetas = image((5, 2, 2, 3), torch.float64)
    got = torch.func.vmap(lambda theta: P.affine_grid(theta, SIZE))(thetas)
    torch.testing.assert_close(got, torch.stack([F.affine_grid(theta, list(SIZE), False) for theta in thetas]))


def torchvision_grid(turns: int, shift: tuple[float, float], size: tuple[int, int]) -> Tensor:
    """As torchvision's v2.functional makes it for a rotation by so many right angles, and a translation, in pixels."""
    height, width = size
    cos, sin = math.cos(math.radians(-90 * turns)), math.sin(math.radians(-90 * turns))
    matrix = [cos, sin, -cos * shift[0] - sin * shift[1], -sin, cos, sin * shift[0] - cos * shift[1]]
    base = torch.ones(1, height, width, 3)
    base[..., 0] = torch.linspace((1 - width) / 2, (width - 1) / 2, width)
    base[..., 1] = torch.linspace((1 - height) / 2, (height - 1) / 2, height)[:, None]
    rescaled = torch.tensor(matrix).view(1, 2, 3).transpose(1, 2) / torch.tensor([width / 2, height / 2])
    return base.view(1, -1, 3).bmm(rescaled).view(1, height, width, 2)


def turned_and_shifted(image: Tensor, turns: int, shift: tuple[float, float]) -> Tensor:
    """The same in integers: four times the bilinear values, with zeros around the image."""
    height, width = image.shape[-2:]
    cos, sin = ((1, 0), (0, -1), (-1, 0), (0, 1))[turns]
    x = 2 * torch.arange(width) + 1 - width - int(2 * shift[0])
    y = (2 * torch.arange(height) + 1 - height - int(2 * shift[1]))[:, None]
    column, row = cos * x + sin * y + width - 1, cos * y - sin * x + height - 1  # in half pixels
    total = torch.zeros(image.shape, dtype=torch.int64)
    for right, below in itertools.product((0, 1), repeat=2):
        at_x, at_y = column // 2 + right, row // 2 + below
        weight = (column % 2 if right else 2 - column % 2) * (row % 2 if below else 2 - row % 2)
        inside = (at_x >= 0) & (at_x < width) & (at_y >= 0) & (at_y < height)
        total += image[..., at_y.clamp(0, height - 1), at_x.clamp(0, width - 1)] * weight * inside
    return total


@pytest.mark.parametrize("size", [(33, 64), (40, 37), (345, 456), (7, 8)])
@pytest.mark.parametrize(("turns", "shift"), [(1, (0, 0)), (2, (0, 0)), (3, (0.5, 0)), (2, (0.5, 0.5)), (0, (-3.5, 1))])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_whole_and_half_pixels_are_exact(
    layout: torch.memory_format, turns: int, shift: tuple[float, float], size: tuple[int, int]
) -> None:
    """Coordinates that a float32 grid cannot hold are off by a few units in their last place; pixels are not."""
    pixels = torch.randint(0, 256, (1, 3, *size), generator=torch.Generator().manual_seed(size[1]))
    grid, fours = torchvision_grid(turns, shift, size), turned_and_shifted(pixels, turns, shift)
    image = pixels.to(torch.uint8).contiguous(memory_format=layout)
    torch.testing.assert_close(P.grid_sample(image.float(), grid, align_corners=False), fours / 4, rtol=0, atol=0)
    rounded = (fours / 4).round().to(torch.uint8)  # ties to even, as torchvision rounds
    torch.testing.assert_close(P.grid_sample(image, grid, align_corners=False), rounded, rtol=0, atol=0)


def test_whole_and_half_pixels_are_exact_by_a_matrix() -> None:
    pixels = torch.randint(0, 256, (1, 3, 35, 66), generator=torch.Generator().manual_seed(0))
    theta = torch.tensor([[[0, 35 / 66, 0], [-66 / 35, 0, 0]]])  # a quarter turn, in coordinates from -1 to 1
    fours = turned_and_shifted(pixels, 3, (0, 0))
    ours = P.affine_sample(pixels.float(), theta, pixels.shape, align_corners=False)
    torch.testing.assert_close(ours, fours / 4, rtol=0, atol=0)


def test_gradients_of_coordinates_stay_on_eagers_side_of_a_pixel() -> None:
    """At a pixel the slope jumps; the values of an identity are exact, its gradients eager's."""
    pixels, theta = torch.rand(1, 1, 9, 13), torch.tensor([[[1.0, 0, 0], [0, 1, 0]]])
    grid = F.affine_grid(theta, [1, 1, 9, 13], align_corners=False)
    torch.testing.assert_close(P.grid_sample(pixels, grid, align_corners=False), pixels, rtol=0, atol=0)
    slopes = []
    for function in (F.grid_sample, P.grid_sample):
        leaf = grid.clone().requires_grad_()
        slopes.append(torch.autograd.grad(function(pixels, leaf, align_corners=False).sum(), leaf)[0])
    torch.testing.assert_close(slopes[1], slopes[0])
