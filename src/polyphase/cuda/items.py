"""Calls that are launched with others: what they are by themselves, what way they need, and the bytes of each."""

from __future__ import annotations

import functools
import struct
from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch

from polyphase.cuda import emit, launch, tiles, warps, ways
from polyphase.cuda.calls import AXIS_NUMBERS, CallShape
from polyphase.cuda.made_tables import (
    ANTIALIASED,
    BEFORE_TABLE,
    RECIPE_NUMBERS,
    Form,
    bytes_before_weights,
    matrix_bytes,
    most_taps,
    table_bytes,
)
from polyphase.cuda.maps import About, Arranged, PreparedMaps, Upload, way_of_all
from polyphase.cuda.warps import PreparedWarp
from polyphase.cuda.ways import Way
from polyphase.kernels.plans import MapsPlan, WarpPlan
from polyphase.records.facts import Facts
from polyphase.records.operands import Operands
from polyphase.records.records import CallRecord
from polyphase.sampling.axis_maps import AxisPath
from polyphase.sampling.programs import Axes

#: Windows of batches are no wider: an axis that has as many pixels has room for all of them.
WIDEST = ways.TAPS_OF_BATCHES[-1]
#: Of target and source, which a row's bytes do not have.
PAIR_BYTES = 16


class Room(NamedTuple):
    """What a call takes of its launch: blocks along rows, down a plane and from plane to plane, and shared memory."""

    along: int
    down: int
    planes: int
    shared_bytes: int


@dataclass(eq=False, slots=True)
class Row:
    """A call. filled: the addresses that it has of operands, and its bytes, from the third number on: the first two are
    the addresses of target and source. kept: what it reads besides. like: the pattern's that it was made by."""

    filled: tuple[tuple[int, ...], bytes]
    room: Room
    kept: list[object]
    like: Row | None = None


@dataclass(frozen=True, eq=False)
class Kind:
    """Calls of one plan that can have one launch, if their way is one. ways: by what calls of this kind need."""

    plan: MapsPlan | WarpPlan
    outer: int
    ways: dict[frozenset[Need], Chosen]


@dataclass(frozen=True, eq=False)
class Chosen:
    """A way, and its calls. One of a kind: found by itself, not by its numbers. functions: its kernel, by device."""

    way: Way
    shape: CallShape
    functions: dict[int, int]

    @property
    def call_bytes(self) -> int:
        """Bytes of shared memory for the calls that a block has."""
        return (self.shape.size * (tiles.CALLS if self.way.tiled else 1) + 15) // 16 * 16


@dataclass(frozen=True, eq=False)
class Need:
    """What the way of calls depends on. call: one that needs this, of axis maps."""

    call: Arranged | None
    way: Way


@functools.cache
def _kind(plan: MapsPlan | WarpPlan, outer: int, way: Way | None) -> Kind:
    """`way`: where all have the same."""
    return Kind(plan, outer, {})


#: By kind, the way of a call alone, and the room along its axes.
_needs: dict[Hashable, Need] = {}


@dataclass(frozen=True, eq=False)
class Known:
    """What an item is, for targets that are aligned or not."""

    call: Arranged | PreparedWarp
    kind: Kind
    need: Need
    operands: Operands


class Item:
    """A call of known sizes, to be launched with others. rows: as ways and streams have them."""

    def __init__(self, record: CallRecord) -> None:
        self.record, self.device = record, record.image.device.index
        self.rows: dict[tuple[Chosen, int], Row] = {}
        self.known: dict[bool, Known] = {}
        self._patterns: dict[tuple[Chosen, bool], Pattern | None] = {}

    def of(self, aligned: bool) -> Known:
        known = self.known.get(aligned)
        if known is None:
            known = self.known[aligned] = _known(self.record, aligned, launch.architecture(self.device))
        return known

    def prepared(self, chosen: Chosen, aligned: bool) -> Prepared:
        return Prepared(_prepared(self.of(aligned).call, chosen.way))

    @functools.cached_property
    def family(self) -> Family | None:
        return _family(self)

    def pattern(self, chosen: Chosen, aligned: bool) -> Pattern | None:
        """Gives the pattern of calls that differ in their sizes alone; None where those are not a few numbers."""
        name = (chosen, aligned)
        if name not in self._patterns:
            about = about_pattern(self.of(aligned).call)
            by_size = about is not None and chosen.way.template in (*ways.BY_STAGE, ways.TILES)
            self._patterns[name] = Pattern(self, about, chosen, aligned) if about is not None and by_size else None
        return self._patterns[name]


