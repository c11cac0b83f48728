"""Calls of images of several sizes by one launch: a table of them is uploaded by one copy, and a block reads its own.

Tables of taps are made on the device where they can be, by one launch for all that are new. Nothing waits for the
device: what is uploaded, made and read lies in memory of torch's, in the order of one stream.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import struct
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor

from polyphase.calls.binding import NOT_BUILT, bind_record
from polyphase.calls.bound import BoundCall
from polyphase.calls.devices import BatchedCall, BindLike, BySize
from polyphase.cuda import driver, emit, launch, launcher, loading, maps, sized
from polyphase.cuda.calls import ALIGNMENT, CallShape
from polyphase.cuda.items import PAIR_BYTES, Chosen, Item, Kind, Row, SizedItem, chosen_for, filled, of_size
from polyphase.cuda.launcher import LaunchPlan
from polyphase.cuda.made_tables import GROUP, RECIPE_BYTES, TAPS_CALL_BYTES
from polyphase.cuda.maps import Upload
from polyphase.cuda.memory import DeviceMemory, TorchMemory, uploaded
from polyphase.cuda.tiles import Listed, dealt, most_blocks
from polyphase.errors import NoKernelError
from polyphase.kernels.plans import MapsPlan, WarpPlan
from polyphase.records.facts import Facts
from polyphase.records.operands import Operands
from polyphase.records.patchwork import Patchwork
from polyphase.records.recipes import Recipe
from polyphase.records.records import CallRecord
from polyphase.sampling.axis_maps import AxisMap
from polyphase.sampling.programs import Axes

#: Blocks from plane to plane, of all calls together.
MOST_BLOCKS = 65535
#: Streams that an image's row is remembered for, and ways.
MOST_ROWS = 8
#: Tables that are made on a stream are read on it alone; those of captured graphs are there before a graph is replayed.
OF_GRAPHS = -1
#: Images that others were tried to be launched like.
MOST_LEARNED = 32
#: Calls of one program that others are compared with, and outputs they are for.
MOST_LIKE, MOST_OUTPUTS = 8, 64


def bind(record: CallRecord) -> BoundCall:
    """A call to be launched with others."""
    if 0 in record.image.shape:
        raise NoKernelError("an image without pixels, of which only borders are seen; kernels read where borders are")
    item = Item(record)
    item.of(True)  # what cannot be done says so now
    return _bound(item, record.out)


def _bound(item: Item | SizedItem, place: Facts) -> BoundCall:
    def into(out: Tensor, *inputs: Tensor) -> None:
        launch_all((item, out, *inputs))

    def fresh(*inputs: Tensor) -> Tensor:
        out = torch.empty_strided(place.shape, place.strides, dtype=place.dtype, device=place.device)
        into(out, *inputs)
        return out

    return BoundCall(place, fresh, into, handle=item)


def bind_like(record: CallRecord) -> BindLike:
    """Binds calls like the record's but for the numbers of their steps. To be launched with others, most differ from
    another in a few numbers; a new one of those is bound. Alone, they are bound by requests that differ so."""
    likes: dict[Facts, tuple[object, ...]] = {}
    alone = functools.cache(functools.partial(launch.bind_like, record))

    def bound(
        image: Facts, out: Facts, patchwork: Patchwork | None, steps: tuple[Recipe, Recipe], batched: bool
    ) -> BoundCall:
        if batched:
            rows, columns = (one.path(n) for one, n in zip(steps, image.shape[1:], strict=True))
            for like in likes.get(out, ()):
                item = None if rows is None or columns is None else of_size(like, image, (rows, columns))
                if item is not None:
                    return _bound(item, out)
        else:
            with contextlib.suppress(NoKernelError, *NOT_BUILT):  # which is said where the record is bound
                return alone()(image, out, steps)
        maps = Axes(tuple(AxisMap(one.steps()) for one in steps))
        own = record._replace(program=replace(record.program, sampler=maps), image=image, out=out)
        call = bind_record(own, batched)
        if isinstance(call.handle, Item):
            if len(likes) >= MOST_OUTPUTS:
                likes.clear()
            likes[out] = (call.handle, *likes.get(out, ())[: MOST_LIKE - 1])
        return call

    return bound


class Kernel(NamedTuple):
    """plan and chosen: None for the one that makes tables."""

    plan: MapsPlan | WarpPlan | None
    chosen: Chosen | None
    blocks: tuple[int, int, int]
    threads: int
    shared_bytes: int


class Stream:
    """What a launch asks of its device, on the current stream. readers: whom tables that are made here are for."""

    def __init__(self, device: int) -> None:
        self.memory = TorchMemory(device)
        self.device, self.number = device, self.memory.stream_of(device)
        self.captures = torch.cuda.is_current_stream_capturing()
        self.readers = OF_GRAPHS if self.captures else self.number
        self.put: Upload = functools.partial(uploaded, device)  # tables from the host

    def copied(self, data: bytes) -> tuple[int, object]:
        """Where a copy lies, and what keeps it there until kernels that read it are on the stream."""
        if self.captures:  # a graph would copy from the host whenever it is replayed
            address, memory = self._there_at_once(data)
            memory.keep_forever()
            return address, memory
        staged = self.memory.staged(len(data))
        ctypes.memmove(staged.data_ptr(), data, len(data))
        there = self.memory.there(staged)
        return there.data_ptr(), there

    def _there_at_once(self, data: bytes) -> tuple[int, DeviceMemory]:
        """Where a copy lies, and the memory that it is part of."""
        (address,), memory = uploaded(self.device, data)
        assert memory is not None, "there are bytes"
        return address, memory

    def room(self, size: int) -> tuple[int, object]:
        """Where tables are to be made, and what keeps them there."""
        if self.captures and size:
            memory = DeviceMemory(self.device, size)
            memory.keep_forever()
            return memory.address, memory
        empty = self.memory.empty(size)
        return empty.data_ptr(), empty

    def make_at_once(self, recipes: bytes) -> None:
        """Tables, by no stream of the user's: they are there on return."""
        (address, _there), kernel = self._there_at_once(recipes), _making(recipes)
        parameters = bytearray(struct.pack("=2q", address, kernel.blocks[0]).ljust(TAPS_CALL_BYTES, b"\0"))
        driver.run_at_once(self.device, self.function(None, None), *kernel[2:], parameters)

    def most_blocks(self, chosen: Chosen) -> int:
        """How many blocks take tiles: as many as the device has at once."""
        facts = torch.cuda.get_device_properties(self.device)
        shared = facts.shared_memory_per_multiprocessor
        return most_blocks(chosen.way, chosen.call_bytes, facts.multi_processor_count, shared)

    def function(self, plan: MapsPlan | WarpPlan | None, chosen: Chosen | None) -> int:
        if plan is None or chosen is None:
            return loading.tap_maker(self.device, launch.architecture(self.device))
        if self.device not in chosen.functions:
            chosen.functions[self.device] = loading.function_of(loading.Name(plan, chosen.way, self.device))
        return chosen.functions[self.device]

    def run(self, kernel: Kernel, address: int, number: int) -> None:
        """Parameters are where a table lies, and a number."""
        plan, chosen, blocks, threads, shared_bytes = kernel
        sizes = (blocks, threads, shared_bytes)
        made = LaunchPlan(self.device, self.function(plan, chosen), *sizes, 0, 0, 0, 0, makes_tables=plan is None)
        parameters = bytes(TAPS_CALL_BYTES if plan is None else PAIR_BYTES)
        launcher.bind(made, parameters).run(self.number, address, number)


