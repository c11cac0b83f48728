"""int16, uint16 and int32 images, mixed: summed as floats, rounded to the nearest, ties to even, and saturated."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import polyphase
import polyphase.functional as P
from polyphase import arguments
from polyphase.calls import plain_torch
from polyphase.sampling import reference
from polyphase.sampling.integers import SUMMED_IN, stored
from polyphase.sampling.programs import Program, maps_program, warp_program
from tests.support.samples import image

DTYPES = tuple(SUMMED_IN)
LAYOUTS = ("CF", "CL", "sliced", "transposed")
MODES: list[dict[str, Any]] = [
    *({"mode": mode, "antialias": False} for mode in ("bilinear", "bicubic", "area")),
    *({"mode": mode, "antialias": True} for mode in ("bilinear", "bicubic", "lanczos", "hamming", "box")),
]
THETA = torch.tensor([[[0.8, 0.3, 0.1], [-0.3, 0.9, 0.05]]]).expand(2, 2, 3)


def rounding(dtype: torch.dtype) -> float:
    """By what a sum may be off: a few units in the last place of the largest value, in what it is summed in."""
    limits = torch.iinfo(dtype)
    return 8 * (limits.max - limits.min) * torch.finfo(SUMMED_IN[dtype]).eps


def assert_rounds(found: Tensor, exact: Tensor, off: float) -> None:
    """`exact`: what was to be rounded, in float64, of which `off` may be wrong."""
    limits = torch.iinfo(found.dtype)
    assert ((found.double() - exact.clamp(limits.min, limits.max)).abs() <= 0.5 + off).all()


def of_doubles(program: Program, pixels: Tensor, **coordinates: Any) -> Tensor:
    """The program of an image whose pixels are float64, by the reference."""
    return reference.run(Program(torch.float64, program.sampler, order=program.order), pixels.double(), **coordinates)


def resized(pixels: Tensor, size: Any, mode: str, antialias: bool) -> Program:
    maps = arguments.resize_maps(pixels.shape, pixels.dtype, size, None, mode, None, None, antialias)
    return maps_program(pixels.dtype, maps)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("mode", MODES, ids=str)
def test_interpolate(mode: dict[str, Any], dtype: torch.dtype) -> None:
    for layout in LAYOUTS:
        for size in ((17, 40), (60, 9)):
            pixels = image((2, 3, 23, 31), dtype, layout)
            found, program = P.interpolate(pixels, size, **mode), resized(pixels, size, **mode)
            exact = of_doubles(program, pixels)
            for one in (found, plain_torch.run(program, pixels), reference.run(program, pixels)):
                assert one.dtype == dtype
                assert_rounds(one, exact, rounding(dtype))
            like = P.interpolate(pixels.float(), size, **mode)
            assert found.stride() == like.stride()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_lines_and_volumes(dtype: torch.dtype) -> None:
    for before, after, mode in (((50,), (21,), "linear"), ((7, 9, 11), (5, 12, 6), "trilinear")):
        for antialias in (False, True):
            pixels = image((2, 3, *before), dtype)
            exact = of_doubles(resized(pixels, after, mode, antialias), pixels)
            assert_rounds(P.interpolate(pixels, after, mode=mode, antialias=antialias), exact, rounding(dtype))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("coordinates", [torch.float32, torch.float64], ids=str)
def test_warps(coordinates: torch.dtype, mode: str, dtype: torch.dtype) -> None:
    """Positions of float32 are as exact as they are; those of int32 images are so in float64, like their weights."""
    theta = THETA.to(coordinates)
    grid = P.affine_grid(theta, (2, 3, 20, 40))
    double = torch.float64 in (coordinates, SUMMED_IN[dtype])
    for padding in ("zeros", "border", "reflection"):
        for layout in LAYOUTS:
            pixels = image((2, 3, 23, 31), dtype, layout)
            largest = torch.iinfo(dtype).max - torch.iinfo(dtype).min
            off = 40 * largest * torch.finfo(torch.float64 if double else torch.float32).eps * 31
            warp = arguments.grid_warp(pixels, grid, mode, padding, False)
            program = warp_program(dtype, warp)
            exact = of_doubles(program, pixels, grid=grid)
            found = P.grid_sample(pixels, grid, mode, padding)
            for one in (found, plain_torch.run(program, pixels, grid), reference.run(program, pixels, grid=grid)):
                assert_rounds(one, exact, off)
            size = (2, 3, 20, 40)
            by_matrix = arguments.affine_warp(pixels, theta, size, mode, padding, False)
            program = warp_program(dtype, by_matrix)
            exact = of_doubles(program, pixels, theta=theta)
            found = P.affine_sample(pixels, theta, size, mode, padding)
            for one in (found, plain_torch.run(program, pixels, theta)):
                assert_rounds(one, exact, off)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_warped_volumes(dtype: torch.dtype) -> None:
    pixels = image((1, 2, 5, 6, 7), dtype)
    theta = torch.tensor([[[0.8, 0.3, 0.1, 0.0], [-0.3, 0.9, 0.0, 0.05], [0.1, 0.0, 1.1, 0.2]]], dtype=torch.float64)
    size = (1, 2, 6, 5, 9)
    warp = arguments.affine_warp(pixels, theta, size, "bilinear", "border", True)
    exact = of_doubles(warp_program(dtype, warp), pixels, theta=theta)
    found = P.affine_sample(pixels, theta, size, "bilinear", "border", align_corners=True)
    assert_rounds(found, exact, 1e-3 if dtype == torch.int32 else 1e-6)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_overshoot_is_saturated(dtype: torch.dtype) -> None:
    """At both ends, where a wrapped sum would show at once."""
    limits = torch.iinfo(dtype)
    stripes = torch.tensor([limits.min, limits.min, limits.max, limits.max], dtype=torch.int64).to(dtype)
    pixels = stripes.repeat(6)[None, None, None].expand(1, 3, 12, 24)
    sharp = P.interpolate(pixels, (12, 96), mode="bicubic")
    assert (int(sharp.long().min()), int(sharp.long().max())) == (limits.min, limits.max)
    program = resized(pixels, (12, 96), "bicubic", False)
    assert_rounds(sharp, of_doubles(program, pixels), rounding(dtype))
    theta = torch.tensor([[[0.5, 0.0, 0.1], [0.0, 1.0, 0.0]]])
    turned = P.affine_sample(pixels, theta, (1, 3, 12, 96), "bicubic", "border")
    assert (int(turned.long().min()), int(turned.long().max())) == (limits.min, limits.max)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_constant_image_stays_one(dtype: torch.dtype) -> None:
    """Weights add up to 1 as nearly as sums need it, of the largest values too."""
    for value in (torch.iinfo(dtype).min, torch.iinfo(dtype).max, 12345):
        pixels = torch.full((1, 3, 13, 17), value, dtype=torch.int64).to(dtype)
        for mode in MODES:
            assert bool((P.interpolate(pixels, (20, 7), **mode).long() == value).all()), mode
        for warped in ("bilinear", "bicubic"):
            assert bool((P.affine_sample(pixels, THETA[:1], (1, 3, 9, 40), warped, "border").long() == value).all())


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_ties_go_to_the_even_neighbour(dtype: torch.dtype) -> None:
    pixels = torch.tensor([0, 1, 2, 3, 4, 5, 6, 7]).to(dtype)[None, None]
    halves = torch.tensor([[[0, 2, 4, 6]]])
    assert torch.equal(P.interpolate(pixels, 4, mode="area").long(), halves)
    assert torch.equal(
        stored(torch.tensor([0.5, 1.5, 2.5, -0.5, float("nan")]), dtype).long(), torch.tensor([0, 2, 2, 0, 0])
    )


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_turned_pixels_come_out_exact(mode: str, dtype: torch.dtype) -> None:
    """Positions that miss a pixel by the rounding of their coordinates alone lie there, of a float32 grid too."""
    for layout in ("CF", "CL"):
        pixels = image((1, 3, 37, 37), dtype, layout)
        quarter = torch.tensor([[[-4.371e-08, -1.0, 0.0], [1.0, -4.371e-08, 0.0]]])
        grid = P.affine_grid(quarter, pixels.shape)
        turned = P.flip(pixels.mT, (-2,))
        for found in (P.affine_sample(pixels, quarter, pixels.shape, mode), P.grid_sample(pixels, grid, mode)):
            assert torch.equal(found, turned)
        program = warp_program(dtype, arguments.grid_warp(pixels, grid, mode, "zeros", False))
        assert torch.equal(plain_torch.run(program, pixels, grid), P.grid_sample(pixels, grid, mode))


CALLS = """
import warnings
import torch
import polyphase.functional as P

