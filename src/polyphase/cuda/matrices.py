"""Tables of weights as matrices, for products of bytes: the host's twin of what `tap_maker.h` makes on the device, as
`weight_matrices.h` describes it."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from polyphase.cuda.plain_tables import unpacked
from polyphase.cuda.tables import GROUP, MATRIX_BYTES, Form, MadeTable, Table

#: Inputs of a matrix, and matrices of a group of outputs.
INPUTS, MOST_MATRICES = 32, 2
#: Bits of weights, and the greatest.
_BITS, _GREATEST = 16, 65535
#: What sums of weights may be beyond 1, over 2^16: bytes come out as bytes.
_ROUNDING = 64


def most_read(cropped: int, resized: int, count: int) -> int:
    """Inputs that any `count` neighbouring outputs of a triangle's windows read, at most: a window of an output at c
    lies in [c - s - 0.5, c + s + 0.5), where s is its support. The launcher computes the same (`sized_rows.h`)."""
    ratio = cropped / resized
    return math.ceil((count - 1) * ratio + 2 * max(ratio, 1.0) + 1e-4)


def matrices_of(cropped: int, resized: int) -> int:
    """Of a group, also where there are fewer outputs: of those that have few, precision is 16 bits at most, as their
    greatest weight is more than 1/4."""
    return -(-most_read(cropped, resized, GROUP) // INPUTS)


def can_be_matrices(table: Table) -> bool:
    """Whether weights are not negative, and their two bytes as good as they."""
    if isinstance(table, MadeTable):
        return table.quantised and not table.cubic
    table = unpacked(table)
    if table.index is not None or table.border is not None or table.precision > _BITS:
        return False
    if table.weight is None:
        return True
    sums = table.weight.long().sum(1) << (_BITS - table.precision)
    return bool((table.weight >= 0).all()) and int(sums.max()) <= _GREATEST + 1 + _ROUNDING


def as_matrices(table: Table, count: int, along_x: bool) -> Table:
    """With `count` matrices for every group of outputs."""
    if isinstance(table, MadeTable):
        return replace(table, taps=count, form=Form.ALONG_X if along_x else Form.ALONG_Y)
    table = unpacked(table)
    assert table.weight is not None, "windows that are summed have weights"
    with torch.device("cpu"):
        ranges, weight = _matrices(table.first.long(), table.weight.long() << (_BITS - table.precision), count, along_x)
    return replace(table, first=ranges, taps=count, weight=weight, precision=_BITS)


def _matrices(first: Tensor, weight: Tensor, count: int, along_x: bool) -> tuple[Tensor, Tensor]:
    """What groups read, and bytes."""
    outputs, taps = weight.shape
    groups = -(-outputs // GROUP)
    output = torch.arange(outputs)
    group, row = output // GROUP, output % GROUP
    begins, ends = (torch.full((groups,), start) for start in (2**31 - 1, 0))
    begins.scatter_reduce_(0, group, first, "amin")
    ends.scatter_reduce_(0, group, first + taps, "amax")
    row = row // 2 % 2 * 8 + row // 4 * 2 + row % 2 if along_x else row
    place = first[:, None] - begins[group][:, None] + torch.arange(taps)
    matrix, k = place // INPUTS, place % INPUTS
    column = (
        k % 8 // 4 * 16 + k // 8 * 4 + k % 4 if along_x else k // 16 * 16 + k % 8 // 2 * 4 + k % 16 // 8 * 2 + k % 2
    )
    row, group = row[:, None], group[:, None]
    byte = (4 * (row % 8) + column % 16 // 4) * 16 + column // 16 * 8 + row // 8 * 4 + column % 4
    at = (group * count + matrix) * MATRIX_BYTES + byte
    made = torch.zeros(groups * count * MATRIX_BYTES, dtype=torch.uint8)
    weight = weight.clamp(max=_GREATEST)
    read = weight > 0
    made[at[read]] = (weight >> 8)[read].to(torch.uint8)
    made[at[read] + MATRIX_BYTES // 2] = (weight & 255)[read].to(torch.uint8)
    return torch.stack((begins, ends), 1).to(torch.int32).contiguous(), made
