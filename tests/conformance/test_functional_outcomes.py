"""Which calls have a result: the same as in eager, and the same exceptions for the others.

Every mode with every rank, dtype and option, sensible or not. OpInfo has no error inputs for these functions; mistakes
in the types of arguments are in `tests/test_arguments.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import product
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import polyphase.functional as P
from tests.conformance.checks import same_bits
from tests.conformance.expected_functional_differences import OTHER_OUTCOMES, RARE_DTYPES, OtherOutcome, padded_axes
from tests.conformance.functional import Asked, asked
from tests.support.samples import DTYPES, HAS_LANCZOS

EAGER: dict[str, Callable[..., Tensor]] = {
    "interpolate": F.interpolate,
    "pad": F.pad,
    "flip": torch.flip,
    "grid_sample": F.grid_sample,
    "affine_grid": F.affine_grid,
}
MODES = (
    *("nearest", "nearest-exact", "area", "linear", "bilinear", "trilinear", "bicubic"),
    *(("lanczos",) if HAS_LANCZOS else ()),
    *("hamming", "box", "unknown"),
)
SHAPES = ((4, 5), (2, 3, 4), (2, 3, 4, 5), (1, 2, 3, 4, 3), (1, 1, 2, 2, 2, 2))
EMPTY = (
    *((0, 2, 3), (2, 0, 3), (2, 3, 0), (0, 2, 3, 4), (2, 0, 3, 4), (2, 3, 0, 4), (2, 3, 4, 0)),
    *((0, 2, 3, 4, 3), (1, 0, 3, 4, 3)),
)
AMOUNTS = (-5, -3, -2, -1, 0, 1, 2, 3, 5)


def outcome(function: Callable[..., Tensor], arguments: dict[str, Any]) -> Tensor | Exception:
    try:
        return function(**arguments)
    except Exception as error:
        return error


def kind_of_difference(ours: Tensor | Exception, eager: Tensor | Exception, comparable: bool) -> str | None:
    """In the words of `OtherOutcome`; None where there is none."""
    if isinstance(ours, Exception):
        if not isinstance(eager, Exception):
            return "refuses it"
        return None if isinstance(ours, type(eager)) else "raises another error"
    if isinstance(eager, Exception):
        return "takes it"
    assert (ours.shape, ours.dtype) == (eager.shape, eager.dtype)
    return "gives other values" if comparable and same_bits(ours, eager) else None


def compare(calls: Iterable[Asked], comparable: bool) -> tuple[list[str], set[OtherOutcome]]:
    """What is not expected, and the lines of the table that were needed."""
    unexpected, needed = [], set()
    for call in calls:
        ours, eager = outcome(call.function, call.arguments), outcome(EAGER[call.name], call.arguments)
        kind = kind_of_difference(ours, eager, comparable)
        lines = [line for line in OTHER_OUTCOMES[call.name] if line.kind == kind and line.applies(call)]
        needed.update(lines[:1])
        if kind and not lines:
            unexpected.append(f"ours {kind}: {described(call)}; ours: {ours!r:.120}, eager: {eager!r:.120}")
    return unexpected, needed


def described(call: Asked) -> str:
    options = {name: value for name, value in call.arguments.items() if not isinstance(value, Tensor)}
    return f"{call.name} of {call.image.dtype} {tuple(call.image.shape)} {options}"


def resizes() -> Iterator[Asked]:
    for shape, dtype in product(SHAPES, (*DTYPES, *RARE_DTYPES)):
        image = torch.zeros(shape).to(dtype)
        for mode, align_corners, antialias in product(MODES, (None, False, True), (False, True)):
            for size, factor in ((3, None), (None, 1.5)):
                yield asked(P.interpolate, image, size, factor, mode, align_corners, None, antialias)
    for shape, mode, antialias in product(EMPTY, MODES, (False, True)):
        for size, factor in ((0, None), (3, None), (None, 0.1), (None, 2.0)):
            yield asked(P.interpolate, torch.zeros(shape), size, factor, mode, None, None, antialias)
    for dtype in DTYPES:
        yield asked(P.interpolate, torch.zeros(SHAPES[2]).to(dtype), 1, None, "area")
        yield asked(P.interpolate, torch.zeros(SHAPES[2]).to(dtype), SHAPES[2][2:], None, "bicubic", None, None, True)


def pads() -> Iterator[Asked]:
    generator = torch.Generator().manual_seed(0)
    amounts = [(), (1,), (1, 1, 1), (1,) * 8, (0,) * 8, (1,) * 10, *product(AMOUNTS, AMOUNTS)]
    for length, most, number in ((4, 5, 60), (4, 2, 60), (6, 1, 40)):
        random = torch.randint(-most, most + 1, (number, length), generator=generator)
        amounts += [tuple(row) for row in random.tolist()]
    shapes = ((), (3,), (2, 3), (1, 1, 1), (1, 1, 3), (1, 1, 1, 1), (1, 1, 1, 2, 2, 3), *SHAPES[1:4], *EMPTY)
    for shape, mode in product(shapes, ("constant", "reflect", "replicate", "circular", "unknown")):
        image = torch.arange(1.0, 1 + torch.Size(shape).numel()).reshape(shape)
        for number, given in enumerate(amounts):
            right_rank = len(shape) - len(given) // 2 in ((1, 2) if mode != "constant" else (0, 1, 2))
            if right_rank or number % 10 == 0:  # errors take eager long
                yield asked(P.pad, image, given, mode)
    for dtype, mode in product((*DTYPES, *RARE_DTYPES), ("constant", "reflect", "replicate", "circular")):
        for given in ((1, 1, 0, 1), (-1, 1, 0, 0), (-1, -1, 0, -2)):
            yield asked(P.pad, torch.arange(24).reshape(1, 2, 3, 4).to(dtype), given, mode)
    yield asked(P.pad, torch.zeros(0, 8, 31, 2, dtype=torch.bool), (-1, -3, 1, 2), "reflect")


def flips() -> Iterator[Asked]:
    for shape in ((), (3,), (0,), *SHAPES, *EMPTY):
        image = torch.arange(torch.Size(shape).numel()).reshape(shape)
        for dims in ((), *product(range(-3, 4)), *product(range(-3, 4), range(-3, 4))):
            yield asked(P.flip, image, dims)
    for dtype in (*DTYPES, *RARE_DTYPES):
        yield asked(P.flip, torch.arange(24).reshape(2, 3, 4).to(dtype), (0, -1))


def grid_samples() -> Iterator[Asked]:
    warp_modes = ("bilinear", "nearest", "bicubic", "unknown")
    shape: tuple[int, ...]
    for shape in SHAPES[2:4]:
        grid = torch.zeros(shape[0], *shape[2:], len(shape) - 2)
        for dtype, grid_dtype, mode in product((*DTYPES, *RARE_DTYPES), DTYPES, warp_modes):
            yield asked(P.grid_sample, torch.zeros(shape).to(dtype), grid.to(grid_dtype), mode, "zeros", False)
    for shape, grid_shape in product(
        (*SHAPES, *EMPTY, ()), ((2, 4, 5, 2), (2, 0, 5, 2), (1, 2, 2, 3, 3), (0, 4, 5, 2), ())
    ):
        for padding, align_corners in product(("zeros", "border", "reflection", "unknown"), (False, True)):
            yield asked(P.grid_sample, torch.zeros(shape), torch.zeros(grid_shape), "bilinear", padding, align_corners)


def affine_grids() -> Iterator[Asked]:
    sizes = (
        (1, 3, 4, 5),
        (2, 1, 1, 1),
        (2, 3, 4, 1, 2),
        (2, 3, 4),
        (0, 3, 1, 5),
        (2, 0, 1, 5),
        (2, 3, 0, 1),
        (2, 3, 1, -1),
    )
    for shape, size, align_corners in product(
        ((1, 2, 3), (2, 2, 3), (0, 2, 3), (2, 3, 4), (2, 3)), sizes, (False, True)
    ):
        yield asked(P.affine_grid, torch.zeros(shape), size, align_corners)
    for dtype in (*DTYPES, *RARE_DTYPES):
        yield asked(P.affine_grid, torch.zeros(2, 2, 3).to(dtype), (2, 1, 3, 4), False)


#: Values are compared where they are moved; others are elsewhere. Uninitialised memory may be right by chance.
CALLS: dict[str, tuple[Callable[[], Iterator[Asked]], bool]] = {
    "interpolate": (resizes, False),
    "pad": (pads, True),
    "flip": (flips, True),
    "grid_sample": (grid_samples, False),
    "affine_grid": (affine_grids, False),
}


@pytest.mark.filterwarnings("ignore:ComplexHalf", "ignore:.*affine_grid behavior has changed")
@pytest.mark.parametrize("name", CALLS)
def test_outcomes(name: str) -> None:
    calls, comparable = CALLS[name]
    unexpected, needed = compare(calls(), comparable)
    assert unexpected == []
    assert set(OTHER_OUTCOMES[name]) - needed == set(), "no call needs this line any more"


@pytest.mark.filterwarnings("ignore:ComplexHalf")
def test_circular_pads_repeat_what_is_left() -> None:
    for call in pads():
        if call.mode != "circular" or 0 in call.image.shape or call.image.dim() not in (2, 3):
            continue
        got = outcome(call.function, call.arguments)
        if isinstance(got, Tensor) and len(call.amounts) == 2:
            ((n, before, after),) = padded_axes(call)
            left = call.image[..., max(-before, 0) : n - max(-after, 0)]
            places = (torch.arange(n + before + after) - max(before, 0)) % left.shape[-1]
            assert torch.equal(got, left[..., places]), described(call)


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("interpolate", (3, 4), (3.0, 4.0)),
        ("interpolate", (1, 1), (True, True)),
        ("interpolate", 3, 3.0),
        ("interpolate", 1, True),
        ("flip", (1,), (1.0,)),
        ("flip", (1,), (True,)),
        ("pad", (1, 1), (1.0, 1.0)),
        ("pad", (1, 1), (True, True)),
    ],
    ids=str,
)
def test_a_call_seen_before_makes_no_equal_one_right(name: str, right: Any, wrong: Any) -> None:
    """1 == 1.0 == True, to a cache too."""
    function, image = getattr(P, name), torch.rand(2, 3, 4, 5)
    for _ in range(4):
        function(image, right)
    eager = outcome(EAGER[name], asked(function, image, wrong).arguments)
    assert isinstance(eager, TypeError)
    with pytest.raises(TypeError):
        function(image, wrong)
