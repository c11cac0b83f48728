"""Batches of images whose steps follow from their sizes, by one call into C: what they have in common with one that was
launched, as numbers. The plain twin makes rows in Python (`items.py`), and binds what differs in more."""

from __future__ import annotations

import struct
from dataclasses import astuple, dataclass
from typing import NamedTuple

from torch import Tensor

from polyphase.calls.devices import LaunchSized
from polyphase.cuda import emit, launcher, tiles, ways
from polyphase.cuda.calls import ALIGNMENT
from polyphase.cuda.items import PAIR_BYTES, WIDEST, Chosen, Item, about_pattern, filled, lies
from polyphase.cuda.launcher import LaunchPlan, SizedParts
from polyphase.cuda.maps import About, PreparedMaps
from polyphase.cuda.memory import TorchMemory
from polyphase.cuda.ways import Way

KERNELS = (*ways.BY_STAGE, "ByteRing", ways.TILES)
#: Of an axis: kernels that walk count the bytes of rows in 32 bits.
_LONGEST = 2**22
_NOWHERE = -1


@dataclass(frozen=True)
class RowPattern:
    """`RowPattern` of sized_rows.h, which says what the numbers are."""

    size: tuple[int, ...]
    stride: tuple[int, ...]
    channels: int
    in_pixels: bool
    least: int
    longest: int
    longest_step: int
    cubic: bool
    least_taps: int
    few_taps: int
    most_taps: int
    words: int
    tile: int
    staged_bytes: int
    tile_planes: int
    x_at: int
    channel_at: int
    tiles_at: int
    span_at: int
    shared_bytes: int
    most_shared: int
    out_step: int
    alignment: int
    along: int
    down: int
    planes: int

    def packed(self) -> bytes:
        size, stride, *rest = astuple(self)
        return struct.pack(f"={5 + len(rest)}q", *size, *stride, *rest)


class Taps(NamedTuple):
    """Which windows a way's kernel has: from `least` to `most`, those up to `few` by as many. words: along x, where
    they are read by words."""

    least: int
    few: int
    most: int
    words: int

    @staticmethod
    def of(about: About, way: Way) -> Taps:
        if way.tiled:
            return Taps(0, 0, 0, 0)
        along_x, along_y, *_ = map(int, way.constants)
        if way.template != "ByteRing":
            return Taps(0, ways.FEW_TAPS, along_x, 0)
        least = ways.MOST_IN_RING + 1 if about.walks_bytes else 0  # fewer have a kernel that is quicker
        return Taps(least, 0, along_y, along_x)


class Likeness(NamedTuple):
    """How an image was launched, which others are like. out_step: bytes from output to output. inputs: what is read
    besides images. functions: the kernel, and what makes tables. most_blocks: of those that take tiles."""

    item: Item
    chosen: Chosen
    aligned: bool
    out_step: int
    inputs: tuple[Tensor, ...]
    functions: tuple[int, int]
    most_blocks: int

    def launch(self, templates: bytes, memory: TorchMemory) -> LaunchSized | None:
        """Images of any size, whose steps follow from it by templates. None where their rows differ in more than
        numbers."""
        pattern = self._pattern()
        if pattern is None:
            return None
        row, _ = self.item.prepared(self.chosen, self.aligned).row(lambda *parts: ([0] * len(parts), None), 0)
        data = filled(row, self.chosen.shape, tuple([one.data_ptr() for one in self.inputs]))
        threads = (self.chosen.way.threads, emit.TAP_THREADS)
        kernel, tap_maker = (
            self._bound(memory, *one) for one in zip(self.functions, threads, (False, True), strict=True)
        )
        functions = (memory.stream_of, memory.device, memory.empty, memory.staged, memory.there)
        parts = SizedParts(kernel, tap_maker, *functions, self.inputs)
        return launcher.sized(pattern.packed(), bytes(PAIR_BYTES) + data, templates, parts)

    def _bound(self, memory: TorchMemory, function: int, threads: int, makes_tables: bool) -> object:
        plan = LaunchPlan(memory.device, function, (1, 1, 1), threads, 8 * threads, 0, 0, 0, 0, makes_tables)
        return launcher.bind(plan, bytes(PAIR_BYTES)).part

    def _pattern(self) -> RowPattern | None:
        image, way, about = self.item.record.image, self.chosen.way, about_pattern(self.item.of(self.aligned).call)
        lie = lies(image) if len(image.shape) == 3 else ""
        if about is None or way.template not in KERNELS or lie not in ("planes", "pixels"):
            return None
        call = self.item.prepared(self.chosen, self.aligned).call
        assert isinstance(call, PreparedMaps), "what has a pattern"
        x, y, cut = about.x, about.y, call.cut
        if x is None or y is None or not (x.made and y.made) or x.cubic != y.cubic:
            return None
        taps, places = Taps.of(about, way), self.chosen.shape.places()
        (channels,), (_, _, of_plane) = call.numbers("channels", 1), call.numbers("outer", 3)
        channel_at = places["in_channel_stride"] if channels > 1 else places["outer"] + 16  # after two sizes
        staged = int(way.constants[5]) * about.channels if taps.words else 0
        own_calls, along = self.chosen.call_bytes, cut.blocks[0]
        shared, most_shared, tile_planes = cut.shared_bytes - staged * cut.span, ways.MOST_SHARED, 0
        if way.tiled:
            layout = tiles.Layout.of(about)
            shared, most_shared, tile_planes, along = layout.head, tiles.ROOM, layout.planes, self.most_blocks
        return RowPattern(
            size=image.shape[1:],
            stride=image.strides,
            channels=image.shape[0],
            in_pixels=lie == "pixels",
            least=WIDEST,
            longest=_LONGEST,
            longest_step=ways.MOST_BETWEEN_ROWS,
            cubic=x.cubic,
            least_taps=taps.least,
            few_taps=taps.few,
            most_taps=taps.most,
            words=taps.words,
            tile=cut.tile,
            staged_bytes=staged,
            tile_planes=tile_planes,
            x_at=places["x"],
            channel_at=channel_at if channels > 1 or of_plane else _NOWHERE,
            tiles_at=places["tiles"],
            span_at=places["span"],
            shared_bytes=shared + own_calls,
            most_shared=most_shared + own_calls,
            out_step=self.out_step,
            alignment=ALIGNMENT if self.aligned else 1,
            along=along,
            down=cut.blocks[1],
            planes=cut.blocks[2],
        )
