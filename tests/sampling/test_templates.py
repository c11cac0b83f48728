"""Programs with slots for sizes: their text, and what filling them gives."""

from __future__ import annotations

from typing import cast

import pytest
import torch
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from polyphase.sampling.axis_maps import AxisMap
from polyphase.sampling.programs import Axes, Program
from polyphase.sampling.steps import Area, Flip, Nearest, Pad, Resize, Size, Slice, Step, size_slot
from polyphase.sampling.templates import fill, fill_maps, symbolic_to_slots
from polyphase.sampling.text import from_text, to_text
from polyphase.sampling.warps import Warp


def program(*steps: Step, adjoint_of: tuple[int, ...] = ()) -> Program:
    return Program(torch.float32, Axes((AxisMap(steps),), adjoint_of))


FILLED = {
    "a resize": (program(Resize(size_slot(0), "bilinear")), (9,), program(Resize(9, "bilinear"))),
    "an area": (program(Area(size_slot(0))), (9,), program(Area(9))),
    "nearest": (program(Nearest(size_slot(1), exact=True)), (3, 9), program(Nearest(9, exact=True))),
    "a slice": (program(Slice(size_slot(0), size_slot(1))), (2, 7), program(Slice(2, 7))),
    "a slice from the end": (program(Slice(size_slot(0), size_slot(1))), (-4, -1), program(Slice(16, 19))),
    "a slice beyond the end": (program(Slice(size_slot(0), size_slot(1), 2)), (3, 2**63 - 1), program(Slice(3, 20, 2))),
    "a slice of nothing": (program(Slice(size_slot(0), size_slot(1))), (7, 3), program(Slice(7, 7))),
    "a slice of a slice": (
        program(Slice(size_slot(0), size_slot(1)), Slice(size_slot(2), size_slot(3))),
        (2, 10, 1, -1),
        program(Slice(3, 9)),
    ),
    "a slice after a resize": (
        program(Resize(size_slot(0), "bilinear"), Slice(size_slot(1), size_slot(2))), (50, -5, 50),
        program(Resize(50, "bilinear"), Slice(45, 50)),
    ),
    "a pad": (program(Pad(size_slot(0), 2, "reflect"), Flip()), (1,), program(Pad(1, 2, "reflect"), Flip())),
    "an adjoint": (
        program(Resize(size_slot(0), "bicubic"), adjoint_of=(size_slot(1),)), (20, 30),
        program(Resize(20, "bicubic"), adjoint_of=(30,)),
    ),
    "a warp": (
        Program(torch.float32, Warp("affine", size=(size_slot(0), size_slot(1)))), (4, 5),
        Program(torch.float32, Warp("affine", size=(4, 5))),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FILLED)
def test_fill(name: str) -> None:
    template, sizes, expected = FILLED[name]
    assert fill(template, sizes, (20,)) == expected
    assert from_text(to_text(template)) == template


def test_only_symbolic_sizes_become_slots() -> None:
    height, width = (cast(Size, ShapeEnv().create_unbacked_symint()) for _ in range(2))
    maps = (
        AxisMap((Slice(2, height), Resize(7, "bilinear"), Flip())),
        AxisMap((Nearest(width), Pad(1, height, "circular"))),
        AxisMap((Area(5),)),
        AxisMap(()),
    )
    found, sizes = symbolic_to_slots(maps)
    assert found == (
        AxisMap((Slice(2, size_slot(0)), Resize(7, "bilinear"), Flip())),
        AxisMap((Nearest(size_slot(1)), Pad(1, size_slot(2), "circular"))),
        AxisMap((Area(5),)),
        AxisMap(()),
    )
    assert [one is size for one, size in zip(sizes, (height, width, height), strict=True)] == [True] * 3
    filled = (
        AxisMap((Slice(2, 9), Resize(7, "bilinear"), Flip())), AxisMap((Nearest(4), Pad(1, 3, "circular"))), *maps[2:]
    )  # fmt: skip
    assert fill_maps(found, (9, 4, 3)) == filled
    assert symbolic_to_slots(filled) == (filled, ())


def test_a_slot_is_a_name() -> None:
    assert to_text(Slice(size_slot(0), size_slot(12))) == "slice(size0, size12)"
    assert from_text("slice(size0, size12)") == Slice(size_slot(0), size_slot(12))
