"""Tables of taps that are made on the device, by recipes: their room, and what a recipe has. The launcher has the same
(`launch/device_recipes.h`)."""

from __future__ import annotations

import enum

#: `TapRecipe` of tap_maker.h; and what a table that is made by it has before its first row, for the precision.
RECIPE_NUMBERS = 16
RECIPE_BYTES = RECIPE_NUMBERS * 8
#: What antialiased windows have for `positions` and `ratio`.
ANTIALIASED = 0, 0
#: Of `TapsCall`: where recipes lie, how many, and a few of its own.
TAPS_CALL_BYTES = 16 + 3 * RECIPE_BYTES
BEFORE_TABLE = 16
#: Outputs of a group, and bytes of a matrix of their weights: weight_matrices.h.
GROUP, MATRIX_BYTES = 16, 1024


class Form(enum.IntEnum):
    """How a table lies in memory: `TableForm` of tap_maker.h."""

    WINDOWS = 0
    IN_FOURS = 1
    ALONG_X = 2
    ALONG_Y = 3


def bytes_before_weights(out_size: int) -> int:
    return BEFORE_TABLE + (4 * out_size + 15) // 16 * 16


def table_bytes(out_size: int, bytes_of_row: int) -> int:
    """`bytes_of_row`: of the weights of an output."""
    return bytes_before_weights(out_size) + (out_size * bytes_of_row + 15) // 16 * 16


def matrix_bytes(out_size: int, matrices: int) -> int:
    """Bytes of a table whose groups of outputs have so many matrices; what groups read takes no more than firsts."""
    return bytes_before_weights(out_size) + -(-out_size // GROUP) * matrices * MATRIX_BYTES


def most_taps(in_size: int, out_size: int, cubic: bool) -> int:
    """Taps of an antialiased window, at most. It begins and ends at whole numbers: rounding may move either by one,
    where the support is close to one."""
    return int((4 if cubic else 2) * max(in_size / out_size, 1.0) + 1e-4) + 1
