"""Warp kernels read and write nothing beyond their tensors, wherever coordinates lead: tensors lie against pages that
cannot be read, outputs among bytes that must not change. `test_sanitised.py` runs the same cases under sanitisers."""

from __future__ import annotations

import itertools
import math
import mmap
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import pytest
import torch
from torch import Tensor

from polyphase.calls import binding
from polyphase.cpu import launch
from polyphase.errors import WrongInputError
from polyphase.sampling.integers import SUMMED_IN
from polyphase.sampling.pointwise import VALUE, Binary, Cast, Operand, normalise
from polyphase.sampling.programs import Program
from polyphase.sampling.warps import PADDINGS, Warp
from tests.cpu.conftest import Tell, in_a_child
from tests.cpu.test_fill_kernels import filled_cases
from tests.cpu.test_kernels import dealt, parts
from tests.cpu.test_launch import content
from tests.cpu.test_memory_safety import Arena, protect
from tests.cpu.test_warp_kernels import Case, cases, grid_of, inner_cases, matrices, special, upright_cases
from tests.support.samples import GRID_MODES, image

KINDS = [(axes, mode) for axes in (2, 3) for mode in GRID_MODES[axes]]
DTYPES = (torch.uint8, torch.float16, torch.float32, torch.float64)
MOVED = (*DTYPES, torch.complex128)
#: A channel, and what an element of a vector or four elements of a pixel could reach beyond.
LAST_PIXELS = (1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 31, 33, 63, 65)


def warp_cases(dtype: torch.dtype, mode: str, axes: int, step: int = 1) -> Iterator[Case]:
    yield from cases(dtype, mode, axes, range(1, 71, step))
    yield from corner_cases(dtype, mode, axes)
    yield from shallow_cases(dtype, mode, axes)
    yield from inner_cases(dtype, mode, axes)
    if axes == 2 and mode == "bilinear":
        yield from upright_cases(dtype, mode)


def corner_cases(dtype: torch.dtype, mode: str, axes: int) -> Iterator[Case]:
    """Small and smaller images, whose last pixels are read by every tile."""
    for number, channels in enumerate(LAST_PIXELS):
        for layout, size in itertools.product(("CF", "CL", "among others"), ((1, 1), (1, 3), (4, 4), (6, 9))):
            sampler = Warp("grid", mode, PADDINGS[number % 3], number % 2 == 0)
            shape, out = (1, channels, *(2,) * (axes - 2), *size), (*(1,) * (axes - 1), 35)
            yield Case(dtype, shape, layout, out, sampler, "around", "CF", number)


def shallow_cases(dtype: torch.dtype, mode: str, axes: int) -> Iterator[Case]:
    """So few rows that the row before the last, beyond which a little can be read, is the first or none."""
    sizes = itertools.product((2, 3, 4), ("CF", "CL"), (1, 2, 3), (2, 3, 5), PADDINGS)
    for number, (channels, layout, height, width, padding) in enumerate(sizes):
        shape, out = (1, channels, *(2,) * (axes - 2), height, width), (*(1,) * (axes - 1), 35)
        yield Case(dtype, shape, layout, out, Warp("grid", mode, padding), "around", "CF", number)


class Roomy(Arena):
    PAGES = 1100


def memory_of(tensor: Tensor) -> Tensor:
    """From its first to its last element, whatever lies between them."""
    if not tensor.numel():
        return tensor.flatten()
    count = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.as_strided((count,), (1,))


class Tensors:
    """The tensors of a call, each in an arena of its own; and what torch makes meanwhile."""

    def __init__(self, sources: int, targets: int) -> None:
        self.sources, self.targets = ([Roomy() for _ in range(count)] for count in (sources, targets))

    def guarded(self, ordinary: Sequence[Tensor], at_end: bool) -> list[Tensor]:
        """The same, next to a page that cannot be touched."""
        result = [arena.tensor(one, at_end) for arena, one in zip(self.sources, ordinary, strict=False)]
        for one, other in zip(result, ordinary, strict=True):
            memory_of(one).copy_(memory_of(other))
        return result

    def run(self, call: Callable[[], object], at_end: bool) -> list[Tensor]:
        """The tensors that were made for results, in the order they were made. Inputs cannot be written meanwhile."""
        made: list[Tensor] = []
        empty_strided, empty = torch.empty_strided, torch.empty

        def guarded_strided(shape: Sequence[int], strides: Sequence[int], dtype: torch.dtype) -> Tensor:
            like = empty_strided(shape, strides, dtype=dtype, device="meta")
            made.append(self.targets[len(made)].tensor(like, at_end))
            return made[-1]

        def guarded_empty(shape: Sequence[int], dtype: torch.dtype, device: str = "cpu") -> Tensor:
            like = empty(shape, dtype=dtype, device="meta")
            return like if device == "meta" else guarded_strided(shape, like.stride(), dtype)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(launch, "empty_strided", guarded_strided)
            patch.setattr(torch, "empty_strided", guarded_strided)
            patch.setattr(torch, "empty", guarded_empty)
            _forget()  # a bound call has what makes its output
            self._protect(mmap.PROT_READ)
            call()
            self._protect(mmap.PROT_READ | mmap.PROT_WRITE)
        _forget()
        for arena, one in zip(self.targets, made, strict=False):
            assert arena.is_untouched_around(one), "wrote beyond the output"
        return made

    def _protect(self, access: int) -> None:
        for arena in self.sources:
            protect(arena.first, arena.PAGES * mmap.PAGESIZE, access)