class SizedItem:
    """Like an item, for an image of another size and strides, whose axes are resized otherwise."""

    def __init__(self, like: Item, image: Facts, paths: tuple[AxisPath, AxisPath], taps: int) -> None:
        self.like, self.image, self.paths, self.taps = like, image, paths, taps
        self.device, self.of, self.known = like.device, like.of, like.known
        self.rows: dict[tuple[Chosen, int], Row] = {}

    @property
    def record(self) -> CallRecord:
        program = self.like.record.program
        assert isinstance(program.sampler, Axes), "warps have no tables"
        maps = [own.map_like(one) for own, one in zip(self.paths, program.sampler.maps, strict=True)]
        return self.like.record._replace(program=replace(program, sampler=Axes(tuple(maps))), image=self.image)

    def prepared(self, chosen: Chosen, aligned: bool) -> Prepared | SizedCall:
        pattern = self.like.pattern(chosen, aligned)
        return Item(self.record).prepared(chosen, aligned) if pattern is None else SizedCall(pattern, self)


def of_size(like: object, image: Facts, paths: tuple[AxisPath, AxisPath]) -> SizedItem | None:
    """Makes an item for bytes (channels, height, width) that are resized along both axes, as `like` has them; None for
    others."""
    assert isinstance(like, Item), "what was bound"
    family = like.family
    if family is None or min(image.shape[1:]) < WIDEST or image.shape[0] != family.channels:
        return None
    taps = max([most_taps(own.cropped, own.resized, family.cubic) if own.resized else WIDEST for own in paths])
    taps = FEW if taps <= FEW else ways.MOST_IN_RING if taps <= ways.MOST_IN_RING else 0
    if taps != family.taps or lies(image) != family.lies:
        return None
    fits = family.tiles is None or _tile_cut(family.tiles, image, paths) is not None
    return SizedItem(like, image, paths, taps) if fits else None


def _tile_cut(layout: tiles.Layout, image: Facts, paths: tuple[AxisPath, AxisPath]) -> tiles.TileCut | None:
    y, x = (
        tiles.Axis.of_sizes(size, one.cropped, one.resized, one.out_size)
        for size, one in zip(image.shape[1:], paths, strict=True)
    )
    return tiles.cut(layout, x, y)


FEW = ways.FEW_TAPS


class Family(NamedTuple):
    """What bytes have in common whose rows are made by one pattern. taps: of the walk that they have. tiles: for those
    that are cut into tiles."""

    channels: int
    lies: str
    cubic: bool
    taps: int
    tiles: tiles.Layout | None


def _family(item: Item) -> Family | None:
    record, call = item.record, item.of(True).call
    if isinstance(call, PreparedWarp) or len(record.image.shape) != 3 or record.program.sampled != torch.uint8:
        return None
    about = call.about
    x, y = about.x, about.y
    if x is None or y is None or not (x.made and y.made) or x.cubic != y.cubic:
        return None
    taps = FEW if max(x.taps, y.taps) <= FEW else ways.MOST_IN_RING
    fits = max(x.taps, y.taps) <= taps
    layout = tiles.Layout.of(about) if item.of(True).need.way.tiled else None
    return Family(record.image.shape[0], lies(record.image), x.cubic, taps, layout) if fits else None


def lies(image: Facts) -> str:
    """How the pixels of a row lie."""
    channels, (of_channel, _, along) = image.shape[0], image.strides
    if along == 1:
        return "planes"
    return "pixels" if (along, of_channel) == (channels, 1) else f"{along}, {of_channel}"


