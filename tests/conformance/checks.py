"""One sample of one operator, on our decompositions and on eager, forward and backward. A check lists what is wrong."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from polyphase.compile.eager_faults import Call
from tests.conformance import expected_differences as expected
from tests.conformance.decompose import Decomposed

HALF = (torch.float16, torch.bfloat16)

#: The reference's weights are float64: float32 coordinates are off by up to half a unit of their last place, which the
#: slope of a filter and a picture in [0, 1] turn into this much at the sizes sampled.
COORDINATES = {"rtol": 1e-4, "atol": 2e-4}


@dataclass(frozen=True, eq=False)
class Case:
    """A function of tensors. `index_only`: it moves values, so every bit counts in every dtype.

    `untouched`: we have no decomposition for it.
    """

    label: str
    function: Callable[..., Tensor]
    tensors: tuple[Tensor, ...]
    index_only: bool
    untouched: bool = False

    @property
    def dtype(self) -> torch.dtype:
        return self.tensors[0].dtype

    def run(self, dtype: torch.dtype | None = None) -> Tensor:
        """The function, on its floating tensors cast to a dtype if one is given."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*affine_grid behavior has changed")
            return self.function(*(_cast(tensor, dtype) for tensor in self.tensors))

    def gradients(self, dtype: torch.dtype | None = None) -> tuple[Tensor, ...]:
        """Those of all tensors, for a gradient that lies in memory as the output does."""
        tensors = [_cast(tensor, dtype).detach().requires_grad_() for tensor in self.tensors]
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*affine_grid behavior has changed")
            result = self.function(*tensors)
        incoming = torch.empty_like(result.detach()).copy_(_incoming(result.shape, self.dtype))
        return torch.autograd.grad(result, tensors, incoming)


def forward_failures(case: Case) -> list[str]:
    eager = case.run()
    with Decomposed() as mode:
        got = case.run()
    if bool(mode.calls) == case.untouched:
        return [f"{case.label}: replaced {dict(mode.replaced)}"]
    call = mode.forward
    found = [_strides(got, eager, (), call)]
    if got.dtype != eager.dtype:
        found.append(f"{got.dtype} instead of {eager.dtype}")
    elif expected.find(expected.FORWARD, call) is not None:
        assert call is not None
        want = expected.expected_forward(call)
        moved = case.index_only or not case.dtype.is_floating_point
        found.append(same_bits(got, want.to(got.dtype)) if moved else close(got.double(), want, **COORDINATES))
    elif case.index_only or not case.dtype.is_floating_point:
        found.append(same_bits(got, eager))
    elif case.dtype in HALF:
        found.append(no_farther(got, eager, case.run(torch.float64), case.dtype))
    else:
        found.append(close(got, eager))
    return [f"{case.label}: {failure}" for failure in found if failure]


def backward_failures(case: Case) -> list[str]:
    eager = case.gradients()
    with Decomposed() as mode:
        got = case.gradients()
    call = mode.backward
    if (any(c.is_upsample for c in mode.calls) and call is None) or bool(mode.calls) == case.untouched:
        return [f"{case.label}: replaced {dict(mode.replaced)}"]
    if any(c.name == "flip" for c in mode.calls) and mode.replaced["flip"] % 2:
        return [f"{case.label}: flip's backward is a flip, but {dict(mode.replaced)} were replaced"]
    truth = case.gradients(torch.float64) if case.dtype in HALF else eager
    found = []
    for ours, theirs, right in zip(got, eager, truth, strict=True):
        layout_call = call or next(iter(mode.calls), None)
        found.append(_strides(ours, theirs, expected.GRADIENT_STRIDES, layout_call))
        if expected.find(expected.BACKWARD, call) is not None:
            assert call is not None
            want = expected.expected_backward(call)
            scale = float(want.abs().max()) if want.numel() else 0.0
            rtol = 1e-7 if case.dtype == torch.float64 else 1e-5 if case.dtype == torch.float32 else 1e-2
            found.append(close(ours.double(), want, rtol=rtol, atol=rtol * scale / 10))
        elif case.dtype in HALF:
            found.append(no_farther(ours, theirs, right, case.dtype))
        else:
            found.append(close(ours, theirs))
    return [f"{case.label} backward: {failure}" for failure in found if failure]


def same_bits(got: Tensor, want: Tensor) -> str | None:
    if got.shape == want.shape and torch.equal(_bytes(got), _bytes(want)):
        return None
    return close(got, want, rtol=0, atol=0) or "equal values, but other bits"


def close(got: Tensor, want: Tensor, rtol: float | None = None, atol: float | None = None) -> str | None:
    try:
        torch.testing.assert_close(got, want, rtol=rtol, atol=atol, equal_nan=True)
    except AssertionError as error:
        return " ".join(str(error).split())
    return None


def no_farther(got: Tensor, eager: Tensor, truth: Tensor, dtype: torch.dtype) -> str | None:
    """Mean and maximum error against float64 at most 1.05 times eager's, and half a unit in the result's last place."""
    if truth.numel() == 0:
        return None
    error = (got.double() - truth).abs()
    allowed = (eager.double() - truth).abs().nan_to_num(nan=float("inf"))
    last = truth.abs() * torch.finfo(dtype).eps / 2
    for name in ("mean", "max"):
        ours, theirs, slack = (float(getattr(tensor, name)()) for tensor in (error, allowed, last))
        if not ours <= 1.05 * theirs + slack:
            return f"{name} error {ours:.3g}, eager's {theirs:.3g}, half a unit of the last place {slack:.3g}"
    return None


def _strides(got: Tensor, eager: Tensor, differences: Sequence[expected.Difference], call: Call | None) -> str | None:
    if got.stride() == eager.stride():
        return None
    if expected.find(differences, call) is None:
        return f"strides {got.stride()}, eager's {eager.stride()}"
    assert call is not None
    suggested = torch._prims_common.suggest_memory_format(call.image)
    if got.is_contiguous(memory_format=suggested):
        return None
    return f"strides {got.stride()} do not follow the image's or gradient's, {call.image.stride()}"


def _incoming(shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """Values of a gradient, the same for every layout and precision."""
    generator = torch.Generator().manual_seed(7)
    values = torch.rand(shape, generator=generator, dtype=torch.float64)
    if dtype.is_complex:
        values = torch.complex(values, torch.rand(shape, generator=generator, dtype=torch.float64))
    return values.to(dtype)


def _cast(tensor: Tensor, dtype: torch.dtype | None) -> Tensor:
    """Complex numbers have two of the dtype."""
    if dtype is None or not (tensor.is_floating_point() or tensor.is_complex()):
        return tensor
    return tensor.to(dtype.to_complex() if tensor.is_complex() else dtype)


def _bytes(tensor: Tensor) -> Tensor:
    return tensor.clone(memory_format=torch.contiguous_format).flatten().view(torch.uint8)
