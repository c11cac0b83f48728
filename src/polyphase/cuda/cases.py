"""What a kernel is chosen by, and what is chosen: the facts of a call, and a kernel with its constants."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from polyphase.cuda.geometry import Geometry
from polyphase.cuda.tables import Table
from polyphase.kernels.plans import MapsPlan


@dataclass(frozen=True)
class Way:
    """A kernel: its header and template, the constants behind the types, the threads of a block, and how many blocks a
    multiprocessor should hold. moved_bytes: of an element that is only moved. sums: it has a type of sums. tile and
    strip: pixels and rows that a block makes, where it has room for them. outer: the outer axes of its calls. batched:
    a launch has a table of them. lets_next_begin: once it has begun, the next kernel may take what it leaves free.
    tiled: then blocks take tile after tile of all calls."""

    header: str
    template: str
    constants: tuple[bool | int, ...]
    threads: int
    resident: int = 1
    sums: bool = True
    moved_bytes: int = 0
    tile: int = 0
    strip: int = 0
    outer: int = 1
    batched: bool = False
    lets_next_begin: bool = True
    tiled: bool = False


class Case(NamedTuple):
    """What is chosen by: of the call, its tables (None of an axis that is not mapped) and the elements' bytes."""

    geometry: Geometry
    plan: MapsPlan
    x: Table | None
    y: Table | None
    z: Table | None
    bordered: bool
    from_bytes: int
    to_bytes: int
    #: What addresses are multiples of, source and target, in bytes.
    source_alignment: int
    target_alignment: int
    #: Its kernel is to serve other sizes too: nothing is to follow from this one but numbers of taps.
    varies: bool = False

    @property
    def length(self) -> int:
        """Elements of an output row."""
        return self.geometry.x.out_size * self.geometry.pixel.out_size

    @property
    def outputs(self) -> int:
        return self.length * self.geometry.y.out_size * self.geometry.planes

    @property
    def channels(self) -> int:
        """Elements of a pixel."""
        return self.geometry.pixel.in_size

    @property
    def grows(self) -> bool:
        return self.geometry.y.out_size >= self.geometry.y.in_size

    @property
    def row_is_dense(self) -> bool:
        return _is_dense(self.geometry.pixel.in_stride, self.geometry.x.in_stride, self.geometry.pixel.in_size)

    @property
    def output_is_dense(self) -> bool:
        return _is_dense(self.geometry.pixel.out_stride, self.geometry.x.out_stride, self.geometry.pixel.out_size)


def _is_dense(within: int, between: int, count: int) -> bool:
    """Pixels, and what lies within them, side by side."""
    return (within == 1 or count == 1) and between == count
