"""Warps with a fill, by kernels of every instruction set, against the same mathematics in float64 and torchvision's own
operations in float32."""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections.abc import Iterator, Sequence

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from polyphase.calls import binding, plain_torch
from polyphase.sampling import warps
from polyphase.sampling.pointwise import VALUE, Binary, Cast, Number
from polyphase.sampling.programs import Program
from polyphase.sampling.warps import FILL_RULES, Warp
from tests.cpu.test_kernels import dealt, kinds, parts
from tests.cpu.test_warp_kernels import MOVED, WIDTHS, Case, cases, inner_cases, laid_out
from tests.support.samples import GRID_MODES, PIXELS, image

pytestmark = pytest.mark.usefixtures("fresh_outputs")

FILLS = (0.0, 200.0, 0.5, -3.25)


def filled_cases(dtype: torch.dtype, mode: str, axes: int, widths: Sequence[int] = WIDTHS[::2]) -> Iterator[Case]:
    chance = random.Random(f"{dtype} {mode} {axes}")
    for case in itertools.chain(cases(dtype, mode, axes, widths), inner_cases(dtype, mode, axes)):
        count = case.shape[1] if chance.random() < 0.5 else 1
        fill = tuple(chance.choice(FILLS) for _ in range(count))
        sampler = dataclasses.replace(case.sampler, padding="zeros", fill=fill, fill_rule=chance.choice(FILL_RULES))
        yield case._replace(sampler=sampler)


def exactly(picture: Tensor, coordinates: Tensor, sampler: Warp, shift: Sequence[float]) -> Tensor:
    """In float64, from positions as kernels find them: of a grid, in its own dtype."""
    wide = coordinates.double() if coordinates.dtype == torch.float64 else coordinates.float()
    if sampler.source == "affine":
        wide = warps.affine_grid(wide.double(), sampler.size, sampler.align_corners) + torch.tensor(shift).double()
    rules = sampler.mode, sampler.taps_padding, sampler.align_corners
    of = picture if sampler.mode == "nearest" else picture.to(wide.dtype)
    return warps.sample(of, wide, *rules, fill=sampler.fill, fill_rule=sampler.fill_rule)


def assert_right(ours: Tensor, picture: Tensor, coordinates: Tensor, sampler: Warp) -> None:
    """A matrix leads to positions that are rounded otherwise: where a pixel jumps, it may be on either side."""
    jumps = sampler.source == "affine" and (sampler.mode == "nearest" or sampler.fill_rule == "edge")
    axes = picture.dim() - 2
    shifts = [*itertools.product((-1e-5, 0.0, 1e-5), repeat=axes)] if jumps else [(0.0,) * axes]
    near = torch.zeros(ours.shape, dtype=torch.bool)
    single = coordinates.dtype != torch.float64
    largest = max(1.0, *map(abs, sampler.fill), float(picture.abs().double().max()) if picture.numel() else 0)
    for shift in shifts:
        exact = exactly(picture, coordinates, sampler, shift)
        if sampler.mode == "nearest":
            near |= ours == exact
            continue
        exact = exact.double()
        roundings = 64 + (16 * max(picture.shape[2:]) if sampler.source == "affine" else 0)
        allowed = torch.full_like(exact, roundings * (2**-23 if single else 2**-52) * largest)
        if picture.dtype == torch.uint8:
            exact, allowed = exact.clamp(0, 255), allowed + 0.5
        elif not (picture.dtype == torch.float64 or (picture.dtype == torch.float32 and single)):
            allowed += torch.finfo(picture.dtype).eps / 2 * exact.abs()
        allowed += 1e-4 * largest * max(picture.shape[2:]) if jumps else 0
        assert kinds(ours) == kinds(exact)
        near |= (ours.double() - exact).abs() <= allowed
    assert bool(near.all()), f"{int((~near).sum())} of {near.numel()} values are too far away"


def assert_case_right(case: Case) -> None:
    picture, coordinates = case.picture(), case.coordinates()
    try:
        assert_right(binding.warp(picture, coordinates, case.sampler), picture, coordinates, case.sampler)
    except AssertionError as error:
        raise AssertionError(f"{case}: {error}") from error


@parts
@pytest.mark.parametrize("dtype", PIXELS)
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_sums(instruction_set: str, mode: str, dtype: torch.dtype, part: int) -> None:
    for case in dealt(filled_cases(dtype, mode, 2), part, PIXELS.index(dtype)):
        assert_case_right(case)


@parts
@pytest.mark.parametrize("dtype", MOVED)
def test_moves(instruction_set: str, dtype: torch.dtype, part: int) -> None:
    for case in dealt(filled_cases(dtype, "nearest", 2), part, MOVED.index(dtype)):
        assert_case_right(case)


@pytest.mark.parametrize("dtype", [torch.uint8, pytest.param(torch.float64, marks=pytest.mark.full)])
@pytest.mark.parametrize("mode", GRID_MODES[3])
def test_volumes(instruction_set: str, mode: str, dtype: torch.dtype) -> None:
    for case in filled_cases(dtype, mode, 3, WIDTHS[::4]):
        assert_case_right(case)


# ---- as others have it


