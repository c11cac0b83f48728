"""Kernels of operators in C++: the calls they know, made without Python, are those of the Python kernels below them."""

from __future__ import annotations

import functools
import gc
import multiprocessing
import sys
import threading
from collections.abc import Callable
from contextlib import contextmanager
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

import polyphase
from polyphase import accelerate, torch_private
from polyphase.calls import binding, dispatched
from polyphase.compile import overrides
from polyphase.compile.overrides import Override
from polyphase.cpu import launch
from tests.conformance.checks import same_bits
from tests.support.samples import OPERATORS, Sample, small

pytestmark = pytest.mark.cpu

IMAGE = torch.rand(2, 3, 9, 10)
GRID = torch.rand(2, 4, 5, 2) * 2.4 - 1.2
ENOUGH = 5  # times that a call is made before it is known

CALLS: dict[str, Callable[[Tensor], Tensor]] = {
    "flip": lambda image: torch.flip(image, (-1, 0)),
    "antialiased": lambda image: F.interpolate(image, (5, 7), mode="bilinear", antialias=True),
    "by a factor": lambda image: F.interpolate(image, scale_factor=1.7, mode="bicubic"),
    "nearest": lambda image: F.interpolate(image, (4, 20)),
    "area": lambda image: F.adaptive_avg_pool2d(image, (3, 4)),
    "a pad": lambda image: F.pad(image, (1, 2, 3, 0), mode="reflect"),
    "a border": lambda image: F.pad(image, (1, 2), value=0.5),
    "a warp": lambda image: F.grid_sample(image, GRID.to(image.dtype), align_corners=False),
    "a warp, otherwise": lambda image: F.grid_sample(image, GRID.to(image.dtype), "nearest", "border", True),
}


class AlwaysOn:
    """A switch that is on, whatever it is told."""

    mode = overrides.Mode.ON

    def called_while_off(self, override: Override) -> None: ...

    def called_again(self, override: Override) -> None: ...


@contextmanager
def counted(method: Any = Override._call) -> Any:
    """Whose it is, whenever a method of overrides is called: by default, what Python's kernels are entered by."""
    found: list[str] = []
    code = method.__code__

    def profile(frame: Any, event: str, argument: object) -> None:
        if event == "call" and frame.f_code is code:
            found.append(frame.f_locals["self"].operator)

    sys.setprofile(profile)
    try:
        yield found
    finally:
        sys.setprofile(None)


def known(call: Callable[[], Tensor]) -> Tensor:
    """Of a call, made until it is known."""
    for _ in range(ENOUGH):
        result = call()
    return result


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("last", [False, True], ids=["planar", "channels last"])
def test_a_known_call_is_python_s(name: str, last: bool) -> None:
    image = IMAGE.contiguous(memory_format=torch.channels_last) if last else IMAGE
    with accelerate():
        by_python = CALLS[name](image)
        known(lambda: CALLS[name](image))
        before = polyphase.stats()["kernels_launched"]
        with counted() as entered:
            result = CALLS[name](image)
        assert polyphase.stats()["kernels_launched"] == before + 1
    assert torch.equal(result, by_python)
    assert result.stride() == by_python.stride()
    assert entered == (["aten.constant_pad_nd.default"] if name == "a border" else [])


def test_samples_that_are_known() -> None:
    wrong, by_kernels = [], 0
    samples = [one for one in small() if one.operator != "affine_grid"]
    for sample in samples:
        tensors = sample.args

        def call(sample: Sample = sample, tensors: tuple[Tensor, ...] = tensors) -> Tensor:
            return OPERATORS[sample.operator](*tensors, **sample.kwargs)

        with accelerate():
            by_python = call()
            known(call)
            with counted() as entered:
                result = call()
        by_kernels += not entered
        if same_bits(result, by_python) is not None or result.stride() != by_python.stride():
            wrong.append(str(sample))
    assert wrong == []
    assert by_kernels > len(samples) // 2


def test_gradients() -> None:
    image = IMAGE.clone().requires_grad_()

    def step() -> Tensor:
        F.pad(F.interpolate(image, (6, 5), mode="bilinear"), (1, 1, 1, 1), mode="replicate").square().sum().backward()
        gradient, image.grad = image.grad, None
        assert gradient is not None
        return gradient

    expected = step()
    with accelerate():
        known(step)
        with counted() as entered:
            found = step()
    torch.testing.assert_close(found, expected)
    assert entered == []


