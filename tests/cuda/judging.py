"""Whether a result from a GPU is right, by what is known of it: the CPU kernels' result, and the truth in float64."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from tests.conformance.checks import same_bits

#: Of float32, which positions along an axis are computed in, whatever the pixels are.
EPSILON = torch.finfo(torch.float32).eps


@dataclass
class Errors:
    """Against float64, by kind of call: how many values, and the sums of errors of ours and of each other result."""

    sums: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    def add(self, kind: str, *errors: Tensor) -> None:
        known = self.sums[kind] = self.sums[kind] or [0.0] * (1 + len(errors))
        for place, value in enumerate([float(errors[0].numel()), *(float(one.sum()) for one in errors)]):
            known[place] += value


@dataclass
class Found:
    """Of a process, or of all."""

    checked: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    notes: Counter[str] = field(default_factory=Counter)
    errors: Errors = field(default_factory=Errors)

    def failed(self, what: object, why: str | None) -> None:
        if why is not None:
            self.failures.append(f"{what}: {why}")
            print(f"WRONG {self.failures[-1]}", flush=True)

    def to_json(self) -> str:
        return json.dumps([self.checked, self.failures, self.notes, self.errors.sums])

    def add(self, text: str) -> None:
        checked, failures, notes, sums = json.loads(text)
        self.checked.update(checked)
        self.failures += failures
        self.notes.update(notes)
        for kind, some in sums.items():
            known = self.errors.sums[kind] or [0.0] * len(some)
            self.errors.sums[kind] = [a + b for a, b in zip(known, some, strict=True)]


def exact_failure(got: Tensor, want: Tensor) -> str | None:
    return kind_failure(got, want) or same_bits(got, want)


#: Of the pixels of a warp that are nearest to a position between two, or bytes that are halfway between two.
MOST_TIES = 0.01


def tie_failure(got: Tensor, want: Tensor, most: float) -> str | None:
    """The same but for ties, by `most` where values are bytes."""
    if failure := kind_failure(got, want):
        return failure
    apart = (got.double() - want.double()).abs().nan_to_num(0)
    differing = float((apart > 0).double().mean()) if got.numel() else 0.0
    if differing > MOST_TIES:
        return f"{differing:.1%} of the values differ"
    return f"off by {float(apart.max())}" if differing and float(apart.max()) > most else None


def integer_failure(got: Tensor, want: Tensor, longest: int) -> str | None:
    """Of integers that have more bits than a position: those of its last bits, and a tie."""
    if failure := kind_failure(got, want):
        return failure
    info = torch.iinfo(got.dtype)
    allowed = 1 + 2 * EPSILON * longest * (info.max - info.min)
    apart = float((got.double() - want.double()).abs().max()) if got.numel() else 0.0
    return f"off by {apart}, {allowed:.3g} is allowed" if apart > allowed else None


def kind_failure(got: Tensor, want: Tensor) -> str | None:
    if (got.dtype, got.shape) != (want.dtype, want.shape):
        return f"{got.dtype} {tuple(got.shape)} instead of {want.dtype} {tuple(want.shape)}"
    return None


def strides_failure(got: Tensor, want: Tensor) -> str | None:
    return None if got.stride() == want.stride() else f"strides {got.stride()} instead of {want.stride()}"


def float_failure(
    got: Tensor, others: Sequence[Tensor], truth: Tensor, longest: int, errors: Errors, kind: str
) -> str | None:
    """No farther from the truth than the others, the CPU's first among them, but for the luck of the last bits: of a
    sum, and of a position along the longest axis, by which pixels in [0, 1] change twice as much at most."""
    if failure := kind_failure(got, others[0]):
        return failure
    if got.is_complex():
        got, truth, others = (
            torch.view_as_real(got),
            torch.view_as_real(truth),
            [torch.view_as_real(one) for one in others],
        )
    finite = others[0].isfinite()
    for name, test in (("NaN", torch.isnan), ("infinite", torch.isinf)):
        if not torch.equal(test(got), test(others[0])):
            return f"{int((test(got) != test(others[0])).sum())} values are {name} on one device alone"
    if not finite.any():
        return None
    far = [(one.double() - truth)[finite].abs() for one in (got, *others)]
    errors.add(kind, *far[:2])
    greatest = max(float(truth[finite].abs().max()), 1.0)
    unit = torch.finfo(got.dtype).eps
    # Of doubles the CPU's own result is the truth: positions there are rounded several times, as they are here.
    position = 4 * unit * longest if got.dtype == torch.float64 else EPSILON * longest
    allowed = 1.05 * max(float(one.max()) for one in far[1:]) + greatest * (4 * unit + 2 * position)
    error = float(far[0].max())
    return (
        None
        if error <= allowed
        else f"off by {error:.3g}, {allowed:.3g} is allowed, the CPU's is off by {float(far[1].max()):.3g}"
    )
