"""What must not go straight to a kernel."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import make_fx
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import polyphase.functional as P
from polyphase import torch_private
from polyphase.calls import devices, plain
from polyphase.calls.plain import DIFFERENTIABLE, DTYPES, MOST_DIMENSIONS, is_plain
from polyphase.errors import MissingTorchInternalsWarning

IMAGE = torch.rand(2, 3, 4, 5)


def is_plain_or_recorded(image: object) -> bool:
    return is_plain(image, recorded=True)


def recorded() -> Tensor:
    return IMAGE.clone().requires_grad_()


@pytest.fixture
def _nothing_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain, "_USUAL", defaultdict(lambda: plain._never))
    monkeypatch.setattr(plain, "_CHECKS", {})
    monkeypatch.setattr(plain, "_SEEN", set())


@pytest.mark.usefixtures("_nothing_seen")
def test_checks_are_made_once_for_a_kind_and_device() -> None:
    for _ in range(3):
        assert is_plain(IMAGE)
        assert is_plain(IMAGE.double())
        assert is_plain_or_recorded(recorded())
        assert not is_plain(IMAGE.to("meta"))
    assert {str(device) for device, _ in plain._SEEN} == {"cpu", "meta"}
    assert [len(checks) for checks in plain._CHECKS.values()] == [4, 4, 1]


@pytest.mark.usefixtures("_nothing_seen")
def test_devices_that_are_switched_off_have_no_plain_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYPHASE_DEVICES", "none")
    assert not is_plain(IMAGE)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_dense_cpu_tensors_are_plain(dtype: torch.dtype) -> None:
    for rank in range(MOST_DIMENSIONS + 1):
        assert is_plain(torch.zeros([2] * rank, dtype=dtype))
    image = torch.zeros(2, 3, 4, 5, dtype=dtype)
    views = [image[:, :, 1:], image.mT, image.expand(2, 3, 4, 5), image.to(memory_format=torch.channels_last)]
    assert all(map(is_plain, views))


@pytest.mark.parametrize("dtype", DIFFERENTIABLE, ids=str)
def test_gradients_may_be_recorded(dtype: torch.dtype) -> None:
    for rank in range(MOST_DIMENSIONS + 1):
        leaf = torch.zeros([2] * rank, dtype=dtype, requires_grad=True)
        for image in (leaf, leaf * 2, leaf.detach()):
            assert is_plain_or_recorded(image)
            assert is_plain(image) is not image.requires_grad
    assert not is_plain_or_recorded(torch.zeros(2, 3, dtype=torch.complex64, requires_grad=True))
    with torch.no_grad():
        assert is_plain_or_recorded(leaf)
    with torch.inference_mode():
        assert not is_plain_or_recorded(leaf)


def test_no_gradient_is_recorded_in_inference_and_no_grad_mode() -> None:
    with torch.no_grad():
        assert is_plain(IMAGE)
    with torch.inference_mode():
        assert is_plain(IMAGE)
        made_inside = torch.zeros(2, 3)
        assert is_plain(made_inside)
    assert is_plain(made_inside)


def test_other_threads_have_their_own_state() -> None:
    seen = []
    with torch.autocast("cpu"):
        thread = threading.Thread(target=lambda: seen.append(is_plain(IMAGE)))
        thread.start()
        thread.join()
        assert seen == [True]
        assert not is_plain(IMAGE)


class Subclass(Tensor):
    pass


class Quiet(Tensor):
    """As Parameter and FakeTensor are."""

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]


SPECIAL: dict[str, Callable[[], object]] = {
    "not a tensor": lambda: [1.0],
    "nothing": lambda: None,
    "subclass": lambda: IMAGE.as_subclass(Subclass),
    "subclass without __torch_function__": lambda: IMAGE.as_subclass(Quiet),
    "parameter": lambda: torch.nn.Parameter(IMAGE),
    "requires grad": lambda: IMAGE.clone().requires_grad_(),
    "result of one that does": lambda: IMAGE.clone().requires_grad_() * 2,
    "meta": lambda: IMAGE.to("meta"),
    "sparse": lambda: IMAGE.to_sparse(),
    "sparse rows": lambda: IMAGE[0, 0].to_sparse_csr(),
    "quantised": lambda: torch.quantize_per_tensor(IMAGE, 0.1, 0, torch.quint8),
    "conjugate": lambda: torch.complex(IMAGE, IMAGE).conj(),
    "negative": lambda: torch.complex(IMAGE, IMAGE).conj().imag,
    "functional": lambda: torch._to_functional_tensor(IMAGE),
    "more dimensions than most": lambda: torch.zeros([1] * (MOST_DIMENSIONS + 1)),
    "rare dtype": lambda: IMAGE.to(torch.float8_e4m3fn),
}


@pytest.mark.parametrize("kind", SPECIAL)
@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor", "ignore:Sparse CSR")
def test_special_tensors_are_not_plain(kind: str) -> None:
    assert not is_plain(SPECIAL[kind]())
    assert is_plain_or_recorded(SPECIAL[kind]()) is (kind in ("requires grad", "result of one that does"))


class DispatchMode(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


class OverlookedMode(DispatchMode):
    @classmethod
    def ignore_compile_internals(cls) -> bool:
        return True  # Dynamo's guards then leave it out


class FunctionMode(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


@contextmanager
def forward_mode() -> Iterator[None]:
    with forward_ad.dual_level():
        yield


CONTEXTS: dict[str, Callable[[], Any]] = {
    "dispatch mode": DispatchMode,
    "dispatch mode that guards overlook": OverlookedMode,
    "function mode": FunctionMode,
    "autocast": lambda: torch.autocast("cpu"),
    "forward mode": forward_mode,
    "default device": lambda: torch.device("meta"),
}


@pytest.mark.parametrize("kind", CONTEXTS)
def test_nothing_is_plain_in_special_contexts(kind: str) -> None:
    image = recorded()
    with CONTEXTS[kind]():
        assert not is_plain(IMAGE)
        assert not is_plain_or_recorded(image)
    assert is_plain(IMAGE)
    assert is_plain_or_recorded(image)


@pytest.mark.usefixtures("_nothing_seen")
@pytest.mark.parametrize("kind", [*CONTEXTS, "inference mode"])
def test_what_is_first_seen_in_a_special_context_is_plain_outside(kind: str) -> None:
    image = recorded()
    with {**CONTEXTS, "inference mode": torch.inference_mode}[kind]():
        assert is_plain(IMAGE) is (kind == "inference mode")
        assert not is_plain_or_recorded(image)
    assert is_plain(IMAGE)
    assert is_plain_or_recorded(image)


TRANSFORMS: dict[str, Callable[[Callable[[Tensor], Tensor]], object]] = {
    "vmap": lambda seen: torch.func.vmap(seen)(IMAGE),
    "grad": lambda seen: torch.func.grad(lambda image: seen(image).sum())(IMAGE),
    "jvp": lambda seen: torch.func.jvp(seen, (IMAGE,), (IMAGE,)),
    "functionalize": lambda seen: torch.func.functionalize(seen)(IMAGE),
    "make_fx": lambda seen: make_fx(seen)(IMAGE),
    "make_fx, fake": lambda seen: make_fx(seen, tracing_mode="fake")(IMAGE),
    "make_fx, symbolic": lambda seen: make_fx(seen, tracing_mode="symbolic")(IMAGE),
    "trace": lambda seen: torch.jit.trace(seen, (IMAGE,), check_trace=False),
}


@pytest.mark.parametrize("kind", TRANSFORMS)
@pytest.mark.filterwarnings("ignore:.*torch.jit.trace:DeprecationWarning")
def test_nothing_is_plain_while_transformed_or_traced(kind: str) -> None:
    found: list[bool] = []

    def seen(image: Tensor) -> Tensor:
        found.extend((is_plain(image), is_plain_or_recorded(image)))
        return image * 2

    TRANSFORMS[kind](seen)
    assert found
    assert not any(found)


def test_dynamo_traces_it_as_false() -> None:
    def function(image: Tensor) -> Tensor:
        return image + 1 if is_plain(image) else image - 1

    compiled = torch.compile(function, backend="eager", fullgraph=True)
    assert torch.equal(compiled(IMAGE), IMAGE - 1)


def test_tracing_records_the_operator() -> None:
    graph = make_fx(lambda image: P.interpolate(image, 3, mode="bilinear"))(IMAGE)
    assert torch.ops.polyphase.resample.default in [node.target for node in graph.graph.nodes]


@pytest.mark.usefixtures("_nothing_seen")
def test_functions_work_where_torch_has_no_such_check(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = P.interpolate(IMAGE, 3, mode="bilinear")
    plain._USUAL.clear()
    plain._CHECKS.clear()
    plain._SEEN.clear()
    monkeypatch.setattr(plain, "TensorGuards", None)
    assert not is_plain(IMAGE)
    assert torch.equal(P.interpolate(IMAGE.clone(), 3, mode="bilinear"), wanted)


@pytest.mark.usefixtures("_nothing_seen")
def test_a_check_that_has_changed_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def changed(*examples: Tensor) -> object:
        return object()

    monkeypatch.setattr(plain, "TensorGuards", changed)
    torch_private.warn_that_it_changed.cache_clear()
    with pytest.warns(MissingTorchInternalsWarning, match="TensorGuards that Polyphase knows") as said:
        found = [is_plain(image) for image in (IMAGE, IMAGE.double())]
    assert found == [False, False]
    assert len(said) == 1
    torch_private.warn_that_it_changed.cache_clear()


@pytest.mark.usefixtures("_nothing_seen")
def test_where_no_thread_can_be_started_nothing_is_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_more_threads(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread at interpreter shutdown")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", no_more_threads)
        assert not is_plain(IMAGE)
    assert is_plain(IMAGE)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.usefixtures("_nothing_seen")
def test_tensors_on_a_gpu() -> None:
    ours = devices.has_kernels("cuda")
    image = IMAGE.cuda()
    for _ in range(2):
        assert is_plain(image) is ours
        assert is_plain(IMAGE)
    assert is_plain_or_recorded(image.clone().requires_grad_()) is ours
    with torch.autocast("cuda"):
        assert not is_plain(image)
    allocated = torch.cuda.memory_allocated()
    assert is_plain(image[0]) is ours
    assert torch.cuda.memory_allocated() == allocated, "a CUDA graph could be being captured"


def test_many_at_once() -> None:
    images = [torch.zeros(3, 4 + i, 5) for i in range(3)]
    assert plain.are_plain(images)
    assert plain.are_plain([torch.zeros(3, 9, 9).mT for _ in range(3)]), "by the check that was made"
    others = [torch.zeros(3, 4, 5).double(), torch.zeros(4, 5), torch.zeros(3, 4, 5, requires_grad=True), None, [1]]
    others += [torch.zeros(3, 4, 5).to_sparse(), torch.nn.Parameter(torch.zeros(3, 4, 5))]
    for other in others:
        assert not plain.are_plain([*images[:2], other])
        assert not plain.are_plain([other, *images[:2]])
    with torch.device("meta"):
        assert not plain.are_plain([torch.zeros(3, 4, 5)] * 3)
    with torch.device("cpu"):  # a mode that is told of every function
        assert not plain.are_plain(images)
