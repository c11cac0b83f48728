"""Hypothesis strategies for chains of operators, as users write them, and the tensors they run on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from hypothesis import strategies as st
from torch import Tensor

from tests.support.samples import HAS_LANCZOS, Spec

Draw = Callable[..., Any]
LAYOUTS = ("CF", "CL", "sliced", "transposed")
LARGEST = 24
"""No resize or pad beyond so many pixels a side."""


@dataclass(frozen=True, eq=False)
class Step:
    """A function of the image and of this step's operands."""

    label: str
    run: Callable[..., Tensor]
    operands: tuple[Spec, ...] = ()
    rounds: bool = False  # floats, in an order of its own


@dataclass(frozen=True, eq=False)
class Chain:
    """`is_exact`: no rounding of floats that two right answers could differ in. `loose`: an inexact float becomes
    uint8 at the end, and may be another by one."""

    image: Spec
    steps: tuple[Step, ...]
    is_exact: bool
    loose: bool

    def __repr__(self) -> str:
        return f"{self.image}: " + ", ".join(step.label for step in self.steps)

    def tensors(self) -> list[Tensor]:
        specs = [self.image, *(spec for step in self.steps for spec in step.operands)]
        return [spec.build(seed) for seed, spec in enumerate(specs)]

    def __call__(self, image: Tensor, *operands: Tensor) -> Tensor:
        *_, result = self.values(image, *operands)
        return result

    def values(self, image: Tensor, *operands: Tensor) -> list[Tensor]:
        """After each step."""
        left, found = list(operands), []
        for step in self.steps:
            own, left = left[: len(step.operands)], left[len(step.operands) :]
            image = step.run(image, *own)
            found.append(image)
        return found


@st.composite
def chains(draw: Draw, dtype: torch.dtype, most: int = 6) -> Chain:
    size = st.integers(3, 14)
    shape = (draw(st.integers(1, 2)), draw(st.sampled_from([1, 3, 4])), draw(size), draw(size))
    given = Spec(shape, dtype, draw(st.sampled_from(LAYOUTS)))
    image, is_exact, loose = given.build(0), True, False
    steps: list[Step] = []
    for _ in range(draw(st.integers(1, most))):
        if loose:
            step = draw(_moves(image))
        else:
            kind = draw(st.sampled_from(["weighted", "weighted", "move", "move", "move", "point", "point", "cast"]))
            step = draw({"weighted": _weighted, "move": _moves, "point": _points, "cast": _casts}[kind](image))
        if step is None:
            continue
        if step.rounds and image.dtype.is_floating_point:
            is_exact = False
        before = image
        image = step.run(image, *(spec.build(0) for spec in step.operands))
        loose |= not is_exact and before.dtype.is_floating_point and not image.dtype.is_floating_point
        steps.append(step)
    if not steps:
        steps.append(Step("flip", lambda x: torch.flip(x, (-1,))))
    return Chain(given, tuple(steps), is_exact, loose)


# ---- resizes and warps


