"""What must not go straight to a kernel."""

from __future__ import annotations

import threading
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
from polyphase import plain
from polyphase.plain import DIFFERENTIABLE, DTYPES, MOST_DIMENSIONS, is_plain

IMAGE = torch.rand(2, 3, 4, 5)


def is_plain_or_recorded(image: object) -> bool:
    return is_plain(image, recorded=True)


def recorded() -> Tensor:
    return IMAGE.clone().requires_grad_()


def test_the_check_exists_in_this_torch() -> None:
    """Without it everything still works, at the operator's price."""
    assert len(plain._CHECKS) == (len(DTYPES) + len(DIFFERENTIABLE)) * (MOST_DIMENSIONS + 1)


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


def test_functions_work_where_torch_has_no_such_check(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = P.interpolate(IMAGE, 3, mode="bilinear")
    monkeypatch.setattr(plain, "_CHECKS", {})
    assert not is_plain(IMAGE)
    assert torch.equal(P.interpolate(IMAGE, 3, mode="bilinear"), wanted)
