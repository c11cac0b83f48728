"""Where gradients of channels-last images lie in memory: as eager's, so that a `.view` of them that works goes on
working."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import polyphase
import polyphase.functional as P
from tests.conformance.decompose import Recorded
from tests.support.samples import HAS_LANCZOS

FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}
GRIDS = {4: torch.rand(2, 7, 8, 2) * 2 - 1, 5: torch.rand(2, 5, 7, 8, 3) * 2 - 1}

Calls: TypeAlias = "dict[str, tuple[int, Callable[[Any, Tensor], Tensor]]]"

LANCZOS: Calls = {
    "antialiased lanczos": (4, lambda f, x: f.interpolate(x, (7, 3), mode="lanczos", antialias=True)),
}
#: By name: the rank of the image, and the call in a namespace that has it.
CALLS: Calls = {
    "grid_sample": (4, lambda f, x: f.grid_sample(x, GRIDS[4], align_corners=False)),
    "grid_sample of volumes": (5, lambda f, x: f.grid_sample(x, GRIDS[5], align_corners=False)),
    "reflect pad": (4, lambda f, x: f.pad(x, (1, 2, 2, 1), mode="reflect")),
    "reflect pad of volumes": (5, lambda f, x: f.pad(x, (1, 2, 2, 1, 1, 1), mode="reflect")),
    "replicate pad": (4, lambda f, x: f.pad(x, (1, 2, 2, 1), mode="replicate")),
    "replicate pad of volumes": (5, lambda f, x: f.pad(x, (1, 2, 2, 1, 1, 1), mode="replicate")),
    "area": (4, lambda f, x: f.interpolate(x, (7, 3), mode="area")),
    "area to one pixel": (4, lambda f, x: f.interpolate(x, (1, 1), mode="area")),
    "area of volumes": (5, lambda f, x: f.interpolate(x, (7, 3, 2), mode="area")),
    "bilinear": (4, lambda f, x: f.interpolate(x, (7, 3), mode="bilinear")),
    "bicubic": (4, lambda f, x: f.interpolate(x, (7, 3), mode="bicubic")),
    "antialiased bicubic": (4, lambda f, x: f.interpolate(x, (7, 3), mode="bicubic", antialias=True)),
    **(LANCZOS if HAS_LANCZOS else {}),
    "nearest": (4, lambda f, x: f.interpolate(x, (7, 3), mode="nearest")),
    "nearest of volumes": (5, lambda f, x: f.interpolate(x, (7, 3, 2), mode="nearest")),
    "nearest-exact of volumes": (5, lambda f, x: f.interpolate(x, (7, 3, 2), mode="nearest-exact")),
}


def image(name: str, channels_last: bool) -> Tensor:
    shape = (2, 3, 4, 5, 6) if CALLS[name][0] == 5 else (2, 3, 5, 6)
    values = torch.rand(shape)
    return values.to(memory_format=FORMATS[len(shape)]) if channels_last else values


def strides(function: Callable[[Tensor], Tensor], x: Tensor) -> list[tuple[int, ...]]:
    """Of the result, and of gradients for one that lies as the result does, and for two that lie otherwise."""
    x = x.clone().requires_grad_()
    result = function(x)
    given = torch.rand_like(result)
    found = [result.stride()]
    for gradient in (given, given.contiguous(), given.contiguous(memory_format=FORMATS[given.dim()])):
        found += [one.stride() for one in torch.autograd.grad(result, x, gradient, retain_graph=True)]
    return found


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("name", CALLS)
def test_strides_are_eager_s(name: str, channels_last: bool) -> None:
    call, x = CALLS[name][1], image(name, channels_last)
    eager = strides(lambda x: call(F, x), x)
    assert strides(lambda x: call(P, x), x) == eager
    with Recorded():  # a mode: through the operators, not past the dispatcher
        assert strides(lambda x: call(P, x), x) == eager
    with polyphase.accelerate():
        assert strides(lambda x: call(F, x), x) == eager


@pytest.mark.inductor
@pytest.mark.parametrize("functions", [F, P], ids=["torch", "polyphase"])
def test_strides_are_eager_s_compiled(functions: Any) -> None:
    """All calls in one graph. Of eager's reflect and replicate pads, the shapes that torch traces by forget channels
    last, with any backend."""
    names = [name for name in CALLS if functions is P or "pad" not in name]
    images = [image(name, True).requires_grad_() for name in names]

    def together(functions: Any, images: list[Tensor]) -> list[Tensor]:
        return [CALLS[name][1](functions, x) for name, x in zip(names, images, strict=True)]

    def found(results: list[Tensor]) -> dict[str, tuple[tuple[int, ...], tuple[int, ...]]]:
        gradients = torch.autograd.grad(results, images, [torch.rand_like(one) for one in results])
        lie = zip(names, results, gradients, strict=True)
        return {name: (result.stride(), gradient.stride()) for name, result, gradient in lie}

    compiled = torch.compile(together, backend="polyphase", fullgraph=True)
    assert found(compiled(functions, images)) == found(together(F, images))
