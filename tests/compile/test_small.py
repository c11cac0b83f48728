"""What computes a warp's matrix: constants once, products of small matrices as arithmetic; and what is left alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch._inductor.utils import run_and_get_code

from tests.compile.graphs import simplified
from tests.compile.running import compiled

IMAGE = torch.rand(2, 3, 12, 17)
MATRIX = torch.eye(3).repeat(2, 1, 1) + torch.rand(2, 3, 3) / 8


def scaling(height: int, width: int) -> Tensor:
    """As libraries make it of sizes: a tensor that numbers are put into, and its inverse."""
    zero = torch.zeros(())
    rows = [
        torch.stack([zero + 2 / (width - 1), zero, zero - 1]),
        torch.stack([zero, zero + 2 / (height - 1), zero - 1]),
    ]
    return torch.stack([*rows, torch.stack([zero, zero, zero + 1])])[None]


def warped(x: Tensor, theta: Tensor) -> Tensor:
    return F.grid_sample(x, F.affine_grid(theta, list(x.shape), align_corners=False), align_corners=False)


def normalised(x: Tensor, matrix: Tensor) -> Tensor:
    to = scaling(*x.shape[-2:])
    return warped(x, (to @ (matrix @ torch.linalg.inv_ex(to)[0]))[:, :2])


def solved(x: Tensor, matrix: Tensor) -> Tensor:
    to = torch.linalg.inv_ex(scaling(*x.shape[-2:]))[0]
    return warped(x, torch.linalg.solve(to, matrix)[:, :2])


def with_gradients(x: Tensor, matrix: Tensor) -> tuple[Tensor, ...]:
    out, gradients = torch.func.vjp(warped, x, matrix[:, :2])
    return out, *gradients(torch.ones_like(out))


def turned(x: Tensor) -> Tensor:
    theta = torch.tensor([[0.9, 0.1, 0.0], [-0.1, 0.9, 0.1]]).reshape(1, 2, 3)
    base = torch.stack([*torch.meshgrid(torch.arange(12.0), torch.arange(17.0), indexing="xy"), torch.ones(17, 12)], -1)
    grid = (base.transpose(0, 1).reshape(1, -1, 3) / 9 - 1) @ theta.mT
    return F.grid_sample(x, grid.view(1, 12, 17, 2).expand(len(x), -1, -1, -1), align_corners=False)


def constant_is_returned(x: Tensor) -> tuple[Tensor, Tensor]:
    to = scaling(*x.shape[-2:])
    return warped(x, to[:, :2].expand(len(x), 2, 3)), to


def constant_is_seen(x: Tensor) -> tuple[Tensor, Tensor]:
    to = scaling(*x.shape[-2:])
    return warped(x, to[:, :2].expand(len(x), 2, 3)), to[:, 1:].mT


def of_chance(x: Tensor) -> Tensor:
    return warped(x, torch.rand(2, 2, 3))


@torch.library.custom_op("polyphase_tests::counted", mutates_args=())
def counted() -> Tensor:
    """An operator of somebody else's that has no inputs, and gives something else every time."""
    CALLS.append(len(CALLS))
    return torch.eye(3)[:2] / len(CALLS)


counted.register_fake(lambda: torch.empty(2, 3))
CALLS: list[int] = []


def of_others(x: Tensor) -> Tensor:
    return warped(x, counted().expand(len(x), 2, 3))


def without_ours(matrix: Tensor) -> Tensor:
    return scaling(12, 17) @ matrix


def kinds(function: Callable[..., Any], *args: Tensor) -> list[str]:
    graph, _ = simplified(function, *args)
    return [node.op if node.op == "get_attr" else str(node.target) for node in graph.graph.nodes]


def test_what_depends_on_no_input_is_no_part_of_the_graph() -> None:
    assert kinds(turned, IMAGE) == ["arg0_1", "get_attr", "polyphase.program.default", "output"]


def test_products_of_small_matrices_are_arithmetic() -> None:
    graph, run = simplified(normalised, IMAGE, MATRIX)
    targets = [str(node.target) for node in graph.graph.nodes]
    assert not any("bmm" in one or "linalg" in one or "cat" in one for one in targets)
    torch.testing.assert_close(run(IMAGE, MATRIX), normalised(IMAGE, MATRIX), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("function", [solved, with_gradients])
def test_what_inductor_only_calls_reads_no_constant(function: Callable[..., Any]) -> None:
    """It tries such operators while it compiles, on tensors without data, and torch mixes none with constants."""
    graph, run = simplified(function, IMAGE, MATRIX)
    for node in graph.graph.nodes:
        called = "linalg" in str(node.target) or "warp_backward" in str(node.target)
        assert not called or all(one.op != "get_attr" for one in node.all_input_nodes)
    torch.testing.assert_close(run(IMAGE, MATRIX), function(IMAGE, MATRIX), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("function", [constant_is_returned, constant_is_seen])
def test_what_is_returned_is_made_anew(function: Callable[..., Any]) -> None:
    _, run = simplified(function, IMAGE)
    first, wanted = run(IMAGE)[1], function(IMAGE)
    first.zero_()
    torch.testing.assert_close(run(IMAGE), wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("function", [of_chance, of_others])
def test_what_is_another_at_each_call_is_computed_at_each(function: Callable[..., Any]) -> None:
    _, run = simplified(function, IMAGE)
    assert not torch.equal(run(IMAGE), run(IMAGE))


def test_a_graph_without_kernels_of_ours_stays_as_it_is() -> None:
    assert "get_attr" not in kinds(without_ours, MATRIX)
    assert "aten.bmm.default" in kinds(without_ours, MATRIX)


@pytest.mark.inductor
def test_a_warp_by_numbers_is_one_launch() -> None:
    with torch.no_grad():
        result, (code,) = run_and_get_code(compiled(turned), IMAGE)
    call = code[code.index("def call(") : code.index("runner = ")]
    assert call.count("polyphase_") == 1
    assert "cpp_fused" not in call
    torch.testing.assert_close(result, turned(IMAGE), rtol=1e-4, atol=1e-4)
