"""One sample on `polyphase.functional` and on eager, forward and backward. A check lists what is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from polyphase.calls.rules import RULES
from polyphase.sampling.windows import backward_arithmetic
from tests.conformance import expected_differences as of_decompositions
from tests.conformance import expected_functional_differences as expected
from tests.conformance.checks import COORDINATES, HALF, Case, close, same_bits
from tests.conformance.decompose import Recorded
from tests.conformance.expected_functional_differences import Seen
from tests.conformance.functional import Asked, OnFunctional


@dataclass(frozen=True, eq=False)
class Pair:
    """The same of both: outputs, or gradients."""

    case: Case
    seen: Seen
    ours: Tensor
    eager: Tensor


def outputs(case: Case) -> Pair:
    with OnFunctional() as mode:
        ours = case.run()
    with eager_on(mode.call) as aten:
        eager = case.run()
    return Pair(case, Seen(mode.call, aten.forward), ours, eager)


def gradients(case: Case) -> list[Pair]:
    """Of each tensor. A gradient that comes in lies in memory as the output does."""
    with OnFunctional() as mode:
        ours = case.gradients()
    with eager_on(mode.call) as aten:
        eager = case.gradients()
    return [
        Pair(case, Seen(mode.call, aten.forward, aten.backward, place), *both)
        for place, both in enumerate(zip(ours, eager, strict=True))
    ]


@contextmanager
def eager_on(call: Asked) -> Iterator[Recorded]:
    """Records ATen calls of resizes, which `expected_differences.py` tells apart by them; others run faster without."""
    recorded = Recorded()
    with recorded if call.name == "interpolate" else nullcontext():
        yield recorded


def forward_failures(case: Case) -> list[str]:
    pair = outputs(case)
    found = [strides_failure(pair), *values_failures(pair)]
    return [f"{case.label}: {failure}" for failure in found if failure]


def backward_failures(case: Case) -> list[str]:
    pairs = gradients(case)
    found = [failure for pair in pairs for failure in (gradient_strides_failure(pair), *gradient_failures(pair))]
    return [f"{case.label} backward: {failure}" for failure in found if failure]


def strides_failure(pair: Pair) -> str | None:
    failure = same_strides(pair)
    if failure is None or expected.find(expected.STRIDES, pair.seen) is None:
        return failure
    return follows(pair, pair.seen.asked.image)


def gradient_strides_failure(pair: Pair) -> str | None:
    failure = same_strides(pair)
    if failure is None or expected.find(expected.GRADIENT_STRIDES, pair.seen) is None:
        return failure
    if pair.seen.asked.name == "affine_grid":
        return follows(pair, torch.empty(pair.ours.shape))
    with OnFunctional():
        output = pair.case.run()
    return follows(pair, output)


def same_strides(pair: Pair) -> str | None:
    ours, eager = pair.ours.stride(), pair.eager.stride()
    return None if ours == eager else f"strides {ours}, eager's {eager}"


def follows(pair: Pair, other: Tensor) -> str | None:
    """Whether ours lies in memory as a new tensor in the other one's memory format; a flip as a tensor like it."""
    if pair.seen.asked.name == "flip":
        want = torch.empty_like(other)
    else:
        suggested = torch._prims_common.suggest_memory_format(other)
        want = torch.empty(pair.ours.shape, device="meta", memory_format=suggested)
    got = pair.ours.stride()
    return None if got == want.stride() else f"strides {got} do not follow {other.stride()}"


def values_failures(pair: Pair) -> Iterator[str | None]:
    if expected.find(expected.FORWARD, pair.seen) is None:
        yield equals_eager(pair)
        return
    assert pair.seen.forward is not None
    want = of_decompositions.expected_forward(pair.seen.forward)
    if moves_values(pair.case):
        yield same_bits(pair.ours, want.to(pair.ours.dtype))
    else:
        yield close(pair.ours.double(), want, **COORDINATES)


def equals_eager(pair: Pair) -> str | None:
    if pair.ours.dtype != pair.eager.dtype:
        return f"{pair.ours.dtype} instead of {pair.eager.dtype}"
    if moves_values(pair.case):
        return same_bits(pair.ours, pair.eager)
    if pair.case.dtype in HALF:
        return no_farther(pair.ours, pair.eager, pair.case.run(torch.float64))
    return close(pair.ours, pair.eager)


def gradient_failures(pair: Pair) -> Iterator[str | None]:
    if expected.find(expected.BACKWARD, pair.seen) is None:
        yield gradient_equals_eager(pair)
        return
    backward = pair.seen.backward
    if backward is None:
        want = pair.case.gradients(torch.float64)[pair.seen.place]
    else:
        want = of_decompositions.expected_backward(backward, partial(backward_arithmetic, rules=RULES["cpu"]))
    tolerance = torch.finfo(pair.ours.dtype).eps * (1 if pair.case.dtype in HALF else 16)
    yield close(pair.ours.to(want.dtype), want, rtol=tolerance, atol=tolerance * greatest(want))


def gradient_equals_eager(pair: Pair) -> str | None:
    if pair.case.dtype in HALF:
        truth = pair.case.gradients(torch.float64)[pair.seen.place]
        return no_farther(pair.ours, pair.eager, truth)
    if pair.seen.asked.name in ("grid_sample", "affine_grid") and pair.ours.dtype == torch.float32:
        # What cancels in the gradient of a coordinate, or of a matrix, leaves an error by the greatest of them; eager
        # fuses and adds as its CPU does.
        return close(
            pair.ours,
            pair.eager,
            rtol=1.3e-6,
            atol=max(1e-5, 8 * torch.finfo(torch.float32).eps * greatest(pair.eager)),
        )
    return close(pair.ours, pair.eager)


def no_farther(ours: Tensor, eager: Tensor, truth: Tensor) -> str | None:
    """In half precision: mean and maximum error against float64 at most eager's, but for what float32 can tell."""
    if truth.numel() == 0:
        return None
    error, allowed = ((one.double() - truth).abs() for one in (ours, eager))
    allowed = allowed.nan_to_num(nan=float("inf"))
    for name, more in (("mean", 1e-7), ("max", 1e-5)):
        got, most = (float(getattr(one, name)()) for one in (error, allowed))
        if not got <= most + more * greatest(truth):
            return f"{name} error {got:.4g}, eager's {most:.4g}, of values up to {greatest(truth):.3g}"
    return None


def moves_values(case: Case) -> bool:
    """Or rounds them to integers: every bit counts."""
    return case.index_only or not case.dtype.is_floating_point


def greatest(values: Tensor) -> float:
    return float(values.abs().max()) if values.numel() else 0.0
