"""A warp, or its gradients, run on a CPU image by a kernel."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import torch
from torch import Tensor

from polyphase import settings
from polyphase.cpu import isa, kernels, operands, plain_torch
from polyphase.cpu.launch import empty_strided, facts, warn_once
from polyphase.cpu.layout import Sizes, dense_strides, strides_in_order
from polyphase.cpu.operands import Facts
from polyphase.cpu.plan import HALF, WarpPlan, plan_warp, plan_warp_gradients
from polyphase.cpu.warp_calls import pack, with_addresses
from polyphase.errors import BuildFailedError, CompilerMissingError, WrongInputError
from polyphase.sampling.programs import Program
from polyphase.sampling.warps import Warp

Needed: TypeAlias = tuple[bool, bool]
Gradients: TypeAlias = tuple[Tensor | None, Tensor | None]

AXES = {"nearest": (2, 3), "bilinear": (2, 3), "bicubic": (2,)}

#: Fewer are not worth waking a thread for.
ELEMENTS_PER_THREAD = 16384

_MOST_OFFSET = 2**31 - 1  # kernels count the elements of a plane in 32 bits


def warp(image: Tensor, coordinates: Tensor, sampler: Warp) -> Tensor:
    """`image` (N, C, spatial...) sampled at a grid (N, out..., axes), or where an affine matrix leads; contiguous."""
    return bound(facts(image), facts(coordinates), sampler)(image, coordinates)


def warp_gradients(gradient: Tensor, image: Tensor, coordinates: Tensor, sampler: Warp, needed: Needed) -> Gradients:
    """Of the image (in its strides, as far as they are dense) and of the coordinates; None where not needed."""
    run = bound_gradients(facts(gradient), facts(image), facts(coordinates), sampler, needed)
    return run(gradient, image, coordinates)


def run(
    program: Program,
    image: Tensor,
    coordinates: Tensor,
    *,
    channels: Mapping[int, Tensor] | None = None,
    tensors: Mapping[int, Tensor] | None = None,
) -> Tensor:
    """A whole program, arithmetic included, laid out in the program's order."""
    assert isinstance(program.sampler, Warp), "axis maps have kernels of their own"
    out_shape = _out_shape(image.shape, coordinates.shape, program.sampler)
    out_strides = strides_in_order(program.order, image.shape, image.stride(), out_shape)
    out = empty_strided(out_shape, out_strides, program.target)
    found = operands.ordered(plan_warp(program, coordinates.dtype, image.dim() - 2, isa.chosen()), channels, tensors)
    call = bind_program(program, facts(image), facts(coordinates), facts(out), [facts(one) for one in found])
    call(out, image, coordinates, *found)
    return out


def bind_program(
    program: Program, image: Facts, coordinates: Facts, out: Facts, given: Sequence[Facts]
) -> Callable[..., None]:
    """A program with all it needs but tensors of these facts: an output to write, an image, coordinates, operands."""
    sampler = program.sampler
    assert isinstance(sampler, Warp), "axis maps have kernels of their own"
    (dtype, shape, strides), (target, out_shape, out_strides) = image, out
    needed = _out_shape(shape, coordinates[1], sampler)
    if (dtype, target, tuple(out_shape)) != (program.source, program.target, needed):
        raise WrongInputError(
            f"an image of {dtype} warped to {target} of shape {tuple(out_shape)}; the program was made for "
            f"{program.source} to {program.target}, and leads to shape {needed}"
        )
    _check_dtypes(program.sampled, coordinates[0], sampler.mode)
    if is_too_far(shape, strides):
        raise WrongInputError(
            f"an image of shape {tuple(shape)} and strides {strides}; its planes must span fewer than "
            "2^31 elements: make it contiguous, or warp a part of it"
        )
    plan = plan_warp(program, coordinates[0], len(shape) - 2, isa.chosen())
    found = operands.describe(plan, out_shape, 1, given)
    if 0 in out_shape:
        return lambda *tensors: None
    kernel, launch, elements = kernels.address(plan), kernels.launcher().launch_packed, _elements(out_shape)
    call = pack(sampler, shape, strides, out_shape, out_strides, coordinates[2], operands=found)

    def run(out: Tensor, image: Tensor, coordinates: Tensor, *given: Tensor) -> None:
        packed = call
        if given:
            dense = found.dense(given)
            addresses = [one.data_ptr() for one in dense]
            packed = with_addresses(call, addresses[: len(found.vectors)], addresses[len(found.vectors) :])
        launch(kernel, packed, _threads(elements), image.data_ptr(), coordinates.data_ptr(), out.data_ptr())

    return run