def test_a_call_that_is_not_ours_is_asked_for_once() -> None:
    empty = torch.rand(0, 3, 4, 4)
    with accelerate():
        known(lambda: CALLS["flip"](IMAGE))
        with counted(Override._direct) as asked:
            for _ in range(2 * ENOUGH):
                assert torch.flip(empty, (0,)).shape == empty.shape
    assert asked == ["aten.flip.default"]


OTHERS: dict[str, Callable[[], Tensor]] = {
    "sizes": lambda: F.interpolate(IMAGE[..., :9], (5, 7), mode="bilinear", antialias=True),
    "strides": lambda: F.interpolate(IMAGE[:, :, :, ::1].mT.contiguous().mT, (5, 7), mode="bilinear", antialias=True),
    "a dtype": lambda: F.interpolate(IMAGE.double(), (5, 7), mode="bilinear", antialias=True),
    "a target": lambda: F.interpolate(IMAGE, (7, 5), mode="bilinear", antialias=True),
    "corners": lambda: F.interpolate(IMAGE, (5, 7), mode="bilinear", antialias=True, align_corners=True),
    "a scale": lambda: torch.ops.aten._upsample_bilinear2d_aa(IMAGE, [5, 7], False, 0.5, None),
    "the other scale": lambda: torch.ops.aten._upsample_bilinear2d_aa(IMAGE, [5, 7], False, None, 0.5),
    "another batch": lambda: F.interpolate(IMAGE[:1], (5, 7), mode="bilinear", antialias=True),
}


def test_that_nothing_is_bound_to_any_size_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[Any]()
    monkeypatch.setattr(binding, "for_any_size", lambda *given: asked.append(given))
    op, switch = torch.ops.aten.flip.default, AlwaysOn()
    override = Override(op, "CPU", overrides._TAKES[op], switch)
    for image in (IMAGE, IMAGE[1:], IMAGE, IMAGE[1:]):
        assert torch.equal(override._call(image, [-1]), torch.flip(image, (-1,)))
    assert len(asked) == 2


@pytest.mark.parametrize("name", OTHERS)
def test_other_calls_are_not_taken_for_it(name: str) -> None:
    expected = OTHERS[name]()
    with accelerate():
        known(lambda: CALLS["antialiased"](IMAGE))
        for _ in range(ENOUGH):
            result = OTHERS[name]()
            torch.testing.assert_close(result, expected)
            assert result.stride() == expected.stride()


class OfOurs(Exception):  # noqa: N818
    pass


def test_mistakes_are_eager_s() -> None:
    def message(call: Callable[[], Tensor]) -> tuple[type, str]:
        with pytest.raises((RuntimeError, IndexError, NotImplementedError)) as raised:
            call()
        return type(raised.value), str(raised.value)

    wrong: list[Callable[[], Tensor]] = [
        lambda: torch.flip(IMAGE, (7,)),
        lambda: torch.flip(IMAGE, (0, 0)),
        lambda: F.grid_sample(IMAGE.int(), GRID, align_corners=False),
        lambda: F.interpolate(IMAGE.long(), (4, 4), mode="bilinear", antialias=True),
    ]
    expected = [message(one) for one in wrong]
    with accelerate():
        for call in (CALLS["flip"], CALLS["a warp"], CALLS["antialiased"]):
            known(functools.partial(call, IMAGE))
        for _ in range(2 * ENOUGH):
            assert [message(one) for one in wrong] == expected


def test_an_error_of_python_s_comes_through_with_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*arguments: object) -> None:
        raise OfOurs("here")

    with accelerate():
        known(lambda: CALLS["flip"](IMAGE))
        monkeypatch.setattr(overrides, "_key", fails)
        with pytest.raises(OfOurs, match="here") as raised:
            CALLS["flip"](torch.rand(1, 1, 1, 1, 1, 1, 2))
    assert raised.traceback[-1].name == "fails"
    assert CALLS["flip"](IMAGE).shape == IMAGE.shape


