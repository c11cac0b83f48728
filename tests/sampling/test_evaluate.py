from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from polyphase.errors import InvalidStepError
from polyphase.sampling.apply import apply_taps
from polyphase.sampling.axis_maps import AxisMap
from polyphase.sampling.evaluate import evaluate
from polyphase.sampling.steps import Flip, Pad, Resize, Slice
from polyphase.sampling.taps import quantise
from polyphase.sampling.windows import eager_arithmetic, weighted_taps
from tests.sampling.eager import TRUTH
from tests.sampling.strategies import quick, sizes, slices, weighted_steps

UINT8 = eager_arithmetic(torch.uint8)


@given(weighted_steps(), sizes(60), st.data())
@quick
def test_quantise_then_crop_and_flip(step: Resize, in_size: int, data: st.DataObject) -> None:
    crop = data.draw(slices(step.size))
    whole = evaluate(AxisMap((step,)), in_size, UINT8)
    part = evaluate(AxisMap((step, crop, Flip())), in_size, UINT8)
    assert whole.weight is not None
    assert part.weight is not None
    assert part.one is not None
    rows = torch.arange(step.size)[crop.start : crop.stop : crop.step].flip(0)
    assert part.one == whole.one
    assert torch.equal(part.weight, whole.weight[:, rows])
    assert torch.equal(part.index, whole.index[:, rows])


def test_crop_then_quantise_would_differ() -> None:
    """The rows left have smaller weights, hence another precision, hence other pixels."""
    step, crop = Resize(15, "bicubic"), torch.tensor([1])
    right = evaluate(AxisMap((step, Slice(1, 2))), 8, UINT8)
    wrong = quantise(weighted_taps(step, 8, TRUTH).rows(crop))
    assert right.one == torch.tensor(2**14)
    assert wrong.one == torch.tensor(2**15)
    assert not torch.equal(right.dense(), wrong.dense())
    image = torch.randint(0, 256, (4000, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    assert not torch.equal(apply_taps(image, right, 1), apply_taps(image, wrong, 1))


def test_no_steps_are_the_identity() -> None:
    taps = evaluate(AxisMap(()), 5, TRUTH)
    assert taps.weight is None
    assert torch.equal(taps.dense(), torch.eye(5, dtype=torch.float64))


def test_borders_nest() -> None:
    taps = evaluate(AxisMap((Pad(1, 1, border=1), Pad(1, 0, border=2), Flip(), Pad(1, 1, "replicate"))), 2, TRUTH)
    assert taps.border is not None
    assert taps.border.tolist() == [1, 1, 0, 0, 1, 2, 2]


def test_border_around_weighted_taps() -> None:
    taps = evaluate(AxisMap((Resize(3, "bilinear"), Pad(1, 1, border=1))), 6, TRUTH)
    assert taps.border is not None
    assert taps.border.tolist() == [1, 0, 0, 0, 1]
    assert taps.dense().sum(1).tolist() == pytest.approx([0, 1, 1, 1, 0])


@pytest.mark.parametrize("before", [(), (Slice(2, 2),), (Resize(4, "bilinear"), Slice(2, 2))])
def test_border_around_nothing(before: tuple[Resize | Slice, ...]) -> None:
    in_size = 3 if before else 0
    taps = evaluate(AxisMap((*before, Pad(1, 2, border=1))), in_size, TRUTH)
    assert taps.border is not None
    assert taps.border.tolist() == [1, 1, 1]
    assert taps.index.shape == (0, 3)
    assert torch.equal(taps.dense(), torch.zeros(3, in_size, dtype=torch.float64))


def test_border_around_nothing_keeps_the_dtype() -> None:
    taps = evaluate(AxisMap((Pad(1, 2, border=1),)), 0, TRUTH)
    assert apply_taps(torch.zeros(2, 0), taps, 1).is_floating_point()


def test_step_that_does_not_fit() -> None:
    with pytest.raises(InvalidStepError, match="slice 0:9 of an axis of 8 pixels"):
        evaluate(AxisMap((Resize(8, "bilinear"), Slice(0, 9))), 3, TRUTH)


def test_step_that_does_not_fit_what_came_before() -> None:
    with pytest.raises(InvalidStepError, match=r"reflect pad of \(3, 3\) on an axis of 3 pixels"):
        evaluate(AxisMap((Slice(0, 3), Flip(), Pad(3, 3, "reflect"))), 20, TRUTH)