def _making(recipes: bytes) -> Kernel:
    count, threads = len(recipes) // RECIPE_BYTES, emit.TAP_THREADS
    return Kernel(None, None, (count, 1, 1), threads, 8 * threads)


def launch_all(*calls: tuple[Any, ...]) -> None:
    """Each an item, its output and inputs: one launch for all that are alike but for their sizes."""
    for device in {call[0].device for call in calls}:
        own = [call for call in calls if call[0].device == device]
        with torch.cuda.device(device):
            launch_on(Stream(device), Calls.of(own))


def launch_into(
    out: Tensor,
    calls: Sequence[BatchedCall],
    images: Sequence[Tensor],
    places: Sequence[int] | None = None,
    by_size: BySize | None = None,
) -> None:
    """Each an item and what it reads besides its image, into one tensor's parts. `by_size`: where steps follow from
    sizes, the next ones like the first are launched by that."""
    device = calls[0][0].device
    with torch.cuda.device(device):
        launch_into_on(Stream(device), out, calls, images, places, by_size)


def launch_into_on(
    stream: Stream,
    out: Tensor,
    calls: Sequence[BatchedCall],
    images: Sequence[Tensor],
    places: Sequence[int] | None = None,
    by_size: BySize | None = None,
) -> None:
    own = Calls.into(out, calls, images, places)
    launched = launch_on(stream, own)
    if by_size is not None and not stream.captures and len(by_size.launches) < MOST_LEARNED:
        _learn(stream, by_size, own, launched, out.stride(0) * out.element_size())


