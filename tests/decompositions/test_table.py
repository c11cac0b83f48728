"""Which overloads have a decomposition: written out, so that a missing one is seen."""

from __future__ import annotations

import threading

import pytest
import torch
from torch._C import DispatchKey

from polyphase.decompositions import preferred, table

FORWARD = [
    *("upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d", "upsample_bicubic2d"),
    *("_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa", "_upsample_lanczos2d_aa"),
    *("upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d"),
    *("_upsample_nearest_exact1d", "_upsample_nearest_exact2d", "_upsample_nearest_exact3d"),
]
FORWARD = [name for name in FORWARD if name in dir(torch.ops.aten) or "lanczos" not in name]  # newer than torch 2.11
OTHERS = [
    *("flip", "grid_sampler_2d", "grid_sampler_3d", "affine_grid_generator"),
    *(f"{kind}_pad{axes}d" for kind in ("reflection", "replication") for axes in (1, 2, 3)),
]
BILINEAR = torch.ops.aten.upsample_bilinear2d.default


def test_the_overloads() -> None:
    expected = {f"aten::{name}{rest}" for name in FORWARD for rest in ("", ".vec", "_backward")}
    expected |= {f"aten::{name}" for name in OTHERS}
    assert {op.name() for op in table()} == expected


def test_every_upsample_of_this_torch_is_there() -> None:
    """A new torch may bring a new one."""
    names = {name for name in dir(torch.ops.aten) if "upsample_" in name}
    assert names == {*FORWARD, *(f"{name}_backward" for name in FORWARD)}


def test_the_table_is_the_callers_own() -> None:
    mine = table()
    mine.clear()
    assert table()


def test_preferred_puts_back_what_it_took() -> None:
    before = {op: dict(op.py_kernels) for op in table()}
    assert DispatchKey.Autograd in BILINEAR.py_kernels
    with preferred():
        assert DispatchKey.Autograd not in BILINEAR.py_kernels
        with preferred():
            assert DispatchKey.Autograd not in BILINEAR.py_kernels
        assert DispatchKey.Autograd not in BILINEAR.py_kernels
    assert {op: dict(op.py_kernels) for op in table()} == before
    with pytest.raises(ZeroDivisionError), preferred():
        _ = 1 / 0
    assert {op: dict(op.py_kernels) for op in table()} == before


def test_preferred_is_for_one_thread_at_a_time() -> None:
    entered = threading.Event()

    def enter() -> None:
        with preferred():
            entered.set()

    with preferred():
        other = threading.Thread(target=enter)
        other.start()
        assert not entered.wait(0.05)
    other.join()
    assert entered.is_set()