def by_torchvision(picture: Tensor, grid: Tensor, fill: Sequence[float]) -> Tensor:
    """Its operations, in its order."""
    mask = torch.ones(picture.shape[0], 1, *picture.shape[2:])
    sampled = F.grid_sample(torch.cat([picture.float(), mask], 1), grid, align_corners=False)
    colour = torch.tensor(fill).reshape(1, -1, 1, 1)
    return sampled[:, :-1].sub(colour).mul(sampled[:, -1:]).add(colour)


def turned_grid(size: tuple[int, int], degrees: float, of: tuple[int, int]) -> Tensor:
    """Many positions lie a little outside; shifted by half a pixel, sums are ties."""
    turn = torch.tensor(degrees).deg2rad()
    theta = torch.tensor([[[turn.cos(), -turn.sin(), 1 / of[1]], [turn.sin(), turn.cos(), 0]]])
    return F.affine_grid(theta, [1, 1, *size], align_corners=False)


@pytest.mark.parametrize("layout", ["CF", "CL"])
@pytest.mark.parametrize("degrees", [0.0, 30.0, 90.0])
def test_bytes_are_torchvisions(instruction_set: str, degrees: float, layout: str) -> None:
    picture = laid_out((1, 3, 61, 83), torch.uint8, layout, 1)
    grid = turned_grid((64, 96), degrees, (61, 83))
    for fill in ((0.0, 0.0, 0.0), (200.0, 13.0, 255.0), (0.5, 127.5, 33.25)):
        expected = by_torchvision(picture, grid, fill).round().to(torch.uint8)
        found = binding.warp(picture, grid, Warp("grid", fill=fill))
        apart = (found.int() - expected.int()).abs()
        assert apart.max() <= 1
        assert (apart != 0).double().mean() <= 0.002


@pytest.mark.parametrize("layout", ["CF", "CL"])
def test_inner_pixels_round_as_torchvisions(instruction_set: str, layout: str) -> None:
    """To the bit where sums are: at whole pixels, (s - fill) + fill rounds to float32 twice."""
    picture = laid_out((1, 3, 40, 64), torch.float32, layout, 2)
    grid = F.affine_grid(torch.eye(2, 3)[None], [1, 1, 40, 64], align_corners=False)
    fill = (1000.0, 0.1, -3.0)
    found = binding.warp(picture, grid, Warp("grid", fill=fill))
    colour = torch.tensor(fill).reshape(1, -1, 1, 1)
    assert torch.equal(found, (picture - colour) + colour)
    for rule in ("constant", "edge"):
        assert torch.equal(binding.warp(picture, grid, Warp("grid", fill=fill, fill_rule=rule)), picture)


def test_fractions_of_a_fill_are_kept_until_values_are_rounded(instruction_set: str) -> None:
    """With arithmetic around: the fill belongs to what is sampled, and goes through the epilogue."""
    picture = image((1, 3, 9, 40), torch.uint8)
    grid = turned_grid((9, 40), 20.0, (9, 40))
    half = Program(
        torch.uint8,
        Warp("grid", fill=(12.5, 100.0, 3.0)),
        prologue=Cast(VALUE, torch.float32),
        epilogue=Binary("mul", VALUE, Number(0.5)),
        order="contiguous",
    )
    torch.testing.assert_close(
        binding.run(half, picture, grid),
        by_torchvision(picture, grid, half.sampler.fill) * 0.5,  # type: ignore[union-attr]
    )


@pytest.mark.parametrize("rule", FILL_RULES)
@pytest.mark.parametrize("mode", ["bilinear", "bicubic", "nearest"])
def test_what_is_no_number_stays_where_it_is(instruction_set: str, mode: str, rule: str) -> None:
    """Infinite pixels, NaN coordinates, and a fill that is NaN: the plain twin's values."""
    picture = image((1, 2, 20, 70), torch.float32)
    picture[0, 0, 0, 0], picture[0, 1, 19, 69] = torch.inf, torch.nan
    grid = turned_grid((20, 70), 10.0, (20, 70))
    grid[0, 3, 5, 0], grid[0, 4, 66, 1], grid[0, 5, 7, 0] = torch.nan, torch.inf, -torch.inf
    fills = [(0.0,), (2.0, 3.0), *([] if rule == "blend" else [(torch.nan,)])]
    for fill in fills:
        sampler = Warp("grid", mode, fill=fill, fill_rule=rule)
        expected = plain_torch.warp(picture, grid, sampler, settled=True)
        torch.testing.assert_close(binding.warp(picture, grid, sampler), expected, equal_nan=True, rtol=1e-4, atol=1e-4)


def test_a_fill_is_no_part_of_a_kernel(instruction_set: str) -> None:
    from polyphase.cpu.emit import kernel_source
    from polyphase.kernels.plans import plan_warp

    programs = [
        Program(torch.uint8, Warp("grid", fill=fill, fill_rule=rule))
        for fill, rule in (((), "blend"), ((1.0,), "blend"), ((3.0, 4.0), "edge"))
    ]
    plans = [plan_warp(program, torch.float32, 2, instruction_set) for program in programs]
    assert len({kernel_source(plan) for plan in plans}) == 1
