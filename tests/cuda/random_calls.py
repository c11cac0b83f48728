"""Random calls of our functions, the same for the same number: what `on_gpu.py` runs on a GPU and on the CPU.

Sizes are free, but ratios of sizes, channels and dtypes come from short lists: every call may have sizes of its own,
while all of them together need a few hundred kernels, which a machine builds in half a minute.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import polyphase.functional as P
from tests.support.samples import DTYPES, GRID_MODES, GRID_PADDINGS, LAYOUTS, image

FLOATS = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
INTEGERS = (torch.int16, torch.uint16, torch.int32)  # which eager does not mix
COMPUTED = (*[torch.uint8] * 6, *[torch.float32] * 4, *FLOATS * 2, *INTEGERS)
#: Output pixels for an input pixel.
RATIOS = (0.05, 0.25, 0.5, 0.5, 0.7, 1.0, 2.0, 2.0, 3.3)
CHANNELS = (1, 3, 3, 4, 8)
SOURCES = ("grid", "affine", "homography", "displacement")
FILL_RULES = ("blend", "constant", "edge")
MODES: dict[int, tuple[dict[str, Any], ...]] = {
    1: ({"mode": "linear"}, {"mode": "nearest"}, {"mode": "area"}),
    2: (
        {"mode": "bilinear", "antialias": True},
        {"mode": "bilinear", "antialias": True},
        {"mode": "bicubic", "antialias": True},
        {"mode": "lanczos", "antialias": True},
        {"mode": "bilinear"},
        {"mode": "bilinear", "align_corners": True},
        {"mode": "bicubic"},
        {"mode": "bicubic", "align_corners": True},
        {"mode": "nearest"},
        {"mode": "nearest-exact"},
        {"mode": "area"},
    ),
    3: ({"mode": "trilinear"}, {"mode": "nearest-exact"}, {"mode": "area"}),
}


@dataclass(frozen=True)
class Call:
    """Of a function on an image. backward: its gradient is asked for. broken: values that are not finite are put in."""

    function: Callable[..., Tensor]
    options: dict[str, Any]
    shape: tuple[int, ...]
    dtype: torch.dtype
    layout: str
    seed: int
    backward: bool = False
    broken: bool = False
    shifted: bool = False  # memory begins where no vector of it could be read

    def __str__(self) -> str:
        words = [f"{self.function.__name__}({self.options})", f"{str(self.dtype)[6:]} {self.layout} {self.shape}"]
        marks = [name for name in ("backward", "broken", "shifted") if getattr(self, name)]
        return " ".join([*words, *marks, f"seed {self.seed}"])

    @property
    def mode(self) -> str:
        return f"{self.options.get('mode', self.function.__name__)}{'-aa' * self.options.get('antialias', False)}"

    @property
    def moves(self) -> bool:
        """Values only: every bit counts. Gradients are sums all the same."""
        sums = (P.interpolate, warped, sampled_at)
        nearest = "nearest" in self.mode and not self.by_matrix and "fill" not in self.options
        return not self.backward and (self.function not in sums or nearest)

    @property
    def by_matrix(self) -> bool:
        """Its positions are rounded otherwise on every device: where one lies between two pixels, either is nearest."""
        return bool(self.options.get("source", "grid") != "grid")

    def run(self, tensor: Tensor) -> Tensor:
        if not self.backward:
            return self.function(tensor, **self.options)
        leaf = tensor.detach().requires_grad_()
        result = self.function(leaf, **self.options)
        noise = image(tuple(result.shape), self.dtype, seed=self.seed + 1)
        (gradient,) = torch.autograd.grad(result, leaf, torch.empty_like(result).copy_(noise))
        return gradient

    def image(self) -> Tensor:
        made = image(self.shape, self.dtype, self.layout, self.seed)
        if self.broken:
            rng = random.Random(self.seed)
            for value in (math.nan, math.inf, -math.inf):
                made[tuple(rng.randrange(n) for n in self.shape)] = value
        return placed(made, "cpu", self.shifted)


def placed(made: Tensor, device: str, shifted: bool = False) -> Tensor:
    """A copy with the same strides, or the tensor itself."""
    if device == "cpu" and not shifted:
        return made
    if not made.numel():
        return made.to(device)
    extent = 1 + sum((n - 1) * stride for n, stride in zip(made.shape, made.stride(), strict=True))
    memory = torch.empty(extent + shifted, dtype=made.dtype, device=device)
    there = memory[int(shifted) :].as_strided(made.shape, made.stride())
    flat = torch.as_strided(made, (extent,), (1,))  # as one run: dimensions of stride 0 cannot be written to
    memory[int(shifted) :].copy_(flat)
    return there


def warped(
    image: Tensor, *, source: str, size: tuple[int, ...], stored: torch.dtype, seed: int, **options: Any
) -> Tensor:
    """By coordinates, or by what they are computed from, of random values, as they are in dtype `stored`."""
    axes, result = image.dim() - 2, (*image.shape[:2], *size)
    shape = {"affine": (axes, axes + 1), "homography": (3, 3)}.get(source, (*size, axes))
    values = _random((image.shape[0], *shape), seed) * 2.6 - 1.3
    if source == "homography":
        values[:, 2] = values[:, 2] / 8 + torch.eye(3)[2]
    values = (values * 9 if source == "displacement" else values).to(stored)
    coordinates = values.to(image.device, image.dtype if image.is_floating_point() else torch.float32)
    if source in ("grid", "displacement"):
        return (P.grid_sample if source == "grid" else P.displacement_sample)(image, coordinates, **options)
    return (P.affine_sample if source == "affine" else P.perspective_sample)(image, coordinates, result, **options)


def sampled_at(grid: Tensor, *, size: tuple[int, ...], seed: int, **options: Any) -> Tensor:
    """A random image, at coordinates in [0, 1] spread over and around it: so they have gradients too."""
    picture = _random((grid.shape[0], 3, *size), seed).to(grid.device, grid.dtype)
    return P.grid_sample(picture, grid * 2.5 - 1.25, **options)


def _random(shape: tuple[int, ...], seed: int) -> Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed))


def draw(seed: int, number: int) -> Call:
    rng = random.Random(f"{seed}/{number}")
    return rng.choices((_resize, _flip, _pad, _crop, _warp, _sample), (14, 2, 3, 1, 3, 1))[0](rng)


def _image(rng: random.Random, axes: int, dtypes: tuple[torch.dtype, ...]) -> dict[str, Any]:
    longest = {1: 300, 2: 90, 3: 20}[axes]
    shape = (rng.randint(1, 3), rng.choice(CHANNELS), *(rng.randint(1, longest) for _ in range(axes)))
    if axes == 2 and rng.random() < 0.02:
        shape = (1, 3, rng.randint(500, 900), rng.randint(500, 900))
    hidden = {"CL", "slicedCL"} if axes == 1 else set()
    hidden |= {"expanded"} if shape[0] == 1 else set()
    # The common layouts are half of all.
    layout = rng.choice(
        ["CF", "CL"] if axes > 1 and rng.random() < 0.5 else [one for one in LAYOUTS if one not in hidden]
    )
    return {
        "shape": shape,
        "dtype": rng.choice(dtypes),
        "layout": layout,
        "seed": rng.getrandbits(30),
        "shifted": rng.random() < 0.1,
    }


def _marks(rng: random.Random, given: dict[str, Any]) -> dict[str, Any]:
    differentiable = given["dtype"].is_floating_point
    can_break = differentiable and given["layout"] != "expanded"
    backward = differentiable and rng.random() < 0.2
    return {"backward": backward, "broken": can_break and not backward and rng.random() < 0.05}


def _resize(rng: random.Random) -> Call:
    axes = rng.choices((1, 2, 3), (1, 16, 2))[0]
    options = dict(rng.choice(MODES[axes]))
    moved = tuple(DTYPES) if "nearest" in options["mode"] else COMPUTED
    given = _image(rng, axes, moved)
    ratio = rng.choice(RATIOS)
    ratios = [ratio if rng.random() < 0.95 else rng.choice(RATIOS) for _ in range(axes)]
    size = tuple(max(1, round(n * by)) for n, by in zip(given["shape"][2:], ratios, strict=True))
    if axes == 2 and rng.random() < 0.1 and options["mode"] != "area":
        options["box"] = _box(rng, given["shape"][2:])
    return Call(P.interpolate, {"size": size, **options}, **given, **_marks(rng, given))


def _box(rng: random.Random, size: tuple[int, int]) -> tuple[float, ...]:
    """(left, top, right, bottom), at least a quarter of the image each way."""
    first = [n * rng.uniform(0, 0.7) for n in reversed(size)]
    last = [a + (n - a) * rng.uniform(0.9, 1.0) for a, n in zip(first, reversed(size), strict=True)]
    return (*first, *last)


def _flip(rng: random.Random) -> Call:
    given = _image(rng, rng.choice((2, 2, 3)), tuple(DTYPES))
    rank = len(given["shape"])
    dims = tuple(rng.sample(range(rank), rng.choice((1, 1, 2))))
    return Call(P.flip, {"dims": dims}, **given, **_marks(rng, given))


def _pad(rng: random.Random) -> Call:
    given = _image(rng, 2, tuple(DTYPES))
    mode = rng.choice(("constant", "reflect", "replicate", "circular"))
    most = [min(12, n - 1) if mode in ("reflect", "circular") else 12 for n in reversed(given["shape"][2:])]
    least = [-((n - 1) // 2) if mode == "constant" else 0 for n in reversed(given["shape"][2:])]
    pads = tuple(rng.randint(low, high) for low, high in zip(least, most, strict=True) for _ in range(2))
    value = {"value": rng.choice((0.0, 1.0, 3.0))} if mode == "constant" else {}
    return Call(P.pad, {"pad": pads, "mode": mode, **value}, **given, **_marks(rng, given))


def _crop(rng: random.Random) -> Call:
    given = _image(rng, 2, tuple(DTYPES))
    height, width = given["shape"][2:]
    top, left = rng.randint(-5, height - 1), rng.randint(-5, width - 1)
    options = {"top": top, "left": left, "height": rng.randint(1, height + 5), "width": rng.randint(1, width + 5)}
    return Call(P.crop, options, **given, **_marks(rng, given))


def _warp(rng: random.Random) -> Call:
    axes = rng.choice((2, 2, 2, 3))
    given = _image(rng, axes, COMPUTED)
    size = tuple(rng.randint(1, n + 20) for n in given["shape"][2:])
    source, stored = rng.choice(SOURCES if axes == 2 else ("grid", "affine", "displacement")), given["dtype"]
    options = {
        "source": source,
        "size": size,
        "stored": stored if stored.is_floating_point else torch.float32,
        "seed": given["seed"] + 2,
        **_rules(rng, axes),
    }
    if rng.random() < 0.3:
        options |= {"padding_mode": "zeros", "fill": rng.choice((0.25, 1.0)), "fill_rule": rng.choice(FILL_RULES)}
    marks = _marks(rng, given)
    if source != "grid" and options["mode"] == "nearest":
        marks["backward"] = False
    return Call(warped, options, **given, **marks)


def _sample(rng: random.Random) -> Call:
    given = _image(rng, 2, (torch.float32, torch.float64))
    batch, _, height, width = given["shape"]
    given = {**given, "shape": (batch, height, width, 2), "layout": "CF"}
    size = (rng.randint(2, 60), rng.randint(2, 60))
    return Call(sampled_at, {"size": size, "seed": given["seed"] + 2, **_rules(rng, 2)}, **given, backward=True)


def _rules(rng: random.Random, axes: int) -> dict[str, Any]:
    return {
        "mode": rng.choice(GRID_MODES[axes]),
        "padding_mode": rng.choice(GRID_PADDINGS),
        "align_corners": rng.random() < 0.5,
    }
