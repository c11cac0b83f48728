"""Derivatives and vmap through the decompositions themselves, with vmap's slow fallback disabled."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import jvp, vjp, vmap

from tests.decompositions.calls import TABLE, Call, calls

DIFFERENTIABLE = calls(torch.float64)
Function = Callable[..., Tensor]


@pytest.fixture(autouse=True)
def _no_fallback() -> Iterator[None]:
    functorch: Any = torch._C._functorch
    before = functorch._is_vmap_fallback_enabled()
    functorch._set_vmap_fallback_enabled(False)
    yield
    functorch._set_vmap_fallback_enabled(before)


def pulled_back(function: Function) -> Function:
    def gradients(*tensors: Tensor) -> Tensor:
        output, pull = vjp(function, *tensors)
        cotangent = torch.arange(output.numel(), dtype=output.dtype).reshape(output.shape).cos()
        return torch.cat([gradient.flatten() for gradient in pull(cotangent)])

    return gradients


def pushed_forward(function: Function) -> Function:
    def tangent(*tensors: Tensor) -> Any:
        return jvp(function, tensors, tuple(torch.cos(7 * t) for t in tensors))[1]

    return tangent


TRANSFORMS: dict[str, Callable[[Function], Function]] = {
    "vmap": lambda function: function,
    "vmap-of-vjp": pulled_back,
    "vmap-of-jvp": pushed_forward,
}


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("call", DIFFERENTIABLE, ids=str)
def test_vmap(call: Call, transform: str) -> None:
    function = TRANSFORMS[transform](call.decomposed)
    tensors = call.tensors((5, 7, 4), (2, 2))
    batches = [torch.stack([t, t * 0.5, t.flip(-1)]) for t in tensors]
    one_by_one = torch.stack([function(*(batch[i] for batch in batches)) for i in range(3)])
    torch.testing.assert_close(vmap(function)(*batches), one_by_one)


@pytest.mark.parametrize("fast", [True, pytest.param(False, marks=pytest.mark.full)])
@pytest.mark.parametrize("call", DIFFERENTIABLE, ids=str)
def test_gradcheck(call: Call, fast: bool) -> None:
    """Reverse and forward mode against finite differences: along a random direction, or of every entry."""
    tensors = [t.requires_grad_() for t in call.tensors((4, 4, 3), (1, 1))]
    torch.manual_seed(0)
    assert torch.autograd.gradcheck(call.decomposed, tensors, check_forward_ad=True, fast_mode=fast)


@pytest.mark.parametrize("call", [c for c in DIFFERENTIABLE if "_backward" in c.op.name()], ids=str)
def test_a_backward_is_the_adjoint_of_its_forward(call: Call) -> None:
    """<A x, y> = <x, A' y>, where A' is the backward overload and A the forward one it belongs to."""
    name = call.op.name().removeprefix("aten::").removesuffix("_backward")
    forward = getattr(torch.ops.aten, name).default
    (y,) = call.tensors((6, 9, 5))
    pulled = call.decomposed(y)
    x = torch.rand_like(pulled)
    flags = [] if "nearest" in name else ["T" in call.label.split("-")[0]]
    pushed = TABLE[forward](x, list(y.shape[2:]), *flags)
    torch.testing.assert_close((pushed * y).sum(), (x * pulled).sum(), rtol=1e-12, atol=1e-12)
