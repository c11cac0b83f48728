"""CUDA kernels, compiled for the host, under AddressSanitizer and UndefinedBehaviorSanitizer: tensors, tables and
shared memory end where they end."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from polyphase.cuda import ways
from polyphase.sampling.axis_maps import AxisMap
from polyphase.sampling.programs import Program, maps_program
from polyphase.sampling.steps import Flip, Pad
from tests.cpu.conftest import run_sanitised
from tests.cuda import host
from tests.cuda.test_kernels_on_host import AA, CUBIC, CUBIC_AA, image, resized

CODE = "from tests.cuda.test_memory_safety import run_all; run_all({seldom})"


def calls(seldom: bool) -> Iterator[tuple[Program, Tensor]]:
    """Odd sizes, rows that end inside a vector, images that begin anywhere. seldom: more types of elements."""
    dtypes = (torch.uint8, torch.float32) if not seldom else (torch.float16, torch.bfloat16, torch.float64)
    for dtype, last in itertools.product(dtypes, (False, True)):
        whole = image(dtype, 1, 3, 11, 40 if seldom else 37, last=last)
        for x in (whole, whole[..., 1:-1, 1:-1]):
            for size, mode in (((6, 19), AA), ((17, 55), CUBIC), ((3, 4), CUBIC_AA)):
                yield resized(x, size, **mode), x
            yield resized(x, (7, 20), "nearest-exact", False), x
            yield maps_program(dtype, (AxisMap((Flip(),)),)), x
            yield maps_program(dtype, (AxisMap((Pad(2, 3, "constant", 1),)),), border=3), x


def run_all(seldom: bool) -> None:
    for few_outputs, many_threads in ((0, 0), (1 << 20, 1 << 15)):
        ways.FEW_OUTPUTS, ways.MANY_THREADS = few_outputs, many_threads
        for program, x in calls(seldom):
            print(few_outputs, program, x.dtype, x.shape, x.stride())
            for aligned in (True, False):
                host.run(program, x, aligned=aligned)


@pytest.mark.parametrize("seldom", [False, pytest.param(True, marks=pytest.mark.full)])
def test_sanitised(seldom: bool) -> None:
    run_sanitised(CODE.format(seldom=seldom), "portable")
