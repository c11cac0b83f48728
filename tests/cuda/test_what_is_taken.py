"""Which calls `accelerate()` takes on CUDA: decided without a device."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from polyphase.calls import binding
from polyphase.calls.rules import rules_of
from polyphase.compile import overrides
from polyphase.compile.recognise import ATEN_OPERATORS
from polyphase.records.facts import Facts
from polyphase.sampling.programs import Program

aten = torch.ops.aten
CPU, CUDA = torch.device("cpu"), torch.device("cuda", 0)
HALF = [torch.float16, torch.bfloat16]


class AskedError(Exception):
    """Ours is to make the call."""


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Program, tuple[Facts, ...]]]:
    """What calls were asked for, of a device that is not there."""
    found: list[tuple[Program, tuple[Facts, ...]]] = []

    def bound(program: Program, inputs: tuple[Facts, ...]) -> Any:
        found.append((program, inputs))
        raise AskedError

    monkeypatch.setattr(binding, "bound", bound)
    return found


def is_taken(op: Any, device: torch.device, *args: Any) -> bool:
    try:
        return overrides._sampled(op, device, args) is not None
    except AskedError:
        return True


@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("name", ["_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa"])
def test_half_precision_is_antialiased_on_cuda(name: str, dtype: torch.dtype, asked: list[Any]) -> None:
    """ATen's own kernel has no room for large shrinks; on the CPU it refuses such images."""
    image, gradient = (torch.empty(shape, dtype=dtype, device="meta") for shape in ((1, 5, 5, 1024), (1, 5, 16, 5)))
    forward, backward = (getattr(aten, name + kind).default for kind in ("", "_backward"))
    assert is_taken(forward, CUDA, image, [16, 5], False, None, None)
    assert is_taken(backward, CUDA, gradient, [16, 5], [1, 5, 5, 1024], False, None, None)
    for program, (facts, *_) in asked:
        assert (program.source, program.target, facts.device) == (dtype, dtype, CUDA)
    assert not is_taken(forward, CPU, image, [16, 5], False, None, None)
    assert not is_taken(backward, CPU, gradient, [16, 5], [1, 5, 5, 1024], False, None, None)


def test_what_else_is_taken_is_the_same_everywhere() -> None:
    """But for half precision, of what antialiases."""
    for op, operator in ATEN_OPERATORS.items():
        for dtype in (torch.uint8, torch.int32, torch.bool, torch.float32, torch.float64, *HALF):
            taken = [operator.takes(dtype, rules_of(device)) for device in (CPU, CUDA)]
            assert taken[0] == taken[1] or (taken == [False, True] and dtype in HALF and "_aa" in str(op)), (op, dtype)
