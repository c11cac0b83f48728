"""Patches of an image: in what order a model's libraries have them."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from polyphase.records.facts import Facts, Sizes
from polyphase.records.patchwork import Blocks, Patchwork


class Patched(NamedTuple):
    """An image (..., channels, height, width), of `shape`, as (..., patches, values of a patch).

    Patches go along rows, `merge` times `merge` of them at a time; the values of one are (channels, frames, rows,
    columns), or, with `channels_last`, (frames, rows, columns, channels). Every frame is the image.
    """

    shape: Sizes
    size: int
    merge: int
    frames: int
    channels_last: bool

    @property
    def out_shape(self) -> Sizes:
        *leading, channels, height, width = self.shape
        area = self.size * self.size
        return *leading, height * width // area, channels * self.frames * area

    def lie(self, out: Facts) -> tuple[Facts, Patchwork]:
        """`out`: of the patches. The image as they have it, with strides within a patch; and how it is cut."""
        channels, _, width = self.shape[-3:]
        *along, patch, value = out.strides
        size, merge = self.size, self.merge
        frame = size * size * (channels if self.channels_last else 1)
        if self.channels_last:
            within = (value, size * channels * value, channels * value)
        else:
            within = (self.frames * frame * value, size * value, value)
        rows = Blocks(size, merge, merge * patch, width // size * merge * patch)
        columns = Blocks(size, merge, patch, merge * merge * patch)
        lies = Facts(out.dtype, self.shape, (*along, *within), out.device)
        return lies, Patchwork(out, rows, columns, self.frames, frame * value)

    def of(self, image: Tensor) -> Tensor:
        """Takes an image apart by torch operations."""
        channels, height, width = self.shape[-3:]
        size, merge = self.size, self.merge
        across = (height // (size * merge), merge, size, width // (size * merge), merge, size)
        image = image.reshape(-1, channels, 1, *across).expand(-1, -1, self.frames, *across)
        within = (2, 5, 8, 1) if self.channels_last else (1, 2, 5, 8)
        return image.permute(0, 3, 6, 4, 7, *within).reshape(self.out_shape)
