"""One record for every call of a kernel, and its form as bytes: the `Request` of `launch/request.h`.

Maps, whole programs, warps and the gradients of warps are all packed by one description, `FIELDS`. The C++ side asserts
it: `assertions` is compiled with the launcher.
"""

from __future__ import annotations

import itertools
import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import NamedTuple

import torch

from polyphase.errors import NoKernelError
from polyphase.records.facts import Facts, Sizes
from polyphase.records.operands import NO_OPERANDS, Operands
from polyphase.records.patchwork import Patchwork
from polyphase.records.recipes import RECORD, encode
from polyphase.sampling.pointwise import scalar_tensor
from polyphase.sampling.programs import Axes, Program
from polyphase.sampling.warps import FILL_RULES, PADDINGS, Warp, fill_values

MOST_DIMENSIONS = 16
MOST_OPERANDS = 8
#: Of a formula: a CUDA thread has all of them in registers.
MOST_ENTRIES = MOST_NUMBERS = 32


class CallRecord(NamedTuple):
    """A call of a program's kernel: all that a wing needs to bind it. Everything in it has been checked.

    patchwork: how the output is cut into blocks; its strides are within one."""

    program: Program
    image: Facts
    out: Facts
    coordinates: Facts | None = None
    operands: Operands = NO_OPERANDS
    patchwork: Patchwork | None = None

    @property
    def written(self) -> Facts:
        """Gives the facts of the tensor that is written."""
        return self.out if self.patchwork is None else self.patchwork.whole


class GradientRecord(NamedTuple):
    """Gradients of a warp without arithmetic around it; `needed`: of the image, of the coordinates. `fields`: those
    that its formula reads."""

    sampler: Warp
    gradient: Facts
    image: Facts
    coordinates: Facts
    needed: tuple[bool, bool]
    fields: Operands = NO_OPERANDS


@dataclass(frozen=True)
class Borders:
    """The values of constant borders as bytes, each from a multiple of `stride` on, which is one of 8.

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
    stride = 8 if max(map(len, values)) <= 8 else 16  # of complex numbers
    first_stored = 1 + sum(not border.stored for border in program.borders)
    data = b"".join(value.ljust(stride, b"\0") for value in values)
    return Borders(data, stride, first_stored, work.itemsize, program.target.itemsize)


def _bytes(value: complex, *dtypes: torch.dtype) -> bytes:
    """A number brought to one dtype after the other."""
    scalar = scalar_tensor(value, dtypes[0], torch.device("cpu")).to(dtypes[-1])
    return bytes(scalar.reshape(1).view(torch.uint8).tolist())


#: What kernels are asked for: `Request::Kind`.
MAPS, WARP, WARP_GRADIENTS = range(3)

#: The fields of `Request`, in order, and how many numbers of eight bytes each is. Of the tensors:
_TENSORS = {
    "rank": 1,
    "in_size": MOST_DIMENSIONS,
    "in_stride": MOST_DIMENSIONS,
    "out_size": MOST_DIMENSIONS,
    "out_stride": MOST_DIMENSIONS,
}
_PATCHWORK = {"blocks": 8, "copies": 1, "copy_stride": 1}
_COORDINATES = {"coordinate_stride": 5, "image_gradient_stride": MOST_DIMENSIONS}
_OPERANDS = {
    "vector_count": 1,
    "tensor_count": 1,
    "vector_bytes": MOST_OPERANDS,
    "tensor_bytes": MOST_OPERANDS,
    "channel_dimension": 1,
}
#: And of the program, whatever the tensors.
_PROGRAM = {
    "kernel": 1,
    "sampler": 1,
    "mover": 1,
    "kind": 1,
    "element_bytes": 1,
    "transposed": 1,
    "moved_bytes": 1,
    "map_count": 1,
    "last_step": MOST_DIMENSIONS,
    "border_size": 1,
    "border_stride": 1,
    "first_stored": 1,
    "border_bytes": 1,
    "stored_border_bytes": 1,
    "affine": 1,
    "formula": 1,
    "number_count": 1,
    "padding": 1,
    "align_corners": 1,
    "fill_rule": 1,
}
FIELDS = _TENSORS | _PATCHWORK | _COORDINATES | _OPERANDS | _PROGRAM


@dataclass(frozen=True)
class AnySize:
    """`AnySize` of `launch/any_size.h`: what another size's request follows from, besides one that was made."""

    order: int
    keeps_strides: bool
    longest: int
    most_warped: int
    most_bytes: int
    given: int = 0

    def packed(self) -> bytes:
        return struct.pack("=6q", *vars(self).values())


