"""What a wheel has for the CPU: all that `polyphase.functional` and `accelerate()` ask for, of every dtype and mode but
integers that eager does not mix, and the arithmetic that most pipelines end with."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import torch

from polyphase.arguments.resampling import WEIGHTED_DTYPES
from polyphase.arguments.warping import COORDINATES, OTHER_COORDINATES
from polyphase.calls.plain import DTYPES
from polyphase.cpu import build, isa, libraries
from polyphase.cuda import launcher as cuda_launcher
from polyphase.kernels.plans import MapsPlan, WarpPlan, plan_maps, plan_warp
from polyphase.records.checking import WARPED_AXES
from polyphase.sampling.axis_maps import AxisMap
from polyphase.sampling.formulas import displacement, homography
from polyphase.sampling.pointwise import Expression
from polyphase.sampling.programs import Axes, Program, warp_program
from polyphase.sampling.steps import Flip, Resize
from polyphase.sampling.text import from_text
from polyphase.sampling.warps import MODES, Warp

#: What plans do not depend on, such as sizes, is anything: one kernel serves all.
MOVING = Axes((AxisMap((Flip(),)),))
SUMMING = Axes((AxisMap((Resize(1, "bilinear"),)),))
TURNING = Warp("grid", "nearest", "zeros", False)


def requests(architecture: str) -> list[build.Request]:
    """The libraries for an instruction set."""
    found = [libraries.launcher_request(architecture), cuda_launcher.request(architecture)]
    for plan in plans(architecture):
        found += libraries.requests(plan, moves=True)
    return list(dict.fromkeys(found))


def plans(architecture: str) -> Iterator[MapsPlan | WarpPlan]:
    for program in [*_maps(), *_chains()]:
        if isinstance(program.sampler, Warp):
            yield plan_warp(program, torch.float32, 2, architecture)
        else:
            yield plan_maps(program, isa.for_moves(architecture) if program.moves_only else architecture)
    for dtype, coordinates, mode, axes in _warps():
        yield from _with_gradients(warp_program(dtype, Warp("grid", mode)), coordinates, axes, architecture)
    for dtype, coordinates, warp in _computed():
        yield from _with_gradients(warp_program(dtype, warp), coordinates, len(warp.size), architecture)


def _with_gradients(program: Program, coordinates: torch.dtype, axes: int, architecture: str) -> Iterator[WarpPlan]:
    yield plan_warp(program, coordinates, axes, architecture)
    if program.source.is_floating_point:
        yield plan_warp(program, coordinates, axes, architecture, gradients=True)


def _maps() -> Iterator[Program]:
    for dtype in DTYPES:
        yield Program(dtype, MOVING)
    for dtype in WEIGHTED_DTYPES:
        yield Program(dtype, SUMMING)


def _warps() -> Iterator[tuple[torch.dtype, torch.dtype, str, int]]:
    """Dtypes of image and coordinates, mode, and number of axes."""
    for mode in MODES:
        for dtype in DTYPES if mode == "nearest" else WEIGHTED_DTYPES:
            for coordinates in COORDINATES.get(dtype, OTHER_COORDINATES):
                for axes in WARPED_AXES:
                    yield dtype, coordinates, mode, axes


def _computed() -> Iterator[tuple[torch.dtype, torch.dtype, Warp]]:
    """Homographies and displacements: of bytes and float32; of other floats, those that are most asked for."""
    for mode in MODES:
        usual = (torch.uint8, torch.float32)
        images = (torch.uint8, *COORDINATES) if mode == "bilinear" else usual
        for dtype, axes in itertools.product(images, WARPED_AXES):
            if axes == 3 and dtype not in usual:
                continue
            coordinates = torch.float64 if dtype == torch.float64 else torch.float32
            formulas = [displacement((1,) * axes, aligned) for aligned in (False, True)]
            for formula in [*formulas, homography()] if axes == 2 else formulas:
                yield dtype, coordinates, Warp("formula", mode, size=(1,) * axes, formula=formula)


def _chains() -> Iterator[Program]:
    """Bytes that are resized, moved or turned, then scaled to 0 ... 1 and normalised."""
    for sampler in (SUMMING, MOVING, TURNING):
        for epilogue in epilogues():
            yield Program(torch.uint8, sampler, epilogue=epilogue)


def epilogues() -> list[Expression]:
    """As `polyphase.fuse` has them. torchvision multiplies tensors, and divides what was a Pillow image."""
    texts = []
    for dtype in ("float32", "float16", "bfloat16"):
        multiplied, divided = f"mul(cast(x, {dtype}), {1 / 255!r})", f"div(cast(x, {dtype}), 255)"
        of_dtype = "" if dtype == "float32" else f", dtype={dtype}"
        normalised = f"div(sub({{}}, channel(0{of_dtype})), channel(1{of_dtype}))"
        texts += [normalised.format(multiplied)]
        if dtype == "float32":
            texts += [normalised.format(divided), multiplied, divided]
    return [from_text(text) for text in texts]
