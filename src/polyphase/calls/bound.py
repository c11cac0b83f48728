"""What binding gives: calls that can be made again and again, and where they are kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias, TypeVar

from torch import Tensor

from polyphase.records.facts import Facts

Needed: TypeAlias = tuple[bool, bool]
Gradients: TypeAlias = tuple[Tensor | None, ...]
#: Gradient, image, coordinates and a formula's fields -> the gradients of all but the first, None where not needed.
BoundGradients: TypeAlias = Callable[..., Gradients]


Key = TypeVar("Key")
Value = TypeVar("Value")


class Kept(dict[Key, Value]):
    """Finds again what was made, most of which keeps tables: where there are so many, all are forgotten."""

    def __init__(self, most: int = 256) -> None:
        super().__init__()
        self._most = most

    def __setitem__(self, key: Key, value: Value) -> None:
        if len(self) >= self._most:
            self.clear()
        super().__setitem__(key, value)


class BoundCall(NamedTuple):
    """A program for tensors of known facts. Inputs: an image, the coordinates of a warp, operands in their order.

    fresh: makes the output. into: writes it to the first tensor it is given. by_torch: it is the plain twin's. handle:
    what the wing's `launch_all` knows it by. direct: what its kernels in torch's dispatcher do. kernel: where none
    could be had at first, the call of one if it can be had now.
    """

    out: Facts
    fresh: Callable[..., Tensor]
    into: Callable[..., None]
    by_torch: bool = False
    handle: object = None
    direct: object = None
    kernel: Callable[[], BoundCall | None] | None = None
