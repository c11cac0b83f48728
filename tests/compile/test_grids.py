"""affine_grid + grid_sample without a grid, and when not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.fx import GraphModule

from polyphase.compile.grids import without_grids

IMAGE = torch.rand(2, 3, 14, 15)
THETA = torch.tensor([[0.9137, -0.3071, 0.0533], [0.3119, 0.8213, -0.1047]]).repeat(2, 1, 1)


def affine(image: Tensor, theta: Tensor) -> Tensor:
    return F.grid_sample(image, F.affine_grid(theta, [2, 3, 9, 8], align_corners=True), "bicubic", "border", True)


def in_a_checkpoint(image: Tensor, theta: Tensor) -> Tensor:
    return torch.utils.checkpoint.checkpoint(affine, image, theta, use_reentrant=False)  # type: ignore[no-any-return]


def used_twice(image: Tensor, theta: Tensor) -> Tensor:
    grid = F.affine_grid(theta, list(image.shape), align_corners=False)
    return F.grid_sample(image, grid, align_corners=False) + F.grid_sample(image * 2, grid, align_corners=False)


def other_corners(image: Tensor, theta: Tensor) -> Tensor:
    return F.grid_sample(image, F.affine_grid(theta, [2, 3, 9, 8], align_corners=True), align_corners=False)


def written_between(image: Tensor, theta: Tensor) -> Tensor:
    theta = theta * 1
    grid = F.affine_grid(theta, list(image.shape), align_corners=False)
    theta *= 0
    return F.grid_sample(image, grid, align_corners=False) + theta.sum()


def input_written_between(image: Tensor, theta: Tensor) -> Tensor:
    grid = F.affine_grid(theta, list(image.shape), align_corners=False)
    theta *= 0
    return F.grid_sample(image, grid, align_corners=False) + theta.sum()


def read_by_others(image: Tensor, theta: Tensor) -> Tensor:
    grid = F.affine_grid(theta, list(image.shape), align_corners=True)
    return F.grid_sample(image, grid, align_corners=False) + grid.mean()


def changed_grid(image: Tensor, theta: Tensor) -> Tensor:
    return F.grid_sample(image, F.affine_grid(theta, list(image.shape), align_corners=False) * 0.5, align_corners=False)


@pytest.mark.parametrize(
    ("function", "grids"),
    [
        *((affine, 0), (in_a_checkpoint, 0), (used_twice, 0), (other_corners, 0), (written_between, 0)),
        *((changed_grid, 0), (input_written_between, 1), (read_by_others, 1)),
    ],
)
def test_grids_left(function: Callable[..., Tensor], grids: int) -> None:
    found = []

    def backend(graph: GraphModule, inputs: object) -> Callable[..., object]:
        without_grids(graph)
        modules = [one for one in graph.modules() if isinstance(one, GraphModule)]
        found.append(sum(node.target is F.affine_grid for one in modules for node in one.graph.nodes))
        return graph.forward

    result = torch.compile(function, backend=backend)(IMAGE, THETA.clone())
    assert found == [grids]
    torch.testing.assert_close(result, function(IMAGE, THETA.clone()))
