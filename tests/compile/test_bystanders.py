"""What is not resampling stays Inductor's, and what torch.compile is used with keeps working."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch._inductor import config
from torch._inductor.utils import run_and_get_code
from torch.utils.checkpoint import checkpoint

import polyphase
from tests.compile.running import check, check_gradients, compiled, launches, same
from tests.support.samples import image

pytestmark = pytest.mark.inductor

Function = Callable[..., Any]

IMAGE = image((2, 3, 12, 17))
MATRIX = image((1, 1, 12, 16))[0, 0]


def resized(x: Tensor) -> Tensor:
    return F.interpolate(x, size=(9, 20), mode="bilinear", antialias=True)


# ---- no resampling


def network(x: Tensor, weight: Tensor) -> Tensor:
    hidden = F.gelu(F.layer_norm(x @ weight.T, (12,)))
    return torch.cat([hidden.softmax(-1), hidden[:, 2:7] * 2], 1).logsumexp(0)


def pooled(x: Tensor, weight: Tensor) -> Tensor:
    return F.avg_pool2d(F.max_pool2d(F.conv2d(x, weight, padding=1).relu(), 2), 2)[:, :, 1:]


def indexed(x: Tensor, index: Tensor) -> Tensor:
    y = torch.gather(x, 1, index)
    y = torch.slice_scatter(y, x[:, 1:4] * 3, 1, 2, 5)
    y[:, 0] = 7
    return torch.roll(y, 1, 0).repeat(2, 1).as_strided((4, 3), (3, 1))


def of_matrices(matrix: Tensor, index: Tensor) -> Tensor:
    return network(matrix, matrix).sum() + indexed(matrix, index)


def of_images(x: Tensor, weight: Tensor, matrix: Tensor, index: Tensor) -> Tensor:
    return pooled(x, weight).sum() + of_matrices(matrix, index)


OF_MATRICES = (MATRIX, torch.arange(12 * 16).view(12, 16) % 16)
OF_IMAGES = (IMAGE, image((4, 3, 3, 3), seed=1), *OF_MATRICES)


def source(function: Function, backend: str, gradients: bool, *tensors: Tensor) -> list[str]:
    """What was generated, forward and backward, but for numbers of graphs and names of files."""
    torch._dynamo.reset()
    given = [one.clone().requires_grad_(gradients and one.is_floating_point()) for one in tensors]

    def run() -> Any:
        result = torch.compile(function, backend=backend)(*given)
        return torch.autograd.grad(result.sum(), [one for one in given if one.requires_grad]) if gradients else result

    uncached = config.patch(fx_graph_cache=False), torch._functorch.config.patch(enable_autograd_cache=False)
    with uncached[0], uncached[1]:
        _, codes = run_and_get_code(run)
    assert len(codes) == 1 + gradients
    return [re.sub(r"# AOT ID.*|/\S+/\w+\.(cpp|h|py|main)\b", "", code) for code in codes]


def assert_inductors(function: Function, gradients: bool, *tensors: Tensor) -> None:
    ours, inductors = (source(function, one, gradients, *tensors) for one in ("polyphase", "inductor"))
    assert ours == inductors


def test_code_without_resampling_is_inductors() -> None:
    assert_inductors(of_matrices, True, *OF_MATRICES)


@pytest.mark.full
@pytest.mark.parametrize("gradients", [False, True])
def test_code_without_resampling_is_inductors_of_images_too(gradients: bool) -> None:
    assert_inductors(of_images, gradients, *OF_IMAGES)


def test_code_with_resampling_is_not() -> None:
    """Which the test above would find."""
    ours, inductors = (source(resized, backend, False, IMAGE) for backend in ("polyphase", "inductor"))
    assert ours != inductors


# ---- beside resampling, in one graph with it


def attention(x: Tensor) -> Tensor:
    tokens = resized(x).flatten(2).transpose(1, 2)[None]
    return F.scaled_dot_product_attention(tokens, tokens, tokens)


def scattered(x: Tensor) -> Tensor:
    y = resized(x)
    return torch.slice_scatter(y, y[..., 1:5] * 2, 3, 2, 6)


def gathered(x: Tensor) -> Tensor:
    y = resized(x)
    return torch.gather(y, 3, (y * 1000).long() % y.shape[3])


def complex_sum(x: Tensor) -> Tensor:
    y = resized(x)
    return torch.view_as_real(torch.complex(y, y.flip(-1)) + torch.complex(y, y) * 2j)


def written_slice(x: Tensor) -> Tensor:
    y = resized(x)
    y[:, :, 2:5].mul_(2)
    return y


def written_before_it_is_read(x: Tensor) -> tuple[Tensor, Tensor]:
    y = torch.flip(x, (-1,))
    x.mul_(2)
    return y.float() + 1, y[..., 1:3]


def written_between(x: Tensor) -> tuple[Tensor, Tensor]:
    """A chain that is fused reads its operand after it is written."""
    offset = x.new_ones(3, 1, 1)
    y = resized(x)
    offset.add_(x.mean())
    y = y * offset
    x.zero_()
    return y.flip(-2), x


def written_into(x: Tensor) -> Tensor:
    x[:, :, 1:4, 2:9] = F.interpolate(x, size=(3, 7), mode="bicubic")
    return x[:, 1:]


def a_view_is_returned(x: Tensor) -> tuple[Tensor, Tensor]:
    y = resized(x)
    return y[..., 2:5], y


def a_view_alone(x: Tensor) -> Tensor:
    return resized(x)[:, :, 1:7, 2:9]


BESIDE: dict[str, Function] = {
    "attention": attention,
    "slice_scatter": scattered,
    "gather": gathered,
    "cat": lambda x: torch.cat([resized(x), resized(x.flip(-1)), x[:, :, :9].repeat(1, 1, 1, 2)[..., :20]], 1),
    "softmax": lambda x: resized(x.softmax(1)).softmax(-1),
    "pools": lambda x: F.max_pool2d(resized(x), 2) + F.adaptive_avg_pool2d(x, 1),
    "complex": complex_sum,
    "where": lambda x: torch.where(resized(x) > 0.5, resized(x), 0.25),
    "matmul": lambda x: resized(x) @ x[:, :, :, :1].expand(2, 3, 12, 20).transpose(-1, -2),
    "channels last": lambda x: resized(x.contiguous(memory_format=torch.channels_last)) + 1,
}
WRITING: dict[str, Function] = {
    "a slice": written_slice,
    "the input, before the result is read": written_before_it_is_read,
    "an operand, and then the input": written_between,
    "a resize into its own image": written_into,
    "nothing, and a view is returned": a_view_is_returned,
    "nothing, and a view alone is returned": a_view_alone,
}


def test_beside_resampling() -> None:
    """Together, which is one graph to compile; each on its own image, for none to share a resize with another."""

    def together(*images: Tensor) -> tuple[Tensor, ...]:
        return tuple(function(x) for function, x in zip(BESIDE.values(), images, strict=True))

    check(together, *(IMAGE for _ in BESIDE))


@pytest.mark.full
@pytest.mark.parametrize("name", BESIDE)
def test_gradients_beside_resampling(name: str) -> None:
    check_gradients(BESIDE[name], IMAGE)


def test_writing() -> None:
    def together(*images: Tensor) -> list[Tensor]:
        results = [function(x) for function, x in zip(WRITING.values(), images, strict=True)]
        return [one for result in results for one in ((result,) if isinstance(result, Tensor) else result)]

    check(together, *(IMAGE for _ in WRITING))


@pytest.mark.full
@pytest.mark.parametrize("name", WRITING)
def test_writing_alone(name: str) -> None:
    check(WRITING[name], IMAGE)


def test_setitem_under_compiled_autograd() -> None:
    def step(x: Tensor) -> Tensor:
        y = resized(x * 2)
        y[:, :, 1:3] = y[:, :, 4:6] * 3
        y[:, 0] = 1
        loss = (y * y).sum()
        loss.backward()
        return loss

    theirs, ours = (IMAGE.clone().requires_grad_() for _ in range(2))
    want = step(theirs)
    with torch._dynamo.config.patch(compiled_autograd=True):
        got = compiled(step)(ours)
    torch.testing.assert_close(got, want)
    torch.testing.assert_close(ours.grad, theirs.grad)


# ---- ways to compile


def chain(x: Tensor) -> Tensor:
    y = F.interpolate(x, size=(9, 20), mode="bilinear", antialias=True)[..., 1:8, 2:17].flip(-1)
    return F.pad(y.float() / 255 - 0.5, (1, 2, 2, 1), mode="reflect")


PIXELS = image((2, 3, 12, 17), torch.uint8)


@pytest.mark.parametrize(
    "options",
    [
        {"fullgraph": True},
        {"mode": "reduce-overhead"},
        {"mode": "max-autotune-no-cudagraphs"},
        {"options": {"polyphase.fusion": False}},
        {"options": {"max_autotune": False, "polyphase.fusion": True}},
    ],
    ids=str,
)
def test_options(options: dict[str, Any]) -> None:
    run = compiled(chain, **options)
    check(chain, PIXELS, run=run)
    _, launched = launches(run, PIXELS)
    assert launched == (1 if options.get("options", {}).get("polyphase.fusion", True) else 3)


@pytest.mark.full  # AOTInductor has that wrapper too: tests/decompositions/test_export.py
def test_cpp_wrapper() -> None:
    def simple(x: Tensor) -> Tensor:
        return F.interpolate(x, size=(9, 20), mode="bilinear").flip(-1)

    # A header compiled beforehand takes longer than the one graph that would use it.
    check(simple, IMAGE, run=compiled(simple, options={"cpp_wrapper": True, "cpp_cache_precompile_headers": False}))


def test_unknown_options_are_refused() -> None:
    with pytest.raises(Exception, match=r"polyphase\.fusion"):
        compiled(chain, options={"polyphase.fusion": 1})(PIXELS)
    with pytest.raises(Exception, match="nonsense"):
        compiled(chain, options={"nonsense": True})(PIXELS)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_without_gradients(mode: Callable[[], Any]) -> None:
    run = compiled(resized)
    x = IMAGE.clone().requires_grad_()
    with mode():
        got, launched = launches(run, x)
    assert launched == 1
    assert not got.requires_grad
    same(got, resized(x).detach())
    ours, eagers = (torch.autograd.grad(function(x).sum(), x) for function in (run, resized))
    torch.testing.assert_close(ours, eagers)


def under_autocast(x: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
    with torch.autocast(x.device.type, torch.bfloat16):
        y = F.conv2d(x, weight, padding=1)
        theta = torch.tensor([[[0.9137, 0.1, 0], [0, 1.1171, 0]]] * 2, device=x.device)
        grid = F.affine_grid(theta, [2, 3, 5, 6], align_corners=False)
        return (
            y,
            F.interpolate(y, scale_factor=2.0, mode="bilinear"),
            F.interpolate(y, size=(5, 7), mode="area"),
            F.interpolate(x, scale_factor=0.5, mode="nearest"),
            F.pad(y, (1, 2, 1, 0), mode="reflect"),
            F.pad(y, (1, 2, 1, 0), mode="replicate"),
            F.pad(y, (1, 2, 1, 0)),
            F.grid_sample(y, grid.to(y.dtype), align_corners=False),
            y.flip(-1),
        )


def test_autocast_has_eagers_dtypes() -> None:
    weight = image((3, 3, 3, 3), seed=2) - 0.5
    want, got = under_autocast(IMAGE, weight), compiled(under_autocast)(IMAGE, weight)
    assert [one.dtype for one in got] == [one.dtype for one in want]
    torch.testing.assert_close(got, want, rtol=2e-2, atol=2e-2)


def loss(x: Tensor) -> Tensor:
    return F.interpolate(x, scale_factor=1.5, mode="bicubic").flip(-1).square().mean()


TRANSFORMS: dict[str, Function] = {
    "grad": torch.func.grad(loss),
    "vmap": torch.func.vmap(resized),
    "vmap of grad": torch.func.vmap(torch.func.grad(loss)),
    "vmap of flip and pad": torch.func.vmap(lambda x: F.pad(torch.flip(x, (-1,)), (1, 2, 1, 1), mode="reflect") * 2),
    "jvp": lambda x: torch.func.jvp(resized, (x,), (x.cos(),))[1],
}


@pytest.mark.parametrize(
    "name",  # vmap of grad is grad and vmap
    [pytest.param(name, marks=() if name in ("vmap of grad", "jvp") else pytest.mark.full) for name in TRANSFORMS],
)
def test_transforms(name: str) -> None:
    x = torch.stack([IMAGE, IMAGE.cos()]) if "vmap" in name else IMAGE
    try:
        got = compiled(lambda x: TRANSFORMS[name](x))(x)
    except Exception as error:
        torch._dynamo.reset()
        with pytest.raises(type(error)):  # what Inductor does, we do
            torch.compile(lambda x: TRANSFORMS[name](x))(x)
        pytest.skip(f"not Inductor's either: {error}")
    torch.testing.assert_close(got, TRANSFORMS[name](x))


@pytest.mark.full  # a warp's has a matrix besides
def test_checkpoint() -> None:
    def step(x: Tensor) -> Tensor:
        inner: Any = checkpoint(
            lambda x: (F.interpolate(x, scale_factor=2.0, mode="bilinear").sigmoid() * 2).flip(-1),
            x,
            use_reentrant=False,
        )
        result: Tensor = inner.square() + 1
        return result

    run = compiled(step)
    check_gradients(step, IMAGE, run=run)
    _, launched = launches(run, IMAGE)
    assert launched >= 1


def test_checkpoint_around_a_warp() -> None:
    def warped(x: Tensor, theta: Tensor) -> Tensor:
        return F.grid_sample(x, F.affine_grid(theta, [2, 3, 8, 9], align_corners=False), align_corners=False)

    def step(x: Tensor, theta: Tensor) -> Tensor:
        inner: Any = checkpoint(warped, x, theta, use_reentrant=False)
        result: Tensor = inner.square()
        return result

    theta = torch.tensor([[0.9137, 0.113, 0.02], [-0.21, 1.0871, -0.071]]).repeat(2, 1, 1)
    run = compiled(step)
    check_gradients(step, IMAGE, theta, run=run, rtol=1e-3)


class Small(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.convolution = torch.nn.Conv2d(3, 4, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.convolution(F.interpolate(x, size=(16, 18), mode="bilinear", antialias=True)).relu()
        return F.interpolate(y, scale_factor=2.0, mode="nearest").flip(-1)


def test_export() -> None:
    model, x = Small().eval(), IMAGE
    program = torch.export.export(model, (x,))
    same(program.module()(x), model(x))
    lowered = program.run_decompositions({**torch.export.default_decompositions(), **polyphase.decompositions.table()})
    same(lowered.module()(x), model(x))
    assert not [node for node in lowered.graph.nodes if "polyphase" in str(node.target)]
