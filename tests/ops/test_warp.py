"""The operators' derivatives, batching and tracing. `test_functional_warp.py` holds their values against eager's."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad, gradcheck, gradgradcheck
from torch.fx.experimental.proxy_tensor import make_fx

import polyphase.functional as P
from polyphase.calls import binding, plain_torch
from polyphase.ops import warp as operators
from polyphase.sampling.warps import PADDINGS, Warp
from tests.ops.test_resample import TRANSFORMS
from tests.support.samples import GRID_MODES, LAYOUTS, image

SIZES = {2: ((3, 4), (2, 3)), 3: ((2, 3, 2), (2, 1, 2))}
"""Of the image and of the output, by the number of axes."""

SOURCES = ("grid", "affine")
#: Corners are aligned where they are not for the other source and the next padding: both are for the full run.
SETTINGS = [
    pytest.param(
        *(source, axes, mode, padding, aligned),
        id=f"{source}{axes}d-{mode}-{padding}{'-ac' * aligned}",
        marks=pytest.mark.full if (SOURCES.index(source) + PADDINGS.index(padding) + aligned) % 2 else (),
    )
    for source, axes in itertools.product(SOURCES, SIZES)
    for mode, padding, aligned in itertools.product(GRID_MODES[axes], PADDINGS, (False, True))
]


def sampler_of(
    source: str, axes: int = 2, mode: str = "bilinear", padding: str = "zeros", aligned: bool = False
) -> Warp:
    return Warp(source, mode, padding, aligned, SIZES[axes][1] if source == "affine" else ())


def operator(sampler: Warp) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda image, coordinates: operators.warp(image, coordinates, *sampler.options())


def values(*shape: int, low: float = 0.0, high: float = 1.0, seed: int = 0) -> Tensor:
    return image(shape, torch.float64, seed=seed, low=low, high=high) if len(shape) > 1 else torch.rand(shape)


def tensors(source: str, axes: int = 2, batch: int = 2, channels: int = 2) -> tuple[Tensor, Tensor]:
    """An image, and coordinates in and around it that lie on no pixel, where a gradient would have two sides."""
    before, after = SIZES[axes]
    shape = (*after, axes) if source == "grid" else (axes, axes + 1)
    return values(batch, channels, *before), values(batch, *shape, low=-1.2, high=1.2, seed=axes + 5)


def leaves(*given: Tensor) -> tuple[Tensor, ...]:
    return tuple(one.detach().clone().requires_grad_() for one in given)


@pytest.mark.parametrize(("source", "axes", "mode", "padding", "aligned"), SETTINGS)
def test_derivatives(source: str, axes: int, mode: str, padding: str, aligned: bool) -> None:
    function = operator(sampler_of(source, axes, mode, padding, aligned))
    given = leaves(*tensors(source, axes))
    assert gradcheck(function, given, check_forward_ad=True, check_batched_grad=True, fast_mode=True)
    # Of something that has second derivatives also where the warp has none.
    assert gradgradcheck(lambda *given: function(*given) ** 2, given, fast_mode=True)


@pytest.mark.parametrize("source", SOURCES)
def test_forward_over_reverse(source: str) -> None:
    function = operator(sampler_of(source, mode="bicubic"))
    given = leaves(*tensors(source))
    assert gradcheck(function, given, check_forward_ad=True, check_batched_forward_grad=True, fast_mode=True)
    assert gradgradcheck(function, given, check_fwd_over_rev=True, fast_mode=True)


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("place", [0, 1], ids=["of the image", "of the coordinates"])
@pytest.mark.parametrize("transform", TRANSFORMS)
def test_transforms(source: str, place: int, transform: str) -> None:
    sampler, given = sampler_of(source, mode="bicubic"), tensors(source)
    assert given[place].dim() > 2, "which the transforms count on"

    def of_one(function: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
        def with_any_batch(one: Tensor) -> Tensor:
            both = list(given)
            both[place] = one.reshape(-1, *given[place].shape[1:])
            both[1 - place] = given[1 - place][:1].expand(both[place].shape[0], *given[1 - place].shape[1:])
            return function(both[0], both[1])

        return with_any_batch

    transformed, by_torch = TRANSFORMS[transform], partial(plain_torch.warp, sampler=sampler)
    got, want = (transformed(of_one(function))(given[place]) for function in (operator(sampler), by_torch))
    torch.testing.assert_close(got, want)


def test_a_gradient_is_one_kernel_also_under_transforms(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch.func.grad records how to differentiate again, but nobody does."""
    calls: list[object] = []

    def counted(*arguments: Any) -> Any:
        calls.append(arguments)
        return plain_torch.warp_gradients(*arguments)

    monkeypatch.setattr(binding, "warp_gradients", counted)
    monkeypatch.setattr(operators, "_gradients_by_torch", None)
    image, grid = tensors("grid")

    def loss(image: Tensor, grid: Tensor) -> Tensor:
        return operator(sampler_of("grid"))(image, grid).sum()

    torch.func.grad(loss, (0, 1))(image, grid)
    torch.func.vmap(torch.func.grad(loss), in_dims=(0, None))(torch.stack([image, image]), grid)
    given = leaves(image, grid)
    torch.autograd.grad(loss(*given), given, create_graph=True)
    assert len(calls) == 3


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("batch", [0, 1, 2])
@pytest.mark.parametrize("in_dims", [(0, 0), (3, 1), (0, None), (2, None), (None, 0), (None, 2)], ids=str)
def test_vmap(source: str, batch: int, in_dims: tuple[int | None, int | None]) -> None:
    """Also of the gradients."""
    function = operator(sampler_of(source))
    both = [tensors(source, batch=batch), tuple(one.flip(-1) for one in tensors(source, batch=batch))]
    stacked = [
        one[0] if dim is None else torch.stack(one, dim)
        for one, dim in zip(zip(*both, strict=True), in_dims, strict=True)
    ]
    each = [
        [one[0] if dim is None else one[i] for one, dim in zip(zip(*both, strict=True), in_dims, strict=True)]
        for i in (0, 1)
    ]
    got = torch.func.vmap(function, in_dims)(*stacked)
    torch.testing.assert_close(got, torch.stack([function(*one) for one in each]))

    def gradients(image: Tensor, coordinates: Tensor) -> tuple[Tensor, ...]:
        found: tuple[Tensor, ...] = torch.func.grad(lambda *given: (function(*given) ** 2).sum(), (0, 1))(
            image, coordinates
        )
        return found

    got_gradients = torch.func.vmap(gradients, in_dims)(*stacked)
    wanted = zip(*(gradients(*one) for one in each), strict=True)
    torch.testing.assert_close(got_gradients, tuple(map(torch.stack, wanted)))


