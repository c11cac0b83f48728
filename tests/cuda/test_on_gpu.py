"""The script for machines with a GPU tries itself on the CPU, and finds what is wrong."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import polyphase.functional as P
from tests.cuda import on_gpu
from tests.cuda.judging import Errors, Found, exact_failure, float_failure, tie_failure
from tests.cuda.random_calls import Call, draw, placed
from tests.support.samples import LAYOUTS


def test_calls_are_the_same_for_the_same_number() -> None:
    assert str(draw(3, 17)) == str(draw(3, 17))
    assert str(draw(3, 17)) != str(draw(4, 17))
    drawn = [draw(0, number) for number in range(400)]
    assert {call.function.__name__ for call in drawn} == {
        *("interpolate", "flip", "pad", "crop", "warped", "sampled_at")
    }
    assert any(call.backward for call in drawn)
    assert any(call.broken for call in drawn)
    assert {call.layout for call in drawn} == set(LAYOUTS)


def test_images_are_placed_with_their_strides() -> None:
    for number in range(60):
        call = draw(1, number)
        image = call.image()
        there = placed(image, "cpu", shifted=True)
        assert there.stride() == image.stride()
        assert there.data_ptr() % 16 == there.element_size() % 16
        torch.testing.assert_close(there, image, rtol=0, atol=0, equal_nan=True)


def test_the_cpu_against_itself() -> None:
    found = Found()
    on_gpu.random_calls(range(6), 0, "cpu", found)
    assert (found.checked["random"], found.failures) == (6, [])
    other = Found()
    other.add(found.to_json())
    assert (other.checked, other.errors.sums) == (found.checked, found.errors.sums)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_a_wrong_pixel_is_found(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    right = P.interpolate
    calls: list[Tensor] = []

    def interpolate(input: Tensor, **options: object) -> Tensor:
        result: Tensor = right(input, **options).clone()  # type: ignore[arg-type]
        calls.append(result)
        if len(calls) == 2:  # which is the device's
            result[0, 0, 0, 0] += 1 if dtype == torch.uint8 else 1e-4
        return result

    given = {"shape": (1, 3, 20, 30), "dtype": dtype, "layout": "CF", "seed": 1}
    call = Call(interpolate, {"size": (9, 9), "mode": "bilinear", "antialias": True}, **given)  # type: ignore[arg-type]
    monkeypatch.setattr(on_gpu, "draw", lambda seed, number: call)
    found = Found()
    on_gpu.random_call(0, 0, "cpu", found)
    assert len(found.failures) == 1


def test_judging() -> None:
    want, truth = torch.tensor([0.5, 0.25]), torch.tensor([0.5, 0.25], dtype=torch.float64)
    assert float_failure(want + 1e-7, [want], truth, 10, Errors(), "any") is None
    assert "off by" in str(float_failure(want + 1e-3, [want], truth, 10, Errors(), "any"))
    broken = torch.tensor([0.5, float("nan")])
    assert "NaN" in str(float_failure(broken, [want], truth, 10, Errors(), "any"))
    assert exact_failure(want, want) is None
    many = torch.zeros(1000)
    assert tie_failure(many.index_fill(0, torch.tensor([3]), 1), many, most=1) is None
    assert "off by 2" in str(tie_failure(many.index_fill(0, torch.tensor([3]), 2), many, most=1))
    assert "differ" in str(tie_failure(many + 1, many, most=1))
    assert "instead of" in str(exact_failure(want.double(), want))
