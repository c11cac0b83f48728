"""Calls that are bound to any size, in C++, against those that Python binds to one."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import polyphase
import polyphase.functional as P
from polyphase.calls import binding, handles
from polyphase.cpu import launch
from polyphase.errors import PolyphaseError
from polyphase.records import layout
from polyphase.records.facts import facts
from polyphase.sampling.axis_maps import AxisMap
from polyphase.sampling.programs import Program, maps_program, warp_program
from polyphase.sampling.steps import Area, Flip, Nearest, Pad, Resize, Slice, Step
from polyphase.sampling.warps import Warp


def maps_of(*axes: Step | None) -> tuple[AxisMap, ...]:
    return tuple(AxisMap(() if one is None else (one,)) for one in axes)


STEPS: dict[str, tuple[Step | None, ...]] = {
    "resize": (Resize(5, "bilinear"), Resize(3, "bilinear")),
    "antialiased": (Resize(2, "bicubic", antialias=True), Resize(9, "bicubic", antialias=True)),
    "nearest, by a factor": (Nearest(6, scale=2.0), Nearest(4)),
    "area": (Area(3), Area(1)),
    "boxes": (Resize(5, "bilinear", antialias=True, box=(0.5, 6)), Nearest(4, box=(1, 2.75))),
    "flip": (Flip(), None),
    "constant": (Pad(1, 2, border=1), Pad(-1, 0, border=1)),
    "crop": (Pad(-1, -2, border=1), Pad(0, -3, border=1)),
    "reflect": (Pad(3, 2, "reflect"), Pad(0, 4, "reflect")),
    "replicate": (Pad(3, -2, "replicate"), Pad(0, 4, "replicate")),
    "circular": (Pad(3, 2, "circular"), Pad(-2, 4, "circular")),
    "symmetric": (Pad(3, 2, "symmetric"), Pad(-2, 4, "symmetric")),
}


def image(rng: random.Random, dtype: torch.dtype, sizes: tuple[int, ...]) -> Tensor:
    """Of these sizes, in memory in one of many ways."""
    generator = torch.Generator().manual_seed(rng.randrange(2**31))
    kind = rng.choice(["contiguous", "channels last", "view", "turned", "expanded"])
    larger = [n + 2 for n in sizes] if kind == "view" else list(sizes)
    values = torch.randint(0, 256, larger, generator=generator, dtype=torch.int64).to(dtype)
    if kind == "channels last":
        return values.contiguous(memory_format=torch.channels_last)
    if kind == "view":
        return values[tuple(slice(1, 1 + n) for n in sizes)]
    if kind == "turned":
        return values.mT.contiguous().mT
    if kind == "expanded" and sizes[0]:
        return values[:1].expand(sizes)
    return values


def bound(program: Program, *tensors: Tensor) -> Tensor | str:
    try:
        return binding.bind(program, tuple(map(facts, tensors))).fresh(*tensors)
    except PolyphaseError as error:
        return str(error)


class Otherwise(list[tuple[Tensor, ...]]):
    def __call__(self, *tensors: Tensor) -> None:
        self.append(tensors)


def any_size(program: Program, otherwise: Otherwise, *tensors: Tensor) -> Callable[..., Any]:
    call = binding.for_any_size(program, tuple(map(facts, tensors)), otherwise)  # type: ignore[arg-type]
    assert call is not None
    return call


@pytest.mark.parametrize("dtype", [torch.float32, torch.uint8, torch.float16], ids=str)
@pytest.mark.parametrize("kind", STEPS)
def test_maps_of_any_size(kind: str, dtype: torch.dtype) -> None:
    """The same bits and strides. What it hands to Python is what has no kernel, or may be a mistake."""
    program, otherwise, rng = maps_program(dtype, maps_of(*STEPS[kind]), border=7), Otherwise(), random.Random(kind)
    call = any_size(program, otherwise, torch.zeros(2, 3, 8, 9, dtype=dtype))
    taken = 0
    for _ in range(60):
        x = image(rng, dtype, (rng.randrange(0, 3), rng.randrange(1, 5), rng.randrange(1, 12), rng.randrange(1, 12)))
        otherwise.clear()
        found, wanted = call(x), bound(program, x)
        if otherwise:
            assert otherwise[0][0] is x
            small = min(x.shape) < 1 or min(x.shape[2:]) <= 4  # of which pads may leave nothing
            assert small
            assert not isinstance(wanted, Tensor) or wanted.numel() == 0 or kind == "replicate"
            continue
        taken += 1
        assert isinstance(wanted, Tensor)
        assert torch.equal(found, wanted)
        assert found.stride() == wanted.stride()
    assert taken > 10


@pytest.mark.parametrize("source", ["grid", "affine"])
@pytest.mark.parametrize("axes", [2, 3])
def test_warps_of_any_size(source: str, axes: int) -> None:
    size = (4, 3, 5)[:axes] if source == "affine" else ()
    program = warp_program(torch.float32, Warp(source, "bilinear", "border", False, size))
    otherwise, rng = Otherwise(), random.Random(axes)

    def coordinates(batch: int) -> Tensor:
        if source == "affine":
            return torch.rand(batch, axes, axes + 1)
        sizes = [rng.randrange(0 if rng.random() < 0.1 else 1, 6) for _ in range(axes)]
        dense = torch.rand(batch, *sizes, axes) * 2 - 1
        return dense.transpose(1, 2).contiguous().transpose(1, 2) if rng.random() < 0.3 else dense

    call = any_size(program, otherwise, torch.zeros(2, 3, *[5] * axes), coordinates(2))
    for _ in range(40):
        batch = rng.choice([2, 2, 1])
        x = torch.rand(batch, rng.randrange(1, 4), *[rng.randrange(1, 9) for _ in range(axes)])
        along = coordinates(batch if rng.random() < 0.8 else 3)
        otherwise.clear()
        found = call(x, along)
        mistaken = along.shape[0] != batch or 0 in along.shape or (source == "affine" and batch != 2)
        assert bool(otherwise) == mistaken
        if not mistaken:
            wanted = bound(program, x, along)
            assert isinstance(wanted, Tensor)
            assert torch.equal(found, wanted)
            assert found.stride() == wanted.stride()


def test_what_is_not_for_any_size() -> None:
    otherwise = Otherwise()
    x = torch.zeros(2, 3, 8, 9)
    call = any_size(maps_program(torch.float32, maps_of(Flip())), otherwise, x)
    for other in (torch.zeros(3, 8, 9), torch.zeros(2, 3, 0, 9), torch.zeros(1, 1, 1, 2**16 + 1)):
        otherwise.clear()
        call(other)
        assert otherwise
    sliced = any_size(maps_program(torch.float32, maps_of(Slice(0, 4))), otherwise, x)
    otherwise.clear()
    sliced(x)
    assert otherwise
    adjoint = maps_program(torch.float32, maps_of(Resize(8, "bilinear")), (5,))
    assert binding.for_any_size(adjoint, (facts(torch.zeros(3, 8)),), otherwise) is None  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="coordinates at most"):
        call()
    with pytest.raises(AttributeError, match="size"):
        call(3)


def test_more_sizes_than_are_kept() -> None:
    """Python binds none of them; those that were forgotten are bound anew, and right."""
    otherwise = Otherwise()
    call = any_size(maps_program(torch.float32, maps_of(Resize(4, "bilinear"))), otherwise, torch.zeros(2, 3))
    made = {n: torch.rand(2, n) for n in range(1, 400)}
    for x in [*made.values(), *made.values(), made[7], made[7]]:
        wanted = F.interpolate(x[None], 4, mode="linear")[0]
        torch.testing.assert_close(call(x), wanted)
    assert not otherwise


def test_a_size_that_comes_while_another_is_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """As another thread's may, where Python is asked for the strides of an output."""
    small, large = torch.rand(3, 2).mT, torch.rand(40, 50).mT
    waiting, seen = [large], []

    def strides_like(shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, ...]:
        if waiting:
            seen.append(call(waiting.pop()))
        return layout.strides_like(shape, strides)

    monkeypatch.setattr(launch, "strides_like", strides_like)
    call = any_size(maps_program(torch.float32, maps_of(Flip(), None)), Otherwise(), torch.zeros(2, 3))
    assert torch.equal(call(small), small.flip(0))
    assert torch.equal(seen[0], large.flip(0))


