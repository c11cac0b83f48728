"""Formulas of coordinates: as data and text, as torch operations, and their slopes against autograd."""

from __future__ import annotations

import pytest
import torch

from polyphase.errors import InvalidProgramError
from polyphase.sampling import formulas, warps
from polyphase.sampling.formulas import Formula, is_smooth, slope
from polyphase.sampling.pointwise import (
    VALUE,
    Base,
    Binary,
    Constant,
    Entry,
    Expression,
    Field,
    Number,
    Place,
    Unary,
)
from polyphase.sampling.templates import filled_warp
from polyphase.sampling.text import from_text, to_text
from polyphase.sampling.warps import Warp

SIZE = (3, 5)

#: A lens: (1 + k1 r^2 + k2 r^4) along both axes, and what else there is.
_R2 = Binary("add", Binary("mul", Base(0), Base(0)), Binary("mul", Base(1), Base(1)))
_LENS = Binary("add", Number(1.0), Binary("mul", _R2, Binary("add", Entry(0), Binary("mul", Entry(1), _R2))))
FORMULAS = {
    "homography": formulas.homography(),
    "displacement": formulas.displacement((7, 4), False),
    "aligned displacement": formulas.displacement((7, 4), True),
    "lens": Formula((Binary("mul", Base(1), _LENS), Binary("mul", Base(0), _LENS))),
    "roots": Formula(
        (
            Unary("sqrt", Binary("add", Binary("mul", Entry(0), Entry(0)), Constant(0))),
            Unary("neg", Binary("sub", Field(0), Binary("div", Place(1), Entry(2)))),
        ),
        (1.5,),
    ),
}


def given(formula: Formula, seed: int = 0) -> tuple[torch.Tensor, list[torch.Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    entries = torch.rand((2, formula.entries), dtype=torch.float64, generator=generator) + 0.5
    shapes = [(2, 1, *SIZE), (1, 1, *SIZE), (2, 1, SIZE[0], 1)]
    fields = [torch.rand(shapes[f % 3], dtype=torch.float64, generator=generator) for f in range(formula.fields)]
    return entries, fields


@pytest.mark.parametrize("name", FORMULAS)
def test_text_and_back(name: str) -> None:
    warp = Warp("formula", size=SIZE, formula=FORMULAS[name])
    assert from_text(to_text(warp)) == warp


def test_sizes_are_slots() -> None:
    text = "warp(formula, size=[size0, size1], formula=formula([div(place(1), constant(0)), base(0)], numbers=[size1]))"
    assert to_text(from_text(text)) == text
    filled = filled_warp(from_text(text), (3, 5))
    assert filled == Warp(
        "formula", size=(3, 5), formula=Formula((Binary("div", Place(1), Constant(0)), Base(0)), (5,))
    )


def test_a_matrix_is_a_formula() -> None:
    theta = torch.tensor([[[0.9, 0.2, 0.1], [-0.3, 1.1, 0.0]]], dtype=torch.float64)
    entries = torch.cat([theta.flatten(1), torch.tensor([[0.0, 0.0, 1.0]], dtype=torch.float64)], 1)
    for aligned in (False, True):
        grid = formulas.coordinates(formulas.homography(), SIZE, entries, [], aligned)
        assert torch.allclose(grid, warps.affine_grid(theta, SIZE, aligned), rtol=0, atol=1e-15)


@pytest.mark.parametrize("aligned", [False, True])
def test_no_displacement_leads_to_the_same_pixel(aligned: bool) -> None:
    formula = formulas.displacement(SIZE, aligned)
    still = [torch.zeros((1, 1, 1, 1), dtype=torch.float64)] * 2
    grid = formulas.coordinates(formula, SIZE, torch.empty((1, 0), dtype=torch.float64), still, aligned)
    image = torch.rand((1, 2, *SIZE), dtype=torch.float64)
    assert torch.allclose(warps.sample(image, grid, "bilinear", "zeros", aligned), image, rtol=0, atol=1e-14)


@pytest.mark.parametrize("name", FORMULAS)
def test_slopes(name: str) -> None:
    formula = FORMULAS[name]
    assert is_smooth(formula)
    entries, fields = given(formula)

    def each(expression: Expression) -> torch.Tensor:
        """An expression, for every pixel."""
        both = Formula((expression,) * 2, formula.numbers)
        return formulas.coordinates(both, SIZE, entries, fields, False)[..., 0]

    entries.requires_grad_()
    for axis, expression in enumerate(formula.axes):
        found = each(expression)
        for n in range(formula.entries):
            (expected,) = torch.autograd.grad(found.sum(), entries, retain_graph=True, allow_unused=True)
            ours = each(slope(expression, Entry(n))).sum((1, 2))
            theirs = torch.zeros(2) if expected is None else expected[:, n]
            assert torch.allclose(ours, theirs.double(), atol=1e-12), (axis, n)
        for slot, field in enumerate(fields):
            field.requires_grad_()
            found = each(expression)
            if not found.requires_grad:
                continue
            (expected,) = torch.autograd.grad(found.sum(), field, allow_unused=True)
            ours = each(slope(expression, Field(slot)))[:, None].sum_to_size(field.shape)
            assert torch.allclose(ours, torch.zeros_like(field) if expected is None else expected, atol=1e-12), slot


def test_what_has_kinks_is_not_smooth() -> None:
    clipped = Binary("minimum", Entry(0), Number(1.0))
    assert not is_smooth(Formula((clipped, Base(0))))
    assert is_smooth(Formula((Binary("maximum", Constant(0), Number(1.0)), Base(0)), (2.0,)))


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        ((VALUE, Base(0)), "in the coordinates of a warp"),
        ((Base(0), Base(2)), "reads no others"),
        ((Constant(0), Base(0)), "reads numbers"),
        ((Base(0),), "2 or 3 axes"),
    ],
)
def test_bad_formulas(axes: tuple[Expression, ...], message: str) -> None:
    with pytest.raises(InvalidProgramError, match=message):
        Formula(axes)


def test_a_warp_has_a_formula_or_none() -> None:
    for source, size, formula in (
        ("grid", (), formulas.homography()),
        ("formula", SIZE, None),
        ("formula", (2, 3, 4), formulas.homography()),
    ):
        with pytest.raises(InvalidProgramError):
            Warp(source, size=size, formula=formula)
