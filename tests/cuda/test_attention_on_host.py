"""Attention at sampled places by CUDA's kernels, on the host, gives what the CPU's give, in any order of threads."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import Tensor

from polyphase.calls import attention as kernels
from polyphase.calls.attention import Gradients, Tensors
from polyphase.cuda import attention as of_cuda
from polyphase.sampling.attention import Attention
from tests.cpu.test_attention import Case, drawn, near
from tests.cuda import host

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


def run(call: of_cuda.Prepared, backwards: bool) -> None:
    source, data = of_cuda.source(call.kernel), bytearray(call.call)
    host.run_blocks(source, data, (call.blocks, 1, 1), of_cuda.THREADS, call.shared_bytes, backwards)


def attend(value: Tensor, places: Tensor, weights: Tensor, attention: Attention, backwards: bool) -> Tensor:
    shape = (*weights.shape[:3], value.shape[-1])
    out = host.empty(shape, torch.empty(shape, device="meta").stride(), value.dtype)
    run(of_cuda.prepared(Tensors.of(out, value, places, weights), attention), backwards)
    return out


def gradients(
    given: tuple[Tensor, ...], attention: Attention, backwards: bool, *, rounded: bool = False, of_value: bool = True
) -> Gradients:
    value, places, weights, gradient = given
    tensors, found = of_cuda.empty_gradients(Tensors.of(gradient, value, places, weights), of_value)
    rounding = of_cuda.rounding_for(tensors) if rounded else None
    run(of_cuda.prepared(tensors, attention, found, rounding), backwards)
    return of_cuda.finished(found, rounding, value.dtype)


def as_doubles(given: tuple[Tensor, ...]) -> list[Tensor]:
    return [one.double() for one in given]


#: A value's channels, and what they are read by: 16 bytes at once, or less.
CASES = [case for case in drawn(48, seed=3) if case.queries < 10 and sum(case.attention.points) > 0][::2]


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("backwards", [False, True])
def test_what_the_cpu_gives(dtype: torch.dtype, backwards: bool) -> None:
    """Of 16-bit floats, nearer to the truth than their rounding moves results."""
    for case in CASES[:8] if dtype in (torch.float16, torch.bfloat16) else CASES:
        given = dataclasses.replace(case, dtype=dtype).inputs()
        value, places, weights, gradient = as_doubles(given)
        out = attend(*given[:3], case.attention, backwards)
        wanted = kernels.attend(value, places, weights, case.attention)
        assert_near(out, wanted, dtype)
        found = gradients(given, case.attention, backwards)
        of_all = kernels.gradients(gradient, value, places, weights, case.attention, True)
        for one, other in zip(found, of_all, strict=True):
            assert one is not None
            assert other is not None
            assert one.dtype == dtype
            assert_near(one, other, dtype)


def assert_near(found: Tensor, wanted: Tensor, dtype: torch.dtype) -> None:
    if dtype in (torch.float32, torch.float64):
        near(found, wanted, dtype)
        return
    scale = 1 + wanted.abs().max().item()
    torch.testing.assert_close(found.double(), wanted, rtol=0, atol=2 * torch.finfo(dtype).eps * scale)


@pytest.mark.parametrize("dtype", FLOATS[:2], ids=str)
def test_sums_of_integers_are_the_same_in_any_order(dtype: torch.dtype) -> None:
    for case in CASES[::3]:
        given = dataclasses.replace(case, dtype=dtype).inputs()
        first, second = (gradients(given, case.attention, backwards, rounded=True) for backwards in (False, True))
        assert first.value is not None
        assert second.value is not None
        assert torch.equal(first.value, second.value)
        assert torch.equal(first.places, second.places)
        value, places, weights, gradient = as_doubles(given)
        truth = kernels.gradients(gradient, value, places, weights, case.attention, True).value
        assert truth is not None
        near(first.value, truth, dtype)


def test_sums_of_integers_beside_what_is_not_finite() -> None:
    """And of heads whose gradients are much smaller than others'."""
    case = Case(2, 3, 8, 9, Attention(((4, 5), (2, 2)), (2, 3)))
    given = case.inputs()
    given[3][0, :, 1] *= 1e-12
    given[3][1, :, 0] = 0.0
    given[3][1, 4, 2, 3] = torch.inf
    found = gradients(given, case.attention, False, rounded=True).value
    value, places, weights, gradient = given
    wanted = kernels.gradients(gradient, value, places, weights, case.attention, True).value
    assert found is not None
    assert wanted is not None
    for n in range(2):
        for head in range(3):
            one, other = found[n, :, head], wanted[n, :, head]
            most = other[other.isfinite()].abs().max().item()
            torch.testing.assert_close(one, other, rtol=1e-4, atol=2e-7 * most, equal_nan=True)
    assert wanted.isinf().any()
    assert not wanted[0].isinf().any()


def test_the_values_gradient_may_not_be_asked_for() -> None:
    case = Case(1, 2, 6, 5, Attention(((4, 5),), (2,)))
    found, wanted = (gradients(case.inputs(), case.attention, False, of_value=asked) for asked in (False, True))
    assert found.value is None
    assert torch.equal(found.places, wanted.places)
    assert torch.equal(found.weights, wanted.weights)


def test_places_that_are_no_numbers() -> None:
    case = Case(1, 2, 20, 9, Attention(((5, 6), (3, 3)), (3, 3)))
    value, places, weights, gradient = given = case.inputs()
    places.view(-1)[::7], places.view(-1)[3::11] = torch.nan, torch.inf
    near(attend(*given[:3], case.attention, False), kernels.attend(*given[:3], case.attention), torch.float32)
    found = gradients(given, case.attention, False)
    wanted = kernels.gradients(gradient, value, places, weights, case.attention, True)
    for one, other in zip(found, wanted, strict=True):
        assert one is not None
        assert other is not None
        near(one, other, torch.float32)


@pytest.mark.parametrize("channels", [700, 96])
def test_more_channels_than_threads_have(channels: int) -> None:
    case = Case(1, 2, channels, 3, Attention(((5, 6), (3, 3)), (3, 2)))
    value, places, weights, gradient = given = case.inputs()
    wide = torch.full((1, 39, 2, channels + 1), torch.nan)  # read channel by channel
    wide[..., 1:].copy_(value)
    wanted = kernels.attend(value, places, weights, case.attention)
    of_all = kernels.gradients(gradient, value, places, weights, case.attention, True)
    for one in (value, wide[..., 1:]):
        near(attend(one, places, weights, case.attention, True), wanted, torch.float32)
        for found, other in zip(gradients((one, *given[1:]), case.attention, True), of_all, strict=True):
            assert found is not None
            assert other is not None
            near(found, other, torch.float32)
