"""A picture's way through transforms by its size alone: what its axes go through, as numbers that are recorded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from polyphase.pipelines.picture import NEAREST
from polyphase.pipelines.recording import NotRecordedError, Size
from polyphase.records.recipes import Recipe

#: Of those that are followed.
_WIDEST_BORDER = 2**16


class Outline:
    """Stands for a `Picture` of (channels, height, width), for what moves its pixels.

    rows, columns: what its axes go through. marks: what is done, in order, where that depends on the size. Pictures of
    one kind by the same transforms, which have the same marks and as many steps, differ in the numbers of their steps
    alone; that asks for sizes of 2 or more, of which strides tell how a picture lies. cut_by: the arguments of a cut
    into patches.
    """

    __slots__ = ("borders", "channels", "columns", "cut_by", "dtype", "height", "kind", "marks", "rows", "width")

    def __init__(self, kind: str, dtype: torch.dtype, channels: int, height: Size, width: Size) -> None:
        self.kind, self.dtype, self.channels, self.height, self.width = kind, dtype, channels, height, width
        self.rows, self.columns = Recipe(), Recipe()
        self.marks: list[str] = []
        self.cut_by: tuple[int, int, int, bool] | None = None
        self.borders = 0

    def __getattr__(self, name: str) -> Any:
        raise NotRecordedError(name)

    @property
    def name(self) -> tuple[object, ...]:
        """What its program depends on, numbers aside."""
        return len(self.rows), len(self.columns), *self.marks

    def resize(
        self,
        height: Size,
        width: Size,
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

    def crop(self, top: Size, left: Size, height: Size, width: Size) -> None:
        before, across = self.height, self.width
        if height == before and width == across:
            return
        if top < 0 or left < 0 or top + height > before or left + width > across:
            raise NotRecordedError("beyond the image")
        self._becomes_size(height, width)
        self.marks.append("crop")
        if height != before:
            self.rows.slice(top, top + height)
        if width != across:
            self.columns.slice(left, left + width)

    def flip(self, dim: int) -> None:
        self.marks.append("flip")
        (self.columns if dim == -1 else self.rows).flip()

    def pad(self, amounts: Sequence[Size], fill: float, mode: str, *, as_batch: bool = True) -> None:
        left, right, top, bottom = amounts
        shorter, border = min(self.height, self.width), 0
        most = {"reflect": shorter - 1, "symmetric": shorter}.get(mode, _WIDEST_BORDER)
        if min(amounts) < 0 or max(amounts) > most:
            raise NotRecordedError("by other rules")
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
            raise NotRecordedError("an error")
        self.cut_by = size, merge, frames, channels_last

    def becomes(self, kind: str, *, contiguous: bool = False) -> None:
        self.kind = kind

    def compute(self, expression: Callable[..., Any], dtype: torch.dtype) -> None:
        self.dtype = dtype

    def normalise(self, mean: Sequence[float], std: Sequence[float]) -> None:
        """Nothing that is asked for."""

    def _becomes_size(self, height: Size, width: Size) -> None:
        if height < 2 or width < 2:
            raise NotRecordedError("strides that tell nothing, or an error")
        self.height, self.width = height, width
