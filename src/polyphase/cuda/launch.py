"""Calls of CUDA kernels: bound once to sizes and strides, launched with the addresses of tensors on their stream."""

from __future__ import annotations

import functools
import itertools
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple, TypeAlias
from unittest import mock

import torch
from torch import Tensor

from polyphase import settings, torch_private
from polyphase.cuda import build, driver, emit, launcher, ways
from polyphase.cuda.calls import AxisFields, CallShape, TensorFields
from polyphase.cuda.geometry import Dimension, Geometry, arrange, wider
from polyphase.cuda.launcher import FreshCall, LaunchPlan
from polyphase.cuda.memory import DeviceMemory
from polyphase.cuda.tables import (
    HostTable,
    host_table,
    identity_table,
    in_fours,
    in_step,
    progression,
    shared,
    uploaded,
)
from polyphase.cuda.ways import Case, Cut, Way
from polyphase.errors import NoKernelError
from polyphase.kernels import records, store
from polyphase.kernels.binding import BoundCall
from polyphase.kernels.devices import Described
from polyphase.kernels.plans import MapsPlan, plan_maps, purpose
from polyphase.kernels.records import CallRecord
from polyphase.sampling.programs import Axes

#: Addresses that torch gives a tensor are multiples of it; those of a view may not be.
ALIGNMENT = 16

#: Tables made, of this process.
counts: Counter[str] = Counter()

#: The kernels in use.
loaded: set[tuple[MapsPlan, Way]] = set()

#: Puts tensors where kernels can read them: their addresses, 0 for None, and what keeps them there.
Upload: TypeAlias = "Callable[..., tuple[list[int], object]]"


class Launch(NamedTuple):
    """run: with a stream and addresses; whether a graph is being captured. It will read the tables whenever it is
    replayed, so they are then to be kept. part: `launcher.Bound`'s."""

    run: launcher.Run
    keep: Callable[[], None]
    part: object


def architecture(device: int | None = None) -> str:
    if forced := settings.forced_cuda_architecture():
        return forced
    major, minor = torch.cuda.get_device_capability(device)
    return f"sm_{major}{minor}"


def bind(record: CallRecord) -> BoundCall:
    if 0 in record.image.shape:
        raise NoKernelError("an image without pixels, of which only borders are seen; kernels read where borders are")
    device = record.image.device.index
    aligned, unaligned = (_Lazy(functools.partial(_launch_of, record, whether)) for whether in (True, False))
    dtype, shape, strides, _ = record.out
    operands, launch = record.operands, aligned.made()  # what cannot be built says so now
    current_raw_stream, empty_strided_cuda = torch_private.current_raw_stream, torch_private.empty_strided_cuda

    def into(out: Tensor, *inputs: Tensor) -> None:
        given = (inputs[0], *operands.dense(inputs[1:])) if operands.copied else inputs
        target, source = out.data_ptr(), inputs[0].data_ptr()
        run, keep, _ = aligned.made() if not (target | source) % ALIGNMENT else unaligned.made()
        if run(current_raw_stream(device), target, source, *[one.data_ptr() for one in given[1:]]):
            keep()

    def fresh(*inputs: Tensor) -> Tensor:
        out = empty_strided_cuda(shape, strides, dtype)
        into(out, *inputs)
        return out

    made: Callable[..., Tensor] = fresh
    if not operands.vectors and not operands.tensors:  # the shortest way: most calls are such
        parts = (launch.part, empty_strided_cuda, (shape, strides, dtype), current_raw_stream, device)
        made = launcher.fresh(FreshCall(*parts, launch.keep, fresh))

    def made_there(*inputs: Tensor) -> Tensor:
        with torch.cuda.device(device):
            return made(*inputs)

    return BoundCall(record.out, made if torch.cuda.device_count() == 1 else made_there, into)


class _Lazy:
    """Made when first asked for, once."""

    def __init__(self, make: Callable[[], Launch]) -> None:
        self._make, self._lock = make, threading.Lock()
        self._made: Launch | None = None

    def made(self) -> Launch:
        if self._made is None:
            with self._lock:
                if self._made is None:
                    self._made = self._make()
        return self._made