@functools.lru_cache(maxsize=256)
def bound(image: Facts, coordinates: Facts, sampler: Warp) -> Callable[[Tensor, Tensor], Tensor]:
    """What `warp` does, for tensors of one dtype, shape and strides each."""
    try:
        return _bind(image, coordinates, sampler)
    except (CompilerMissingError, BuildFailedError) as error:
        warn_once(error)
        return functools.partial(plain_torch.warp, sampler=sampler)


def _bind(image: Facts, coordinates: Facts, sampler: Warp) -> Callable[[Tensor, Tensor], Tensor]:
    dtype, shape, strides = image
    out_shape = _out_shape(shape, coordinates[1], sampler)
    _check_dtypes(dtype, coordinates[0], sampler.mode)
    out_strides = dense_strides(out_shape, False)
    if 0 in out_shape:
        return lambda image, coordinates: empty_strided(out_shape, out_strides, dtype)
    if is_too_far(shape, strides):
        return functools.partial(plain_torch.warp, sampler=sampler)
    program = Program(dtype, Warp("grid", sampler.mode))  # a kernel takes any source, padding and alignment
    kernel = _address(plan_warp(program, coordinates[0], len(shape) - 2, isa.chosen()), settings.forced_isa())
    launch, elements = kernels.launcher().launch_packed, _elements(out_shape)
    few = elements < 2 * ELEMENTS_PER_THREAD
    if few and sampler.source == "grid":
        call = pack(sampler, shape, strides, *_as_one_row(out_shape, coordinates[2]))
    else:
        call = pack(sampler, shape, strides, out_shape, out_strides, coordinates[2])

    def run(image: Tensor, coordinates: Tensor) -> Tensor:
        out = empty_strided(out_shape, out_strides, dtype)
        threads = 1 if few else _threads(elements)
        launch(kernel, call, threads, image.data_ptr(), coordinates.data_ptr(), out.data_ptr())
        return out

    return run


@functools.lru_cache(maxsize=256)
def bound_gradients(
    gradient: Facts, image: Facts, coordinates: Facts, sampler: Warp, needed: Needed
) -> Callable[[Tensor, Tensor, Tensor], Gradients]:
    try:
        return _bind_gradients(gradient, image, coordinates, sampler, needed)
    except (CompilerMissingError, BuildFailedError) as error:
        warn_once(error)
        return functools.partial(plain_torch.warp_gradients, sampler=sampler, needed=needed)


def _bind_gradients(
    gradient: Facts, image: Facts, coordinates: Facts, sampler: Warp, needed: Needed
) -> Callable[[Tensor, Tensor, Tensor], Gradients]:
    dtype, shape, strides = image
    out_shape, axes = _out_shape(shape, coordinates[1], sampler), len(shape) - 2
    if gradient[:2] != (dtype, out_shape):
        raise WrongInputError(f"a gradient of {gradient[0]} {gradient[1]} for an output of {dtype} {out_shape}")
    _check_dtypes(dtype, coordinates[0], sampler.mode)
    if is_too_far(shape, strides) or _elements(shape[1:]) > _MOST_OFFSET:  # the image's gradient is dense
        return functools.partial(plain_torch.warp_gradients, sampler=sampler, needed=needed)
    image_strides = torch.empty_like(torch.empty_strided(shape, strides)).stride()
    plan = plan_warp_gradients(dtype, coordinates[0], sampler.mode, axes, isa.chosen())
    call = pack(sampler, shape, strides, out_shape, gradient[2], coordinates[2], gradient_strides=image_strides)
    rows = _elements((shape[0], *out_shape[2:-1]))
    nothing_to_sum, elements = 0 in out_shape, _elements(out_shape)
    kernel = 0 if nothing_to_sum else _address(plan, settings.forced_isa())

    def run(gradient: Tensor, image: Tensor, coordinates: Tensor) -> Gradients:
        of_image = of_coordinates = None
        if needed[0]:
            of_image = torch.empty_strided(shape, image_strides, dtype=plan.work).zero_()
        if needed[1]:
            of_coordinates = _empty_gradient(coordinates, sampler, plan, rows, nothing_to_sum)
        if not nothing_to_sum:
            found = [0 if one is None else one.data_ptr() for one in (of_image, of_coordinates)]
            buffers = (image.data_ptr(), coordinates.data_ptr(), gradient.data_ptr(), *found)
            kernels.launcher().launch_packed(kernel, call, _threads(elements), *buffers)
        if of_coordinates is not None:
            if sampler.source == "affine":
                of_coordinates = of_coordinates.sum(1).view(coordinates.shape)
            of_coordinates = of_coordinates.to(coordinates.dtype)
        return None if of_image is None else of_image.to(dtype), of_coordinates

    return run


