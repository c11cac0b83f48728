"""Axis maps, or a whole program, run on a CPU image by a kernel."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

import torch
from torch import Tensor

from polyphase import settings
from polyphase.cpu import isa, kernels, operands, plain_torch
from polyphase.cpu.layout import Sizes, keeps_strides, output_strides, strides_in_order
from polyphase.cpu.operands import Facts
from polyphase.cpu.plan import Plan, plan_move, plan_program, plan_sums
from polyphase.cpu.recipes import encode
from polyphase.errors import BuildFailedError, CompilerMissingError, NoKernelsWarning, WrongInputError
from polyphase.sampling.axis_maps import AxisMap
from polyphase.sampling.pointwise import scalar_tensor
from polyphase.sampling.programs import Axes, Border, Program
from polyphase.sampling.steps import Flip, Pad

Scalar: TypeAlias = "float | int | bool | complex"
Maps: TypeAlias = tuple[AxisMap, ...]
# The values of constant borders as bytes, as launcher.cpp's `read_borders` takes them.
Borders: TypeAlias = "tuple[()] | tuple[bytes, int, int, int, int]"

_CPU = torch.device("cpu")


def resample(image: Tensor, maps: Maps, *, transposed: bool = False, in_size: Sizes = (), border: Scalar = 0) -> Tensor:
    """The maps on the last dimensions, or their adjoint, which goes from the forward's output to its `in_size`."""
    return bound(image.dtype, image.shape, image.stride(), maps, transposed, in_size, border, repr(border))(image)


@functools.lru_cache(maxsize=128)  # each keeps its tables
def bound(
    dtype: torch.dtype,
    shape: Sizes,
    strides: Sizes,
    maps: Maps,
    transposed: bool = False,
    in_size: Sizes = (),
    border: Scalar = 0,
    border_text: str = "",
) -> Callable[[Tensor], Tensor]:
    """What `resample` does, for images of one dtype, shape and strides. `border_text` tells -0.0 from 0.0."""
    try:
        return _bind(dtype, shape, strides, maps, transposed, in_size, border)
    except (CompilerMissingError, BuildFailedError) as error:
        warn_once(error)
        return functools.partial(plain_torch.resample, maps=maps, transposed=transposed, in_size=in_size, border=border)


def _bind(
    dtype: torch.dtype, shape: Sizes, strides: Sizes, maps: Maps, transposed: bool, in_size: Sizes, border: Scalar
) -> Callable[[Tensor], Tensor]:
    """A kernel with all it needs but an image."""
    moved = [_adjoint_by_moving(one) for one in maps] if transposed else [None]
    if None not in moved:
        return _bind(dtype, shape, strides, tuple(filter(None, moved)), False, (), 0)
    leading = len(shape) - len(maps)
    before, after = (in_size, shape[leading:]) if transposed else (shape[leading:], None)
    mapped = tuple(one.output_size(n) for one, n in zip(maps, before, strict=True))  # raises where a step does not fit
    if after is not None and mapped != tuple(after):
        raise WrongInputError(f"maps from {in_size} lead to {mapped}, but their adjoint is given {tuple(after)}")
    out_shape = (*shape[:leading], *(in_size if transposed else mapped))
    if max(_borders(maps), default=0) > 1:
        raise WrongInputError("maps with more than one constant border; there is one value: make them a program")
    out_strides = output_strides(shape, strides, out_shape, keeps_strides(maps))
    if 0 in out_shape:
        return lambda image: empty_strided(out_shape, out_strides, dtype)
    weighted = any(one.may_sum(transposed) for one in maps)
    kernel = _kernel(dtype, weighted, _moves(maps, transposed), settings.forced_isa())
    launch, threads = kernels.launcher().launch, torch.get_num_threads
    handle = kernels.launcher().bind(
        *kernel, int(transposed), 0 if weighted else dtype.itemsize,
        tuple(shape), strides, out_shape, out_strides, (b"",) * leading + tuple(map(encode, maps)),
        _border(dtype, border, weighted) if _borders(maps) else (), (),
    )  # fmt: skip

    def call(image: Tensor) -> Tensor:
        out = empty_strided(out_shape, out_strides, dtype)
        launch(handle, image.data_ptr(), out.data_ptr(), threads())
        return out

    return call


