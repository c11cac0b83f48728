"""Sizes that Dynamo leaves open are left open where grids are read: no graph more."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.fx import GraphModule

from polyphase.compile.grids import without_grids

Function = Callable[[Tensor], Tensor]
SIZES = [(21, 34), (40, 34), (40, 47)]


def flow(image: Tensor) -> Tensor:
    """Moved by what its own channels say; `linspace` is of its size, which Dynamo fixes."""
    rows, columns = (torch.linspace(-1, 1, n) for n in image.shape[-2:])
    grid = torch.stack((columns[None].expand(len(rows), -1), rows[:, None].expand(-1, len(columns))), -1)
    moved = grid[None].expand(len(image), -1, -1, -1) + image[:, :2].permute(0, 2, 3, 1) * 0.1
    return F.grid_sample(image, moved, align_corners=False)


def resized(mode: str, antialias: bool = False) -> Function:
    return lambda image: F.interpolate(image, (31, image.shape[3] + 3), mode=mode, antialias=antialias)


OPERATORS: dict[str, Function] = {
    "nearest": resized("nearest"),
    "bilinear": resized("bilinear"),
    "bicubic, antialiased": resized("bicubic", antialias=True),
    "reflection pad": lambda image: F.pad(image, (1, 2, 3, 4), mode="reflect"),
}


def graphs(function: Function, *, ours: bool) -> int:
    """Of Dynamo, for all sizes; nothing else is compiled. `ours`: its graph is rewritten as by the backend."""
    made = 0

    def backend(module: GraphModule, _: object) -> GraphModule:
        nonlocal made
        made += 1
        if ours:
            without_grids(module)
        return module

    torch._dynamo.reset()
    run = torch.compile(function, backend=backend, dynamic=True)
    for height, width in SIZES:
        run(torch.rand(2, 3, height, width))
    return made


@pytest.mark.parametrize("name", ["nearest", "bilinear", "bicubic, antialiased", "reflection pad"])
def test_a_grid_after_an_operator(name: str) -> None:
    """Nearest pixels are made by a kernel in C++ that asks for sizes, which is not to be read then."""

    def function(image: Tensor) -> Tensor:
        return flow(OPERATORS[name](image))

    assert graphs(function, ours=True) == graphs(function, ours=False)