def test_off_and_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    checked: list[str] = []
    monkeypatch.setattr(overrides, "check", lambda op, *others: checked.append(str(op)))
    with accelerate():
        known(lambda: CALLS["flip"](IMAGE))
        with accelerate(check=True):
            CALLS["flip"](IMAGE)
        assert checked == ["aten.flip.default"]
        CALLS["flip"](IMAGE)
        assert checked == ["aten.flip.default"]
    before = polyphase.stats()["kernels_launched"]
    CALLS["flip"](IMAGE)
    assert polyphase.stats()["kernels_launched"] == before


def test_threads_with_more_sizes_than_are_kept() -> None:
    images = [torch.rand(1, 2, 3, n) for n in range(1, 180)]
    expected = [one.flip(-1, 1) for one in images]
    wrong: list[int] = []

    def call(first: int) -> None:
        for round_ in range(100):
            place = (first + round_ // 4) % len(images)
            for n in (place, (place + 1) % len(images)):
                if not torch.equal(torch.flip(images[n], (-1, 1)), expected[n]):
                    wrong.append(n)

    with accelerate():
        threads = [threading.Thread(target=call, args=(23 * i,)) for i in range(8)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
    assert wrong == []


class Seen(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.operators: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.operators.append(str(func))
        return func(*args, **(kwargs or {}))


def test_modes_and_transforms_come_first() -> None:
    def antialiased(image: Tensor) -> Tensor:
        return CALLS["antialiased"](image)

    expected = antialiased(IMAGE)
    with accelerate():
        known(lambda: antialiased(IMAGE))
        known(lambda: antialiased(IMAGE[:1]))
        with Seen() as seen:
            result = antialiased(IMAGE)
        torch.testing.assert_close(result, expected)
        assert seen.operators == ["aten._upsample_bilinear2d_aa.default"]
        with FakeTensorMode() as mode:
            fake = antialiased(mode.from_tensor(IMAGE))
        assert (type(fake).__name__, fake.shape) == ("FakeTensor", expected.shape)
        mapped = torch.func.vmap(lambda one: antialiased(one[None])[0])(IMAGE)
        torch.testing.assert_close(mapped, expected)
        with torch.inference_mode():
            assert antialiased(IMAGE).is_inference()
        assert torch.compile(antialiased, backend="eager")(IMAGE).shape == expected.shape


def _report(queue: multiprocessing.Queue[bool], expected: Tensor) -> None:
    with counted() as entered:
        result = CALLS["flip"](IMAGE)
    queue.put(torch.equal(result, expected) and entered == [])


def test_forked_workers() -> None:
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    with accelerate():
        expected = known(lambda: CALLS["flip"](IMAGE))
        worker = context.Process(target=_report, args=(queue, expected))
        worker.start()
        assert queue.get(timeout=60)
        worker.join()


def test_nothing_is_kept_of_a_call() -> None:
    image = torch.rand(1, 1, 2, 3)
    with accelerate():
        known(lambda: torch.flip(image, (0,)))
        with pytest.raises(IndexError):
            torch.flip(image, (9,))
    gc.collect()
    assert sys.getrefcount(image) == 2
    assert image._use_count() == 1  # type: ignore[attr-defined]


@pytest.mark.parametrize("missing", ["torch_list_size", torch_private.PYTHON_TENSOR])
def test_without_torch_s_functions_python_s_kernels_stay(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = launch.dispatched_kernels()
    assert kernels is not None, "this torch lacks something: calls take longer"
    names = tuple("no_" + one if one == missing else one for one in dispatched.NAMES)
    monkeypatch.setattr(dispatched, "NAMES", names)
    assert dispatched.usable(kernels) is None


def test_types_that_are_not_known_have_no_signature() -> None:
    aten = torch.ops.aten
    assert dispatched.signature_of(aten.flip.default) == "-t[i"
    assert dispatched.signature_of(aten.grid_sampler_2d.default) == "-t-t-i-i-b"
    assert dispatched.signature_of(aten._upsample_bilinear2d_aa.default) == "-t[i-b?f?f"
    assert dispatched.signature_of(aten.constant_pad_nd.default) is None
    assert dispatched.signature_of(aten.grid_sampler_2d_backward.default) is None
