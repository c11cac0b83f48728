"""CUDA kernels of warps by formulas, compiled for the host, against the CPU's plain twin."""

from __future__ import annotations

import itertools

import pytest
import torch

from polyphase.calls import plain_torch
from polyphase.cuda import warps
from polyphase.sampling.pointwise import VALUE, Binary, Cast, Operand, normalise
from polyphase.sampling.programs import Program, warp_program
from polyphase.sampling.warps import Warp
from tests.cpu.test_formula_kernels import KINDS, NEAR, OF_NUMBERS, cases
from tests.cpu.test_launch import content
from tests.cpu.test_warp_kernels import laid_out
from tests.cuda import host
from tests.support.samples import image

WIDTHS = (1, 5, 31, 33, 64, 70)


@pytest.mark.parametrize(("kind", "dtype", "mode"), KINDS)
def test_forward(kind: str, dtype: torch.dtype, mode: str) -> None:
    for case in cases(kind, dtype, mode, WIDTHS):
        inputs = (case.picture, case.entries, *case.fields)
        ours = host.run(warp_program(dtype, case.sampler), *inputs)
        assert content(ours) == content(host.run(warp_program(dtype, case.sampler), *inputs, backwards=True))
        twin = plain_torch.warp(case.picture, case.entries, case.sampler, *case.fields, settled=True)
        if dtype == torch.uint8:
            assert (ours != twin).sum() <= 2 * ours.shape[1]
        else:
            assert torch.allclose(ours, twin, rtol=0, atol=NEAR[dtype])


def test_aslant(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a formula that reads no fields, as large images are made."""
    monkeypatch.setattr(warps, "FEW_PIXELS", 0)
    test_forward("homography", torch.float32, "bilinear")


@pytest.mark.parametrize("deterministic", [True, False])
@pytest.mark.parametrize(("kind", "dtype", "mode"), [one for one in KINDS if one[1] != torch.uint8])
def test_gradients(kind: str, dtype: torch.dtype, mode: str, deterministic: bool) -> None:
    for number, case in enumerate(cases(kind, dtype, mode, WIDTHS[:4])):
        picture, entries, fields, sampler = case
        gradient = laid_out((*picture.shape[:2], *sampler.size), dtype, ("CF", "CL")[number % 2], number, low=-1.0)
        given = (gradient, picture, entries, sampler, (True, True))
        ours = host.gradients(*given, *fields, deterministic=deterministic)
        theirs = plain_torch.warp_gradients(*given, fields)
        for one, other in zip(ours, theirs, strict=True):
            assert one is not None
            assert other is not None
            scale = max(1.0, float(other.abs().max())) if other.numel() else 1.0
            assert torch.allclose(one, other, rtol=0, atol=NEAR[dtype] * scale)


def test_the_image_alone_has_a_gradient_by_a_formula_of_numbers() -> None:
    picture, entries = image((2, 3, 6, 9)), torch.empty((2, 0))
    sampler = Warp("formula", "bilinear", "zeros", False, (5, 40), formula=OF_NUMBERS)
    given = (image((2, 3, 5, 40), seed=1, low=-1.0), picture, entries, sampler, (True, False))
    ours, theirs = host.gradients(*given)[0], plain_torch.warp_gradients(*given)[0]
    assert ours is not None
    assert theirs is not None
    assert torch.allclose(ours, theirs, rtol=0, atol=1e-4)


def test_with_arithmetic_around() -> None:
    added = Binary("add", normalise(VALUE), Operand(0))
    for case in itertools.islice(cases("displacement", torch.uint8, "bilinear", WIDTHS), 4):
        program = Program(torch.uint8, case.sampler, Cast(VALUE, torch.float32), added, order="contiguous")
        channels = case.picture.shape[1]
        vectors = (torch.linspace(0, 1, channels), torch.linspace(0.5, 2, channels))
        tensor = image((*case.picture.shape[:2], *case.sampler.size), seed=4)
        inputs = (case.picture, case.entries, *vectors, tensor, *case.fields)
        expected = plain_torch.run(program, *inputs)
        assert torch.allclose(host.run(program, *inputs), expected, rtol=0, atol=0.02)
