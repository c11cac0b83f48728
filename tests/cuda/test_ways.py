"""Which kernel does a call, what serves it instead, and how its work is cut: a table nobody changes by accident."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from polyphase import arguments
from polyphase.cuda.maps import Arranged, way_of_all
from polyphase.cuda.ways import Cut, Way, packed, unpacked
from polyphase.errors import NoKernelError
from polyphase.records import checking
from polyphase.records.facts import Facts, Sizes
from polyphase.records.layout import dense_strides
from polyphase.sampling.axis_maps import AxisMap
from polyphase.sampling.programs import Program, maps_program
from polyphase.sampling.steps import Resize
from tests.cuda import host

GOLDEN = Path(__file__).parents[1] / "golden" / "cuda_ways.txt"
SIZES = (((480, 640), (960, 1280)), ((1080, 1920), (224, 301)), ((32, 40), (96, 96)))
MODES = (("bilinear", True), ("bicubic", False), ("nearest", False))
DTYPES = (torch.uint8, torch.float32, torch.float16)


def arranged(program: Program, image: Facts, *, aligned: bool = True, made: bool = False) -> Arranged:
    record = checking.record_of(program, [image])
    return Arranged(record, aligned, aligned, host.ARCHITECTURE, makes_tables=made)


def image(dtype: torch.dtype, shape: Sizes, last: bool) -> Facts:
    return Facts(dtype, shape, dense_strides(shape, last), host.CUDA)


def calls() -> Iterator[tuple[str, Program, Facts]]:
    for (before, after), (mode, antialias), dtype, last in itertools.product(SIZES, MODES, DTYPES, (False, True)):
        given = image(dtype, (2, 3, *before), last)
        maps = arguments.resize_maps(given.shape, dtype, after, None, mode, None, None, antialias)
        name = f"{mode}{' antialiased' if antialias else ''} {before} -> {after} {dtype}{' pixels' if last else ''}"
        yield name, maps_program(dtype, maps), given
    for dtype, last, dims in itertools.product(DTYPES, (False, True), ((-1,), (-2, -1))):
        given = image(dtype, (2, 3, 224, 225), last)
        yield (
            f"flip {dims} {dtype}{' pixels' if last else ''}",
            maps_program(dtype, arguments.flip_maps(4, dims)),
            given,
        )


def written(way: Way, cut: Cut | None = None) -> str:
    sizes = f"{way.threads} threads, {way.resident} resident, strip {way.strip}, tile {way.tile}"
    numbers = ", ".join(str(one) for one in way.constants)
    if cut is None:
        return f"{way.template}<{numbers}> {sizes}"
    rest = (cut.shared_bytes, cut.tiles, cut.strips, cut.tile, cut.strip, cut.span, cut.staged_rows)
    return f"{way.template}<{numbers}> {sizes}; {cut.blocks} {rest}"


def text() -> str:
    lines = []
    for name, program, given in calls():
        for aligned in (True, False):
            call = arranged(program, given, aligned=aligned)
            own = call.own_way()
            lines += [f"{name}{'' if aligned else ', not aligned'}", f"  {written(own, call.by(own).cut)}"]
            lines += [f"    or {written(way)}" for way in call.servers(own)]
        lines.append(f"  of a batch {written(way_of_all([arranged(program, given, aligned=False, made=True)]))}")
    return "\n".join([*lines, ""])


def test_ways() -> None:
    if os.environ.get("POLYPHASE_UPDATE_GOLDEN"):
        GOLDEN.write_text(text(), encoding="utf-8")
    assert text() == GOLDEN.read_text(encoding="utf-8")


def test_a_way_as_bytes() -> None:
    for _, program, given in itertools.islice(calls(), 0, None, 7):
        own = arranged(program, given).own_way()
        assert unpacked(packed(own)) == own
        assert [type(one) for one in unpacked(packed(own)).constants] == [type(one) for one in own.constants]


def test_what_a_kernel_was_not_made_for_is_refused() -> None:
    resize = AxisMap((Resize(100, "bilinear", antialias=True),))
    wide, narrow = (
        arranged(maps_program(torch.float32, (resize, resize)), image(torch.float32, (3, size, size), False))
        for size in (450, 120)
    )
    with pytest.raises(ValueError, match="windows"):
        wide.by(narrow.own_way())
    with pytest.raises(ValueError, match="another size"):
        wide._functions.prepare(wide.handle, b"", b"")


def test_too_many_dimensions_are_refused() -> None:
    shape = tuple(range(2, 12))
    strides = tuple(s + 1 for s in dense_strides(shape, False))
    program = maps_program(torch.float32, (AxisMap((Resize(3, "bilinear"),)),))
    with pytest.raises(NoKernelError, match="dimensions"):
        arranged(program, Facts(torch.float32, shape, strides, host.CUDA))
