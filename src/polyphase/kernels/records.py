"""One record for every call of a kernel, and its form as bytes: the `Request` of `launch/request.h`.

Maps, whole programs, warps and the gradients of warps are all packed by one description, `FIELDS`. The C++ side asserts
it: `assertions` is compiled with the launcher.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch

from polyphase.errors import TooManyDimensionsError
from polyphase.kernels.facts import Facts, Sizes
from polyphase.kernels.operands import NO_OPERANDS, Operands
from polyphase.kernels.recipes import encode
from polyphase.sampling.pointwise import scalar_tensor
from polyphase.sampling.programs import Axes, Program
from polyphase.sampling.warps import PADDINGS, Warp

#: Numbers by the names of their fields.
Fields: TypeAlias = "dict[str, int | Sequence[int]]"

MOST_DIMENSIONS = 16
MOST_OPERANDS = 8


@dataclass(frozen=True)
class CallRecord:
    """A call of a program's kernel: all that a wing needs to bind it. Everything in it has been checked."""

    program: Program
    image: Facts
    out: Facts
    coordinates: Facts | None = None
    operands: Operands = NO_OPERANDS


@dataclass(frozen=True)
class GradientRecord:
    """Gradients of a warp without arithmetic around it; `needed`: of the image, of the coordinates."""

    sampler: Warp
    gradient: Facts
    image: Facts
    coordinates: Facts
    needed: tuple[bool, bool]


@dataclass(frozen=True)
class Borders:
    """The values of constant borders as bytes, each from a multiple of `stride` on.

    first_stored: the number, counted from 1, of the first border that goes around the epilogue. value_bytes: of those
    before it, as they are sampled; stored_bytes: of the others, as they are stored.
    """

    data: bytes = b""
    stride: int = 0
    first_stored: int = 0
    value_bytes: int = 0
    stored_bytes: int = 0


def borders_of(program: Program, work: torch.dtype) -> Borders:
    """`work`: the dtype that values are in while they are sampled."""
    if not program.borders:
        return Borders()
    values = [
        _bytes(border.value, program.target) if border.stored else _bytes(border.value, program.sampled, work)
        for border in program.borders
    ]
    stride = max(map(len, values))
    first_stored = 1 + sum(not border.stored for border in program.borders)
    data = b"".join(value.ljust(stride, b"\0") for value in values)
    return Borders(data, stride, first_stored, work.itemsize, program.target.itemsize)


def _bytes(value: complex, *dtypes: torch.dtype) -> bytes:
    """A number brought to one dtype after the other."""
    scalar = scalar_tensor(value, dtypes[0], torch.device("cpu")).to(dtypes[-1])
    return bytes(scalar.reshape(1).view(torch.uint8).tolist())


#: What kernels are asked for: `Request::Kind`.
MAPS, WARP, WARP_GRADIENTS = range(3)

#: The fields of `Request`, in order, and how many numbers of eight bytes each is.
FIELDS = {
    "kernel": 1,
    "sampler": 1,
    "mover": 1,
    "kind": 1,
    "rank": 1,
    "in_size": MOST_DIMENSIONS,
    "in_stride": MOST_DIMENSIONS,
    "out_size": MOST_DIMENSIONS,
    "out_stride": MOST_DIMENSIONS,
    "vector_count": 1,
    "tensor_count": 1,
    "vector_bytes": MOST_OPERANDS,
    "tensor_bytes": MOST_OPERANDS,
    "channel_dimension": 1,
    "transposed": 1,
    "moved_bytes": 1,
    "last_step": MOST_DIMENSIONS,
    "border_size": 1,
    "border_stride": 1,
    "first_stored": 1,
    "border_bytes": 1,
    "stored_border_bytes": 1,
    "affine": 1,
    "padding": 1,
    "align_corners": 1,
    "coordinate_stride": 5,
    "image_gradient_stride": MOST_DIMENSIONS,
}


def assertions() -> str:
    """C++ that compiles only where `Request` is what `FIELDS` says."""
    lines = [f"static_assert(offsetof(polyphase::Request, {name}) == {8 * place});" for name, place in _places()]
    return "\n".join([*lines, f"static_assert(sizeof(polyphase::Request) == {8 * sum(FIELDS.values())});", ""])


def _places() -> Iterator[tuple[str, int]]:
    place = 0
    for name, count in FIELDS.items():
        yield name, place
        place += count


_PLACES = dict(_places())
_COUNT = sum(FIELDS.values())
_NUMBERS = struct.Struct(f"={_COUNT}q")


