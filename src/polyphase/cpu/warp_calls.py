"""A warp's sizes and strides as plain bytes, for the C++ side to read: `WarpCall` of `include/polyphase/warp_abi.h`."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from polyphase.cpu.layout import Sizes
from polyphase.cpu.operands import Operands
from polyphase.sampling.warps import PADDINGS, Warp

_PACKED = 8  # what the launcher fills in
_MOST_OPERANDS = 8
_OPERAND = 14  # numbers of one, its address first


def pack(
    sampler: Warp,
    shape: Sizes,
    strides: Sizes,
    out_shape: Sizes,
    out_strides: Sizes,
    coordinate_strides: Sizes,
    *,
    gradient_strides: Sizes | None = None,
    operands: Operands | None = None,
) -> bytes:
    """Shapes and strides of (batch, channels, spatial...); of an image gradient, if one is wanted."""
    operands = operands or Operands()
    numbers = [
        *[0] * _PACKED,
        *shape[:2],
        *_three(shape[2:], 1),
        *_three(out_shape[2:], 1),
        *_image(strides),
        *_image(out_strides),
        *_image(gradient_strides or [0] * len(shape)),
        *_coordinates(sampler, coordinate_strides),
        sampler.source == "affine",
        PADDINGS.index(sampler.padding),
        sampler.align_corners,
        len(operands.vectors),
        len(operands.tensors),
        *_filled([(0, element_bytes, *[0] * (_OPERAND - 2)) for element_bytes in operands.vectors]),
        *_filled([_tensor(*one) for one in operands.tensors]),
    ]
    return struct.pack(f"={len(numbers)}q", *numbers)


def with_addresses(call: bytes, vectors: Sequence[int], tensors: Sequence[int]) -> bytes:
    """A packed call with the addresses of its operands."""
    packed = bytearray(call)
    first_tensor = len(call) // 8 - _MOST_OPERANDS * _OPERAND
    for first, addresses in ((first_tensor - _MOST_OPERANDS * _OPERAND, vectors), (first_tensor, tensors)):
        for i, address in enumerate(addresses):
            struct.pack_into("=q", packed, 8 * (first + i * _OPERAND), address)
    return bytes(packed)


def _three(values: Sequence[int], missing: int) -> list[int]:
    """For z, y and x; an image has no z."""
    return [missing] * (3 - len(values)) + list(values)


def _image(strides: Sequence[int]) -> list[int]:
    return [*strides[:2], *_three(strides[2:], 0)]


def _coordinates(sampler: Warp, strides: Sequence[int]) -> list[int]:
    if sampler.source == "affine":
        batch, row, column = strides
        return [batch, 0, row, column, 0]
    batch, *spatial, component = strides
    return [batch, *_three(spatial, 0), component]


def _tensor(element_bytes: int, strides: Sizes) -> tuple[int, ...]:
    batch, channel, *spatial = strides
    return (0, element_bytes, batch, *[0] * 7, *_three(spatial, 0), channel)


def _filled(operands: Sequence[Sequence[int]]) -> list[int]:
    numbers = [number for one in operands for number in one]
    return numbers + [0] * (_MOST_OPERANDS * _OPERAND - len(numbers))
