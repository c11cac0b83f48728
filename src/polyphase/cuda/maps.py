"""A call of axis maps, prepared on the host: all of it but addresses."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor

from polyphase.cuda import emit, packed_tables, tiles, ways
from polyphase.cuda.calls import ALIGNMENT, AxisFields, CallShape, Fields, TensorFields
from polyphase.cuda.cases import Case, Way
from polyphase.cuda.cuts import Cut, cut
from polyphase.cuda.geometry import Dimension, Geometry, arrange, in_pixels, wider
from polyphase.cuda.plain_tables import HostTable, TableOnHost, tensor_bytes, unpacked, work_of
from polyphase.cuda.tables import (
    MadeTable,
    Table,
    host_table,
    identity_table,
    in_fours,
    in_step,
    made_table,
    progression,
    shared,
    widened,
)
from polyphase.kernels import records
from polyphase.kernels.plans import MapsPlan, plan_maps
from polyphase.kernels.records import CallRecord
from polyphase.sampling.programs import Axes

#: Tables made, of this process.
counts: Counter[str] = Counter()

#: Puts bytes where kernels can read them: their addresses, 0 for None, and what keeps them there.
Upload: TypeAlias = "Callable[..., tuple[list[int], object]]"
#: Has a table made on the device: the addresses of its firsts and its weights.
Make: TypeAlias = "Callable[[MadeTable], tuple[int, int]]"


class Origins(NamedTuple):
    """Where the first element lies that is read, that is written and is read of each tensor, and of a row."""

    source: int
    others: tuple[int, ...]
    row: int


@dataclass(frozen=True, eq=False)
class PreparedMaps:
    """Its tables are still on the host."""

    plan: MapsPlan
    way: Way
    cut: Cut
    geometry: Geometry
    x: Table | None
    y: Table | None
    z: Table | None
    outer: tuple[Table | None, ...]
    origins: Origins
    borders: records.Borders
    row_offsets: bytes | None

    @property
    def shape(self) -> CallShape:
        return emit.call_shape(self.plan, self.way)

    def fields(self, upload: Upload, make: Make | None = None) -> tuple[Fields, list[object]]:
        """With tables where kernels read them, and what keeps them there."""
        geometry, cut, borders = self.geometry, self.cut, self.borders
        axes = [*zip((geometry.z, geometry.y, geometry.x), (self.z, self.y, self.x), strict=True)]
        axes += zip(geometry.outer, self.outer, strict=True)
        on_host = [table for _, table in axes if table is not None and not isinstance(table, MadeTable)]
        parts = itertools.chain.from_iterable([table.parts() for table in on_host])
        (borders_at, offsets_at, *places), memory = upload(borders.data or None, self.row_offsets, *parts)
        counts["made"] += len(on_host)
        addresses = iter(places)

        def axis(one: Dimension, table: Table | None) -> list[int]:
            sizes = (one.in_size, one.out_size, one.in_stride, one.out_stride)
            if table is None:
                return [*AxisFields(*sizes)]
            if isinstance(table, MadeTable):
                assert make is not None, "batches alone have tables that are made on the device"
                first, weight = make(table)
                return [*AxisFields(*sizes, first, 0, weight, 0, table.taps, table.precision)]
            first, index, weight, border = itertools.islice(addresses, 4)
            return [*AxisFields(*sizes, first, index, weight, border, table.taps, table.precision)]

        z, y, x, *outer = [axis(one, table) for one, table in axes]
        tensors = [
            TensorFields(
                origin,
                [one.tensors[t] for one in geometry.outer],
                geometry.z.tensors[t],
                geometry.y.tensors[t],
                geometry.x.tensors[t],
                geometry.pixel.tensors[t],
            ).numbers()
            for t, origin in enumerate(self.origins.others[1:])
        ]
        channel = [i for i, one in enumerate(geometry.outer) if one.channels]
        return {
            "outer": [*itertools.chain(*outer)],
            "z": z,
            "y": y,
            "x": x,
            "planes": geometry.planes,
            "channels": geometry.pixel.out_size,
            "in_channel_stride": geometry.pixel.in_stride,
            "out_channel_stride": geometry.pixel.out_stride,
            "target_origin": self.origins.others[0],
            "source_origin": self.origins.source,
            "row_origin": self.origins.row,
            "channel_axis": channel[0] if channel else -1,
            "tensor_strides": [*itertools.chain(*tensors)],
            "borders": borders_at,
            "border_stride": borders.stride,
            "first_stored": borders.first_stored,
            "offsets": offsets_at,
            "tiles": cut.tiles,
            "strips": cut.strips,
            "tile": cut.tile,
            "strip": cut.strip,
            "span": cut.span,
            "staged_rows": cut.staged_rows,
        }, [memory]


def prepared(
    record: CallRecord, aligned: bool, architecture: str, choose: Callable[[Case], Way] = ways.choose
) -> PreparedMaps:
    arranged = Arranged(record, aligned, aligned, architecture)
    return arranged.by(choose(arranged.case))


class Arranged:
    """A call before its way is chosen: `case`, and what else is known.

    makes_tables: those that can be made on the device are.
    """

    def __init__(
        self,
        record: CallRecord,
        source_aligned: bool,
        target_aligned: bool,
        architecture: str,
        *,
        makes_tables: bool = False,
    ) -> None:
        axes = record.program.sampler
        assert isinstance(axes, Axes), "warps have calls of their own"
        plan = plan_maps(record.program, architecture)
        geometry, element_bytes = arrange(record), record.image.dtype.itemsize
        if plan.weighted and plan.work == torch.uint8:
            geometry = in_pixels(geometry)
        aligned = source_aligned and target_aligned
        can_widen = aligned and not record.program.borders  # whose values are elements
        if plan.source is None and can_widen:
            geometry, element_bytes = wider(geometry, element_bytes, ALIGNMENT)
        sampled = record.program.sampled

        def table(one: Dimension) -> Table | None:
            if one.map is None:
                return None
            made = made_table(one.map.steps, one.in_size, sampled) if makes_tables and not axes.transposed else None
            return made or host_table(
                one.map, one.out_size if axes.transposed else one.in_size, sampled, axes.transposed
            )

        others = [(one, table(one)) for one in (geometry.y, geometry.z, *geometry.outer)]
        self.source_origin = 0
        if not plan.weighted:
            others, self.source_origin = _by_strides(others)
        (y_dimension, y), (z_dimension, z), *outer = others
        geometry = geometry._replace(y=y_dimension, z=z_dimension, outer=tuple(one for one, _ in outer))
        x = table(geometry.x)
        self.record, self.outer = record, tuple(one for _, one in outer)
        self.case = Case(
            geometry,
            plan,
            x,
            y,
            z,
            any(one is not None and one.border is not None for one in (x, *[one for _, one in others])),
            element_bytes,
            element_bytes if plan.source is None else record.out.dtype.itemsize,
            ALIGNMENT if source_aligned else record.image.dtype.itemsize,
            ALIGNMENT if target_aligned else record.out.dtype.itemsize,
        )

    def of_call(self, way: Way) -> Way:
        """With the axes that the call has."""
        outer = len(self.case.geometry.outer)
        return way if way.outer == outer else replace(way, outer=outer)

    def by(self, way: Way, instead: Way | None = None) -> PreparedMaps:
        """`instead`: of which way, whose bits the result is to have."""
        case, record, sampled = self.case, self.record, self.record.program.sampled
        geometry, plan, x, y = case.geometry, case.plan, case.x, case.y
        way, share = self.of_call(way), cut(case, way)
        row_offsets, row_origin, origins = None, 0, [0, *[0] * len(record.operands.tensors)]
        if way.template == "Moved":
            assert not isinstance(x, MadeTable), "what is made on the device is summed"
            columns, _, computed, by_runs, *_ = way.constants
            if computed:
                ((along, x),), row_origin = _by_strides([(geometry.x, x)])
                geometry = geometry._replace(x=along)
            else:
                row_offsets, x = _row_offsets(geometry, x, int(columns) if by_runs else 0), None
        elif way.template == tiles.TEMPLATE:
            x, y = tiles.tables_of(
                case, *[_as_windows(one, along, sampled) for one, along in ((x, geometry.x), (y, geometry.y))]
            )
        elif way.template == "General":
            if instead is not None and instead.template in ways.COLUMNS_FIRST:
                x, y = _as_windows(x, geometry.x, sampled), _as_windows(y, geometry.y, sampled)
                share = replace(share, strip=1)
        else:
            x = _as_windows(x, geometry.x, sampled)
            y = _as_windows(y, geometry.y, sampled)
            x, y = widened(x, ways.taps_along_x(way, x, y)), widened(y, ways.taps_along_y(way, x, y))
            if way.template == "Direct" and not isinstance(y, MadeTable):
                y = shared(y, int(way.constants[4]), int(way.constants[1]))
            elif y.descends and not y.ascends:
                geometry, y, origins = _backwards(geometry, "y", y, origins)
            if x.descends and not x.ascends and way.template in ways.COLUMNS_ASCEND:
                geometry, x, origins = _backwards(geometry, "x", x, origins)
            if way.template in ways.IN_FOURS:
                x = in_fours(x, int(way.constants[0]))
            if way.template == "Ring" and way.constants[4] >= 0 and not isinstance(x, MadeTable):
                found = in_step(x, int(way.constants[2]))
                assert found is not None, "what was chosen by"
                x = found.table
        borders = records.borders_of(record.program, record.program.source if record.program.moves_only else plan.work)
        begins = Origins(self.source_origin, tuple(origins), row_origin)
        return PreparedMaps(plan, way, share, geometry, x, y, case.z, self.outer, begins, borders, row_offsets)


def _by_strides(
    axes: list[tuple[Dimension, Table | None]],
) -> tuple[list[tuple[Dimension, Table | None]], int]:
    """What merely goes along an axis, forwards or backwards, needs no table; and the source's origin then."""
    made: list[tuple[Dimension, Table | None]] = []
    origin = 0
    for one, table in axes:
        if table is not None and not isinstance(table, MadeTable) and (found := progression(table)):
            begin, step = found
            origin += begin * one.in_stride
            one, table = one._replace(in_stride=step * one.in_stride), None
        made.append((one, table))
    return made, origin


