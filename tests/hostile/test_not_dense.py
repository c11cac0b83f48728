"""Tensors that are not dense: torch's own answer or a clear error, first and when the same call comes again."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import polyphase
import polyphase.functional as P
from polyphase.errors import PolyphaseError
from tests.hostile.forked import lines_of

DENSE, GRID, THETA, SIZE = torch.rand(2, 3, 6, 6), torch.rand(2, 4, 4, 2), torch.rand(2, 2, 3), (2, 3, 4, 4)


class Subclass(Tensor):
    pass


KINDS: dict[str, Callable[[], Tensor]] = {
    "nested": lambda: torch.nested.nested_tensor([torch.rand(3, 6, 6), torch.rand(3, 5, 5)]),
    "nested, recorded": lambda: torch.nested.nested_tensor([torch.rand(3, 6, 6)] * 2, requires_grad=True),
    "jagged": lambda: torch.nested.nested_tensor([torch.rand(3, 6), torch.rand(5, 6)], layout=torch.jagged),
    "sparse": lambda: DENSE.to_sparse(),
    "sparse rows": lambda: DENSE[0, 0].to_sparse_csr(),
    "quantised": lambda: torch.quantize_per_tensor(DENSE, 0.1, 0, torch.quint8),
    "quantised by channel": lambda: torch.quantize_per_channel(
        DENSE, torch.tensor([0.1] * 3), torch.zeros(3), 1, torch.qint8
    ),
    "mkldnn": lambda: DENSE.to_mkldnn(),
    "meta": lambda: DENSE.to("meta"),
    "subclass": lambda: DENSE.as_subclass(Subclass),
    "parameter": lambda: torch.nn.Parameter(DENSE),
    "lazily negative": lambda: torch._neg_view(DENSE),
    "zeros that are not there": lambda: torch._efficientzerotensor(2, 3, 6, 6),
}
CALLS: dict[str, tuple[Callable[..., Tensor], Callable[..., Tensor], tuple[Any, ...]]] = {
    "interpolate": (P.interpolate, F.interpolate, ((4, 4),)),
    "flip": (P.flip, torch.flip, ((1,),)),
    "pad": (P.pad, F.pad, ((1, 1),)),
    "grid_sample": (P.grid_sample, F.grid_sample, (GRID,)),
    "crop": (P.crop, lambda image, *where: image[..., 1:3, 1:3], (1, 1, 2, 2)),
    "affine_grid": (P.affine_grid, F.affine_grid, (SIZE,)),
    "affine_sample": (
        P.affine_sample,
        lambda image, theta, size: F.grid_sample(image, F.affine_grid(theta, size)),
        (THETA, SIZE),
    ),
}


def outcome(function: Callable[..., Tensor], *given: Any) -> Any:
    """What is to be compared: a result's kind, or an error."""
    try:
        result = function(*given)
    except Exception as error:
        return error
    return type(result), result.layout, result.dtype, result.is_quantized, tuple(result.shape)


def is_right(got: Any, eager: Any) -> bool:
    """Torch's own result, or an error that is torch's or ours where it has one."""
    if isinstance(eager, Exception):
        return isinstance(got, (type(eager), PolyphaseError))
    return bool(got == eager)


def _first_words(outcome: Any) -> str:
    """Torch goes on to list who registered which kernel, which is another then."""
    return repr(outcome)[:60]


def tried(kind: str) -> list[str]:
    """What is wrong with calls on a kind of tensor, as the image and as the other one."""
    wrong = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tensor = KINDS[kind]()
        calls = dict(CALLS)
        calls["grid"] = (lambda grid: P.grid_sample(DENSE, grid), lambda grid: F.grid_sample(DENSE, grid), ())
        calls["theta"] = (
            lambda theta: P.affine_sample(DENSE, theta, SIZE),
            lambda theta: F.affine_grid(theta, list(SIZE)),
            (),
        )
        for _ in range(3):  # so that the same call of a dense one is the latest, and remembered
            for ours, _, given in CALLS.values():
                ours(THETA if ours is P.affine_grid else DENSE, *given)
        for name, (ours, eager, given) in calls.items():
            expected = outcome(eager, tensor, *given)
            for _ in range(2):
                got = outcome(ours, tensor, *given)
                if not is_right(got, expected):
                    wrong.append(f"{name} of {kind}: {got!r}, eager {expected!r}")
            with polyphase.accelerate():
                accelerated = outcome(eager, tensor, *given)
            if _first_words(accelerated) != _first_words(expected):
                wrong.append(f"{name} of {kind}: {accelerated!r} while accelerated, eager {expected!r}")
    return wrong


@pytest.mark.parametrize("kind", KINDS)
def test_eagers_result_or_an_error(kind: str) -> None:
    if "nested" not in kind:
        assert tried(kind) == []
        return
    forked = lines_of(lambda out: out.writelines(f"{line}\n" for line in tried(kind)), seconds=60, most_bytes=1 << 30)
    assert list(forked) == []  # it once ended the process
