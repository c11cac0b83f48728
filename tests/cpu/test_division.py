"""Division by something that many values are divided by: by its reciprocal, and yet to the bit what torch computes."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from polyphase.calls import binding
from polyphase.sampling.axis_maps import AxisMap
from polyphase.sampling.pointwise import VALUE, Binary, Cast, Channel, Number
from polyphase.sampling.programs import Axes, Program
from polyphase.sampling.steps import Flip

MOVES = Axes((AxisMap(()), AxisMap((Flip(),))))
EDGES = [0.0, -0.0, 1e-45, -1e-40, 1.1754944e-38, 3.4028235e38, float("inf"), -float("inf"), float("nan"), 1.0]
DIVISORS = [255.0, 0.229, 3.0, -7.0, 1e-3, 2.0**-40, 2.0**40, 2.0**41, 1e-39, 0.0, -0.0, float("inf"), float("nan")]


def any_bits(*shape: int) -> Tensor:
    bits = torch.randint(-(2**31), 2**31, shape, dtype=torch.int64).to(torch.int32)
    return bits.view(torch.float32)


def same_bits(one: Tensor, other: Tensor) -> bool:
    return torch.equal(one.isnan(), other.isnan()) and torch.equal(
        one.nan_to_num(0.0).view(torch.int32), other.nan_to_num(0.0).view(torch.int32)
    )


@pytest.fixture(params=["all bits", "common", "edges in between"])
def values(request: pytest.FixtureRequest) -> Tensor:
    if request.param == "all bits":
        return any_bits(2, 3, 40, 100)
    common = torch.randn(2, 3, 40, 100)
    if request.param == "edges in between":
        common.view(-1)[:: common.numel() // 37] = torch.tensor(EDGES * 4)[
            : len(common.view(-1)[:: common.numel() // 37])
        ]
    return common


@pytest.mark.parametrize("channels_last", [False, True])
def test_by_a_vector(values: Tensor, channels_last: bool, instruction_set: str) -> None:
    if channels_last:
        values = values.contiguous(memory_format=torch.channels_last)
    program = Program(torch.float32, MOVES, epilogue=Binary("div", VALUE, Channel(0)))
    for i in range(len(DIVISORS)):
        divisors = torch.tensor([DIVISORS[(i + k) % len(DIVISORS)] for k in range(3)])
        ours = binding.run(program, values, channels={0: divisors})
        assert same_bits(ours, values.flip(-1) / divisors.view(3, 1, 1))


@pytest.mark.parametrize("channels_last", [False, True])
def test_zeros_by_divisors_out_of_range(channels_last: bool, instruction_set: str) -> None:
    """A reciprocal that is not used is NaN, and so would be its product with 0."""
    zeros = torch.zeros(1, 3, 4, 40)
    if channels_last:
        zeros = zeros.contiguous(memory_format=torch.channels_last)
    program = Program(torch.float32, MOVES, epilogue=Binary("div", VALUE, Channel(0)))
    for divisors in (torch.tensor([1e13, math.inf, 2.0]), torch.tensor([-1e13, 1e-20, -2.0])):
        ours = binding.run(program, zeros, channels={0: divisors})
        assert same_bits(ours, zeros.flip(-1) / divisors.view(3, 1, 1))


def test_by_a_number(values: Tensor, instruction_set: str) -> None:
    for divisor in (255, 0.1, -3.0, 2.0**41, 0.0):
        program = Program(torch.float32, MOVES, epilogue=Binary("div", VALUE, Number(divisor)))
        assert same_bits(binding.run(program, values), values.flip(-1) / divisor)


def test_before_sampling(values: Tensor) -> None:
    divisors = torch.tensor([0.229, 0.224, 0.225])
    prologue = Binary("div", Binary("sub", Binary("div", VALUE, Number(255)), Channel(0)), Channel(0))
    for image in (values, values.contiguous(memory_format=torch.channels_last)):
        ours = binding.run(Program(torch.float32, MOVES, prologue=prologue), image, channels={0: divisors})
        column = divisors.view(3, 1, 1)
        assert same_bits(ours, ((image / 255 - column) / column).flip(-1))


def test_all_bytes_by_many_numbers(instruction_set: str) -> None:
    image = torch.arange(256, dtype=torch.uint8).view(1, 1, 1, 256)
    divided = Binary("div", Cast(VALUE, torch.float32), Channel(0))
    program = Program(torch.uint8, MOVES, epilogue=divided)
    for divisor in [*range(1, 300), *torch.rand(100).tolist()]:
        ours = binding.run(program, image, channels={0: torch.tensor([float(divisor)])})
        assert same_bits(ours, image.flip(-1).float() / torch.tensor(float(divisor)))