def assertions() -> str:
    """C++ that compiles only where its records are what is described here."""
    return _assertions("Request", FIELDS) + _assertions(
        "AnySize", dict.fromkeys([one.name for one in fields(AnySize)], 1)
    )


def _assertions(record: str, fields: dict[str, int]) -> str:
    lines, place = [], 0
    for name, count in fields.items():
        lines.append(f"static_assert(offsetof(polyphase::{record}, {name}) == {8 * place});")
        place += count
    return "\n".join([*lines, f"static_assert(sizeof(polyphase::{record}) == {8 * place});", ""])


def _packed(group: dict[str, int], **fields: int | Sequence[int]) -> bytes:
    """The fields of a group; those that are not given are 0."""
    assert fields.keys() <= group.keys(), f"no fields of a request: {fields.keys() - group.keys()}"
    numbers: list[int] = []
    for name, count in group.items():
        value = fields.get(name, 0)
        numbers += (value,) if isinstance(value, int) else value
        numbers += (0,) * (count - (1 if isinstance(value, int) else len(value)))
    return struct.pack(f"={len(numbers)}q", *numbers)


# What a record has from its program is packed once, and put behind what it has from the tensors.


class MapsPart(NamedTuple):
    """What programs have in common that differ in the numbers of their steps alone."""

    fields: bytes
    borders: bytes

    def of(self, axes: Axes) -> bytes:
        return b"".join([self.fields, *map(encode, axes.maps), self.borders])


def kind_of(program: Program, axes: Axes) -> tuple[object, ...]:
    """What its `MapsPart` depends on."""
    maps = [(len(one.steps), one.may_sum(axes.transposed)) for one in axes.maps]
    return program.source, program.prologue, program.epilogue, program.borders, axes.transposed, *maps


def maps_part(program: Program, axes: Axes, work: torch.dtype, *, kernel: int, sampler: int, mover: int) -> MapsPart:
    """`kernel`, `sampler` and `mover`: addresses of what was built for the program, which computes in `work`."""
    borders = borders_of(program, program.source if program.moves_only else work)
    fields = _packed(
        _PROGRAM,
        kernel=kernel,
        sampler=sampler,
        mover=mover,
        kind=MAPS,
        element_bytes=program.target.itemsize,
        transposed=axes.transposed,
        moved_bytes=program.source.itemsize if program.moves_only else 0,
        map_count=len(axes.maps),
        last_step=tuple(itertools.accumulate([len(one.steps) for one in axes.maps])),
        border_size=len(borders.data),
        border_stride=borders.stride,
        first_stored=borders.first_stored,
        border_bytes=borders.value_bytes,
        stored_border_bytes=borders.stored_bytes,
    )
    return MapsPart(fields, borders.data)


NO_FILL = Borders()


def fill_of(sampler: Warp, sampled: torch.dtype, work: torch.dtype) -> Borders:
    """What lies outside a warped image, as constant borders are told: one number for all channels from place 0 on
    (`stride` 0), or one for each where they differ. `sampled`: the dtype of pixels, `work`: that they are in while they
    are sampled."""
    if sampler.mode == "nearest":
        values = [_bytes(one, sampled, work) for one in fill_values(sampler.fill, sampled)]
    else:
        values = [_bytes(one, work) for one in sampler.fill]
    values = values[:1] if len(set(values)) == 1 else values
    data = b"".join(values)
    return Borders(data.ljust(8 * math.ceil(len(data) / 8), b"\0"), stride=work.itemsize if len(values) > 1 else 0)


def warp_part(
    sampler: Warp, kind: int = WARP, *, kernel: int, element_bytes: int = 0, fill: Borders = NO_FILL
) -> bytes:
    """`element_bytes`: of what is written."""
    numbers = sampler.formula.numbers if sampler.formula else ()
    if sampler.formula and (sampler.formula.entries > MOST_ENTRIES or len(numbers) > MOST_NUMBERS):
        raise NoKernelError(f"a formula of {sampler.formula.entries} entries and {len(numbers)} numbers: too long")
    fields = _packed(
        _PROGRAM,
        kernel=kernel,
        kind=kind,
        element_bytes=element_bytes,
        border_size=len(fill.data),
        border_stride=fill.stride,
        affine=sampler.source == "affine",
        formula=sampler.source == "formula",
        number_count=len(numbers),
        padding=PADDINGS.index(sampler.taps_padding),
        align_corners=sampler.align_corners,
        fill_rule=rule_number(sampler),
    )
    return fields + fill.data + struct.pack(f"={len(numbers)}d", *numbers)


