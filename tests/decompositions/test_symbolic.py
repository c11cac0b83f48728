"""One symbolic trace serves every size, from core ATen operators only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import sympy
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from polyphase.decompositions import preferred
from tests.decompositions.calls import TABLE, Call, calls

SIZES = [(11, 13, 8), (20, 9, 7), (31, 57, 12), (4, 6, 5)]


def chosen() -> list[Any]:
    """A trace takes seconds. Of those that differ by a number, the others are for the full run: one filter, one kind of
    nearest, no align_corners, of volumes nearest alone and no gradients, of cubic warps one. `interpolate` calls what
    takes factors, and what resizes float images, below."""

    def marks(call: Call) -> Any:
        name, is_float = str(call.op), "float32" in call.label
        of_images, is_backward = "2d" in name and "upsample" in name, "backward" in name
        called_below = of_images and is_float and not is_backward and "nearest" not in name
        other_filter = "lanczos" in name or ("bicubic" in name and not called_below)
        other_nearest = "exact" in name and (is_backward or not of_images)
        other_padding = ("grid_sampler_3d" in name and "11" not in call.label) or "22False" in call.label
        of_volumes = "3d" in name and "upsample" in name and (not is_float or is_backward or "linear" in name)
        seldom = ".vec" in name or other_filter or other_nearest or other_padding or called_below or of_volumes
        return pytest.mark.full if seldom or "ac=T" in call.label else ()

    return [pytest.param(call, marks=marks(call)) for call in (*calls(torch.float32), *calls(torch.uint8))]


def trace(function: Any, *tensors: Tensor) -> torch.fx.GraphModule:
    with preferred():
        return make_fx(function, decomposition_table=TABLE, tracing_mode="symbolic")(*tensors)


def foreign_operators(graph: torch.fx.GraphModule) -> set[str]:
    """What is neither core ATen nor arithmetic on sizes."""
    targets = {node.target for node in graph.graph.nodes if node.op == "call_function"}
    overloads = {target for target in targets if isinstance(target, torch._ops.OpOverload)}
    on_sizes = {"aten.sym_size.int", "aten.sym_stride.int"}
    return {str(op) for op in overloads if torch.Tag.core not in op.tags} - on_sizes


def broken_guards(graph: torch.fx.GraphModule, arguments: Sequence[Any]) -> list[str]:
    """The assumptions of a trace that do not hold for these other arguments: a specialisation."""
    values = {}
    for node, argument in zip(graph.graph.find_nodes(op="placeholder"), arguments, strict=True):
        seen = node.meta["val"]
        pairs = zip(seen.shape, argument.shape, strict=True) if isinstance(argument, Tensor) else [(seen, argument)]
        values.update({size.node.expr: n for size, n in pairs if isinstance(size, torch.SymInt)})
    shape_env: Any = graph.shape_env
    return [str(guard.expr) for guard in shape_env.guards if guard.expr.subs(values) != True]  # noqa: E712


def float_extremes(graph: torch.fx.GraphModule) -> set[str]:
    """Sizes made of the maximum or minimum of floats, which torch 2.11 compiles as if they were integers."""
    found = set()
    for node in graph.graph.nodes:
        value = node.meta.get("val")
        numbers = (*value.shape, *value.stride()) if isinstance(value, Tensor) else (value,)
        for number in numbers:
            if isinstance(number, (torch.SymInt, torch.SymFloat)):
                parts = sympy.preorder_traversal(number.node.expr)
                extremes = [part for part in parts if type(part).__name__ in ("Max", "Min")]
                found |= {str(part) for part in extremes if not all(side.is_integer for side in part.args)}
    return found


def same(call: Call, got: Tensor, want: Tensor) -> None:
    if want.dtype == torch.uint8 or ("nearest" in call.op.name() and "backward" not in call.op.name()):
        torch.testing.assert_close(got, want, rtol=0, atol=0)
    else:
        torch.testing.assert_close(got, want)


@pytest.mark.parametrize("call", chosen(), ids=str)
def test_one_trace_serves_every_size(call: Call) -> None:
    graph = trace(call.eager, *call.tensors(SIZES[0]))
    assert not foreign_operators(graph)
    assert not float_extremes(graph)
    if "upsample" in call.op.name():  # the same bits on every run, on every device: gradients are gathered
        names = {str(node.target) for node in graph.graph.nodes if node.op == "call_function"}
        assert not {name for name in names if "put" in name or "scatter" in name}
    for sizes in SIZES:
        tensors = call.tensors(sizes)
        assert not broken_guards(graph, tensors)
        same(call, graph(*tensors), call.eager(*tensors))


@pytest.mark.parametrize(
    ("mode", "antialias"),
    [
        ("nearest", False),
        pytest.param("bilinear", False, marks=pytest.mark.full),
        ("bicubic", False),
        ("bilinear", True),
        pytest.param("nearest-exact", False, marks=pytest.mark.full),
        pytest.param("bicubic", True, marks=pytest.mark.full),
    ],
)
def test_interpolate_by_size_and_by_scale(mode: str, antialias: bool) -> None:
    def by_size(image: Tensor, height: int, width: int) -> Tensor:
        return F.interpolate(image, (height, width), mode=mode, antialias=antialias)

    def by_scale(image: Tensor) -> Tensor:
        return F.interpolate(image, scale_factor=(1.3, 0.7), mode=mode, antialias=antialias)

    image = torch.rand(2, 3, 11, 13)
    graph = trace(by_size, image, 7, 20)  # type: ignore[arg-type]
    scaled = trace(by_scale, image)
    for one in (graph, scaled):
        assert not foreign_operators(one)
        assert not float_extremes(one)
    for height, width in ((20, 30), (11, 50), (64, 6)):
        image = torch.rand(3, 4, height, width)
        assert not broken_guards(graph, (image, 9, 21))
        assert not broken_guards(scaled, (image,))
        torch.testing.assert_close(graph(image, 9, 21), by_size(image, 9, 21))
        torch.testing.assert_close(scaled(image), by_scale(image))


def test_without_preferred_torch_decides() -> None:
    """Why `preferred` exists. When this fails, torch asks the table by itself and `preferred` can go."""
    graph = make_fx(
        lambda x: F.interpolate(x, (5, 6), mode="bilinear"), decomposition_table=TABLE, tracing_mode="symbolic"
    )(torch.rand(1, 1, 7, 8))
    assert "aten._unsafe_index.Tensor" in foreign_operators(graph)