@st.composite
def _weighted(draw: Draw, image: Tensor) -> Step | None:
    if image.dim() != 4 or image.dtype not in (torch.uint8, torch.float32):
        return None
    height, width = image.shape[-2:]
    if min(height, width) < 2:
        return None
    floats = image.dtype.is_floating_point
    kinds = ["bilinear", "bicubic", "bilinear aa", "bicubic aa", "nearest", "nearest-exact", "by a factor"]
    kinds += ["area", "grid"] * floats + ["lanczos aa"] * HAS_LANCZOS
    kind = draw(st.sampled_from(kinds))
    if kind == "grid":
        return draw(_warp(image))  # type: ignore[no-any-return]
    if kind == "by a factor":
        factor = draw(st.sampled_from([0.5, 1.5, 2.0]))
        if not all(2 <= int(n * factor) <= LARGEST for n in (height, width)):
            return None
        options = {"scale_factor": factor, "mode": "bilinear", "align_corners": draw(st.booleans())}
        return _resize(options)
    mode, antialias = kind.removesuffix(" aa"), kind.endswith(" aa")
    if kind == "nearest-exact":  # not where rounding decides, and eager contradicts itself
        size = [
            draw(st.sampled_from([n, *[2 * n] * (2 * n <= LARGEST), *[n // 2] * (n % 2 == 0)])) for n in (height, width)
        ]
    else:
        size = [draw(st.integers(2, LARGEST)) for _ in range(2)]
    options = {"size": size, "mode": mode, **({"antialias": True} if antialias else {})}
    if mode in ("bilinear", "bicubic"):
        options["align_corners"] = draw(st.booleans())
    return _resize(options)


def _resize(options: dict[str, Any]) -> Step:
    return Step(
        f"interpolate {options}", lambda x: F.interpolate(x, **options), rounds="nearest" not in options["mode"]
    )


@st.composite
def _warp(draw: Draw, image: Tensor) -> Step:
    grid = Spec((image.shape[0], draw(st.integers(2, 9)), draw(st.integers(2, 9)), 2), torch.float32, "CF", -1.3, 1.3)
    options = {
        "mode": draw(st.sampled_from(["bilinear", "bicubic"])),
        "padding_mode": draw(st.sampled_from(["zeros", "border", "reflection"])),
        "align_corners": draw(st.booleans()),
    }
    return Step(f"grid_sample {options}", lambda x, grid: F.grid_sample(x, grid, **options), (grid,), rounds=True)


# ---- crops, flips, pads, views


@st.composite
def _moves(draw: Draw, image: Tensor) -> Step | None:
    kind = draw(st.sampled_from(["crop", "crop", "flip", "flip", "pad", "pad", "step", "permute", "view"]))
    kinds = {"crop": _crop, "flip": _flip, "pad": _pad, "step": _step, "permute": _permute, "view": _view}
    return draw(kinds[kind](image))  # type: ignore[no-any-return]


@st.composite
def _crop(draw: Draw, image: Tensor) -> Step | None:
    if min(image.shape[-2:]) < 3:
        return None
    (top, bottom), (left, right) = (_bounds(draw, n) for n in image.shape[-2:])
    kind = draw(st.sampled_from(["both", "narrow", "from the end"]))
    if kind == "narrow":
        return Step(f"narrow {top, bottom}", lambda x: x.narrow(-2, top, bottom - top))
    if kind == "from the end":
        away = image.shape[-1] - right
        return Step(f"[..., {left}:-{away}]", lambda x: x[..., left : -away or None])
    return Step(f"[..., {top}:{bottom}, {left}:{right}]", lambda x: x[..., top:bottom, left:right])


def _bounds(draw: Draw, n: int) -> tuple[int, int]:
    first = draw(st.integers(0, n - 2))
    return first, draw(st.integers(first + 2, n))


@st.composite
def _step(draw: Draw, image: Tensor) -> Step | None:
    if image.shape[-1] < 4:
        return None
    start = draw(st.integers(0, 1))
    return Step(f"[..., {start}::2]", lambda x: x[..., start::2])


@st.composite
def _flip(draw: Draw, image: Tensor) -> Step:
    dims = draw(st.lists(st.sampled_from([-1, -2, -3]), min_size=1, max_size=3, unique=True))
    return Step(f"flip {dims}", lambda x: torch.flip(x, dims))


@st.composite
def _pad(draw: Draw, image: Tensor) -> Step | None:
    height, width = image.shape[-2:]
    most = min(height, width, LARGEST - height + 1, LARGEST - width + 1, 5) - 1
    if most < 1:
        return None
    mode = draw(st.sampled_from(["constant", "constant", "reflect", "replicate", "circular"]))
    lengths = [2, 4] if mode == "constant" else [4]
    amounts = draw(st.lists(st.integers(0, most), min_size=4, max_size=4))[: draw(st.sampled_from(lengths))]
    if mode == "constant":
        value = (
            draw(st.sampled_from([0, 1, 7])) if image.dtype == torch.uint8 else draw(st.sampled_from([0.0, -0.75, 2.0]))
        )
        if min(height, width) > 3 and draw(st.booleans()):
            amounts[0] = -1
        return Step(f"pad {amounts} {value}", lambda x: F.pad(x, amounts, value=value))
    return Step(f"pad {amounts} {mode}", lambda x: F.pad(x, amounts, mode=mode))


@st.composite
def _permute(draw: Draw, image: Tensor) -> Step:
    if image.dim() == 4 and draw(st.booleans()):
        return Step("to channels last", lambda x: x.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2))
    if draw(st.booleans()):
        return Step("contiguous", lambda x: x.contiguous())
    return Step("transposed, contiguous", lambda x: x.transpose(-1, -2).contiguous())


@st.composite
def _view(draw: Draw, image: Tensor) -> Step:
    if image.dim() == 3:
        return Step("unsqueeze", lambda x: x.unsqueeze(0))
    if image.shape[0] == 1 and draw(st.booleans()):
        return Step("squeeze", lambda x: x.squeeze(0))
    batch, channels = image.shape[:2]
    if draw(st.booleans()):
        return Step("channels to the batch", lambda x: x.reshape(batch * channels, 1, *x.shape[-2:]))
    return Step("reshape", lambda x: x.reshape(-1, *x.shape[-3:]))


# ---- arithmetic


NUMBERS: dict[str, Callable[[Tensor], Tensor]] = {
    "x * 2.5": lambda x: x * 2.5,
    "x * 2": lambda x: x * 2,
    "x / 255": lambda x: x / 255,
    "x + 1": lambda x: x + 1,
    "1 - x": lambda x: 1 - x,
    "x - 3": lambda x: x - 3,
    "x + x": lambda x: x + x,
    "x * 0.5 + x.flip(-1)": lambda x: x * 0.5 + x.flip(-1),
    "clamp": lambda x: x.clamp(0.1, 0.8) if x.is_floating_point() else x.clamp(20, 200),
    "clamp_min": lambda x: x.clamp_min(0.25) if x.is_floating_point() else x.clamp_min(9),
    "clamp_max": lambda x: x.clamp(max=0.4) if x.is_floating_point() else x.clamp(max=100),  # no tie as a byte
}
OF_FLOATS: dict[str, Callable[[Tensor], Tensor]] = {
    "-x": lambda x: -x,
    "abs": lambda x: x.abs(),
    "relu": lambda x: x.relu(),
    "sigmoid": lambda x: x.sigmoid(),
    "square": lambda x: x.square() * 0.125,
}
WITH_TENSORS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "x + tensor": lambda x, other: x + other,
    "tensor - x": lambda x, other: other - x,
    "x * tensor": lambda x, other: x * other,
    "maximum": torch.maximum,
    "x.add(tensor, alpha=2)": lambda x, other: x.add(other, alpha=2),
}


def normalised(x: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    return (x - mean) / std


@st.composite
def _points(draw: Draw, image: Tensor) -> Step:
    kind = draw(st.sampled_from(["number", "number", "normalise", "tensor"]))
    if kind == "normalise":
        channels = image.shape[-3]
        mean = Spec((channels, 1, 1), torch.float32, "CF", 0.2, 0.8)
        std = Spec((channels, 1, 1), torch.float32, "CF", 0.5, 2.0)
        return Step("normalise", normalised, (mean, std))
    if kind == "tensor":
        name = draw(st.sampled_from(sorted(WITH_TENSORS)))
        shape = draw(st.sampled_from([tuple(image.shape), (1, *image.shape[1:]), (*image.shape[:-1], 1)]))
        return Step(f"{name} of {shape}", WITH_TENSORS[name], (Spec(shape, image.dtype),))
    known = {**NUMBERS, **(OF_FLOATS if image.is_floating_point() else {})}
    name = draw(st.sampled_from(sorted(known)))
    return Step(name, known[name])


@st.composite
def _casts(draw: Draw, image: Tensor) -> Step:
    if image.dtype == torch.uint8:
        dtype = draw(st.sampled_from([torch.float32, torch.float32, torch.float64]))
        return Step(f"to {dtype}", partial(_to, dtype))
    if image.dtype == torch.float64:
        return Step("to torch.float32", partial(_to, torch.float32))
    return Step("to bytes", lambda x: (x.clamp(0, 1) * 255).round().to(torch.uint8))


def _to(dtype: torch.dtype, x: Tensor) -> Tensor:
    return x.to(dtype)


def greatest(values: Sequence[Tensor]) -> float:
    return max(
        (float(one.detach().abs().max()) for one in values if one.is_floating_point() and one.numel()), default=0.0
    )
