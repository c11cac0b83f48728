"""Which overloads have a decomposition: written out, so that a missing one is seen."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from polyphase.decompositions import preferred, table

FORWARD = [
    *("upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d", "upsample_bicubic2d"),
    *("_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa", "_upsample_lanczos2d_aa"),
    *("upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d"),
    *("_upsample_nearest_exact1d", "_upsample_nearest_exact2d", "_upsample_nearest_exact3d"),
]
FORWARD = [name for name in FORWARD if name in dir(torch.ops.aten) or "lanczos" not in name]  # newer than torch 2.11
OTHERS = [
    *("flip", "pad", "grid_sampler", "grid_sampler_2d", "grid_sampler_3d", "affine_grid_generator"),
    *(f"{kind}_pad{axes}d" for kind in ("reflection", "replication") for axes in (1, 2, 3)),
]


def test_the_overloads() -> None:
    expected = {f"aten::{name}{rest}" for name in FORWARD for rest in ("", ".vec", "_backward")}
    expected |= {f"aten::{name}" for name in OTHERS} | {"polyphase::resample", "polyphase::warp"}
    assert {op.name() for op in table()} == expected


def test_every_upsample_of_this_torch_is_there() -> None:
    """A new torch may bring a new one."""
    names = {name for name in dir(torch.ops.aten) if "upsample_" in name}
    assert names == {*FORWARD, *(f"{name}_backward" for name in FORWARD)}


def test_the_table_is_the_callers_own() -> None:
    mine = table()
    mine.clear()
    assert table()


def targets(function: Callable[[Tensor], Tensor] = lambda x: F.interpolate(x, (4, 5), mode="bilinear")) -> set[str]:
    """Which operators make_fx, given no table, finds in a function."""
    graph = make_fx(function, tracing_mode="symbolic")(torch.rand(1, 2, 6, 7)).graph
    return {str(node.target) for node in graph.nodes if node.op == "call_function"}


WHOLE = {"aten.upsample_bilinear2d.default"}


def test_preferred_puts_back_what_it_took() -> None:
    before = {op: dict(op.py_kernels) for op in table()}
    torchs = targets()
    with preferred():
        assert targets() >= WHOLE
        with preferred():
            assert targets() >= WHOLE
        assert targets() >= WHOLE
    assert {op: dict(op.py_kernels) for op in table()} == before
    with pytest.raises(ZeroDivisionError), preferred():
        _ = 1 / 0
    assert {op: dict(op.py_kernels) for op in table()} == before
    assert targets() == torchs
    assert not torchs & WHOLE


@pytest.mark.parametrize("first_to_leave", [0, 1])
def test_preferred_is_for_its_thread(first_to_leave: int) -> None:
    before = {op: dict(op.py_kernels) for op in table()}
    found: list[set[str]] = []
    entered, leave = (threading.Barrier(2), threading.Barrier(2)), threading.Event()

    def enter() -> None:
        entered[0].wait()
        found.append(targets())
        with preferred():
            found.append(targets())
            entered[1].wait()
            leave.wait() if first_to_leave == 0 else None

    torchs, other = targets(), threading.Thread(target=enter)
    other.start()
    with preferred():
        entered[0].wait()
        entered[1].wait()
        other.join() if first_to_leave == 1 else None
        assert targets() >= WHOLE
    leave.set()
    other.join()
    assert found[0] == torchs
    assert found[1] >= WHOLE
    assert targets() == torchs
    assert {op: dict(op.py_kernels) for op in table()} == before