def _launch_of(record: CallRecord, aligned: bool, choose: Callable[[Case], Way] = ways.choose) -> Launch:
    device = record.image.device.index
    with torch.cuda.device(device), torch.device("cpu"):  # tables begin on the host, whatever the user's default is
        call = prepared(record, aligned, architecture(device), choose)
        fields, kept = call.fields(functools.partial(uploaded, device))
        function = _function(call.plan, call.way, device)
    cut, shape = call.cut, call.shape
    places = shape.places()
    operands = (shape.vectors, shape.tensors, places["vectors"], places["tensors"])
    plan = LaunchPlan(device, function, cut.blocks, call.way.threads, cut.shared_bytes, *operands)

    def keep() -> None:
        for memory in kept:
            assert isinstance(memory, DeviceMemory), "tables are on the device"
            memory.keep_forever()

    run, part = launcher.bind(plan, shape.packed(fields))
    return Launch(run, keep, part)


@functools.lru_cache(maxsize=1024)
def _function(plan: MapsPlan, way: Way, device: int) -> int:
    image = build.image(emit.kernel_source(plan, way), plan.architecture, f"{purpose(plan)}, {way.template}")
    loaded.add((plan, way))
    return driver.load(device, image, emit.KERNEL_SYMBOL, driver.most_shared_bytes(device))


def described(record: CallRecord) -> Described:
    device = record.image.device.index or 0
    with torch.device("cpu"):
        call = prepared(record, True, architecture(device))
    source = store.kept_source(emit.kernel_source(call.plan, call.way), "cu")
    threads, shared = call.way.threads, call.cut.shared_bytes
    with torch.cuda.device(device):
        needs = driver.resources(device, _function(call.plan, call.way, device), threads, shared)
    spilled = f" ({needs.spilled_bytes} bytes of them in memory)" if needs.spilled_bytes else ""
    blocks = "x".join(map(str, call.cut.blocks))
    resources = (
        f"{call.way.template}, {blocks} blocks of {threads} threads, {needs.registers} registers each{spilled}, "
        f"{needs.shared_bytes} bytes of shared memory, {needs.resident:.0%} of the threads of a multiprocessor at once"
    )
    return Described(call.plan, source, resources)


@contextmanager
def built_from(source: Path) -> Iterator[None]:
    text = source.read_text(encoding="utf-8")
    with mock.patch.object(emit, "kernel_source", return_value=text):
        _function.cache_clear()
        yield
    _function.cache_clear()


def forget() -> None:
    """Tables on the host; those on a device go with the calls that read them."""
    host_table.cache_clear()


def stats() -> dict[str, int]:
    """As `kernels.counts` has them, of this device."""
    return {
        "kernels_built": build.built["kernel"],
        "kernels_loaded": len(loaded),
        "kernels_launched": launcher.launched(),
        "tables_made": counts["made"],
        "tables_cached": host_table.cache_info().hits,
    }


# ---- a call, without its device


class Origins(NamedTuple):
    """Where the first element lies that is read, that is written and is read of each tensor, and of a row."""

    source: int
    others: tuple[int, ...]
    row: int


@dataclass(frozen=True, eq=False)
class PreparedCall:
    """All of a call but addresses: its tables are still on the host."""

    plan: MapsPlan
    way: Way
    cut: Cut
    geometry: Geometry
    x: HostTable | None
    y: HostTable | None
    z: HostTable | None
    outer: tuple[HostTable | None, ...]
    origins: Origins
    borders: records.Borders
    row_offsets: Tensor | None

    @property
    def shape(self) -> CallShape:
        return emit.call_shape(self.plan, self.way)

    def fields(self, upload: Upload) -> tuple[dict[str, int | list[int]], list[object]]:
        """With tables where kernels read them, and what keeps them there."""
        kept: list[object] = []

        def axis(one: Dimension, table: HostTable | None) -> list[int]:
            if table is None:
                return AxisFields(one.in_size, one.out_size, one.in_stride, one.out_stride).numbers()
            parts = (table.first, table.index, table.weight, table.border)
            (first, index, weight, border), memory = upload(*parts)
            kept.append(memory)
            counts["made"] += 1
            sizes = (one.in_size, one.out_size, one.in_stride, one.out_stride)
            return AxisFields(*sizes, first, index, weight, border, table.taps, table.precision).numbers()

        geometry, cut, borders = self.geometry, self.cut, self.borders
        values = torch.frombuffer(bytearray(borders.data), dtype=torch.uint8) if borders.data else None
        (borders_at, offsets_at), memory = upload(values, self.row_offsets)
        kept.append(memory)
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
        outer = [axis(one, table) for one, table in zip(geometry.outer, self.outer, strict=True)]
        return {
            "outer": [*itertools.chain(*outer)],
            "z": axis(geometry.z, self.z),
            "y": axis(geometry.y, self.y),
            "x": axis(geometry.x, self.x),
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
        }, kept


