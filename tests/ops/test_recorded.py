"""Tensors that are plain but for their gradients, against the operators. `conformance` holds both against eager."""

from __future__ import annotations

import weakref
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad, gradcheck, gradgradcheck

import polyphase.functional as P
from polyphase.calls import plain
from polyphase.calls.again import never
from polyphase.ops import short_way

CALLS: dict[str, Callable[[Tensor], Tensor]] = {
    "bilinear": lambda x: P.interpolate(x, (7, 3), mode="bilinear"),
    "bicubic": lambda x: P.interpolate(x, (3, 9), mode="bicubic", align_corners=True),
    "antialiased": lambda x: P.interpolate(x, (3, 4), mode="bilinear", antialias=True),
    "by factors": lambda x: P.interpolate(x, scale_factor=2, mode="nearest"),
    "by a list": lambda x: P.interpolate(x, [4, 4], mode="area"),
    "flip": lambda x: P.flip(x, (-1, 2)),
    "flip of nothing": lambda x: P.flip(x, ()),
    "constant pad": lambda x: P.pad(x, (1, 2, -1, 3), value=-0.0),
    "reflect pad": lambda x: P.pad(x, (1, 2, 3, 4), "reflect"),
    "crop": lambda x: P.crop(x, 1, -1, 4, 3),
}


def image(dtype: torch.dtype = torch.float64, memory_format: torch.memory_format = torch.contiguous_format) -> Tensor:
    values = torch.rand(2, 3, 5, 6, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    return values.to(dtype).contiguous(memory_format=memory_format).requires_grad_()


def by_operator(call: Callable[..., Tensor], monkeypatch: pytest.MonkeyPatch, *tensors: Tensor) -> Tensor:
    with monkeypatch.context() as patched:
        for way in (P._INTERPOLATE, P._FLIP, P._PAD, P._GRID_SAMPLE, P._AFFINE_SAMPLE):
            patched.setattr(way, "again", never)
        patched.setattr(short_way, "is_plain", lambda *image, **options: False)
        return call(*tensors)


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last], ids=str)
@pytest.mark.parametrize("dtype", plain.DIFFERENTIABLE, ids=str)
@pytest.mark.parametrize("kind", CALLS)
def test_as_the_operator(
    kind: str, dtype: torch.dtype, memory_format: torch.memory_format, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = image(dtype, memory_format)
    wanted = by_operator(CALLS[kind], monkeypatch, x)
    dense = torch.rand_like(wanted)
    for gradient in (dense, dense, dense.mT.contiguous().mT, dense[:1, :1, :1, :1].expand_as(wanted), dense):
        found = CALLS[kind](x)
        assert torch.equal(found, wanted)
        assert found.stride() == wanted.stride()
        (want,) = torch.autograd.grad(wanted, x, gradient, retain_graph=True)
        (have,) = torch.autograd.grad(found, x, gradient)
        assert torch.equal(have, want)
        assert have.stride() == want.stride()


@pytest.mark.parametrize("kind", [kind for kind in CALLS if kind != "flip of nothing"])
def test_past_the_dispatcher(kind: str) -> None:
    for _ in range(3):
        grad_fn = CALLS[kind](image()).grad_fn
        assert grad_fn is not None
        assert type(grad_fn).__name__ == "_MapsFunctionBackward"


@pytest.mark.parametrize("kind", CALLS)
def test_derivatives(kind: str) -> None:
    assert gradcheck(CALLS[kind], image(), check_forward_ad=True, check_batched_grad=True, fast_mode=True)
    assert gradgradcheck(
        lambda x: CALLS[kind](x) ** 2, image(), check_batched_grad=True, check_fwd_over_rev=True, fast_mode=True
    )


def test_a_gradient_that_needs_one() -> None:
    x = image()
    y = CALLS["bilinear"](x)
    for _ in range(3):
        given = torch.rand_like(y).requires_grad_()
        (gradient,) = torch.autograd.grad(y, x, given, create_graph=True)
        (second,) = torch.autograd.grad(gradient, given, torch.ones_like(gradient))
        torch.testing.assert_close(second, CALLS["bilinear"](torch.ones_like(x)))


def test_forward_mode_that_begins_after_the_call() -> None:
    x = image()
    y = CALLS["antialiased"](x)
    gradient, tangent = torch.rand_like(y), torch.rand_like(y)
    with forward_ad.dual_level():
        (found,) = torch.autograd.grad(y, x, forward_ad.make_dual(gradient, tangent), retain_graph=True)
        found_tangent = forward_ad.unpack_dual(found).tangent
    torch.testing.assert_close(found_tangent, torch.autograd.grad(y, x, tangent)[0])


def test_nothing_is_recorded_without_grad_mode() -> None:
    x = image()
    for _ in range(3):
        with torch.no_grad():
            assert not CALLS["bilinear"](x).requires_grad
        assert CALLS["bilinear"](x).requires_grad
        assert not CALLS["bilinear"](x.detach()).requires_grad


def test_no_image_is_kept() -> None:
    """Nothing of it is needed backward."""
    given = image() * 2
    kept = weakref.ref(given)
    y = CALLS["bilinear"](given)
    del given
    assert kept() is None
    assert y.requires_grad


# ---- warps

WARPS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "bilinear": lambda x, grid: P.grid_sample(x, grid, align_corners=False),
    "bicubic": lambda x, grid: P.grid_sample(x, grid, "bicubic", "border", align_corners=True),
    "nearest": lambda x, grid: P.grid_sample(x, grid, "nearest", "reflection", align_corners=False),
    "affine": lambda x, grid: P.affine_sample(x, grid[:, 0, :3, :].mT, (2, 3, 4, 7), align_corners=False),
}


