"""Kernels of warps by formulas against the reference and the plain twin, in memory that ends where tensors do."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from polyphase.calls import binding, plain_torch
from polyphase.records.facts import facts
from polyphase.sampling import formulas, reference
from polyphase.sampling.pointwise import VALUE, Base, Binary, Cast, Constant, Operand, normalise
from polyphase.sampling.programs import Program, warp_program
from polyphase.sampling.warps import PADDINGS, Warp
from tests.cpu.conftest import Tell, in_a_child
from tests.cpu.test_launch import content
from tests.cpu.test_warp_kernels import laid_out
from tests.cpu.test_warp_memory_safety import Tensors
from tests.support.samples import image

pytestmark = pytest.mark.usefixtures("fresh_outputs")

#: How far a sum may be from the exact one: positions of floats are so inexact.
NEAR = {torch.float32: 2e-4, torch.float64: 1e-11}


class Case(NamedTuple):
    picture: Tensor
    entries: Tensor
    fields: list[Tensor]
    sampler: Warp


def cases(kind: str, dtype: torch.dtype, mode: str, widths: Sequence[int]) -> Iterator[Case]:
    every = zip(widths, itertools.cycle(PADDINGS), itertools.cycle(("CF", "CL", "among others")), strict=False)
    for number, (width, padding, layout) in enumerate(every):
        aligned, channels = number % 2 == 1, (1, 3, 4, 7)[number % 4]
        of_entries = torch.float64 if dtype == torch.float64 else torch.float32
        if kind == "homography":
            size: tuple[int, ...] = (3, width)
            picture = laid_out((2, channels, 6, 9), dtype, layout, number)
            away = image((2, 3, 3), of_entries, seed=number, low=-0.15, high=0.15)
            entries, fields = (torch.eye(3, dtype=of_entries) + away).flatten(1), []
            formula = formulas.homography()
        else:
            size = (2, 3, width) if kind == "volume" else (4, width)
            sizes = (3, 4, 7)[-len(size) :]
            picture = laid_out((2, channels, *sizes), dtype, layout, number)
            field = image((2 - number % 2, *size, len(size)), of_entries, seed=number, low=-3.0, high=3.0)
            entries, fields = torch.empty((2, 0), dtype=of_entries), list(field.unsqueeze(1).unbind(-1))
            if number % 3 == 0:
                fields = [one.contiguous() for one in fields]
            formula = formulas.displacement(sizes, aligned)
        yield Case(picture, entries, fields, Warp("formula", mode, padding, aligned, size, formula=formula))


#: Each is a kernel to be built, and one more for its gradients.
KINDS = [
    ("homography", torch.float32, "bilinear"),
    ("homography", torch.uint8, "nearest"),
    ("displacement", torch.float32, "bicubic"),
    ("displacement", torch.uint8, "bilinear"),
    ("volume", torch.float64, "bilinear"),
]
WIDTHS = (1, 2, 5, 31, 32, 33, 40, 64, 70, 97, 16, 47)


@pytest.mark.parametrize(("kind", "dtype", "mode"), KINDS)
def test_forward(instruction_set: str, kind: str, dtype: torch.dtype, mode: str) -> None:
    for case in cases(kind, dtype, mode, WIDTHS):
        ours = binding.warp(case.picture, case.entries, case.sampler, *case.fields)
        twin = plain_torch.warp(case.picture, case.entries, case.sampler, *case.fields, settled=True)
        if mode == "nearest":  # the same positions to the bit, but for a base coordinate's rounding
            assert (ours != twin).sum() <= ours.shape[1]
            continue
        program = warp_program(dtype, case.sampler)
        expected = reference.run(program, case.picture, entries=case.entries, fields=case.fields)
        near = 1.0 if dtype == torch.uint8 else NEAR[dtype]
        assert (ours.double() - expected.double()).abs().max() <= near
        if dtype == torch.uint8:
            assert (ours != expected).double().mean() < 0.01


@pytest.mark.parametrize(("kind", "dtype", "mode"), [one for one in KINDS if one[1] != torch.uint8])
def test_gradients(instruction_set: str, kind: str, dtype: torch.dtype, mode: str) -> None:
    for number, case in enumerate(cases(kind, dtype, mode, WIDTHS[:7])):
        picture, entries, fields, sampler = case
        shape = (*picture.shape[:2], *sampler.size)
        gradient = laid_out(shape, dtype, ("CF", "CL")[number % 2], number, low=-1.0)
        ours = binding.warp_gradients(gradient, picture, entries, sampler, (True, True), *fields)
        # Where it jumps, and whether a tap is inside, are as floats have it: so is what it is held against.
        theirs = plain_torch.warp_gradients(gradient, picture, entries, sampler, (True, True), fields)
        for one, other in zip(ours, theirs, strict=True):
            assert one is not None
            assert other is not None
            scale = max(1.0, float(other.abs().max())) if other.numel() else 1.0
            assert torch.allclose(one, other, rtol=0, atol=NEAR[dtype] * scale)


#: Nothing that coordinates depend on has a gradient, as where a library's coefficients were known when it was compiled.
OF_NUMBERS = formulas.Formula(
    (Binary("mul", Base(1), Constant(0)), Binary("add", Base(0), Constant(1))),
    (0.8, 0.1),
)


def test_the_image_alone_has_a_gradient_by_a_formula_of_numbers(instruction_set: str) -> None:
    picture, entries = image((2, 3, 6, 9)), torch.empty((2, 0))
    sampler = Warp("formula", "bilinear", "zeros", False, (5, 40), formula=OF_NUMBERS)
    gradient = image((2, 3, 5, 40), seed=1, low=-1.0)
    ours, _ = binding.warp_gradients(gradient, picture, entries, sampler, (True, False))
    theirs, _ = plain_torch.warp_gradients(gradient, picture, entries, sampler, (True, False))
    assert ours is not None
    assert theirs is not None
    assert torch.allclose(ours, theirs, rtol=0, atol=1e-4)


def test_no_gradient_where_a_homography_divides_by_zero(instruction_set: str) -> None:
    matrix = torch.tensor([[0.0, 0, 1, 0, 0, 1, 1, 0, 0]])  # (1, 1) by x, which is 0 in the middle column
    sampler = Warp("formula", padding="border", size=(3, 5), formula=formulas.homography())
    picture = image((1, 2, 4, 6))
    found = binding.warp(picture, matrix, sampler)
    assert torch.equal(found[..., 2], picture[..., -1:, -1].expand(1, 2, 3))
    gradients = binding.warp_gradients(torch.ones_like(found), picture, matrix, sampler, (True, True))
    assert all(one is not None and bool(one.isfinite().all()) for one in gradients)


def test_with_arithmetic_around(instruction_set: str) -> None:
    """Fields come after the tensors of the epilogue."""
    added = Binary("add", normalise(VALUE), Operand(0))
    for case in itertools.islice(cases("displacement", torch.uint8, "bilinear", WIDTHS), 6):
        program = Program(torch.uint8, case.sampler, Cast(VALUE, torch.float32), added, order="contiguous")
        channels = case.picture.shape[1]
        vectors = {0: torch.linspace(0, 1, channels), 1: torch.linspace(0.5, 2, channels)}
        tensor = image((*case.picture.shape[:2], *case.sampler.size), seed=4)
        inputs = (case.picture, case.entries, *vectors.values(), tensor, *case.fields)
        ours = binding.bound(program, tuple(map(facts, inputs))).fresh(*inputs)
        expected = reference.run(
            program, case.picture, entries=case.entries, fields=case.fields, channels=vectors, tensors={0: tensor}
        )
        assert torch.allclose(ours.double(), expected, rtol=0, atol=0.02)


@pytest.mark.parametrize("kind", ["homography", "displacement"])
def test_nothing_beyond_the_tensors(instruction_set: str, kind: str) -> None:
    dtype, mode = (torch.float32, "bilinear") if kind == "homography" else (torch.float32, "bicubic")

    def run(tell: Tell) -> None:
        torch.set_num_threads(1)
        tensors, of_gradients = Tensors(4, 1), Tensors(5, 3)
        for case, at_end in itertools.product(cases(kind, dtype, mode, range(1, 71, 3)), (True, False)):
            tell((case.sampler, case.picture.shape, at_end))
            ordinary = [case.picture, case.entries, *case.fields]
            expected = binding.warp(case.picture, case.entries, case.sampler, *case.fields)
            picture, entries, *fields = tensors.guarded(ordinary, at_end)
            (made, *_) = tensors.run(partial(binding.warp, picture, entries, case.sampler, *fields), at_end)
            assert content(made) == content(expected)
            gradient = image((*case.picture.shape[:2], *case.sampler.size), dtype)
            given, *rest = of_gradients.guarded([gradient, *ordinary], at_end)
            call = partial(binding.warp_gradients, given, rest[0], rest[1], case.sampler, (True, True), *rest[2:])
            of_gradients.run(call, at_end)

    in_a_child(run)