def _empty_gradient(coordinates: Tensor, sampler: Warp, plan: WarpPlan, rows: int, all_zero: bool) -> Tensor:
    """Of a grid; of matrices (batch, rows of an image, elements), to be summed over the rows."""
    if sampler.source == "affine":
        batch = coordinates.shape[0]
        shape: tuple[int, ...] = (batch, rows // max(batch, 1), plan.axes * (plan.axes + 1))
        result = torch.empty(shape, dtype=torch.float64)
    else:
        result = torch.empty(coordinates.shape, dtype=plan.positions)
    return result.zero_() if all_zero or sampler.mode == "nearest" else result


def _out_shape(shape: Sizes, coordinates: Sizes, sampler: Warp) -> Sizes:
    """Also the check that keeps kernels inside their buffers."""
    batch, axes = (*shape, 0)[0], len(shape) - 2
    out: Sizes = sampler.size if sampler.source == "affine" else coordinates[1:-1]
    needed: Sizes = (batch, axes, axes + 1) if sampler.source == "affine" else (batch, *out, axes)
    empty = 0 in shape[2:] and 0 not in out
    if coordinates != needed or len(out) != axes or empty or axes not in AXES[sampler.mode]:
        raise WrongInputError(
            f"a {sampler.mode} warp of an image of shape {tuple(shape)} by a {sampler.source} of shape "
            f"{tuple(coordinates)} to size {tuple(out)}; a grid is (batch, out..., axes), a matrix (batch, axes, axes "
            "+ 1), for 2 or 3 axes (bicubic: 2) that are not empty"
        )
    return (*shape[:2], *map(int, out))


def _check_dtypes(sampled: torch.dtype, coordinates: torch.dtype, mode: str) -> None:
    """Positions are found in the dtype values are summed in, float32 for halves; bytes and moved values take any."""
    floats = (torch.float32, torch.float64)
    if sampled in HALF:
        allowed: tuple[torch.dtype, ...] = (sampled, torch.float32)
    elif sampled.is_floating_point:
        allowed = (sampled,)
    else:
        allowed = floats
    if coordinates not in allowed and not (mode == "nearest" and coordinates in floats):
        raise WrongInputError(
            f"a {mode} warp of {sampled} pixels by {coordinates} coordinates; they can be "
            f"{' or '.join(map(str, allowed))}: convert them"
        )


def _as_one_row(out_shape: Sizes, strides: Sizes) -> tuple[Sizes, Sizes, Sizes]:
    """Shape and strides of an output, and strides of its grid, as one row where the grid's pixels lie in one: a small
    image is then a few whole tiles instead of many that are mostly empty."""
    out_strides = dense_strides(out_shape, False)
    batch, *spatial, component = strides
    steps = [n * stride for n, stride in zip(out_shape[3:], spatial[1:], strict=True)]
    if spatial[:-1] != steps:
        return out_shape, out_strides, strides
    ones = (1,) * (len(spatial) - 1)
    pixels = _elements(out_shape[2:])
    return (
        (*out_shape[:2], *ones, pixels),
        (*out_strides[:2], *(0 for _ in ones), 1),
        (batch, *(0 for _ in ones), spatial[-1], component),
    )


def is_too_far(shape: Sizes, strides: Sizes) -> bool:
    return sum((n - 1) * stride for n, stride in zip(shape[2:], strides[2:], strict=True)) + shape[1] > _MOST_OFFSET


@functools.cache
def _address(plan: WarpPlan, forced_isa: str | None) -> int:
    return kernels.address(plan)


def _elements(shape: Sizes) -> int:
    return functools.reduce(int.__mul__, shape, 1)


def _threads(elements: int) -> int:
    return max(1, min(torch.get_num_threads(), elements // ELEMENTS_PER_THREAD))
