"""What is emitted for a few plans, as files: so that a reader sees it, and nobody changes it by accident."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from polyphase.cpu import emit
from polyphase.kernels.plans import MapsPlan, plan_maps, plan_warp
from polyphase.sampling.axis_maps import AxisMap
from polyphase.sampling.formulas import homography
from polyphase.sampling.pointwise import VALUE, Binary, Cast, Channel, Expression, Number, Operand
from polyphase.sampling.programs import Axes, Program, maps_program, warp_program
from polyphase.sampling.steps import Flip, Resize
from polyphase.sampling.warps import Warp

GOLDEN = Path(__file__).parents[1] / "golden" / "kernels"

RESIZES = (AxisMap((Resize(8, "bilinear", antialias=True),)), AxisMap((Resize(8, "bilinear", antialias=True),)))
HOMOGRAPHY = warp_program(torch.float32, Warp("formula", size=(8, 8), formula=homography()))
SCALED: Expression = Binary("div", Cast(VALUE, torch.float32), Number(255.0))
NORMALISED = Binary("div", Binary("sub", SCALED, Channel(0)), Channel(1))


def maps(program: Program) -> MapsPlan:
    return plan_maps(program, "portable")


SOURCES = {
    "flip": lambda: emit.kernel_source(maps(maps_program(torch.int32, (AxisMap((Flip(),)),)))),
    "resize_float32": lambda: emit.kernel_source(maps(maps_program(torch.float32, RESIZES))),
    "resize_bfloat16": lambda: emit.kernel_source(maps(maps_program(torch.bfloat16, RESIZES))),
    "resize_uint8_normalise": lambda: emit.kernel_source(
        maps(Program(torch.uint8, Axes(RESIZES), epilogue=NORMALISED))
    ),
    "resize_float32_add_tensor": lambda: emit.kernel_source(
        maps(Program(torch.float32, Axes(RESIZES), prologue=Binary("mul", VALUE, Number(2.0)),
                     epilogue=Binary("add", VALUE, Operand(0))))
    ),
    "warp_uint8_bilinear": lambda: emit.kernel_source(
        plan_warp(warp_program(torch.uint8, Warp("grid")), torch.float32, 2, "portable")
    ),
    "warp_homography": lambda: emit.kernel_source(plan_warp(HOMOGRAPHY, torch.float32, 2, "portable")),
    "warp_homography_gradients": lambda: emit.kernel_source(
        plan_warp(HOMOGRAPHY, torch.float32, 2, "portable", gradients=True)
    ),
    "warp_gradients_bicubic": lambda: emit.kernel_source(
        plan_warp(warp_program(torch.float32, Warp("grid", "bicubic")), torch.float32, 2, "portable", gradients=True)
    ),
    "sampler_uint8": lambda: emit.sampler_source(maps(maps_program(torch.uint8, RESIZES))),
    "sampler_moved": lambda: emit.sampler_source(maps(maps_program(torch.int32, (AxisMap((Flip(),)),)))),
}  # fmt: skip


@pytest.mark.parametrize("name", SOURCES)
def test_golden(name: str) -> None:
    path, source = GOLDEN / f"{name}.cpp", SOURCES[name]()
    if os.environ.get("POLYPHASE_UPDATE_GOLDEN"):
        path.write_text(source, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == source


def test_every_golden_file_has_a_source() -> None:
    assert {path.stem for path in GOLDEN.iterdir()} == set(SOURCES)