def grid(dtype: torch.dtype = torch.float64) -> Tensor:
    values = torch.rand(2, 4, 7, 2, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    return (2.4 * values - 1.2).to(dtype).requires_grad_()


@pytest.mark.parametrize("needed", [(True, False), (False, True), (True, True)], ids=str)
@pytest.mark.parametrize("dtype", plain.DIFFERENTIABLE, ids=str)
@pytest.mark.parametrize("kind", WARPS)
def test_warps_as_the_operator(
    kind: str, dtype: torch.dtype, needed: tuple[bool, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    for memory_format in (torch.contiguous_format, torch.channels_last):
        x, at = image(dtype, memory_format).requires_grad_(needed[0]), grid(dtype).requires_grad_(needed[1])
        inputs = [one for one in (x, at) if one.requires_grad]
        wanted = by_operator(WARPS[kind], monkeypatch, x, at)
        for gradient in (
            torch.rand_like(wanted),
            torch.rand_like(wanted),
            torch.ones(1, dtype=dtype).expand_as(wanted),
        ):
            found = WARPS[kind](x, at)
            assert torch.equal(found, wanted)
            wants = torch.autograd.grad(wanted, inputs, gradient, retain_graph=True)
            for have, want in zip(torch.autograd.grad(found, inputs, gradient), wants, strict=True):
                assert torch.equal(have, want)
                assert have.stride() == want.stride()


@pytest.mark.parametrize("kind", WARPS)
def test_warps_past_the_dispatcher(kind: str) -> None:
    for _ in range(3):
        assert type(WARPS[kind](image(), grid()).grad_fn).__name__ == "_WarpFunctionBackward"


@pytest.mark.parametrize("kind", ["bilinear", "bicubic", "affine"])
def test_derivatives_of_warps(kind: str) -> None:
    """The operator's own tests are thorough: here it is what must be told from what these do themselves."""
    x, at = image().detach()[:, :1].requires_grad_(), grid().detach()[:, :, :3].requires_grad_()
    assert gradcheck(WARPS[kind], (x, at), check_forward_ad=True, check_batched_grad=True, fast_mode=True)
    assert gradgradcheck(WARPS[kind], (x, at), fast_mode=True)


def test_integers_have_no_derivatives() -> None:
    bytes_ = torch.randint(0, 256, (2, 3, 5, 6), dtype=torch.uint8)
    for _ in range(3):
        assert not WARPS["bilinear"](bytes_, grid(torch.float32)).requires_grad


def test_what_was_overwritten_is_not_used() -> None:
    x = image() * 2
    y = WARPS["bilinear"](x, grid().detach())
    at = grid()
    by_both = WARPS["bilinear"](x, at)
    x.zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        by_both.sum().backward()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()
