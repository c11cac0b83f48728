"""CUDA kernels, compiled for the host, under AddressSanitizer and UndefinedBehaviorSanitizer: tensors, tables and
shared memory end where they end."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from polyphase.cuda import ways
from polyphase.sampling.axis_maps import AxisMap
from polyphase.sampling.programs import Program, maps_program, warp_program
from polyphase.sampling.steps import Flip, Pad
from polyphase.sampling.warps import PADDINGS, Warp
from tests.cpu.conftest import run_sanitised
from tests.cuda import host
from tests.cuda.test_kernels_on_host import AA, CUBIC, CUBIC_AA, image, resized
from tests.support.samples import GRID_MODES

CODE = "from tests.cuda.test_memory_safety import run_all; run_all({seldom}, {aligned}, {every})"


CALLS_OF_AN_IMAGE = 6


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


def warped(seldom: bool) -> Iterator[tuple[Tensor, Tensor, Warp]]:
    """Positions inside, at the edges and far outside; images that end with their last pixel, or lie in a larger one."""
    dtypes = (torch.float32,) if not seldom else (torch.uint8, torch.float16, torch.float64)
    out = (5, 37)
    for turn, (dtype, mode, source) in enumerate(itertools.product(dtypes, GRID_MODES[2], ("grid", "affine"))):
        whole = image(dtype, 2, 3, 11, 13, last=turn % 4 == 0)
        sampler = Warp(source, mode, PADDINGS[turn % 3], turn % 2 == 0, out if source == "affine" else ())
        coordinates = torch.tensor([[1.2, 0.4, 0.1], [-0.4, 1.2, 0.3]]).repeat(2, 1, 1)
        if source == "grid":
            coordinates = F.affine_grid(coordinates, [2, 3, *out], align_corners=False)
            coordinates[:, ::2, ::9] = 1
            coordinates[:, ::2, 3::9] = math.nan
            coordinates[:, 1::2, ::7] *= 1e30
        positions = torch.float64 if dtype == torch.float64 else torch.float32
        yield (whole if turn % 4 < 2 else whole[..., 1:-1, 1:-1]), coordinates.to(positions), sampler
    volume, grid = image(torch.float32, 1, 2, 4, 5, 6), torch.linspace(-1.5, 1.5, 6 * 3).reshape(1, 1, 2, 3, 3)
    yield volume, grid, Warp("grid", "bilinear", "border")


def run_warps(seldom: bool, aligned: bool) -> None:
    for x, coordinates, sampler in warped(seldom):
        print(sampler, x.dtype, x.shape, x.stride())
        host.run(warp_program(x.dtype, sampler), x, coordinates, aligned=aligned)
        if x.is_floating_point() and (seldom or (sampler.mode, sampler.source) == ("bilinear", "grid")):
            size = sampler.size or tuple(coordinates.shape[1:-1])
            gradient = torch.ones(*x.shape[:2], *size, dtype=x.dtype)
            host.gradients(gradient, x, coordinates, sampler, (True, True))


def run_all(seldom: bool, aligned: bool, every: bool) -> None:
    """every: all calls in both ways. Else each in one of them, by turns over what is called and over every bit of an
    image's number, so that each type, layout and place of an image goes both ways."""
    run_warps(seldom, aligned)
    for way, (few_outputs, many_threads) in enumerate(((0, 0), (1 << 20, 1 << 15))):
        ways.FEW_OUTPUTS, ways.MANY_THREADS = few_outputs, many_threads
        for number, (program, x) in enumerate(calls(seldom)):
            turn = (number // CALLS_OF_AN_IMAGE).bit_count() + number % CALLS_OF_AN_IMAGE
            ways.FEW_TO_WALK = number // CALLS_OF_AN_IMAGE % 2 << 24
            if every or turn % 2 == way:
                print(few_outputs, program, x.dtype, x.shape, x.stride())
                host.run(program, x, aligned=aligned)


def run_short_rows() -> None:
    """Rows of bytes that are shorter than the words they are read by, or that are one and the same row."""
    ways.FEW_OUTPUTS = ways.FEW_TO_WALK = 0
    for height, out_height in ((11, 96), (11, 97), (14, 90), (40, 120)):
        for x in (image(torch.uint8, 1, 1, height, 1), image(torch.uint8, 1, 2).expand(height, 2)[None, None]):
            print(x.shape, x.stride(), out_height)
            program = resized(x, (out_height, x.shape[-1]), "bilinear", False)
            assert host.way_of(program, x) == "ByteWalk"
            host.run(program, x)


def test_short_rows_sanitised() -> None:
    run_sanitised("from tests.cuda.test_memory_safety import run_short_rows; run_short_rows()")


@pytest.mark.parametrize(
    ("seldom", "aligned", "every"),
    [
        (False, True, False),
        *(pytest.param(*one, True, marks=pytest.mark.full) for one in itertools.product((False, True), repeat=2)),
    ],
)
def test_sanitised(seldom: bool, aligned: bool, every: bool) -> None:
    """Images that lie in a larger one take the kernels of unaligned ones anyway."""
    run_sanitised(CODE.format(seldom=seldom, aligned=aligned, every=every))
