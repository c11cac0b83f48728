"""Our own samples on our decompositions: what OpInfo lacks (antialias, channels last, large and odd sizes)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable

import pytest
import torch
from torch import Tensor

from polyphase.sampling.warps import MODES, PADDINGS
from tests.conformance import expected_differences as expected
from tests.conformance.checks import HALF, Case, backward_failures, close, forward_failures
from tests.conformance.decompose import TABLE, Decomposed
from tests.support.samples import DTYPES, OPERATORS, Sample, Spec, full, select, small

UNTOUCHED = ("area", "constant", "circular")
"""Modes without a decomposition of ours."""

SCALES_AGAINST_SIZES = [
    Sample(
        "interpolate", (Spec((2, 3, *spatial), dtype, layout),), {"scale_factor": factors, "mode": mode, **more}, mode
    )
    for mode, spatial, factors, more in [
        ("nearest", (60,), 1.012, {}),
        ("nearest-exact", (30,), 2.02, {}),
        ("nearest", (20, 30), (1.04, 2.02), {}),
        ("nearest", (130, 60), (1.007, 1.012), {}),
        ("nearest-exact", (6, 7, 5), (1.1, 2.1, 1.5), {}),
        ("bilinear", (60, 31), (1.012, 1.5), {}),
        ("bicubic", (60, 31), (1.012, 1.5), {}),
        ("bicubic", (60, 31), (1.012, 0.5), {"antialias": True}),
    ]
    for dtype in (torch.uint8, torch.float32, torch.float64)
    for layout in (("CF", "CL") if len(spatial) > 1 else ("CF",))
]
"""Scale factors that leave a size as it is, or double it without being 2."""

ON_AN_EDGE = select(full(), mode="nearest-exact", shape=(1, 1, 3, 2000))
ADDING_HUNDREDS = select(full(), operator="interpolate", shape=(1, 1, 3, 2), dtype=torch.float32, layout="CF")


def case_of(sample: Sample) -> Case:
    function = OPERATORS[sample.operator]
    index_only = sample.operator in ("flip", "pad") or "nearest" in (sample.mode or "")
    return Case(
        f"{sample} {DTYPES[sample.dtype]} {sample.kwargs}",
        lambda *tensors: function(*tensors, **sample.kwargs),
        sample.args,
        index_only,
        untouched=sample.mode in UNTOUCHED,
    )


def grouped(samples: Iterable[Sample]) -> dict[str, list[Sample]]:
    """By operator, mode and dtype: one test each."""
    groups = defaultdict(list)
    for sample in samples:
        mode = f"{sample.mode or ''}{'_aa' * sample.antialias}"
        groups["-".join(filter(None, (sample.operator, mode, DTYPES[sample.dtype])))].append(sample)
    return dict(groups)


def failures(samples: Iterable[Sample], check: Callable[[Case], list[str]]) -> str:
    return "\n".join(failure for sample in samples for failure in check(case_of(sample)))


FEW = (*small(), *SCALES_AGAINST_SIZES, *ON_AN_EDGE, *ADDING_HUNDREDS)
SMALL, FULL = grouped(FEW), grouped(full())
DIFFERENTIABLE = [group for group in SMALL if SMALL[group][0].dtype.is_floating_point]


@pytest.mark.parametrize("group", SMALL)
def test_forward(group: str) -> None:
    assert failures(SMALL[group], forward_failures) == ""


@pytest.mark.parametrize("group", DIFFERENTIABLE)
def test_backward(group: str) -> None:
    assert failures(SMALL[group], backward_failures) == ""


@pytest.mark.full
@pytest.mark.parametrize("group", FULL)
def test_forward_full(group: str) -> None:
    assert failures(FULL[group], forward_failures) == ""


@pytest.mark.full
@pytest.mark.parametrize("group", [group for group in FULL if FULL[group][0].dtype.is_floating_point])
def test_backward_full(group: str) -> None:
    assert failures(FULL[group], backward_failures) == ""


def test_samples_eager_gets_wrong_are_expected_differences() -> None:
    """`Sample.eager_is_right` and the table are two accounts of the same faults."""
    for sample in select(full(), eager_is_right=False):
        with Decomposed() as mode:
            case_of(sample).run()
        assert expected.find(expected.FORWARD, mode.forward), sample


def test_every_expected_difference_is_met() -> None:
    """No line of the table is about calls that nobody makes."""
    calls = []
    for sample in FEW:
        case = case_of(sample)
        with Decomposed() as mode:
            case.gradients() if sample.dtype in (torch.float32, torch.float64) else case.run()
        calls += mode.calls
    for name, table in expected.TABLES.items():
        wanted = [call for call in calls if call.is_backward == ("backward" in name) or "strides" in name]
        for line in table:
            assert any(line.applies(call) for call in wanted), line.reason


@pytest.mark.parametrize("samples", [small(), pytest.param(full(), marks=pytest.mark.full)], ids=["small", "full"])
def test_float32_is_no_farther_from_float64_than_eager(samples: tuple[Sample, ...]) -> None:
    """Our float32 coordinates are eager's, so the errors are alike: no mean or maximum beyond 1.05 times eager's.

    Of a few pixels a mean is luck, so outputs of less than a thousand values are taken together, by kernel.
    """
    pools: dict[str, list[tuple[Tensor, Tensor]]] = defaultdict(list)
    for sample in select(samples, operator="interpolate", dtype=torch.float32, eager_is_right=True):
        case = case_of(sample)
        if case.index_only or case.untouched or 0 in sample.shape:
            continue
        with Decomposed() as mode:
            got = case.run()
        assert mode.forward is not None
        truth = expected.expected_forward(mode.forward)
        ours, eager = ((result.double() - truth).abs().flatten() for result in (got, case.run()))
        pools[str(sample) if truth.numel() >= 1000 else f"small {mode.forward.name}"].append((ours, eager))
    found = []
    for name, errors in pools.items():
        ours, eager = (torch.cat(side) for side in zip(*errors, strict=True))
        if ours.mean() > 1.05 * eager.mean() + 1e-8 or ours.max() > 1.05 * eager.max() + 1e-7:
            found.append(f"{name}: {ours.mean():.3g} {ours.max():.3g}, eager {eager.mean():.3g} {eager.max():.3g}")
    assert found == []


@pytest.mark.parametrize("axes", [2, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_warps_can_be_differentiated(axes: int, dtype: torch.dtype) -> None:
    """There are no decompositions of the warps' backwards: autograd goes through the forwards' operations."""
    found = []
    for sample in select(small(), axes=axes, dtype=dtype):
        if sample.operator not in ("grid_sample", "affine_grid") or 0 in sample.shape:
            continue
        eager = case_of(sample)
        ours = Case(eager.label, lambda *tensors, s=sample: warp(s, *tensors), eager.tensors, index_only=False)
        for got, want in zip(gradients(ours), eager.gradients(), strict=True):
            failure = close(got, want)
            found += [f"{sample}: {failure}"] if failure else []
    assert found == []


def gradients(case: Case) -> tuple[Tensor, ...]:
    """As `Case.gradients`; nearest does not depend on its grid at all."""
    tensors = [tensor.detach().requires_grad_() for tensor in case.tensors]
    result = case.function(*tensors)
    generator = torch.Generator().manual_seed(7)
    weight = torch.rand(result.shape, generator=generator, dtype=torch.float64).to(case.dtype)
    return torch.autograd.grad(result, tensors, weight, materialize_grads=True, allow_unused=True)


def warp(sample: Sample, *tensors: Tensor) -> Tensor:
    """The sample through the functions of our table, above autograd."""
    aten, given = torch.ops.aten, sample.kwargs
    if sample.operator == "affine_grid":
        result = TABLE[aten.affine_grid_generator.default](*tensors, given["size"], given["align_corners"])
    else:
        overload = aten.grid_sampler_2d.default if sample.axes == 2 else aten.grid_sampler_3d.default
        mode, padding = MODES.index(given["mode"]), PADDINGS.index(given["padding_mode"])
        result = TABLE[overload](*tensors, mode, padding, given["align_corners"])
    assert isinstance(result, Tensor)
    return result


def test_the_groups_hold_every_dtype() -> None:
    assert {sample.dtype for samples in SMALL.values() for sample in samples} == set(DTYPES)
    assert any(SMALL[group][0].dtype in HALF for group in DIFFERENTIABLE)
