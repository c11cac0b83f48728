"""Tests of the sample generator itself."""

import math

import pytest
import torch

from tests.support.samples import (
    DTYPES,
    EAGER_GRID_MODES,
    GRID_PADDINGS,
    KERNELS,
    LAYOUTS,
    MAX_BYTES,
    OPERATORS,
    PAD_MODES,
    Sample,
    full,
    image,
    select,
    small,
)

STRIDES = {
    "CF": (105, 35, 5, 1),
    "CL": (105, 1, 15, 3),
    "sliced": (3 * 10 * 8, 10 * 8, 8, 1),
    "slicedCL": (3 * 10 * 8, 1, 8 * 3, 3),
    "transposed": (105, 35, 1, 7),
    "expanded": (0, 35, 5, 1),
}
"""Of a (2, 3, 7, 5) image; a sliced one is cut from (2, 3, 10, 8)."""


def bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().view(-1).view(torch.uint8)


def test_counts() -> None:
    assert 250 <= len(small()) <= 430
    assert 2000 <= len(full()) <= 9000


def test_labels_are_unique() -> None:
    labels = [sample.label for sample in full()]
    assert len(set(labels)) == len(labels)


def test_full_contains_small() -> None:
    assert {sample.label for sample in small()} <= {sample.label for sample in full()}


def test_no_sample_is_large() -> None:
    sizes = [math.prod(spec.shape) * spec.dtype.itemsize for sample in full() for spec in sample.specs]
    assert max(sizes) <= MAX_BYTES


def test_same_bits_whatever_the_order_and_the_global_generator() -> None:
    first = {sample.label: [bits(tensor) for tensor in sample.args] for sample in small()}
    torch.manual_seed(1)
    before = torch.get_rng_state()
    for sample in reversed(small()):
        again = [bits(tensor) for tensor in sample.args]
        assert all(map(torch.equal, first[sample.label], again)), sample
    assert torch.equal(torch.get_rng_state(), before)


def test_tensors_of_a_sample_differ() -> None:
    sample = select(small(), operator="grid_sample", axes=2)[0]
    picture, grid = sample.args
    assert torch.equal(sample.input, picture)
    assert not torch.equal(picture.flatten()[:6], grid.flatten()[:6])
    assert -1.3 <= grid.min() < -1 < 1 < grid.max() <= 1.3


@pytest.mark.parametrize("layout", LAYOUTS)
def test_strides(layout: str) -> None:
    tensor = image((2, 3, 7, 5), torch.float32, layout)
    assert tensor.shape == (2, 3, 7, 5)
    assert tensor.stride() == STRIDES[layout]
    assert (tensor.storage_offset() > 0) == layout.startswith("sliced")


def has_layout(tensor: torch.Tensor, layout: str) -> bool:
    if layout == "CF":
        return tensor.is_contiguous()
    if layout == "CL":
        return tensor.stride(1) == 1 and tensor.movedim(1, -1).is_contiguous()
    if layout == "transposed":
        return tensor.transpose(-1, -2).is_contiguous()
    if layout == "expanded":
        return tensor.stride(0) == 0 and tensor[0].is_contiguous()
    return tensor.storage_offset() > 0 and tensor.stride(0) > tensor[0].numel()


def test_layouts_of_small() -> None:
    for sample in small():
        tensor = sample.input
        assert (tensor.shape, tensor.dtype) == (sample.shape, sample.dtype), sample
        assert has_layout(tensor, sample.layout), sample


@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPES.values())
def test_values(dtype: torch.dtype) -> None:
    tensor = image((1, 3, 50, 40), dtype)
    assert tensor.dtype == dtype
    if dtype.is_complex:
        tensor = torch.view_as_real(tensor)
    if tensor.is_floating_point():
        assert 0 <= tensor.min() < 0.1
        assert 0.9 < tensor.max() <= 1
    elif dtype == torch.bool:
        assert 0.4 < tensor.double().mean() < 0.6
    else:
        limits = torch.iinfo(dtype)
        margin = (limits.max - limits.min) // 50
        assert tensor.min().item() <= limits.min + margin
        assert tensor.max().item() >= limits.max - margin