def prepared(
    record: CallRecord, aligned: bool, architecture: str, choose: Callable[[Case], Way] = ways.choose
) -> PreparedCall:
    axes = record.program.sampler
    assert isinstance(axes, Axes), "warps have calls of their own"
    plan = plan_maps(record.program, architecture)
    geometry, element_bytes = arrange(record), record.image.dtype.itemsize
    can_widen = aligned and not record.varies and not record.program.borders  # whose values are elements
    if plan.source is None and can_widen:
        geometry, element_bytes = wider(geometry, element_bytes, ALIGNMENT)
    sampled = record.program.sampled

    def table(one: Dimension) -> HostTable | None:
        if one.map is None:
            return None
        return host_table(one.map, one.out_size if axes.transposed else one.in_size, sampled, axes.transposed)

    others = [(one, table(one)) for one in (geometry.y, geometry.z, *geometry.outer)]
    source_origin = 0
    if not plan.weighted:
        others, source_origin = _by_strides(others)
    (y_dimension, y), (z_dimension, z), *outer = others
    geometry = replace(geometry, y=y_dimension, z=z_dimension, outer=tuple(one for one, _ in outer))
    x = table(geometry.x)
    case = Case(
        geometry,
        plan,
        x,
        y,
        z,
        any(one is not None and one.border is not None for one in (x, *[one for _, one in others])),
        element_bytes,
        element_bytes if plan.source is None else record.out.dtype.itemsize,
        ALIGNMENT if aligned else record.image.dtype.itemsize,
        ALIGNMENT if aligned else record.out.dtype.itemsize,
        record.varies,
    )
    way = replace(choose(case), outer=len(geometry.outer))
    cut = ways.cut(case, way)
    row_offsets, row_origin, origins = None, 0, [0, *[0] * len(record.operands.tensors)]
    if way.template == "Moved":
        columns, _, computed, by_runs, *_ = way.constants
        if computed:
            ((along, x),), row_origin = _by_strides([(geometry.x, x)])
            geometry = replace(geometry, x=along)
        else:
            row_offsets, x = _row_offsets(geometry, x), None
            row_offsets = _with_runs(row_offsets, int(columns)) if by_runs else row_offsets
    elif way.template != "General":
        x = _as_windows(x, geometry.x, sampled)
        y = _as_windows(y, geometry.y, sampled)
        if way.template == "Direct":
            y = shared(y, int(way.constants[4]))
        elif y.descends and not y.ascends:
            geometry, y, origins = _backwards(geometry, "y", y, origins)
        if x.descends and not x.ascends and way.template in ways.COLUMNS_ASCEND:
            geometry, x, origins = _backwards(geometry, "x", x, origins)
        if way.template in ways.IN_FOURS:
            x = in_fours(x)
        if way.template == "Ring" and way.constants[4] >= 0:
            found = in_step(x, int(way.constants[2]))
            assert found is not None, "what was chosen by"
            x = found.table
    borders = records.borders_of(record.program, record.program.source if record.program.moves_only else plan.work)
    tables = tuple(one for _, one in outer)
    begins = Origins(source_origin, tuple(origins), row_origin)
    return PreparedCall(plan, way, cut, geometry, x, y, z, tables, begins, borders, row_offsets)


def _by_strides(
    axes: list[tuple[Dimension, HostTable | None]],
) -> tuple[list[tuple[Dimension, HostTable | None]], int]:
    """What merely goes along an axis, forwards or backwards, needs no table; and the source's origin then."""
    made, origin = [], 0
    for one, table in axes:
        if table is not None and (found := progression(table)):
            begin, step = found
            origin += begin * one.in_stride
            one, table = replace(one, in_stride=step * one.in_stride), None
        made.append((one, table))
    return made, origin


def _as_windows(table: HostTable | None, one: Dimension, sampled: torch.dtype) -> HostTable:
    if table is None:
        return identity_table(one.in_size, sampled)
    if table.weight is not None:
        return table
    return replace(table, weight=identity_table(table.out_size, sampled).weight)


def _backwards(
    geometry: Geometry, name: str, table: HostTable, origins: list[int]
) -> tuple[Geometry, HostTable, list[int]]:
    """An axis whose outputs are walked along from the last to the first."""
    one: Dimension = getattr(geometry, name)
    steps = (one.out_stride, *one.tensors)
    origins = [origin + (one.out_size - 1) * step for origin, step in zip(origins, steps, strict=True)]
    turned = replace(one, out_stride=-one.out_stride, tensors=tuple(-step for step in one.tensors))
    turned_geometry = replace(geometry, x=turned) if name == "x" else replace(geometry, y=turned)
    return turned_geometry, table.reversed(), origins


def _row_offsets(geometry: Geometry, table: HostTable | None) -> Tensor:
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
