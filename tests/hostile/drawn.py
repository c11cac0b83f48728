"""Calls drawn at random: any function, rank, dtype and place in memory, sizes that are small, 1 and now and then 0."""

from __future__ import annotations

import math
from dataclasses import dataclass
from random import Random
from typing import Any

import torch
from torch import Tensor

from polyphase.arguments.resampling import AXES, FILTERS
from tests.support.samples import DTYPES, FLOATS, HAS_LANCZOS

SIZES = (*(1, 2, 3, 4, 5, 7, 8) * 3, *(13, 16, 17, 31, 33) * 2, 64, 65, 130, 257)
#: Of an input and of an output.
MOST_ELEMENTS = 60_000
FUNCTIONS = ("interpolate", "interpolate", "interpolate", "pad", "flip", "crop", "grid_sample", "affine_sample")


@dataclass(frozen=True, eq=False)
class Drawn:
    """A call of `polyphase.functional` by a function's name, and of eager's function of that name where it has one."""

    function: str
    tensors: tuple[Tensor, ...]
    options: dict[str, Any]

    def __str__(self) -> str:
        tensors = ", ".join(
            f"{one.dtype} {tuple(one.shape)} strides {one.stride()} offset {one.storage_offset()}"
            for one in self.tensors
        )
        return f"{self.function} of {tensors} with {self.options}"


def draw(random: Random) -> Drawn:
    return DRAWERS[random.choice(FUNCTIONS)](random)


def shape(random: Random, rank: int, most: int = MOST_ELEMENTS) -> tuple[int, ...]:
    sizes: list[int] = []
    for _ in range(rank):
        left = most // math.prod(max(n, 1) for n in sizes)
        sizes.append(min(random.choice(SIZES) if random.random() > 0.02 else 0, max(left, 1)))
    random.shuffle(sizes)
    return tuple(sizes)


