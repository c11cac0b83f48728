"""PyTorch's own samples (OpInfo) on `polyphase.functional`, in every dtype they list for the CPU.

Each sample as it is, and not contiguous or lazily conjugated, as PyTorch's own tests make them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.conformance.checks import Case
from tests.conformance.functional_checks import backward_failures, forward_failures
from tests.conformance.test_opinfo import LARGE, every_sample, function_of_tensors, thinned, without_tensors
from tests.conformance.test_opinfo import OPERATORS as IN_OPINFO

NAMES = (
    "nn.functional.interpolate",
    "nn.functional.upsample_bilinear",
    "nn.functional.upsample_nearest",
    "_upsample_bilinear2d_aa",
    "flip",
    "fliplr",
    "flipud",
    "nn.functional.pad",
    "nn.functional.grid_sample",
    "grid_sampler_2d",
    "grid_sampler_3d",
)
OPERATORS = {name: op for name, op in IN_OPINFO.items() if op.name in NAMES}


def variants(backward: bool) -> list[Any]:
    """One test for every operator variant and dtype."""
    found = []
    for name, op in OPERATORS.items():
        dtypes = op.supported_backward_dtypes("cpu") if backward else op.supported_dtypes("cpu")
        found += [pytest.param(name, dtype, id=f"{name}-{dtype}".replace("torch.", "")) for dtype in dtypes]
    return sorted(found, key=lambda variant: str(variant.id))


def cases(name: str, dtype: torch.dtype) -> Iterator[Case]:
    op = OPERATORS[name]
    index_only = any(word in name for word in ("nearest", "flip", "pad"))
    torch.manual_seed(0)
    for sample in op.sample_inputs("cpu", dtype, requires_grad=False, set_seed=False):
        if sample.kwargs.get("scales_h") is not None:
            continue  # a size and scales that contradict it, which only the ATen overload takes
        if sample.input.numel() > LARGE:
            continue  # `tests/test_functional_warp.py` has others
        for layout, one in laid_out(sample):
            label = f"{name} {layout} {tuple(one.input.shape)} {without_tensors(one.args)} {one.kwargs}"
            yield Case(label, *function_of_tensors(op, one), index_only)


def laid_out(sample: Any) -> Iterator[tuple[str, Any]]:
    yield "as it is", sample
    yield "not contiguous", sample.noncontiguous()
    if sample.input.is_complex():
        yield "lazily conjugated", sample.transform(lambda value: value.conj() if isinstance(value, Tensor) else value)


def failures(name: str, dtype: torch.dtype, check: Callable[[Case], list[str]], all_of_them: bool) -> str:
    found = [check(case) for case in thinned(cases(name, dtype), dtype, all_of_them, turn=1)]
    assert found
    return "\n".join(failure for of_case in found for failure in of_case)


@every_sample
@pytest.mark.parametrize(("name", "dtype"), variants(backward=False))
def test_forward(name: str, dtype: torch.dtype, all_of_them: bool) -> None:
    assert failures(name, dtype, forward_failures, all_of_them) == ""


@every_sample
@pytest.mark.parametrize(("name", "dtype"), variants(backward=True))
def test_backward(name: str, dtype: torch.dtype, all_of_them: bool) -> None:
    assert failures(name, dtype, backward_failures, all_of_them) == ""


def test_every_operator_was_found() -> None:
    assert {op.name for op in OPERATORS.values()} == set(NAMES)


def test_opinfo_has_no_error_inputs_of_our_functions() -> None:
    """So `test_functional_outcomes.py` makes its own. fliplr and flipud refuse some ranks before they flip."""
    with_errors = {name for name, op in OPERATORS.items() if op.error_inputs_func is not None}
    assert with_errors == {"fliplr", "flipud"}
