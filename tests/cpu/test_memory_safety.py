"""Kernels read and write nothing beyond their tensors: tensors lie against pages that cannot be read, outputs among
bytes that must not change. `test_sanitised.py` runs the same cases under sanitisers."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from polyphase.calls import binding
from polyphase.cpu import isa, launch
from polyphase.sampling.axis_maps import AxisMap
from polyphase.sampling.integers import SUMMED_IN
from polyphase.sampling.pointwise import VALUE, Binary, Cast, Operand, normalise
from polyphase.sampling.programs import Axes, Program
from polyphase.sampling.steps import Area, Flip, Nearest, Pad, Resize, Slice, Step
from tests.cpu.conftest import Tell, in_a_child
from tests.cpu.test_kernels import parts
from tests.support.samples import image

DTYPES = (torch.uint8, torch.float16, torch.float32, torch.float64)
WIDTHS = range(1, 71)
WIDE = range(97, 700, 31)
MOST_CHANNELS = 70
#: first, last: the upper left or lower right of a larger image. beside: pixels have another channel beside them.
LAYOUTS = ("CF", "CL", "first", "last", "beside")

HORIZONTAL: tuple[Callable[[int], tuple[Step, ...]], ...] = (
    lambda size: (Resize(size, "bilinear"),),
    lambda size: (Resize(size, "bicubic"),),
    lambda size: (Resize(size, "bilinear", antialias=True),),
    lambda size: (Resize(size, "lanczos", antialias=True), Flip()),
    lambda size: (Area(size), Pad(1, 2, "constant", 1)),
    lambda size: (Nearest(size),),
    lambda size: (Flip(), Nearest(size), Pad(size - 1, 0, "reflect")),
    lambda size: (Nearest(size), Pad(-(size // 2), 2, "constant", 1)),
    lambda size: (Nearest(size + 2), Slice(1, size + 1)),
)
VERTICAL: tuple[tuple[Step, ...], ...] = (
    (),
    (Resize(5, "bicubic"),),
    (Flip(),),
    (Resize(2, "bilinear", antialias=True),),
    (Resize(3, "bicubic", antialias=True, first=True),),
    (Pad(1, 1, "constant", 1),),
)


class Case(NamedTuple):
    dtype: torch.dtype
    shape: tuple[int, ...]
    layout: str
    maps: tuple[AxisMap, ...]
    transposed_to: tuple[int, ...] = ()

    def run(self, picture: Tensor) -> Tensor:
        transposed = bool(self.transposed_to)
        return binding.resample(picture, self.maps, transposed=transposed, in_size=self.transposed_to)


def cases(dtype: torch.dtype, step: int = 1, first: int = 0) -> Iterator[Case]:
    """Every width, and with it all outputs, channels, layouts and maps by turns; then wide images, of many taps."""
    for width in (*WIDTHS, *WIDE)[first::step]:
        for number, after in enumerate(
            (1, width, 71 - width, 1 + width * 29 % 70, 2 + width * 7 % 13), start=5 * width
        ):
            maps = (
                AxisMap(VERTICAL[number // 3 % len(VERTICAL)]),
                AxisMap(HORIZONTAL[number % 9](after if after > 0 else 5)),
            )
            for turn, channels in enumerate((number % 4 + 1, 1 + number * 3 % MOST_CHANNELS)):
                shape = (1, channels, 1 + number % 4, width)
                yield Case(dtype, shape, LAYOUTS[(number // 2 + turn) % 5], maps)
                if dtype.is_floating_point:
                    out = [one.output_size(n) for one, n in zip(maps, shape[2:], strict=True)]
                    yield Case(dtype, (1, channels, *out), LAYOUTS[(number + turn) % 5], maps, shape[2:])


# ---- tensors against pages that cannot be read


class Arena:
    """Memory between two pages that cannot be touched."""

    PAGES = 512
    MARGIN = 512
    CANARY = 0xA5

    def __init__(self) -> None:
        self.memory = mmap.mmap(-1, (self.PAGES + 2) * mmap.PAGESIZE)
        start = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        self.first, self.end = start + mmap.PAGESIZE, start + (self.PAGES + 1) * mmap.PAGESIZE
        protect(start, mmap.PAGESIZE, 0)
        protect(self.end, mmap.PAGESIZE, 0)

    def tensor(self, like: Tensor, at_end: bool) -> Tensor:
        """With the shape and strides of `like`, its first or last byte next to such a page."""
        count = 1 + sum((size - 1) * stride for size, stride in zip(like.shape, like.stride(), strict=True))
        nbytes = count * like.element_size()
        address = self.end - nbytes if at_end else self.first
        around = max(address - self.MARGIN, self.first), min(address + nbytes + self.MARGIN, self.end)
        ctypes.memset(around[0], self.CANARY, around[1] - around[0])
        buffer = (ctypes.c_uint8 * nbytes).from_address(address)
        flat = torch.frombuffer(buffer, dtype=like.dtype)
        return flat.as_strided(like.shape, like.stride())

    def is_untouched_around(self, tensor: Tensor) -> bool:
        address, nbytes = tensor.data_ptr(), tensor.numel() * tensor.element_size()
        before = max(address - self.MARGIN, self.first)
        after = min(address + nbytes + self.MARGIN, self.end)
        margins = ctypes.string_at(before, address - before) + ctypes.string_at(
            address + nbytes, after - address - nbytes
        )
        return margins.count(self.CANARY) == len(margins)


LIBC = ctypes.CDLL(None)  # opened once: protecting is most of what these tests do


def protect(address: int, nbytes: int, access: int) -> None:
    assert LIBC.mprotect(ctypes.c_void_p(address), ctypes.c_size_t(nbytes), access) == 0


def picture_of(case: Case, seed: int = 0) -> Tensor:
    """In memory of its own."""
    if case.layout in ("CF", "CL"):
        return image(case.shape, case.dtype, case.layout, seed)
    batch, channels, height, width = case.shape
    if case.layout == "beside":
        return image((batch, channels + 1, height, width), case.dtype, "CL", seed)[:, :channels]
    larger = image((batch, channels, height + 1, width + 2), case.dtype, "CL" if channels % 2 else "CF", seed)
    return larger[..., :height, :width] if case.layout == "first" else larger[..., -height:, -width:]


def made_in(
    targets: Arena,
    outputs: list[Tensor],
    at_end: bool,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    dtype: torch.dtype,
) -> Tensor:
    """As `empty_strided`."""
    outputs.append(targets.tensor(torch.empty_strided(shape, strides, dtype=dtype, device="meta"), at_end))
    return outputs[-1]


def assert_stays_within(case: Case, sources: Arena, targets: Arena, tell: Tell) -> None:
    ordinary = picture_of(case)
    expected = case.run(ordinary)
    for at_end in (True, False):
        tell((case, at_end))
        guarded = sources.tensor(ordinary, at_end)
        guarded.copy_(ordinary)
        outputs: list[Tensor] = []

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(launch, "empty_strided", partial(made_in, targets, outputs, at_end))
            binding.bound.cache_clear()  # a bound call has what makes its output
            protect(sources.first, Arena.PAGES * mmap.PAGESIZE, mmap.PROT_READ)
            case.run(guarded)
            protect(sources.first, Arena.PAGES * mmap.PAGESIZE, mmap.PROT_READ | mmap.PROT_WRITE)
        binding.bound.cache_clear()
        (ours,) = outputs
        assert torch.equal(ours, expected), "another result than in memory of its own"
        assert targets.is_untouched_around(ours), "wrote beyond the output"


@parts
@pytest.mark.parametrize("dtype", [*DTYPES, *(pytest.param(one, marks=pytest.mark.full) for one in SUMMED_IN)])
def test_nothing_beyond_the_tensors(instruction_set: str, dtype: torch.dtype, part: int) -> None:
    """Of every other width, each instruction set its own."""

    def sweep(tell: Tell) -> None:
        torch.set_num_threads(1)
        sources, targets = Arena(), Arena()
        for case in cases(dtype, step=2, first=(isa.available().index(instruction_set) + part) % 2):
            assert_stays_within(case, sources, targets, tell)

    in_a_child(sweep)


PROGRAMS = {
    "normalised": Program(
        torch.uint8, Axes((AxisMap(()), AxisMap((Nearest(9),)))), Cast(VALUE, torch.float32), normalise(VALUE)
    ),
    "added": Program(
        torch.float16, Axes((AxisMap(()), AxisMap((Area(9),)))), VALUE, Binary("add", VALUE, Operand(0, torch.float16))
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_nothing_beyond_the_operands(name: str) -> None:
    program = PROGRAMS[name]

    def sweep(tell: Tell) -> None:
        arenas = [Arena() for _ in range(4)]
        for width in WIDTHS:
            layout, shape = ("CF", "CL")[width % 2], (1, 1 + width % 5, 2, width)
            vector = torch.ones(shape[1])
            read = [
                image(shape, program.source, layout),
                image((*shape[:3], 9), program.target, layout),
                vector,
                vector,
            ]
            for at_end in (True, False):
                tell((name, shape, layout, at_end))
                picture, other, *vectors = (arena.tensor(one, at_end) for arena, one in zip(arenas, read, strict=True))
                binding.run(program, picture, channels=dict(enumerate(vectors)), tensors={0: other})

    in_a_child(sweep)