def image(random: Random, sizes: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Somewhere in memory."""
    rank = len(sizes)
    kind = random.choice(("dense", "dense", "permuted", "last", "sliced", "expanded", "overlapping", "offset"))
    if kind == "permuted" or (kind == "last" and rank > 2):
        order = random.sample(range(rank), rank) if kind == "permuted" else [0, *range(2, rank), 1]
        return values(random, [sizes[dim] for dim in order], dtype).permute([order.index(dim) for dim in range(rank)])
    if kind == "sliced" and math.prod(n + 2 for n in sizes) < 8 * MOST_ELEMENTS:
        steps = [random.choice((1, 1, 2, 3)) if n < 32 else 1 for n in sizes]
        starts = [random.choice((0, 1, 2)) for _ in sizes]
        larger = values(random, [s + n * by for s, n, by in zip(starts, sizes, steps, strict=True)], dtype)
        cut = tuple(slice(s, s + n * by, by) for s, n, by in zip(starts, sizes, steps, strict=True))
        return larger[cut]
    if kind == "expanded":
        return values(random, [n if random.random() < 0.6 else min(n, 1) for n in sizes], dtype).expand(sizes)
    if kind == "overlapping":
        strides = [random.choice((0, 1, 1, 2, 3, 5)) for _ in sizes]
        span = 1 + sum(max(n - 1, 0) * by for n, by in zip(sizes, strides, strict=True))
        return values(random, [span + 3], dtype).as_strided(sizes, strides, random.choice((0, 1, 3)))
    if kind == "offset":
        start = random.choice((1, 3, 5))
        return values(random, [start + math.prod(sizes)], dtype)[start:].view(sizes)
    return values(random, sizes, dtype)


def values(random: Random, sizes: Any, dtype: torch.dtype) -> Tensor:
    generator = torch.Generator().manual_seed(random.getrandbits(40))
    if dtype.is_complex:
        return torch.rand(tuple(sizes), generator=generator, dtype=dtype)
    if dtype.is_floating_point:
        return torch.rand(tuple(sizes), generator=generator, dtype=torch.float64).to(dtype)
    if dtype == torch.bool:
        return torch.rand(tuple(sizes), generator=generator) > 0.5
    limits = torch.iinfo(dtype)
    return torch.randint(limits.min, min(limits.max, 2**62) + 1, tuple(sizes), generator=generator, dtype=dtype)


def interpolate(random: Random) -> Drawn:
    axes = random.choice((1, 2, 2, 2, 3))
    fitting = [mode for mode, counts in AXES.items() if axes in counts and (mode != "lanczos" or HAS_LANCZOS)]
    mode = random.choice(fitting if random.random() < 0.97 else [*AXES, "sharp"])
    sizes = shape(random, axes + 2 if random.random() < 0.98 else random.randrange(8))
    options: dict[str, Any] = {"mode": mode}
    if random.random() < 0.7:
        target = shape(random, axes, MOST_ELEMENTS // max(math.prod(sizes[:2]), 1))
        options["size"] = target if random.random() < 0.9 else min(target)
    else:
        factors = [random.choice((0.5, 2.0, 1.5, random.uniform(0.1, 3.0))) for _ in range(axes)]
        options["scale_factor"] = factors if random.random() < 0.7 else factors[0]
        if random.random() < 0.3:
            options["recompute_scale_factor"] = True
    if mode in FILTERS:
        options["antialias"] = mode in ("lanczos", "hamming", "box") or (axes == 2 and random.random() < 0.4)
        options["align_corners"] = random.choice((None, False, True)) if mode in ("bilinear", "bicubic") else None
    dtype = random.choice((torch.uint8, *FLOATS, torch.float32) if random.random() < 0.9 else list(DTYPES))
    return Drawn("interpolate", (image(random, sizes, dtype),), options)


def pad(random: Random) -> Drawn:
    mode = random.choice(("constant", "constant", "reflect", "replicate", "circular"))
    rank = random.randint(2, 5) if mode != "constant" else random.choice((*range(8), 12, 16, 20))
    sizes = shape(random, rank, MOST_ELEMENTS if rank < 8 else 500)
    padded = random.randint(0, min(rank, 4)) if mode == "constant" else max(rank - random.choice((1, 2)), 1)
    amounts = [
        random.choice((0, 1, 2, -1, random.randint(-(n + 1), n + 1) if n < 40 else 3))
        for n in reversed(sizes)
        for _ in "ab"
    ][: 2 * padded]
    options: dict[str, Any] = {"pad": amounts, "mode": mode}
    if mode == "constant" and random.random() < 0.5:
        options["value"] = random.choice((1, 0.5, 7, -1, float("inf")))
    return Drawn("pad", (image(random, sizes, random.choice(list(DTYPES))),), options)


def flip(random: Random) -> Drawn:
    rank = random.choice((*range(8), 9, 13, 17, 20))
    sizes = shape(random, rank, MOST_ELEMENTS if rank < 8 else 2000)
    dims = random.sample(range(rank), random.randint(0, rank)) if random.random() < 0.97 else [random.randint(-9, 9)]
    options = {"dims": [dim - rank if random.random() < 0.3 else dim for dim in dims]}
    return Drawn("flip", (image(random, sizes, random.choice(list(DTYPES))),), options)


def crop(random: Random) -> Drawn:
    sizes = shape(random, random.randint(2, 5))
    top, left = (random.randint(-n - 1, n + 1) if random.random() < 0.5 else 0 for n in sizes[-2:])
    height, width = (random.randint(0, n + 3) for n in sizes[-2:])
    options = {"top": top, "left": left, "height": height, "width": width}
    return Drawn("crop", (image(random, sizes, random.choice(list(DTYPES))),), options)


def grid_sample(random: Random) -> Drawn:
    axes = random.choice((2, 2, 3))
    sizes = shape(random, axes + 2)
    target = shape(random, axes, MOST_ELEMENTS // max(math.prod(sizes[:2]), 1))
    dtype = random.choice((torch.float32, torch.float32, torch.float64, torch.float16, torch.bfloat16))
    grid = image(random, (sizes[0], *target, axes), dtype)
    scale, shift = random.choice(((2, -1), (2.5, -1.25), (4, -2), (0, 1), (1e4, -5e3)))
    grid = torch.empty_like(grid).copy_(grid * scale + shift)
    options = {
        "mode": random.choice(("bilinear", "nearest", "bicubic")),
        "padding_mode": random.choice(("zeros", "border", "reflection")),
        "align_corners": random.random() < 0.5,
    }
    return Drawn("grid_sample", (image(random, sizes, dtype), grid), options)


def affine_sample(random: Random) -> Drawn:
    axes = random.choice((2, 2, 3))
    sizes = shape(random, axes + 2)
    target = shape(random, axes, MOST_ELEMENTS // max(math.prod(sizes[:2]), 1))
    dtype = random.choice((torch.float32, torch.float64))
    theta = image(random, (sizes[0], axes, axes + 1), dtype)
    theta = torch.empty_like(theta).copy_(theta * 2 - 1)
    options = {
        "size": (sizes[0], random.choice((1, 3)), *target),
        "mode": random.choice(("bilinear", "bicubic")),
        "padding_mode": random.choice(("zeros", "border", "reflection")),
        "align_corners": random.random() < 0.5,
    }
    return Drawn("affine_sample", (image(random, sizes, dtype), theta), options)


DRAWERS = {one.__name__: one for one in (interpolate, pad, flip, crop, grid_sample, affine_sample)}