@functools.cache
def _kernel(dtype: torch.dtype, weighted: bool, moves: bool, forced_isa: str | None) -> tuple[int, int, int]:
    return _addresses((plan_sums if weighted else plan_move)(dtype, isa.chosen()), moves)


def _addresses(plan: Plan, moves: bool) -> tuple[int, int, int]:
    return kernels.address(plan, moves), *kernels.samplers(plan, moves)


def _moves(maps: Maps, transposed: bool) -> bool:
    """Whether along some axis pixels are only moved."""
    return any(one.steps and not one.may_sum(transposed) for one in maps)


def run(
    program: Program,
    image: Tensor,
    *,
    channels: Mapping[int, Tensor] | None = None,
    tensors: Mapping[int, Tensor] | None = None,
) -> Tensor:
    """A whole program, arithmetic included, for an image (..., channels, spatial...); laid out in its order."""
    assert isinstance(program.sampler, Axes), "warps have kernels of their own"
    axes = program.sampler
    leading = image.dim() - len(axes.maps)
    if leading < 0:
        raise WrongInputError(f"an image of shape {tuple(image.shape)} for {len(axes.maps)} maps")
    mapped = axes.adjoint_of or [one.output_size(n) for one, n in zip(axes.maps, image.shape[leading:], strict=True)]
    out_shape = (*image.shape[:leading], *mapped)
    out_strides = strides_in_order(program.order, image.shape, image.stride(), out_shape)
    out = empty_strided(out_shape, out_strides, program.target)
    found = operands.ordered(plan_program(program, isa.chosen()), channels, tensors)
    bind_program(program, facts(image), facts(out), [facts(one) for one in found])(out, image, *found)
    return out


def facts(tensor: Tensor) -> Facts:
    return tensor.dtype, tensor.shape, tensor.stride()


def bind_program(program: Program, image: Facts, out: Facts, given: Sequence[Facts]) -> Callable[..., None]:
    """A program with all it needs but tensors of these facts: an output to write, an image, and operands."""
    program = _by_moving(program)
    axes = program.sampler
    assert isinstance(axes, Axes), "warps have kernels of their own"
    (dtype, shape, strides), (target, out_shape, out_strides) = image, out
    leading = len(shape) - len(axes.maps)
    if dtype != program.source or target != program.target or leading < 0:
        raise WrongInputError(
            f"the image is {dtype} of shape {tuple(shape)}, its output {target}; the program was made for "
            f"{program.source} to {program.target}, and {len(axes.maps)} dimensions at least"
        )
    _check_sizes(axes, shape[leading:], shape[:leading], out_shape)
    plan, transposed = plan_program(program, isa.chosen()), bool(axes.adjoint_of)
    found = operands.describe(plan, out_shape, leading - 1, given)
    if 0 in out_shape:
        return lambda out, image, *operands: None
    launch, threads = kernels.launcher().launch, torch.get_num_threads
    handle = kernels.launcher().bind(
        *_addresses(plan, _moves(axes.maps, transposed)), int(transposed), dtype.itemsize if plan.source is None else 0,
        tuple(shape), tuple(strides), tuple(out_shape), tuple(out_strides),
        (b"",) * leading + tuple(map(encode, axes.maps)),
        _program_borders(program, plan), (leading - 1, found.vectors, found.tensors) if given else (),
    )  # fmt: skip

    def call(out: Tensor, image: Tensor) -> None:
        launch(handle, image.data_ptr(), out.data_ptr(), threads())

    def call_with_operands(out: Tensor, image: Tensor, *given: Tensor) -> None:
        dense = found.dense(given)
        launch(handle, image.data_ptr(), out.data_ptr(), threads(), *[one.data_ptr() for one in dense])

    return call_with_operands if given else call


