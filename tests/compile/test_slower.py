"""Calls that ATen's own kernels do in less time are left to them, with a reason; none that leaves its memory is."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import polyphase
from polyphase import accelerate
from polyphase.bench.workloads import TABLE
from polyphase.calls.devices import MODULES, wing_of
from polyphase.calls.slower import Slower, goes_outside, question
from polyphase.compile.reasons import Why
from polyphase.compile.recognise import ATEN_OPERATORS
from tests.compile.graphs import fused

TURNED = torch.rand(8, 4, 12, 40).transpose(-1, -2)
WIDE_TURNED = torch.rand(8, 4, 24, 40).transpose(-1, -2)
PLANES = torch.rand(32, 3, 9, 11)

Call = Callable[..., Tensor]


def sampled(mode: str = "bilinear") -> Call:
    return lambda image, grid: F.grid_sample(image, grid, mode, align_corners=False)


def gradients(mode: str = "bilinear") -> Call:
    def both(image: Tensor, grid: Tensor) -> Tensor:
        tensors = image.detach().requires_grad_(), grid.detach().requires_grad_()
        out = F.grid_sample(*tensors, mode, align_corners=False)
        return torch.cat([one.flatten() for one in torch.autograd.grad(out.square().sum(), tensors)])

    return both


def grid(images: int, *size: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.rand(images, *size, len(size), generator=torch.Generator().manual_seed(1), dtype=dtype) * 2.4 - 1.2


#: What is left, and beside it a call that is nearly the same and is not.
LEFT: dict[str, tuple[Call, tuple[Tensor, ...]]] = {
    "nearest of a transposed view": (lambda x: F.interpolate(x, size=(20, 12)), (WIDE_TURNED,)),
    "constant pad of a transposed view": (lambda x: F.pad(x, (1, 2, 3, 4), value=2), (TURNED,)),
    "reflect pad of a transposed view": (lambda x: F.pad(x, (1, 2, 3, 4), mode="reflect"), (TURNED,)),
    "few points": (sampled(), (PLANES, grid(32, 4, 1))),
}
TAKEN: dict[str, tuple[Call, tuple[Tensor, ...]]] = {
    "nearest": (lambda x: F.interpolate(x, size=(20, 6)), (TURNED.contiguous(),)),
    "nearest, channels last": (
        lambda x: F.interpolate(x, size=(20, 6)),
        (TURNED.contiguous(memory_format=torch.channels_last),),
    ),
    "nearest of a narrow transposed view": (lambda x: F.interpolate(x, size=(20, 6)), (TURNED,)),
    "larger nearest of a transposed view": (lambda x: F.interpolate(x, size=(80, 24)), (TURNED,)),
    "bilinear of a transposed view": (lambda x: F.interpolate(x, size=(20, 6), mode="bilinear"), (TURNED,)),
    "reflect pad": (lambda x: F.pad(x, (1, 2, 3, 4), mode="reflect"), (TURNED.contiguous(),)),
    "many points": (sampled(), (PLANES, grid(32, 40, 1))),
    "float64": (sampled(), (PLANES.double(), grid(32, 30, 2, dtype=torch.float64))),
    "few points in half precision": (sampled(), (PLANES.bfloat16(), grid(32, 4, 1).bfloat16())),
}
_ON_CPU = pytest.mark.cpu


def launched(function: Call, *inputs: Tensor) -> int:
    before = polyphase.stats()["kernels_launched"]
    function(*inputs)
    return polyphase.stats()["kernels_launched"] - before


@_ON_CPU
@pytest.mark.parametrize("name", LEFT)
def test_accelerate_leaves_them(name: str) -> None:
    function, inputs = LEFT[name]
    wanted = function(*inputs)
    with accelerate():
        for _ in range(4):  # by Python at first, then as a call that is known
            assert launched(function, *inputs) == 0
        assert torch.equal(function(*inputs), wanted)


@_ON_CPU
@pytest.mark.parametrize("name", TAKEN)
def test_accelerate_takes_what_is_nearly_the_same(name: str) -> None:
    function, inputs = TAKEN[name]
    with accelerate():
        assert [launched(function, *inputs) for _ in range(4)] == [1] * 4


@_ON_CPU
@pytest.mark.parametrize("name", ["nearest of a transposed view", "few points"])
def test_one_after_the_other(name: str) -> None:
    """A kernel that is bound to any size is not taken for what is left."""
    function, inputs = LEFT[name]
    others = TAKEN["nearest"][1] if len(inputs) == 1 else TAKEN["many points"][1]
    with accelerate():
        for _ in range(4):
            assert launched(function, *others) == 1
            assert launched(function, *inputs) == 0


@_ON_CPU
def test_gradients() -> None:
    few, many = torch.rand(2, 3, 9, 9), torch.rand(2, 20, 9, 9)
    with accelerate():
        assert launched(gradients(), few, grid(2, 50, 2)) == 1  # forward
        assert launched(gradients(), few, grid(2, 40, 2)) == 2  # more pixels than points
        assert launched(gradients(), many, grid(2, 30, 2)) == 2
        assert launched(gradients("bicubic"), few, grid(2, 30, 2)) == 2
        assert launched(gradients(), few.bfloat16(), grid(2, 30, 2).bfloat16()) == 2


@_ON_CPU
@pytest.mark.parametrize("name", LEFT)
def test_the_backend_says_why(name: str) -> None:
    function, inputs = LEFT[name]
    report = fused(lambda *tensors: function(*tensors) * 2, *inputs)[0]
    assert [one.why for one in report.left] == [Why.SLOWER]
    assert not report.kernels


@_ON_CPU
def test_compiled() -> None:
    """What Inductor knows only taken apart is a call of ATen's there, with the results and strides of eager."""
    for function, inputs in LEFT.values():
        torch._dynamo.reset()
        got = torch.compile(lambda *tensors, f=function: f(*tensors) * 2 + 1, backend="polyphase")(*inputs)
        wanted = function(*inputs) * 2 + 1
        torch.testing.assert_close(got, wanted)
        assert got.stride() == wanted.stride()


