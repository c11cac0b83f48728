from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given

from polyphase.errors import InvalidProgramError, PolyphaseError, UnknownNameError
from polyphase.sampling.axis_maps import AxisMap
from polyphase.sampling.pointwise import VALUE, Binary, Cast, Channel, Number, Operand, Unary, dtype_of, normalise
from polyphase.sampling.programs import Axes, Border, Program
from polyphase.sampling.steps import Area, Flip, Pad, Resize
from polyphase.sampling.warps import Warp
from tests.sampling.strategies import programs, quick

IDENTITY = Axes((AxisMap(()),))
RESIZED = Axes((AxisMap((Resize(5, "bilinear"),)),))


def padded(*numbers: int) -> Axes:
    return Axes((AxisMap(tuple(Pad(1, 1, border=number) for number in numbers)),))


INVALID: list[tuple[dict[str, Any], type[PolyphaseError], str]] = [
    (
        {"sampler": IDENTITY, "order": "rows"},
        UnknownNameError,
        "memory order 'rows'.*channels_last, contiguous, preserve",
    ),
    ({"sampler": Axes(())}, InvalidProgramError, "0 axis maps, 0 weighted"),
    ({"sampler": Axes((AxisMap((Area(3),)),) * 4)}, InvalidProgramError, "4 axis maps, 4 weighted"),
    ({"sampler": Axes((AxisMap(()),), (3, 4))}, InvalidProgramError, r"an adjoint of \(3, 4\) with 1 maps"),
    (
        {"sampler": IDENTITY, "prologue": Binary("add", VALUE, Operand(0))},
        InvalidProgramError,
        "prologue reads a tensor of the output's shape; only the epilogue can",
    ),
    ({"sampler": RESIZED, "source": torch.int64}, InvalidProgramError, "weighted map of torch.int64; cast to a float"),
    ({"sampler": RESIZED, "source": torch.bool}, InvalidProgramError, "weighted map of torch.bool"),
    ({"sampler": RESIZED, "source": torch.complex64}, InvalidProgramError, "weighted map of torch.complex64"),
    ({"sampler": RESIZED, "prologue": Cast(VALUE, torch.int8)}, InvalidProgramError, "weighted map of torch.int8"),
    ({"sampler": Axes(RESIZED.maps, (3,)), "source": torch.int16}, InvalidProgramError, "weighted map of torch.int16"),
    ({"sampler": padded(1)}, InvalidProgramError, "border 1 on an axis, but the program lists 0 values"),
    ({"sampler": padded(1, 3), "borders": (Border(0),) * 2}, InvalidProgramError, "border 3.*lists 2 values"),
    ({"sampler": padded(2, 1), "borders": (Border(0),) * 2}, InvalidProgramError, r"borders \[2, 1\] on one axis"),
    (
        {"sampler": padded(1, 2), "borders": (Border(0, stored=True), Border(0))},
        InvalidProgramError,
        "before the epilogue lies around one from after it",
    ),
    ({"sampler": Warp("grid"), "borders": (Border(0),)}, InvalidProgramError, "warp with constant borders"),
]


@pytest.mark.parametrize(("fields", "error", "message"), INVALID)
def test_invalid_program(fields: dict[str, Any], error: type[PolyphaseError], message: str) -> None:
    with pytest.raises(error, match=message):
        Program(**({"source": torch.float32} | fields))


@pytest.mark.parametrize("dtype", [torch.int8, torch.int64, torch.bool, torch.complex64])
def test_weighted_warp_of_what_cannot_be_weighted(dtype: torch.dtype) -> None:
    with pytest.raises(InvalidProgramError, match=f"{dtype}"):
        Program(dtype, Warp("grid"))


def test_an_operation_on_numbers_alone() -> None:
    with pytest.raises(InvalidProgramError, match="add of numbers alone; compute the number beforehand"):
        Binary("add", Number(1), Number(2))


@pytest.mark.parametrize("epilogue", [Number(1), Unary("neg", Cast(VALUE, torch.bool))])
def test_expression_that_computes_no_image(epilogue: Number | Binary | Unary) -> None:
    with pytest.raises(InvalidProgramError):
        Program(torch.float32, IDENTITY, epilogue=epilogue)


@pytest.mark.parametrize(
    "dtype",
    [
        *(torch.uint8, torch.int16, torch.uint16, torch.int32),
        *(torch.float16, torch.bfloat16, torch.float32, torch.float64),
    ],
)
def test_weighted_maps(dtype: torch.dtype) -> None:
    assert Program(dtype, RESIZED).sampled == dtype
    assert Program(dtype, Axes((AxisMap((Area(3),)),))).target == dtype


@pytest.mark.parametrize("dtype", [torch.bool, torch.int64, torch.complex128])
def test_index_only_maps_take_any_dtype(dtype: torch.dtype) -> None:
    assert Program(dtype, Axes((AxisMap((Flip(),)),))).target == dtype


def test_dtypes() -> None:
    program = Program(
        torch.int16,
        RESIZED,
        prologue=Binary("div", Cast(VALUE, torch.float16), Number(2)),
        epilogue=Cast(Binary("add", VALUE, Channel(0)), torch.float64),
    )
    assert (program.source, program.sampled, program.target) == (torch.int16, torch.float16, torch.float64)


@given(programs())
@quick
def test_target_is_the_dtype_of_the_epilogue_after_the_prologue(program: Program) -> None:
    assert program.sampled == dtype_of(program.prologue, program.source)
    assert program.target == dtype_of(program.epilogue, program.sampled)
    assert len({program, program}) == 1


def test_border_numbers_may_skip() -> None:
    """An axis that has no pixel of the first border."""
    axes = Axes((*padded(2).maps, *padded(1).maps))
    Program(torch.float32, axes, epilogue=normalise(VALUE), borders=(Border(0.0), Border(1.0, stored=True)))