def test_small_covers_every_parameter_of_interpolate() -> None:
    chosen = select(small(), operator="interpolate")
    for kernel in KERNELS:
        shown = select(chosen, mode=kernel.mode, antialias=kernel.antialias)
        for axes in kernel.axes:
            possible = [layout for layout in LAYOUTS if axes > 1 or not layout.endswith("CL")]
            assert {sample.dtype for sample in select(shown, axes=axes)} == set(kernel.dtypes)
            assert {sample.layout for sample in select(shown, axes=axes)} == set(possible)
            assert {sample.kwargs.get("align_corners") for sample in shown} == set(kernel.align_corners)
    assert {sample.shape[0] for sample in chosen} == {0, 1, 2}
    assert {sample.shape[1] for sample in chosen} == {1, 3, 4, 5, 8}
    given = [sample.kwargs.get("scale_factor") for sample in chosen]
    assert {type(factor) for factor in given} == {type(None), float, tuple}
    assert any("recompute_scale_factor" in sample.kwargs for sample in chosen)


def test_small_covers_every_parameter_of_the_others() -> None:
    assert {sample.operator for sample in small()} == set(OPERATORS)
    for axes, modes in EAGER_GRID_MODES.items():
        chosen = select(small(), operator="grid_sample", axes=axes)
        for mode in modes:
            assert {sample.layout for sample in select(chosen, mode=mode)} == set(LAYOUTS)
            assert {sample.kwargs["padding_mode"] for sample in select(chosen, mode=mode)} == set(GRID_PADDINGS)
    for mode, dtypes in PAD_MODES.items():
        chosen = select(small(), operator="pad", mode=mode)
        assert {sample.dtype for sample in chosen} == set(dtypes)
        assert {sample.layout for sample in chosen} == set(LAYOUTS)
        assert {sample.axes for sample in chosen} == {1, 2, 3}
    for dtype in DTYPES:
        assert {sample.layout for sample in select(small(), operator="flip", dtype=dtype)} == set(LAYOUTS)
    for axes in (2, 3):
        chosen = select(small(), operator="affine_grid", axes=axes)
        assert {sample.kwargs["align_corners"] for sample in chosen} == {False, True}


def test_small_runs_in_eager() -> None:
    for sample in small():
        result = sample.eager()
        assert result.numel() > 0 or sample.shape[0] == 0, sample


def labelled(label: str) -> Sample:
    (sample,) = select(full(), label=label)
    return sample


@pytest.mark.parametrize(
    ("label", "right"),
    [
        ("interpolate-bilinear-aa-u8-CL-1x3x345x456-270x270", True),
        ("interpolate-bilinear-aa-f32-CF-1x3x33x21-1x9", True),
        ("interpolate-bilinear-aa-f32-CF-1x3x33x21-9x1", False),
        ("interpolate-bicubic-aa-f64-CF-1x3x33x21-9x1", False),
        ("interpolate-bicubic-aa-f64-CL-1x3x33x21-9x1", True),
        ("interpolate-bilinear-f32-CF-1x5x33x21-9x1", True),
        ("interpolate-bicubic-u8-CF-1x5x33x21-9x1", False),
        ("interpolate-nearest-u8-CF-1x5x33x21-9x1", True),
        ("interpolate-bilinear-u8-transposed-2x1x23x1-11x7", False),
        ("interpolate-bilinear-u8-sliced-2x1x23x1-11x7", True),
        ("interpolate-bilinear-f32-transposed-2x1x23x1-11x7", True),
    ],
)
def test_eager_is_right(label: str, right: bool) -> None:
    assert labelled(label).eager_is_right == right


def test_eager_is_right_for_almost_all() -> None:
    wrong = select(small(), eager_is_right=False)
    assert len(wrong) < len(small()) // 20
    assert {(sample.operator, sample.mode) for sample in wrong} == {
        ("interpolate", kernel.mode) for kernel in KERNELS if kernel.antialias
    }


def test_unknown_layout() -> None:
    with pytest.raises(ValueError, match="unknown layout"):
        image((1, 1, 2, 2), torch.float32, "rows")
