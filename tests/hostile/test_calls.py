"""Two hundred calls nobody makes on purpose: in every way in they end as eager's do, or in a clear error, soon, and
without more memory than they ask for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any, TextIO

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import polyphase.functional as P
from polyphase import accelerate
from polyphase.errors import PolyphaseError
from tests.compile.running import compiled
from tests.conformance.checks import close
from tests.hostile.drawn import Drawn
from tests.hostile.forked import lines_of
from tests.hostile.fuzz import case
from tests.hostile.judged import EAGER, MEANING, outcome, wrong_with

SECONDS, BYTES = 30, 1 << 30
HUGE = 2**31 + 2**8


def image(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.rand(shape).to(dtype) if dtype.is_floating_point else torch.randint(0, 200, shape, dtype=dtype)


def call(function: str, *tensors: Tensor, **options: Any) -> Drawn:
    return Drawn(function, tensors, options)


def ranks() -> Iterator[Drawn]:
    for rank in range(21):
        one = image(*[2 if dim % 3 else 1 for dim in range(rank)])
        yield call("flip", one, dims=list(range(rank)))
        yield call("pad", one, pad=[1, 0] * min(rank, 3))
        yield call("pad", one.transpose(0, -1) if rank else one, pad=[0, -1] * min(rank, 1))
        if rank > 1:
            yield call("crop", one, top=-1, left=0, height=2, width=1)
    for rank in range(8):
        yield call("interpolate", image(*[3] * rank), size=4)
        yield call("grid_sample", image(*[2] * rank), image(*[2] * rank), align_corners=False)


def sizes_of_nothing_and_one() -> Iterator[Drawn]:
    shapes = ((0, 1, 4, 5), (1, 0, 4, 5), (1, 1, 0, 5), (1, 1, 4, 0), (1, 1, 1, 1), (2, 3, 1, 5), (2, 3, 5, 1))
    for shape, mode in product(shapes, ("nearest", "bilinear", "bicubic", "area")):
        yield call("interpolate", image(*shape), size=(1, 3), mode=mode)
    for shape, mode in product(shapes, ("constant", "reflect", "replicate", "circular")):
        yield call("pad", image(*shape), pad=(0, 1, 0, 0), mode=mode)
    for shape in shapes:
        yield call("flip", image(*shape), dims=(2, 3))
        yield call("grid_sample", image(*shape), image(shape[0], 1, 2, 2), align_corners=True)
        yield call("affine_sample", image(*shape), image(shape[0], 2, 3), size=(*shape[:2], 1, 2), **WARPED)


WARPED = {"mode": "bilinear", "padding_mode": "zeros", "align_corners": False}


def places_in_memory() -> Iterator[Drawn]:
    storage = image(4096)
    placed = (
        storage[:1].expand(2, 3, 6, 7),
        image(1, 3, 1, 7).expand(2, 3, 6, 7),
        storage.as_strided((2, 3, 6, 7), (1, 1, 1, 1)),
        storage.as_strided((2, 3, 6, 7), (5, 2, 3, 0), 3),
        storage[1 : 1 + 252].view(2, 3, 6, 7),
        image(4, 6, 12, 14)[1::2, ::2, ::2, 1::2],
        image(7, 6, 3, 2).permute(3, 2, 1, 0),
    )
    for one in placed:
        for mode in ("nearest", "bilinear", "bicubic", "area"):
            yield call("interpolate", one, size=(4, 9), mode=mode)
        yield call("interpolate", one, size=(4, 5), mode="bilinear", antialias=True)
        yield call("interpolate", (one * 255).byte().as_strided(one.shape, one.contiguous().stride()), size=(4, 5))
        yield call("flip", one, dims=(0, 2, 3))
        yield call("pad", one, pad=(1, -1, 2, 0), mode="reflect")
        yield call("pad", one, pad=(-1, -1, -2, 0))
        yield call("grid_sample", one, one[:, 0, :, :2, None].expand(2, 6, 2, 2), align_corners=False)


def drawn() -> Iterator[Drawn]:
    return (case(0, number) for number in range(100))


GROUPS: dict[str, Callable[[], Iterator[Drawn]]] = {
    one.__name__: one for one in (ranks, sizes_of_nothing_and_one, places_in_memory, drawn)
}


def wrong_in(calls: Iterator[Drawn], judged: Callable[[Drawn], list[str]] = wrong_with) -> list[str]:
    """What is wrong with each; where their process came to a bad end, the call that it came to it by."""

    def judge(out: TextIO) -> None:
        for one in calls:
            print(f"begin {one}", file=out)
            for wrong in judged(one):
                print(f"{one}: {wrong}".replace("\n", " "), file=out)

    begun, found = "", []
    for line in lines_of(judge, SECONDS, BYTES):
        if line.startswith("begin "):
            begun = line.removeprefix("begin ")
        else:
            found.append(line if line.startswith(begun) else f"{begun}: {line}")
    return found


@pytest.mark.parametrize("group", GROUPS)
def test_small_calls(group: str) -> None:
    assert wrong_in(GROUPS[group]()) == []


def test_there_are_two_hundred() -> None:
    small = sum(1 for name in GROUPS if name != "drawn" for _ in GROUPS[name]())
    assert small + len(HUGE_CALLS) >= 200


BYTE = torch.zeros(1, dtype=torch.uint8)
FLOAT = torch.ones(1)
LINE = BYTE.expand(1, 1, HUGE)
PLANE = FLOAT.expand(1, 1, 2**16, 2**16)
SMALL = torch.ones(1, 1, 4, 4)

#: Axes, sizes, or elements in all, of more than 2^31.
HUGE_CALLS: dict[str, Drawn] = {
    "a long line": call("interpolate", LINE, size=16),
    "a long line, exactly": call("interpolate", LINE, size=16, mode="nearest-exact"),
    "a long line of floats": call("interpolate", FLOAT.expand(1, 1, HUGE), size=16, mode="linear"),
    "a long line by a factor": call("interpolate", LINE, scale_factor=1e-8),
    "a plane": call("interpolate", PLANE, size=(4, 4)),
    "a plane of floats": call("interpolate", PLANE, size=(4, 4), mode="bilinear"),
    "a plane of floats, bicubic": call("interpolate", PLANE, size=(4, 4), mode="bicubic"),
    "to a long line": call("interpolate", SMALL[0], size=HUGE),
    "to a line longer than memory": call("interpolate", SMALL[0], size=2**62),
    "to a line longer than an integer": call("interpolate", SMALL[0], size=2**63),
    "by a huge factor": call("interpolate", SMALL[0], scale_factor=1e30),
    "by a tiny factor": call("interpolate", SMALL[0], scale_factor=1e-300),
    "to a huge plane": call("interpolate", SMALL, size=(2**31, 2**31), mode="bilinear"),
    "a long pad": call("pad", SMALL, pad=(2**31, 0)),
    "a pad longer than memory": call("pad", SMALL, pad=(2**62, 0)),
    "a pad longer than an integer": call("pad", SMALL, pad=(2**62, 2**62)),
    "a long reflection": call("pad", SMALL, pad=(2**31, 0, 0, 0), mode="reflect"),
    "a long replication": call("pad", SMALL, pad=(2**33, 0, 0, 0), mode="replicate"),
    "a long crop": call("pad", LINE, pad=(5 - HUGE, 0)),
    "a crop longer than the image": call("pad", SMALL, pad=(-(2**31), 0)),
    "a long crop that reflects": call("pad", LINE[0], pad=(5 - HUGE, 2), mode="reflect"),
    "a long crop that replicates": call("pad", LINE[0], pad=(5 - HUGE, 2), mode="replicate"),
    "a window of a plane": call("crop", PLANE, top=2**16 - 2, left=2**15, height=2, width=2),
    "a window over a plane's edge": call("crop", PLANE, top=2**16 - 2, left=2**15, height=4, width=2),
    "a window far away": call("crop", SMALL, top=2**40, left=-(2**62), height=2, width=2),
    "a window larger than memory": call("crop", SMALL, top=0, left=0, height=2**31, width=2**31),
    "a flip of nothing, long": call("flip", torch.zeros(0, 2**40), dims=(0, 1)),
    "a pad of nothing, long": call("pad", torch.zeros(0, 2**40), pad=(1, 1)),
    "nothing resized, long": call("interpolate", torch.zeros(0, 1, 2**40), size=4, mode="linear"),
    "a warp of a plane": call("grid_sample", PLANE, torch.zeros(1, 2, 2, 2), align_corners=False),
    "a warp of a plane, bicubic": call("grid_sample", PLANE, torch.zeros(1, 2, 2, 2), mode="bicubic"),
    "a matrix on a plane": call("affine_sample", PLANE, torch.eye(2, 3)[None], size=(1, 1, 2, 2), **WARPED),
    "a matrix to a huge plane": call(
        "affine_sample", SMALL, torch.eye(2, 3)[None], size=(1, 1, 2**31, 2**31), **WARPED
    ),
    "many images": call("interpolate", BYTE.expand(2**31, 4, 4, 4), size=(2**30, 2**30)),
    "a grid that stays": call("grid_sample", SMALL, FLOAT.expand(1, 2**30, 2**30, 2), align_corners=False),
}


@pytest.mark.parametrize("name", HUGE_CALLS)
def test_huge_calls(name: str) -> None:
    assert wrong_in(iter([HUGE_CALLS[name]]), ends_badly) == []


def ends_badly(huge: Drawn) -> list[str]:
    """Where eager has a result, so have we. Where it has none, for want of memory perhaps, we may; else the error is
    ours, its own, or the word that memory is short."""
    theirs = (EAGER | MEANING)[huge.function]
    eager = outcome(theirs, *huge.tensors, **huge.options)
    ours = [outcome(getattr(P, huge.function), *huge.tensors, **huge.options)]
    with accelerate():
        ours.append(outcome(theirs, *huge.tensors, **huge.options))
    found = []
    for one in ours:
        if isinstance(one, Exception):
            clear = isinstance(one, (type(eager), PolyphaseError, MemoryError)) or "allocate" in str(one)
            if isinstance(eager, Tensor) or not clear:
                found.append(f"{one!r:.300}; eager {eager!r:.300}")
        elif isinstance(eager, Tensor) and close(one.double(), eager.double()):
            found.append(f"{one!r:.300}; eager {eager!r:.300}")
    return found


def flipped_and_padded(many: Tensor, fewer: Tensor) -> tuple[Tensor, Tensor]:
    return torch.flip(many, (0, 5, 12)), F.pad(fewer, (1, 1) * 11)


@pytest.mark.inductor
def test_high_ranks_compiled() -> None:
    given = torch.rand([1, 2] * 6 + [2]), torch.rand([2, 1] * 5 + [1])
    for got, eager in zip(compiled(flipped_and_padded)(*given), flipped_and_padded(*given), strict=True):
        assert torch.equal(got, eager)
        assert got.stride() == eager.stride()
