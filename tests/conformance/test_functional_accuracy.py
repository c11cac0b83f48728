"""How far `polyphase.functional` is from extended precision, and how far eager is."""

from __future__ import annotations

import math
import platform
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import polyphase.functional as P
from polyphase.cpu import isa
from tests.conformance import extended
from tests.conformance.checks import HALF
from tests.conformance.functional_checks import no_farther
from tests.support.samples import HAS_LANCZOS

pytestmark = pytest.mark.skipif(not extended.HAS_MORE_THAN_FLOAT64, reason="this machine has nothing beyond float64")


class Mode(NamedTuple):
    name: str
    filter: str
    axes: int = 2
    antialias: bool = False
    align_corners: bool | None = None

    @property
    def options(self) -> dict[str, Any]:
        return {"mode": self.name, "antialias": self.antialias, "align_corners": self.align_corners}

    def __str__(self) -> str:
        return f"{self.name}{self.axes}d{'-aa' * self.antialias}{'-ac' * bool(self.align_corners)}"


MODES = (
    Mode("linear", "bilinear", 1),
    Mode("bilinear", "bilinear"),
    Mode("bilinear", "bilinear", align_corners=True),
    Mode("trilinear", "bilinear", 3),
    Mode("bicubic", "bicubic"),
    Mode("bicubic", "bicubic", align_corners=True),
    Mode("area", "area", 1),
    Mode("area", "area"),
    Mode("area", "area", 3),
    Mode("bilinear", "bilinear", antialias=True),
    Mode("bicubic", "bicubic", antialias=True),
    *([Mode("lanczos", "lanczos", antialias=True)] if HAS_LANCZOS else []),
)
#: By whole numbers, where only sums are rounded, and by others, where coordinates are.
RESIZES = {
    1: (((240,), (120,)), ((300,), (60,)), ((150,), (300,)), ((311,), (175,)), ((97,), (410,))),
    2: (
        ((64, 48), (32, 24)),
        ((100, 60), (20, 15)),
        ((32, 48), (64, 96)),
        ((48, 96), (64, 32)),
        ((60, 80), (45, 64)),
        ((40, 33), (77, 51)),
        ((37, 92), (26, 75)),
    ),
    3: (
        ((24, 16, 36), (12, 8, 18)),
        ((14, 9, 16), (28, 18, 32)),
        ((21, 15, 22), (16, 13, 31)),
        ((23, 9, 24), (16, 16, 19)),
    ),
}
KINDS = ("smooth", "noisy")


def image(kind: str, shape: tuple[int, ...]) -> Tensor:
    """Smooth: a few waves in [0, 1]. Noisy: every pixel for itself, of both signs, about 100."""
    generator = torch.Generator().manual_seed(sum(shape))
    if kind == "noisy":
        return 100 * torch.randn(shape, generator=generator, dtype=torch.float64)
    phase = torch.rand(shape[:2], generator=generator, dtype=torch.float64).view(*shape[:2], *[1] * (len(shape) - 2))
    for dim, size in enumerate(shape[2:], start=2):
        along = torch.arange(size, dtype=torch.float64).view([-1 if d == dim else 1 for d in range(len(shape))])
        phase = phase + along * (dim / 20)
    return (1 + torch.sin(phase)) / 2


class Resized(NamedTuple):
    """An image in one dtype and layout, and its resize in extended precision."""

    label: str
    image: Tensor
    size: tuple[int, ...]
    truth: extended.Array


def resized(mode: Mode, dtype: torch.dtype) -> Iterator[Resized]:
    for kind in KINDS:
        for before, after in RESIZES[mode.axes]:
            source = image(kind, (2, 3, *before)).to(dtype)
            truth = extended.resize(source, after, mode.filter, mode.antialias, bool(mode.align_corners))
            yield Resized(f"{kind} {before} {after}", source, after, truth)
            if mode.axes == 2:
                channels_last = source.to(memory_format=torch.channels_last)
                yield Resized(f"{kind} {before} {after} channels last", channels_last, after, truth)


