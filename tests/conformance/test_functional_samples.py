"""Our own samples on `polyphase.functional`, forward and backward, in every dtype and layout."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch

from tests.conformance import expected_functional_differences as expected
from tests.conformance.checks import Case
from tests.conformance.expected_differences import ONE_COLUMN_TRANSPOSED
from tests.conformance.functional_checks import (
    Pair,
    backward_failures,
    equals_eager,
    forward_failures,
    gradient_equals_eager,
    gradients,
    outputs,
    same_strides,
)
from tests.conformance.test_samples import FEW, case_of, grouped
from tests.support.samples import DTYPES, LAYOUTS, Sample, Spec, full

OPERATORS = ("interpolate", "flip", "pad", "grid_sample", "affine_grid")
HAS_AVX2 = torch.backends.cpu.get_cpu_capability() in ("AVX2", "AVX512")


def differentiable(dtype: torch.dtype) -> bool:
    return dtype.is_floating_point or dtype.is_complex


def make(operator: str, shape: tuple[int, ...], dtype: torch.dtype, layout: str = "CF", **given: Any) -> Sample:
    label = f"{operator} {shape} {layout} {dtype} {given}"
    return Sample(operator, (Spec(shape, dtype, layout),), given, label)


DIFFERING = [
    make("interpolate", (1, 1, 1, 2), torch.float32, scale_factor=(1.0, 1.4), mode="nearest"),
    make("interpolate", (1, 1, 1, 4), torch.float32, scale_factor=(1.0, 2.2), mode="nearest"),
    make("interpolate", (1, 1, 1, 26), torch.float64, size=(1, 22), mode="nearest"),
    make("interpolate", (1, 1, 1, 2), torch.float32, size=(1, 123), mode="nearest-exact"),
    make("interpolate", (1, 3, 4, 5), torch.float32, "CL", size=(1, 1), mode="area"),
    make("pad", (1, 1, 9), torch.float32, pad=(-1, -3), mode="constant"),
    make("pad", (1, 1, 9), torch.float32, pad=(1, 3), mode="constant"),
    make("pad", (1, 1, 2, 2), torch.float32, pad=(200, 0, 150, 0), mode="replicate"),
    make("flip", (0, 3, 4, 5), torch.float32, "sliced", dims=(3,)),
]
"""For lines of the tables that no sample of small() differs by, or none by that line alone."""

THIN = [
    make("flip", (3, 2, 27, 1), torch.float32, "transposed", dims=(2,)),
    make("flip", (2, 1, 14), torch.float32, "transposed", dims=(1, 2)),
    make("pad", (2, 3, 9), torch.float32, "transposed", pad=(0, 0), mode="reflect"),
    make("pad", (2, 3, 4, 5), torch.float32, "transposed", pad=(0, 0, 0, 0), mode="circular"),
    make("pad", (2, 3, 4, 5), torch.float32, pad=(1, 1) * 4, mode="constant"),
    make("interpolate", (2, 3, 4, 5), torch.float32, "CL", size=(1, 1), mode="bicubic"),
    make("interpolate", (2, 1, 4, 5), torch.float32, "CL", size=(6, 3), mode="bicubic"),
]
"""Sizes of one pixel, pads of none, and strides that can be read in two ways."""

QUICK = [*(sample for sample in FEW if sample.operator in OPERATORS), *DIFFERING, *THIN]
SMALL = grouped(QUICK)
FULL = grouped(sample for sample in full() if sample.operator in OPERATORS)


def failures(samples: Iterable[Sample], check: Callable[[Case], list[str]]) -> str:
    return "\n".join(failure for sample in samples for failure in check(case_of(sample)))


@pytest.mark.parametrize("group", SMALL)
def test_forward(group: str) -> None:
    assert failures(SMALL[group], forward_failures) == ""


@pytest.mark.parametrize("group", [group for group in SMALL if differentiable(SMALL[group][0].dtype)])
def test_backward(group: str) -> None:
    assert failures(SMALL[group], backward_failures) == ""


@pytest.mark.full
@pytest.mark.parametrize("group", FULL)
def test_forward_full(group: str) -> None:
    assert failures(FULL[group], forward_failures) == ""


@pytest.mark.full
@pytest.mark.parametrize("group", [group for group in FULL if differentiable(FULL[group][0].dtype)])
def test_backward_full(group: str) -> None:
    assert failures(FULL[group], backward_failures) == ""


def test_every_expected_difference_is_one() -> None:
    """Each line of the tables applies, alone, to a call on which ours and eager's really differ."""
    pairs = {
        "forward": [outputs(case_of(sample)) for sample in QUICK],
        "backward": [pair for sample in QUICK if differentiable(sample.dtype) for pair in gradients(case_of(sample))],
    }
    differs: dict[str, Callable[[Pair], str | None]] = {
        "forward": equals_eager,
        "backward": gradient_equals_eager,
        "strides": same_strides,
        "gradient strides": same_strides,
    }
    gone = []
    for name, table in expected.TABLES.items():
        of_table = pairs["forward" if name in ("forward", "strides") else "backward"]
        for line in table:
            alone = [pair for pair in of_table if [one for one in table if one.applies(pair.seen)] == [line]]
            elsewhere = line.reason == ONE_COLUMN_TRANSPOSED.reason and not HAS_AVX2
            if not elsewhere and not any(differs[name](pair) for pair in alone):
                gone.append(f"{name}: {line.reason}")
    assert gone == []


def test_the_samples_hold_every_dtype_and_layout() -> None:
    for operator in OPERATORS:
        samples = [sample for sample in QUICK if sample.operator == operator]
        layouts, dtypes = ({getattr(sample, name) for sample in samples} for name in ("layout", "dtype"))
        assert layouts == set(LAYOUTS) - ({"CL", "slicedCL"} if operator == "affine_grid" else set())
        assert dtypes >= (set(DTYPES) if operator in ("flip", "pad") else {torch.float32, torch.float64})
