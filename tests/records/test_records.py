"""One description of a call's record, which the C++ side asserts."""

from __future__ import annotations

import itertools
import struct
import subprocess
from pathlib import Path

import pytest
import torch

from polyphase import settings
from polyphase.calls.binding import resample
from polyphase.cpu import build
from polyphase.errors import NoKernelError
from polyphase.records import records
from polyphase.records.facts import Facts
from polyphase.records.records import CallRecord, borders_of, maps_part, pack, warp_part
from polyphase.sampling.axis_maps import AxisMap
from polyphase.sampling.pointwise import VALUE, Binary, Cast, Number
from polyphase.sampling.programs import Axes, Border, Program, maps_program, warp_program
from polyphase.sampling.steps import Flip, Pad, Resize
from polyphase.sampling.warps import Warp

CPU = torch.device("cpu")
SIZE = 8 * sum(records.FIELDS.values())
IMAGE = Facts(torch.float32, (2, 3, 4, 5), (60, 20, 5, 1), CPU)


def numbers(packed: bytes) -> dict[str, list[int]]:
    found = iter(struct.unpack(f"={SIZE // 8}q", packed[:SIZE]))
    return {name: list(itertools.islice(found, count)) for name, count in records.FIELDS.items()}


def compiles(tmp_path: Path, assertions: str) -> bool:
    source = tmp_path / "record.cpp"
    source.write_text(f'#include <cstddef>\n#include "polyphase/launch/request.h"\n{assertions}')
    command = [*settings.compiler(), "-std=c++17", "-fsyntax-only", f"-I{build.INCLUDE}", str(source)]
    return subprocess.run(command, capture_output=True).returncode == 0


def test_the_record_lies_as_its_struct(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert compiles(tmp_path, records.assertions())
    monkeypatch.setattr(records, "FIELDS", {**records.FIELDS, "rank": 2})
    assert not compiles(tmp_path, records.assertions())


def test_kinds_are_the_launchers(tmp_path: Path) -> None:
    kinds = (("kMaps", records.MAPS), ("kWarp", records.WARP), ("kWarpGradients", records.WARP_GRADIENTS))
    for name, number in kinds:
        assert compiles(tmp_path, f"static_assert(polyphase::Request::{name} == {number});")


def test_maps() -> None:
    program = maps_program(torch.float32, (AxisMap((Resize(8, "bilinear"), Flip())), AxisMap((Flip(),))))
    out, axes = Facts(torch.float32, (2, 3, 8, 5), (120, 40, 5, 1), CPU), program.sampler
    assert isinstance(axes, Axes)
    part = maps_part(program, axes, torch.float32, kernel=11, sampler=12, mover=13)
    packed = pack(CallRecord(program, IMAGE, out), part.of(axes))
    found = numbers(packed)
    assert [found[name] for name in ("kernel", "sampler", "mover", "kind", "rank")] == [[11], [12], [13], [0], [4]]
    assert found["in_size"][:5] == [2, 3, 4, 5, 0]
    assert found["out_stride"][:5] == [120, 40, 5, 1, 0]
    assert (found["map_count"], found["last_step"][:3]) == ([2], [2, 3, 0])
    assert found["moved_bytes"] == [0]
    assert len(packed) == SIZE + 3 * 64


def test_a_warp_and_its_coordinates() -> None:
    grid = Facts(torch.float32, (2, 6, 7, 2), (84, 14, 2, 1), CPU)
    out = Facts(torch.float32, (2, 3, 6, 7), (126, 42, 7, 1), CPU)
    warp = Warp("grid", padding="reflection")
    record = CallRecord(warp_program(torch.float32, warp), IMAGE, out, grid)
    found = numbers(pack(record, warp_part(warp, kernel=1)))
    assert found["coordinate_stride"] == [84, 0, 14, 2, 1]
    assert (found["kind"], found["affine"], found["padding"]) == ([records.WARP], [0], [2])
    matrix = Facts(torch.float32, (2, 2, 3), (6, 3, 1), CPU)
    affine = Warp("affine", size=(6, 7), align_corners=True)
    record = CallRecord(warp_program(torch.float32, affine), IMAGE, out, matrix)
    found = numbers(pack(record, warp_part(affine, kernel=1)))
    assert found["coordinate_stride"] == [6, 0, 3, 1, 0]
    assert (found["affine"], found["align_corners"]) == ([1], [1])


def test_borders_in_the_dtypes_they_are_put_on_in() -> None:
    pads = Axes((AxisMap((Pad(1, 1, "constant", 1), Pad(2, 2, "constant", 2))),))
    epilogue = Cast(Binary("mul", VALUE, Number(2)), torch.float64)
    program = Program(torch.uint8, pads, epilogue=epilogue, borders=(Border(7), Border(0.5, stored=True)))
    found = borders_of(program, torch.uint8)
    assert (found.stride, found.first_stored, found.value_bytes, found.stored_bytes) == (8, 2, 1, 8)
    assert found.data == b"\7" + b"\0" * 7 + torch.tensor([0.5], dtype=torch.float64).numpy().tobytes()


def test_exact_borders() -> None:
    """Integers that no float holds, complex numbers and the sign of zero."""
    pad = (AxisMap((Pad(1, 0, "constant", 1),)),)
    large = 2**53 + 1
    assert resample(torch.tensor([5]), pad, border=large).tolist() == [large, 5]
    assert resample(torch.tensor([5j]), pad, border=1 + 2j).tolist() == [1 + 2j, 5j]
    for zero in (0.0, -0.0):
        assert str(resample(torch.tensor([5.0]), pad, border=zero).tolist()[0]) == str(zero)


def test_too_many_dimensions_are_done_by_torch_operations() -> None:
    many = Facts(torch.float32, (1,) * 20, (1,) * 20, CPU)
    program = maps_program(torch.float32, (AxisMap((Flip(),)),))
    with pytest.raises(NoKernelError):
        pack(CallRecord(program, many, many), b"")
    for rank in (13, 20):
        image = torch.rand([2, 3, *[1] * (rank - 4), 2, 3])
        maps = tuple(AxisMap((Flip(),) if d in (0, 1, rank - 1) else ()) for d in range(rank))
        assert torch.equal(resample(image, maps), image.flip(0, 1, -1))
    apart = torch.rand([2] * 13).permute(*reversed(range(13)))[..., ::1]
    maps = tuple(AxisMap((Flip(),) if d % 2 else ()) for d in range(13))
    assert torch.equal(resample(apart, maps), apart.flip(*range(1, 13, 2)))
