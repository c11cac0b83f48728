"""Calls of CPU kernels: bound by the launcher once, and launched with the addresses of tensors."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from polyphase.calls import dispatched
from polyphase.calls.binding import bind_record
from polyphase.calls.bound import BoundCall, BoundGradients, Gradients, Kept
from polyphase.calls.devices import BindLike, Described, SizedGiven
from polyphase.calls.shares import Shares, are_shares
from polyphase.cpu import emit, isa, libraries
from polyphase.errors import BuildFailedError, CompilerMissingError, NoKernelError
from polyphase.kernels import store
from polyphase.kernels.plans import WarpPlan, plan_gradients, plan_maps, plan_of, plan_warp
from polyphase.records import records
from polyphase.records.facts import Facts, Sizes
from polyphase.records.layout import dense_strides, strides_like
from polyphase.records.patchwork import Patchwork
from polyphase.records.recipes import Recipe
from polyphase.records.records import CallRecord, GradientRecord
from polyphase.sampling.axis_maps import AxisMap
from polyphase.sampling.programs import Axes, Program
from polyphase.sampling.warps import Warp
from polyphase.torch_private import empty_strided_cpu as empty_strided


def bind(record: CallRecord) -> BoundCall:
    request, operands = _request(record), record.operands
    launcher = libraries.launcher()
    try:
        handle = launcher.bind(request)
    except NotImplementedError as error:
        raise NoKernelError(str(error)) from None
    if not operands.copied:
        return _bound(handle, record.written)
    out, place = record.written, _place(record.written)
    sampled = 1 if record.coordinates is None else 2  # inputs before the operands

    def into(out: Tensor, *inputs: Tensor) -> None:
        launcher.launch(handle, out, *inputs[:sampled], *operands.dense(inputs[sampled:]))

    def fresh_of_copies(*inputs: Tensor) -> Tensor:
        into(out := empty_strided(*place), *inputs)
        return out

    return BoundCall(out, fresh_of_copies, into)


def _bound(handle: object, out: Facts) -> BoundCall:
    launcher = libraries.launcher()
    fresh = launcher.fresh(handle, empty_strided, _place(out))
    return BoundCall(out, fresh, functools.partial(launcher.launch, handle), handle=handle, direct=handle)


def _place(out: Facts) -> tuple[Sizes, Sizes, torch.dtype]:
    return out.shape, out.strides, out.dtype


class Sized:
    """A call of any size, as `devices.Sized` has it."""

    def __init__(self, *parts: Any) -> None:
        functions = libraries.launcher().sized(*parts)
        self.call, self.many, self.follow, self.learn, self._teach = functions

    def teach(self, program: int, record: CallRecord, drawn: bytes, given: SizedGiven) -> bool:
        dtype, request = record.out.dtype, _request(record)
        make = given.make or empty_strided
        return bool(self._teach(program, request, drawn, given.vectors, dtype, make, dtype.itemsize, given.becomes))


def bind_like(record: CallRecord) -> BindLike:
    steps = (
        sum(len(one.steps) for one in record.program.sampler.maps) if isinstance(record.program.sampler, Axes) else 0
    )
    form = records.RequestForm(_request(record), len(record.image.shape), steps)

    def bound(
        image: Facts, out: Facts, patchwork: Patchwork | None, steps: tuple[Recipe, Recipe], batched: bool
    ) -> BoundCall:
        request = form.filled(image, out, patchwork, steps[0] + steps[1])
        try:
            return _bound(libraries.launcher().bind(request), out if patchwork is None else patchwork.whole)
        except NotImplementedError:  # of this size there are too many dimensions
            maps = Axes(tuple(AxisMap(one.steps()) for one in steps))
            program = replace(record.program, sampler=maps)
            return bind_record(record._replace(program=program, image=image, out=out, patchwork=patchwork))

    return bound


def bind_any_size(
    record: CallRecord, rules: records.AnySize, otherwise: Callable[..., Tensor]
) -> Callable[..., Tensor]:
    request = _request(record)
    made_by = (empty_strided, record.out.dtype, strides_like)
    return libraries.launcher().any_size(request, rules.packed(), *made_by, otherwise)


def bound_of(call: Callable[..., Tensor], sizes: Sizes, *tensors: Tensor) -> dispatched.DirectCall | None:
    """Gives what a call that `bind_any_size` made calls for tensors of these sizes."""
    found = libraries.launcher().bound_of(call, *sizes, *tensors)
    if found is None:
        return None
    bound, (shape, strides, _) = found
    return dispatched.DirectCall(bound, shape, strides, len(tensors))


def drawer(table: bytes, exp: int, rounding: int) -> Callable[..., tuple[float, ...] | None]:
    return libraries.launcher().drawer(table, exp, rounding)


def again() -> Callable[..., Callable[..., Any]] | None:
    try:
        return libraries.launcher().again
    except (CompilerMissingError, BuildFailedError):
        return None


def warp_picture(warp: bytes, source: object, target: object) -> bool:
    """False where vectors of doubles are so short that Pillow is quicker."""
    if isa.chosen() == "portable":
        return False
    libraries.launcher().warp_picture(warp, source, target)
    return True


@functools.cache
def dispatched_kernels() -> dispatched.Kernels | None:
    return dispatched.usable(libraries.launcher())


def _request(record: CallRecord) -> bytes:
    coordinates = record.coordinates
    if coordinates is None:
        return records.pack(record, _maps_part(record.program))
    return records.pack(record, _warp_part(record.program, coordinates.dtype, len(record.image.shape)))


def launch_all(*calls: tuple[object, ...]) -> None:
    libraries.launcher().launch_all(*calls)


def _instruction_set(program: Program) -> str:
    """Chooses the instruction set for a program of axis maps."""
    return isa.chosen_for_moves() if program.moves_only else isa.chosen()


_parts: Kept[tuple[object, ...], records.MapsPart] = Kept()  # borders may have any value


@functools.lru_cache(maxsize=256)  # images of many sizes are resized to one
def _maps_part(program: Program) -> bytes:
    axes = program.sampler
    assert isinstance(axes, Axes), "warps have coordinates"
    kind = records.kind_of(program, axes)
    part = _parts.get(kind)
    if part is None:
        plan = plan_maps(program, _instruction_set(program))
        moves = any(one.steps and not one.may_sum(axes.transposed) for one in axes.maps)
        part = records.maps_part(program, axes, plan.work, **libraries.addresses(plan, moves)._asdict())
        _parts[kind] = part
    return part.of(axes)


@functools.lru_cache(maxsize=256)
def _warp_part(program: Program, coordinates: torch.dtype, rank: int) -> bytes:
    assert isinstance(program.sampler, Warp), "maps have no coordinates"
    plan = plan_warp(program, coordinates, program.axes(rank), isa.chosen())
    fill = records.fill_of(program.sampler, program.sampled, program.source if program.moves_only else plan.work)
    kernel, element_bytes = libraries.addresses(plan).kernel, program.target.itemsize
    return records.warp_part(program.sampler, kernel=kernel, element_bytes=element_bytes, fill=fill)


def forget() -> None:
    """Forgets kernels, so that they are asked for anew."""
    _parts.clear()
    _maps_part.cache_clear()
    _warp_part.cache_clear()


def described(record: CallRecord) -> Described:
    plan = plan_of(record, isa.chosen() if record.coordinates else _instruction_set(record.program))
    return Described(plan, store.kept_source(emit.kernel_source(plan), "cpp"), "vectorised")


@contextmanager
def built_from(source: Path) -> Iterator[None]:
    with libraries.kernel_of_all_plans(source.read_text(encoding="utf-8")):
        forget()
        yield
    forget()


# ---- gradients of warps


def bind_gradients(record: GradientRecord) -> BoundGradients:
    image = record.image
    plan = plan_gradients(record, isa.chosen())
    rows = math.prod(record.gradient.shape[2:-1])
    shares = Shares.of(record, rows, plan.positions) if are_shares(record) else None
    make = _gradients_made(record, plan, shares)
    if shares is None and (plan.work, plan.positions) == (image.dtype, record.coordinates.dtype):
        return make

    def run(gradient: Tensor, image: Tensor, coordinates: Tensor, *fields: Tensor) -> Gradients:
        of_image, of_coordinates = make(gradient, image, coordinates, *fields)
        found = None if of_image is None else of_image.to(image.dtype)
        if of_coordinates is None:
            return found, *[None for _ in (coordinates, *fields)]
        if shares is None:
            return found, of_coordinates.to(coordinates.dtype)
        return found, *shares.added_up(of_coordinates, coordinates, fields)

    return run


def _gradients_made(
    record: GradientRecord, plan: WarpPlan, shares: Shares | None
) -> Callable[..., tuple[Tensor | None, Tensor | None]]:
    """What makes gradients as kernels leave them: that of the image, and of a grid or what is added up to that of other
    coordinates."""
    launcher, image, needed = libraries.launcher(), record.image, record.needed
    strides = dense_strides(image.shape, False)
    shape, dtype = (record.coordinates.shape, plan.positions) if shares is None else ((shares.doubles,), torch.float64)
    of_image = (tuple(image.shape), strides, plan.work) if needed[0] else None
    of_coordinates = (tuple(shape), dense_strides(shape, False), dtype) if needed[1] else None
    bound, moves = None, record.sampler.mode == "nearest"  # what lies nearest does so for coordinates nearby, too
    if 0 not in record.gradient.shape:
        part = records.warp_part(record.sampler, records.WARP_GRADIENTS, kernel=libraries.addresses(plan).kernel)
        bound = launcher.bind(records.pack_gradients(record, strides, part))
    zeros = math.prod(shape) * dtype.itemsize if needed[1] and (moves or bound is None) else 0
    added = image.elements * plan.work.itemsize if needed[0] else 0
    return launcher.gradients(bound, empty_strided, of_image, added, of_coordinates, zeros)