def test_vmap_repeats_no_image_for_many_grids(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[torch.Size] = []
    real = binding.warp

    def noted(image: Tensor, coordinates: Tensor, sampler: Warp) -> Tensor:
        seen.append(image.shape)
        return real(image, coordinates, sampler)

    monkeypatch.setattr(binding, "warp", noted)
    image, grid = tensors("grid")
    torch.func.vmap(operator(sampler_of("grid")), (None, 0))(image, torch.stack([grid] * 5))
    assert seen == [image.shape]


def test_a_dual_that_needs_no_gradient() -> None:
    image, grid = tensors("grid")
    with forward_ad.dual_level():
        _, got = forward_ad.unpack_dual(operator(sampler_of("grid"))(forward_ad.make_dual(image, image.cos()), grid))
    torch.testing.assert_close(got, operator(sampler_of("grid"))(image.cos(), grid))


def test_forward_mode_that_begins_after_the_call() -> None:
    """A dual gradient comes into a backward that was recorded before."""
    given = leaves(*tensors("grid"))
    output = operator(sampler_of("grid"))(*given)
    incoming, tangent = torch.rand_like(output), torch.rand_like(output)
    with forward_ad.dual_level():
        found = torch.autograd.grad(output, given, forward_ad.make_dual(incoming, tangent), retain_graph=True)
        tangents = [forward_ad.unpack_dual(one).tangent for one in found]
    torch.testing.assert_close(tuple(tangents), torch.autograd.grad(output, given, tangent))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32])
