"""CUDA kernels of warps with a fill, compiled for the host: by the tests of the CPU's, and to the bit by the rules."""

from __future__ import annotations

import itertools

import pytest
import torch

from polyphase.calls import binding
from polyphase.sampling.programs import warp_program
from polyphase.sampling.warps import FILL_RULES, Warp
from tests.cpu import test_fill_kernels as cpu
from tests.cpu.test_launch import content
from tests.cpu.test_warp_kernels import Case
from tests.cuda import host
from tests.cuda.test_warps_on_host import by_rules, first_of, run


@pytest.fixture(autouse=True)
def on_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """In place of the CPU's kernels."""
    monkeypatch.setattr(binding, "warp", lambda x, at, sampler: run(warp_program(x.dtype, sampler), x, at))


@pytest.mark.parametrize("dtype", first_of(torch.uint8, torch.float32, torch.bfloat16, torch.float64))
@pytest.mark.parametrize("mode", ["bilinear", "bicubic", "nearest"])
def test_right(mode: str, dtype: torch.dtype) -> None:
    for case in itertools.islice(cpu.filled_cases(dtype, mode, 2, range(1, 71, 8)), 5):
        cpu.assert_case_right(case)


def test_volumes() -> None:
    for case in itertools.islice(cpu.filled_cases(torch.float32, "bilinear", 3, range(1, 71, 12)), 4):
        cpu.assert_case_right(case)


KINDS = [*itertools.product(("bilinear", "bicubic"), FILL_RULES, ("grid", "affine")), ("nearest", "blend", "grid")]
SOME = (("bilinear", "blend", "affine"), ("bilinear", "constant", "grid"), ("bicubic", "edge", "affine"), KINDS[-1])


@pytest.mark.parametrize(
    ("mode", "rule", "source"), [pytest.param(*kind, marks=() if kind in SOME else pytest.mark.full) for kind in KINDS]
)
def test_pixels_inside_are_as_by_the_rules(mode: str, rule: str, source: str) -> None:
    """To the bit: across the edge and inside, in shared memory or not."""
    size = (20, 70)
    filled = {"fill": (3.0, 0.1, 200.0), "fill_rule": rule}
    sampler = Warp(source, mode, size=size if source == "affine" else (), **filled)  # type: ignore[arg-type]
    program = warp_program(torch.float32, sampler)
    case = Case(torch.float32, (2, 3, 30, 33), "CF", size, sampler, "smooth", "CF", 3)
    picture, coordinates = case.picture(), case.coordinates()
    got = run(program, picture, coordinates)
    assert content(got) == content(host.run(program, picture, coordinates, choose=by_rules))
    cpu.assert_right(got, picture, coordinates, sampler)
