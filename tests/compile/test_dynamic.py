"""One compiled function for every size, batch, dtype and layout: Dynamo's own graphs, and no kernel rebuilt."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch._dynamo.utils import counters

import polyphase
import polyphase.functional as P
from tests.compile.running import compiled, launches, same
from tests.support.samples import image

pytestmark = pytest.mark.inductor

SIZES = [(21, 34), (40, 18), (33, 27), (19, 52), (64, 31), (25, 47)]


def graphs() -> int:
    return int(counters["stats"]["unique_graphs"])


def halved(x: Tensor) -> Tensor:
    size = (x.shape[-2] // 2 + 1, x.shape[-1] // 2)
    y = F.interpolate(x, size=size, mode="bilinear", antialias=True)
    return (y[..., 1:-1, 2:].flip(-1).float() / 255 - 0.5).clamp(-0.4, 0.4)


def resized(x: Tensor) -> Tensor:
    return F.interpolate(x, size=(27, 31), mode="bilinear", antialias=True)


@pytest.mark.parametrize("order", [(1, 4), pytest.param((4, 1), marks=pytest.mark.full)], ids=str)
def test_batches_dtypes_and_layouts(order: tuple[int, int]) -> None:
    run = compiled(resized)
    for batch, dtype, layout in itertools.product(order, (torch.uint8, torch.float32), ("CF", "CL")):
        x = image((batch, 3, 45, 52), dtype, layout)
        got, launched = launches(run, x)
        same(got, resized(x))
        assert launched == 1, (batch, dtype, layout)


def test_many_sizes_are_dynamos_two_graphs() -> None:
    run = compiled(halved)
    for height, width in SIZES[:2]:
        run(image((2, 3, height, width), torch.uint8))
    assert graphs() == 2
    before = polyphase.stats()
    for count, (height, width) in enumerate(SIZES[2:], 1):
        x = image((2, 3, height, width), torch.uint8)
        same(run(x), halved(x))
        assert polyphase.stats()["kernels_launched"] == before["kernels_launched"] + count
    assert graphs() == 2
    assert polyphase.stats()["kernels_built"] == before["kernels_built"]


@pytest.mark.full  # of sizes alone, the test above counts them
def test_no_graph_more_than_dynamo_makes_for_others() -> None:
    found = []
    for backend in ("eager", "polyphase"):
        torch._dynamo.reset()
        counters.clear()
        run = torch.compile(halved, backend=backend)
        for batch, (height, width) in zip((1, 2, 5, 1), SIZES, strict=False):
            run(image((batch, 3, height, width), torch.uint8))
        found.append(graphs())
    assert found[1] <= found[0]


@pytest.mark.parametrize(
    "dims", [*(pytest.param(one, marks=pytest.mark.full) for one in ((2,), (3,), (0,))), (0, 2, 3)]
)
def test_marked_dynamic(dims: tuple[int, ...]) -> None:
    run = compiled(halved, fullgraph=True)
    shapes = [[2, 3, 30, 41], [5, 3, 47, 28]]
    for place, shape in enumerate(shapes):
        x = image(tuple(n if dim in dims else shapes[0][dim] for dim, n in enumerate(shape)), torch.uint8)
        for dim in dims:
            torch._dynamo.mark_dynamic(x, dim)
        same(run(x), halved(x))
        assert graphs() == 1, place


QUICK = {"bicubic by a factor": P, "pads": F, "centre crop": F}
# Of PyTorch's functions or ours.
MODES: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "bicubic by a factor": lambda f, x: f.interpolate(x, scale_factor=1.5, mode="bicubic"),
    "bilinear, aligned": lambda f, x: f.interpolate(x, size=(x.shape[2] + 5, 9), mode="bilinear", align_corners=True),
    "area": lambda f, x: f.interpolate(x, size=(7, x.shape[3] // 2), mode="area"),
    "nearest, added": lambda f, x: f.interpolate(x, scale_factor=2.0) + 1,
    "pads": lambda f, x: f.pad(f.pad(x, (1, 2, 3, 1), mode="reflect"), (2, 0, 1, 1), value=0.5) * 2,
    "padded to a multiple": lambda f, x: f.pad(x, (0, -x.shape[3] % 16, 0, -x.shape[2] % 16), mode="replicate"),
    "padded to a size": lambda f, x: f.pad(x, (0, 50 - x.shape[3], 0, 50 - x.shape[2]), value=0.5) * 2,
    "centre crop": lambda f, x: x.flip(-1)[..., (x.shape[2] - 9) // 2 : (x.shape[2] + 9) // 2, 3:-3],
}


@pytest.mark.parametrize(
    ("name", "functions"),
    [
        pytest.param(
            name,
            functions,
            id=f"{name}-{functions.__name__}",
            marks=() if QUICK.get(name) is functions else pytest.mark.full,
        )
        for name in MODES
        for functions in ((F,) if name == "centre crop" else (F, P))  # which calls none of them
    ],
)
def test_gradients_for_any_size(name: str, functions: Any) -> None:
    run = compiled(partial(MODES[name], functions), dynamic=True)
    function = partial(MODES[name], F)
    for shape in ((2, 3, 12, 17), (3, 4, 30, 19), (4, 2, 11, 40)):
        theirs, ours = (image(shape).requires_grad_() for _ in range(2))
        want, got = function(theirs), run(ours)
        same(got.detach(), want.detach())
        incoming = torch.cos(torch.arange(want.numel(), dtype=want.dtype)).view(want.shape)
        torch.testing.assert_close(
            torch.autograd.grad(got, ours, incoming), torch.autograd.grad(want, theirs, incoming)
        )
    assert graphs() == 1


@pytest.mark.usefixtures("gathering")
@pytest.mark.parametrize("axes", [1, pytest.param(2, marks=pytest.mark.full), pytest.param(3, marks=pytest.mark.full)])
def test_nearest_pixels_of_any_size(axes: int) -> None:
    """Inductor knows them only taken apart, so that they are ours however few they are, or how quick its loops."""

    def function(x: Tensor, other: Tensor) -> Tensor:
        return F.interpolate(x, size=other.shape[2:], mode="nearest-exact") + 1

    run = compiled(function, dynamic=True)
    for size, wanted in ((6, 5), (7, 4), (11, 23)):
        tensors = torch.rand(2, 3, *(size,) * axes), torch.empty(1, 2, *(wanted,) * axes)
        got, launched = launches(run, *tensors)
        same(got, function(*tensors))
        assert launched == 1, size
    assert graphs() == 1


@pytest.mark.parametrize("backend", ["aot_eager", "inductor", "polyphase"])
def test_our_functions_in_dynamos_two_graphs(backend: str) -> None:
    def function(x: Tensor) -> Tensor:
        half = P.interpolate(x, scale_factor=0.5, mode="bilinear", antialias=True)
        lanczos = P.interpolate(half, (x.shape[2], 2 * x.shape[3]), mode="lanczos", antialias=True)
        return P.pad(P.flip(lanczos, (-1,)), (0, 110 - lanczos.shape[3], 1, 70 - lanczos.shape[2]), value=0.5)

    torch._dynamo.reset()
    counters.clear()
    run = torch.compile(function, backend=backend, fullgraph=True)
    for x in of_sizes(SIZES):
        torch.testing.assert_close(run(x), function(x), rtol=1e-5, atol=1e-6)
    assert graphs() == 2


def test_our_functions_to_a_size_read_from_a_tensor() -> None:
    def function(x: Tensor, size: Tensor) -> Tensor:
        height = size.item()
        torch._check(height >= 1)
        return P.interpolate(x, (height, 9), mode="bilinear")  # type: ignore[arg-type]

    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        run = compiled(function, fullgraph=True)
        for height in (5, 12, 30):
            same(
                run(image((2, 3, 16, 18)), torch.tensor(height)),
                F.interpolate(image((2, 3, 16, 18)), (height, 9), mode="bilinear"),
            )
    assert graphs() == 1


THETA = torch.tensor([[0.9137, -0.3071, 0.0533], [0.3119, 0.8213, -0.1047]])
"""Irregular: no sample lies on a pixel, where the gradient is another on either side."""


def warped(x: Tensor, theta: Tensor) -> Tensor:
    grid = F.affine_grid(theta, x.shape, align_corners=False)  # type: ignore[arg-type]
    return F.grid_sample(x, grid, align_corners=False)


def warped_to_another_size(x: Tensor, theta: Tensor) -> Tensor:
    size = [x.shape[0], x.shape[1], x.shape[2] // 2 + 1, x.shape[3] + 3]
    grid = F.affine_grid(theta, size, align_corners=True)
    return F.grid_sample(x, grid, mode="bicubic", padding_mode="border", align_corners=True) * 2


def of_sizes(sizes: list[tuple[int, int]]) -> Iterator[Tensor]:
    for height, width in sizes:
        yield image((2, 3, height, width))


@pytest.mark.parametrize(
    ("function", "needs_gradient"),
    [
        (warped, False),
        (warped_to_another_size, True),
        pytest.param(warped, True, marks=pytest.mark.full),
        pytest.param(warped_to_another_size, False, marks=pytest.mark.full),
    ],
)
def test_affine_warps_of_many_sizes(function: Callable[..., Tensor], needs_gradient: bool) -> None:
    run = compiled(function)
    built = 0
    for count, x in enumerate(of_sizes(SIZES)):
        if count == 2:
            built = polyphase.stats()["kernels_built"]
        given = [[one.clone().requires_grad_(needs_gradient) for one in (x, THETA.repeat(2, 1, 1))] for _ in range(2)]
        want, got = function(*given[0]), run(*given[1])
        torch.testing.assert_close(got, want, rtol=1.3e-6, atol=2e-5)  # eager's grid has roundings of its own
        if needs_gradient:
            incoming = torch.cos(torch.arange(want.numel(), dtype=want.dtype)).view(want.shape)
            wanted, found = (
                torch.autograd.grad(output, inputs, incoming) for output, inputs in zip((want, got), given, strict=True)
            )
            torch.testing.assert_close(found[0], wanted[0], rtol=1e-3, atol=1e-4)
            torch.testing.assert_close(found[1], wanted[1], rtol=1e-3, atol=1e-3)
    assert graphs() == 2
    assert polyphase.stats()["kernels_built"] == built


def test_a_grid_that_is_also_returned() -> None:
    def function(x: Tensor, theta: Tensor) -> tuple[Tensor, Tensor]:
        grid = F.affine_grid(theta, x.shape, align_corners=False)  # type: ignore[arg-type]
        return F.grid_sample(x, grid, align_corners=False), grid

    run: Any = compiled(function)
    for x in of_sizes(SIZES[:4]):
        torch.testing.assert_close(run(x, THETA.repeat(2, 1, 1)), function(x, THETA.repeat(2, 1, 1)))
    assert graphs() == 2
