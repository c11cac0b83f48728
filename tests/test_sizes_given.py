"""Resizes whose sizes are arguments of one call in C++, whatever they are."""

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
from polyphase.calls import binding
from polyphase.errors import PolyphaseError
from polyphase.functional import _INTERPOLATE, _resized
from polyphase.ops.short_way import ShortWay
from polyphase.records.facts import facts

MODES: dict[str, tuple[int, dict[str, Any]]] = {
    "nearest": (2, {}),
    "nearest-exact": (1, {}),
    "linear": (1, {}),
    "bilinear": (2, {}),
    "bilinear, aligned": (2, {"align_corners": True}),
    "bilinear, antialiased": (2, {"antialias": True}),
    "bicubic": (2, {}),
    "lanczos": (2, {"antialias": True}),
    "area": (2, {}),
    "trilinear": (3, {}),
    "area of volumes": (3, {}),
}


def bound(x: Tensor, size: Any, mode: str, options: dict[str, Any]) -> Tensor:
    """By a program of its own."""
    given = (size, None, mode, options.get("align_corners"), None, options.get("antialias", False), None)
    return binding.bind(_resized(facts(x), *given), (facts(x),)).fresh(x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.uint8], ids=str)
@pytest.mark.parametrize("name", MODES)
def test_any_sizes(name: str, dtype: torch.dtype) -> None:
    """The same bits and strides, of one pixel along an axis too, and of images of several sizes and orders."""
    axes, options = MODES[name]
    mode, draw = name.partition(",")[0].partition(" ")[0], random.Random(name)
    for number in range(60):
        shape = (draw.randrange(1, 3), draw.randrange(1, 4), *[draw.randrange(1, 14) for _ in range(axes)])
        x = torch.rand(shape, generator=torch.Generator().manual_seed(number)).mul(255).to(dtype)
        if number % 3 == 0:
            x = x.movedim(1, -1).contiguous().movedim(-1, 1)
        least = 1 if number > 5 else 2  # what is bound first is for more than one pixel
        size = [draw.choice((least, draw.randrange(least, 20))) for _ in range(axes)]
        size = size[:1] * axes if number % 5 == 0 else size
        given: Any = tuple(size) if number % 2 else size
        want = bound(x, size, mode, options)
        for _ in range(3):  # the second is bound to be the latest, the third is that
            got = P.interpolate(x, given, mode=mode, **options)
            assert torch.equal(got, want)
            assert got.stride() == want.stride()


def test_a_new_size_binds_nothing_in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.rand(1, 3, 20, 24)
    P.interpolate(x, (5, 7), mode="bilinear", antialias=True)

    def unexpected(*call: object) -> None:
        raise AssertionError("bound again")

    for one in ("_bound", "_bound_to_any_size", "_bound_to_given_sizes"):
        monkeypatch.setattr(ShortWay, one, unexpected)
    monkeypatch.setattr(_INTERPOLATE, "_program_of", unexpected)
    for size in range(2, 40):
        assert P.interpolate(x, (size, 41 - size), mode="bilinear", antialias=True).shape == (1, 3, size, 41 - size)
        assert P.interpolate(x[..., size // 2 :], [size, 3], mode="bilinear", antialias=True).shape == (1, 3, size, 3)


@pytest.mark.parametrize("wrong", [(0, 5), (5, -1), (5,), (5, 6, 7), (2.5, 3), (5, "6"), (2**62, 2**62)], ids=str)
def test_mistakes_are_told_before_and_after(wrong: Any) -> None:
    x = torch.rand(1, 3, 11, 12)
    said = []
    for _ in range(2):
        with pytest.raises(PolyphaseError) as error:
            P.interpolate(x, wrong, mode="bicubic")
        said.append(str(error.value))
        P.interpolate(x, (5, 6), mode="bicubic")
    assert said[0] == said[1]
    with pytest.raises(PolyphaseError, match="box"):
        P.interpolate(x, (5, 6), mode="bicubic", box=(3, 3, 3, 9))


def test_what_needs_a_gradient_goes_another_way() -> None:
    x = torch.rand(1, 3, 11, 12)
    for given in (x, x.clone().requires_grad_()):
        assert P.interpolate(given, (5, 6), mode="bicubic").requires_grad == given.requires_grad


OPERATORS: dict[str, tuple[int, Callable[..., Tensor]]] = {
    "nearest": (2, lambda x, size: F.interpolate(x, size, mode="nearest-exact")),
    "antialiased": (2, lambda x, size: F.interpolate(x, size, mode="bilinear", antialias=True)),
    "bicubic": (2, lambda x, size: F.interpolate(x, size, mode="bicubic", align_corners=True)),
    "trilinear": (3, lambda x, size: F.interpolate(x, size, mode="trilinear")),
    "means": (2, F.adaptive_avg_pool2d),
    "means of volumes": (3, F.adaptive_avg_pool3d),
    "pads": (2, lambda x, amounts: F.pad(x, [1, *amounts, 1], mode="reflect")),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_operators_under_accelerate(name: str) -> None:
    """Whatever sizes come, each often enough to be made without Python."""
    axes, operator = OPERATORS[name]
    draw, cases = random.Random(name), []
    for number in range(24):
        least = 1 if number > 3 and name != "antialiased" else 2  # to one pixel eager weighs otherwise
        size = [draw.randrange(least, 5) if draw.random() < 0.5 else draw.randrange(least, 20) for _ in range(axes)]
        size = [1] * axes if number == 9 and least == 1 else size
        x = torch.rand(1, 2, *[draw.randrange(7, 15) for _ in range(axes)], dtype=torch.float64)
        if name == "pads":
            size = [min(one, 6) for one in size]
        x = x.movedim(1, -1).contiguous().movedim(-1, 1) if number % 3 == 0 else x
        cases.append((x, size, operator(x, size)))
    with polyphase.accelerate():
        for x, size, want in [*cases, *cases]:
            for _ in range(3):
                got = operator(x, size)
                torch.testing.assert_close(got, want)
                assert got.stride() == want.stride()
