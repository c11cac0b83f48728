from __future__ import annotations

import itertools
import math
import platform
import warnings
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from polyphase.errors import InvalidProgramError, PolyphaseError, UnknownNameError
from polyphase.sampling.text import to_text
from polyphase.sampling.warps import MODES, PADDINGS, Warp, affine_grid, sample
from tests.sampling.strategies import brief, quick, sizes
from tests.support.samples import EAGER_GRID_MODES

SETTINGS = [
    (dims, mode, padding, corners)
    for dims, mode, padding, corners in itertools.product((2, 3), MODES, PADDINGS, (False, True))
    if mode in EAGER_GRID_MODES[dims]
]

#: A whole number made of NaN is whatever the CPU says: on x86 a negative one, elsewhere 0.
EAGER_TAKES_THE_FIRST_PIXEL = platform.machine() == "x86_64"


def random(seed: int, *shape: int, low: float = 0.0, high: float = 1.0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(shape, generator=generator, dtype=torch.float64) * (high - low) + low


INVALID: list[tuple[dict[str, Any], type[PolyphaseError], str]] = [
    ({"source": "flow"}, UnknownNameError, "unknown warp source 'flow'; choose one of: affine, formula, grid"),
    ({"source": "grid", "mode": "linear"}, UnknownNameError, "warp mode 'linear'.*bicubic, bilinear, nearest"),
    ({"source": "grid", "padding": "zero"}, UnknownNameError, "padding mode 'zero'.*border, reflection, zeros"),
    ({"source": "grid", "size": (3, 4)}, InvalidProgramError, r"grid source with size \(3, 4\).*a grid has its own"),
    ({"source": "affine"}, InvalidProgramError, r"affine source with size \(\); computed coordinates need"),
    (
        {"source": "grid", "fill_rule": "blur"},
        UnknownNameError,
        "fill rule 'blur'; choose one of: blend, constant, edge",
    ),
    ({"source": "grid", "padding": "border", "fill": (1.0,)}, InvalidProgramError, "leaves nothing to fill; use zeros"),
    ({"source": "grid", "fill": (1.0, math.inf)}, InvalidProgramError, "use constant or edge"),
]


@pytest.mark.parametrize(("fields", "error", "message"), INVALID)
def test_invalid_warp(fields: dict[str, Any], error: type[PolyphaseError], message: str) -> None:
    with pytest.raises(error, match=message):
        Warp(**fields)


@pytest.mark.parametrize("align_corners", [False, True])
@given(batch=st.integers(0, 2), size=st.lists(sizes(9), min_size=2, max_size=3), seed=st.integers(0, 2**31))
@quick
def test_affine_grid(align_corners: bool, batch: int, size: list[int], seed: int) -> None:
    dims = len(size)
    theta = random(seed, batch, dims, dims + 1, low=-2, high=2)
    ours = affine_grid(theta, size, align_corners)
    assert ours.shape == (batch, *size, dims)
    if batch == 0:  # eager refuses
        return
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*affine_grid behavior has changed")
        theirs = functional.affine_grid(theta, [batch, 1, *size], align_corners)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)


@given(n=sizes(200), align_corners=st.booleans())
@quick
def test_base_coordinates_are_symmetric_to_the_bit(n: int, align_corners: bool) -> None:
    theta = torch.tensor([[[1.0, 0, 0], [0, 1.0, 0]]])
    x = affine_grid(theta, (1, n), align_corners)[0, 0, :, 0]
    assert torch.equal(x, -x.flip(0))


@pytest.mark.parametrize(("dims", "mode", "padding", "align_corners"), SETTINGS)
@given(data=st.data())
@brief
def test_sample(dims: int, mode: str, padding: str, align_corners: bool, data: st.DataObject) -> None:
    shapes = st.lists(sizes(6), min_size=dims, max_size=dims)
    spatial, out = data.draw(shapes), data.draw(shapes)
    seed = data.draw(st.integers(0, 2**31))
    image, grid = random(seed, 2, 2, *spatial), random(seed + 1, 2, *out, dims, low=-1.5, high=1.5)
    ours = sample(image, grid, mode, padding, align_corners)
    theirs = functional.grid_sample(image, grid, mode, padding, align_corners)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)