def _learn(stream: Stream, by_size: BySize, calls: Calls, launched: dict[Kind, Chosen], out_step: int) -> None:
    """Learns from the first that was launched by a kernel for images of any size."""
    for item, inputs in zip(calls.items, calls.inputs, strict=True):
        like = item if isinstance(item, Item) else item.like
        known = like.of(calls.aligned)
        chosen = launched[known.kind]
        if chosen.way.template in sized.KERNELS and not known.operands.copied:
            own = (like, chosen, calls.aligned)
            name = (*own, by_size.templates)
            if name not in by_size.launches:
                functions = (stream.function(known.kind.plan, chosen), stream.function(None, None))
                likeness = sized.Likeness(*own, out_step, inputs, functions, stream.most_blocks(chosen))
                by_size.launches[name] = likeness.launch(by_size.templates, stream.memory)
            return


class Calls(NamedTuple):
    """Calls that are launched together: of each its item, the addresses of its target and image, other inputs."""

    items: Sequence[Item | SizedItem]
    targets: Sequence[int]
    sources: Sequence[int]
    inputs: Sequence[tuple[Tensor, ...]]
    aligned: bool  # all targets

    @staticmethod
    def of(calls: Sequence[tuple[Any, ...]]) -> Calls:
        targets, sources = ([call[i].data_ptr() for call in calls] for i in (1, 2))
        aligned = all(target % ALIGNMENT == 0 for target in targets)
        return Calls([call[0] for call in calls], targets, sources, [call[3:] for call in calls], aligned)

    @staticmethod
    def into(
        out: Tensor,
        calls: Sequence[BatchedCall],
        images: Sequence[Tensor],
        places: Sequence[int] | None = None,
    ) -> Calls:
        """`places`: in `out`; None for all."""
        first, step = out.data_ptr(), out.stride(0) * out.element_size()
        targets = [first + i * step for i in (range(len(calls)) if places is None else places)]
        handles, inputs = zip(*calls, strict=True)
        return Calls(handles, targets, [one.data_ptr() for one in images], inputs, (first | step) % ALIGNMENT == 0)

    def at(self, places: Sequence[int]) -> Calls:
        if len(places) == len(self.items):
            return self
        items, targets = [self.items[i] for i in places], [self.targets[i] for i in places]
        return Calls(items, targets, [self.sources[i] for i in places], [self.inputs[i] for i in places], self.aligned)


def launch_on(stream: Stream, calls: Calls) -> dict[Kind, Chosen]:
    """Launches calls, those of one kind at a time, and tells by what."""
    try:
        known = [item.known[calls.aligned] for item in calls.items]
    except KeyError:  # some are new
        known = [item.of(calls.aligned) for item in calls.items]
    kinds, launched = {one.kind for one in known}, dict[Kind, Chosen]()
    for kind in kinds:
        places = [i for i, one in enumerate(known) if one.kind is kind] if len(kinds) > 1 else range(len(known))
        launched[kind] = chosen = chosen_for(kind, frozenset([known[i].need for i in places]))
        for first in range(0, len(places), MOST_BLOCKS):
            _launch(stream, kind, chosen, calls.at(places[first : first + MOST_BLOCKS]))
    return launched


