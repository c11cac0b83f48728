"""The latest call once more: in C and by its plain twin, which tell the same calls apart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import polyphase.functional as P
from polyphase.calls.again import Latest, Parts, plainly
from polyphase.calls.plain import guard_of
from polyphase.cpu import launch

IMAGE = torch.rand(2, 3, 4, 5)
GIVEN = ((4, 5), None, "bilinear", 1, 0.0, [2, (3.5, True)])


def in_c(parts: Parts) -> Callable[..., Any]:
    made = launch.again()
    assert made is not None
    result: Callable[..., Any] = made(parts)
    return result


both = pytest.mark.parametrize("made", [in_c, plainly], ids=["in C", "plainly"])


def call(made: Callable[[Parts], Callable[..., Any]], any_size: bool = False, *others: Tensor) -> Callable[..., Any]:
    tensors = (IMAGE, *others)
    guard = guard_of(tensors, any_size)
    assert guard is not None
    return made(Parts(lambda *tensors: ("called", *map(id, tensors)), len(tensors), GIVEN, guard))


@both
def test_the_same_arguments(made: Callable[[Parts], Callable[..., Any]]) -> None:
    again = call(made)
    called = ("called", id(IMAGE))
    assert again(IMAGE, *GIVEN) == called
    assert again(IMAGE, (4, 5), None, "bilinear"[:8], 1, 0.0, [2, (3.5, True)]) == called
    assert again(IMAGE, torch.Size((4, 5)), *GIVEN[1:]) == called
    assert again(IMAGE, torch.Size((4, 6)), *GIVEN[1:]) is None
    assert again(torch.rand(2, 3, 4, 5), *GIVEN) is not None


OTHERS: dict[str, tuple[int, object]] = {
    "a number": (0, (4, 6)),
    "fewer numbers": (0, (4,)),
    "a list": (0, [4, 5]),
    "something": (1, 0),
    "a name": (2, "nearest"),
    "a truth that is equal": (3, True),
    "a float that is equal": (3, 1.0),
    "minus zero": (4, -0.0),
    "zero that is no float": (4, 0),
    "not a number": (4, float("nan")),
    "within": (5, [2, (3.5, 1)]),
    "within, shorter": (5, [2]),
    "a tensor": (1, torch.tensor([1, 2])),
}


@both
@pytest.mark.parametrize("other", OTHERS)
def test_other_arguments(made: Callable[[Parts], Callable[..., Any]], other: str) -> None:
    place, value = OTHERS[other]
    given = [*GIVEN]
    given[place] = value  # type: ignore[call-overload]
    assert call(made)(IMAGE, *given) is None


@both
def test_more_or_fewer_arguments(made: Callable[[Parts], Callable[..., Any]]) -> None:
    again = call(made)
    assert again(*GIVEN) is None
    assert again(IMAGE, *GIVEN[:-1]) is None
    assert again(IMAGE, IMAGE, *GIVEN) is None
    assert again() is None


class Subclass(Tensor):
    pass


class FunctionMode(TorchFunctionMode):
    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return function(*args, **(kwargs or {}))


class DispatchMode(TorchDispatchMode):
    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return function(*args, **(kwargs or {}))


KINDS: dict[str, Callable[[], Any]] = {
    "size": lambda: torch.rand(2, 3, 4, 6),
    "strides": lambda: torch.rand(2, 3, 5, 4).mT,
    "rank": lambda: torch.rand(3, 4, 5),
    "dtype": lambda: IMAGE.double(),
    "gradient": lambda: IMAGE.clone().requires_grad_(),
    "subclass": lambda: IMAGE.as_subclass(Subclass),
    "nested": lambda: torch.nested.nested_tensor([IMAGE[0], IMAGE[1, :, :2]]),
    "no tensor": lambda: [1.0],
    "none": lambda: None,
}


@both
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("kind", KINDS)
def test_other_tensors(made: Callable[[Parts], Callable[..., Any]], kind: str) -> None:
    other = KINDS[kind]()
    assert call(made)(other, *GIVEN) is None
    taken = call(made, True)(other, *GIVEN)
    assert (taken is not None) == (kind in ("size", "strides"))
    assert call(made, False, IMAGE)(IMAGE, other, *GIVEN) is None


@both
def test_sizes_may_be_others(made: Callable[[Parts], Callable[..., Any]]) -> None:
    guard = guard_of((IMAGE,), True)
    assert guard is not None
    again = made(Parts(lambda *given: given, 1, GIVEN, guard, place_of_sizes=0))
    for sizes in ((4, 5), [7, 9], torch.Size((2, 2**31 - 1))):
        assert again(IMAGE, sizes, *GIVEN[1:]) == (*sizes, IMAGE)
    wrong: tuple[Any, ...] = (
        (4,),
        (4, 5, 6),
        (1, 5),
        (4, -5),
        (4, 2**31),
        (4, 2**70),
        (4, 5.0),
        (4, True),
        4,
        None,
        "45",
    )
    for other in wrong:
        assert again(IMAGE, other, *GIVEN[1:]) is None
    assert again(IMAGE, (7, 9), 0, *GIVEN[2:]) is None
    assert again(IMAGE) is None
    assert again(IMAGE[0], (7, 9), *GIVEN[1:]) is None


@both
def test_sizes_among_others(made: Callable[[Parts], Callable[..., Any]]) -> None:
    guard = guard_of((IMAGE,), True)
    assert guard is not None
    again = made(Parts(lambda *given: given, 1, (None, [3, 4, 5], True), guard, place_of_sizes=1))
    assert again(IMAGE, None, [6, 7, 8], True) == (6, 7, 8, IMAGE)
    assert again(IMAGE, None, [6, 7, 8], False) is None


def test_functions_go_by_it_with_sizes_that_are_new() -> None:
    image, expected = torch.rand(1, 3, 9, 8), {}
    sizes = [(n, n + 1) for n in range(5, 12)]
    for size in sizes:
        expected[size] = P.interpolate(image, size=size, mode="bilinear")
    for size in sizes:
        again = P._INTERPOLATE.again(image, (size[0] + 20, 7), None, "bilinear", None, None, False, None)
        assert again.shape[2:] == (size[0] + 20, 7)
        assert torch.equal(P.interpolate(image, size=size, mode="bilinear"), expected[size])


@both
def test_other_states_of_a_thread(made: Callable[[Parts], Callable[..., Any]]) -> None:
    again = call(made)
    with FunctionMode():
        assert again(IMAGE, *GIVEN) is None
    with DispatchMode():  # type: ignore[no-untyped-call]
        assert again(IMAGE, *GIVEN) is None
    with forward_ad.dual_level():
        assert again(IMAGE, *GIVEN) is None
    with torch.autocast("cpu"):
        assert again(IMAGE, *GIVEN) is None
    with torch.inference_mode():
        assert again(IMAGE, *GIVEN) is None
    torch.func.vmap(lambda x: x if again(IMAGE, *GIVEN) is None else pytest.fail("within vmap"))(IMAGE)
    assert again(IMAGE, *GIVEN) is not None


@both
def test_what_is_raised(made: Callable[[Parts], Callable[..., Any]]) -> None:
    def fails(*tensors: Tensor) -> None:
        raise KeyError("in the call")

    guard = guard_of((IMAGE,), False)
    assert guard is not None
    with pytest.raises(KeyError, match="in the call"):
        made(Parts(fails, 1, (), guard))(IMAGE)


def test_it_is_made_when_a_call_comes_a_second_time() -> None:
    latest = Latest()
    first, second = (lambda *tensors: "first"), (lambda *tensors: "second")
    latest.follow(first, (IMAGE,), (1,))
    assert latest.again(IMAGE, 1) is None
    latest.follow(first, (IMAGE,), (1,))
    assert latest.again(IMAGE, 1) == "first"
    assert latest.again(IMAGE, 2) is None
    latest.follow(second, (IMAGE,), (1,))
    assert latest.again(IMAGE, 1) is None


def test_functions_go_by_it_in_c() -> None:
    for n in (8, 9, 10):
        P.flip(torch.rand(1, 3, n, 8), (-1,))
    assert type(P._FLIP.again) is type(len)
    factor = torch.rand(1, 3, 8, 8)
    for _ in range(3):
        P.interpolate(factor, scale_factor=2.0)
    assert type(P._INTERPOLATE.again) is type(len)
