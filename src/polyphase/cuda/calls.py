"""A call of a kernel as bytes: `MapsCall` of `include/polyphase/cuda/call.h`, or `WarpCall` of `warp_call.h`, which is
asserted to be just this."""

from __future__ import annotations

import functools
import itertools
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

#: Of a struct, by name: integers, and floats where it has doubles.
Fields: TypeAlias = "Mapping[str, float | Sequence[float]]"

#: Addresses that torch gives a tensor are multiples of it; those of a view may not be.
ALIGNMENT = 16
#: Of `Axis` of call.h.
AXIS_NUMBERS = 10


@dataclass(frozen=True)
class CallShape:
    """How many operands, outer axes, and numbers of a formula the calls of a kernel have. A subclass says what fields
    their struct has.

    struct: its name in C++. coordinates: addresses that a launch fills in behind target and source, before vectors'.
    """

    vectors: int
    tensors: int
    outer: int = 1
    numbers: int = 0
    struct: ClassVar[str]
    coordinates: ClassVar[int] = 0

    def fields(self) -> dict[str, int]:
        """Lists the struct's fields, in order, and how many numbers of eight bytes each is."""
        raise NotImplementedError

    def definitions(self) -> str:
        """What `call.h` is compiled with."""
        counts = {"OUTER": self.outer, "VECTORS": self.vectors, "TENSORS": self.tensors, "NUMBERS": self.numbers}
        return "".join(f"#define POLYPHASE_{name} {count}\n" for name, count in counts.items())

    @functools.cache  # noqa: B019 there are few shapes
    def counts(self) -> dict[str, int]:
        return self.fields()

    @functools.cache  # noqa: B019
    def places(self) -> dict[str, int]:
        """Where each field begins, in bytes."""
        counts = self.counts()
        ends = itertools.accumulate(counts.values())
        return {name: 8 * (end - count) for (name, count), end in zip(counts.items(), ends, strict=True)}

    @property
    def size(self) -> int:
        return 8 * sum(self.counts().values())

    def assertions(self) -> str:
        """C++ that compiles only where the struct is just this; older NVRTCs do not know where a field is."""
        size = f"static_assert(sizeof(polyphase::{self.struct}) == {self.size});"
        places = [
            f"static_assert(__builtin_offsetof(polyphase::{self.struct}, {name}) == {place});"
            for name, place in self.places().items()
        ]
        return "\n".join([size, "#ifndef __CUDACC__", *places, "#endif", ""])

    def packed(self, fields: Fields) -> bytes:
        """What is not given is 0."""
        numbers: list[float] = []
        for name, count in self.counts().items():
            value = fields.get(name, ())
            given = [value] if isinstance(value, (int, float)) else value
            numbers += given
            numbers += (0,) * (count - len(given))
        kinds = "".join(["d" if isinstance(one, float) else "q" for one in numbers])
        return struct.pack(f"={kinds}", *numbers)


class MapsShape(CallShape):
    struct = "MapsCall"

    def fields(self) -> dict[str, int]:
        vectors, tensors, axis = max(self.vectors, 1), max(self.tensors, 1), AXIS_NUMBERS
        return {
            **dict.fromkeys(("target", "source", "planes", "channels", "in_channel_stride", "out_channel_stride"), 1),
            **dict.fromkeys(("target_origin", "source_origin", "channel_axis"), 1),
            **dict.fromkeys(("tiles", "strips", "tile", "strip", "span", "staged_rows"), 1),
            "x": axis,
            "y": axis,
            "outer": self.outer * axis,
            **dict.fromkeys(("offsets", "row_origin"), 1),
            "z": axis,
            **dict.fromkeys(("borders", "border_stride", "first_stored"), 1),
            "vectors": vectors,
            "tensors": tensors,
            "tensor_strides": tensors * (self.outer + 5),
        }


class WarpShape(CallShape):
    struct = "WarpCall"
    coordinates = 1

    def fields(self) -> dict[str, int]:
        return {
            **dict.fromkeys(("target", "source", "coordinates"), 1),
            "vectors": max(self.vectors, 1),
            "tensors": max(self.tensors, 1),
            **dict.fromkeys(("batch", "channels"), 1),
            **dict.fromkeys(("in_size", "out_size"), 3),
            **dict.fromkeys(("image_strides", "target_strides", "coordinate_strides"), 5),
            **dict.fromkeys(("base_first", "base_step"), 3),
            **dict.fromkeys(("padding", "align_corners", "fill", "fill_step"), 1),
            **dict.fromkeys(("tiles", "strips", "chunks", "chunk", "steps", "group", "sum_bits"), 1),
            "tensor_strides": 5 * max(self.tensors, 1),
            "numbers": max(self.numbers, 1),
        }
