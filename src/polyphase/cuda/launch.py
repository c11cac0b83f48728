"""Calls of CUDA kernels: bound once to sizes and strides, launched with the addresses of tensors on their stream."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import torch
from torch import Tensor

from polyphase import settings, torch_private
from polyphase.calls import dispatched
from polyphase.calls.binding import NOT_BUILT
from polyphase.calls.bound import BoundCall, BoundGradients, Gradients
from polyphase.calls.devices import Described
from polyphase.cuda import build, driver, emit, launcher, loading, maps, programs, warps
from polyphase.cuda.calls import ALIGNMENT
from polyphase.cuda.gradients import WarpGradients
from polyphase.cuda.launcher import AnySizeCall, Bound, FreshCall, LaunchPlan
from polyphase.cuda.maps import PreparedMaps
from polyphase.cuda.memory import DeviceMemory, uploaded
from polyphase.cuda.warps import PreparedWarp
from polyphase.cuda.ways import Way
from polyphase.errors import NoKernelError
from polyphase.kernels import store
from polyphase.records import records
from polyphase.records.facts import Facts, Sizes
from polyphase.records.layout import dense_strides, strides_like
from polyphase.records.recipes import Recipe
from polyphase.records.records import CallRecord, GradientRecord
from polyphase.sampling.programs import Axes
from polyphase.sampling.warps import Warp

#: What chooses the way of a call; None for what the wing chooses.
Choose: TypeAlias = "Callable[..., Way] | None"


def architecture(device: int | None = None) -> str:
    if forced := settings.forced_cuda_architecture():
        return forced
    major, minor = torch.cuda.get_device_capability(device)
    return f"sm_{major}{minor}"


def bind(record: CallRecord) -> BoundCall:
    if 0 in record.image.shape:
        raise NoKernelError("an image without pixels, of which only borders are seen; kernels read where borders are")
    return _bound_call(record, record.out, functools.partial(_launch_of, record))


def bind_like(record: CallRecord) -> Callable[[Facts, Facts, tuple[Recipe, Recipe]], BoundCall]:
    """Programs that differ in the numbers of their steps alone: an image, an output, and the recipes of rows and
    columns."""
    part, request = _program_and_request(record)
    axes = record.program.sampler
    assert isinstance(axes, Axes), "warps have no steps"
    form = records.RequestForm(request, len(record.image.shape), sum(len(one.steps) for one in axes.maps))

    def bound(image: Facts, out: Facts, steps: tuple[Recipe, Recipe]) -> BoundCall:
        request = form.filled(image, out, None, steps[0] + steps[1])
        return _bound_call(record, out, functools.partial(_bound_to, part, request))

    return bound


def _bound_call(record: CallRecord, out: Facts, make: Callable[[bool], Bound]) -> BoundCall:
    """A call like a record's, to an output. `make`: what launches it, where tensors are aligned or not."""
    device = record.image.device.index
    aligned, unaligned = (_Lazy(functools.partial(make, whether)) for whether in (True, False))
    dtype, shape, strides, _ = out
    operands, launch = record.operands, aligned.made()  # what cannot be built says so now
    sampler = record.program.sampler
    sampled = 1 if record.coordinates is None else 2  # inputs before the operands
    current_raw_stream, empty_strided_cuda = torch_private.current_raw_stream, torch_private.empty_strided_cuda

    def into(out: Tensor, *inputs: Tensor) -> None:
        given = (*inputs[:sampled], *operands.dense(inputs[sampled:])) if operands.copied else inputs
        target, source = out.data_ptr(), inputs[0].data_ptr()
        run, part = aligned.made() if not (target | source) % ALIGNMENT else unaligned.made()
        if run(current_raw_stream(device), target, source, *[one.data_ptr() for one in given[1:]]):
            keep_forever(launcher.tables(part))

    def fresh(*inputs: Tensor) -> Tensor:
        out = empty_strided_cuda(shape, strides, dtype)
        into(out, *inputs)
        return out

    def fresh_of_warp(image: Tensor, coordinates: Tensor) -> Tensor:
        source = image.data_ptr()
        if source % ALIGNMENT:
            return fresh(image, coordinates)
        out = empty_strided_cuda(shape, strides, dtype)
        launch.run(current_raw_stream(device), out.data_ptr(), source, coordinates.data_ptr())
        return out

    made: Callable[..., Tensor] = fresh
    direct: object = None
    if not operands.vectors and not operands.tensors:  # the shortest way: most calls are such
        if sampled == 2:  # but for a fill, which is to be kept while a graph is captured
            made = fresh if isinstance(sampler, Warp) and sampler.fill else fresh_of_warp
        else:
            parts = (launch.part, empty_strided_cuda, (shape, strides, dtype), current_raw_stream, device)
            made = launcher.fresh(FreshCall(*parts, fresh))
        direct = None if made is fresh else launch.part

    made = made if torch.cuda.device_count() == 1 else OnDevice(device, made)
    return BoundCall(out, made, into, direct=direct)


class _Lazy:
    """Made when first asked for, once."""

    def __init__(self, make: Callable[[], Bound]) -> None:
        self._make, self._lock = make, threading.Lock()
        self._made: Bound | None = None

    def made(self) -> Bound:
        if self._made is None:
            with self._lock:
                if self._made is None:
                    self._made = self._make()
        return self._made


def prepared(
    record: CallRecord, aligned: bool, architecture: str, choose: Choose = None
) -> PreparedMaps | PreparedWarp:
    """A call, without its device."""
    if record.coordinates is None:
        arranged = maps.Arranged(record, aligned, aligned, architecture)
        return arranged.by(choose(arranged) if choose else arranged.own_way())
    return warps.prepared(record, aligned, architecture, choose or warps.choose)


