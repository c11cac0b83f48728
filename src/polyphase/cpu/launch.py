"""Calls of CPU kernels: bound by the launcher once, and launched with the addresses of tensors."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

import torch
from torch import Tensor

from polyphase.cpu import isa, libraries
from polyphase.errors import TooManyDimensionsError
from polyphase.kernels import records
from polyphase.kernels.binding import BoundCall, BoundGradients, Gradients
from polyphase.kernels.facts import Facts
from polyphase.kernels.layout import dense_strides
from polyphase.kernels.operands import Operands
from polyphase.kernels.plans import WarpPlan, plan_maps, plan_warp, plan_warp_gradients
from polyphase.kernels.records import CallRecord, GradientRecord
from polyphase.sampling.programs import Axes, Program
from polyphase.sampling.warps import Warp
from polyphase.torch_private import empty_strided_cpu as empty_strided

Launch: TypeAlias = Callable[..., int]

#: An image of fewer elements is warped by one thread, and by a grid as one row: of short rows, most tiles are empty.
FEW_WARPED = 2 * 16384


def bind(record: CallRecord) -> BoundCall:
    if record.coordinates is None:
        packed = records.pack_maps(record, maps_part(record.program, isa.chosen()))
    else:
        packed = _packed_warp(record, record.coordinates)
    try:
        handle = libraries.launcher().bind(packed)
    except NotImplementedError as error:
        raise TooManyDimensionsError(str(error)) from None
    launch = libraries.launcher().launch
    if record.operands.vectors or record.operands.tensors:
        return _of_operands(launch, handle, record.out, 1 if record.coordinates is None else 2, record.operands)
    return (_of_image if record.coordinates is None else _of_warped_image)(launch, handle, record.out)


@functools.lru_cache(maxsize=256)
def maps_part(program: Program, architecture: str) -> records.MapsPart:
    axes = program.sampler
    assert isinstance(axes, Axes), "warps have coordinates"
    plan = plan_maps(program, architecture)
    moves = any(one.steps and not one.may_sum(axes.transposed) for one in axes.maps)
    return records.maps_part(program, plan.work, **libraries.addresses(plan, moves)._asdict())


def _packed_warp(record: CallRecord, coordinates: Facts) -> bytes:
    axes = record.program.axes(len(record.image.shape))
    plan = plan_warp(record.program, coordinates.dtype, axes, isa.chosen())
    return records.pack_warp(_as_one_row(record, coordinates), kernel=libraries.addresses(plan).kernel)


def _as_one_row(record: CallRecord, grid: Facts) -> CallRecord:
    """A small image that is warped by a grid, as one row where the grid's pixels and the output's lie in one: a few
    whole tiles instead of many that are mostly empty."""
    sampler, out, operands = record.program.sampler, record.out, record.operands
    assert isinstance(sampler, Warp), "maps have no coordinates"
    if sampler.source != "grid" or out.elements >= FEW_WARPED or operands.vectors or operands.tensors:
        return record
    batch, *spatial, component = grid.strides
    steps = [n * stride for n, stride in zip(out.shape[3:], spatial[1:], strict=True)]
    if spatial[:-1] != steps or out.strides != dense_strides(out.shape, False):
        return record
    ones, none = (1,) * len(steps), (0,) * len(steps)
    pixels = out.elements // (out.shape[0] * out.shape[1])
    return replace(
        record,
        out=out._replace(shape=(*out.shape[:2], *ones, pixels), strides=(*out.strides[:2], *none, 1)),
        coordinates=grid._replace(
            shape=(grid.shape[0], *ones, pixels, len(spatial)), strides=(batch, *none, spatial[-1], component)
        ),
    )


# The functions below are as short as they can be: a small image takes no longer than a call.


def _of_image(launch: Launch, handle: object, out: Facts) -> BoundCall:
    dtype, shape, strides, _ = out

    def fresh(image: Tensor) -> Tensor:
        out = empty_strided(shape, strides, dtype)
        launch(handle, out.data_ptr(), image.data_ptr())
        return out

    def into(out: Tensor, image: Tensor) -> None:
        launch(handle, out.data_ptr(), image.data_ptr())

    return BoundCall(out, fresh, into)


def _of_warped_image(launch: Launch, handle: object, out: Facts) -> BoundCall:
    dtype, shape, strides, _ = out

    def fresh(image: Tensor, coordinates: Tensor) -> Tensor:
        out = empty_strided(shape, strides, dtype)
        launch(handle, out.data_ptr(), image.data_ptr(), coordinates.data_ptr())
        return out

    def into(out: Tensor, image: Tensor, coordinates: Tensor) -> None:
        launch(handle, out.data_ptr(), image.data_ptr(), coordinates.data_ptr())

    return BoundCall(out, fresh, into)


def _of_operands(launch: Launch, handle: object, out: Facts, sampled: int, operands: Operands) -> BoundCall:
    """`sampled`: how many inputs come before the operands."""
    dtype, shape, strides, _ = out

    def fresh(*inputs: Tensor) -> Tensor:
        out = empty_strided(shape, strides, dtype)
        into(out, *inputs)
        return out

    def into(out: Tensor, *inputs: Tensor) -> None:
        tensors = (*inputs[:sampled], *operands.dense(inputs[sampled:]))
        launch(handle, out.data_ptr(), *[one.data_ptr() for one in tensors])

    return BoundCall(out, fresh, into)


# ---- gradients of warps


def bind_gradients(record: GradientRecord) -> BoundGradients:
    image, sampler = record.image, record.sampler
    plan = plan_warp_gradients(image.dtype, record.coordinates.dtype, sampler.mode, len(image.shape) - 2, isa.chosen())
    strides = torch.empty_like(torch.empty_strided(image.shape, image.strides)).stride()
    launch = None if 0 in record.gradient.shape else _gradient_launch(record, plan, strides)

    def run(gradient: Tensor, image: Tensor, coordinates: Tensor) -> Gradients:
        of_image = of_coordinates = None
        if record.needed[0]:
            of_image = torch.empty_strided(image.shape, strides, dtype=plan.work).zero_()
        if record.needed[1]:
            of_coordinates = _empty_gradient(record, plan)
        if launch is not None:
            launch(gradient, image, coordinates, of_image, of_coordinates)
        elif of_coordinates is not None:
            of_coordinates.zero_()
        if of_coordinates is not None:
            if sampler.source == "affine":
                of_coordinates = of_coordinates.sum(1).view(coordinates.shape)
            of_coordinates = of_coordinates.to(coordinates.dtype)
        return None if of_image is None else of_image.to(image.dtype), of_coordinates

    return run


def _gradient_launch(record: GradientRecord, plan: WarpPlan, strides: tuple[int, ...]) -> Callable[..., None]:
    launcher = libraries.launcher()
    handle = launcher.bind(records.pack_gradients(record, strides, kernel=libraries.addresses(plan).kernel))

    def launch(gradient: Tensor, image: Tensor, coordinates: Tensor, *found: Tensor | None) -> None:
        addresses = [0 if one is None else one.data_ptr() for one in (gradient, image, coordinates, *found)]
        launcher.launch(handle, *addresses)

    return launch


def _empty_gradient(record: GradientRecord, plan: WarpPlan) -> Tensor:
    """Of a grid; of matrices (batch, rows of an image, elements), to be summed over the rows."""
    coordinates = record.coordinates
    if record.sampler.source == "affine":
        rows = 1
        for n in record.gradient.shape[2:-1]:
            rows *= n
        result = torch.empty((coordinates.shape[0], rows, plan.axes * (plan.axes + 1)), dtype=torch.float64)
    else:
        result = torch.empty(coordinates.shape, dtype=plan.positions)
    return result.zero_() if record.sampler.mode == "nearest" else result
