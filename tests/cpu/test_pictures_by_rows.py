"""Pictures that are lists of where rows begin, of four bytes a pixel of which three count: as the reference has it, to
the bit, and without reading beyond a row's last byte."""

from __future__ import annotations

import ctypes
import itertools
import mmap
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from polyphase.calls import binding
from polyphase.records.facts import Facts
from polyphase.records.layout import BY_ROWS
from polyphase.sampling import reference
from polyphase.sampling.axis_maps import AxisMap
from polyphase.sampling.pointwise import VALUE, Cast
from polyphase.sampling.programs import Axes, Border, Program
from polyphase.sampling.steps import Flip, Pad, Resize, Slice, Step
from tests.cpu.conftest import Tell, in_a_child
from tests.cpu.test_kernels import dealt, parts
from tests.cpu.test_memory_safety import Arena, protect

pytestmark = pytest.mark.usefixtures("fresh_outputs")

HEIGHT = 9
WIDTHS = (*range(2, 70), 97, 130, 301, 520, 701, 1500)
ROWS: tuple[tuple[Step, ...], ...] = (
    (Resize(4, "bilinear", antialias=True),),
    (Resize(4, "bilinear", antialias=True, first=True),),
    (Resize(20, "bicubic", antialias=True), Pad(2, 1, "constant", 1)),
    (Slice(1, 8), Resize(3, "lanczos", antialias=True, first=True), Flip()),
    (),
)


class Rows(NamedTuple):
    """The list, as memory that kernels are given."""

    begins: ctypes.Array[ctypes.c_uint64]

    def data_ptr(self) -> int:
        return ctypes.addressof(self.begins)


def columns(width: int, number: int) -> tuple[Step, ...]:
    after = 1 + (width - 1) * (number % 5 + 1) // 6
    begin = width // 5 if number % 2 else 0
    cut = (Slice(begin, width - begin),) if begin else ()
    turned = (Flip(),) if number % 3 == 0 else ()
    return (*cut, Resize(after, ("bilinear", "bicubic", "lanczos")[number % 3], antialias=True), *turned)


def laid_out(arena: Arena, pixels: Tensor, at_end: bool) -> tuple[Rows, Tensor]:
    """Rows of (height, width, bytes) one after the other, the last of them first; beyond them nothing can be read."""
    held = arena.tensor(pixels, at_end)
    held.copy_(pixels.flip(0))
    begins = [held[len(pixels) - 1 - y].data_ptr() for y in range(len(pixels))]
    return Rows((ctypes.c_uint64 * len(begins))(*begins)), held


@parts
@pytest.mark.parametrize("channels", [1, 3])
def test_every_width(instruction_set: str, channels: int, part: int) -> None:
    arena, step, cases = Arena(), 4 if channels == 3 else 1, []
    for number, (width, rows) in enumerate(dealt(itertools.product(WIDTHS, ROWS), part)):
        pixels = torch.arange(HEIGHT * width * step, dtype=torch.int64).mul(7919).remainder(251).to(torch.uint8)
        pixels = pixels.reshape(HEIGHT, width, step)
        maps = AxisMap(rows), AxisMap(columns(width, number))
        epilogue = Cast(VALUE, torch.float32) if number % 2 else VALUE
        program = Program(torch.uint8, Axes(maps), epilogue=epilogue, borders=(Border(7),))
        image = pixels[..., :channels].permute(2, 0, 1)
        cases.append((pixels, program, reference.run(program, image[None])[0].to(program.target)))

    def run(tell: Tell) -> None:
        for pixels, program, expected in cases:
            tell((instruction_set, pixels.shape, program))
            for at_end in (True, False):
                held, owner = laid_out(arena, pixels, at_end)
                known = Facts(torch.uint8, (channels, *pixels.shape[:2]), (1, BY_ROWS, step), torch.device("cpu"))
                protect(arena.first, Arena.PAGES * mmap.PAGESIZE, mmap.PROT_READ)
                found = binding.bind(program, (known,)).fresh(held)
                protect(arena.first, Arena.PAGES * mmap.PAGESIZE, mmap.PROT_READ | mmap.PROT_WRITE)
                assert torch.equal(found, expected)
                del owner

    in_a_child(run)
