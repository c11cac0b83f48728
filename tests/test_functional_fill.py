"""`fill` and `fill_rule` of `grid_sample` and `affine_sample`: what users see of them."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import forward_ad

import polyphase.functional as P
from polyphase import errors
from polyphase.calls import plain_torch
from polyphase.decompositions import own
from polyphase.sampling.warps import FILL_RULES, Warp
from tests.support.samples import image

HALF_OVER = torch.tensor([[[1.0, 0.0, -0.25], [0.0, 1.0, 0.0]]])  # of four columns: half a pixel to the left
SIZE = (2, 3, 5, 9)


def theta(dtype: torch.dtype = torch.float64) -> Tensor:
    """Turned and moved: pixels inside, across every edge and outside, none at a whole or half pixel."""
    return torch.tensor([[[1.1, 0.3, 0.21], [-0.2, 1.3, 0.13]], [[0.9, -0.4, -0.33], [0.5, 1.2, 0.41]]], dtype=dtype)


def grid(dtype: torch.dtype = torch.float64) -> Tensor:
    return F.affine_grid(theta(), [2, 3, 7, 11], align_corners=False).to(dtype)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
@pytest.mark.parametrize(("rule", "expected"), [("blend", 125), ("constant", 150), ("edge", 100)])
def test_a_pixel_half_over_the_edge(rule: str, expected: int, dtype: torch.dtype) -> None:
    x = torch.full((1, 1, 4, 4), 100, dtype=dtype)
    found = P.affine_sample(x, HALF_OVER, (1, 1, 4, 4), fill=200, fill_rule=rule)
    assert found[0, 0, 1].tolist() == [expected, 100, 100, 100]
    further = torch.tensor([[[1.0, 0.0, -1.0], [0.0, 1.0, 0.0]]])
    assert P.affine_sample(x, further, (1, 1, 4, 4), fill=200, fill_rule=rule)[0, 0, 1].tolist() == [200, 200, 100, 100]


def test_ties_of_bytes_are_rounded_to_even_after_the_fill() -> None:
    x = torch.tensor([[[[1, 2, 4, 7]]]], dtype=torch.uint8)
    found = P.affine_sample(x, HALF_OVER, (1, 1, 1, 4), fill=10, fill_rule="constant")
    assert found.flatten().tolist() == [6, 2, 3, 6]  # 5.5, 1.5, 3 and 5.5
    assert P.affine_sample(x, HALF_OVER, (1, 1, 1, 4), fill=-300, fill_rule="constant")[0, 0, 0, 0] == 0


@pytest.mark.parametrize("mode", ["bilinear", "bicubic", "nearest"])
@pytest.mark.parametrize("rule", FILL_RULES)
def test_a_fill_of_each_channel(mode: str, rule: str) -> None:
    x = image(SIZE, torch.float64)
    fill = (3.0, -1.5, 200.0)
    found = P.grid_sample(x, grid(), mode, fill=fill, fill_rule=rule)
    for channel, value in enumerate(fill):
        alone = P.grid_sample(x[:, channel : channel + 1], grid(), mode, fill=[value], fill_rule=rule)
        torch.testing.assert_close(found[:, channel : channel + 1], alone)


def test_nearest_of_integers() -> None:
    """Fractions are rounded, and what is too great is the greatest."""
    x = image((1, 2, 4, 4), torch.int16)
    away = torch.full((1, 1, 1, 2), 7.0)
    assert P.grid_sample(x, away, "nearest", fill=(2.5, 1e9)).flatten().tolist() == [2, 32767]
    assert P.grid_sample(x > 3, away, "nearest", fill=0.25).flatten().tolist() == [True, True]
    assert P.grid_sample(x.to(torch.complex64), away, "nearest", fill=0.25).flatten().tolist() == [0.25, 0.25]


def test_calls_of_other_sizes_and_numbers() -> None:
    """One after the other: what was bound for one is not used for another."""
    for fill in (1.0, 0.0, (1.0, 2.0), (1.0, 2.0), 1.0, None, 1):
        for shape in ((1, 2, 5, 6), (1, 2, 7, 4), (1, 2, 5, 6)):
            x = image(shape, torch.float32)
            at = torch.full((1, 1, 3, 2), 5.0)
            expected = torch.tensor(0.0 if fill is None else fill).expand(2).reshape(1, 2, 1, 1).expand(1, 2, 1, 3)
            assert torch.equal(P.grid_sample(x, at, fill=fill), expected)
    with pytest.raises(errors.WrongSizeError, match=r"fill has 2 numbers .* 3 channels"):
        P.grid_sample(image((1, 3, 5, 6), torch.float32), at, fill=(1.0, 2.0))


def test_lists_of_images() -> None:
    images = [image((1, 3, n, n + 1), torch.float32) for n in (5, 8)]
    found = P.affine_sample(images, theta(torch.float32)[:1], (1, 3, 6, 7), fill=(1, 2, 3))
    for one, of in zip(found, images, strict=True):
        assert torch.equal(one, P.affine_sample(of, theta(torch.float32)[:1], (1, 3, 6, 7), fill=(1, 2, 3)))


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"fill": 1, "padding_mode": "border"}, errors.WrongArgumentError, "use padding_mode 'zeros'"),
        ({"fill": 1, "fill_rule": "blur"}, errors.WrongArgumentError, "choose one of: blend, constant, edge"),
        ({"fill_rule": None}, errors.WrongArgumentError, "choose one of: blend, constant, edge"),
        ({"fill": (1.0, 2.0)}, errors.WrongSizeError, "one for each of its 3 channels"),
        ({"fill": ()}, errors.WrongArgumentTypeError, "give a number, or a tuple"),
        ({"fill": "red"}, errors.WrongArgumentTypeError, "give a number, or a tuple"),
        ({"fill": torch.ones(3)}, errors.WrongArgumentTypeError, "give a number, or a tuple"),
        ({"fill": float("nan")}, errors.WrongArgumentError, "give finite numbers"),
        (
            {"fill": 1e39},
            errors.WrongArgumentError,
            r"torch.float32 image; give finite numbers, of 3.4\d+e\+38 at most",
        ),
        ({"fill": 10**400}, errors.WrongArgumentTypeError, "fill has a number beyond the greatest float"),
    ],
)
def test_mistakes(given: dict[str, Any], error: type[Exception], message: str) -> None:
    x = image(SIZE, torch.float32)
    with pytest.raises(error, match=message):
        P.grid_sample(x, grid(torch.float32), **given)
    with pytest.raises(error, match=message):
        P.affine_sample(x, theta(torch.float32), (2, 3, 4, 4), **given)


def test_a_fill_that_only_float64_holds() -> None:
    away = torch.full((1, 1, 1, 2), 7.0, dtype=torch.float64)
    assert P.grid_sample(torch.rand(1, 1, 4, 4, dtype=torch.float64), away, fill=1e39).item() == 1e39


# ---- derivatives


def of_grid(mode: str, rule: str) -> Any:
    return partial(P.grid_sample, mode=mode, fill=(3.0, -0.5, 0.1), fill_rule=rule)


@pytest.mark.parametrize("rule", FILL_RULES)
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_gradients(mode: str, rule: str) -> None:
    x, at = image(SIZE, torch.float64).requires_grad_(), grid().requires_grad_()
    assert torch.autograd.gradcheck(of_grid(mode, rule), (x, at))
    matrices = theta().requires_grad_()
    by_matrix = partial(P.affine_sample, size=(2, 3, 4, 6), mode=mode, fill=7.0, fill_rule=rule)
    assert torch.autograd.gradcheck(by_matrix, (x, matrices))


@pytest.mark.parametrize("rule", FILL_RULES)
def test_derivatives_of_derivatives_and_tangents(rule: str) -> None:
    x, at = image((1, 3, 3, 4), torch.float64).requires_grad_(), grid()[:1, :2, :3].contiguous().requires_grad_()
    assert torch.autograd.gradgradcheck(of_grid("bilinear", rule), (x, at))
    with forward_ad.dual_level():
        both = [forward_ad.make_dual(one, torch.ones_like(one)) for one in (x.detach(), at.detach())]
        tangent = forward_ad.unpack_dual(of_grid("bilinear", rule)(*both)).tangent
    _, expected = torch.func.jvp(
        lambda x, at: plain_torch.warp(x, at, Warp("grid", fill=(3.0, -0.5, 0.1), fill_rule=rule)),
        (x.detach(), at.detach()),
        (torch.ones_like(x), torch.ones_like(at)),
    )
    torch.testing.assert_close(tangent, expected)


@pytest.mark.parametrize("needed", [(True, False), (False, True)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("rule", FILL_RULES)
def test_gradients_are_the_plain_twins(rule: str, dtype: torch.dtype, needed: tuple[bool, bool]) -> None:
    x, at = image(SIZE, dtype).requires_grad_(needed[0]), grid(dtype).requires_grad_(needed[1])
    out = P.grid_sample(x, at, fill=2.0, fill_rule=rule)
    gradient = image(tuple(out.shape), dtype, seed=3)
    out.backward(gradient)
    sampler = Warp("grid", fill=(2.0,), fill_rule=rule)
    wide = (gradient.double(), x.detach().double(), at.detach().double())
    for tensor, expected in zip((x, at), plain_torch.warp_gradients(*wide, sampler, needed), strict=True):
        assert (tensor.grad is None) == (expected is None)
        if expected is not None and tensor.grad is not None:
            most = 1e-4 if dtype == torch.float32 else 2e-2
            largest = float(expected.abs().max())
            torch.testing.assert_close(tensor.grad.double(), expected, rtol=most, atol=most * largest)


def test_nearest_has_the_gradient_of_what_it_takes() -> None:
    x, at = image(SIZE, torch.float32).requires_grad_(), grid(torch.float32).requires_grad_()
    P.grid_sample(x, at, "nearest", fill=9.0).sum().backward()
    expected, *_ = torch.autograd.grad(F.grid_sample(x, at, "nearest", align_corners=False).sum(), x)
    torch.testing.assert_close(x.grad, expected)
    assert at.grad is not None
    assert not at.grad.any()


# ---- transforms, graphs, other devices


@pytest.mark.parametrize("fill", [2.0, (1.0, 2.0, 3.0)])
@pytest.mark.parametrize("in_dims", [(0, None), (None, 0), (0, 0)])
def test_vmap(in_dims: tuple[int | None, int | None], fill: Any) -> None:
    x, at = image((4, *SIZE), torch.float32), torch.stack([grid(torch.float32) * s for s in (1, 0.5, 2, 1.5)])
    inputs = [one if dim == 0 else one[0] for one, dim in zip((x, at), in_dims, strict=True)]
    found = torch.func.vmap(partial(P.grid_sample, fill=fill), in_dims)(*inputs)
    for n in range(4):
        of, to = (each[n] if dim == 0 else each for each, dim in zip(inputs, in_dims, strict=True))
        torch.testing.assert_close(found[n], P.grid_sample(of, to, fill=fill))


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "polyphase"])
def test_compiled(backend: str) -> None:
    def both(x: Tensor, at: Tensor, matrices: Tensor) -> tuple[Tensor, Tensor]:
        first = P.grid_sample(x, at, fill=(1, 2.0, 3), fill_rule="constant")
        return first * 2, P.affine_sample(x, matrices, (2, 3, 6, 5), "nearest", fill=4)

    given = image(SIZE, torch.float32), grid(torch.float32), theta(torch.float32)
    compiled = torch.compile(both, backend=backend, fullgraph=True)
    for got, want in zip(compiled(*given), both(*given), strict=True):
        torch.testing.assert_close(got, want)


def test_compiled_gradients() -> None:
    x, at = image(SIZE, torch.float32), grid(torch.float32)

    def loss(x: Tensor, at: Tensor) -> Tensor:
        return (P.grid_sample(x, at, fill=5.0) ** 2).sum()

    expected = torch.func.grad(loss, (0, 1))(x, at)
    leaves = [one.clone().requires_grad_() for one in (x, at)]
    torch.compile(loss, backend="polyphase", fullgraph=True)(*leaves).backward()
    for leaf, want in zip(leaves, expected, strict=True):
        torch.testing.assert_close(leaf.grad, want, rtol=1e-4, atol=1e-3)


def test_without_data_and_without_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    x, at = image(SIZE, torch.float32), grid(torch.float32)
    assert P.grid_sample(x.to("meta"), at.to("meta"), fill=1.0).shape == (2, 3, 7, 11)
    expected = P.grid_sample(x, at, fill=(1, 2, 3))
    from polyphase.ops import whole_calls

    monkeypatch.setattr(whole_calls, "_have_kernels", lambda image: False)
    torch.testing.assert_close(whole_calls.grid_sample(x, at, "bilinear", "zeros", False, (1, 2, 3), "blend"), expected)
    matrices, size = theta(torch.float32), (2, 3, 4, 4)
    found = whole_calls.affine_sample(x, matrices, size, "bilinear", "zeros", False, 1.0, "edge")
    torch.testing.assert_close(found, P.affine_sample(x, matrices, size, fill=1.0, fill_rule="edge"))


def test_exported_without_us() -> None:
    """To core ATen's operators."""

    class Both(torch.nn.Module):
        def forward(self, x: Tensor, at: Tensor) -> tuple[Tensor, Tensor]:
            return P.grid_sample(x, at, fill=(1, 2.0, 3)), P.grid_sample(x, at, "nearest", fill=4)

    given = image(SIZE, torch.float32), grid(torch.float32)
    table = {**torch.export.default_decompositions(), **own.table()}
    exported = torch.export.export(Both(), given).run_decompositions(table)
    assert not any("polyphase" in str(node.target) for node in exported.graph.nodes)
    for got, want in zip(exported.module()(*given), Both()(*given), strict=True):
        torch.testing.assert_close(got, want)
