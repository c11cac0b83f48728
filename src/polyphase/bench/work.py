"""A case with its tensors, and calls of it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from polyphase.bench.operations import PYTORCH, Function, Source
from polyphase.bench.workloads import Case

Call = Callable[[], object]


@dataclass(frozen=True)
class Step:
    """One call's tensors. `gradient` is what comes back to the output in training."""

    inputs: tuple[Tensor, ...]
    gradient: Tensor | None = None


@dataclass(frozen=True)
class Work:
    """`bytes_moved`: what a call must read and write at least, once each. All the steps together are one call."""

    case: Case
    steps: tuple[Step, ...]
    bytes_moved: int

    @property
    def calls(self) -> int:
        return len(self.steps)


def prepare(case: Case, device: str) -> Work:
    source = Source(case.dtype, case.layout, device)
    steps, moved = [], 0
    for shape in case.shapes:
        inputs = case.operation.inputs(shape, source)
        output, _ = output_of(case, inputs)
        step = Step(inputs)
        if case.backward:
            for leaf in leaves(case, inputs):
                leaf.requires_grad_()
            generator = torch.Generator(device).manual_seed(1)
            noise = torch.rand(output.shape, device=device, generator=generator)
            step = Step(inputs, torch.empty_like(output).copy_(noise))
        moved += bytes_moved(case, inputs, output)
        steps.append(step)
    return Work(case, tuple(steps), moved)


def bytes_moved(case: Case, inputs: tuple[Tensor, ...], output: Tensor) -> int:
    """Forward, the inputs are read and the output is written; backward, its gradient is read and theirs are written."""
    image, *others = inputs
    read = int(nbytes([image]) * case.operation.share_read(tuple(image.shape))) + nbytes(others)
    back = nbytes([output]) + nbytes(leaves(case, inputs)) if case.backward else 0
    return read + nbytes([output]) + back


def output_of(case: Case, inputs: tuple[Tensor, ...]) -> tuple[Tensor, int]:
    """What eager makes of the inputs; where it cannot, what it makes of them on the CPU; else what it makes of doubles,
    rounded. And by how many levels that may be off."""
    function, device = case.operation.function(PYTORCH), inputs[0].device
    for place in dict.fromkeys((device, torch.device("cpu"))):
        with contextlib.suppress(RuntimeError, NotImplementedError):
            return function(*(tensor.to(place) for tensor in inputs)).to(device), 0
    return rounded(function(*in_double(inputs)), inputs[0].dtype), 1


def rounded(image: Tensor, dtype: torch.dtype) -> Tensor:
    if dtype.is_floating_point:
        return image.to(dtype)
    return image.round().clamp(0, 255).to(dtype)


def in_double(inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
    return tuple(tensor.detach().double() for tensor in inputs)


def leaves(case: Case, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return inputs[: case.operation.learned]


def nbytes(tensors: Sequence[Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def call_of(work: Work, function: Function) -> Call:
    """The whole of a case as one call without arguments."""
    calls = [_call_of_step(work.case, step, function) for step in work.steps]
    if len(calls) == 1:
        return calls[0]

    def in_turn() -> object:
        return [call() for call in calls]

    return in_turn


def _call_of_step(case: Case, step: Step, function: Function) -> Call:
    inputs, gradient = step.inputs, step.gradient
    if gradient is None:
        return lambda: function(*inputs)
    trained = leaves(case, inputs)

    def forward_and_backward() -> object:
        output = function(*inputs)
        return (output, *torch.autograd.grad(output, trained, gradient))

    return forward_and_backward


def tensors_of(result: object) -> tuple[Tensor, ...]:
    """What a call gave, flat."""
    if isinstance(result, Tensor):
        return (result,)
    assert isinstance(result, (list, tuple))
    return tuple(tensor for part in result for tensor in tensors_of(part))
