"""Outputs (..., height, width) that lie as patches: an image cut into blocks."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from polyphase.errors import WrongInputError
from polyphase.records.facts import Facts


class Blocks(NamedTuple):
    """The blocks of one axis, as `Blocks` of `core/abi.h` has them: `size` outputs are a block, of which `together` at
    a time lie `inner` elements apart, and each such group `outer` from the next.
    """

    size: int
    together: int
    inner: int
    outer: int

    def parts(self, stride: int, length: int) -> tuple[tuple[int, int], ...]:
        """(size, stride) of groups, the blocks of one, and outputs within a block, `stride` apart."""
        return (length // (self.size * self.together), self.outer), (self.together, self.inner), (self.size, stride)


class Patchwork(NamedTuple):
    """whole: the tensor that is written. Everything is there `copies` times, so many elements apart."""

    whole: Facts
    rows: Blocks
    columns: Blocks
    copies: int
    apart: int

    @property
    def numbers(self) -> tuple[int, ...]:
        return *self.rows, *self.columns, self.copies, self.apart

    def check(self, out: Facts) -> None:
        """`out`: the image, with strides within blocks. A kernel does not see where the tensor ends."""
        *_, height, width = out.shape
        parts = self._parts(out)
        whole = sum((n - 1) * stride for n, stride in zip(self.whole.shape, self.whole.strides, strict=True))
        fits = (out.dtype, out.device) == (self.whole.dtype, self.whole.device)
        fits = fits and min((*(n for n, _ in parts), *(stride for _, stride in parts))) >= 0
        fits = fits and out.elements * self.copies == self.whole.elements
        if not fits or sum((n - 1) * stride for n, stride in parts) != whole:
            raise WrongInputError(
                f"an image of {(height, width)} cut into {self.rows} and {self.columns}: {self.whole}"
            )

    def write(self, image: Tensor, out: Tensor, lies: Facts) -> None:
        """Writes an image to the whole of `out`, by torch operations."""
        parts = self._parts(lies)
        view = out.as_strided([n for n, _ in parts], [stride for _, stride in parts], out.storage_offset())
        view.copy_(image.reshape(view.shape[1:]))

    def _parts(self, out: Facts) -> list[tuple[int, int]]:
        *leading, y, x = zip(out.shape, out.strides, strict=True)
        return [(self.copies, self.apart), *leading, *self.rows.parts(y[1], y[0]), *self.columns.parts(x[1], x[0])]