class Prepared:
    """What a row is made of. nbytes: of tables that are made on the device."""

    def __init__(self, call: PreparedMaps | PreparedWarp) -> None:
        self.call = call
        self.nbytes = call.makes.nbytes if isinstance(call, PreparedMaps) else 0

    def row(self, put: Upload, at: int) -> tuple[Row, bytes]:
        """Makes the row, and what makes its tables at an address on."""
        if isinstance(self.call, PreparedMaps):
            data, recipes, kept = self.call.row(put, at)
        else:
            (data, kept), recipes = self.call.packed(put), b""
        room = Room(*self.call.cut.blocks, self.call.cut.shared_bytes)
        return Row(((), data[PAIR_BYTES:]), room, kept), recipes


def about_pattern(call: Arranged | PreparedWarp) -> About | None:
    """What is known of a call whose rows and columns are resized, where nothing else depends on their sizes."""
    return call.about if isinstance(call, Arranged) and call.about.rows_and_columns else None


def filled(row: Row, shape: CallShape, addresses: tuple[int, ...]) -> bytes:
    """Fills addresses into a row, which are mostly those of the call before: it is remembered."""
    places, data = shape.places(), bytearray(row.filled[1])
    count = shape.coordinates + shape.vectors
    vectors, tensors = addresses[:count], addresses[count:]
    at = places["coordinates" if shape.coordinates else "vectors"] - PAIR_BYTES
    struct.pack_into(f"={len(vectors)}q", data, at, *vectors)
    struct.pack_into(f"={len(tensors)}q", data, places["tensors"] - PAIR_BYTES, *tensors)
    row.filled = addresses, bytes(data)  # at once: other threads may be reading it
    if row.like is not None and row.like.filled[0] != addresses:
        filled(row.like, shape, addresses)
    return row.filled[1]


class Pattern:
    """The row of one size: another's has other numbers along x and y, another stride from channel to channel, and
    begins elsewhere where it is walked backwards."""

    def __init__(self, item: Item, about: About, chosen: Chosen, aligned: bool) -> None:
        prepared = item.prepared(chosen, aligned)
        call = prepared.call
        assert isinstance(call, PreparedMaps), "warps have no tables"
        self.tiles = tiles.Layout.of(about) if chosen.way.tiled else None
        self.row, _ = prepared.row(lambda *parts: ([0] * len(parts), None), 0)
        self.cubic = about.x is not None and about.x.cubic
        places = chosen.shape.places()
        (channels,) = call.numbers("channels", 1)
        self.in_pixels = channels > 1
        self.x_step, self.y_step = (abs(call.numbers(axis, AXIS_NUMBERS)[3]) for axis in "xy")
        self.x_at, self.origin_at = places["x"] - PAIR_BYTES, places["target_origin"] - PAIR_BYTES
        self.tiles_at = places["tiles"] - PAIR_BYTES
        of_channel = places["in_channel_stride"] if self.in_pixels else places["outer"] + 16  # after two sizes
        self.channel_at = of_channel - PAIR_BYTES


