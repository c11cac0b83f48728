"""The samples of the conformance tests on a GPU, through our functions and through `accelerate()`."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

import polyphase
from tests.conformance.checks import Case
from tests.conformance.functional import OnFunctional
from tests.conformance.test_functional_samples import DIFFERING, THIN, differentiable
from tests.conformance.test_samples import FEW, case_of
from tests.cuda.judging import Found, exact_failure, float_failure, strides_failure
from tests.cuda.random_calls import placed
from tests.support.samples import Sample, full, select


def conformance(numbers: Sequence[int], device: str, found: Found) -> None:
    samples = all_samples()
    for number in numbers:
        sample = samples[number]
        case = case_of(sample)
        there = Case(case.label, case.function, tuple(placed(one, device) for one in case.tensors), case.index_only)
        for backward in (False, True) if differentiable(sample.dtype) else (False,):
            conform(sample, case, there, backward, found)


def all_samples() -> list[Sample]:
    """And more grids: the small samples are few of them."""
    return [*FEW, *DIFFERING, *THIN, *select(full(), operator="grid_sample")[::4]]


def by_floats(sample: Sample) -> bool:
    """CUDA finds the nearest pixel of a float64 image as of a float32 one; the CPU has a ratio of doubles for it, and
    eager's gradient on CUDA is not its own forward's."""
    return sample.dtype == torch.float64 and sample.operator == "interpolate" and "nearest" in (sample.mode or "")


def conform(sample: Sample, here: Case, there: Case, backward: bool, found: Found) -> None:
    """Ours on the device and eager's there, against ours on the CPU and the truth."""

    def results(case: Case, dtype: torch.dtype | None = None) -> tuple[Tensor, ...]:
        return case.gradients(dtype) if backward else (case.run(dtype),)

    name = f"{sample.label}{' backward' * backward}"
    with OnFunctional():
        wants, truths = results(here), results(here, torch.float64)
        if by_floats(sample) and backward:
            wants = truths = tuple(one.double() for one in results(here, torch.float32))
    eagers: Sequence[Tensor | None]
    try:
        eagers = results(there)
    except (RuntimeError, NotImplementedError):
        eagers = [None] * len(wants)
        found.notes[f"eager has none on this device: {sample.operator} {sample.mode or ''} {sample.dtype}"] += 1
    for way, active in (("functions", OnFunctional), ("accelerate", polyphase.accelerate)):
        launched = polyphase.stats()["kernels_launched"]
        try:
            with active():
                gots = results(there)
        except Exception as error:
            if way == "functions" or eagers[0] is not None:
                found.failed(f"{way} {name}", f"{type(error).__name__}: {error}")
            continue
        found.checked[f"{way}{' backward' * backward}"] += 1
        by_ours = polyphase.stats()["kernels_launched"] > launched
        found.notes[f"{way}: {sample.operator} {'by our kernels' if by_ours else 'by torch'}"] += 1
        for got, want, eager, truth in zip(gots, wants, eagers, truths, strict=True):
            judge(sample, f"{way} {name}", (got, want, eager, truth), backward, found)
            place = want if way == "functions" else eager
            if place is not None and (why := strides_failure(got, place)):
                found.notes[f"{way}{' backward' * backward}: {sample.operator} {sample.mode or ''} {why}"] += 1


def judge(
    sample: Sample, name: str, results: tuple[Tensor, Tensor, Tensor | None, Tensor], backward: bool, found: Found
) -> None:
    """To the bit what moves or is an integer, our CPU's or, where its rules are the device's own, eager's there."""
    got, want, eager, truth = results
    got, eager = got.cpu(), None if eager is None else eager.cpu()
    moves = sample.operator in ("flip", "pad") or "nearest" in (sample.mode or "")
    if not backward and ((moves and sample.operator != "grid_sample") or not differentiable(sample.dtype)):
        why = exact_failure(got, want)
        by_eager = eager is not None and exact_failure(got, eager) is None
        if why and by_eager:
            found.notes[f"as eager there, not as on the CPU: {sample.operator} {sample.mode} {sample.dtype}"] += 1
        found.failed(name, None if by_eager else why)
        return
    if not want.numel():
        return
    if by_floats(sample):
        close = torch.allclose(got, want, rtol=1e-5, atol=1e-5 * float(want.abs().max()))
        found.failed(name, None if close else "another gradient than float32's, whose pixels are the same")
        return
    longest = max(*want.shape, *(n for spec in sample.specs for n in spec.shape))
    kind = f"{sample.operator} {sample.mode}{' backward' * backward} {sample.dtype}"
    others = [want] if eager is None else [want, eager]
    found.failed(name, float_failure(got, others, truth, longest, found.errors, kind))