def _launch_of(record: CallRecord, aligned: bool, choose: Choose = None) -> Bound:
    device = record.image.device.index
    if record.coordinates is not None or choose is not None:
        return launch_of(device, prepared(record, aligned, architecture(device), choose))
    return _bound_to(*_program_and_request(record), aligned)


def _bound_to(part: object, request: bytes, aligned: bool) -> Bound:
    try:
        return launcher.bind_request(part, request, aligned)
    except NotImplementedError as error:
        raise NoKernelError(str(error)) from None


def _program_and_request(record: CallRecord) -> tuple[object, bytes]:
    device = record.image.device.index
    own = architecture(device)
    return programs.part_of(record.program, device, own), maps.request_of(record, own)


def launch_of(device: int, call: PreparedMaps | PreparedWarp) -> Bound:
    with torch.cuda.device(device):
        return launcher.bind(*_planned(device, call))


@dataclass(frozen=True)
class OnDevice:
    """A call on a device, whichever is the current one."""

    device: int
    call: Callable[..., Tensor]

    def __call__(self, *inputs: Tensor) -> Tensor:
        with torch.cuda.device(self.device):
            return self.call(*inputs)


def bind_any_size(
    record: CallRecord, rules: records.AnySize, otherwise: Callable[..., Tensor]
) -> Callable[..., Tensor]:
    """Binds axis maps to images of any size."""
    if record.coordinates is not None:
        raise NoKernelError("a warp, which is bound to its size")
    part, request = _program_and_request(record)
    device, dtype = record.image.device.index, record.out.dtype
    made_by = (torch_private.empty_strided_cuda, dtype, strides_like, torch_private.current_raw_stream, device)
    call = launcher.any_size(request, rules.packed(), AnySizeCall(part, NOT_BUILT, *made_by, otherwise))
    return call if torch.cuda.device_count() == 1 else OnDevice(device, call)


def bound_of(call: Callable[..., Tensor], sizes: Sizes, image: Tensor) -> dispatched.DirectCall | None:
    """Tells of what `bind_any_size` made what it calls for an image of this size, and the sizes that it is given."""
    found = launcher.bound_of(call.call if isinstance(call, OnDevice) else call, *sizes, image)
    if found is None:
        return None
    bound, (shape, strides, _) = found
    return dispatched.DirectCall(bound, shape, strides, 1)


def _planned(device: int, call: PreparedMaps | PreparedWarp) -> tuple[LaunchPlan, bytes, list[object]]:
    """How a call is launched, its bytes, and what keeps its tables."""
    data, kept = call.packed(functools.partial(uploaded, device))
    function = loading.function_of(loading.Name(call.plan, call.way, device))
    cut, shape = call.cut, call.shape
    places = shape.places()
    vectors_at = places["coordinates" if shape.coordinates else "vectors"]
    operands = (shape.coordinates + shape.vectors, shape.tensors, vectors_at, places["tensors"])
    plan = LaunchPlan(device, function, cut.blocks, call.way.threads, cut.shared_bytes, *operands)
    return plan, data, kept


def keep_forever(tables: Sequence[object]) -> None:
    for memory in tables:
        if memory is not None:
            assert isinstance(memory, DeviceMemory), "tables are on the device"
            memory.keep_forever()


def described(record: CallRecord) -> Described:
    device = record.image.device.index or 0
    call = prepared(record, True, architecture(device))
    source = store.kept_source(emit.kernel_source(call.plan, call.way), "cu")
    threads, shared = call.way.threads, call.cut.shared_bytes
    function = loading.function_of(loading.Name(call.plan, call.way, device))
    with torch.cuda.device(device):
        needs = driver.resources(device, function, threads, shared)
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
    _forget_kernels()
    loading.build_from(text)
    try:
        yield
    finally:
        loading.build_from(None)
        _forget_kernels()


def _forget_kernels() -> None:
    loading.forget()
    programs.forget()


def forget() -> None:
    """Forgets programs; tables on a device go with the calls that read them."""
    programs.forget()


def stats() -> dict[str, int]:
    """Counts what `polyphase.stats()` tells, on this device."""
    counted = launcher.counted()
    return {
        "kernels_built": build.built["kernel"],
        "kernels_loaded": loading.count(),
        "builds_waited": build.built["waited"],
        "kernels_launched": counted.launches,
        "makers_launched": counted.makers,
        "tables_made": maps.counts["made"] + counted.tables,
        "tables_cached": 0,
    }


# ---- gradients of warps


def bind_gradients(record: GradientRecord) -> BoundGradients:
    device = record.image.device.index
    kinds = WarpGradients(record, architecture(device))
    launches: dict[int, Bound] = {}

    def execute(call: PreparedWarp, tensors: list[Tensor | None]) -> None:
        launch = launches.get(id(call))
        if launch is None:
            launch = launches[id(call)] = launch_of(device, call)
        addresses = [0 if one is None else one.data_ptr() for one in tensors]
        launch.run(torch_private.current_raw_stream(device), *addresses)

    def new(shape: Sizes, dtype: torch.dtype) -> Tensor:
        return torch_private.empty_strided_cuda(shape, dense_strides(shape, False), dtype)

    def run(gradient: Tensor, image: Tensor, coordinates: Tensor, *fields: Tensor) -> Gradients:
        with torch.cuda.device(device):
            deterministic = torch.are_deterministic_algorithms_enabled()
            return kinds.run(execute, new, deterministic, gradient, image, coordinates, *fields)

    for call in kinds.kernels(deterministic=False):
        launches[id(call)] = launch_of(device, call)  # what cannot be built says so now
    return run
