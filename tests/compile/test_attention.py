"""Attention at sampled places, as models write it in plain PyTorch, becomes one kernel; and what does not, and why."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.fx import GraphModule

import polyphase
from polyphase.compile.attention.replace import Attended, with_attention
from polyphase.compile.reasons import NotFused, Why
from tests.compile.running import check, check_gradients, compiled, elements_saved, launches

Sizes: TypeAlias = Sequence[tuple[int, int]]
SIZES: Sizes = ((6, 7), (3, 4), (2, 2))
POINTS = 5


def inputs(
    batch: int = 2,
    queries: int = 9,
    sizes: Sizes = SIZES,
    dtype: torch.dtype = torch.float32,
    heads: int = 3,
    channels: int = 8,
) -> tuple[Tensor, Tensor, Tensor]:
    value = torch.randn(batch, sum(h * w for h, w in sizes), heads, channels, dtype=dtype)
    shape = (batch, queries, heads, len(sizes), POINTS)
    return value, torch.rand(*shape, 2, dtype=dtype) * 1.2 - 0.1, torch.rand(shape, dtype=dtype)


def samples(value: Tensor, places: Tensor, sizes: Sizes, **options: Any) -> list[Tensor]:
    n, _, heads, dim = value.shape
    grids = 2 * places - 1
    found = []
    for level, (one, (h, w)) in enumerate(zip(value.split([h * w for h, w in sizes], 1), sizes, strict=True)):
        plane = one.flatten(2).transpose(1, 2).reshape(n * heads, dim, h, w)
        grid = grids[:, :, :, level].transpose(1, 2).flatten(0, 1)
        found.append(F.grid_sample(plane, grid, **{"align_corners": False, **options}))
    return found


def deformable_detr(value: Tensor, places: Tensor, weights: Tensor, sizes: Sizes = SIZES) -> Tensor:
    """As in Deformable DETR, Grounding DINO, Mask2Former, RT-DETR."""
    n, _, heads, dim = value.shape
    _, queries, _, levels, points, _ = places.shape
    weights = weights.transpose(1, 2).reshape(n * heads, 1, queries, levels * points)
    products = torch.stack(samples(value, places, sizes), dim=-2).flatten(-2) * weights
    return products.sum(-1).view(n, heads * dim, queries).transpose(1, 2).contiguous()


def not_contiguous(value: Tensor, places: Tensor, weights: Tensor) -> Tensor:
    """Its result lies as the sum does."""
    n, _, heads, dim = value.shape
    _, queries, _, levels, points, _ = places.shape
    weights = weights.transpose(1, 2).reshape(n * heads, 1, queries, levels * points)
    products = torch.stack(samples(value, places, SIZES), dim=-2).flatten(-2) * weights
    return products.sum(-1).view(n, heads * dim, queries).transpose(1, 2)


def sum_itself(value: Tensor, places: Tensor, weights: Tensor) -> Tensor:
    weights = weights.transpose(1, 2).flatten(0, 1).flatten(-2)[:, None]
    return (torch.stack(samples(value, places, SIZES), dim=-2).flatten(-2) * weights).sum(dim=-1)


def second_version(value: Tensor, places: Tensor, weights: Tensor) -> Tensor:
    """As in RT-DETR v2: points of all levels in one dimension."""
    n, _, heads, dim = value.shape
    queries, counts = places.shape[1], [POINTS] * len(SIZES)
    values = value.permute(0, 2, 3, 1).flatten(0, 1).split([h * w for h, w in SIZES], dim=-1)
    grids = (2 * places.flatten(3, 4) - 1).permute(0, 2, 1, 3, 4).flatten(0, 1).split(counts, dim=-2)
    found = [
        F.grid_sample(one.reshape(n * heads, dim, h, w), grid, align_corners=False)
        for one, grid, (h, w) in zip(values, grids, SIZES, strict=True)
    ]
    weights = weights.flatten(3).permute(0, 2, 1, 3).reshape(n * heads, 1, queries, sum(counts))
    summed = (torch.concat(found, dim=-1) * weights).sum(-1).view(n, heads * dim, queries)
    return summed.transpose(1, 2).contiguous()


def levels_in_a_dimension(value: Tensor, places: Tensor, weights: Tensor) -> Tensor:
    """Stacked, multiplied and summed as they are, weights first; by slices, in another order, with aligned corners."""
    n, _, heads, dim = value.shape
    found, begin = [], 0
    for level, (h, w) in enumerate(SIZES):
        plane = value[:, begin : begin + h * w].permute(0, 2, 3, 1).reshape(-1, dim, h, w)
        grid = (places.transpose(1, 2)[:, :, :, level].flatten(0, 1) - 0.5) * 2
        found.append(torch.grid_sampler(plane, grid, 0, 0, True))
        begin += h * w
    stacked = torch.stack(found, dim=2)
    weights = weights.transpose(1, 2).flatten(0, 1).transpose(1, 2)[:, None]
    summed = (weights * stacked).sum(dim=(2, 4)).unflatten(0, (n, heads))
    result: Tensor = summed.permute(0, 3, 1, 2).flatten(2)
    return result


def flat_value(value: Tensor, places: Tensor, weights: Tensor) -> Tensor:
    """Of a projection, which is viewed by heads within; what follows is read too."""
    n, pixels, heads, dim = value.shape
    projected = (value.flatten(2) * 1.5).view(n, pixels, heads, dim)
    attended = deformable_detr(projected, places, torch.softmax(weights.flatten(3), -1).view_as(weights))
    return F.linear(attended, torch.eye(24))


def grids_as_given(value: Tensor, places: Tensor, weights: Tensor) -> Tensor:
    n, _, heads, dim = value.shape
    found = [
        F.grid_sample(
            one.permute(0, 2, 3, 1).reshape(n * heads, dim, h, w),
            at.transpose(1, 2).flatten(0, 1),
            align_corners=False,
        )
        for one, at, (h, w) in zip(value.split([h * w for h, w in SIZES], 1), places.unbind(3), SIZES, strict=True)
    ]
    products = torch.cat(found, -1) * weights.transpose(1, 2).flatten(0, 1).flatten(2).unsqueeze(1)
    return products.sum(-1).sum()


def written_later(value: Tensor, places: Tensor, weights: Tensor) -> Tensor:
    """What is written to is a product, which is made again."""
    value = value * 2
    by = weights.transpose(1, 2).flatten(0, 1).flatten(2)[:, None] / 3
    found = torch.cat(samples(value, places, SIZES), -1)
    value.mul_(0)
    return (found * by).sum(-1) + value.sum()


FORMS = (
    *(deformable_detr, not_contiguous, sum_itself, second_version),
    *(levels_in_a_dimension, flat_value, grids_as_given, written_later),
)


def found_in(function: Callable[..., Any], *given: Any, dynamic: bool = False) -> list[Attended | NotFused]:
    found: list[Attended | NotFused] = []

    def backend(graph: GraphModule, _: object) -> Callable[..., Any]:
        found.extend(with_attention(graph))
        left = [node for node in graph.graph.nodes if node.target in (F.grid_sample, torch.grid_sampler)]
        assert bool(left) != any(isinstance(one, Attended) for one in found)
        return graph.forward

    torch.compile(function, backend=backend, dynamic=dynamic)(*given)
    return found


def test_is_found() -> None:
    for function in FORMS:
        for batch in (1, 2):
            torch._dynamo.reset()
            (one,) = found_in(function, *inputs(batch, queries=4 if batch == 1 else 9))
            assert isinstance(one, Attended), (function, one)
            assert one.levels == 3


@pytest.mark.parametrize(("function", "batch"), [*((one, 2) for one in FORMS), (deformable_detr, 1), (sum_itself, 1)])
def test_is_the_same(function: Callable[..., Tensor], batch: int) -> None:
    """Results and their strides, and gradients; by one kernel forward and one backward."""
    given = inputs(batch, queries=4 if batch == 1 else 9)
    run = compiled(function)
    _, count = launches(lambda: check_gradients(function, *given, run=run))
    assert count == 2


@pytest.mark.parametrize("sizes", [((5, 6),), ((1, 1), (4, 3)), ((1, 4), (3, 1), (1, 1), (1, 2))])
def test_few_levels_and_small_ones(sizes: Sizes) -> None:
    given = inputs(sizes=sizes)

    def function(value: Tensor, places: Tensor, weights: Tensor) -> Tensor:
        return deformable_detr(value, places, weights, sizes)

    (one,) = found_in(function, *given)
    assert isinstance(one, Attended), one
    torch._dynamo.reset()
    check_gradients(function, *given, run=compiled(function))


def test_no_samples_are_kept_for_the_backward() -> None:
    given = inputs(queries=500)
    kept = elements_saved(compiled(deformable_detr), *given)
    assert max(kept) == given[1].numel()
    samples_in_all = given[1].numel() // 2 * given[0].shape[-1]
    assert sum(elements_saved(deformable_detr, *given)) > samples_in_all


def test_any_sizes_without_a_new_graph() -> None:
    """Batches, queries and levels that are left open: one graph and one kernel for all."""

    def function(value: Tensor, places: Tensor, weights: Tensor, sizes: Sizes) -> Tensor:
        return deformable_detr(value, places, weights, sizes)

    calls = [
        (2, 9, ((6, 7), (3, 4), (2, 5))),
        (3, 11, ((8, 9), (5, 6), (3, 7))),
        (5, 4, ((11, 3), (4, 8), (6, 2))),
        (7, 23, ((5, 17), (9, 6), (4, 3))),
    ]
    run = compiled(function, dynamic=True)
    for number, (batch, queries, sizes) in enumerate(calls):
        given = inputs(batch, queries, sizes)
        if number < 2:
            torch.testing.assert_close(run(*given, sizes), function(given[0], given[1], given[2], sizes))
            continue
        with torch._dynamo.config.patch(error_on_recompile=True):
            result, count = launches(run, *given, sizes)
        assert count == 1
        torch.testing.assert_close(result, function(given[0], given[1], given[2], sizes))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_other_floats(dtype: torch.dtype) -> None:
    given = inputs(dtype=dtype, channels=16)
    result, count = launches(compiled(deformable_detr), *given)
    assert count == 1
    value, places, weights = (one.double() for one in given)
    truth, theirs = deformable_detr(value, places, weights), deformable_detr(*given)
    assert result.dtype == dtype
    if dtype == torch.float64:
        torch.testing.assert_close(result, theirs)
    else:
        assert (result - truth).abs().mean() <= 1.05 * (theirs - truth).abs().mean()


def test_without_gradients_and_under_autocast() -> None:
    """Under autocast linear layers give 16-bit floats, and eager samples floats: what is found has its dtypes."""
    layer = torch.nn.Linear(24, 24)

    def function(value: Tensor, places: Tensor, weights: Tensor) -> Tensor:
        projected = layer(value.flatten(2)).unflatten(2, (3, 8))
        return deformable_detr(projected, places, weights)

    given = inputs()
    run = compiled(function)
    with torch.no_grad():
        check(function, *given, run=run)
    for enabled in (False, True):
        torch._dynamo.reset()
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            wanted, found = function(*given), compiled(function)(*given)
            assert found.dtype == wanted.dtype
            torch.testing.assert_close(found, wanted, rtol=2e-2 if enabled else None, atol=2e-2 if enabled else None)


# ---- what is not


def border(value: Tensor, places: Tensor, weights: Tensor) -> Tensor:
    by = weights.transpose(1, 2).flatten(0, 1).flatten(2)[:, None]
    return (torch.cat(samples(value, places, SIZES, padding_mode="border"), -1) * by).sum(-1)


def nearest(value: Tensor, places: Tensor, weights: Tensor) -> Tensor:
    by = weights.transpose(1, 2).flatten(0, 1).flatten(2)[:, None]
    return (torch.cat(samples(value, places, SIZES, mode="nearest"), -1) * by).sum(-1)


def over_queries(value: Tensor, places: Tensor, weights: Tensor) -> Tensor:
    by = weights.transpose(1, 2).flatten(0, 1).flatten(2)[:, None]
    return (torch.cat(samples(value, places, SIZES), -1) * by).sum(2)


def by_channels(value: Tensor, places: Tensor, weights: Tensor) -> Tensor:
    return (torch.cat(samples(value, places, SIZES), -1) * torch.arange(8.0)[:, None, None]).sum(-1)


def other_order(value: Tensor, places: Tensor, weights: Tensor) -> Tensor:
    by = weights.transpose(1, 2).flatten(0, 1).flatten(2)[:, None]
    return (torch.cat(samples(value, places, SIZES)[::-1], -1) * by).sum(-1)


def squared(value: Tensor, places: Tensor, weights: Tensor) -> Tensor:
    by = weights.transpose(1, 2).flatten(0, 1).flatten(2)[:, None]
    return (torch.cat(samples(value, places, SIZES), -1) ** 2 * by).sum(-1)


def without_a_level(value: Tensor, places: Tensor, weights: Tensor) -> Tensor:
    by = weights.transpose(1, 2).flatten(0, 1)[:, :, :2].flatten(2)[:, None]
    return (torch.cat(samples(value, places, SIZES)[:2], -1) * by).sum(-1)


def several_values(value: Tensor, places: Tensor, weights: Tensor) -> Tensor:
    by = weights.transpose(1, 2).flatten(0, 1).flatten(2)[:, None]
    first, *others = samples(value, places, SIZES)
    return (torch.cat([first, *samples(value.exp(), places, SIZES)[1:]], -1) * by).sum(-1) + len(others)


def detached(value: Tensor, places: Tensor, weights: Tensor) -> Tensor:
    by = weights.transpose(1, 2).flatten(0, 1).flatten(2)[:, None]
    return (torch.cat(samples(value, places, SIZES), -1).detach() * by).sum(-1)


def written_between(value: Tensor, places: Tensor, weights: Tensor) -> Tensor:
    value = value.sigmoid()
    by = weights.transpose(1, 2).flatten(0, 1).flatten(2)[:, None]
    found = torch.cat(samples(value, places, SIZES), -1)
    value.mul_(0)
    return (found * by).sum(-1) + value.sum()


NOT_ATTENTION = (
    *(border, nearest, over_queries, by_channels, other_order),
    *(squared, without_a_level, several_values, detached),
)


@pytest.mark.parametrize("function", NOT_ATTENTION)
def test_what_is_something_else(function: Callable[..., Tensor]) -> None:
    given = [one.requires_grad_() for one in inputs()]
    (one,) = found_in(function, *given)
    assert isinstance(one, NotFused)
    assert one.why is Why.NOT_ATTENTION
    torch._dynamo.reset()
    check(function, *inputs(), run=compiled(function))


def test_what_is_written_between() -> None:
    (one,) = found_in(written_between, *inputs())
    assert isinstance(one, NotFused)
    assert one.why is Why.MUTATION_BETWEEN
    torch._dynamo.reset()
    check(written_between, *inputs(), run=compiled(written_between))


def read_by_others(value: Tensor, places: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    by = weights.transpose(1, 2).flatten(0, 1).flatten(2)[:, None]
    products = torch.cat(samples(value, places, SIZES), -1) * by
    return products.sum(-1), products.mean()


def no_sum(value: Tensor, places: Tensor, weights: Tensor) -> Tensor:
    return torch.cat(samples(value, places, SIZES), -1)


@pytest.mark.parametrize("function", [read_by_others, no_sum])
def test_samples_that_are_needed(function: Callable[..., Any]) -> None:
    assert not found_in(function, *inputs())
    torch._dynamo.reset()
    check(function, *inputs(), run=compiled(function))


@pytest.mark.parametrize("shape", [{"batch": 0}, {"queries": 0}])
def test_nothing_to_sum(shape: dict[str, int]) -> None:
    given = inputs(**shape)  # type: ignore[arg-type]
    assert not found_in(deformable_detr, *given)
    torch._dynamo.reset()
    assert torch.equal(compiled(deformable_detr)(*given), deformable_detr(*given))


def test_it_is_explained() -> None:
    text = str(polyphase.explain(deformable_detr)(*inputs()))
    assert "1 kernel of ours" in text
    assert "ours, by its operator: polyphase.attention.default" in text
    assert "one sum over the points of 3 levels; no sample is in memory" in text
    assert "grid_sample, " in text
    assert str(Why.NOT_ATTENTION.value) in str(polyphase.explain(squared)(*inputs()))
