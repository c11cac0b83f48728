"""`polyphase::attention` as an operator: its schema, its shapes without data, its derivatives, and its mistakes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from polyphase.errors import WrongInputError
from polyphase.ops.attention import attention, attention_backward

SIZES, POINTS = [3, 4, 2, 2], [2, 1]


def inputs(dtype: torch.dtype = torch.float64) -> list[Any]:
    """Places lie off pixels, where samples have a slope."""
    made = torch.Generator().manual_seed(0)
    shapes = ((2, 16, 2, 3), (2, 5, 2, 3, 2), (2, 5, 2, 3))
    return [torch.rand(shape, generator=made, dtype=dtype).mul(2).sub(1).requires_grad_() for shape in shapes]


@pytest.mark.parametrize("align_corners", [False, True])
def test_gradients(align_corners: bool) -> None:
    value, places, weights = inputs()
    further = places.mul(1.1).detach().requires_grad_()

    def attended(*given: Tensor) -> Tensor:
        result: Tensor = attention(*given, SIZES, POINTS, align_corners)
        return result

    assert torch.autograd.gradcheck(attended, (value, further, weights))


def test_gradients_that_are_not_needed() -> None:
    value, places, weights = inputs()
    result = attention(value.detach(), places, weights.detach(), SIZES, POINTS, False)
    (of_places,) = torch.autograd.grad(result.sum(), [places])
    wanted = torch.autograd.grad(attention(value, places, weights, SIZES, POINTS, False).sum(), [places])
    assert torch.equal(of_places, wanted[0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_torch_asks_of_an_operator(dtype: torch.dtype) -> None:
    given = (*inputs(dtype), SIZES, POINTS, False)
    torch.library.opcheck(attention, given)
    gradient = torch.rand(2, 5, 2, 3, dtype=dtype)
    detached = [one.detach() for one in given[:3]]
    for of_value in (True, False):
        torch.library.opcheck(attention_backward, (gradient, *detached, *given[3:], of_value))


@pytest.mark.parametrize(
    ("sizes", "points", "changed"),
    [
        ([3, 4, 2, 3], POINTS, {}),
        (SIZES, [2, 2], {}),
        ([3, 4, 2, 2, 0, 1], [2, 1, 0], {}),
        (SIZES, POINTS, {1: (2, 5, 1, 3, 2)}),
        (SIZES, POINTS, {2: (1, 5, 2, 3)}),
        (SIZES, POINTS, {0: (2, 16, 6)}),
    ],
)
def test_mistakes(sizes: list[int], points: list[int], changed: dict[int, tuple[int, ...]]) -> None:
    given = [torch.rand(changed.get(i, tuple(one.shape))) for i, one in enumerate(inputs())]
    with pytest.raises(WrongInputError, match="attention to a value"):
        attention(*given, sizes, points, False)
    with pytest.raises(WrongInputError):
        attention_backward(torch.rand(2, 5, 2, 3), *given, sizes, points, False, True)


def test_dtypes_that_differ() -> None:
    value, places, weights = (one.detach() for one in inputs())
    with pytest.raises(WrongInputError, match="of one dtype"):
        attention(value.float(), places, weights, SIZES, POINTS, False)