def _forget() -> None:
    binding.bound.cache_clear()
    binding.bound_gradients.cache_clear()


def sweep(
    all_cases: Iterator[Case],
    tensors: Tensors,
    read: Callable[[Case], Sequence[Tensor]],
    results: Callable[[Case, Sequence[Tensor]], Sequence[Tensor | None]],
    tell: Tell,
) -> None:
    """Cases by what they read and what is made of it, which is to be the same in guarded memory."""
    torch.set_num_threads(1)
    for case in all_cases:
        ordinary = read(case)
        expected = results(case, ordinary)
        for at_end in (True, False):
            tell((case, at_end))
            found: list[Tensor | None] = []
            guarded = tensors.guarded(ordinary, at_end)
            assert tensors.run(lambda: found.extend(results(case, guarded)), at_end)  # noqa: B023 it runs at once
            for ours, theirs in zip(found, expected, strict=True):
                assert ours is not None
                assert theirs is not None
                assert content(ours) == content(theirs), "another result than in memory of its own"


@parts
@pytest.mark.parametrize(
    ("dtype", "axes", "mode"),
    [
        *((dtype, axes, mode) for axes, mode in KINDS for dtype in (MOVED if mode == "nearest" else DTYPES)),
        *(pytest.param(dtype, 2, "bicubic", marks=pytest.mark.full) for dtype in SUMMED_IN),
    ],
)
def test_nothing_beyond_the_tensors(instruction_set: str, axes: int, mode: str, dtype: torch.dtype, part: int) -> None:
    def read(case: Case) -> Sequence[Tensor]:
        return case.picture(), case.coordinates()

    def warped(case: Case, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
        picture, coordinates = tensors
        return [binding.warp(picture, coordinates, case.sampler)]

    # Fifths, which come around at other cases than lists of two, three and four do: of two sets, all in three dtypes.
    every = warp_cases(dtype, mode, axes, 2 if axes == 2 else 5)
    all_cases = dealt(every, part, 2 * (*MOVED, *SUMMED_IN).index(dtype), of=5)
    in_a_child(partial(sweep, all_cases, Tensors(2, 1), read, warped))


@pytest.mark.parametrize(
    ("dtype", "mode"), [*zip((torch.uint8, torch.float32, torch.float64), GRID_MODES[2], strict=True)]
)
def test_nothing_beyond_with_a_fill(instruction_set: str, dtype: torch.dtype, mode: str) -> None:
    def read(case: Case) -> Sequence[Tensor]:
        return case.picture(), case.coordinates()

    def warped(case: Case, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
        picture, coordinates = tensors
        return [binding.warp(picture, coordinates, case.sampler)]

    in_a_child(partial(sweep, filled_cases(dtype, mode, 2, range(1, 71, 3)), Tensors(2, 1), read, warped))


@pytest.mark.parametrize(("axes", "mode"), KINDS)
def test_no_gradient_beyond_the_tensors(instruction_set: str, axes: int, mode: str) -> None:
    def read(case: Case) -> Sequence[Tensor]:
        return case.gradient(), case.picture(), case.coordinates()

    def gradients(case: Case, tensors: Sequence[Tensor]) -> Sequence[Tensor | None]:
        gradient, picture, coordinates = tensors
        return binding.warp_gradients(gradient, picture, coordinates, case.sampler, (True, True))

    in_a_child(partial(sweep, warp_cases(torch.float32, mode, axes, 5), Tensors(3, 2), read, gradients))


@parts
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
@pytest.mark.parametrize("mode", GRID_MODES[2])
def test_special_coordinates_stay_within(instruction_set: str, mode: str, dtype: torch.dtype, part: int) -> None:
    """At the first and last pixel, a little beyond, far beyond, and such as are no numbers; also in matrices."""

    def run(tell: Tell) -> None:
        torch.set_num_threads(1)
        tensors, beyond = Tensors(2, 1), [1e10, -1e10, 3e38, -3e38, 1e-45, math.inf, -math.inf, math.nan]
        every = itertools.product(PADDINGS, (False, True), (1, 3, 4, 17), ("CF", "CL"))
        for padding, aligned, channels, layout in dealt(every, part, MOVED.index(dtype), of=5):
            ordinary = image((1, channels, 4, 5), dtype, layout)
            values = special(5, aligned) + beyond
            grids = [grid_of(values, values, torch.float32)]
            thetas = [matrices(1, 2, 0).float().index_fill(2, torch.tensor([i]), v) for v in beyond for i in range(3)]
            for coordinates, at_end in itertools.product(grids + thetas, (True, False)):
                affine = coordinates.dim() == 3
                sampler = Warp("affine" if affine else "grid", mode, padding, aligned, (2, 35) if affine else ())
                tell((sampler, channels, layout, at_end))
                picture, guarded = tensors.guarded([ordinary, coordinates], at_end)
                tensors.run(partial(binding.warp, picture, guarded, sampler), at_end)

    in_a_child(run)


PROGRAMS = {
    "normalised": Program(torch.uint8, Warp("grid"), Cast(VALUE, torch.float32), normalise(VALUE)),
    "added": Program(torch.float16, Warp("grid"), VALUE, Binary("add", VALUE, Operand(0, torch.float16))),
    "normalised before": Program(torch.float32, Warp("grid", "bicubic"), normalise(VALUE), Cast(VALUE, torch.float16)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_nothing_beyond_the_operands(name: str) -> None:
    program = PROGRAMS[name]

    def run(tell: Tell) -> None:
        tensors = Tensors(5, 1)
        for width in range(1, 71):
            layout, shape = ("CF", "CL")[width % 2], (1, 1 + width % 5, 2, 9)
            ordinary = [
                image(shape, program.source, layout),
                image((1, 3, width, 2), low=-1.2, high=1.2),
                image((*shape[:2], 3, width), program.target, layout),
                *[torch.ones(shape[1])] * 2,
            ]
            for at_end in (True, False):
                tell((name, shape, width, layout, at_end))
                picture, grid, other, *vectors = tensors.guarded(ordinary, at_end)
                operands = {"channels": dict(enumerate(vectors)), "tensors": {0: other}}
                tensors.run(partial(binding.run, program, picture, grid, **operands), at_end)

    in_a_child(run)


# ---- what does not belong together

IMAGE, GRID, THETA = torch.ones(2, 3, 4, 5), torch.zeros(2, 6, 7, 2), torch.zeros(2, 2, 3)
VOLUME, VOLUME_GRID = torch.ones(2, 3, 4, 5, 6), torch.zeros(2, 3, 2, 4, 3)
AFFINE, BY_GRID = Warp("affine", size=(6, 7)), Warp("grid")
REFUSED: dict[str, tuple[Tensor, Tensor, Warp]] = {
    "more images than grids": (IMAGE, GRID[:1], BY_GRID),
    "more grids than images": (IMAGE[:1], GRID, BY_GRID),
    "a grid of three axes for two": (IMAGE, torch.zeros(2, 6, 7, 3), BY_GRID),
    "a grid of one axis": (IMAGE, torch.zeros(2, 6, 7, 1), BY_GRID),
    "a grid of a volume": (IMAGE, VOLUME_GRID, BY_GRID),
    "a volume by an image's grid": (VOLUME, GRID, BY_GRID),
    "a grid of a number": (IMAGE, torch.zeros(()), BY_GRID),
    "more images than matrices": (IMAGE, THETA[:1], AFFINE),
    "a square matrix": (IMAGE, torch.zeros(2, 2, 2), AFFINE),
    "a matrix the wrong way round": (IMAGE, torch.zeros(2, 3, 2), AFFINE),
    "a matrix of a volume": (IMAGE, torch.zeros(2, 3, 4), AFFINE),
    "a matrix without a batch": (IMAGE, torch.zeros(2, 3), AFFINE),
    "a size of another rank": (IMAGE, THETA, Warp("affine", size=(6, 7, 8))),
    "a volume by an image's matrix": (VOLUME, THETA, AFFINE),
    "a row": (torch.ones(2, 3, 4), torch.zeros(2, 6, 1), BY_GRID),
    "no pixels but an output": (torch.ones(2, 3, 0, 5), GRID, BY_GRID),
    "no columns but an output": (torch.ones(2, 3, 4, 0), THETA, AFFINE),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    picture, coordinates, sampler = REFUSED[name]

    def refuse(tell: Tell) -> None:
        with pytest.raises(WrongInputError, match=r"\w"):
            binding.warp(picture, coordinates, sampler)
        with pytest.raises(WrongInputError, match=r"\w"):
            binding.warp_gradients(torch.ones(2, 3, 6, 7), picture, coordinates, sampler, (True, True))
        with pytest.raises(WrongInputError, match=r"\w"):
            binding.run(Program(torch.float32, sampler), picture, coordinates)

    in_a_child(refuse, seconds=20)


@pytest.mark.parametrize(
    "gradient", [torch.ones(2, 3, 6, 6), torch.ones(1, 3, 6, 7), torch.ones(2, 3, 6, 7).double(), torch.ones(6, 7)]
)
def test_gradients_of_another_output(gradient: Tensor) -> None:
    with pytest.raises(WrongInputError, match="gradient"):
        binding.warp_gradients(gradient, IMAGE, GRID, BY_GRID, (True, True))


def test_an_image_of_another_dtype() -> None:
    with pytest.raises(WrongInputError, match="float64"):
        binding.run(Program(torch.float64, BY_GRID), IMAGE, GRID)
