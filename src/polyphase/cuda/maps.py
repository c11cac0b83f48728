"""A call of axis maps, prepared on the host: all of it but addresses. The launcher does it (`launch/device_maps.h`),
and asks no device."""

from __future__ import annotations

import functools
import struct
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import torch

from polyphase.cuda import emit, launcher, ways
from polyphase.cuda.calls import CallShape
from polyphase.cuda.made_tables import RECIPE_BYTES, RECIPE_NUMBERS
from polyphase.cuda.ways import Cut, Way
from polyphase.errors import NoKernelError
from polyphase.kernels.plans import MapsPlan, plan_maps
from polyphase.records import records
from polyphase.records.records import CallRecord
from polyphase.sampling.integers import SUMMED_IN
from polyphase.sampling.programs import Axes, Program

#: Tables made, of this process.
counts: Counter[str] = Counter()

#: Puts bytes where kernels can read them: their addresses, 0 for None, and what keeps them there.
Upload: TypeAlias = "Callable[..., tuple[list[int], object]]"


class Taps(NamedTuple):
    """What is known of a table along an axis. made: on the device."""

    made: bool
    cubic: bool
    taps: int
    in_size: int


class About(NamedTuple):
    """What batches ask before a way is chosen. rows_and_columns: they are all that is mapped, and nothing else depends
    on their sizes. walks_bytes: kernels may. tile_head: bytes of shared memory that a tile has before those of
    weights."""

    planes: int
    channels: int
    rows_and_columns: bool
    walks_bytes: bool
    tile_head: int
    x: Taps | None
    y: Taps | None


class Kind(NamedTuple):
    """What calls have in common whose programs differ in the numbers of their steps alone. facts: `Program` of
    device_cases.h, but for what few and many are."""

    plan: MapsPlan
    part: records.MapsPart
    facts: bytes


_kinds: dict[tuple[object, ...], Kind] = {}


def kind_of(program: Program, architecture: str) -> Kind:
    axes = program.sampler
    assert isinstance(axes, Axes), "warps have calls of their own"
    name = (architecture, program.order, *records.kind_of(program, axes))
    kind = _kinds.get(name)
    if kind is None:
        plan = plan_maps(program, architecture)
        part = records.maps_part(program, axes, plan.work, kernel=0, sampler=0, mover=0)
        if len(_kinds) >= 256:  # borders may have any value
            _kinds.clear()
        kind = _kinds[name] = Kind(plan, part, _facts(program, plan))
    return kind


def _facts(program: Program, plan: MapsPlan) -> bytes:
    in_bytes, out_bytes = program.source.itemsize, program.target.itemsize
    sums_bytes = plan.work == torch.uint8
    arithmetic, weights = _arithmetic(program.sampled)
    loads = emit.loads_as_is(plan)
    moves = plan.source is None
    return struct.pack(
        "=9q",
        *(plan.weighted, moves, in_bytes, out_bytes, arithmetic, weights, plan.work.itemsize, sums_bytes, loads),
    )


def _arithmetic(sampled: torch.dtype) -> tuple[int, int]:
    """`Arithmetic` and `WeightType` of device_tables.h."""
    if sampled == torch.uint8:
        return 0, 0
    if sampled == torch.float64 or sampled in SUMMED_IN:
        return 2, 2 if SUMMED_IN.get(sampled, sampled) == torch.float64 else 1
    return 1, 1


def facts_of(kind: Kind) -> bytes:
    """`Program` of device_cases.h."""
    return kind.facts + struct.pack("=3q", ways.FEW_OUTPUTS, ways.MANY_THREADS, ways.FEW_TO_WALK)


def request_of(record: CallRecord, architecture: str) -> bytes:
    axes = record.program.sampler
    assert isinstance(axes, Axes), "warps have calls of their own"
    return records.pack(record, kind_of(record.program, architecture).part.of(axes))


