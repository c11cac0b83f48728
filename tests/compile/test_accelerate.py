"""`accelerate()`: on inside, off outside, counted, in other threads and processes; and what it does not take."""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch._dispatch.python import enable_python_dispatcher

import polyphase
import polyphase.functional as P
from polyphase import accelerate
from polyphase.calls import binding
from polyphase.calls.bound import BoundCall
from polyphase.compile import overrides
from polyphase.compile.overrides import MOST_CALLS_OUTSIDE, Override
from polyphase.errors import NoKernelError
from polyphase.sampling.programs import Program

IMAGE = torch.rand(2, 3, 20, 22)


def resized() -> Tensor:
    return F.interpolate(IMAGE, size=(10, 13), mode="bilinear", antialias=True)


def launched(function: Callable[[], object] = resized) -> int:
    before = polyphase.stats()["kernels_launched"]
    function()
    return polyphase.stats()["kernels_launched"] - before


@pytest.fixture(autouse=True)
def _off_afterwards() -> None:
    assert launched() == 0, "somebody left it on"


def test_a_block() -> None:
    with accelerate():
        assert launched() == 1
        with accelerate():
            assert launched() == 1
        assert launched() == 1
    assert launched() == 0


def test_an_error_ends_it() -> None:
    with pytest.raises(ZeroDivisionError), accelerate():
        1 / 0  # noqa: B018
    assert launched() == 0


def test_a_decorator() -> None:
    @accelerate()
    def with_parentheses() -> int:
        return launched()

    @accelerate
    def without() -> int:
        """Kept."""
        return launched()

    assert (with_parentheses(), without(), launched()) == (1, 1, 0)
    assert without.__doc__ == "Kept."


def test_a_switch() -> None:
    accelerate(True)
    accelerate(True)
    try:
        assert launched() == 1
        with accelerate():
            pass
        assert launched() == 1
    finally:
        accelerate(False)
    with accelerate():
        accelerate(False)
        assert launched() == 1, "a block that is running keeps it on"


@pytest.mark.parametrize("wrong", ["yes", 1, 0.0, []])
def test_what_is_no_switch_is_refused(wrong: object) -> None:
    with pytest.raises(TypeError, match="True, False"):
        accelerate(wrong)  # type: ignore[call-overload]


def test_all_threads() -> None:
    found: list[int] = []
    with accelerate():
        thread = threading.Thread(target=lambda: found.append(launched()))
        thread.start()
        thread.join()
    assert found == [1]


def flipped() -> Tensor:
    return torch.flip(IMAGE, (-1,))


def test_a_block_that_is_entered_again_puts_nothing_into_the_dispatcher(monkeypatch: pytest.MonkeyPatch) -> None:
    with accelerate():
        pass
    put: list[str] = []
    monkeypatch.setattr(Override, "put", lambda override: put.append(override.operator))
    for _ in range(3):
        with accelerate():
            assert launched(flipped) == 1
        assert launched(flipped) == 0
    assert put == []


def kernel_of_flip() -> str:
    """Who registered it, as the dispatcher has it."""
    return next(line for line in torch._C._dispatch_dump_table("aten::flip").splitlines() if line.startswith("CPU:"))


@pytest.mark.cpu
def test_an_override_that_is_in_the_way_goes_and_comes_back() -> None:
    for _ in range(2):
        with accelerate():
            assert launched(flipped) == 1
        assert "overrides.py" in kernel_of_flip()
        expected = flipped()
        for _ in range(MOST_CALLS_OUTSIDE):
            assert torch.equal(flipped(), expected)
        assert "overrides.py" not in kernel_of_flip()


def test_none_is_taken_away_while_python_dispatches() -> None:
    """Inductor does so while it compiles, and calls pads to measure them: the process ended there."""
    with accelerate():
        F.pad(IMAGE, (1, 1))
    with enable_python_dispatcher():
        for _ in range(3 * MOST_CALLS_OUTSIDE):
            padded = torch.ops.aten.constant_pad_nd(IMAGE, [0, 1])
    assert torch.equal(padded, F.pad(IMAGE, (0, 1)))


