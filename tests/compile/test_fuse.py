"""What becomes one program, and why the rest does not."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from polyphase.compile import drafts
from polyphase.compile.reasons import Why
from polyphase.records.records import MOST_OPERANDS
from polyphase.sampling.axis_maps import AxisMap, NotMerged, Reason
from tests.compile.graphs import fused

BYTES = torch.randint(0, 256, (1, 3, 40, 52), dtype=torch.uint8)
FLOATS = torch.rand(2, 3, 40, 52)
MANY = torch.rand(2, 4, 60, 70)
MEAN, STD = torch.rand(3, 1, 1), torch.rand(3, 1, 1) + 0.5
GRID = torch.rand(2, 9, 8, 2) * 2.2 - 1.1
THETA = torch.tensor([[0.9137, -0.3071, 0.0533], [0.3119, 0.8213, -0.1047]]).repeat(2, 1, 1)
OTHER = torch.rand(2, 3, 20, 30)


def resized(x: Tensor, **options: Any) -> Tensor:
    return F.interpolate(x, **{"size": (20, 30), "mode": "bilinear", "antialias": True, **options})


def preprocess(x: Tensor) -> Tensor:
    return (torch.flip(resized(x)[..., 2:18, 4:-2], (-1,)).float() / 255 - MEAN) / STD


def but_small_moves(names: Iterable[str], *moves: str) -> list[Any]:
    """On a GPU, what only moves so few values is left to Inductor."""
    return [pytest.param(name, marks=pytest.mark.cpu if name in moves else ()) for name in names]


ONE_KERNEL: dict[str, tuple[Callable[..., Any], tuple[Tensor, ...], str]] = {
    "resize, crop, flip, normalise": (
        preprocess,
        (BYTES,),
        "program(uint8, axes([axismap([resize(size0, bilinear, antialias=True), slice(size1, size2)]), "
        "axismap([resize(size3, bilinear, antialias=True), slice(size4, size5), flip()])]), "
        "epilogue=div(sub(div(cast(x, float32), 255), channel(0)), channel(1)))",
    ),
    "conversion before": (
        lambda x: resized(x.float() / 255),
        (BYTES,),
        "program(uint8, axes([axismap([resize(size0, bilinear, antialias=True)]), "
        "axismap([resize(size1, bilinear, antialias=True)])]), prologue=div(cast(x, float32), 255))",
    ),
    "arithmetic between a flip and a resize": (
        lambda x: resized(torch.flip(x, (-2,)).float() * 2),
        (BYTES,),
        "program(uint8, axes([axismap([flip(), resize(size0, bilinear, antialias=True)]), "
        "axismap([resize(size1, bilinear, antialias=True)])]), prologue=mul(cast(x, float32), 2))",
    ),
    "as torchvision resizes bytes by floats": (
        lambda x: resized(x.float(), mode="bicubic").round().clamp(0, 255).to(torch.uint8),
        (BYTES,),
        "program(uint8, axes([axismap([resize(size0, bicubic, antialias=True)]), "
        "axismap([resize(size1, bicubic, antialias=True)])]), prologue=cast(x, float32), "
        "epilogue=cast(minimum(maximum(round(x), 0), 255), uint8))",
    ),
    "an image without a batch": (
        lambda x: torch.flip(resized(x[None].float())[0] * 3, (-2,)),
        (BYTES[0],),
        "program(uint8, axes([axismap([resize(size0, bilinear, antialias=True), flip()]), "
        "axismap([resize(size1, bilinear, antialias=True)])]), prologue=cast(x, float32), epilogue=mul(x, 3))",
    ),
    "a tensor added": (
        lambda x, y: torch.relu(resized(x) + y),
        (FLOATS, OTHER),
        "program(float32, axes([axismap([resize(size0, bilinear, antialias=True)]), "
        "axismap([resize(size1, bilinear, antialias=True)])]), epilogue=relu(add(x, operand(0))))",
    ),
    "borders before and after arithmetic": (
        lambda x: F.pad(F.pad(resized(x), (1, 1), value=2.0) * 3, (2, 0), value=5.0),
        (FLOATS,),
        "program(float32, axes([axismap([resize(size0, bilinear, antialias=True)]), axismap([resize(size1, bilinear, "
        "antialias=True), pad(size2, size3, border=1), pad(size4, size5, border=2)])]), epilogue=mul(x, 3), "
        "borders=[border(2.0), border(5.0, stored=True)])",
    ),
    "memory order": (
        lambda x: (resized(x.permute(0, 3, 1, 2)) + 1).permute(0, 2, 3, 1).contiguous(),
        (torch.rand(2, 40, 52, 3),),
        "program(float32, axes([axismap([resize(size0, bilinear, antialias=True)]), "
        "axismap([resize(size1, bilinear, antialias=True)])]), epilogue=add(x, 1))",
    ),
    "a warp": (
        lambda x, grid: F.grid_sample(x * 2, grid, align_corners=False).clamp(0, 1),
        (FLOATS, GRID),
        "program(float32, warp(grid), prologue=mul(x, 2), epilogue=minimum(maximum(x, 0), 1))",
    ),
    "a matrix": (
        lambda x, theta: F.grid_sample(x, F.affine_grid(theta, x.shape, align_corners=False), align_corners=False) + 1,
        (FLOATS, THETA),
        "program(float32, warp(affine, size=[size0, size1]), epilogue=add(x, 1))",
    ),
    "area": (
        lambda x: F.interpolate(x, size=(7, 9), mode="area"),
        (FLOATS,),
        "program(float32, axes([axismap([area(size0)]), axismap([area(size1)])]))",
    ),
    "a volume flipped": (
        lambda x: torch.flip(x, (0, 3)),
        (torch.rand(2, 3, 4, 5, 6),),
        "program(float32, axes([axismap([flip()]), axismap([]), axismap([]), axismap([flip()]), axismap([])]))",
    ),
}  # fmt: skip


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", but_small_moves(ONE_KERNEL, "a volume flipped"))
def test_one_kernel(name: str, dynamic: bool) -> None:
    function, args, text = ONE_KERNEL[name]
    report, result = fused(function, *args, dynamic=dynamic)
    assert [kernel.program for kernel in report.kernels] == [text]
    expected = function(*args)
    assert_close_but_for_ties(result, expected)
    assert result.stride() == expected.stride()


@pytest.mark.parametrize("name", ONE_KERNEL)
def test_without_fusion(name: str) -> None:
    function, args, _ = ONE_KERNEL[name]
    report, result = fused(function, *args, fusion=False)
    assert_close_but_for_ties(result, function(*args))
    assert report.kernels


def assert_close_but_for_ties(ours: Tensor, eager: Tensor) -> None:
    """Floats that are rounded to bytes may, once in a thousand, lie so near a half that they are rounded otherwise."""
    if eager.dtype == torch.uint8:
        torch.testing.assert_close(ours, eager, rtol=0, atol=1)
        assert int((ours != eager).sum()) <= 0.002 * eager.numel()
    else:
        torch.testing.assert_close(ours, eager)


NOT_FUSED: dict[str, tuple[Callable[..., Any], tuple[Tensor, ...], Why | Reason]] = {
    "nearest before a resize": (
        lambda x: resized(F.interpolate(x, scale_factor=2)), (FLOATS,), Reason.NEAREST_BEFORE_WEIGHTED,
    ),
    "a border before a resize": (lambda x: resized(F.pad(x, (1, 1))), (FLOATS,), Reason.PAD_BEFORE_WEIGHTED),
    "a resize of a resize": (lambda x: resized(resized(x)), (FLOATS,), Reason.TWO_WEIGHTED),
    "arithmetic between resizes": (lambda x: resized(resized(x, size=(30, 40)) * 2), (FLOATS,), Reason.TWO_WEIGHTED),
    "a result that is read twice": (lambda x: (lambda y: y * torch.exp(y))(resized(x)), (FLOATS,), Why.NOT_ALONE),
    "no arithmetic of ours": (lambda x: torch.sigmoid(resized(x)), (FLOATS,), Why.NOT_SAMPLING_NOR_POINTWISE),
    "more pixels by broadcasting": (lambda x, y: resized(x)[:, :1] + y, (FLOATS, OTHER), Why.BROADENS),
    "a flip after a tensor": (lambda x, y: torch.flip(resized(x) + y, (-1,)), (FLOATS, OTHER), Why.OPERAND_BEFORE_MAP),
    "a flip of channels after a vector": (
        lambda x: torch.flip(resized(x) * MEAN, (1,)), (FLOATS,), Why.OPERAND_BEFORE_MAP,
    ),
    "a computed tensor": (lambda x, y: resized(x) + torch.exp(y), (FLOATS, OTHER), Why.OPERAND_IS_COMPUTED),
    "two images before": (lambda x, y: resized(x * y), (FLOATS, FLOATS + 1), Why.TENSOR_IN_PROLOGUE),
    "a flip of a warp": (
        lambda x, grid: torch.flip(F.grid_sample(x, grid, align_corners=False), (-1,)),
        (FLOATS, GRID),
        Why.WARP_AND_MAPS,
    ),
    "arithmetic around a stored border": (
        lambda x: F.pad(resized(x) * 2, (1, 1)) + 1, (FLOATS,), Why.ARITHMETIC_AROUND_BORDER,
    ),
    "more tensors than a kernel reads": (
        lambda x, *others: functools.reduce(torch.add, others, resized(x)),
        (FLOATS, *torch.rand(MOST_OPERANDS + 1, *OTHER.shape)),
        Why.TOO_MANY_OPERANDS,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", but_small_moves(NOT_FUSED, "nearest before a resize", "a border before a resize"))
def test_why_not(name: str) -> None:
    function, args, reason = NOT_FUSED[name]
    report, result = fused(function, *args)
    given = [one.why for kernel in report.kernels for one in kernel.not_fused]
    assert reason in [why.reason if isinstance(why, NotMerged) else why for why in given]
    torch.testing.assert_close(result, function(*args))


LEFT: dict[str, tuple[Callable[..., Any], tuple[Tensor, ...], Why | None]] = {
    "rows moved within a loop": (lambda x: torch.tanh(torch.flip(x, (-2,))), (MANY,), Why.ALREADY_POINTWISE),
    "channels that stay together": (
        lambda x: torch.exp(F.interpolate(x, scale_factor=2)),
        (torch.rand(1, 32, 20, 20).contiguous(memory_format=torch.channels_last),),
        Why.ALREADY_POINTWISE,
    ),
    "a few elements": (lambda x: torch.exp(torch.flip(x, (-1,))), (torch.rand(1, 3, 8, 8),), Why.FEW_ELEMENTS),
    "rows turned round within a loop": (lambda x: torch.tanh(torch.flip(x, (-1,))), (MANY,), None),
    "nothing but a flip": (lambda x: torch.flip(x, (-2,)), (MANY,), None),
    "a few elements, read by arithmetic through a view": (
        lambda x: F.pad(x, (0, 0, 0, 1))[..., 2, 2] * 2,
        (torch.rand(12, 2, 3),),
        Why.FEW_ELEMENTS,
    ),
    "nothing but a pad of 60 elements": (lambda x: F.pad(x, (0, 1)), (torch.rand(12, 4),), Why.FEW_ELEMENTS),
    "nothing but a pad of 65 elements": (lambda x: F.pad(x, (0, 1)), (torch.rand(13, 4),), None),
    "nothing but a small flip": (lambda x: torch.flip(x, (-1,)), (torch.rand(1, 3, 8, 8),), None),
}


@pytest.mark.cpu
@pytest.mark.parametrize("name", LEFT)
def test_left_to_inductor(name: str) -> None:
    function, args, why = LEFT[name]
    report, result = fused(function, *args)
    assert [one.why for one in report.left] == ([] if why is None else [why])
    torch.testing.assert_close(result, function(*args))


@pytest.mark.usefixtures("gathering")
@pytest.mark.parametrize("name", LEFT)
def test_left_to_inductor_where_it_gathers(name: str) -> None:
    function, args, why = LEFT[name]
    alone = name.startswith("nothing but")
    report, _ = fused(function, *args)
    assert [one.why for one in report.left] == [Why.GATHERED if alone else Why.ALREADY_POINTWISE]
    if alone:
        report, _ = fused(function, *(one.to(torch.uint8) for one in args))
        assert bool(report.left) == (why is Why.FEW_ELEMENTS)


def test_a_border_of_nan() -> None:
    report, result = fused(lambda x: F.pad(x, (1, 1), value=torch.nan), MANY)
    assert [one.why for one in report.left] == [Why.BORDER_IS_NAN]
    torch.testing.assert_close(result, F.pad(MANY, (1, 1), value=torch.nan), equal_nan=True)


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (torch.empty(OTHER.shape, device="meta"), Why.OPERAND_ELSEWHERE),
        (torch.empty(OTHER.shape, dtype=torch.uint16), Why.ANOTHER_DTYPE),
        (3, Why.OPERAND_IS_NO_TENSOR),
    ],
)
def test_what_is_no_operand(other: object, why: Why) -> None:
    graph = torch.fx.Graph()
    image, operand = graph.placeholder("image"), graph.placeholder("other")
    added = graph.call_function(torch.ops.aten.add.Tensor, (image, operand))
    image.meta["val"] = added.meta["val"] = OTHER
    operand.meta["val"] = other
    draft = drafts.Draft(image, (image,), (AxisMap(()), AxisMap(())))
    assert drafts.followed_by_arithmetic(draft, added) is why


def test_a_report_names_lines() -> None:
    report, _ = fused(preprocess, BYTES)
    assert any("def preprocess" not in line and "torch.flip(resized(x)" in line for line in report.kernels[0].sources)
    assert all(str(one) for kernel in report.kernels for one in kernel.not_fused)
