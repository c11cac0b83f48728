"""Compiled graphs on a GPU: what `tests/compile`, run there by `on_gpu.py`, does not ask."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import polyphase
from tests.compile.running import compiled, launches
from tests.compile.test_training import CASES, smooth, train

pytestmark = [pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"), pytest.mark.inductor]


@pytest.fixture(autouse=True)
def _on_gpu() -> Iterator[None]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    with torch.device("cuda"):
        yield


@contextmanager
def deterministic() -> Iterator[None]:
    """With CUBLAS_WORKSPACE_CONFIG=:4096:8, which has to be set when CUDA starts."""
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("name", CASES)
def test_twenty_steps(name: str) -> None:
    """Eager's losses and weights."""
    kind, shapes = CASES[name]
    eager = kind()
    ours = copy.deepcopy(eager)
    inputs = [tuple(smooth(shape) for shape in shapes) for _ in range(3)]
    wanted = train(eager, inputs, eager)
    losses, launched = launches(train, ours, inputs, compiled(ours))
    torch.testing.assert_close(torch.tensor(losses), torch.tensor(wanted), rtol=1e-3, atol=1e-5)
    for got, want in zip(ours.parameters(), eager.parameters(), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-2, atol=1e-3)
    assert launched >= 2 * len(losses)


@pytest.mark.parametrize("accelerated", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_the_same_bits_twice(name: str, accelerated: bool) -> None:
    """In deterministic mode, where eager's spatial transformer raises."""
    kind, shapes = CASES[name]
    model = kind()
    inputs = [tuple(smooth(shape) for shape in shapes) for _ in range(3)]
    found = []
    with deterministic():
        for one in (copy.deepcopy(model), copy.deepcopy(model)):
            around: AbstractContextManager[Any] = polyphase.accelerate() if accelerated else nullcontext()
            with around:
                losses = train(one, inputs, one if accelerated else compiled(one))
            found.append((losses, [weights.detach() for weights in one.parameters()]))
    assert found[0][0] == found[1][0]
    assert all(torch.equal(*pair) for pair in zip(found[0][1], found[1][1], strict=True))


def test_autocast() -> None:
    """bfloat16: the spatial transformer against eager in float32."""
    kind, shapes = CASES["spatial transformer"]
    eager = kind()
    ours = copy.deepcopy(eager)
    inputs = [tuple(smooth(shape) for shape in shapes) for _ in range(3)]

    class Cast(torch.nn.Module):
        def forward(self, *tensors: Tensor) -> Tensor:
            with torch.autocast("cuda", dtype=torch.bfloat16):
                result: Tensor = ours(*tensors)
            return result.float()

    wanted, losses = train(eager, inputs, eager), train(ours, inputs, compiled(Cast()))
    first = slice(10)  # trainings part later, as they do in eager
    torch.testing.assert_close(torch.tensor(losses[first]), torch.tensor(wanted[first]), rtol=0.05, atol=0.01)


def test_parts_on_their_devices() -> None:
    """Preprocessing on the CPU, the rest on the GPU: a kernel of ours on each."""

    def function(x: Tensor) -> Tensor:
        small = F.interpolate(x, size=(20, 30), mode="bilinear", antialias=True)
        return F.interpolate(small.to("cuda").float() / 255, scale_factor=2.0, mode="bicubic") - 0.5

    x = torch.randint(0, 256, (2, 3, 41, 53), dtype=torch.uint8, device="cpu")
    run = compiled(function)
    run(x)
    result, launched = launches(run, x)
    torch.testing.assert_close(result, function(x))
    assert launched == 2


def test_a_captured_graph_is_replayed() -> None:
    def function(x: Tensor) -> Tensor:
        return torch.relu(F.interpolate(x, size=(33, 47), mode="bicubic", antialias=True)) * 2

    run = compiled(function, mode="reduce-overhead")
    for _ in range(4):
        x = torch.rand(2, 3, 64, 96)
        torch.compiler.cudagraph_mark_step_begin()
        torch.testing.assert_close(run(x).clone(), function(x))


def test_explained() -> None:
    """Ours with what it takes of the GPU, Triton's with its index expressions."""

    def function(x: Tensor, y: Tensor) -> Tensor:
        return torch.cat([F.interpolate(x, scale_factor=2.0, mode="bilinear"), torch.tanh(y.flip(-1))], 1)

    told = str(polyphase.explain(function)(torch.rand(1, 4, 8, 8), torch.rand(1, 4, 16, 16)))
    assert "registers each" in told
    assert "triton_" in told
    assert "it only moves values, beside arithmetic" in told