def _as_windows(table: Table | None, one: Dimension, sampled: torch.dtype) -> Table:
    if table is None:
        return identity_table(one.in_size, sampled)
    if isinstance(table, MadeTable) or table.has_weights:
        return table
    return table.weighted(work_of(sampled))


def _backwards(geometry: Geometry, name: str, table: Table, origins: list[int]) -> tuple[Geometry, Table, list[int]]:
    """An axis whose outputs are walked along from the last to the first."""
    one: Dimension = getattr(geometry, name)
    steps = (one.out_stride, *one.tensors)
    origins = [origin + (one.out_size - 1) * step for origin, step in zip(origins, steps, strict=True)]
    turned = one._replace(out_stride=-one.out_stride, tensors=tuple(-step for step in one.tensors))
    turned_geometry = geometry._replace(x=turned) if name == "x" else geometry._replace(y=turned)
    return turned_geometry, table.reversed(), origins


def _row_offsets(geometry: Geometry, table: TableOnHost | None, columns: int) -> bytes:
    """Where the source's row has every element of the target's: -n for border n. columns: 0, or of groups; how these
    lie is told behind."""
    x, pixel = geometry.x, geometry.pixel
    if not isinstance(table, HostTable) and packed_tables.can_be_made():
        row = (x.out_size, x.in_stride, pixel.out_size, pixel.in_stride, columns)
        return packed_tables.row_offsets(table, *row)
    offsets = _plain_row_offsets(geometry, None if table is None else unpacked(table))
    return tensor_bytes(_with_runs(offsets, columns) if columns else offsets)


def _plain_row_offsets(geometry: Geometry, table: HostTable | None) -> Tensor:
    """Where the source's row has every element of the target's: -n for border n."""
    x, pixel = geometry.x, geometry.pixel
    first = torch.arange(x.out_size) if table is None else table.first.long()
    offsets = first[:, None] * x.in_stride + torch.arange(pixel.out_size) * pixel.in_stride
    if table is not None and table.border is not None:
        offsets = torch.where(table.border[:, None] > 0, -table.border.long()[:, None], offsets)
    return offsets.reshape(-1).to(torch.int32)


def _with_runs(offsets: Tensor, columns: int) -> Tensor:
    """Behind the offsets, how each group of columns lies in the source: `Group` of moved.h."""
    groups = offsets.view(-1, columns)
    steps, inside = groups.diff(dim=1), (groups >= 0).all(1)
    forwards, backwards = ((steps == step).all(1) & inside for step in (1, -1))
    lowest = groups.amin(1)
    return torch.cat((offsets, torch.where(forwards | backwards, 4 * lowest + forwards + 2 * backwards, 0).int()))
