"""Whole calls in graphs of Dynamo, under the transforms of torch.func: as without a graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import grad, jacfwd, jvp, vmap

import polyphase
import polyphase.functional as P
from tests.support.samples import image

X = image((2, 3, 6, 7))
THETA = torch.eye(2, 3).expand(2, 2, 3) * 0.9
SQUARE = torch.eye(3).expand(2, 3, 3) + 0.01
CALLS: dict[str, tuple[Callable[[Tensor], Tensor], Tensor]] = {
    "interpolate": (lambda x: P.interpolate(x, 5, mode="bilinear", box=(0, 0.5, 6, 5)), X),
    "flip": (lambda x: P.flip(x, (-1,)), X),
    "pad": (lambda x: P.pad(x, (1, 2, 0, 1), mode="symmetric"), X),
    "grid_sample": (lambda grid: P.grid_sample(X, grid, fill=2.0), image((2, 4, 5, 2), low=-1.0)),
    "affine_grid": (lambda theta: P.affine_grid(theta, (2, 3, 4, 5)), THETA),
    "affine_sample": (lambda theta: P.affine_sample(X, theta, (2, 3, 4, 5)), THETA),
    "perspective_sample": (lambda matrix: P.perspective_sample(X, matrix, (2, 3, 4, 5)), SQUARE),
    "displacement_sample": (lambda field: P.displacement_sample(X, field), image((2, 4, 5, 2), low=-2.0)),
}


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    torch._dynamo.reset()
    return torch.compile(function, backend="eager", fullgraph=True)


@pytest.mark.parametrize("name", CALLS)
def test_tangents(name: str) -> None:
    """Also of a sum whose other part has one, where a lost tangent would be a wrong number."""
    function, at = CALLS[name]

    def tangent(at: Tensor) -> Any:
        return jvp(lambda one: function(one) + one.sum(), (at,), (at * 0.1,))[1]

    torch.testing.assert_close(compiled(tangent)(at), tangent(at))


@pytest.mark.parametrize("name", ["interpolate", "affine_sample", "perspective_sample"])
def test_tangents_of_gradients(name: str) -> None:
    function, at = CALLS[name]

    def product(at: Tensor) -> Any:
        return jvp(grad(lambda one: (function(one) + one.sum()).square().sum()), (at,), (at * 0.1,))[1]

    torch.testing.assert_close(compiled(product)(at), product(at), rtol=1e-4, atol=1e-4)


def test_forward_jacobian() -> None:
    function, at = CALLS["affine_sample"]
    torch.testing.assert_close(compiled(jacfwd(function))(at), jacfwd(function)(at))


@pytest.mark.parametrize("name", CALLS)
def test_vmap_is_one_launch(name: str) -> None:
    function, at = CALLS[name]
    many = torch.stack([at, at * 0.9, at * 0.8], dim=1)
    mapped = vmap(function, in_dims=1)
    ours = compiled(mapped)
    torch.testing.assert_close(ours(many), mapped(many))
    before = polyphase.stats()["kernels_launched"]
    ours(many)
    assert polyphase.stats()["kernels_launched"] - before == (name != "affine_grid")
