"""What the guide says of how equal pictures are to torchvision's v2, dtype by dtype."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor

import polyphase
from polyphase.torch_versions import ROUNDS_LINEAR_POSITIONS_ONCE
from tests.support.vision import torchvision

INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32]
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


def picture(dtype: torch.dtype, seed: int, most: int | None = None) -> Tensor:
    made = torch.Generator().manual_seed(seed)
    if dtype.is_floating_point:
        return torch.rand(3, 61, 83, generator=made, dtype=torch.float64).to(dtype)
    limits = torch.iinfo(dtype)
    least, most = (limits.min, limits.max) if most is None else (max(limits.min, -most), min(limits.max, most))
    return torch.randint(least, most, (3, 61, 83), generator=made, dtype=torch.int64).to(dtype)


def furthest(own: Any, given: Tensor) -> float:
    """In units of integers; in last bits of 1.0 of floats."""
    torch.manual_seed(0)
    expected = own(given)
    torch.manual_seed(0)
    found = polyphase.fuse(own)(given)
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    unit = torch.finfo(given.dtype).eps if given.is_floating_point() else 1.0
    return float((found.double() - expected.double()).abs().max()) / unit


def resizes(v2: Any, modes: tuple[str, ...]) -> list[Any]:
    sizes = ((30, 40), (100, 120), (64, 31))
    return [
        v2.Resize(size, interpolation=v2.InterpolationMode(mode), antialias=smooth)
        for mode, size, smooth in itertools.product(modes, sizes, (True, False))
    ]


def warps(v2: Any, mode: str) -> list[Any]:
    how = {"interpolation": v2.InterpolationMode(mode)}
    return [
        v2.RandomRotation((17, 17), **how),
        v2.RandomAffine((7, 7), (0.1, 0.1), (0.7, 0.7), **how),
        v2.RandomPerspective(0.4, 1.0, **how),
    ]


@pytest.mark.parametrize("dtype", [*INTEGERS, *FLOATS])
def test_what_is_moved_is_equal(dtype: torch.dtype) -> None:
    v2 = torchvision()
    moved = [v2.RandomCrop(40, padding=3), v2.RandomHorizontalFlip(1.0), v2.Pad((1, 2, 3, 4)), v2.CenterCrop((90, 30))]
    for own in (*moved, *resizes(v2, ("nearest", "nearest-exact"))):
        assert furthest(own, picture(dtype, 1)) == 0, own


@pytest.mark.parametrize("dtype", [*INTEGERS, *FLOATS])
def test_resizes(dtype: torch.dtype) -> None:
    v2 = torchvision()
    for own in resizes(v2, ("bilinear", "bicubic")):
        twice = not (ROUNDS_LINEAR_POSITIONS_ONCE or own.antialias or own.interpolation.value != "bilinear")
        most = {torch.uint8: 0.0, torch.float32: 20.0 if twice else 4.0, torch.float64: 16.0}.get(dtype, 1.0)
        assert furthest(own, picture(dtype, 2, 2**18)) <= (2.0 if twice and dtype == torch.int32 else most), own
        if dtype == torch.int32:
            assert furthest(own, picture(dtype, 2)) <= (2.0**14 if twice else 1024.0), own


@pytest.mark.parametrize("dtype", [*INTEGERS, *FLOATS])
def test_warps(dtype: torch.dtype) -> None:
    v2 = torchvision()
    for mode in ("bilinear", "nearest"):
        least = 0.0 if mode == "nearest" or dtype in (torch.int8, torch.float16, torch.bfloat16) else 1.0
        most = {torch.float32: 4.0, torch.float64: 16.0}.get(dtype, least)
        for own in warps(v2, mode):
            assert furthest(own, picture(dtype, 3, 2**18)) <= most, own
            if dtype == torch.int32:
                assert furthest(own, picture(dtype, 3)) <= (64.0 if mode == "nearest" else 256.0), own
