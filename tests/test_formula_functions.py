"""perspective_sample, displacement_sample and pixel_matrix: against grids in memory, and every mistake of a call."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import forward_ad, gradcheck, gradgradcheck

import polyphase
import polyphase.functional as P
from polyphase.errors import NotSupportedError, PolyphaseError
from polyphase.sampling.warps import MODES, PADDINGS
from tests.support.samples import image

SIZE = (2, 3, 5, 6)


def homographies(dtype: torch.dtype = torch.float64, batch: int = 2, seed: int = 0) -> Tensor:
    return torch.eye(3, dtype=dtype) + image((batch, 3, 3), dtype, seed=seed, low=-0.1, high=0.1)


def perspective_grid(matrix: Tensor, size: tuple[int, ...], aligned: bool) -> Tensor:
    """As everybody writes it."""
    along = [(2 * torch.arange(n).double() + 1 - n) / (max(n - 1, 1) if aligned else n) for n in size[2:]]
    y, x = torch.meshgrid(*[one.to(matrix.dtype) for one in along], indexing="ij")
    places = torch.stack([x, y, torch.ones_like(x)], -1).flatten(0, 1)
    moved = torch.matmul(places, matrix.mT)
    grid: Tensor = (moved[..., :2] / moved[..., 2:]).unflatten(1, size[2:])
    return grid


def displacement_grid(field: Tensor, size: tuple[int, ...], aligned: bool) -> Tensor:
    places = torch.meshgrid(*[torch.arange(n, dtype=field.dtype) for n in field.shape[1:-1]], indexing="ij")
    axes = []
    for number, n in enumerate(reversed(size[2:])):
        pixel = places[len(places) - 1 - number] + field[..., number]
        axes.append(2 * pixel / max(n - 1, 1) - 1 if aligned else (2 * pixel + 1) / n - 1)
    return torch.stack(axes, -1)


SETTINGS = list(itertools.product(MODES, PADDINGS, (False, True)))


@pytest.mark.parametrize(("mode", "padding", "aligned"), SETTINGS)
def test_perspective(mode: str, padding: str, aligned: bool) -> None:
    picture, matrix = image((2, 3, 7, 9), torch.float64), homographies()
    expected = F.grid_sample(picture, perspective_grid(matrix, SIZE, aligned), mode, padding, aligned)
    assert torch.allclose(P.perspective_sample(picture, matrix, SIZE, mode, padding, aligned), expected, atol=1e-12)


@pytest.mark.parametrize(("mode", "padding", "aligned"), SETTINGS)
def test_displacement(mode: str, padding: str, aligned: bool) -> None:
    picture, field = image((2, 3, 7, 9), torch.float64), image((2, 5, 6, 2), torch.float64, low=-3.0, high=3.0)
    expected = F.grid_sample(picture, displacement_grid(field, (2, 3, 7, 9), aligned), mode, padding, aligned)
    flow = field.movedim(-1, 1).contiguous()
    for one in (field, flow.movedim(1, -1)):
        assert torch.allclose(P.displacement_sample(picture, one, mode, padding, aligned), expected, atol=1e-12)


def test_displacement_of_a_volume() -> None:
    picture, field = image((1, 2, 3, 4, 5), torch.float64), image((1, 3, 4, 5, 3), torch.float64, low=-2.0, high=2.0)
    expected = F.grid_sample(picture, displacement_grid(field, (1, 2, 3, 4, 5), False), align_corners=False)
    assert torch.allclose(P.displacement_sample(picture, field), expected, atol=1e-12)


@pytest.mark.parametrize("aligned", [False, True])
def test_no_displacement_gives_the_image(aligned: bool) -> None:
    picture = image((2, 3, 7, 9))
    assert torch.equal(P.displacement_sample(picture, torch.zeros(2, 7, 9, 2), align_corners=aligned), picture)


@pytest.mark.parametrize(("padding", "expected"), [("zeros", 0.0), ("border", 1.0), ("reflection", 1.0)])
@pytest.mark.parametrize("aligned", [False, True])
def test_an_image_one_pixel_high_has_an_outside(aligned: bool, padding: str, expected: float) -> None:
    """Corners are where reflection folds, and nothing else."""
    for picture, down in ((torch.ones(1, 2, 1, 5), (0.0, 3.0)), (torch.ones(1, 2, 4, 1, 5), (0.0, 3.0, 0.0))):
        field = torch.tensor(down).expand(1, *picture.shape[2:], len(down))
        for mode in ("bilinear", "nearest"):
            found = P.displacement_sample(picture, field, mode, padding, aligned)
            assert torch.equal(found, torch.full_like(picture, expected))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float16, torch.bfloat16])
def test_other_dtypes(dtype: torch.dtype) -> None:
    """Summed in float32, rounded once."""
    picture, matrix = image((2, 3, 7, 9), dtype), homographies(torch.float32)
    exact = P.perspective_sample(picture.double(), matrix.double(), SIZE)
    ours = P.perspective_sample(picture, matrix, SIZE)
    assert ours.dtype == dtype
    near = 0.51 if dtype == torch.uint8 else 2 * torch.finfo(dtype).eps
    assert (ours.double() - exact).abs().max() <= near
    if dtype != torch.uint8:
        of_halves = P.perspective_sample(picture, matrix.to(dtype), SIZE)
        assert torch.equal(of_halves, P.perspective_sample(picture, matrix.to(dtype).float(), SIZE))


@pytest.mark.parametrize("dtype", [torch.int16, torch.uint16, torch.int32])
def test_integers(dtype: torch.dtype) -> None:
    """Those of 32 bits are summed in float64, whatever the dtype of matrix and field."""
    picture = torch.randint(0, 30000, (2, 3, 7, 9)).to(dtype)
    field = image((2, 5, 6, 2), low=-3.0, high=3.0)
    for ours, exact in (
        (P.displacement_sample(picture, field), P.displacement_sample(picture.double(), field.double())),
        (
            P.perspective_sample(picture, homographies(torch.float32), SIZE),
            P.perspective_sample(picture.double(), homographies(torch.float32).double(), SIZE),
        ),
    ):
        assert ours.dtype == dtype
        assert (ours.double() - exact).abs().max() <= (0.5001 if dtype == torch.int32 else 0.6)


@pytest.mark.parametrize("inverse", [False, True])
@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("rows", [2, 3])
def test_pixel_matrix(rows: int, aligned: bool, inverse: bool) -> None:
    """Every output pixel is the image at the pixel that the matrix says."""
    matrix = torch.tensor([[1.1, 0.2, -1.5], [0.1, 0.9, 0.75], [0.01, 0.02, 1.0]], dtype=torch.float64)
    if rows == 2:
        matrix[2] = torch.tensor([0.0, 0.0, 1.0])
    picture = torch.stack(torch.meshgrid(torch.arange(30.0), torch.arange(40.0), indexing="ij")).double()[None]
    size = (1, 2, 8, 9)
    found = P.pixel_matrix(matrix[:rows], picture.shape, size, inverse=inverse, align_corners=aligned)
    assert found.shape == (rows, 3)
    sample: Callable[..., Tensor] = P.affine_sample if rows == 2 else P.perspective_sample
    ours = sample(picture, found[None], size, padding_mode="border", align_corners=aligned)
    back = matrix if inverse else torch.linalg.inv(matrix)
    y, x = torch.meshgrid(torch.arange(8.0), torch.arange(9.0), indexing="ij")
    places = torch.stack([x, y, torch.ones_like(x)], -1).double() @ back.mT
    column, row = (places[..., a] / places[..., 2] for a in range(2))
    assert torch.allclose(ours[0, 1], column.clamp(0, 39), atol=1e-9)
    assert torch.allclose(ours[0, 0], row.clamp(0, 29), atol=1e-9)


@pytest.mark.parametrize("aligned", [False, True])
def test_pixel_matrix_to_a_single_row_or_column(aligned: bool) -> None:
    picture, down = image((1, 2, 5, 6), torch.float64), torch.tensor([[1.0, 0.0, -3.0], [0.0, 1.0, -2.0]]).double()
    for size in ((1, 3), (3, 1), (1, 1)):
        found = P.pixel_matrix(down, (5, 6), size, align_corners=aligned)[None]
        ours = P.affine_sample(picture, found, (1, 2, *size), align_corners=aligned)
        assert torch.allclose(ours, picture[..., 2 : 2 + size[0], 3 : 3 + size[1]])


def calls() -> dict[str, tuple[Callable[..., Tensor], tuple[Tensor, ...]]]:
    field = image((2, 3, 2, 2), torch.float64, low=-1.2, high=1.2)
    return {
        "perspective": (
            lambda one, matrix: P.perspective_sample(one, matrix, (2, 2, 3, 2)),
            (image((2, 2, 4, 3), torch.float64), homographies()),
        ),
        "displacement": (
            lambda one, field: P.displacement_sample(one, field, padding_mode="border"),
            (image((2, 2, 4, 3), torch.float64), field),
        ),
    }


@pytest.mark.parametrize("name", calls())
def test_derivatives(name: str) -> None:
    function, tensors = calls()[name]
    leaves = tuple(one.requires_grad_() for one in tensors)
    assert gradcheck(function, leaves, check_forward_ad=True, fast_mode=True)
    assert gradgradcheck(function, leaves, fast_mode=True)


@pytest.mark.parametrize("name", calls())
def test_transforms(name: str) -> None:
    function, tensors = calls()[name]
    stacked = tuple(torch.stack([one, one.flip(0) * 0.9]) for one in tensors)
    expected = torch.stack([function(*(one[i] for one in stacked)) for i in range(2)])
    assert torch.allclose(torch.func.vmap(function)(*stacked), expected)
    assert torch.allclose(torch.func.vmap(function, (None, 0))(tensors[0], stacked[1])[0], function(*tensors))
    of_second = torch.func.grad(lambda at: function(tensors[0], at).sum())(tensors[1])
    leaf = tensors[1].clone().requires_grad_()
    function(tensors[0], leaf).sum().backward()
    assert torch.allclose(of_second, leaf.grad)  # type: ignore[arg-type]
    per_sample = torch.func.vmap(torch.func.grad(lambda at: function(tensors[0], at).sum()))(stacked[1])
    assert torch.allclose(per_sample[0], of_second)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(tensors[1], torch.ones_like(tensors[1]))
        assert forward_ad.unpack_dual(function(tensors[0], dual)).tangent is not None


@pytest.mark.parametrize("name", calls())
def test_many_gradients_at_once(name: str) -> None:
    function, tensors = calls()[name]
    leaves = tuple(one.requires_grad_() for one in tensors)
    result = function(*leaves)
    weights = image((3, *result.shape), torch.float64, seed=5)
    found = torch.autograd.grad(result, leaves, weights, is_grads_batched=True, retain_graph=True)
    one_by_one = [torch.autograd.grad(result, leaves, one, retain_graph=True) for one in weights]
    for all_of_it, each in zip(found, zip(*one_by_one, strict=True), strict=True):
        assert torch.allclose(all_of_it, torch.stack(each))


@pytest.mark.parametrize("name", calls())
def test_a_gradient_with_a_tangent(name: str) -> None:
    """The call was made before there were any."""
    function, tensors = calls()[name]
    leaves = tuple(one.requires_grad_() for one in tensors)
    result = function(*leaves)
    weights, tangent = (image(result.shape, torch.float64, seed=seed) for seed in (5, 6))
    expected = torch.autograd.grad(result, leaves, tangent, retain_graph=True)
    with forward_ad.dual_level():
        found = torch.autograd.grad(result, leaves, forward_ad.make_dual(weights, tangent))
        for one, other in zip(found, expected, strict=True):
            of_it = forward_ad.unpack_dual(one).tangent
            assert of_it is not None
            assert torch.allclose(of_it, other)


def test_only_what_is_needed() -> None:
    picture, matrix = image((2, 2, 4, 3)), homographies(torch.float32)
    for of_image, of_matrix in ((True, False), (False, True)):
        one, at = picture.clone().requires_grad_(of_image), matrix.clone().requires_grad_(of_matrix)
        P.perspective_sample(one, at, (2, 2, 3, 2)).sum().backward()
        assert (one.grad is not None, at.grad is not None) == (of_image, of_matrix)


def test_the_nearest_pixel_is_the_same_nearby() -> None:
    matrix = homographies(torch.float32).requires_grad_()
    P.perspective_sample(image((2, 2, 4, 3)), matrix, (2, 2, 3, 2), "nearest").sum().backward()
    assert matrix.grad is not None
    assert not matrix.grad.any()


@pytest.mark.parametrize("fill", [None, (0.5, -1.0)])
def test_complex_images(fill: tuple[float, ...] | None) -> None:
    """Their parts are moved alike, and so are gradients."""
    parts = [image((2, 2, 4, 3), seed=seed).requires_grad_() for seed in range(2)]
    field = image((2, 3, 2, 2), low=-2.0, high=2.0)
    functions: list[Callable[[Tensor], Tensor]] = [
        lambda one: P.perspective_sample(one, homographies(torch.float32), (2, 2, 3, 2), "nearest", fill=fill),
        lambda one: P.displacement_sample(one, field, "nearest", fill=fill),
    ]
    for function in functions:
        whole = torch.complex(*parts).detach().requires_grad_()
        weights = torch.complex(image((2, 2, 3, 2), seed=2), image((2, 2, 3, 2), seed=3))
        (found,) = torch.autograd.grad(function(whole), whole, weights)
        of_parts = torch.autograd.grad(torch.complex(*map(function, parts)), parts, weights)
        assert torch.equal(found, torch.complex(*of_parts))


@pytest.mark.inductor
def test_traced() -> None:
    """By Dynamo each is one operator; sizes may be symbolic."""

    def both(one: Tensor, matrix: Tensor, field: Tensor) -> Tensor:
        turned = P.perspective_sample(one, matrix, one.shape)
        return P.displacement_sample(turned, field, padding_mode="reflection", align_corners=True)

    compiled = torch.compile(both, backend="aot_eager", fullgraph=True, dynamic=True)
    for height, width in ((5, 6), (8, 11)):
        given = image((2, 3, height, width)), homographies(torch.float32), image((2, height, width, 2), low=-2.0)
        leaf = given[1].requires_grad_()
        ours, theirs = compiled(*given), both(*given)
        assert torch.allclose(ours, theirs)
        for_ours, for_theirs = (torch.autograd.grad(one.square().sum(), leaf)[0] for one in (ours, theirs))
        assert torch.allclose(for_ours, for_theirs)


def test_one_kernel_for_every_size() -> None:
    picture, matrix = image((1, 3, 64, 64)), homographies(torch.float32, 1)
    P.perspective_sample(picture, matrix, picture.shape)
    before = polyphase.stats()
    P.perspective_sample(picture, matrix, (1, 3, 50, 70))
    after = polyphase.stats()
    assert after["kernels_launched"] - before["kernels_launched"] == 1
    assert after["kernels_built"] == before["kernels_built"]


MISTAKES: list[tuple[Callable[[], Any], tuple[str, ...]]] = [
    (
        lambda: P.perspective_sample(torch.rand(2, 3, 4, 5), torch.rand(2, 2, 3), (2, 3, 4, 5)),
        ("(2, 2, 3)", "3 x 3", "(2, 3, 3)"),
    ),
    (lambda: P.perspective_sample(torch.rand(2, 3, 4, 5), torch.rand(1, 3, 3), (1, 3, 4, 5)), ("2 images", "expand")),
    (lambda: P.perspective_sample(torch.rand(2, 3, 4), torch.rand(2, 3, 3), (2, 3, 4)), ("(2, 3, 4)", "height")),
    (
        lambda: P.perspective_sample(torch.rand(2, 3, 4, 5), torch.rand(2, 3, 3), (2, 3, 0, 5)),
        ("(2, 3, 0, 5)", "at least 1"),
    ),
    (
        lambda: P.perspective_sample(torch.rand(2, 3, 4, 5), torch.rand(2, 3, 3).double(), (2, 3, 4, 5)),
        ("matrix of torch.float64", "cast"),
    ),
    (
        lambda: P.perspective_sample(torch.rand(2, 3, 4, 5), torch.rand(2, 3, 3), (2, 3, 4, 5), mode="cubic"),
        ("'cubic'", "bicubic"),
    ),
    (lambda: P.displacement_sample(torch.rand(2, 3, 4, 5), torch.rand(2, 4, 5, 3)), ("(2, 4, 5, 3)", "x, y")),
    (lambda: P.displacement_sample(torch.rand(2, 3, 4, 5), torch.rand(1, 4, 5, 2)), ("1 fields", "expand")),
    (lambda: P.displacement_sample(torch.rand(2, 3, 4, 5), [[1.0]]), ("list", "torch.as_tensor")),  # type: ignore[arg-type]
    (lambda: P.displacement_sample(torch.rand(2, 3, 4, 5), torch.rand(2, 0, 5, 2)), ("(0, 5)", "at least 1")),
    (lambda: P.pixel_matrix(torch.rand(3, 2), (4, 5), (4, 5)), ("(3, 2)", "2 x 3")),
    (lambda: P.pixel_matrix(torch.rand(3, 3), (4, 0), (4, 5)), ("input_size", "at least 1")),
    (lambda: P.pixel_matrix(torch.rand(3, 3), (4, 5), (4, 5), inverse="no"), ("inverse='no'", "True, False")),  # type: ignore[arg-type]
    (lambda: P.pixel_matrix(torch.rand(3, 3), (4, 5), 5), ("output_size",)),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("call", "says"), MISTAKES)
def test_mistakes(call: Callable[[], Any], says: tuple[str, ...]) -> None:
    with pytest.raises(PolyphaseError) as caught:
        call()
    for part in says:
        assert part in str(caught.value)


@pytest.mark.filterwarnings("ignore:.*quantize|.*nested")
@pytest.mark.parametrize(
    ("made", "says"),
    [
        (Tensor.to_sparse, ("torch.sparse_coo", "to_dense")),
        (lambda one: torch.nested.nested_tensor(list(one)), ("nested", "unbind")),
        (lambda one: torch.quantize_per_tensor(one, 0.1, 0, torch.quint8), ("quantised", "dequantize")),
    ],
    ids=["sparse", "nested", "quantised"],
)
def test_what_only_we_have_takes_dense_tensors(made: Callable[[Tensor], Tensor], says: tuple[str, str]) -> None:
    picture, size = made(torch.rand(1, 3, 4, 5)), (1, 3, 4, 5)
    square, grid = torch.eye(3)[None], torch.zeros(1, 4, 5, 2)
    for call in (
        lambda: P.perspective_sample(picture, square, size),
        lambda: P.displacement_sample(picture, grid),
        lambda: P.grid_sample(picture, grid, fill=1.0),
        lambda: P.affine_sample(picture, square[:, :2], size, fill=1.0),
        lambda: P.affine_sample(picture, square[:, :2], size, antialias=True),
    ):
        with pytest.raises(NotSupportedError, match=f"{says[0]}.*{says[1]}"):
            call()  # type: ignore[no-untyped-call]


def test_numbers_that_are_none() -> None:
    matrix = torch.full((1, 3, 3), math.nan)
    assert P.perspective_sample(torch.rand(1, 3, 4, 5), matrix, (1, 3, 4, 5)).isnan().all()
    assert not P.perspective_sample(torch.rand(1, 3, 4, 5), matrix, (1, 3, 4, 5), "nearest").any()


@pytest.mark.parametrize("rule", ["blend", "constant", "edge"])
def test_fills(rule: str) -> None:
    """As a grid in memory has them, gradients too."""
    picture, matrix = image((2, 3, 7, 9), torch.float64).requires_grad_(), (homographies() * 1.3).requires_grad_()
    field = image((2, 5, 6, 2), torch.float64, low=-4.0, high=4.0).requires_grad_()
    options: dict[str, Any] = {"fill": (0.5, -1.0, 2.0), "fill_rule": rule}
    for ours, at, grid in (
        (P.perspective_sample(picture, matrix, SIZE, **options), matrix, perspective_grid(matrix, SIZE, False)),
        (P.displacement_sample(picture, field, **options), field, displacement_grid(field, (2, 3, 7, 9), False)),
    ):
        theirs = P.grid_sample(picture, grid, **options)
        assert torch.allclose(ours, theirs, atol=1e-12)
        weights = image(SIZE, torch.float64, seed=3)
        for one, other in zip(
            torch.autograd.grad((ours * weights).sum(), (picture, at)),
            torch.autograd.grad((theirs * weights).sum(), (picture, at)),
            strict=True,
        ):
            assert torch.allclose(one, other, atol=1e-10)


def test_a_fill_needs_zeros_around() -> None:
    with pytest.raises(PolyphaseError, match="zeros"):
        P.displacement_sample(torch.rand(1, 3, 4, 5), torch.zeros(1, 4, 5, 2), padding_mode="border", fill=1.0)