def _by_moving(program: Program) -> Program:
    """An adjoint that is index-only as index-only maps."""
    axes = program.sampler
    assert isinstance(axes, Axes), "warps have no adjoints"
    moved = [_adjoint_by_moving(one) for one in axes.maps]
    if not axes.adjoint_of or None in moved:
        return program
    maps = tuple(filter(None, moved))
    return replace(program, sampler=Axes(maps), borders=(Border(0.0),) * max(_borders(maps), default=0))


def _check_sizes(axes: Axes, mapped: Sizes, leading: Sizes, out_shape: Sizes) -> None:
    """Keeps kernels inside their buffers. Raises also where a step does not fit."""
    before, after = (axes.adjoint_of, mapped) if axes.adjoint_of else (mapped, out_shape[len(leading) :])
    sizes = tuple(one.output_size(n) for one, n in zip(axes.maps, before, strict=True))
    if sizes != tuple(after) or tuple(out_shape) != (*leading, *(before if axes.adjoint_of else sizes)):
        raise WrongInputError(
            f"maps from {tuple(before)} to {sizes}, {'their adjoint ' if axes.adjoint_of else ''}given an image of "
            f"{(*leading, *mapped)} and an output of {tuple(out_shape)}"
        )


def _adjoint_by_moving(axis_map: AxisMap) -> AxisMap | None:
    """The adjoint where it is index-only too: what a constant border was put around is cut out again."""
    match axis_map.steps:
        case () | (Flip(),):
            return axis_map
        case (Pad(before, after, "constant", border),):
            return AxisMap((Pad(-before, -after, "constant", border),))
    return None


def _borders(maps: Maps) -> set[int]:
    """The numbers of their constant borders."""
    return {step.border for one in maps for step in one.steps if isinstance(step, Pad) and step.border}


def _border(dtype: torch.dtype, value: Scalar, weighted: bool) -> Borders:
    wide = {float: torch.float64, complex: torch.complex128}.get(type(value))
    border = torch.tensor(value, dtype=wide).to(dtype)
    data = _bytes(border.to(plan_sums(dtype, "").work) if weighted else border)
    return data, len(data), 2, len(data), 0


def _program_borders(program: Program, plan: Plan) -> Borders:
    """Borders from before the epilogue as values that are sampled, the others as values that are stored."""
    if not program.borders:
        return ()
    work = program.source if plan.source is None else plan.work
    values = [
        _bytes(scalar_tensor(border.value, program.target, _CPU))
        if border.stored
        else _bytes(scalar_tensor(border.value, program.sampled, _CPU).to(work))
        for border in program.borders
    ]
    stride = max(map(len, values))
    first_stored = 1 + sum(not border.stored for border in program.borders)
    data = b"".join(value.ljust(stride, b"\0") for value in values)
    return data, stride, first_stored, work.itemsize, program.target.itemsize


def _bytes(scalar: Tensor) -> bytes:
    return bytes(scalar.reshape(1).view(torch.uint8).tolist())


_warned: set[str] = set()


def warn_once(error: Exception) -> None:
    text = f"Polyphase runs on plain PyTorch operations, correct but slow: {error}"
    if text not in _warned:
        _warned.add(text)
        warnings.warn(text, NoKernelsWarning, stacklevel=4)


def _find_empty_strided() -> Callable[[Sizes, Sizes, torch.dtype], Tensor]:
    """Inductor's own way to an output costs a third of torch.empty_strided's. It is private: gone, the public one."""
    try:
        from torch._C._dynamo.guards import _empty_strided_cpu  # type: ignore[attr-defined]

        return _empty_strided_cpu  # type: ignore[no-any-return]
    except ImportError:
        return lambda shape, strides, dtype: torch.empty_strided(shape, strides, dtype=dtype)


empty_strided = _find_empty_strided()