def test_integers_have_no_derivatives(dtype: torch.dtype) -> None:
    image, grid = tensors("grid")
    result = operator(sampler_of("grid", mode="nearest"))((image * 99).to(dtype), grid.requires_grad_())
    assert not result.requires_grad


def test_nearest_moves_complex_gradients() -> None:
    image, grid = tensors("grid")
    function, given = operator(sampler_of("grid", mode="nearest")), leaves(torch.complex(image, -image), grid)
    assert gradcheck(function, given, fast_mode=True)
    _, of_grid = torch.autograd.grad(function(*given).abs().sum(), given)
    assert of_grid.eq(0).all()


@pytest.mark.parametrize("needed", [(True, True), (True, False), (False, True)], ids=str)
@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
def test_only_needed_gradients(needed: tuple[bool, bool], mode: str) -> None:
    function, both = operator(sampler_of("grid", mode=mode)), leaves(*tensors("grid"))
    wanted = torch.autograd.grad(function(*both).sum(), both)
    given = [one.requires_grad_(need) for one, need in zip(tensors("grid"), needed, strict=True)]
    function(*given).sum().backward()
    for one, want, need in zip(given, wanted, needed, strict=True):
        assert (one.grad is not None) == need
        if need:
            torch.testing.assert_close(one.grad, want)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_gradients_are_contiguous(layout: str) -> None:
    _, grid = tensors("grid")
    of = image((2, 2, 3, 4), torch.float64, layout).requires_grad_()
    output = operator(sampler_of("grid"))(of, grid)
    assert output.is_contiguous()
    (found,) = torch.autograd.grad(output.sum(), of)
    assert found.is_contiguous()


def test_nearest_has_a_gradient_of_0_where_forward_mode_is_on() -> None:
    of, grid = leaves(*tensors("grid"))
    sampled = P.grid_sample(of, grid, mode="nearest")
    with forward_ad.dual_level():
        found = P.grid_sample(of, grid, mode="nearest")
        assert torch.equal(found, sampled)
        for got, want in zip(*(torch.autograd.grad(one.sum(), (of, grid)) for one in (found, sampled)), strict=True):
            torch.testing.assert_close(got, want)


@pytest.mark.parametrize("source", ["grid", pytest.param("affine", marks=pytest.mark.full)])
def test_opcheck(source: str) -> None:
    options, given = sampler_of(source).options(), leaves(*(one.float() for one in tensors(source)))
    torch.library.opcheck(operators.warp, (*given, *options))
    output = operators.warp(*given, *options).detach().requires_grad_()
    torch.library.opcheck(operators.warp_backward, (output, *given, *options, [True, True]))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_fake_tensors_lie_as_real_ones(layout: str) -> None:
    of, (_, grid), options = (
        image((2, 2, 3, 4), torch.float64, layout),
        tensors("grid"),
        sampler_of("grid").options(),
    )
    check = partial(torch.library.opcheck, test_utils=("test_schema", "test_faketensor"))
    check(operators.warp, (of, grid, *options))
    for needed in ([True, True], [True, False], [False, True]):
        check(operators.warp_backward, (operators.warp(of, grid, *options), of, grid, *options, needed))


