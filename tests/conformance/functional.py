"""Eager code run on `polyphase.functional`: a function mode, and what it saw."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

import polyphase.functional as P
from polyphase.sampling.warps import MODES, PADDINGS


@dataclass(frozen=True, eq=False)
class Asked:
    """One call of the functional API, its arguments by name."""

    function: Callable[..., Tensor]
    arguments: dict[str, Any]

    def run(self) -> Tensor:
        return self.function(**self.arguments)

    @property
    def name(self) -> str:
        """`interpolate`, `flip`, `pad`, `grid_sample` or `affine_grid`."""
        return self.function.__name__

    @property
    def image(self) -> Tensor:
        """Or what is first."""
        image: Tensor = next(iter(self.arguments.values()))
        return image

    @property
    def mode(self) -> str | None:
        return self.arguments.get("mode")

    @property
    def amounts(self) -> tuple[int, ...]:
        """What a pad adds, or crops."""
        return tuple(self.arguments.get("pad", ()))


def asked(function: Callable[..., Tensor], *args: Any, **kwargs: Any) -> Asked:
    bound = _signature(function).bind(*args, **kwargs)
    bound.apply_defaults()
    return Asked(function, {name: value for name, value in bound.arguments.items() if name not in OURS_ALONE})


#: Arguments that PyTorch's functions do not have.
OURS_ALONE = ("box", "fill", "fill_rule")


_signature = functools.cache(inspect.signature)


def _antialiased(
    input: Tensor, output_size: Sequence[int] | None, align_corners: bool, *more: Any, **named: Any
) -> Asked | None:
    """`more`: scale factors for the size, or a scale for each axis, which may contradict the size."""
    options = {"mode": "bilinear", "align_corners": align_corners, "antialias": True}
    if output_size is None:
        factors = more[0] if more else named["scale_factors"]
        return asked(P.interpolate, input, scale_factor=factors, **options)
    if any(more) or any(named.values()):
        return None
    return asked(P.interpolate, input, tuple(output_size), **options)


def _grid_sampler(input: Tensor, grid: Tensor, mode: int, padding: int, align_corners: bool) -> Asked:
    return asked(P.grid_sample, input, grid, MODES[mode], PADDINGS[padding], align_corners)


#: PyTorch's functions, and our calls for theirs; None where there is none.
REPLACED: dict[Callable[..., Tensor], Callable[..., Asked | None]] = {
    F.interpolate: functools.partial(asked, P.interpolate),
    F.pad: functools.partial(asked, P.pad),
    torch.flip: functools.partial(asked, P.flip),
    torch.fliplr: lambda input: asked(P.flip, input, (1,)),
    torch.flipud: lambda input: asked(P.flip, input, (0,)),
    torch.ops.aten._upsample_bilinear2d_aa: _antialiased,
    F.grid_sample: functools.partial(asked, P.grid_sample),
    torch.grid_sampler_2d: _grid_sampler,
    torch.grid_sampler_3d: _grid_sampler,
    F.affine_grid: functools.partial(asked, P.affine_grid),
}


class OnFunctional(TorchFunctionMode):
    """While active, PyTorch's functions run as ours; `calls` lists them."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Asked] = []

    def __torch_function__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        ours = REPLACED[func](*args, **kwargs) if func in REPLACED else None
        if ours is None:
            return func(*args, **kwargs)
        self.calls.append(ours)
        return ours.run()

    @property
    def call(self) -> Asked:
        """The only one."""
        (call,) = self.calls
        return call
