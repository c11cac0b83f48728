"""torchvision's and kornia's warps, compiled: one kernel of ours, no grid in memory, eager's values and gradients.

kornia is no dependency of ours, not even of tests: `spellings.py` has its operations. With it, it is tried itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import polyphase
from tests.compile.running import check_gradients, compiled, elements_saved, launches
from tests.support.vision import torchvision

pytestmark = pytest.mark.inductor

Function = Callable[..., Tensor]
MATRIX = torch.tensor([[0.9137, 0.1291, 2.0533], [-0.1117, 1.0513, 1.0217], [1.13e-3, 2.19e-3, 1.0]])
COEFFICIENTS = [0.9137, 0.1291, 3.0217, -0.0533, 1.1013, 2.0119, 0.00113, 0.00219]


def _vision(name: str) -> tuple[Function, Callable[[int, int], list[Tensor]]]:
    functional = torchvision("torchvision.transforms.v2.functional")
    bilinear = torchvision("torchvision.transforms.v2").InterpolationMode.BILINEAR
    given: dict[str, Any] = {"interpolation": bilinear, "fill": None}
    functions: dict[str, Function] = {
        "rotate": lambda x: functional.rotate(x, 20.0, **given),
        "rotate, expanded": lambda x: functional.rotate(x, 20.0, expand=True, **given),
        "perspective": lambda x: functional.perspective(x, None, None, coefficients=COEFFICIENTS, **given),
        "elastic": lambda x, field: functional.elastic(x, field, **given),
    }
    field = name == "elastic"
    return functions[name], lambda h, w: [torch.rand(2, 3, h, w), *([torch.rand(1, h, w, 2) / 8] if field else [])]


def _kornia(name: str) -> tuple[Function, Callable[[int, int], list[Tensor]]]:
    warps = pytest.importorskip("kornia.geometry.transform", reason="kornia is not installed")
    functions: dict[str, Function] = {
        "warp_affine": lambda x, m: warps.warp_affine(x, m[:, :2], tuple(x.shape[-2:])),
        "warp_perspective": lambda x, m: warps.warp_perspective(x, m, tuple(x.shape[-2:])),
        "homography_warp": lambda x, m: warps.homography_warp(x, m, tuple(x.shape[-2:])),
        "remap": lambda x, a, b: warps.remap(x, a, b, align_corners=True),
    }
    scale = torch.tensor([[1.0, 1.0, 0.03], [1.0, 1.0, 0.03], [1.0, 1.0, 1.0]])  # pixels, or from -1 to 1
    matrix = (MATRIX * scale if name == "homography_warp" else MATRIX).repeat(2, 1, 1)

    def tensors(h: int, w: int) -> list[Tensor]:
        maps = [torch.rand(2, h, w) * (n - 1) for n in (w, h)]
        return [torch.rand(2, 3, h, w), *(maps if name == "remap" else [matrix])]

    return functions[name], tensors


VISION = ("rotate", "rotate, expanded", "perspective", "elastic")
KORNIA = ("warp_affine", "warp_perspective", "homography_warp", "remap")
LIBRARIES = [*((_vision, name) for name in VISION), *((_kornia, name) for name in KORNIA)]
full = pytest.mark.full


@pytest.mark.parametrize(
    ("library", "name"),
    [pytest.param(*one, marks=() if one[1] == "elastic" else full, id=one[1]) for one in LIBRARIES],
)
def test_one_kernel_and_no_grid(library: Any, name: str) -> None:
    function, tensors = library(name)
    found = polyphase.explain(function)(*tensors(45, 56))
    assert [len(graph.ours) for graph in found.graphs] == [1]
    assert found.graphs[0].ours[0].coordinates.endswith("of a grid, 0 bytes lie between")
    assert all(one.bytes < 1024 for one in found.graphs[0].buffers if one.role == "between")


@full
@pytest.mark.parametrize(("library", "name"), [pytest.param(*one, id=one[1]) for one in LIBRARIES])
def test_values_and_gradients(library: Any, name: str) -> None:
    function, tensors = library(name)
    check_gradients(function, *tensors(45, 56), run=compiled(function), rtol=2e-3)


@full
@pytest.mark.parametrize(
    ("library", "name"), [pytest.param(*one, id=one[1]) for one in LIBRARIES if one[1] != "rotate, expanded"]
)
def test_another_size_builds_nothing(library: Any, name: str) -> None:
    """Of an expanded rotation the size is a long formula, which takes torch itself minutes."""
    function, tensors = library(name)
    run = compiled(function)
    for number, size in enumerate(((45, 56), (50, 61), (51, 67))):
        given, before = tensors(*size), polyphase.stats()
        got, launched = launches(run, *given)
        torch.testing.assert_close(got, function(*given), rtol=1e-4, atol=1e-4)
        assert launched == 1
        assert number < 2 or polyphase.stats()["kernels_built"] == before["kernels_built"]


@full
def test_a_spatial_transformer_saves_no_grid() -> None:
    function, tensors = _kornia("warp_affine")
    image, matrix = tensors(45, 56)
    run = compiled(function)
    saved = elements_saved(run, image, matrix)
    assert sorted(saved)[-1] == image.numel()
    assert sum(saved) < image.numel() + 512