def lines() -> list[tuple[str, Slower]]:
    return [(device, line) for device in MODULES for line in _table(device)]


def _table(device: str) -> tuple[Slower, ...]:
    return wing_of(torch.device(device)).slower if device == "cpu" or torch.cuda.is_available() else ()


@pytest.mark.parametrize(("device", "line"), [pytest.param(*one, id=one[1].cause) for one in lines()])
def test_each_line_is_of_operators_that_we_take_and_of_a_row_that_is_measured(device: str, line: Slower) -> None:
    known = {str(op).split(".")[1] for op in ATEN_OPERATORS} | {f"grid_sampler_{n}d_backward" for n in (2, 3)}
    assert set(line.operators) <= known
    labels = [f"{case.suite}: {case.label}" for one in TABLE for case in one.cases() if device in case.devices]
    assert any(label.startswith(line.measured) for label in labels)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("operator", ["grid_sampler_2d", "grid_sampler_2d_backward", "grid_sampler_3d"])
def test_what_goes_outside_its_memory_is_never_left(operator: str, dtype: torch.dtype) -> None:
    image = torch.rand(1, 1, 182, 182).to(dtype)
    assert goes_outside(operator, (image, grid(1, 1, 2).to(dtype), 0, 0, True))
    always = Slower("always", (operator, "upsample_bilinear2d"), lambda *arguments: True, "")
    asked = question((always,), operator)
    assert asked is not None
    assert not asked(image, grid(1, 1, 2).to(dtype), 0, 0, True)
    assert asked(image.float(), grid(1, 1, 2), 0, 0, True)
    bytes_ = question((always,), "upsample_bilinear2d")
    assert bytes_ is not None
    assert not bytes_(torch.zeros(1, 1, 4, 1, dtype=torch.uint8), [2, 1], False)


def test_an_operator_without_lines_is_not_asked() -> None:
    assert question((), "flip") is None
