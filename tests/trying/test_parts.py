"""How alike results are, and drawn pictures."""

from __future__ import annotations

import pytest
import torch

from polyphase.trying import drawn
from polyphase.trying.sameness import Sameness, compare, image_in, summary

LEVELS = torch.tensor([[10, 20], [30, 40]], dtype=torch.uint8)


@pytest.mark.parametrize(
    ("theirs", "ours", "found"),
    [
        (LEVELS, LEVELS.clone(), Sameness(4)),
        (LEVELS, LEVELS + torch.tensor([0, 1], dtype=torch.uint8), Sameness(4, 2, 1.0, "level")),
        (LEVELS, LEVELS - torch.tensor([3, 0], dtype=torch.uint8), Sameness(4, 2, 3.0, "levels")),
        ((LEVELS, {"label": 3}), (LEVELS, {"label": 3}), Sameness(4)),
        (torch.tensor([1.0, float("nan")]), torch.tensor([1.0, float("nan")]), Sameness(2)),
    ],
)
def test_sameness(theirs: object, ours: object, found: Sameness) -> None:
    assert compare(theirs, ours) == found


@pytest.mark.parametrize(
    ("theirs", "ours", "says"),
    [
        (LEVELS, LEVELS[:1], "theirs is Tensor (2, 2) of torch.uint8, ours Tensor (1, 2) of torch.uint8"),
        (LEVELS, LEVELS.int(), "of torch.int32"),
        ((LEVELS, 3), (LEVELS, 4), "theirs is 3, ours 4"),
        ((LEVELS, 3), LEVELS, "of another structure"),
        (torch.tensor([1.0]), None, "ours None"),
    ],
)
def test_what_cannot_be_compared(theirs: object, ours: object, says: str) -> None:
    found = compare(theirs, ours)
    assert says in found.problem
    assert not found.is_equal
    assert summary([found]).startswith("not the same: ")


def test_differences_of_floats_are_said_by_their_range() -> None:
    theirs = torch.linspace(-1, 1, 101)
    ours = theirs.clone()
    ours[50] += 0.02
    found = summary([compare(theirs, ours), compare(theirs, theirs)])
    assert (
        found
        == "1 of 2 the same to the last bit; 0.5 % of all values differ, by at most 0.02 (1 % of the range of values)"
    )
    off = compare(torch.tensor([1.0]), torch.tensor([float("nan")]))
    assert (off.differing, off.most) == (1, float("inf"))


def test_the_picture_in_a_result() -> None:
    image = torch.zeros(3, 4, 5)
    found = image_in(({"label": torch.tensor(3)}, torch.zeros(7, 7, 7), image[None]))
    assert found is not None
    assert torch.equal(found, image)
    assert image_in({"label": 3}) is None
    numpy = pytest.importorskip("numpy")
    found = image_in(numpy.zeros((4, 5, 3)))
    assert found is not None
    assert found.shape == (3, 4, 5)


def test_drawn_pictures() -> None:
    first, again, other = drawn.picture(0), drawn.picture(0), drawn.picture(1)
    assert torch.equal(first, again)
    assert first.dtype == torch.uint8
    assert tuple(first.shape[1:]) == drawn.SIZES[0]
    assert tuple(other.shape[1:]) == drawn.SIZES[1]
    assert not torch.equal(drawn.picture(len(drawn.SIZES)), first)
    assert first.unique().numel() > 200
