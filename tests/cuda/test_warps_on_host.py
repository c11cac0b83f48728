"""CUDA kernels of warps, compiled for the host and run block by block, by the tests of the CPU's: their cases, and what is
expected of them."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor

from polyphase.kernels import binding
from polyphase.sampling.programs import warp_program
from polyphase.sampling.warps import PADDINGS, Warp
from tests.cpu import test_warp_kernels as cpu
from tests.cpu.test_warp_kernels import Case
from tests.cuda import host


def warped(image: Tensor, coordinates: Tensor, sampler: Warp) -> Tensor:
    """By threads forwards and backwards, aligned and not: the same bits."""
    program = warp_program(image.dtype, sampler)
    got = host.run(program, image, coordinates)
    for other in (
        host.run(program, image, coordinates, backwards=True),
        host.run(program, image, coordinates, aligned=False),
    ):
        assert cpu.content(got) == cpu.content(other)
    return got


@pytest.fixture(autouse=True)
def on_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binding, "warp", warped)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic", "nearest"])
def test_images(mode: str) -> None:
    for case in cpu.cases(torch.float32, mode, 2, range(1, 71, 3)):
        cpu.assert_case_right(case)
