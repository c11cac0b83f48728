"""Attention at sampled places by the CPU's kernels gives what the plain twin gives, in memory of its own."""

from __future__ import annotations

import math
import mmap
import random
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from polyphase.calls import attention as kernels
from polyphase.calls.attention import Gradients
from polyphase.sampling.attention import Attention
from tests.cpu.conftest import Tell, in_a_child, run_sanitised
from tests.cpu.test_memory_safety import Arena, protect
from tests.support.threads import assert_same_by_threads

#: Less than a vector, whole vectors of any set, several of them and something behind.
CHANNELS = (1, 2, 3, 5, 8, 15, 16, 17, 31, 32, 33, 48, 64, 65, 100, 130)
SIZES: tuple[tuple[int, int], ...] = ((8, 9), (1, 1), (5, 1), (1, 6), (3, 4))


@dataclass(frozen=True)
class Case:
    """around: how far places go, where the plane's edges are 1."""

    batch: int
    heads: int
    channels: int
    queries: int
    attention: Attention
    around: float = 1.3
    dtype: torch.dtype = torch.float32

    def inputs(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """A value, places, weights, and a gradient of the output."""
        made = torch.Generator().manual_seed(self.channels + self.queries)
        pixels, points = sum(h * w for h, w in self.attention.sizes), sum(self.attention.points)
        shapes = (
            (self.batch, pixels, self.heads, self.channels),
            (self.batch, self.queries, self.heads, points, 2),
            (self.batch, self.queries, self.heads, points),
            (self.batch, self.queries, self.heads, self.channels),
        )
        value, places, weights, gradient = (torch.randn(shape, generator=made).to(self.dtype) for shape in shapes)
        return value, torch.tanh(places) * self.around, weights, gradient


def drawn(count: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> list[Case]:
    draw, found = random.Random(seed), []
    for number in range(count):
        levels = draw.randint(1, len(SIZES))
        sizes = tuple(draw.sample(SIZES, levels))
        points = tuple(draw.choice([0, 1, 3, 4, 8, 17, 40]) for _ in sizes)
        attention = Attention(sizes, points, draw.random() < 0.3)
        channels = CHANNELS[number % len(CHANNELS)]
        found.append(
            Case(draw.randint(1, 3), draw.randint(1, 4), channels, draw.choice([1, 2, 65]), attention, dtype=dtype)
        )
    return found


def near(found: Tensor, wanted: Tensor, dtype: torch.dtype) -> None:
    tolerance = {torch.float32: 2e-5, torch.float64: 1e-12}.get(dtype, 0.0)
    scale = 1 + wanted.nan_to_num(0.0, 0.0, 0.0).abs().max().item() if wanted.numel() else 1.0
    torch.testing.assert_close(found.double(), wanted.double(), rtol=tolerance, atol=tolerance * scale, equal_nan=True)


def all_of(case: Case) -> tuple[Tensor, ...]:
    """The output and the gradients, by kernels."""
    value, places, weights, gradient = case.inputs()
    out = kernels.attend(value, places, weights, case.attention)
    return out, *_present(kernels.gradients(gradient, value, places, weights, case.attention, True))


def _present(found: Gradients) -> tuple[Tensor, ...]:
    return tuple(one for one in found if one is not None)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_as_the_plain_twin(instruction_set: str, dtype: torch.dtype) -> None:
    for case in drawn(48, dtype=dtype):
        value, places, weights, gradient = case.inputs()
        out, *found = all_of(case)
        near(out, kernels.plainly(value, places, weights, case.attention), dtype)
        wanted = kernels.plain_gradients(gradient, value, places, weights, case.attention)
        for one, other in zip(found, _present(wanted), strict=True):
            near(one, other, dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_as_near_to_the_truth_as_torch(instruction_set: str, dtype: torch.dtype) -> None:
    case = Case(2, 2, 32, 50, Attention(((16, 16), (8, 8)), (4, 4)), 0.95, dtype)
    value, places, weights, _ = case.inputs()
    truth = kernels.plainly(value.double(), places.double(), weights.double(), case.attention)
    ours = kernels.attend(value, places, weights, case.attention).double()
    theirs = eager(value, places, weights, case.attention).double()
    assert (ours - truth).abs().mean() <= 1.05 * (theirs - truth).abs().mean()
    assert (ours - truth).abs().max() <= 1.05 * (theirs - truth).abs().max()


def test_gradients_as_near_to_the_truth_as_torch(instruction_set: str) -> None:
    """Of values that are much alike, whose differences are slopes."""
    case = Case(1, 2, 32, 200, Attention(((16, 16), (8, 8)), (4, 4)), 0.95)
    value, places, weights, gradient = (one.abs() if one.dim() == 4 else one for one in case.inputs())
    given = [one.requires_grad_() for one in (value + 10, places, weights)]
    theirs = torch.autograd.grad(eager(given[0], given[1], given[2], case.attention), given, gradient)
    ours = kernels.gradients(gradient, given[0].detach(), given[1].detach(), given[2].detach(), case.attention, True)
    wide = [one.detach().double() for one in given]
    truth = kernels.plain_gradients(gradient.double(), wide[0], wide[1], wide[2], case.attention)
    for found, eagers, true in zip(ours, theirs, truth, strict=True):
        assert found is not None
        assert true is not None
        assert (found - true).abs().mean() <= 1.05 * (eagers - true).abs().mean()


def eager(value: Tensor, places: Tensor, weights: Tensor, attention: Attention) -> Tensor:
    """As models have it."""
    batch, _, heads, channels = value.shape
    samples = []
    for level in attention.levels():
        pixels = value[:, level.first_pixel : level.first_pixel + level.height * level.width]
        planes = pixels.permute(0, 2, 3, 1).reshape(batch * heads, channels, level.height, level.width)
        grid = places[:, :, :, level.first_point : level.first_point + level.points].transpose(1, 2).flatten(0, 1)
        samples.append(torch.nn.functional.grid_sample(planes, grid, align_corners=attention.align_corners))
    by_head = weights.transpose(1, 2).flatten(0, 1)[:, None]
    summed = (torch.cat(samples, -1) * by_head).sum(-1)
    return summed.view(batch, heads, channels, -1).permute(0, 3, 1, 2)


@pytest.mark.parametrize("align_corners", [False, True])
def test_places_that_are_no_numbers(instruction_set: str, align_corners: bool) -> None:
    """As eager has them, whose samples are NaN where a place is, or is infinite."""
    case = Case(1, 2, 20, 9, Attention(((5, 6), (3, 3)), (3, 3), align_corners))
    value, places, weights, gradient = case.inputs()
    special = torch.tensor([math.nan, math.inf, -math.inf, 1e30, -1e30, 1.0, -1.0, 0.0])
    places.view(-1)[::5] = special.repeat(places.numel() // 40 + 1)[: len(places.view(-1)[::5])]
    given = [one.clone().requires_grad_() for one in (value, places, weights)]
    wanted = eager(given[0], given[1], given[2], case.attention)
    near(kernels.attend(value, places, weights, case.attention), wanted.detach(), torch.float32)
    assert wanted.isnan().any()
    assert not wanted.isnan().all()
    found = _present(kernels.gradients(gradient, value, places, weights, case.attention, True))
    for one, other in zip(found, torch.autograd.grad(wanted, given, gradient), strict=True):
        near(one, other, torch.float32)


def test_pixels_of_weight_0_are_not_read(instruction_set: str) -> None:
    attention = Attention(((2, 3),), (2,), True)
    value = torch.full((1, 6, 1, 19), math.nan)
    value[:, 0], value[:, 2] = 1.0, 3.0
    places = torch.tensor([[-1.0, -1.0], [1.0, -1.0]]).reshape(1, 1, 1, 2, 2)
    weights = torch.ones(1, 1, 1, 2)
    assert torch.equal(kernels.attend(value, places, weights, attention), torch.full((1, 1, 1, 19), 4.0))
    value[:, 1], value[:, 3:] = math.inf, math.inf
    found = kernels.gradients(torch.ones(1, 1, 1, 19), value, places, weights, attention, True)
    assert torch.equal(found.weights, torch.tensor([19.0, 57.0]).view(1, 1, 1, 2))
    assert found.value is not None
    assert found.value.sum() == 38


def test_any_strides(instruction_set: str) -> None:
    """Of the value and the gradient, whose channels lie side by side or not; places and weights are made dense."""
    case = Case(2, 3, 24, 7, Attention(((4, 5), (2, 2)), (2, 3)))
    value, places, weights, gradient = case.inputs()
    wanted = all_of(case)
    wide = torch.full((2, 26, 6, 30), math.nan)
    wide[:, 1:25, ::2, 3:27].copy_(value)
    by_heads = gradient.permute(0, 2, 1, 3).contiguous().permute(0, 2, 1, 3)
    by_queries = gradient.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)
    given = (places.flip(-1).contiguous().flip(-1), weights.transpose(1, 2).contiguous().transpose(1, 2))
    for one in (wide[:, 1:25, ::2, 3:27], value.transpose(1, 3).contiguous().transpose(1, 3)):
        assert torch.equal(kernels.attend(one, *given, case.attention), wanted[0])
        for other in (by_heads, by_queries):
            found = _present(kernels.gradients(other, one, *given, case.attention, True))
            assert all(torch.equal(a, b) for a, b in zip(found, wanted[1:], strict=True))
            assert all(a.is_contiguous() for a in found)


def test_the_same_bits_by_any_number_of_threads(instruction_set: str) -> None:
    case = Case(3, 4, 40, 200, Attention(((8, 9), (3, 4)), (4, 5)))
    assert_same_by_threads(lambda: all_of(case))


def test_nothing_to_do() -> None:
    attention = Attention(((2, 3),), (2,))
    for batch, queries, heads, channels in ((0, 3, 2, 4), (2, 0, 2, 4), (2, 3, 0, 4), (2, 3, 2, 0)):
        case = Case(batch, heads, channels, queries, attention)
        value, places, weights, _ = case.inputs()
        out, *found = all_of(case)
        assert out.shape == (batch, queries, heads, channels)
        assert [one.shape for one in found] == [value.shape, places.shape, weights.shape]
        assert not any(one.any() for one in found)
    no_points = Case(2, 3, 4, 5, Attention(((2, 3),), (0,)))
    assert not all_of(no_points)[0].any()


def test_the_values_gradient_may_not_be_asked_for(instruction_set: str) -> None:
    case = Case(2, 3, 24, 7, Attention(((4, 5),), (2,)))
    value, places, weights, gradient = case.inputs()
    found = kernels.gradients(gradient, value, places, weights, case.attention, False)
    wanted = kernels.gradients(gradient, value, places, weights, case.attention, True)
    assert found.value is None
    assert torch.equal(found.places, wanted.places)
    assert torch.equal(found.weights, wanted.weights)


# ---- memory


class Roomy(Arena):
    PAGES = 400


def test_nothing_beyond_the_tensors(instruction_set: str) -> None:
    in_a_child(_sweep)


def _sweep(tell: Tell) -> None:
    torch.set_num_threads(1)
    arenas = [Roomy() for _ in range(4)]
    for case in drawn(64, seed=1):
        tell(case)
        wanted = all_of(case)
        for at_end in (True, False):
            given = [arena.tensor(one, at_end) for arena, one in zip(arenas, case.inputs(), strict=True)]
            for one, other in zip(given, case.inputs(), strict=True):
                one.copy_(other)
            for arena in arenas:
                protect(arena.first, arena.PAGES * mmap.PAGESIZE, mmap.PROT_READ)
            value, places, weights, gradient = given
            out = kernels.attend(value, places, weights, case.attention)
            found = out, *_present(kernels.gradients(gradient, value, places, weights, case.attention, True))
            for arena in arenas:
                protect(arena.first, arena.PAGES * mmap.PAGESIZE, mmap.PROT_READ | mmap.PROT_WRITE)
            assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))


def test_with_sanitisers() -> None:
    """Results too: torch's memory is the sanitiser's there."""
    run_sanitised(f"from {__name__} import run_all\nrun_all()")


def run_all() -> None:
    torch.set_num_threads(1)
    for case in drawn(24, seed=2):
        print(case, flush=True)
        all_of(case)
    value, places, weights, gradient = Case(1, 1, 5, 7, Attention(((3, 4),), (2,))).inputs()
    for special in (math.nan, math.inf, -3e38, 1e10):
        print(special, flush=True)
        places.fill_(special)
        kernels.attend(value, places, weights, Attention(((3, 4),), (2,)))
        kernels.gradients(gradient, value, places, weights, Attention(((3, 4),), (2,)), True)