def test_subclasses_are_asked_by_their_methods() -> None:
    """And other tensors by their handles: the same sizes, strides and places."""
    assert handles.packed() is not None, "this torch has handles elsewhere: calls take longer"
    call = any_size(maps_program(torch.float32, maps_of(Flip(), None)), Otherwise(), torch.zeros(2, 3))
    for x in (torch.rand(4, 5), torch.rand(5, 4).mT, torch.rand(9, 9)[2:, 3:], torch.rand(1, 5).expand(4, 5)):
        for seen in (x, torch.nn.Parameter(x, requires_grad=False)):
            found, wanted = call(seen), x.flip(0)
            assert torch.equal(found, wanted)
            assert found.stride() == wanted.stride()


# ---- through the functions and accelerate()

CALLS: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "resize": lambda m, x: m.interpolate(x, size=(4, 5), mode="bilinear"),
    "flip": lambda m, x: (torch.flip if m is F else P.flip)(x, (-1, -2)),
    "pad": lambda m, x: m.pad(x, (1, 2), value=3.0),
    "reflect": lambda m, x: m.pad(x, (3, 3, 2, 2), mode="reflect"),
}


def no_binding(*call: object) -> None:
    raise AssertionError("bound in Python")


@pytest.mark.parametrize("kind", CALLS)
def test_a_new_size_binds_nothing_in_python(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = [(h, w) for h in range(5, 25) for w in range(5, 25)]
    for size in sizes[:2]:
        CALLS[kind](P, torch.rand(1, 2, *size))
    with polyphase.accelerate():
        for size in sizes[:2]:
            CALLS[kind](F, torch.rand(1, 2, *size))
    monkeypatch.setattr(binding, "record_of", no_binding)
    for size in sizes[2:]:
        x = torch.rand(1, 2, *size)
        wanted = CALLS[kind](F, x)
        torch.testing.assert_close(CALLS[kind](P, x), wanted)
        with polyphase.accelerate():
            torch.testing.assert_close(CALLS[kind](F, x), wanted)


def test_mistakes_after_calls_that_were_right() -> None:
    for n in (6, 7, 8):
        CALLS["reflect"](P, torch.rand(1, 2, n, n))
    with pytest.raises(PolyphaseError, match="at most 2"):
        CALLS["reflect"](P, torch.rand(1, 2, 9, 3))
    with polyphase.accelerate():
        for n in (6, 7, 8):
            CALLS["reflect"](F, torch.rand(1, 2, n, n))
        with pytest.raises(RuntimeError, match="Padding size should be less"):
            CALLS["reflect"](F, torch.rand(1, 2, 9, 3))
        assert CALLS["reflect"](F, torch.rand(0, 2, 9, 9)).shape == (0, 2, 13, 15)


def test_rows_of_any_few_bytes() -> None:
    """Copied in two pieces that overlap: one after the other, and those of a list."""
    for width in range(1, 70):
        x = torch.randint(256, (9, width), dtype=torch.uint8)
        assert torch.equal(P.pad(x, (2, 1), value=5.0), F.pad(x, (2, 1), value=5.0))
        assert torch.equal(P.flip(x, (0,)), x.flip(0))
