"""`accelerate(check=True)`: what it finds, what it says, and what it passes over."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from polyphase import accelerate
from polyphase.compile.checked import check
from polyphase.compile.overrides import Override, Taken
from polyphase.errors import DiffersFromEagerError


def image(dtype: torch.dtype = torch.float32) -> Tensor:
    values = torch.rand(1, 2, 9, 31)
    return values.to(dtype) if dtype.is_floating_point else (values * 255).to(dtype)


@contextmanager
def wrong(monkeypatch: pytest.MonkeyPatch, spoil: Callable[[Tensor], Tensor]) -> Iterator[None]:
    """Kernels whose results are spoilt."""
    found = Override._find

    def spoilt(override: Override, args: tuple[Any, ...]) -> Taken | None:
        taken = found(override, args)
        return taken and taken._replace(run=lambda *tensors: spoil(taken.run(*tensors)))

    with monkeypatch.context() as patch:
        patch.setattr(Override, "_find", spoilt)
        yield


def resized(x: Tensor) -> Tensor:
    return F.interpolate(x, (5, 8), mode="bilinear", antialias=True)


def flipped(x: Tensor) -> Tensor:
    return torch.flip(x, (-1,))


def one_off(result: Tensor) -> Tensor:
    result[0, 1, 2, 3] += 1
    return result


def slightly_off(result: Tensor) -> Tensor:
    return result * (1 + 1e-4)


def negated(result: Tensor) -> Tensor:
    return result.neg_()


def laid_out_otherwise(result: Tensor) -> Tensor:
    return result.contiguous(memory_format=torch.channels_last)


PLANTED = {
    "floats": (resized, torch.float32, slightly_off),
    "bytes": (resized, torch.uint8, one_off),
    "moved": (flipped, torch.float32, one_off),
    "strides": (flipped, torch.float32, laid_out_otherwise),
}


@pytest.mark.cpu
@pytest.mark.parametrize("name", PLANTED)
def test_a_wrong_kernel_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    function, dtype, spoil = PLANTED[name]
    x = image(dtype)
    with wrong(monkeypatch, spoil):
        with accelerate():
            function(x)
        with accelerate(check=True), pytest.raises(DiffersFromEagerError):
            function(x)


def test_what_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    x = image(torch.uint8)
    x[0, 1, 2, -4] = 7
    said = (
        rf"aten\.flip\(self=uint8 \(1, 2, 9, {x.shape[3]}\) with strides .*, dims=\[-1\]\): 1 of {x.numel()} elements "
        r"differ from those of ATen's own kernel, most at \(0, 1, 2, 3\): 8 instead of 7"
    )
    with wrong(monkeypatch, one_off), accelerate(check=True), pytest.raises(DiffersFromEagerError, match=said):
        flipped(x)


def test_every_bit_of_what_is_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.zeros_like(image())
    with wrong(monkeypatch, negated), accelerate(check=True), pytest.raises(DiffersFromEagerError):
        flipped(x)


def test_as_a_decorator_and_a_switch(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = image(), image()

    @accelerate(check=True)
    def decorated() -> Tensor:
        return flipped(x)

    with wrong(monkeypatch, one_off):
        with pytest.raises(DiffersFromEagerError):
            decorated()
        accelerate(True, check=True)
        try:
            with pytest.raises(DiffersFromEagerError):
                flipped(y)
            accelerate(True)
            flipped(y)
        finally:
            accelerate(False)


@pytest.mark.cpu
def test_gradients_are_checked_too(monkeypatch: pytest.MonkeyPatch) -> None:
    x = image().requires_grad_()
    with accelerate(check=True):
        result = resized(x)
        with wrong(monkeypatch, slightly_off), pytest.raises(DiffersFromEagerError, match="_aa_backward"):
            torch.autograd.grad(result.sum(), x)


KNOWN: dict[str, Callable[[], Tensor]] = {
    "one column": lambda: F.interpolate(torch.arange(4.0).view(1, 1, 4, 1), (2, 1), mode="bilinear", antialias=True),
    "a weight of 0 times NaN": lambda: F.interpolate(torch.tensor([[[0.0, torch.nan]]]), 4, mode="linear"),
    "half precision": lambda: F.interpolate(torch.rand(1, 3, 70, 70).bfloat16(), (130, 140), mode="bilinear"),
    "half precision coordinates": lambda: F.grid_sample(
        torch.rand(1, 2, 90, 90).bfloat16(), torch.rand(1, 8, 8, 2).bfloat16(), align_corners=False
    ),
    "positions at half a pixel": lambda: F.grid_sample(
        torch.rand(1, 3, 512, 512), torch.rand(1, 100, 100, 2) * 2 - 1, mode="bicubic", align_corners=False
    ),
    "a scale that keeps the size": lambda: F.interpolate(torch.rand(1, 1, 2), scale_factor=1.4),
}


@pytest.mark.parametrize("name", KNOWN)
def test_known_errors_of_eager_are_passed_over(name: str) -> None:
    with accelerate(check=True):
        KNOWN[name]()


def test_linear_resizes_of_large_images() -> None:
    """Eager's round their positions otherwise by version and layout."""
    generator = torch.Generator().manual_seed(0)
    for layout in (torch.contiguous_format, torch.channels_last):
        large = torch.rand(1, 4, 1080, 517, generator=generator).contiguous(memory_format=layout)
        with accelerate(check=True):
            F.interpolate(large, (224, 333), mode="bilinear")


def test_large_values_are_compared_by_their_size() -> None:
    """What cancels leaves an error of the greatest value that was read."""
    x = (torch.rand(1, 3, 40, 41) - 0.5) * 1e6
    with accelerate(check=True):
        F.interpolate(x, (90, 77), mode="bicubic")
        F.grid_sample(x, torch.rand(1, 30, 30, 2) * 2 - 1, mode="bicubic", align_corners=False)


def test_windows_that_atens_own_kernel_has_no_room_for() -> None:
    """On CUDA it raises where the shrink is large: then there is nothing to compare with."""
    op, x = torch.ops.aten._upsample_bilinear2d_aa.default, image()

    def own(*args: Any) -> Tensor:
        raise RuntimeError(says)

    says = "Please reduce the scale factor. Too much shared memory required: 70000 vs 49152"
    check(op, (x, [5, 8], False, None, None), resized(x), own, moves=False)
    says = "something else"
    with pytest.raises(RuntimeError, match="something else"):
        check(op, (x, [5, 8], False, None, None), resized(x), own, moves=False)