def test_threads_that_enter_and_call_outside() -> None:
    """Overrides are put and taken away while others are called."""
    expected, wrong = flipped(), []

    def enter() -> None:
        for _ in range(100):
            with accelerate():
                wrong.append(not torch.equal(flipped(), expected))

    def call() -> None:
        for _ in range(2000):
            wrong.append(not torch.equal(flipped(), expected))

    threads = [threading.Thread(target=one) for one in (enter, call, enter, call)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert not any(wrong)


def _report(queue: multiprocessing.Queue[int]) -> None:
    queue.put(launched())


@pytest.mark.cpu
def test_forked_workers() -> None:
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    with accelerate():
        resized()
        worker = context.Process(target=_report, args=(queue,))
        worker.start()
        assert queue.get(timeout=60) == 1
        worker.join()


def test_gradients_are_ours_too() -> None:
    image = IMAGE.clone().requires_grad_()

    def step() -> None:
        F.interpolate(image, scale_factor=2, mode="bicubic").sum().backward()

    with accelerate():
        assert launched(step) == 2
    expected = IMAGE.clone().requires_grad_()
    F.interpolate(expected, scale_factor=2, mode="bicubic").sum().backward()
    torch.testing.assert_close(image.grad, expected.grad)


NOT_TAKEN: dict[str, Callable[[], Tensor]] = {
    "an empty batch": lambda: F.interpolate(torch.rand(0, 3, 8, 8), size=(4, 4), mode="bilinear"),
    "no dimension flipped": lambda: torch.flip(IMAGE, ()),
    "a dtype without a kernel": lambda: torch.flip(torch.zeros(2, 3).to(torch.float8_e5m2), (0,)),
    "a pad of nothing": lambda: F.pad(IMAGE, (0, 0)),
}
WRONG: dict[str, Callable[[], Tensor]] = {
    "no size": lambda: F.interpolate(IMAGE, size=(0, 3), mode="bilinear"),
    "a dimension twice": lambda: torch.flip(IMAGE, (0, 0)),
    "no such dimension": lambda: torch.flip(IMAGE, (7,)),
    "too large a reflection": lambda: F.pad(IMAGE, (30, 30, 1, 1), mode="reflect"),
    "too small a pad": lambda: F.pad(IMAGE, (-30, -30)),
    "integers mixed": lambda: F.interpolate(IMAGE.long(), size=(4, 4), mode="bilinear"),
    "a grid of another batch": lambda: F.grid_sample(IMAGE, torch.rand(3, 2, 2, 2), align_corners=False),
    "bytes on a line": lambda: F.interpolate(IMAGE[0].byte(), size=4, mode="linear"),
    "a crop of more than there is": lambda: F.pad(IMAGE, (7, -IMAGE.shape[-1] - 1)),
    "a replication of nothing": lambda: F.pad(IMAGE[0, 0], (0, -IMAGE.shape[-1]), mode="replicate"),
    "a border that bytes cannot hold": lambda: F.pad(IMAGE.byte(), (1, 1), value=float("inf")),
    "an operator called wrongly": lambda: torch.ops.aten.upsample_bilinear2d(IMAGE[0], [4, 4], False),
}


@pytest.mark.parametrize("name", NOT_TAKEN)
def test_what_is_not_taken_runs_as_it_would_have(name: str) -> None:
    expected = NOT_TAKEN[name]()
    with accelerate():
        result = NOT_TAKEN[name]()
    assert (result.dtype, result.shape, result.stride()) == (expected.dtype, expected.shape, expected.stride())
    torch.testing.assert_close(result.float(), expected.float())


@pytest.mark.parametrize("name", WRONG)
def test_mistakes_are_eager_s(name: str) -> None:
    with pytest.raises(Exception) as expected:  # noqa: PT011
        WRONG[name]()
    with accelerate(), pytest.raises(type(expected.value)) as ours:
        WRONG[name]()
    assert str(ours.value) == str(expected.value)


def downscaled(image: Tensor) -> Tensor:
    return F.interpolate(image, size=(10, 13), mode="bilinear", antialias=True)


def test_plain_inductor_calls_them() -> None:
    """The antialiased resize is an opaque call there."""
    compiled: Callable[[Tensor], Tensor] = torch.compile(downscaled)
    with accelerate():
        compiled(IMAGE)
        assert launched(lambda: compiled(IMAGE)) == 1
    assert launched(lambda: compiled(IMAGE)) == 0


@pytest.mark.cpu
def test_what_torch_does_as_well_is_atens_own() -> None:
    """Long runs and many dimensions, which no kernel of ours is for; also where our functions ask torch for them."""
    long, high = torch.arange(2**16 + 5), torch.rand([2] * 13).permute(*reversed(range(13)))
    flipped, padded, turned = long.flip(0), F.pad(long, (1, -2), value=3), high.flip(*range(1, 13, 2))
    with accelerate():
        before = polyphase.stats()["kernels_launched"]
        for module in (torch, P):
            assert torch.equal(module.flip(long, (0,)), flipped)
            assert torch.equal(module.flip(high, tuple(range(1, 13, 2))), turned)
        for functions in (F, P):
            assert torch.equal(functions.pad(long, (1, -2), value=3), padded)
        assert polyphase.stats()["kernels_launched"] == before


@pytest.mark.parametrize(("device", "order"), [("cpu", "preserve"), ("cuda", "contiguous")])
def test_strides_are_decided_by_the_device(device: str, order: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Eager's kernels for CUDA make contiguous what the CPU's leave channels last. Needs no GPU: nothing is bound."""
    decided: list[Program] = []

    def bound(program: Program, inputs: object) -> BoundCall:
        decided.append(program)
        raise NoKernelError("only what was decided is wanted")

    monkeypatch.setattr(binding, "bound", bound)
    image = torch.empty((2, 3, 8, 9), device="meta", memory_format=torch.channels_last)
    with pytest.raises(NoKernelError):
        overrides._sampled(torch.ops.aten.reflection_pad2d.default, torch.device(device), [image, [1, 2, 1, 2]])
    assert [one.order for one in decided] == [order]
