"""Chains of up to six operators, drawn by Hypothesis: through the compiler they are what they are in eager.

Most run through the pass alone, on the plain twin of the kernels: tens of milliseconds each. Fewer on kernels, few
through Inductor.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch._inductor.exc import InductorError

from tests.compile.chains import Chain, chains, greatest
from tests.compile.running import compiled, launches
from tests.compile.traced import fused, on_plain_torch, programs_in

steady = settings(
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)
any_chain = st.sampled_from([torch.uint8, torch.float32]).flatmap(chains)


def check(chain: Chain, got: Tensor, tensors: list[Tensor]) -> None:
    values = chain.values(*tensors)
    want = values[-1]
    assert (got.dtype, got.shape) == (want.dtype, want.shape)
    if chain.loose:
        off = (got.double() - want.double()).abs()
        assert off.max() <= 1
        assert (off > 0).double().mean() <= max(0.02, 1.5 / off.numel())
    elif want.is_floating_point():
        torch.testing.assert_close(got, want, rtol=1e-5, atol=4e-6 * greatest([*values, *tensors]) + 1e-7)
    else:
        assert torch.equal(got, want)


def check_through_the_pass(chain: Chain, fusion: bool = True) -> int:
    """How many programs it became."""
    tensors = chain.tensors()
    run, graphs = fused(chain, fusion)
    got = run(*tensors)
    check(chain, got, tensors)
    (graph,) = graphs
    (traced,) = graph.meta["strides"]
    if torch.empty_like(chain(*tensors)).stride() == traced:  # views that are returned: test_bystanders.py
        apart = [(own, of_graph) for n, own, of_graph in zip(got.shape, got.stride(), traced, strict=True) if n != 1]
        assert all(own == of_graph for own, of_graph in apart), f"{got.stride()} where the graph has {traced}"
    return programs_in(graphs)


def test_through_the_pass() -> None:
    taken = []

    @settings(steady, max_examples=60)
    @given(chain=any_chain)
    def check_one(chain: Chain) -> None:
        with on_plain_torch():
            taken.append(check_through_the_pass(chain))

    check_one()
    assert sum(number > 0 for number in taken) > len(taken) / 3, "or this would hold of a pass that does nothing"


@settings(steady, max_examples=30)
@given(chain=any_chain)
def test_through_the_pass_one_by_one(chain: Chain) -> None:
    """Without fusion: what stands beside an operator does not matter."""
    with on_plain_torch():
        check_through_the_pass(chain, fusion=False)


@pytest.mark.full
@pytest.mark.parametrize("fusion", [True, False])
@settings(steady, max_examples=3000, derandomize=False)
@given(chain=any_chain)
def test_through_the_pass_full(fusion: bool, chain: Chain) -> None:
    with on_plain_torch():
        check_through_the_pass(chain, fusion)


@settings(steady, max_examples=20)
@given(chain=any_chain)
def test_on_kernels(chain: Chain) -> None:
    check_through_the_pass(chain)


@pytest.mark.full
@settings(steady, max_examples=400, derandomize=False)
@given(chain=any_chain)
def test_on_kernels_full(chain: Chain) -> None:
    check_through_the_pass(chain)


def check_gradients(chain: Chain) -> None:
    tensors = [[one.detach().requires_grad_(one.is_floating_point()) for one in chain.tensors()] for _ in range(2)]
    run, graphs = fused(chain)
    want, got = chain(*tensors[0]), run(*tensors[1])
    assert got.requires_grad == want.requires_grad
    if not want.requires_grad:  # it went through bytes
        return
    incoming = torch.cos(torch.arange(want.numel(), dtype=want.dtype)).view(want.shape)
    differentiable = [[one for one in both if one.requires_grad] for both in tensors]
    wanted, found = (
        torch.autograd.grad(output, inputs, incoming, allow_unused=True, materialize_grads=True)
        for output, inputs in zip((want, got), differentiable, strict=True)
    )
    assert len(graphs) <= 2
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=2e-5 * greatest([*wanted, want.detach()]) + 1e-6)


@settings(steady, max_examples=30)
@given(chain=chains(torch.float32))
def test_gradients_through_the_pass(chain: Chain) -> None:
    with on_plain_torch():
        check_gradients(chain)


@pytest.mark.full
@settings(steady, max_examples=1000, derandomize=False)
@given(chain=chains(torch.float32))
def test_gradients_through_the_pass_full(chain: Chain) -> None:
    with on_plain_torch():
        check_gradients(chain)


def check_compiled(chain: Chain, **options: Any) -> None:
    """What Inductor cannot compile alone either, as some slices of symbolic sizes, tells nothing of us."""
    torch._dynamo.reset()
    tensors = chain.tensors()
    try:
        result = compiled(lambda *given: chain(*given), **options)(*tensors)
    except InductorError as error:
        torch._dynamo.reset()
        with pytest.raises(InductorError, match=re.escape(str(error).splitlines()[0])):
            torch.compile(lambda *given: chain(*given), backend="inductor", **options)(*tensors)
        return
    check(chain, result, tensors)


@pytest.mark.inductor
@settings(steady, max_examples=6)
@given(chain=any_chain)
def test_compiled(chain: Chain) -> None:
    check_compiled(chain)


@pytest.mark.inductor
@settings(steady, max_examples=2)
@given(chain=any_chain)
def test_compiled_for_any_size(chain: Chain) -> None:
    check_compiled(chain, dynamic=True)


@pytest.mark.full
@pytest.mark.inductor
@pytest.mark.parametrize("dynamic", [False, True])
@settings(steady, max_examples=60, derandomize=False)
@given(chain=any_chain)
def test_compiled_full(dynamic: bool, chain: Chain) -> None:
    check_compiled(chain, dynamic=dynamic)


REGROUPED: dict[str, Callable[[Tensor], Tensor]] = {
    "pad, regroup, flip": lambda x: torch.flip(F.pad(x, (2, 1)).reshape(2, 2, 5, 9), (-3,)),
    "flip, regroup, flip": lambda x: torch.flip(torch.flip(x, (-1,)).reshape(2, 2, 5, 6), (-3,)),
    "pad, regroup, permute": lambda x: F.pad(x, (2, 1)).reshape(2, 2, 5, 9).permute(0, 2, 3, 1).contiguous(),
    "pad, drop the batch, permute": lambda x: F.pad(x, (2, 1))[0].permute(1, 2, 0).contiguous(),
    "pad, regroup, vector": lambda x: F.pad(x, (2, 1)).reshape(2, 2, 5, 9) * torch.tensor([2.0, 3.0]).view(2, 1, 1),
    "pad, regroup, tensor": lambda x: F.pad(x, (2, 1)).reshape(2, 2, 5, 9) + torch.arange(180.0).view(2, 2, 5, 9),
    "regroup, flip, resize": lambda x: F.interpolate(torch.flip(x.reshape(4, 1, 5, 6), (-1,)), size=(2, 3)),
    "flip, regroup, resize": lambda x: F.interpolate(torch.flip(x, (-1,)).reshape(4, 1, 5, 6), size=(2, 3)),
    "regroup, pad, flip": lambda x: torch.flip(F.pad(x.reshape(2, 2, 5, 6), (2, 1)), (-3,)),
}


@pytest.mark.parametrize("name", REGROUPED)
def test_channels_regrouped(name: str) -> None:
    x = torch.rand(1, 4, 5, 6)
    run, _ = fused(REGROUPED[name])
    assert torch.equal(run(x), REGROUPED[name](x))


def test_a_chain_is_one_launch() -> None:
    def chain(x: Tensor) -> Tensor:
        y = F.interpolate(x, size=(9, 11), mode="bilinear", antialias=True)
        return (y[..., 1:8, 2:9].flip(-1).float() / 255).clamp(0.25, 0.75)

    x = torch.randint(0, 256, (2, 3, 14, 15), dtype=torch.uint8)
    run, _ = fused(chain)
    run(x)
    _, launched = launches(run, x)
    assert launched == 1
