from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from polyphase.errors import InvalidStepError, NotNormalFormError
from polyphase.sampling.apply import apply_taps
from polyphase.sampling.axis_maps import AxisMap, AxisPath, NotMerged, Reason, compose, drop_identities
from polyphase.sampling.evaluate import evaluate
from polyphase.sampling.steps import Area, Flip, Nearest, Pad, Resize, Slice, Step, Weighted
from polyphase.sampling.windows import TapArithmetic, eager_arithmetic
from tests.sampling.eager import TRUTH, dense
from tests.sampling.strategies import axis_maps, fitting_maps, index_steps, quick, sizes, steps, weighted_steps

RESIZE = Resize(5, "bilinear")
ARITHMETICS = [TRUTH, eager_arithmetic(torch.float32), eager_arithmetic(torch.uint8)]
ARITHMETIC_IDS = ["float64", "float32", "uint8"]


@pytest.mark.parametrize("arithmetic", ARITHMETICS, ids=ARITHMETIC_IDS)
@given(data=st.data())
@quick
def test_composed_map_is_the_product(arithmetic: TapArithmetic, data: st.DataObject) -> None:
    first, in_size = data.draw(fitting_maps())
    middle = first.output_size(in_size)
    second = data.draw(axis_maps(middle, weighted=first.weighted is None))
    both = compose(first, second)
    if isinstance(both, NotMerged):
        assert second.weighted is not None
        return
    product = dense(second, middle, arithmetic) @ dense(first, in_size, arithmetic)
    assert torch.equal(dense(both, in_size, arithmetic), product)
    assert both.output_size(in_size) == second.output_size(middle)


def filled(image: Tensor, axis_map: AxisMap) -> Tensor:
    """The map applied, its n-th border filled with -n."""
    taps = evaluate(axis_map, int(image.shape[0]), TRUTH)
    image = apply_taps(image, taps, 0)
    return image if taps.border is None else torch.where(taps.border > 0, -taps.border.to(image.dtype), image)


@given(data=st.data())
@quick
def test_composed_borders(data: st.DataObject) -> None:
    first, in_size = data.draw(fitting_maps(first_border=1))
    last = max((step.border for step in first.steps if isinstance(step, Pad)), default=0)
    second = data.draw(axis_maps(first.output_size(in_size), weighted=False, first_border=last + 1))
    both = compose(first, second)
    assert isinstance(both, AxisMap)
    image = torch.rand(in_size, dtype=torch.float64)
    # A sum of as many terms, but torch's order of adding depends on how many sums there are.
    torch.testing.assert_close(filled(image, both), filled(filled(image, first), second), rtol=0, atol=1e-14)


def test_nested_borders() -> None:
    inner, outer = AxisMap((Pad(1, 0, border=1),)), AxisMap((Pad(1, 1, "replicate"), Pad(0, 2, border=2)))
    both = compose(inner, outer)
    assert isinstance(both, AxisMap)
    assert filled(torch.tensor([7.0]), both).tolist() == [-1, -1, 7, 7, -2, -2]


def expected_reason(chain: tuple[Step, ...]) -> Reason | None:
    """The rule, said once more: of the steps before the last weighted one, the first that does not fit it."""
    weighted = [number for number, step in enumerate(chain) if isinstance(step, Weighted)]
    if len(weighted) > 1:
        return Reason.TWO_WEIGHTED
    for step in chain[: weighted[0]] if weighted else ():
        if isinstance(step, Pad):
            return Reason.PAD_BEFORE_WEIGHTED
        if isinstance(step, Nearest):
            return Reason.NEAREST_BEFORE_WEIGHTED
        if isinstance(step, Slice) and step.step > 1:
            return Reason.STEP_BEFORE_WEIGHTED
    return None


@given(data=st.data())
@quick
def test_reason(data: st.DataObject) -> None:
    first, in_size = data.draw(fitting_maps())
    second = data.draw(axis_maps(first.output_size(in_size)))
    both = compose(first, second)
    reason = both.reason if isinstance(both, NotMerged) else None
    assert reason == expected_reason(first.steps + second.steps)


CONFLICTS: list[tuple[Step, Step, Reason]] = [
    (RESIZE, Area(3), Reason.TWO_WEIGHTED),
    (Area(3), RESIZE, Reason.TWO_WEIGHTED),
    (Pad(1, 1, border=1), RESIZE, Reason.PAD_BEFORE_WEIGHTED),
    (Pad(1, 1, "replicate"), Area(3), Reason.PAD_BEFORE_WEIGHTED),
    (Slice(0, 8, 2), RESIZE, Reason.STEP_BEFORE_WEIGHTED),
    (Nearest(3), RESIZE, Reason.NEAREST_BEFORE_WEIGHTED),
]


@pytest.mark.parametrize(("first", "second", "reason"), CONFLICTS)
def test_not_merged(first: Step, second: Step, reason: Reason) -> None:
    conflict = compose(AxisMap((first,)), AxisMap((second,)))
    assert conflict == NotMerged(reason, first, second)
    assert str(conflict) == f"{second} not merged after {first}: {reason.value}"


@pytest.mark.parametrize(("first", "second", "reason"), CONFLICTS)
def test_not_a_normal_form(first: Step, second: Step, reason: Reason) -> None:
    with pytest.raises(NotNormalFormError, match=r"not merged after.*separate programs") as raised:
        AxisMap((first, Flip(), second))
    assert isinstance(raised.value.reason, NotMerged)
    assert raised.value.reason.reason == reason


@pytest.mark.parametrize("first", [Slice(1, 8), Flip()])
def test_crop_and_flip_merge_before_a_weighted_step(first: Step) -> None:
    assert compose(AxisMap((first,)), AxisMap((RESIZE,))) == AxisMap((first, RESIZE))


