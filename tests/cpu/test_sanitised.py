"""What `test_memory_safety.py` and `test_warp_memory_safety.py` run between unmapped pages, under AddressSanitizer and
UndefinedBehaviorSanitizer: in one process, for importing PyTorch and building a launcher take seconds there."""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Iterable

import pytest
import torch

from polyphase.calls import binding
from polyphase.cpu import isa
from polyphase.sampling.warps import PADDINGS, Warp
from tests.cpu import test_memory_safety as of_maps
from tests.cpu import test_warp_memory_safety as of_warps
from tests.cpu.conftest import USUAL, run_sanitised
from tests.cpu.test_warp_kernels import grid_of, special
from tests.support.samples import GRID_MODES, image


def sweep(dtype: torch.dtype, forced: str, step: int, most_axes: int) -> None:
    os.environ["POLYPHASE_ISA"] = forced
    binding.forget()
    for case in of_maps.cases(dtype, step):
        print(case, flush=True)
        case.run(of_maps.picture_of(case))
    for axes, mode in of_warps.KINDS:
        if axes <= most_axes:
            sweep_warps(dtype, mode, axes, step)
    for mode, padding in itertools.product(GRID_MODES[2], PADDINGS):
        print(mode, padding, dtype, "special coordinates", flush=True)
        values = [*special(5, False), 1e10, -3e38, math.inf, -math.inf, math.nan]
        grid = grid_of(values, values, torch.float64 if dtype == torch.float64 else torch.float32)
        binding.warp(image((1, 3, 4, 5), dtype, "CL"), grid, Warp("grid", mode, padding))


def sweep_warps(dtype: torch.dtype, mode: str, axes: int, step: int) -> None:
    for case in of_warps.warp_cases(dtype, mode, axes, step):
        print(case, flush=True)
        case.run()
        if dtype.is_floating_point:
            binding.warp_gradients(case.gradient(), case.picture(), case.coordinates(), case.sampler, (True, True))


def sanitise(kinds: Iterable[tuple[torch.dtype, str]], step: int, most_axes: int) -> None:
    """Of each dtype, the kernels of an instruction set."""
    sweeps = [f"sweep({dtype}, {forced!r}, {step}, {most_axes})" for dtype, forced in kinds]
    run_sanitised("\n".join([f"import torch\nfrom {__name__} import sweep\ntorch.set_num_threads(1)", *sweeps]))


def test_a_few_widths() -> None:
    """Of each of the usual sets, the dtype whose kernels make most of it."""
    usual = [name for name in isa.available() if name in USUAL]
    sanitise([(torch.float32, usual[0]), (torch.uint8, usual[-1])], step=3, most_axes=2)


@pytest.mark.full
@pytest.mark.parametrize("forced", isa.available())
def test_every_width_and_dtype(forced: str) -> None:
    sanitise([(dtype, forced) for dtype in of_maps.DTYPES], step=1, most_axes=3)
