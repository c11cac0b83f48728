"""Exported programs: our functions and eager's as core ATen operators, and in packages of AOTInductor."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

import polyphase.functional as P
from polyphase.decompositions import own, table

THETA = torch.tensor([[[0.9, -0.3, 0.1], [0.2, 0.8, 0.0]]])

CALLS: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "antialiased": lambda f, x: f.interpolate(x, (5, 12), mode="bilinear", antialias=True),
    "bicubic": lambda f, x: f.interpolate(x, scale_factor=1.5, mode="bicubic"),
    "nearest": lambda f, x: f.interpolate(x, (5, 12), mode="nearest"),
    "area": lambda f, x: f.interpolate(x, (5, 4), mode="area"),
    "reflect": lambda f, x: f.pad(x, (1, 2, 0, 3), mode="reflect"),
    "constant": lambda f, x: f.pad(x, (1, -2, 0, 3), value=0.5),
    "grid_sample": lambda f, x: f.grid_sample(x, F.affine_grid(THETA, [1, 3, 6, 7], False), align_corners=False),
}
OURS: dict[str, Callable[[Tensor], Tensor]] = {
    **{name: lambda x, call=call: call(P, x) for name, call in CALLS.items()},  # type: ignore[misc]
    "flip": lambda x: P.flip(x, (-1, -2)),
    "box": lambda x: P.interpolate(x, (5, 12), mode="bicubic", antialias=True, box=(0.5, 1, 7.25, 9)),
    "affine_sample": lambda x: P.affine_sample(x, THETA, (1, 3, 6, 7), mode="bicubic"),
}


class Module(torch.nn.Module):
    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


def check_core(function: Callable[[Tensor], Tensor], x: Tensor, apart: int = 0) -> None:
    """`apart`: by how much integers may differ, of sums that are close to a tie."""
    program = torch.export.export(Module(function), (x,)).run_decompositions(table())
    called = {node.target for node in program.graph.nodes if node.op == "call_function"}
    assert called
    assert {str(one) for one in called if torch.Tag.core not in one.tags} == set()
    found, expected = program.module()(x), function(x)
    if apart:
        assert found.dtype == expected.dtype
        assert (found.long() - expected.long()).abs().max() <= apart
    else:
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("name", OURS)
def test_our_functions_become_core_aten(name: str) -> None:
    check_core(OURS[name], torch.rand(1, 3, 9, 8))


def test_of_bytes_and_channels_last() -> None:
    bytes_ = torch.randint(0, 256, (1, 3, 9, 8), dtype=torch.uint8)
    check_core(OURS["antialiased"], bytes_)
    check_core(OURS["affine_sample"], bytes_)
    check_core(OURS["reflect"], torch.rand(2, 3, 9, 8).to(memory_format=torch.channels_last))


@pytest.mark.parametrize("dtype", [torch.int16, torch.uint16, torch.int32], ids=str)
def test_of_integers(dtype: torch.dtype) -> None:
    values = (torch.rand(1, 3, 9, 8, generator=torch.Generator().manual_seed(1)) * 1000).to(dtype)
    check_core(OURS["antialiased"], values, apart=1)
    check_core(OURS["affine_sample"], values, apart=1)


def test_the_gradient_of_a_box_for_any_size() -> None:
    maps = "[axismap([resize(5, bicubic, antialias=True, box=[1.0, 8.5])]), axismap([nearest(12, box=[0.25, 7.0])])]"
    gradient = torch.rand(1, 3, 5, 12, dtype=torch.float64)

    def adjoint(gradient: Tensor, image: Tensor) -> Tensor:
        return own.resample(gradient, maps, None, image.shape[2:], True, 0)

    graph = make_fx(adjoint, tracing_mode="symbolic")(gradient, torch.rand(1, 3, 9, 8))
    for shape in ((1, 3, 9, 8), (1, 3, 14, 7)):
        expected = torch.ops.polyphase.resample(gradient, maps, None, shape[2:], True, 0)
        torch.testing.assert_close(graph(gradient, torch.rand(shape)), expected)


@pytest.mark.parametrize("name", ["bicubic", "grid_sample", "reflect"])
def test_eager_s_become_core_aten(name: str) -> None:
    check_core(lambda x: CALLS[name](F, x), torch.rand(1, 3, 9, 8))


@pytest.mark.inductor
@pytest.mark.skipif(
    tuple(map(int, torch.__version__.split(".")[:2])) < (2, 12),
    reason="torch 2.11 crashes where it loads a package, of any module, without us too",
)
def test_packages_of_aot_inductor(tmp_path: Path) -> None:
    """All in one: static sizes leave our operators lists that are empty, which AOTInductor loses. Beside them
    eager's, which are plain Inductor's, whatever has been imported."""
    weight = torch.rand(4, 3, 3, 3)

    def eager_s(x: Tensor) -> Tensor:
        y = F.conv2d(CALLS["antialiased"](F, x), weight, padding=1).relu()
        return F.interpolate(y, scale_factor=2.0, mode="nearest").flip(-1)

    def together(x: Tensor) -> Tensor:
        totals = eager_s(x)[:, :3, :6, :7] + OURS["antialiased"](x).sum() + OURS["grid_sample"](x).sum()
        return totals + OURS["affine_sample"](x) + OURS["flip"](x)[..., :6, :7]

    x = torch.rand(1, 3, 9, 8)
    exported = torch.export.export(Module(together), (x,))
    path = torch._inductor.aoti_compile_and_package(
        exported,
        package_path=str(tmp_path / "resampled.pt2"),
        inductor_configs={"aot_inductor.precompile_headers": False},  # for one graph they take longer
    )
    loaded = torch._inductor.aoti_load_package(path)
    torch.testing.assert_close(loaded(x), together(x))
