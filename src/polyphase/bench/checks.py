"""Whether a column computes what it should, before it is timed.

Integers are held against eager's, to the bit unless a column's tolerance or the operation says otherwise. Floats are
held against eager in double: they may be as far from it as `torch.testing.assert_close` allows, and twice as far as
eager itself, in the mean and at most. Where eager cannot run a case, its result on the CPU, or its result for doubles,
rounded, decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from polyphase.bench.operations import PYTORCH
from polyphase.bench.work import Step, Work, call_of, in_double, output_of, tensors_of
from polyphase.compile.checked import TOLERANCES


@dataclass(frozen=True)
class Tolerance:
    """How far results may be apart, in levels of 256: the greatest difference of integers, or the mean of any values
    where they are peers'.
    """

    levels: int = 0
    mean_levels: float | None = None


EXACT = Tolerance()
OFF_BY_ONE = Tolerance(levels=1)
PEER = Tolerance(mean_levels=2.0)


@dataclass(frozen=True)
class Expected:
    """One tensor of a right result, and how far eager is from it."""

    value: Tensor
    greatest: float = 0.0
    mean: float = 0.0
    levels: int = 0


@dataclass(frozen=True)
class Verdict:
    """`difference`: the greatest, of integers in levels. `problem`: what is wrong, if something is."""

    difference: float
    problem: str | None = None


def expected(work: Work) -> tuple[Expected, ...]:
    eager = _eager(work) if work.case.dtype != "u8" else None
    if eager is None:
        outputs = (output_of(work.case, step.inputs) for step in work.steps)
        least = work.case.operation.levels
        return tuple(Expected(output, levels=max(least, levels)) for output, levels in outputs)
    exact = tensors_of(call_of(_in_double(work), work.case.operation.function(PYTORCH))())
    return tuple(_with_slack(wanted.detach(), got.detach()) for wanted, got in zip(exact, eager, strict=True))


def judge(got: Sequence[Tensor], wanted: Sequence[Expected], tolerance: Tolerance) -> Verdict:
    if len(got) != len(wanted):
        return Verdict(0.0, f"wrong result: {len(got)} tensors instead of {len(wanted)}")
    verdicts = [_judge(tensor.detach(), one, tolerance) for tensor, one in zip(got, wanted, strict=True)]
    problems = [verdict.problem for verdict in verdicts if verdict.problem]
    return Verdict(max(verdict.difference for verdict in verdicts), problems[0] if problems else None)


def _eager(work: Work) -> tuple[Tensor, ...] | None:
    try:
        return tensors_of(call_of(work, work.case.operation.function(PYTORCH))())
    except (RuntimeError, NotImplementedError):
        return None


def _in_double(work: Work) -> Work:
    steps = []
    for step in work.steps:
        inputs = in_double(step.inputs)
        for double, single in zip(inputs, step.inputs, strict=True):
            double.requires_grad_(single.requires_grad)
        steps.append(Step(inputs, None if step.gradient is None else step.gradient.double()))
    return Work(work.case, tuple(steps), work.bytes_moved)


def _with_slack(wanted: Tensor, eager: Tensor) -> Expected:
    off = (eager.double() - wanted).abs()
    return Expected(wanted, float(off.max()), float(off.mean()))


def _judge(got: Tensor, wanted: Expected, tolerance: Tolerance) -> Verdict:
    if got.shape != wanted.value.shape:
        return Verdict(0.0, f"wrong result: of shape {tuple(got.shape)} instead of {tuple(wanted.value.shape)}")
    off = (got.double() - wanted.value.double()).abs()
    greatest, mean = float(off.max()), float(off.mean())
    if tolerance.mean_levels is not None:
        right = mean <= tolerance.mean_levels / (1 if not got.is_floating_point() else 255)
    elif not got.is_floating_point():
        right = greatest <= tolerance.levels + wanted.levels
    else:
        relative, absolute = TOLERANCES[got.dtype]
        allowed = absolute + relative * wanted.value.double().abs() + 2 * wanted.greatest
        right = bool((off <= allowed).all()) and mean <= relative + 2 * wanted.mean
    if right:
        return Verdict(greatest)
    return Verdict(greatest, f"wrong image: off by up to {greatest:.3g}, {mean:.3g} on average")
