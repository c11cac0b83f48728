"""CUDA kernels of warps, compiled for the host and run block by block: by the tests of the CPU's kernels, which say
what is expected of them."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from polyphase.kernels import binding
from polyphase.kernels.binding import Gradients, Needed
from polyphase.kernels.operands import ordered
from polyphase.sampling.programs import Program, warp_program
from polyphase.sampling.warps import Warp
from tests.cpu import test_warp_kernels as cpu
from tests.cpu.test_launch import content
from tests.cuda import host
from tests.support.samples import GRID_MODES

ON_HOST = "cuda, on the host"


def run(program: Program, *inputs: Tensor) -> Tensor:
    """By threads forwards and backwards, aligned and not: the same bits."""
    got = host.run(program, *inputs)
    for other in (host.run(program, *inputs, backwards=True), host.run(program, *inputs, aligned=False)):
        assert content(got) == content(other)
    return got


def gradients(gradient: Tensor, picture: Tensor, coordinates: Tensor, sampler: Warp, needed: Needed) -> Gradients:
    """Deterministic: the same bits whichever thread is first. And by floats: the same but for the order of sums."""
    given = (gradient, picture, coordinates, sampler, needed)
    found = host.gradients(*given)
    again, by_floats = host.gradients(*given, backwards=True), host.gradients(*given, deterministic=False)
    for one, same, near in zip(found, again, by_floats, strict=True):
        if one is not None and same is not None and near is not None:
            assert content(one) == content(same)
            most = 4e-6 if one.dtype == torch.float32 else 2e-3 if one.dtype == torch.float16 else 1e-13
            largest = float(one.double().nan_to_num(0, 0, 0).abs().max()) if one.numel() else 0
            torch.testing.assert_close(near, one, rtol=most, atol=most * (1 + 10 * largest), equal_nan=True)
    return found


@pytest.fixture(autouse=True)
def on_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """In place of the CPU's kernels."""

    def whole(program: Program, *inputs: Tensor, channels: dict[int, Tensor], tensors: dict[int, Tensor]) -> Tensor:
        return run(program, *inputs, *ordered(program, inputs[0], channels, tensors))

    monkeypatch.setattr(binding, "warp", lambda x, at, sampler: run(warp_program(x.dtype, sampler), x, at))
    monkeypatch.setattr(binding, "warp_gradients", gradients)
    monkeypatch.setattr(binding, "run", whole)


@pytest.mark.parametrize("dtype", [torch.float32, torch.uint8, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_sums(mode: str, dtype: torch.dtype) -> None:
    for case in cpu.cases(dtype, mode, 2, range(1, 71, 3)):
        cpu.assert_case_right(case)


@pytest.mark.parametrize("dtype", cpu.MOVED)
def test_moves(dtype: torch.dtype) -> None:
    for case in cpu.cases(dtype, "nearest", 2, range(1, 71, 7)):
        cpu.assert_case_right(case)


@pytest.mark.parametrize("mode", GRID_MODES[3])
def test_volumes(mode: str) -> None:
    for case in cpu.cases(torch.float32, mode, 3, range(1, 71, 5)):
        cpu.assert_case_right(case)


@pytest.mark.parametrize("axes", [2, 3])
def test_settings(axes: int) -> None:
    cpu.test_settings(axes)


@pytest.mark.parametrize("mode", GRID_MODES[2])
def test_special_coordinates(mode: str) -> None:
    cpu.test_special_coordinates(ON_HOST, mode, torch.float32)
    cpu.test_reflections_from_afar(ON_HOST, False, mode)
    cpu.test_identity(ON_HOST, True, mode)
    cpu.test_matrices_that_lead_nowhere(ON_HOST, torch.float32, mode)


@pytest.mark.parametrize("mode", GRID_MODES[2])
def test_outliers(mode: str) -> None:
    cpu.test_outliers(ON_HOST, mode, torch.float32)


def test_settled_positions() -> None:
    cpu.test_settled_positions(ON_HOST, "bilinear", 4)
    cpu.test_positions_near_a_half_in_one_axis_stay(ON_HOST, "bilinear", 4)
    cpu.test_bytes_are_rounded_half_to_even(ON_HOST, 3, "CF")
    cpu.test_bytes_saturate(ON_HOST, "CL")


@pytest.mark.parametrize("name", cpu.ARITHMETIC)
def test_arithmetic(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    cpu.test_arithmetic(monkeypatch, "portable", name)


# ---- gradients


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16])
@pytest.mark.parametrize("mode", GRID_MODES[2])
def test_gradients(mode: str, dtype: torch.dtype) -> None:
    for case in cpu.gradient_cases(dtype, mode, 2):
        cpu.assert_gradients_right(case)


@pytest.mark.parametrize("mode", GRID_MODES[3])
def test_gradients_of_volumes(mode: str) -> None:
    for case in cpu.gradient_cases(torch.float64, mode, 3):
        cpu.assert_gradients_right(case)


@pytest.mark.parametrize("axes", [2, 3])
def test_gradients_of_all_settings(axes: int) -> None:
    cpu.test_gradients_of_all_settings(axes)


@pytest.mark.parametrize("mode", GRID_MODES[2])
def test_gradients_at_special_coordinates(mode: str) -> None:
    cpu.test_gradients_at_special_coordinates(ON_HOST, mode)
    cpu.test_gradients_that_are_not_needed((True, False))
    cpu.test_gradients_that_are_not_needed((False, True))
