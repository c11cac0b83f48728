"""Calls of every overload of the table, for sizes that can be varied."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch._ops import OpOverload

from polyphase.decompositions import table

TABLE = table()

#: Batch and channels, distinct from each other and from the numbers of axes: symbolic tracing takes equal sizes for the
#: same size.
LEAD = (5, 6)

Maker: TypeAlias = Callable[..., tuple[Tensor, ...]]


@dataclass(frozen=True)
class Call:
    """`decomposed` and `eager` take the tensors that `tensors(sizes)` makes; `sizes` are the image's spatial ones."""

    op: OpOverload
    label: str
    tensors: Maker
    call: Callable[..., Tensor]

    def __str__(self) -> str:
        return f"{self.op}-{self.label}"

    def decomposed(self, *tensors: Tensor) -> Tensor:
        return self.call(TABLE[self.op], *tensors)

    def eager(self, *tensors: Tensor) -> Tensor:
        return self.call(self.op, *tensors)


def _image(axes: int, dtype: torch.dtype) -> Maker:
    def make(sizes: Sequence[int], lead: Sequence[int] = LEAD) -> tuple[Tensor, ...]:
        generator = torch.Generator().manual_seed(sum(sizes))
        image = torch.randint(0, 256, (*lead, *sizes[:axes]), generator=generator)
        return (image.to(dtype) if dtype == torch.uint8 else image.to(dtype) / 255,)

    return make


def _scaled(sizes: Sequence[int], factors: Sequence[float]) -> list[int]:
    """Output sizes that follow the input's, symbolic ones too."""
    return [torch.sym_int(n * f) for n, f in zip(sizes, factors, strict=False)]


FACTORS = (0.6, 1.7, 0.9)


def _resizes(dtype: torch.dtype) -> list[Call]:
    calls = []
    for op in TABLE:
        name = op.name().removeprefix("aten::")
        if "upsample" not in name or (dtype == torch.uint8 and ("backward" in name or "linear1d" in name)):
            continue
        if dtype == torch.uint8 and "trilinear" in name:
            continue
        axes = next(n for n in (1, 2, 3) if f"{n}d" in name)
        for align in (False, True) if "nearest" not in name else (None,):
            calls.append(_resize(op, axes, align, dtype))
    return calls


def _resize(op: OpOverload, axes: int, align: bool | None, dtype: torch.dtype) -> Call:
    flags: list[Any] = [] if align is None else [align]

    def forward(run: Callable[..., Tensor], image: Tensor) -> Tensor:
        return run(image, _scaled(image.shape[2:], FACTORS), *flags)

    def vector(run: Callable[..., Tensor], image: Tensor) -> Tensor:
        return run(image, None, *flags, list(FACTORS[:axes]))

    def backward(run: Callable[..., Tensor], gradient: Tensor) -> Tensor:
        size = [*gradient.shape[:2], *_scaled(gradient.shape[2:], FACTORS)]
        return run(gradient, list(gradient.shape[2:]), size, *flags)

    kind = vector if op._overloadname == "vec" else backward if "backward" in op.name() else forward
    label = {None: "", False: "ac=F", True: "ac=T"}[align]
    return Call(op, f"{label}-{str(dtype).removeprefix('torch.')}", _image(axes, dtype), kind)


def _others(dtype: torch.dtype) -> list[Call]:
    aten = torch.ops.aten
    calls = [Call(aten.flip.default, "", _image(2, dtype), lambda run, image: run(image, [1, -1]))]
    for axes in (1, 2, 3):
        padding = [1, 2, 3, 1, 2, 2][: 2 * axes]
        for name in ("reflection_pad", "replication_pad"):
            op = getattr(aten, f"{name}{axes}d").default
            calls.append(Call(op, str(axes), _image(axes, dtype), lambda run, image, p=padding: run(image, p)))
    return calls


def _with_grid(axes: int, dtype: torch.dtype) -> Maker:
    def make(sizes: Sequence[int], lead: Sequence[int] = LEAD) -> tuple[Tensor, ...]:
        generator = torch.Generator().manual_seed(sum(sizes))
        grid = torch.rand(lead[0], *(n + 1 for n in sizes[:axes]), axes, generator=generator, dtype=dtype)
        return (*_image(axes, dtype)(sizes, lead), grid * 2.4 - 1.2)

    return make


def _with_matrix(axes: int, dtype: torch.dtype) -> Maker:
    def make(sizes: Sequence[int], lead: Sequence[int] = LEAD) -> tuple[Tensor, ...]:
        generator = torch.Generator().manual_seed(7)
        return (
            *_image(axes, dtype)(sizes, lead),
            torch.rand(lead[0], axes, axes + 1, generator=generator, dtype=dtype),
        )

    return make


def _warps(dtype: torch.dtype) -> list[Call]:
    aten = torch.ops.aten
    calls = []
    for axes, op in ((2, aten.grid_sampler_2d.default), (3, aten.grid_sampler_3d.default)):
        for mode, padding, align in ((0, 0, False), (0, 2, True), (1, 1, False), (2, 0, True), (2, 2, False)):
            if axes == 3 and mode == 2:
                continue
            calls.append(
                Call(
                    op,
                    f"{mode}{padding}{align}",
                    _with_grid(axes, dtype),
                    lambda run, image, grid, m=mode, p=padding, a=align: run(image, grid, m, p, a),
                )
            )
        for align in (False, True):
            calls.append(
                Call(
                    aten.affine_grid_generator.default,
                    f"{axes}d-{align}",
                    _with_matrix(axes, dtype),
                    lambda run, image, theta, a=align: run(theta, list(image.shape), a),
                )
            )
    return calls


def calls(dtype: torch.dtype) -> list[Call]:
    """Every overload that takes this dtype."""
    return [*_resizes(dtype), *_others(dtype), *(_warps(dtype) if dtype.is_floating_point else [])]
