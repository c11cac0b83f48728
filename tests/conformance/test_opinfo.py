"""PyTorch's own samples (OpInfo) on our decompositions, in every dtype they list for the CPU.

PyTorch's tests allow uint8 bilinear and bicubic to be off by one; these do not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.conformance.checks import Case, backward_failures, forward_failures

pytest.importorskip("expecttest", reason="OpInfo needs the package expecttest")
from torch.testing._internal.common_methods_invocations import op_db

NAMES = (
    "nn.functional.interpolate",
    "nn.functional.upsample_bilinear",
    "nn.functional.upsample_nearest",
    "_upsample_bilinear2d_aa",
    "nn.functional.grid_sample",
    "grid_sampler_2d",
    "grid_sampler_3d",
    "nn.functional.affine_grid",  # torch 2.13 has no samples of it
    "flip",
    "fliplr",
    "flipud",
    "nn.functional.pad",
    "constant_pad_nd",
)
UNTOUCHED = (
    "nn.functional.interpolate.area",
    "nn.functional.pad.constant",
    "nn.functional.pad.circular",
    "constant_pad_nd",
)
"""Operators without a decomposition of ours."""

LARGE = 100_000
"""Pixels. grid_sampler_3d has samples of five million, which take seconds each: `full` only."""

OPERATORS = {op.full_name: op for op in op_db if op.name in NAMES}


def variants(backward: bool) -> list[Any]:
    """One test for every operator variant and dtype."""
    found = []
    for name, op in OPERATORS.items():
        dtypes = op.supported_backward_dtypes("cpu") if backward else op.supported_dtypes("cpu")
        for dtype in sorted(dtypes, key=str):
            if not backward or dtype.is_floating_point:
                found.append(pytest.param(name, dtype, id=f"{name}-{dtype}".replace("torch.", "")))
    return found


def cases(name: str, dtype: torch.dtype, large: bool = False) -> Iterator[Case]:
    op = OPERATORS[name]
    index_only = any(word in name for word in ("nearest", "flip", "pad"))
    torch.manual_seed(0)  # once: for every sample, it takes as long as the test itself
    for sample in op.sample_inputs("cpu", dtype, requires_grad=False, set_seed=False):
        if (sample.input.numel() > LARGE) != large:
            continue
        label = f"{name} {tuple(sample.input.shape)} {without_tensors(sample.args)} {sample.kwargs}"
        function, tensors = function_of_tensors(op, sample)
        yield Case(label, function, tensors, index_only, name in UNTOUCHED)


def function_of_tensors(op: Any, sample: Any) -> tuple[Callable[..., Tensor], tuple[Tensor, ...]]:
    everything = [sample.input, *sample.args]
    places = [place for place, value in enumerate(everything) if isinstance(value, Tensor)]

    def function(*tensors: Tensor) -> Tensor:
        arguments = list(everything)
        for place, tensor in zip(places, tensors, strict=True):
            arguments[place] = tensor
        result: Tensor = op(*arguments, **sample.kwargs)
        return result

    return function, tuple(everything[place] for place in places)


def without_tensors(args: tuple[Any, ...]) -> list[Any]:
    return [tuple(value.shape) if isinstance(value, Tensor) else value for value in args]


def thinned(found: Iterable[Case], dtype: torch.dtype, all_of_them: bool, turn: int = 0) -> list[Case]:
    """Of bytes and of floats every other sample, decompositions the first of two and functions the second (`turn` 1).
    Of other dtypes, which go the same ways, every fifth. In the full run all of them."""
    every = list(found)
    if all_of_them or len(every) < 2:
        return every
    return every[turn :: 2 if dtype in (torch.uint8, torch.float32) else 5]


every_sample = pytest.mark.parametrize("all_of_them", [False, pytest.param(True, marks=pytest.mark.full)])


@every_sample
@pytest.mark.parametrize(("name", "dtype"), variants(backward=False))
def test_forward(name: str, dtype: torch.dtype, all_of_them: bool) -> None:
    found = thinned(cases(name, dtype), dtype, all_of_them)
    assert "\n".join(failure for case in found for failure in forward_failures(case)) == ""


@every_sample
@pytest.mark.parametrize(("name", "dtype"), variants(backward=True))
def test_backward(name: str, dtype: torch.dtype, all_of_them: bool) -> None:
    found = thinned(cases(name, dtype), dtype, all_of_them)
    assert "\n".join(failure for case in found for failure in backward_failures(case)) == ""


@pytest.mark.full
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_large_forward(dtype: torch.dtype) -> None:
    found = list(cases("grid_sampler_3d", dtype, large=True))
    assert found
    assert "\n".join(failure for case in found for failure in forward_failures(case)) == ""


def test_every_operator_was_found() -> None:
    missing = {name for name in NAMES if not any(op.name == name for op in OPERATORS.values())}
    assert missing <= {"nn.functional.affine_grid"}
    assert set(UNTOUCHED) <= set(OPERATORS)