class Arranged:
    """A call before its way is chosen. makes_tables: those that can be made on the device are."""

    def __init__(
        self,
        record: CallRecord,
        source_aligned: bool,
        target_aligned: bool,
        architecture: str,
        *,
        makes_tables: bool = False,
    ) -> None:
        kind, terms = kind_of(record.program, architecture), (source_aligned, target_aligned, makes_tables)
        self.plan, self._functions = kind.plan, launcher.device_functions()
        try:
            arranged = self._functions.arrange(request_of(record, architecture), facts_of(kind), *terms)
        except NotImplementedError as error:
            raise NoKernelError(str(error)) from None
        self.handle, self.outer = arranged

    @functools.cached_property
    def about(self) -> About:
        about = About(*self._functions.about(self.handle))
        x, y = (one and Taps(*one) for one in (about.x, about.y))
        return about._replace(x=x, y=y)

    def own_way(self) -> Way:
        """Most are made for numbers of taps and for how rows lie."""
        return ways.unpacked(self._functions.own_way(self.handle))

    def servers(self, own: Way) -> list[Way]:
        """The ways that can do a call in the stead of its own: the best first, the one that serves most sizes last.
        None of a large call whose own way serves many sizes."""
        return [ways.unpacked(one) for one in self._functions.servers(self.handle, ways.packed(own))]

    def way_by(self, template: str, *numbers: int) -> Way:
        """That of general.h; or of byte_stage.h or ring.h, for taps along x and y, of a ring also for columns."""
        return ways.unpacked(self._functions.way_by(self.handle, ways.TEMPLATES.index(template), *numbers))

    def of_call(self, way: Way) -> Way:
        """The way, with the axes that the call has."""
        return way.of_call(self.outer)

    def by(self, way: Way, instead: Way | None = None) -> PreparedMaps:
        """`instead`: of which way, whose bits the result is to have."""
        found = self._functions.prepare(self.handle, ways.packed(way), ways.packed(instead or way))
        (along, down, planes, *numbers), call, parts, places, (recipes, made_at, made_bytes), tables = found
        cut, makes = Cut((along, down, planes), *numbers), Making(recipes, made_at, made_bytes)
        return PreparedMaps(self.plan, self.of_call(way), cut, call, parts, places, makes, tables)


def way_of_all(calls: Sequence[Arranged], *, by_tiles: bool = True) -> Way:
    """One kernel for calls of one plan, of several sizes. What is not summed has the way of the first."""
    functions = launcher.device_functions()
    return ways.unpacked(functions.way_of_all(tuple([one.handle for one in calls]), not by_tiles))


class Making(NamedTuple):
    """Recipes of tables that are made on the device one behind the other, as if from address 0 on, and the places of
    their addresses in a call, two each."""

    recipes: bytes
    places: tuple[int, ...]
    nbytes: int

    def at(self, begin: int) -> tuple[list[int], bytes]:
        """Gives tables addresses from one on: those, and what makes the tables."""
        count = len(self.recipes) // RECIPE_BYTES
        numbers, addresses = [*struct.unpack(f"={count * RECIPE_NUMBERS}q", self.recipes)], list[int]()
        for last in range(RECIPE_NUMBERS - 1, len(numbers), RECIPE_NUMBERS):
            numbers[last - 1] += begin
            numbers[last] += begin
            addresses += numbers[last - 1 : last + 1]
        return addresses, struct.pack(f"={len(numbers)}q", *numbers)


@dataclass(frozen=True, eq=False)
class PreparedMaps:
    """call: its bytes, whose addresses are 0. parts: what is to be where kernels can read it, and the places of its
    addresses."""

    plan: MapsPlan
    way: Way
    cut: Cut
    call: bytes
    parts: tuple[bytes, ...]
    places: tuple[int, ...]
    makes: Making
    tables: int

    @property
    def shape(self) -> CallShape:
        return emit.call_shape(self.plan, self.way)

    def packed(self, upload: Upload) -> tuple[bytes, list[object]]:
        """The call with its tables where kernels read them, and what keeps them there."""
        data, _, kept = self.row(upload, 0)
        return data, kept

    def row(self, upload: Upload, begin: int) -> tuple[bytes, bytes, list[object]]:
        """The call with its tables, what makes tables on the device, from an address on, and what keeps all that."""
        addresses, memory = upload(*self.parts)
        counts["made"] += self.tables
        data = bytearray(self.call)
        for place, address in zip(self.places, addresses, strict=True):
            _ADDRESS.pack_into(data, place, address)
        recipes = b""
        if self.makes.places:
            made, recipes = self.makes.at(begin)
            for place, address in zip(self.makes.places, made, strict=True):
                _ADDRESS.pack_into(data, place, address)
        return bytes(data), recipes, [memory]

    def numbers(self, field: str, count: int) -> tuple[int, ...]:
        """Reads the numbers of a field of the call."""
        return struct.unpack_from(f"={count}q", self.call, self.shape.places()[field])


_ADDRESS = struct.Struct("=q")
