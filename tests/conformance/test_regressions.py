"""Faults our decompositions once had."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from tests.conformance.decompose import Decomposed, ours
from tests.conformance.expected_differences import expected_forward


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_bicubic_warp_of_a_nan_coordinate(padding: str) -> None:
    """A NaN distance has the weight NaN, not 0."""
    grid = torch.tensor([float("nan"), 0.0]).view(1, 1, 1, 2)
    image = torch.arange(1.0, 5).view(1, 1, 1, 4)
    assert ours(F.grid_sample, image, grid, "bicubic", padding, True).isnan().all()


def test_float64_nearest_on_a_pixels_edge() -> None:
    """Output 45 of 168 -> 120 is pixel 63 (45 * 168 = 63 * 120), but 62.99999999999999 in float64: eager rounds the
    position to float32."""
    image = torch.arange(168.0, dtype=torch.float64).view(1, 1, 168)
    assert ours(F.interpolate, image, 120)[0, 0, 45] == F.interpolate(image, 120)[0, 0, 45] == 63


@pytest.mark.parametrize("dtype", [torch.float32, torch.uint8])
@pytest.mark.parametrize(("before", "after", "output"), [(2, 123, 61), (4, 166, 41)])
def test_nearest_exact_on_a_pixels_edge(before: int, after: int, output: int, dtype: torch.dtype) -> None:
    """Eager has the right pixel in 1-D, 3-D and large 2-D, as floor(fma(ratio, i + .5, -.5) + .5)."""
    image = torch.arange(before).to(dtype).view(1, 1, before)
    right = F.interpolate(image, after, mode="nearest-exact")[0, 0, output]
    assert ours(F.interpolate, image, after, None, "nearest-exact")[0, 0, output] == right == 1


def test_strides_of_an_empty_batch() -> None:
    """`.contiguous()` does nothing to an empty tensor, whatever its strides."""
    image = torch.empty(0, 3, 8, 9).to(memory_format=torch.channels_last)
    assert ours(F.interpolate, image, (4, 12)).stride() == F.interpolate(image, (4, 12)).stride()


def test_strides_of_a_flipped_thin_image() -> None:
    """(5, 5, 1, 1) instead of (5, 1, 1, 1), and later operators would take it for channels first."""
    image = torch.rand(2, 5, 1, 1).movedim(-1, 1)
    assert ours(torch.flip, image, (2,)).stride() == torch.flip(image, (2,)).stride()


def test_float32_antialiased_weights_add_up_to_one() -> None:
    """20 x 30 -> 1 x 1: a common factor of 1 + 1.5e-7 in the weights made the mean error 4.8 times eager's."""
    image = torch.rand(200, 3, 20, 30, generator=torch.Generator().manual_seed(0))
    eager = F.interpolate(image, (1, 1), mode="bilinear", antialias=True)
    with Decomposed() as mode:
        got = F.interpolate(image, (1, 1), mode="bilinear", antialias=True)
    assert mode.forward is not None
    truth = expected_forward(mode.forward)
    assert (got.double() - truth).abs().mean() <= 1.05 * (eager.double() - truth).abs().mean()


@pytest.mark.parametrize(
    ("mode", "before", "after", "scale"),
    [
        ("bicubic", 520, 519, None),  # a weight near 1 that its folded neighbour makes smaller decides the precision
        ("bicubic", 70, 48, 0.6834701706492368),
        ("bilinear", 1468, 1333, 0.9728902819593748),  # floorf finds a neighbour with weight 1, not 0.99996
        ("bilinear", 1343, 785, 0.6283442019166758),
    ],
)
def test_precision_of_uint8_weights(mode: str, before: int, after: int, scale: float | None) -> None:
    image = torch.randint(0, 256, (1, 3, 40, before), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    resize = getattr(torch.ops.aten, f"upsample_{mode}2d").default
    assert torch.equal(
        ours(resize, image, [40, after], False, None, scale), resize(image, [40, after], False, None, scale)
    )
