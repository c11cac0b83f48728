"""The operator's derivatives, batching and tracing. Its values are held against eager in `test_functional.py`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import forward_ad, gradcheck, gradgradcheck
from torch.fx.experimental.proxy_tensor import make_fx

import polyphase.functional as P
from polyphase.errors import ProgramSyntaxError
from polyphase.ops.resample import resample
from polyphase.sampling.axis_maps import AxisMap
from polyphase.sampling.evaluate import evaluate
from polyphase.sampling.steps import Area, Flip, Nearest, Pad, Resize, Slice, Step
from polyphase.sampling.text import maps_from_text, maps_to_text
from polyphase.sampling.windows import eager_arithmetic

#: Steps of the last two axes, of 5 and 4 pixels.
KINDS: dict[str, tuple[tuple[Step, ...], tuple[Step, ...]]] = {
    "bilinear": ((Resize(3, "bilinear"),), (Resize(7, "bilinear", align_corners=True),)),
    "antialiased": ((Resize(3, "bicubic", antialias=True),), (Resize(6, "lanczos", antialias=True),)),
    "box": ((Resize(3, "bicubic", antialias=True, box=(0.25, 4.5)),), (Resize(6, "bilinear", box=(1, 3.75)),)),
    "box of nearest": ((Nearest(7, box=(1.5, 4.0)),), (Nearest(3, exact=True, box=(0, 3.25)),)),
    "area": ((Area(2),), (Area(4),)),
    "nearest": ((Nearest(8),), (Nearest(3, exact=True),)),
    "flip": ((Flip(),), ()),
    "crop": ((Slice(1, 4),), (Slice(0, 4, 2), Flip())),
    "constant pad": ((Pad(1, 2, "constant", 1),), (Pad(-1, 3, "constant", 1),)),
    "reflect pad": ((Pad(4, 3, "reflect"),), (Pad(0, -1, "reflect"),)),
    "replicate pad": ((Pad(7, 0, "replicate"),), (Pad(1, 1, "replicate"),)),
    "circular pad": ((Pad(5, 4, "circular"),), (Pad(1, -1, "circular"),)),
    "symmetric pad": ((Pad(5, 4, "symmetric"),), (Pad(1, -1, "symmetric"),)),
    "a chain": (
        (Slice(1, 5), Resize(6, "bilinear", antialias=True), Flip()),
        (Resize(3, "bicubic"), Pad(1, 1, "reflect")),
    ),
}
SUMMING = [kind for kind in KINDS if kind not in ("bilinear", "antialiased", "box", "area", "a chain")]
BORDER = 0.5


def maps_of(kind: str) -> tuple[AxisMap, ...]:
    return tuple(map(AxisMap, KINDS[kind]))


def operator(kind: str, border: float = BORDER) -> Callable[[Tensor], Tensor]:
    text = maps_to_text(maps_of(kind))

    def function(image: Tensor) -> Tensor:
        result: Tensor = resample(image, text, (), (), False, border)
        return result

    return function


def transposed(kind: str) -> Callable[[Tensor], Tensor]:
    text = maps_to_text(maps_of(kind))
    return lambda gradient: resample(gradient, text, (), (5, 4), True, 0)


def dense(kind: str) -> Callable[[Tensor], Tensor]:
    """The operator as two matrices, for torch to differentiate: the truth."""
    rows, columns = (
        evaluate(one, n, eager_arithmetic(torch.float64)) for one, n in zip(maps_of(kind), (5, 4), strict=True)
    )
    border = torch.zeros(int(rows.out_size), int(columns.out_size), dtype=torch.float64)
    if rows.border is not None and columns.border is not None:
        border = BORDER * ((rows.border[:, None] > 0) | (columns.border > 0)).double()
    left, right = rows.dense(), columns.dense().T
    return lambda image: left @ image @ right + border


def values(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(5), dtype=torch.float64).to(dtype)


@pytest.mark.parametrize("kind", KINDS)
def test_values(kind: str) -> None:
    torch.testing.assert_close(operator(kind)(values(2, 3, 5, 4)), dense(kind)(values(2, 3, 5, 4)))


@pytest.mark.parametrize("kind", KINDS)
def test_first_derivatives(kind: str) -> None:
    x = values(2, 5, 4).requires_grad_()
    assert gradcheck(
        operator(kind),
        x,
        check_forward_ad=True,
        check_batched_grad=True,
        check_batched_forward_grad=True,
        fast_mode=True,
    )
    y = operator(kind)(x).detach().requires_grad_()
    assert gradcheck(transposed(kind), y, check_forward_ad=True, check_batched_grad=True, fast_mode=True)


@pytest.mark.parametrize("kind", KINDS)
def test_second_derivatives(kind: str) -> None:
    """Of a function that has some: the square."""
    x = values(2, 5, 4).requires_grad_()
    assert gradgradcheck(
        lambda x: operator(kind)(x) ** 2, x, check_batched_grad=True, check_fwd_over_rev=True, fast_mode=True
    )


@pytest.mark.parametrize("kind", SUMMING)
def test_derivatives_of_complex_images(kind: str) -> None:
    x = torch.complex(values(2, 5, 4), -values(2, 5, 4)).requires_grad_()
    assert gradcheck(operator(kind), x, check_forward_ad=True, check_batched_grad=True, fast_mode=True)
    assert gradgradcheck(operator(kind), x, fast_mode=True)


def test_complex_gradients_keep_channels_last() -> None:
    x = torch.complex(values(2, 3, 5, 4), values(2, 3, 5, 4)).to(memory_format=torch.channels_last).requires_grad_()
    result = P.pad(x, (1, 1, 2, 2), mode="reflect")
    assert result.is_contiguous(memory_format=torch.channels_last)
    (back,) = torch.autograd.grad(result, x, torch.ones_like(result))
    assert back.is_contiguous(memory_format=torch.channels_last)


TRANSFORMS: dict[str, Callable[[Callable[[Tensor], Tensor]], Callable[[Tensor], Any]]] = {
    "grad": lambda f: torch.func.grad(lambda x: (f(x) ** 3).sum()),
    "vmap": torch.func.vmap,
    "vmap over the last dimension": lambda f: lambda x: torch.func.vmap(f, in_dims=2)(x.movedim(0, 2)),
    "vmap of vmap": lambda f: lambda x: torch.func.vmap(torch.func.vmap(f))(torch.stack([x, 2 * x])),
    "vmap of grad": lambda f: torch.func.vmap(torch.func.grad(lambda x: (f(x) ** 3).sum())),
    "grad of vmap": lambda f: torch.func.grad(lambda x: (torch.func.vmap(f)(x) ** 3).sum()),
    "jvp": lambda f: lambda x: torch.func.jvp(lambda x: f(x) ** 2, (x,), (x.cos(),)),
    "vjp": lambda f: lambda x: torch.func.vjp(lambda x: f(x) ** 2, x)[1](f(x).cos()),
    "jacrev": torch.func.jacrev,
    "jacfwd": torch.func.jacfwd,
    "hessian": lambda f: torch.func.hessian(lambda x: (f(x) ** 3).sum()),
    "vmap of hessian": lambda f: torch.func.vmap(torch.func.hessian(lambda x: (f(x) ** 3).sum())),
    "jvp of grad": lambda f: lambda x: torch.func.jvp(torch.func.grad(lambda x: (f(x) ** 3).sum()), (x,), (x.cos(),)),
    "grad of grad": lambda f: torch.func.grad(lambda x: (torch.func.grad(lambda x: (f(x) ** 3).sum())(x) ** 2).sum()),
    "grad of jvp": lambda f: torch.func.grad(
        lambda x: (torch.func.jvp(lambda x: f(x) ** 3, (x,), (x.cos(),))[1]).sum()
    ),
    "jvp of jvp": lambda f: (
        lambda x: torch.func.jvp(lambda x: torch.func.jvp(lambda x: f(x) ** 3, (x,), (x.cos(),))[1], (x,), (x.sin(),))
    ),
    "functionalize": torch.func.functionalize,
}


@pytest.mark.parametrize("kind", ["antialiased", "constant pad"])
@pytest.mark.parametrize("transform", TRANSFORMS)
def test_transforms(kind: str, transform: str) -> None:
    transformed, x = TRANSFORMS[transform], values(2, 5, 4)
    torch.testing.assert_close(transformed(operator(kind))(x), transformed(dense(kind))(x))


def test_transforms_of_the_functional_api() -> None:
    x = values(2, 3, 5, 4)
    for ours, theirs in (
        (partial(P.interpolate, size=(3, 6), mode="bilinear"), partial(F.interpolate, size=(3, 6), mode="bilinear")),
        (partial(P.pad, pad=(1, 2, 3, 0), mode="reflect"), partial(F.pad, pad=(1, 2, 3, 0), mode="reflect")),
        (partial(P.flip, dims=(-1, 1)), partial(torch.flip, dims=(-1, 1))),
    ):
        for transform in ("grad", "vmap of grad", "jvp", "vjp"):
            image = torch.stack([x, 2 * x]) if "vmap" in transform else x
            got, wanted = (TRANSFORMS[transform](function)(image) for function in (ours, theirs))
            torch.testing.assert_close(got, wanted)


def test_a_dual_that_needs_no_gradient() -> None:
    x, tangent = values(2, 5, 4), values(2, 5, 4) + 1
    with forward_ad.dual_level():
        _, got = forward_ad.unpack_dual(operator("constant pad")(forward_ad.make_dual(x, tangent)))
    torch.testing.assert_close(got, operator("constant pad", border=0)(tangent))


def test_images_that_cannot_be_differentiated() -> None:
    x = values(2, 5, 4, dtype=torch.int64)
    assert not operator("flip")(x).requires_grad
    with torch.no_grad():
        assert not operator("flip")(values(2, 5, 4).requires_grad_()).requires_grad


@pytest.mark.parametrize("kind", ["antialiased", "constant pad", "flip"])
@pytest.mark.parametrize("needs_gradient", [False, True])
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_opcheck(kind: str, needs_gradient: bool, memory_format: torch.memory_format) -> None:
    text = maps_to_text(maps_of(kind))
    x = values(2, 3, 5, 4, dtype=torch.float32).to(memory_format=memory_format).requires_grad_(needs_gradient)
    y = operator(kind)(x).detach().requires_grad_(needs_gradient)
    torch.library.opcheck(resample, (x, text, (), (), False, BORDER))
    torch.library.opcheck(resample, (y, text, (), (5, 4), True, 0))


def test_opcheck_with_slots() -> None:
    text = "[axismap([resize(size0, bilinear, antialias=True)]), axismap([pad(size1, size2, reflect)])]"
    x = values(2, 3, 5, 4, dtype=torch.float32).requires_grad_()
    torch.library.opcheck(resample, (x, text, (7, 1, 2), (), False, 0))
    torch.library.opcheck(resample, (values(2, 3, 7, 7).requires_grad_(), text, (7, 1, 2), (5, 4), True, 0))


@pytest.mark.parametrize(
    "size", [lambda x: 2 * x.shape[2], lambda x: (2 * x.shape[2], 5), lambda x: (5, x.shape[3] - 1)]
)
def test_traced_for_any_size(size: Callable[[Tensor], Any]) -> None:
    def function(x: Tensor) -> Tensor:
        return P.interpolate(x, size(x), mode="bilinear")

    graph = make_fx(function, tracing_mode="symbolic")(values(2, 3, 8, 9))
    for shape in ((2, 3, 8, 9), (2, 3, 12, 7)):
        torch.testing.assert_close(graph(values(*shape)), function(values(*shape)), rtol=0, atol=0)


def chain(image: Tensor) -> Tensor:
    resized = P.interpolate(image, size=(6, 5), mode="bicubic", antialias=True)
    return P.crop(P.pad(P.flip(resized, (-1,)), (1, 2, 3, 1), mode="reflect"), -1, 1, 6, 5) * 2


def scaled(image: Tensor) -> Tensor:
    return P.interpolate(image, scale_factor=1.5, mode="bilinear")


def boxed(image: Tensor) -> Tensor:
    half = P.interpolate(image, (6, 5), mode="bilinear", antialias=True, box=(0.5, 1, 6.25, 7))
    return P.interpolate(half, 7, mode="nearest-exact", box=(1, 1.5, 4, 5.5)) * 2


@pytest.mark.parametrize("function", [chain, scaled, boxed])
@pytest.mark.parametrize("dynamic", [False, True])
def test_compiled(function: Callable[[Tensor], Tensor], dynamic: bool) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(function, backend="aot_eager", dynamic=dynamic, fullgraph=True)
    for shape in ((2, 3, 8, 9), (3, 2, 11, 7)):
        x = values(*shape)
        torch.testing.assert_close(compiled(x), function(x), rtol=0, atol=0)
        got, wanted = (gradient(each, x) for each in (compiled, function))
        torch.testing.assert_close(got, wanted, rtol=0, atol=0)


def gradient(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    x = x.clone().requires_grad_()
    return torch.autograd.grad((function(x) ** 2).sum(), x)[0]


def test_a_call_is_one_node_of_a_dynamo_graph_whatever_the_size() -> None:
    graphs: list[torch.fx.GraphModule] = []

    def backend(graph: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        graphs.append(graph)
        return graph.forward

    torch._dynamo.reset()
    compiled = torch.compile(lambda x: P.pad(P.interpolate(x, 6, mode="area"), (1, 1)), backend=backend, dynamic=True)
    for shape in ((2, 3, 8, 9), (4, 5, 7, 11), (6, 2, 10, 13)):
        assert compiled(values(*shape)).shape == (*shape[:2], 6, 8)
    (graph,) = graphs
    targets = [node.target for node in graph.graph.nodes if node.op == "call_function"]
    assert targets == [torch.ops.polyphase.interpolate, torch.ops.polyphase.pad]


def test_symbolic_sizes_stay_symbolic() -> None:
    """Forward and backward of a resize to a given size: no size of the image is a constant of the graph."""

    def both(x: Tensor) -> Tensor:
        return gradient(lambda x: P.flip(P.pad(P.interpolate(x, (3, 6), mode="bilinear"), (1, 1, 1, 1)), (-1,)), x)

    traced = make_fx(both, tracing_mode="symbolic")(values(2, 3, 8, 9))
    x = values(4, 5, 7, 11)
    torch.testing.assert_close(traced(x), both(x), rtol=0, atol=0)


@pytest.mark.parametrize("strict", [False, True])
def test_exported(strict: bool) -> None:
    class Module(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return chain(x)

    x = values(2, 3, 8, 9)
    exported = torch.export.export(Module(), (x,), strict=strict)
    assert torch.equal(exported.module()(x), chain(x))


def test_meta_tensors_have_shapes_only() -> None:
    result = P.interpolate(torch.empty(2, 3, 8, 9, device="meta"), (3, 4), mode="bilinear", antialias=True)
    assert (result.device.type, result.shape) == ("meta", (2, 3, 3, 4))


def test_maps_are_text() -> None:
    maps = maps_of("a chain")
    assert maps_from_text(maps_to_text(maps)) == maps
    for text in ("[flip()]", "flip()", "axismap([flip()])", "[["):
        with pytest.raises(ProgramSyntaxError):
            resample(values(2, 3), text, (), (), False, 0)