warnings.simplefilter("ignore")
found = []
for dtype in (torch.int16, torch.uint16, torch.int32):
    pixels = torch.arange(24).reshape(1, 1, 4, 6).to(dtype) * 100
    found.append(P.interpolate(pixels, (2, 3), mode="bilinear", antialias=True).flatten().tolist())
    theta = torch.tensor([[[0.5, 0.0, 0.0], [0.0, 0.5, 0.0]]])
    found.append(P.affine_sample(pixels, theta, (1, 1, 2, 2), "bicubic", "border").flatten().tolist())
"""


def test_without_a_compiler(tmp_path: Path) -> None:
    here: dict[str, Any] = {}
    exec(CALLS, here)
    nothing = {**os.environ, "POLYPHASE_CACHE_DIR": str(tmp_path), "CXX": "", "PATH": str(tmp_path)}
    command = [sys.executable, "-c", f"{CALLS}\nprint(found)"]
    there = subprocess.run(command, env=nothing, check=True, stdout=subprocess.PIPE, text=True).stdout
    assert there == f"{here['found']}\n"


@pytest.mark.parametrize("dtype", [torch.int16, torch.uint16], ids=str)
def test_compiled(dtype: torch.dtype) -> None:
    def function(x: Tensor) -> Tensor:
        return P.interpolate(x, (6, 5), mode="bicubic").to(torch.float32) * 2

    torch._dynamo.reset()
    compiled = torch.compile(function, backend="polyphase", fullgraph=True)
    pixels = image((2, 3, 8, 9), dtype)
    torch.testing.assert_close(compiled(pixels), function(pixels))


def test_eager_code_is_as_ever() -> None:
    """What eager does not take, it does not take under `accelerate()`."""
    pixels = image((1, 3, 8, 9), torch.int16)
    with polyphase.accelerate(), pytest.raises(NotImplementedError, match="not implemented for 'Short'"):
        torch.nn.functional.interpolate(pixels, (4, 5), mode="bilinear")


def test_no_derivatives() -> None:
    """Neither have the coordinates that integers are sampled at."""
    theta = THETA[:1].clone().requires_grad_()
    assert not P.affine_sample(image((1, 3, 8, 9), torch.int32), theta, (1, 3, 8, 9)).requires_grad


def test_other_integers_are_cast_first() -> None:
    for dtype in (torch.int8, torch.int64, torch.bool):
        with pytest.raises(NotImplementedError, match=r"torch.int16, torch.uint16, torch.int32.*cast the image"):
            P.interpolate(image((1, 3, 8, 9), dtype), 4, mode="bilinear")
        with pytest.raises(NotImplementedError, match=r"torch.int16, torch.uint16, torch.int32.*cast the image"):
            P.affine_sample(image((1, 3, 8, 9), dtype), THETA[:1], (1, 3, 8, 9))