def _launch(stream: Stream, kind: Kind, chosen: Chosen, calls: Calls) -> None:
    rows, recipes, made = _rows(stream, calls.items, chosen, calls.aligned)
    if recipes and stream.captures:  # not whenever the graph is replayed
        stream.make_at_once(recipes)
        recipes = b""
    way, shape = chosen.way, chosen.shape
    most = stream.most_blocks(chosen) if way.tiled else 0
    tiles = _tiles(shape, rows, most) if way.tiled else b""
    table = [recipes, tiles]
    given: dict[int, _Given] = {}  # most have the same operands
    for item, target, source, inputs, row in zip(*calls[:4], rows, strict=True):
        if id(inputs) not in given:
            given[id(inputs)] = _given(shape, item.of(calls.aligned).operands, inputs)
        addresses, _ = given[id(inputs)]
        operands, data = row.filled
        table += (_PAIR(target, source), data if operands == addresses else filled(row, shape, addresses))
    address, _there = stream.copied(b"".join(table))
    if recipes:
        making = _making(recipes)
        stream.run(making, address, making.blocks[0])
    for item, row in made.items():  # not before their tables are sure to be made: other threads may use them
        if len(item.rows) >= MOST_ROWS:
            item.rows.clear()
        item.rows[chosen, stream.readers] = row
    along, down, planes, shared_bytes = map(max, zip(*{row.room for row in rows}, strict=True))
    number = min(planes, MOST_BLOCKS // len(rows))
    blocks = (along, down, number * len(rows))
    if way.tiled:
        number = len(tiles) // _TILE_BYTES
        blocks = (min(number, most), 1, 1)
    kernel = Kernel(kind.plan, chosen, blocks, way.threads, shared_bytes + chosen.call_bytes)
    stream.run(kernel, address + len(recipes) + len(tiles), number)


#: `TileOfCall` of batch.h.
_TILE_BYTES = 8


def _tiles(shape: CallShape, rows: Sequence[Row], blocks: int) -> bytes:
    """All of them, by the call and their number in it, as so many blocks take them."""
    places = shape.places()
    images = []
    for row in rows:
        data = row.filled[1]
        _, _, tile, strip, _, staged_rows = _SIX.unpack_from(data, places["tiles"] - PAIR_BYTES)
        sizes = [_ONE.unpack_from(data, places[axis] + 8 - PAIR_BYTES)[0] for axis in "xy"]
        images.append(Listed(tile, strip, staged_rows, *[-(-size // GROUP) for size in sizes]))
    return b"".join(_TILE(*one) for one in dealt(images, blocks))


_ONE, _SIX, _TILE = struct.Struct("=q"), struct.Struct("=6q"), struct.Struct("=2i").pack
_PAIR = struct.Struct("=2q").pack


#: Addresses of coordinates, vectors and tensors, and what keeps them there.
_Given: TypeAlias = "tuple[tuple[int, ...], Sequence[Tensor]]"


def _given(shape: CallShape, operands: Operands, inputs: tuple[Tensor, ...]) -> _Given:
    coordinates = shape.coordinates
    dense = (*inputs[:coordinates], *operands.dense(inputs[coordinates:])) if operands.copied else inputs
    return tuple([one.data_ptr() for one in dense]), dense


def _rows(
    stream: Stream, items: Sequence[Item | SizedItem], chosen: Chosen, aligned: bool
) -> tuple[list[Row], bytes, dict[Item | SizedItem, Row]]:
    """Gives a row for each item, recipes for the tables of new ones, and the rows to be remembered."""
    name = (chosen, stream.readers)
    with contextlib.suppress(KeyError):  # where some are new
        return [item.rows[name] for item in items], b"", {}
    found = {item: row for item in items if (row := item.rows.get(name)) is not None}
    calls = {item: item.prepared(chosen, aligned) for item in items if item not in found}
    at, memory = stream.room(sum([call.nbytes for call in calls.values()]))
    recipes, made = list[bytes](), dict[Item | SizedItem, Row]()
    for item, call in calls.items():
        made[item], own = call.row(stream.put, at)
        recipes.append(own)
        at += call.nbytes
        if stream.captures:
            launch.keep_forever(made[item].kept)
        made[item].kept.append(memory)
    rows = [found.get(item) or made[item] for item in items]
    made_there = b"".join(recipes)
    maps.counts["made"] += len(made_there) // RECIPE_BYTES
    return rows, made_there, made
