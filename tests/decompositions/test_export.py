"""Exported programs: our functions and eager's as core ATen operators, and in packages of AOTInductor."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import polyphase.functional as P
from polyphase.decompositions import table

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
    "affine_sample": lambda x: P.affine_sample(x, THETA, (1, 3, 6, 7), mode="bicubic"),
}


class Module(torch.nn.Module):
    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


def check_core(function: Callable[[Tensor], Tensor], x: Tensor) -> None:
    program = torch.export.export(Module(function), (x,)).run_decompositions(table())
    called = {node.target for node in program.graph.nodes if node.op == "call_function"}
    assert called
    assert {str(one) for one in called if torch.Tag.core not in one.tags} == set()
    torch.testing.assert_close(program.module()(x), function(x))


@pytest.mark.parametrize("name", OURS)
def test_our_functions_become_core_aten(name: str) -> None:
    check_core(OURS[name], torch.rand(1, 3, 9, 8))


def test_of_bytes_and_channels_last() -> None:
    bytes_ = torch.randint(0, 256, (1, 3, 9, 8), dtype=torch.uint8)
    check_core(OURS["antialiased"], bytes_)
    check_core(OURS["affine_sample"], bytes_)
    check_core(OURS["reflect"], torch.rand(2, 3, 9, 8).to(memory_format=torch.channels_last))


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