def through_grid(image: Tensor, theta: Tensor) -> Tensor:
    size = (image.shape[0], 1, image.shape[2] + 1, image.shape[3] // 2)
    return P.grid_sample(image, P.affine_grid(theta, size), padding_mode="border") * 2


def at_once(image: Tensor, theta: Tensor) -> Tensor:
    return P.affine_sample(image, theta, image.shape, "bicubic", align_corners=True) * 2


def squares(function: Callable[..., Tensor], *given: Tensor) -> tuple[Tensor, ...]:
    """Gradients of the sum of squares."""
    inputs = leaves(*given)
    return torch.autograd.grad((function(*inputs) ** 2).sum(), inputs)


@pytest.mark.parametrize("function", [through_grid, at_once])
@pytest.mark.parametrize(
    ("backend", "dynamic"),
    [
        ("eager", False),
        ("aot_eager", True),
        *(pytest.param(*one, marks=pytest.mark.full) for one in (("eager", True), ("aot_eager", False))),
    ],
)
def test_compiled(function: Callable[[Tensor, Tensor], Tensor], dynamic: bool, backend: str) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(function, backend=backend, dynamic=dynamic, fullgraph=True)
    for shape in ((2, 3, 8, 9), (3, 2, 11, 7)):
        given = values(*shape), values(shape[0], 2, 3, low=-1, high=1)
        torch.testing.assert_close(compiled(*given), function(*given), rtol=0, atol=0)
        torch.testing.assert_close(squares(compiled, *given), squares(function, *given), rtol=0, atol=0)


def test_a_call_is_one_node_of_a_dynamo_graph_whatever_the_size() -> None:
    graphs: list[torch.fx.GraphModule] = []

    def backend(graph: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        graphs.append(graph)
        return graph.forward

    def function(image: Tensor, theta: Tensor) -> Tensor:
        return P.grid_sample(P.affine_sample(image, theta, image.shape), P.affine_grid(theta, image.shape))

    torch._dynamo.reset()
    compiled = torch.compile(function, backend=backend, dynamic=True)
    for shape in ((5, 4, 8, 9), (4, 6, 7, 11), (6, 5, 10, 13)):  # no size is also one of theta's
        assert compiled(values(*shape), values(shape[0], 2, 3)).shape == shape
    (graph,) = graphs
    targets = [node.target for node in graph.graph.nodes if "polyphase" in str(node.target)]
    assert targets == [
        torch.ops.polyphase.affine_sample,
        torch.ops.polyphase.affine_grid,
        torch.ops.polyphase.grid_sample,
    ]


@pytest.mark.parametrize("function", [through_grid, at_once])
def test_symbolic_sizes_stay_symbolic(function: Callable[[Tensor, Tensor], Tensor]) -> None:
    both = partial(squares, function)
    traced = make_fx(both, tracing_mode="symbolic")(values(5, 4, 8, 9), values(5, 2, 3))
    given = values(4, 6, 7, 11), values(4, 2, 3, seed=3)
    torch.testing.assert_close(traced(*given), both(*given), rtol=0, atol=0)


@pytest.mark.parametrize("strict", [False, True])
def test_exported(strict: bool) -> None:
    class Module(torch.nn.Module):
        def forward(self, image: Tensor, theta: Tensor) -> Tensor:
            return through_grid(image, theta) + at_once(image, theta)[:, :, :1, :1]

    given = values(2, 3, 8, 9), values(2, 2, 3)
    exported = torch.export.export(Module(), given, strict=strict)
    assert torch.equal(exported.module()(*given), Module()(*given))


def test_meta_tensors_have_shapes_only() -> None:
    image, theta = torch.empty(2, 3, 8, 9, device="meta"), torch.empty(2, 2, 3, device="meta")
    assert P.affine_grid(theta, (2, 3, 4, 5)).shape == (2, 4, 5, 2)
    for result in (
        P.affine_sample(image, theta, (2, 3, 4, 5)),
        P.grid_sample(image, P.affine_grid(theta, (2, 3, 4, 5))),
    ):
        assert (result.device.type, result.shape) == ("meta", (2, 3, 4, 5))


def test_deterministic_algorithms() -> None:
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        first, second = (squares(at_once, values(2, 3, 8, 9), values(2, 2, 3)) for _ in range(2))
        assert all(map(torch.equal, first, second))
    finally:
        torch.use_deterministic_algorithms(before)