@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize("align_corners", [False, True])
def test_bicubic_samples_of_a_volume_are_products(padding: str, align_corners: bool) -> None:
    """Of a volume that is the product of an image and a line: of eager's samples of the two."""
    image, line = random(0, 1, 1, 6, 7), random(1, 1, 1, 5, 1)
    grid = random(2, 1, 3, 4, 5, 3, low=-1.7, high=1.7)
    grid[..., 2].view(-1)[:2] = torch.tensor([-40.0, 40.0])
    ours = sample(line[..., None] * image[:, :, None], grid, "bicubic", padding, align_corners)
    flat = grid.reshape(1, 1, -1, 3)
    across = functional.grid_sample(image, flat[..., :2], "bicubic", padding, align_corners)
    along = torch.stack(
        [torch.zeros_like(flat[..., 2]), flat[..., 2]], -1
    )  # the middle of pixels that are all the same
    deep = functional.grid_sample(line.expand(1, 1, 5, 9), along, "bicubic", padding, align_corners)
    torch.testing.assert_close(ours.flatten(), (across * deep).flatten(), rtol=0, atol=1e-12)


@pytest.mark.parametrize("padding", PADDINGS)
def test_nearest_halfway_between_pixels_takes_the_even_one(padding: str) -> None:
    x = (torch.arange(-1, 10, dtype=torch.float64) + 0.5) / 4 - 1  # pixels -0.5, 0.5, ... of 9
    grid = torch.stack([x, torch.zeros_like(x)], -1)[None, None]
    image = random(0, 1, 1, 3, 9)
    ours = sample(image, grid, "nearest", padding, align_corners=True)
    assert torch.equal(ours, functional.grid_sample(image, grid, "nearest", padding, align_corners=True))
    assert torch.equal(ours[0, 0, 0, 1:9], image[0, 0, 1, torch.tensor([0, 2, 2, 4, 4, 6, 6, 8])])


@pytest.mark.parametrize(("dims", "mode", "padding", "align_corners"), SETTINGS)
def test_sample_far_outside(dims: int, mode: str, padding: str, align_corners: bool) -> None:
    image, grid = random(0, 1, 2, *[5] * dims), random(1, 1, *[3] * dims, dims, low=-50, high=50)
    ours = sample(image, grid, mode, padding, align_corners)
    theirs = functional.grid_sample(image, grid, mode, padding, align_corners)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-9)


@pytest.mark.parametrize(("dims", "mode", "padding", "align_corners"), SETTINGS)
def test_empty_batch(dims: int, mode: str, padding: str, align_corners: bool) -> None:
    image, grid = torch.zeros(0, 3, *[5] * dims), torch.zeros(0, *[4] * dims, dims)
    assert sample(image, grid, mode, padding, align_corners).shape == (0, 3, *[4] * dims)


def weights_on(pixel: int, shape: tuple[int, ...], grid: Tensor, mode: str, padding: str, corners: bool) -> Tensor:
    """The weight each output has on one pixel: the warp of an image that is 1 there and 0 elsewhere."""
    unit = torch.zeros(shape, dtype=torch.float64)
    unit.view(-1)[pixel] = 1
    return sample(unit, grid, mode, padding, corners)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("padding", PADDINGS)
@given(align_corners=st.booleans(), pixel=st.integers(0, 19), seed=st.integers(0, 2**31), whole=st.booleans())
@brief
def test_odd_pixels_reach_only_what_has_a_weight_on_them(
    value: float, mode: str, padding: str, align_corners: bool, pixel: int, seed: int, whole: bool
) -> None:
    """With `whole` coordinates on the pixels' centres: all taps but one have weight 0."""
    shape, grid = (1, 1, 4, 5), random(seed, 1, 3, 3, 2, low=-1.5, high=1.5)
    if whole:
        grid = (grid * torch.tensor([5, 4])).round() / torch.tensor([5, 4]) + torch.tensor([0, 1 / 4])
    reached = weights_on(pixel, shape, grid, mode, padding, align_corners) != 0
    image = random(seed + 1, *shape)
    clean = sample(image, grid, mode, padding, align_corners)
    image.view(-1)[pixel] = value
    result = sample(image, grid, mode, padding, align_corners)
    assert torch.equal(~result.isfinite(), reached)
    assert torch.equal(result[~reached], clean[~reached])


def test_one_nan_pixel_at_its_own_size() -> None:
    """The identity warp leaves the NaN where it is; eager's weights of 0 would spread it."""
    image = random(0, 1, 1, 4, 4)
    image[0, 0, 1, 2] = math.nan
    grid = affine_grid(torch.eye(2, 3, dtype=torch.float64)[None], (4, 4), align_corners=False)
    assert torch.equal(sample(image, grid, "bilinear", "zeros", False).isnan(), image.isnan())