@dataclass(frozen=True)
class MapsPart:
    """What the record of a call of maps has from its program alone, whatever the tensors: fields, and what follows."""

    fields: Fields
    last_step: tuple[int, ...]  # of the dimensions that have maps
    steps_and_borders: bytes


def maps_part(program: Program, work: torch.dtype, *, kernel: int, sampler: int, mover: int) -> MapsPart:
    """`kernel`, `sampler` and `mover`: addresses of what was built for the program, which computes in `work`."""
    axes = program.sampler
    assert isinstance(axes, Axes), "a warp is packed by pack_warp"
    borders = borders_of(program, program.source if program.moves_only else work)
    fields: Fields = {
        "kernel": kernel,
        "sampler": sampler,
        "mover": mover,
        "kind": MAPS,
        "transposed": axes.transposed,
        "moved_bytes": program.source.itemsize if program.moves_only else 0,
        "border_size": len(borders.data),
        "border_stride": borders.stride,
        "first_stored": borders.first_stored,
        "border_bytes": borders.value_bytes,
        "stored_border_bytes": borders.stored_bytes,
    }
    last_step = tuple(itertools.accumulate(len(one.steps) for one in axes.maps))
    return MapsPart(fields, last_step, b"".join([*map(encode, axes.maps), borders.data]))


def pack_maps(record: CallRecord, part: MapsPart) -> bytes:
    leading = len(record.image.shape) - len(part.last_step)
    fields = {**part.fields, **_of_tensors(record.image, record.out), "last_step": (0,) * leading + part.last_step}
    if record.operands is NO_OPERANDS:
        return _packed(fields) + part.steps_and_borders
    fields |= _of_operands(record.operands)
    return b"".join([_packed(fields), _tensor_strides(record.operands), part.steps_and_borders])


def pack_warp(record: CallRecord, *, kernel: int) -> bytes:
    assert isinstance(record.program.sampler, Warp), "axis maps are packed by pack_maps"
    assert record.coordinates is not None, "a warp has coordinates"
    fields: Fields = {"kernel": kernel, "kind": WARP}
    fields |= _of_tensors(record.image, record.out)
    fields |= _of_operands(record.operands)
    fields |= _of_warp(record.program.sampler, record.coordinates)
    return _packed(fields) + _tensor_strides(record.operands)


def pack_gradients(record: GradientRecord, image_gradient: Sizes, *, kernel: int) -> bytes:
    """`image_gradient`: the strides of what is made for the image."""
    fields: Fields = {"kernel": kernel, "kind": WARP_GRADIENTS, "image_gradient_stride": image_gradient}
    fields |= _of_tensors(record.image, record.gradient)
    fields |= _of_warp(record.sampler, record.coordinates)
    return _packed(fields)


def _of_tensors(image: Facts, out: Facts) -> Fields:
    rank = len(image.shape)
    if rank > MOST_DIMENSIONS:
        raise TooManyDimensionsError(f"{rank} dimensions; a kernel takes {MOST_DIMENSIONS} at most")
    return {
        "rank": rank,
        "in_size": image.shape,
        "in_stride": image.strides,
        "out_size": out.shape,
        "out_stride": out.strides,
    }


def _of_operands(operands: Operands) -> Fields:
    return {
        "vector_count": len(operands.vectors),
        "tensor_count": len(operands.tensors),
        "vector_bytes": operands.vectors,
        "tensor_bytes": [one.element_bytes for one in operands.tensors],
        "channel_dimension": operands.channel,
    }


def _tensor_strides(operands: Operands) -> bytes:
    """What follows the record: a row for each tensor operand."""
    row = struct.Struct(f"={MOST_DIMENSIONS}q")
    return b"".join(row.pack(*one.strides, *[0] * (MOST_DIMENSIONS - len(one.strides))) for one in operands.tensors)


def _of_warp(sampler: Warp, coordinates: Facts) -> Fields:
    batch, *along, last = coordinates.strides
    # Of matrices (batch, row, column) rows stand for y and columns for x; an image's grid has no z.
    by_axis = [0, *along, last, 0] if sampler.source == "affine" else [*[0] * (3 - len(along)), *along, last]
    return {
        "affine": sampler.source == "affine",
        "padding": PADDINGS.index(sampler.padding),
        "align_corners": sampler.align_corners,
        "coordinate_stride": [batch, *by_axis],
    }


def _packed(fields: Fields) -> bytes:
    numbers = [0] * _COUNT
    for name, value in fields.items():
        place = _PLACES[name]
        if isinstance(value, int):
            numbers[place] = value
        else:
            numbers[place : place + len(value)] = value
    return _NUMBERS.pack(*numbers)