def rule_number(sampler: Warp) -> int:
    """`FillRule` of rules.h; 0 for none."""
    return 1 + FILL_RULES.index(sampler.fill_rule) if sampler.fill else 0


def pack(record: CallRecord, part: bytes) -> bytes:
    tensors = _of_tensors(record.image, record.out, record.patchwork)
    coordinates, operands = record.coordinates, record.operands
    along = _NO_COORDINATES if coordinates is None else _of_coordinates(coordinates)
    if operands is NO_OPERANDS:
        return tensors + along + _NO_OPERANDS + part
    return tensors + along + _of_operands(operands) + part + _tensor_strides(operands)


class RequestForm:
    """Requests that differ from one in the sizes of tensors and the numbers of steps alone."""

    def __init__(self, request: bytes, rank: int, steps: int) -> None:
        """`steps`: of all its axes together."""
        tensors, records = _TENSORS_OF_RANK[rank], struct.Struct(f"={steps * RECORD}")
        first, end = tensors.size + len(_WHOLE), 8 * sum(FIELDS.values())
        self._rank, self._fields, self._tail = rank, request[first:end], request[end + records.size :]
        self._struct = struct.Struct(f"{tensors.format}10q{len(self._fields)}s{steps * RECORD}{len(self._tail)}s")

    def filled(self, image: Facts, out: Facts, patchwork: Patchwork | None, steps: Sequence[float]) -> bytes:
        """`steps`: the numbers of their records. Of `out`, the strides are within a block of the patchwork."""
        cut = _NO_PATCHWORK if patchwork is None else patchwork.numbers
        tensors = (*image.shape, *image.strides, *out.shape, *out.strides)
        return self._struct.pack(self._rank, *tensors, *cut, self._fields, *steps, self._tail)


def pack_gradients(record: GradientRecord, image_gradient: Sizes, part: bytes) -> bytes:
    """`image_gradient`: the strides of what is made for the image."""
    tensors = _of_tensors(record.image, record.gradient)
    along = _of_coordinates(record.coordinates, image_gradient)
    return tensors + along + _of_operands(record.fields) + part + _tensor_strides(record.fields)


#: `_TENSORS` by rank, by one call each: every call for a new size is packed.
_TENSORS_OF_RANK = [
    struct.Struct("=q" + f"{rank}q{8 * (MOST_DIMENSIONS - rank)}x" * 4) for rank in range(MOST_DIMENSIONS + 1)
]
_NO_PATCHWORK = (0,) * sum(_PATCHWORK.values())
_WHOLE, _NO_COORDINATES, _NO_OPERANDS = _packed(_PATCHWORK), _packed(_COORDINATES), _packed(_OPERANDS)


def _of_tensors(image: Facts, out: Facts, patchwork: Patchwork | None = None) -> bytes:
    rank = len(image.shape)
    if rank > MOST_DIMENSIONS:
        raise NoKernelError(f"{rank} dimensions; a kernel takes {MOST_DIMENSIONS} at most")
    tensors = _TENSORS_OF_RANK[rank].pack(rank, *image.shape, *image.strides, *out.shape, *out.strides)
    return tensors + (_WHOLE if patchwork is None else struct.pack("=10q", *patchwork.numbers))


def _of_coordinates(coordinates: Facts, image_gradient: Sizes = ()) -> bytes:
    batch, *along, last = coordinates.strides
    batch = 0 if 0 in coordinates.shape else batch  # of a formula without entries
    # Of matrices (batch, row, column) rows stand for y and columns for x; an image's grid has no z.
    by_axis = [0, *along, last, 0] if len(along) == 1 else [*[0] * (3 - len(along)), *along, last]
    return _packed(_COORDINATES, coordinate_stride=[batch, *by_axis], image_gradient_stride=image_gradient)


def _of_operands(operands: Operands) -> bytes:
    return _packed(
        _OPERANDS,
        vector_count=len(operands.vectors),
        tensor_count=len(operands.tensors),
        vector_bytes=operands.vectors,
        tensor_bytes=[one.element_bytes for one in operands.tensors],
        channel_dimension=operands.channel,
    )


def _tensor_strides(operands: Operands) -> bytes:
    """What follows the record: a row for each tensor operand."""
    return b"".join(_packed({"strides": MOST_DIMENSIONS}, strides=one.strides) for one in operands.tensors)
