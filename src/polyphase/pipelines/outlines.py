"""A picture's way through transforms by its size alone: what its axes go through, as numbers. A new size, or crop, then
costs no program and no binding in Python."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from polyphase.kernels.facts import Sizes
from polyphase.kernels.recipes import Recipe
from polyphase.pipelines.patched import Patched
from polyphase.pipelines.picture import NEAREST

#: Of those that are followed.
_WIDEST_BORDER = 2**16


class NotFollowedError(Exception):
    """Something is done that only a picture can do."""


class Outline:
    """Stands for a `Picture` of (channels, height, width), for what moves its pixels.

    rows, columns: what its axes go through. marks: what is done, in order, where that depends on the size. Pictures of
    one kind by the same transforms, which have the same marks and as many steps, differ in the numbers of their steps
    alone; that asks for sizes of 2 or more, of which strides tell how a picture lies.
    """

    __slots__ = ("borders", "channels", "columns", "dtype", "height", "kind", "marks", "patches", "rows", "width")

    def __init__(self, kind: str, dtype: torch.dtype, shape: Sizes) -> None:
        self.kind, self.dtype = kind, dtype
        self.channels, self.height, self.width = shape
        self.rows, self.columns = Recipe(), Recipe()
        self.marks: list[str] = []
        self.patches: Patched | None = None
        self.borders = 0

    def __getattr__(self, name: str) -> Any:
        raise NotFollowedError(name)

    @property
    def shape(self) -> Sizes:
        return self.channels, self.height, self.width

    @property
    def name(self) -> tuple[object, ...]:
        """What its program depends on, numbers aside."""
        return len(self.rows), len(self.columns), *self.marks

    def resize(
        self,
        height: int,
        width: int,
        mode: str,
        antialias: bool,
        *,
        in_floats: bool = False,
        rows_first: bool = False,
    ) -> None:
        if height == self.height and width == self.width:
            return
        self._becomes_size(height, width)
        self.marks.append("resize")
        if mode in NEAREST:
            exact = mode == "nearest-exact"
            self.rows.nearest(height, exact)
            self.columns.nearest(width, exact)
        else:
            self.rows.resize(height, mode, antialias, rows_first)
            self.columns.resize(width, mode, antialias)

    def crop(self, top: int, left: int, height: int, width: int) -> None:
        before, across = self.height, self.width
        if height == before and width == across:
            return
        if top < 0 or left < 0 or top + height > before or left + width > across:
            raise NotFollowedError("beyond the image")
        self._becomes_size(height, width)
        self.marks.append("crop")
        if height != before:
            self.rows.slice(top, top + height)
        if width != across:
            self.columns.slice(left, left + width)

    def flip(self, dim: int) -> None:
        self.marks.append("flip")
        (self.columns if dim == -1 else self.rows).flip()

    def pad(self, amounts: Sequence[int], fill: float, mode: str, *, as_batch: bool = True) -> None:
        left, right, top, bottom = amounts
        shorter, border = min(self.height, self.width), 0
        most = {"reflect": shorter - 1, "symmetric": shorter}.get(mode, _WIDEST_BORDER)
        if min(amounts) < 0 or max(amounts) > most:
            raise NotFollowedError("by other rules")
        if not any(amounts):
            self.copies()
            return
        if mode == "constant":
            self.borders = border = self.borders + 1
        self._becomes_size(top + self.height + bottom, left + self.width + right)
        self.marks.append("pad")
        self.rows.pad(top, bottom, mode, border)
        self.columns.pad(left, right, mode, border)

    def copies(self) -> None:
        self.marks.append("copy")

    def cut(self, size: int, merge: int, frames: int, channels_last: bool) -> None:
        if self.height % (size * merge) or self.width % (size * merge):
            raise NotFollowedError("an error")
        self.patches = Patched(self.shape, size, merge, frames, channels_last)

    def becomes(self, kind: str, *, contiguous: bool = False) -> None:
        self.kind = kind

    def compute(self, expression: Callable[..., Any], dtype: torch.dtype) -> None:
        self.dtype = dtype

    def normalise(self, mean: Sequence[float], std: Sequence[float]) -> None:
        """Nothing that is asked for."""

    def _becomes_size(self, height: int, width: int) -> None:
        if height < 2 or width < 2:
            raise NotFollowedError("strides that tell nothing, or an error")
        self.height, self.width = height, width
