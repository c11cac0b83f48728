"""AOTAutograd with symbolic shapes and torch.export: one graph for every size, nothing of ours left undecomposed."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from functorch.compile import aot_function, make_boxed_func
from torch import Tensor

from polyphase.decompositions import preferred, table

NAMES = {str(op) for op in table()}
RESIZES: dict[str, Callable[[Tensor], Tensor]] = {
    "antialiased bilinear": lambda x: F.interpolate(x, scale_factor=(0.7, 1.6), mode="bilinear", antialias=True),
    "antialiased lanczos": lambda x: F.interpolate(x, size=(x.shape[-2] // 2, 9), mode="lanczos", antialias=True),
    "bilinear": lambda x: F.interpolate(x, scale_factor=1.6, mode="bilinear", align_corners=True),
    "bicubic": lambda x: F.interpolate(x, scale_factor=0.7, mode="bicubic"),
    "nearest": lambda x: F.interpolate(x, scale_factor=2),
    "nearest-exact": lambda x: F.interpolate(x, size=(7, x.shape[-1] + 3), mode="nearest-exact"),
}
if not hasattr(torch.ops.aten, "_upsample_lanczos2d_aa"):  # newer than torch 2.11
    del RESIZES["antialiased lanczos"]
SHAPES = [(2, 3, 7, 9), (4, 3, 20, 11), (3, 5, 8, 30)]


@pytest.mark.parametrize(  # the others differ by a filter; test_symbolic.py traces them forwards and backwards
    "name", [pytest.param(name, marks=() if name == "antialiased bilinear" else pytest.mark.full) for name in RESIZES]
)
def test_forward_and_backward(name: str) -> None:
    function = RESIZES[name]
    graphs: list[torch.fx.GraphModule] = []

    def keep(graph: torch.fx.GraphModule, _: object) -> Callable[..., object]:
        graphs.append(graph)
        return make_boxed_func(graph)  # type: ignore[no-any-return]

    with preferred():
        compiled = aot_function(
            lambda x: function(x).sin(), fw_compiler=keep, bw_compiler=keep, decompositions=table(), dynamic=True
        )
        for shape in SHAPES:
            image = torch.rand(shape, dtype=torch.float64, requires_grad=True)
            want, got = function(image).sin(), compiled(image)
            torch.testing.assert_close(got, want)
            gradient = torch.rand_like(want)
            torch.testing.assert_close(
                torch.autograd.grad(got, image, gradient), torch.autograd.grad(want, image, gradient)
            )
    assert len(graphs) == 2  # one forward, one backward, for all shapes
    assert not {str(node.target) for graph in graphs for node in graph.graph.nodes} & NAMES


class Model(torch.nn.Module):
    def forward(self, image: Tensor, theta: Tensor) -> Tensor:
        image = F.pad(torch.flip(image, (-1,)), (1, 2, 2, 1), mode="reflect")
        image = F.interpolate(image, scale_factor=(0.7, 1.4), mode="bicubic", antialias=True)
        warped = F.grid_sample(image, F.affine_grid(theta, [2, 3, 6, 8], align_corners=False), align_corners=False)
        return warped + F.interpolate(image, size=(6, 8), mode="bilinear")


def test_export() -> None:
    theta = torch.tensor([[0.7, -0.3, 0.1], [0.2, 0.9, 0.0]]).repeat(2, 1, 1)
    height, width = torch.export.Dim("height", min=8, max=500), torch.export.Dim("width", min=8, max=500)
    decompositions = torch.export.default_decompositions()
    decompositions.update(table())
    with preferred():
        program = torch.export.export(
            Model(), (torch.rand(2, 3, 20, 31), theta), dynamic_shapes=({2: height, 3: width}, None)
        ).run_decompositions(decompositions)
    assert not {str(node.target) for node in program.graph.nodes} & NAMES
    exported = program.module()
    for size in ((20, 31), (40, 15), (9, 100)):
        image = torch.rand(2, 3, *size)
        torch.testing.assert_close(exported(image, theta), Model()(image, theta))