def test_flip_twice_is_the_identity() -> None:
    assert AxisMap((Flip(), Flip())) == AxisMap(())
    assert AxisMap((Flip(), Flip(), Flip())) == AxisMap((Flip(),))


def test_what_stands_between_two_flips_is_gone_too() -> None:
    assert AxisMap((Flip(), Pad(0, 0, "reflect"), Flip())) == AxisMap(())


@pytest.mark.parametrize("pad", [Pad(0, 0, "reflect"), Pad(0, 0, border=3)])
def test_empty_pad_is_dropped(pad: Pad) -> None:
    assert AxisMap((Flip(), pad)) == AxisMap((Flip(),))


def test_empty_pad_before_a_weighted_step_is_dropped() -> None:
    assert compose(AxisMap((Pad(0, 0, "replicate"),)), AxisMap((RESIZE,))) == AxisMap((RESIZE,))
    assert AxisMap((Pad(0, 0, "replicate"), RESIZE)) == AxisMap((RESIZE,))


@given(data=st.data())
@quick
def test_slice_of_slice(data: st.DataObject) -> None:
    size = data.draw(sizes(60))
    start = data.draw(st.integers(0, size))
    first = Slice(start, data.draw(st.integers(start, size)), data.draw(st.integers(1, 4)))
    middle = AxisMap((first,)).output_size(size)
    begin = data.draw(st.integers(0, max(middle - 1, 0)))
    second = Slice(begin, data.draw(st.integers(begin, middle)), data.draw(st.integers(1, 4)))
    both = AxisMap((first, second))
    assert len(both.steps) == 1
    pixels = torch.arange(size)
    sliced = pixels[first.start : first.stop : first.step][second.start : second.stop : second.step]
    assert torch.equal(evaluate(both, size, TRUTH).index[0], sliced)


def test_empty_slice_behind_the_end_of_a_stepped_slice() -> None:
    chain = AxisMap((Slice(0, 5, 3), Slice(2, 2)))
    assert chain.output_size(5) == 0


def test_slice_beyond_a_slice() -> None:
    with pytest.raises(InvalidStepError, match="slice 1:4 of an axis of 3 pixels; stop is beyond the end"):
        AxisMap((Slice(2, 8, 2), Slice(1, 4)))


@given(fitting_maps(first_border=1))
@quick
def test_tidying_a_tidy_map_changes_nothing(fitting: tuple[AxisMap, int]) -> None:
    axis_map, _ = fitting
    assert AxisMap(axis_map.steps) == axis_map
    assert compose(axis_map, AxisMap(())) == axis_map
    assert compose(AxisMap(()), axis_map) == axis_map


def with_identities(chain: tuple[Step, ...], in_size: int) -> tuple[Step, ...]:
    """The chain with a step that changes nothing before each of its steps and at its end."""
    longer: list[Step] = []
    for step in chain:
        longer += [Slice(0, in_size), step]
        in_size = AxisMap((step,)).output_size(in_size)
    end: Step = Nearest(in_size) if in_size else Slice(0, 0)
    return (*longer, end)


@pytest.mark.parametrize("arithmetic", ARITHMETICS, ids=ARITHMETIC_IDS)
@given(fitting=fitting_maps(first_border=1))
@quick
def test_drop_identities_never_changes_the_taps(arithmetic: TapArithmetic, fitting: tuple[AxisMap, int]) -> None:
    axis_map, in_size = fitting
    longer = AxisMap(with_identities(axis_map.steps, in_size))
    shorter = drop_identities(longer, in_size)
    assert len(shorter.steps) <= len(axis_map.steps)
    before, after = evaluate(longer, in_size, arithmetic), evaluate(shorter, in_size, arithmetic)
    exact = not any(isinstance(step, Resize) and step.filter == "lanczos" for step in axis_map.steps)
    torch.testing.assert_close(before.dense(), after.dense(), rtol=0, atol=0 if exact else 1e-7)
    assert (before.border is None) == (after.border is None)
    if before.border is not None and after.border is not None:
        assert torch.equal(before.border, after.border)


def test_lanczos_at_the_same_size_is_the_identity() -> None:
    assert torch.equal(dense(Resize(9, "lanczos", antialias=True), 9), torch.eye(9, dtype=torch.float64))


@pytest.mark.parametrize(
    "step",
    [
        Slice(0, 6),
        Nearest(6),
        Nearest(6, exact=True),
        Nearest(6, box=(0, 6)),
        Area(6),
        Resize(6, "bilinear"),
        Resize(6, "bicubic", align_corners=True),
        Resize(6, "lanczos", antialias=True),
    ],
)
def test_dropped(step: Step) -> None:
    assert drop_identities(AxisMap((step,)), 6) == AxisMap(())
    assert drop_identities(AxisMap((step,)), 7) == AxisMap((step,))


@pytest.mark.parametrize("step", [Flip(), Slice(0, 6, 2), Nearest(6, scale=1.05), Resize(6, "bicubic", scale=1.05)])
def test_kept(step: Step) -> None:
    assert drop_identities(AxisMap((step,)), 6) == AxisMap((step,))


@given(weighted_steps(), st.data())
@quick
def test_weighted(step: Step, data: st.DataObject) -> None:
    after = data.draw(index_steps(30))
    assert AxisMap((Flip(), step, after)).weighted == step
    assert AxisMap((after,)).weighted is None


@given(steps())
@quick
def test_maps_are_hashable_data(step: Step) -> None:
    assert len({AxisMap((step,)), AxisMap((step,))}) == 1


def test_a_box_is_no_identity() -> None:
    step = Resize(6, "bilinear", box=(0.5, 6.5))
    assert drop_identities(AxisMap((step,)), 7) == AxisMap((step,))
    assert AxisPath.of((step,), 7) is None
