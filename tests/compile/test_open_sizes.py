"""Sizes that Dynamo leaves open are left open where grids are read: no graph more."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch._functorch.aot_autograd import aot_module_simplified, make_boxed_func
from torch._inductor.decomposition import select_decomp_table
from torch.fx import GraphModule

from polyphase.compile.fuse import fuse
from polyphase.compile.grids import without_grids
from polyphase.compile.small import simplify_small
from polyphase.compile.whole import kept_whole

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


def warped(image: Tensor) -> Tensor:
    grid = F.affine_grid(
        image[:, 0, :2, :3], [*image.shape[:2], image.shape[2] + 1, image.shape[3]], align_corners=False
    )
    return F.grid_sample(image, grid, align_corners=False)


#: Each with sizes that follow from its image's.
OPERATORS: dict[str, Function] = {
    "nearest": resized("nearest"),
    "nearest-exact, by a factor": lambda image: F.interpolate(image, scale_factor=1.5, mode="nearest-exact"),
    "bilinear": resized("bilinear"),
    "bilinear, antialiased": resized("bilinear", antialias=True),
    "bicubic, antialiased": resized("bicubic", antialias=True),
    "bicubic, by a factor": lambda image: F.interpolate(image, scale_factor=(0.5, 1.3), mode="bicubic"),
    "area": resized("area"),
    "reflection pad": lambda image: F.pad(image, (1, 2, 3, 4), mode="reflect"),
    "replication pad": lambda image: F.pad(image, (0, image.shape[3] % 4, 1, 0), mode="replicate"),
    "circular pad": lambda image: F.pad(image, (2, 0, 1, 1), mode="circular"),
    "constant pad": lambda image: F.pad(image, (-1, 3, 2, -2), value=0.5),
    "flip": lambda image: image.flip(-1, 2),
    "crop": lambda image: image[..., 1:-2, image.shape[3] // 4 :],
    "rolled": lambda image: image.roll(3, -1),
    "warp by a matrix": warped,
    "warp by a flow": flow,
}


class Counter:
    """A backend for all sizes that counts its graphs. `ours`: they go through our stages, as far as Inductor's; nothing
    is compiled."""

    def __init__(self, *, ours: bool) -> None:
        self.made, self._ours = 0, ours

    def __call__(self, module: GraphModule, inputs: Any) -> Any:
        self.made += 1
        if self._ours:
            without_grids(module)
        with kept_whole() if self._ours else nullcontext():
            return aot_module_simplified(
                module, inputs, fw_compiler=self._forward, decompositions=select_decomp_table()
            )

    def _forward(self, graph: GraphModule, inputs: Any) -> Any:
        if self._ours:
            after = copy.deepcopy(graph)
            fuse(after.graph)
            simplify_small(after.graph)
        return make_boxed_func(graph.forward)


def graphs(function: Function, *, ours: bool, sizes: Sequence[tuple[int, int]] = SIZES) -> int:
    torch._dynamo.reset()
    counter = Counter(ours=ours)
    run = torch.compile(function, backend=counter, dynamic=True)
    for height, width in sizes:
        run(torch.rand(2, 3, height, width))
    return counter.made


def of_both(names: Sequence[str]) -> tuple[int, int]:
    def function(image: Tensor) -> Tensor:
        for name in names:
            image = OPERATORS[name](image)
        return image

    return graphs(function, ours=True), graphs(function, ours=False)


@pytest.mark.parametrize("name", OPERATORS)
def test_an_operator(name: str) -> None:
    found, expected = of_both([name])
    assert found <= expected


PAIRS = list(itertools.permutations(OPERATORS, 2))


def is_quick(number: int) -> bool:
    """Before a warp by a grid, which reads how its grid is computed, some operators; and a few other pairs."""
    first, second = PAIRS[number]
    before = second == "warp by a flow" and list(OPERATORS).index(first) % 4 == 0
    return before or number % 80 == 1


@pytest.mark.parametrize(
    "pair",
    [pytest.param(two, marks=() if is_quick(n) else pytest.mark.full) for n, two in enumerate(PAIRS)],
    ids=", then ".join,
)
def test_pairs(pair: tuple[str, str]) -> None:
    """Nearest pixels are made by a kernel in C++ that asks for sizes, which is not to be read then."""
    found, expected = of_both(pair)
    assert found <= expected
