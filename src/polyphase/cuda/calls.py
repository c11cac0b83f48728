"""A call of a kernel as bytes: `MapsCall` of `include/polyphase/cuda/call.h`, which is asserted to be just this."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from polyphase.kernels.records import MOST_OPERANDS

MOST_OUTER = 6

_AXIS = ("in_size", "out_size", "in_stride", "out_stride", "first", "index", "weight", "border", "taps", "precision")
_TENSOR = ("origin", *[f"outer{a}" for a in range(MOST_OUTER)], "z", "y", "x", "channel")

#: The fields of `MapsCall`, in order, and how many numbers of eight bytes each is.
FIELDS = {
    "target": 1,
    "source": 1,
    "vectors": MOST_OPERANDS,
    "tensors": MOST_OPERANDS,
    "outer": MOST_OUTER * len(_AXIS),
    "z": len(_AXIS),
    "y": len(_AXIS),
    "x": len(_AXIS),
    "outer_count": 1,
    "planes": 1,
    "channels": 1,
    "in_channel_stride": 1,
    "out_channel_stride": 1,
    "target_origin": 1,
    "channel_axis": 1,
    "tensor_strides": MOST_OPERANDS * len(_TENSOR),
    "borders": 1,
    "border_stride": 1,
    "first_stored": 1,
    "offsets": 1,
    "tiles": 1,
    "strips": 1,
    "tile": 1,
    "strip": 1,
    "span": 1,
    "staged_rows": 1,
}


def _places() -> Iterator[tuple[str, int]]:
    place = 0
    for name, count in FIELDS.items():
        yield name, place
        place += count


_PLACES = dict(_places())
_NUMBERS = struct.Struct(f"={sum(FIELDS.values())}q")
#: Where a launch writes the addresses of operands.
VECTORS_AT, TENSORS_AT = 8 * _PLACES["vectors"], 8 * _PLACES["tensors"]


def assertions() -> str:
    """C++ that compiles only where `MapsCall` is what `FIELDS` says; older NVRTCs do not know where a field is."""
    size = f"static_assert(sizeof(polyphase::MapsCall) == {_NUMBERS.size});"
    places = [
        f"static_assert(__builtin_offsetof(polyphase::MapsCall, {name}) == {8 * place});" for name, place in _places()
    ]
    return "\n".join([size, "#ifndef __CUDACC__", *places, "#endif", ""])


@dataclass(frozen=True)
class AxisFields:
    """`Axis` of call.h: addresses are on the device, 0 where there is no table."""

    in_size: int = 1
    out_size: int = 1
    in_stride: int = 0
    out_stride: int = 0
    first: int = 0
    index: int = 0
    weight: int = 0
    border: int = 0
    taps: int = 1
    precision: int = 0

    def numbers(self) -> list[int]:
        return [getattr(self, name) for name in _AXIS]


@dataclass(frozen=True)
class TensorFields:
    """`TensorStrides` of call.h."""

    origin: int
    outer: Sequence[int]
    z: int
    y: int
    x: int
    channel: int

    def numbers(self) -> list[int]:
        outer = [*self.outer, *[0] * (MOST_OUTER - len(self.outer))]
        return [self.origin, *outer, self.z, self.y, self.x, self.channel]


def packed(fields: Mapping[str, int | Sequence[int]]) -> bytes:
    numbers = [0] * sum(FIELDS.values())
    for name, value in fields.items():
        place = _PLACES[name]
        if isinstance(value, int):
            numbers[place] = value
        else:
            numbers[place : place + len(value)] = value
    return _NUMBERS.pack(*numbers)
