"""A wheel has what functions, `accelerate()` and common pipelines ask for; seen by what they do ask for, without
building any of it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor

import polyphase
import polyphase.functional as P
from polyphase.arguments.resampling import WEIGHTED_DTYPES
from polyphase.arguments.warping import COORDINATES, OTHER_COORDINATES
from polyphase.calls import binding
from polyphase.calls.plain import DTYPES
from polyphase.cpu import build, isa, launch, libraries
from polyphase.errors import BuildFailedError
from polyphase.kernels.plans import MapsPlan, WarpPlan
from tests.support import samples
from tests.support.vision import torchvision
from wheels import contents

pytestmark = [pytest.mark.cpu, pytest.mark.filterwarnings("ignore::polyphase.errors.NoKernelsWarning")]

FUNCTIONS: dict[str, Callable[..., Tensor]] = {
    "interpolate": P.interpolate,
    "grid_sample": P.grid_sample,
    "flip": P.flip,
    "pad": P.pad,
}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, build.Request]]:
    """The libraries that are asked for from here on, by their names in a wheel. None is to be had: plain torch does the
    calls."""
    names = dict[str, build.Request]()

    def addresses(plan: MapsPlan | WarpPlan, moves: bool = False) -> libraries.Addresses:
        names.update({build.prebuilt_name(one): one for one in libraries.requests(plan, moves)})
        raise BuildFailedError("only its name was asked for")

    def forget() -> None:
        launch.forget()
        binding.forget()

    forget()
    monkeypatch.setattr(libraries, "addresses", addresses)
    yield names
    forget()


def lacking(asked: dict[str, build.Request]) -> list[str]:
    wheel = {build.prebuilt_name(one) for one in contents.requests(isa.chosen())}
    return [f"{one.stem} for {one.purpose}, {one.isa}" for name, one in asked.items() if name not in wheel]


def kinds() -> dict[tuple[object, ...], samples.Sample]:
    """One sample of each kind that can need another library."""
    found: dict[tuple[object, ...], samples.Sample] = {}
    for one in samples.small():
        coordinates = one.specs[1].dtype if len(one.specs) > 1 else None
        if one.operator in FUNCTIONS and 0 not in one.shape:
            found[(one.operator, one.dtype, one.mode, one.axes, coordinates)] = one
    return found


@pytest.mark.parametrize(
    ("mode", "dtype"),
    [
        *(("bilinear", dtype) for dtype in (torch.uint8, *COORDINATES)),
        *((mode, dtype) for mode in ("nearest", "bicubic") for dtype in (torch.uint8, torch.float32)),
    ],
)
def test_warps_without_a_grid(mode: str, dtype: torch.dtype, asked: dict[str, build.Request]) -> None:
    image, other = torch.ones(2, 3, 4, 5).to(dtype), dtype if dtype.is_floating_point else torch.float32
    matrix, field = torch.eye(3).expand(2, 3, 3).to(other), torch.zeros(2, 4, 5, 2, dtype=other)
    given = [one.clone().requires_grad_(one.is_floating_point()) for one in (image, matrix, field)]
    for aligned in (False, True):
        for out in (
            P.perspective_sample(given[0], given[1], (2, 3, 6, 7), mode, align_corners=aligned),
            P.displacement_sample(given[0], given[2], mode, align_corners=aligned, fill=1.0),
        ):
            if out.requires_grad:
                out.sum().backward()
    if mode != "bicubic" and dtype in (torch.uint8, torch.float32):
        P.displacement_sample(image[:, :, None], torch.zeros(2, 1, 4, 5, 3, dtype=other), mode)
    assert asked
    assert lacking(asked) == []


@pytest.mark.parametrize("accelerated", [False, True])
def test_calls_of_every_kind_and_their_gradients(accelerated: bool, asked: dict[str, build.Request]) -> None:
    functions, block = (samples.OPERATORS, polyphase.accelerate) if accelerated else (FUNCTIONS, nullcontext)
    for one in kinds().values():
        tensors: list[Any] = [x.requires_grad_() if x.dtype.is_floating_point else x for x in one.args]
        with block():
            out = functions[one.operator](*tensors, **one.kwargs)
            if out.requires_grad:
                out.sum().backward()
    assert len(asked) > 20
    assert lacking(asked) == []


def test_warps_of_every_dtype_and_mode(asked: dict[str, build.Request]) -> None:
    """Of which eager has few."""
    for axes, dtype in itertools.product((2, 3), DTYPES):
        for mode in ("nearest", "bilinear", "bicubic") if dtype in WEIGHTED_DTYPES else ("nearest",):
            image, theta = torch.zeros(1, 2, *(4, 5, 6)[:axes], dtype=dtype), torch.eye(axes, axes + 1)[None]
            for coordinates in COORDINATES.get(dtype, OTHER_COORDINATES):
                P.affine_sample(image, theta.to(coordinates), (1, 2, *[4] * axes), mode=mode)
    assert len(asked) > 40
    assert lacking(asked) == []


def test_common_pipelines(asked: dict[str, build.Request]) -> None:
    v2, v1 = torchvision(), torchvision("torchvision.transforms")
    image = torch.randint(0, 256, (3, 20, 24), dtype=torch.uint8)
    normalise = ([0.5, 0.4, 0.3], [0.2, 0.3, 0.4])
    for first in (v2.Resize((9, 10)), v2.RandomHorizontalFlip(1.0), v2.CenterCrop(8), v2.RandomRotation(20)):
        polyphase.fuse(v2.Compose([first, v2.ToDtype(torch.float32, scale=True), v2.Normalize(*normalise)]))(image)
    picture = v1.ToPILImage()(image)
    polyphase.fuse(v1.Compose([v1.RandomResizedCrop(8), v1.ToTensor(), v1.Normalize(*normalise)]))(picture)
    assert any("float32" in one.purpose for one in asked.values())
    assert lacking(asked) == []


def test_the_instruction_sets_of_all_machines() -> None:
    """Which of them bytes are for follows from the machine's best."""
    sets = {one.isa for one in contents.requests("avx512")}
    assert sets == {"avx2", "avx512"}
    assert {one.isa for one in contents.requests("portable")} == {"portable"}