class SizedCall:
    """`Prepared` by a pattern."""

    def __init__(self, pattern: Pattern, item: SizedItem) -> None:
        self._pattern, self._item = pattern, item
        self._cut = None if pattern.tiles is None else _tile_cut(pattern.tiles, item.image, item.paths)
        count = item.taps if self._cut is None else self._cut.matrices
        y, x = item.paths
        if self._cut is None:
            self._bytes_of_y, of_x = table_bytes(y.out_size, 4 * count), table_bytes(x.out_size, 4 * count)
        else:
            self._bytes_of_y, of_x = matrix_bytes(y.out_size, count), matrix_bytes(x.out_size, count)
        self._taps, self.nbytes = count, self._bytes_of_y + of_x

    def row(self, put: object, at: int) -> tuple[Row, bytes]:
        pattern, item, in_tiles, taps = self._pattern, self._item, self._cut, self._taps
        (y, x), (_, height, width), (of_channel, along_y, along_x) = item.paths, item.image.shape, item.image.strides
        y_step, origin = pattern.y_step, 0
        if in_tiles is None and y.direction * y.step < 0:  # walked backwards
            y_step, origin = -y_step, (y.out_size - 1) * y_step
            y = y._replace(begin=y.begin + y.step * (y.out_size - 1), step=-y.step)
        numbers, recipes = list[int](), list[int]()
        for path, size, in_stride, out_stride, place, form in (
            (x, width, along_x, pattern.x_step, at + self._bytes_of_y, Form.ALONG_X),
            (y, height, along_y, y_step, at, Form.ALONG_Y),
        ):
            first, weight = place + BEFORE_TABLE, place + bytes_before_weights(path.out_size)
            crop, direction, cropped, resized, begin, step, out_size = path
            recipes += (size, crop, direction, cropped, resized, pattern.cubic, begin, step, out_size, taps)
            recipes += (True, Form.WINDOWS if in_tiles is None else form, *ANTIALIASED, first, weight)
            precision = -1 if in_tiles is None else 16
            numbers += (size, out_size, in_stride, out_stride, first, 0, weight, 0, taps, precision)
        operands, filled = pattern.row.filled
        data = bytearray(filled)
        _TWO_AXES.pack_into(data, pattern.x_at, *numbers)
        _ONE.pack_into(data, pattern.channel_at, of_channel)
        _ONE.pack_into(data, pattern.origin_at, origin)
        room = pattern.row.room
        if in_tiles is not None:
            _SIX.pack_into(data, pattern.tiles_at, *in_tiles[:6])
            room = Room(in_tiles.tiles, 1, 1, in_tiles.shared_bytes)
        return Row((operands, bytes(data)), room, [], pattern.row), _TWO_RECIPES.pack(*recipes)


_TWO_RECIPES = struct.Struct(f"={2 * RECIPE_NUMBERS}q")
_ONE, _SIX, _TWO_AXES = struct.Struct("=q"), struct.Struct("=6q"), struct.Struct("=20q")


def _known(record: CallRecord, aligned: bool, architecture: str) -> Known:
    if record.coordinates is not None:
        warp = warps.prepared(record, False, architecture)
        return Known(warp, _kind(warp.plan, 1, warp.way), _need(warp.way, None), record.operands)
    call = Arranged(record, False, aligned, architecture, makes_tables=True)
    about, alone = call.about, way_of_all([call])
    if not call.plan.weighted:
        return Known(call, _kind(call.plan, call.outer, alone), _need(alone, call), record.operands)
    sizes = [one.in_size for one in (about.x, about.y) if one is not None]
    by_windows = way_of_all([call], by_tiles=False)  # with others that have no tiles
    need = _need(alone, call, (by_windows, min(WIDEST, *sizes)))
    return Known(call, _kind(call.plan, call.outer, None), need, record.operands)


def _need(way: Way, call: Arranged | None, *of_windows: Hashable) -> Need:
    name = (way, call and call.plan, call and call.about.channels, *of_windows)
    return _needs.setdefault(name, Need(call, way))


def chosen_for(kind: Kind, needs: frozenset[Need]) -> Chosen:
    chosen = kind.ways.get(needs)
    if chosen is None:
        calls = [need.call for need in needs if need.call is not None]
        way = way_of_all(calls) if calls else next(iter(needs)).way
        way = replace(way, outer=kind.outer, batched=True)
        chosen = Chosen(way, emit.call_shape(kind.plan, way), {})
        same = next((one for one in kind.ways.values() if one.way == way), chosen)
        chosen = kind.ways[needs] = same
    return chosen


def _prepared(call: Arranged | PreparedWarp, way: Way) -> PreparedMaps | PreparedWarp:
    return replace(call, way=way) if isinstance(call, PreparedWarp) else call.by(way)