@pytest.mark.parametrize(
    ("mode", "padding", "spreads"),
    [
        ("bilinear", "zeros", True),
        *(("bicubic", padding, True) for padding in PADDINGS),
        ("bilinear", "border", False),
        ("bilinear", "reflection", False),
        ("nearest", "border", False),
    ],
)
def test_nan_coordinates(mode: str, padding: str, spreads: bool) -> None:
    """As eager on x86: NaN, or else the first pixel of the axis."""
    image, grid = random(0, 1, 1, 4, 4), torch.zeros(1, 1, 2, 2, dtype=torch.float64)
    grid[0, 0, 0, 0] = math.nan
    ours = sample(image, grid, mode, padding, False)
    assert ours.isnan().tolist() == [[[[spreads, False]]]]
    if EAGER_TAKES_THE_FIRST_PIXEL:
        eager = functional.grid_sample(image, grid, mode, padding, False)
        torch.testing.assert_close(ours, eager, rtol=0, atol=1e-12, equal_nan=True)


def test_nan_coordinate_of_nearest_with_zeros_is_zero() -> None:
    grid = torch.full((1, 1, 1, 2), math.nan, dtype=torch.float64)
    image = random(0, 1, 1, 4, 4) + 1
    assert sample(image, grid, "nearest", "zeros", False).item() == 0
    if EAGER_TAKES_THE_FIRST_PIXEL:
        assert functional.grid_sample(image, grid, "nearest", "zeros", False).item() == 0


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32, torch.float16, torch.complex64, torch.bool])
def test_nearest_moves_any_dtype_untouched(dtype: torch.dtype) -> None:
    image = torch.tensor([[[[0, 1], [1, 0]]]]).to(dtype)
    grid = affine_grid(torch.tensor([[[-1.0, 0, 0], [0, 1, 0]]]), (2, 2), align_corners=True)
    result = sample(image, grid, "nearest", "zeros", align_corners=True)
    assert result.dtype == dtype
    assert torch.equal(result, image.flip(-1))


def test_weighted_samples_have_the_dtype_of_the_grid() -> None:
    image, grid = torch.ones(1, 1, 2, 2, dtype=torch.uint8), torch.zeros(1, 1, 1, 2)
    assert sample(image, grid, "bilinear", "zeros", False).dtype == torch.float32


# ---- fill

PIXELS = torch.rand(1, 2, 5, 6, dtype=torch.float64)
FILL = (3.0, -0.25)


def at_pixels(positions: Tensor, height: int, width: int) -> Tensor:
    """A grid, with aligned corners, of positions (x, y) in pixels."""
    return 2 * positions / torch.tensor([width - 1.0, height - 1.0], dtype=torch.float64) - 1


def everywhere() -> Tensor:
    """Positions inside, across every edge, and outside."""
    generator = torch.Generator().manual_seed(1)
    return torch.rand(1, 9, 40, 2, generator=generator, dtype=torch.float64) * 12 - 4


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_a_constant_fill_is_all_around_the_image(mode: str) -> None:
    colour = torch.tensor(FILL, dtype=torch.float64).reshape(1, 2, 1, 1)
    framed = functional.pad(PIXELS - colour, (7, 7, 7, 7)) + colour
    expected = functional.grid_sample(framed, at_pixels(everywhere() + 7, 19, 20), mode, align_corners=True)
    grid = at_pixels(everywhere(), 5, 6)
    found = sample(PIXELS, grid, mode, "zeros", True, fill=FILL, fill_rule="constant")
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_a_hard_edge_is_where_pixels_end(mode: str) -> None:
    positions, grid = everywhere(), at_pixels(everywhere(), 5, 6)
    x, y = positions.unbind(-1)
    inside = (x >= -0.5) & (x < 5.5) & (y >= -0.5) & (y < 4.5)
    colour = torch.tensor(FILL, dtype=torch.float64).reshape(1, 2, 1, 1)
    expected = torch.where(inside, functional.grid_sample(PIXELS, grid, mode, "border", align_corners=True), colour)
    taps_padding = Warp("grid", mode, fill=FILL, fill_rule="edge").taps_padding
    torch.testing.assert_close(sample(PIXELS, grid, mode, taps_padding, True, fill=FILL, fill_rule="edge"), expected)


def test_fills_that_are_alike_are_one() -> None:
    assert to_text(Warp("grid", fill=(-0.0,))) == to_text(Warp("grid", fill=(0,))) == "warp(grid, fill=[0.0])"
    nans = [Warp("grid", fill=(float("nan"),), fill_rule="edge") for _ in range(2)]
    assert nans[0] == nans[1]
    assert hash(nans[0]) == hash(nans[1])
