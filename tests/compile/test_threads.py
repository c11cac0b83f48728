"""Tracing in two threads: while ours keeps operators whole, torch's own tracers in another find them as ever."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch._inductor.compile_fx import compile_fx
from torch.fx.experimental.proxy_tensor import make_fx

from polyphase.calls.plain import in_a_new_thread
from polyphase.compile.whole import kept_whole

IMAGE = torch.rand(1, 2, 6, 7)


class Resampled(torch.nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        resized = F.interpolate(x, (4, 5), mode="bilinear") + F.interpolate(x, scale_factor=0.8, mode="nearest")
        return torch.flip(F.pad(resized, (1, 1, 1, 1), mode="reflect"), (-1,))


def targets(graph: torch.fx.GraphModule) -> list[str]:
    return [str(node.target) for node in graph.graph.nodes if node.op == "call_function"]


def by_make_fx() -> list[str]:
    return targets(make_fx(Resampled(), tracing_mode="symbolic")(IMAGE))


def by_export() -> list[str]:
    return targets(torch.export.export(Resampled(), (IMAGE,)).run_decompositions().graph_module)


def by_inductor() -> list[str]:
    """What AOTAutograd hands to it, decomposed by its table."""
    seen: list[str] = []

    def inner(graph: torch.fx.GraphModule, *args: object, **kwargs: object) -> Callable[..., object]:
        seen.extend(targets(graph))
        return graph.forward

    with torch._functorch.config.patch(enable_autograd_cache=False):
        compile_fx(torch.fx.symbolic_trace(Resampled()), [IMAGE], inner_compile=inner)
    return seen


WAYS = {"make_fx": by_make_fx, "export": by_export, "inductor": by_inductor}


@pytest.mark.parametrize("name", WAYS)
def test_operators_are_kept_whole_in_their_own_thread(name: str) -> None:
    alone = WAYS[name]()
    with kept_whole():
        assert in_a_new_thread(WAYS[name]) == alone
        here = WAYS[name]()
    assert WAYS[name]() == alone
    if name != "export":
        assert "aten.upsample_bilinear2d.default" in here
        assert "aten.upsample_bilinear2d.default" not in alone


def test_they_are_whole_while_others_enter_and_leave() -> None:
    """make_fx itself is for one thread at a time."""
    stop = threading.Event()

    def others() -> None:
        while not stop.is_set():
            with kept_whole():
                pass

    thread = threading.Thread(target=others)
    thread.start()
    try:
        alone = by_make_fx()
        with kept_whole():
            here = by_make_fx()
    finally:
        stop.set()
        thread.join()
    assert "aten.upsample_bilinear2d.default" in here
    assert "aten.upsample_bilinear2d.default" not in alone