def errors(result: Tensor, truth: extended.Array) -> tuple[float, float]:
    error = abs(result.double().numpy().astype(extended.Real) - truth)
    return float(error.mean()), float(error.max())


class Limits(NamedTuple):
    """Of all resizes together, how often eager's error; of a single one 1.05 times, and units of the last place."""

    times: float
    units: float


def limits(mode: Mode, dtype: torch.dtype) -> Limits:
    """Where coordinates are exact, the luck of the last bit decides.

    float64 cubics: eager's polynomial has one fused multiply-add, on ARM more, ours has none. Nor have portable kernels
    for x86, anywhere.
    """
    if mode.filter == "bicubic" and dtype == torch.float64:
        return Limits(1.3, 6) if platform.machine() == "x86_64" else Limits(1.4, 8)
    return Limits(1.1 if isa.chosen() == "portable" else 1.05, 1)


class Compared(NamedTuple):
    """Mean and maximum error of ours and of eager, and a unit of the last place of such a mean and maximum."""

    label: str
    ours: tuple[float, float]
    eager: tuple[float, float]
    unit: tuple[float, float]


def compared(mode: Mode, dtype: torch.dtype) -> Iterator[Compared]:
    for one in resized(mode, dtype):
        ours, eager = (f(one.image, one.size, **mode.options) for f in (P.interpolate, F.interpolate))
        unit = torch.finfo(dtype).eps * abs(one.truth)
        yield Compared(
            one.label, errors(ours, one.truth), errors(eager, one.truth), (float(unit.mean()), float(unit.max()))
        )


def times_eager(found: list[Compared]) -> float:
    """The geometric mean over the resizes: of the mean errors or the maxima, whichever is more."""
    logs = [[math.log((a + 1e-300) / (b + 1e-300)) for a, b in zip(*one[1:3], strict=True)] for one in found]
    return float(numpy.exp(numpy.mean(logs, axis=0)).max())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["f32", "f64"])
@pytest.mark.parametrize("mode", MODES, ids=str)
def test_no_farther_than_eager(mode: Mode, dtype: torch.dtype) -> None:
    allowed, found = limits(mode, dtype), list(compared(mode, dtype))
    farther = [one for one in found for a, b, unit in zip(*one[1:], strict=True) if a > 1.05 * b + allowed.units * unit]
    assert farther == []
    assert times_eager(found) <= allowed.times


def test_float64_cubics_are_farther_than_eagers() -> None:
    """The one line of `limits` that is no luck is still needed."""
    cubics = [mode for mode in MODES if limits(mode, torch.float64) != limits(mode, torch.float32)]
    assert max(times_eager(list(compared(mode, torch.float64))) for mode in cubics) > 1.05


@pytest.mark.parametrize("dtype", HALF, ids=["f16", "bf16"])
@pytest.mark.parametrize("mode", [mode for mode in MODES if not mode.antialias], ids=str)
def test_half_is_no_farther_than_eager(mode: Mode, dtype: torch.dtype) -> None:
    found = []
    for one in resized(mode, dtype):
        ours, eager = (f(one.image, one.size, **mode.options) for f in (P.interpolate, F.interpolate))
        failure = no_farther(ours, eager, torch.from_numpy(one.truth.astype(numpy.float64)))
        found += [f"{one.label}: {failure}"] if failure else []
    assert found == []


@pytest.mark.parametrize("dtype", HALF, ids=["f16", "bf16"])
@pytest.mark.parametrize("mode", MODES, ids=str)
def test_half_is_rounded_once(mode: Mode, dtype: torch.dtype) -> None:
    """Half a unit in the last place, and what float32 coordinates and sums add. Eager has no antialiased half."""
    for one in resized(mode, dtype):
        truth = torch.from_numpy(one.truth.astype(numpy.float64))
        error = (P.interpolate(one.image, one.size, **mode.options).double() - truth).abs()
        exponent = torch.frexp(truth)[1].clamp(min=math.frexp(torch.finfo(dtype).smallest_normal)[1])
        half_a_unit = torch.finfo(dtype).eps / 4 * torch.exp2(exponent.double())
        assert (error <= half_a_unit + 4e-5 * truth.abs().max()).all(), one.label
