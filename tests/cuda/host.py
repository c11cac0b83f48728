"""CUDA kernels compiled for the host: a block is a loop over its threads, forwards or backwards."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import itertools
import mmap
import os
import struct
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from polyphase import settings
from polyphase.calls.bound import Gradients
from polyphase.cuda import batches, build, driver, emit, items, launch, memory
from polyphase.cuda.calls import ALIGNMENT
from polyphase.cuda.gradients import WarpGradients
from polyphase.cuda.maps import PreparedMaps
from polyphase.cuda.memory import TorchMemory
from polyphase.cuda.warps import PreparedWarp
from polyphase.kernels.plans import MapsPlan, WarpPlan
from polyphase.records import checking, operands
from polyphase.records.facts import Facts, facts
from polyphase.records.layout import dense_strides
from polyphase.records.operands import Operands
from polyphase.records.records import CallRecord, GradientRecord
from polyphase.sampling.programs import Program
from polyphase.sampling.warps import Warp
from tests.cuda.stand_in import Driver

CUDA = torch.device("cuda", 0)
SHARED_ROOM = 1 << 17
ARCHITECTURE = "sm_90"


class Block(ctypes.Structure):
    _fields_ = (
        ("place", ctypes.c_int * 3),
        ("count", ctypes.c_int * 3),
        ("shared", ctypes.c_void_p),
        ("threads", ctypes.c_int),
        ("backwards", ctypes.c_bool),
    )


def on_cuda(one: Facts) -> Facts:
    return one._replace(device=CUDA)


def record_for(program: Program, inputs: Sequence[Tensor], out: Tensor | None = None) -> CallRecord:
    target = None if out is None else on_cuda(facts(out))
    return checking.record_of(program, [on_cuda(facts(one)) for one in inputs], target)


def run(
    program: Program,
    *inputs: Tensor,
    backwards: bool = False,
    aligned: bool = True,
    choose: launch.Choose = None,
    like: Tensor | None = None,
) -> Tensor:
    """As a launch does, block after block; `aligned` where the image is. The output's memory begins as a pattern that
    shows what was not written. `like`: what the output lies like."""
    record = record_for(program, inputs, like)
    aligned = aligned and inputs[0].data_ptr() % ALIGNMENT == 0
    call = launch.prepared(record, aligned, ARCHITECTURE, choose)
    out = empty(record.out.shape, record.out.strides, record.out.dtype)
    sampled = 1 if record.coordinates is None else 2
    execute(call, [out, *inputs[:sampled], *record.operands.dense(inputs[sampled:])], backwards)
    return out


def empty(shape: Sequence[int], strides: Sequence[int], dtype: torch.dtype) -> Tensor:
    out = torch.empty_strided(shape, strides, dtype=dtype)
    torch.empty(0, dtype=torch.uint8).set_(out.untyped_storage()).fill_(0xA5)
    return out


def execute(call: PreparedMaps | PreparedWarp, tensors: Sequence[Tensor | None], backwards: bool = False) -> None:
    """The kernel of a call on the host: target, source, coordinates, vectors and tensors."""
    packed, _kept = call.packed(_on_host)
    shape = call.shape
    data, places = bytearray(packed), shape.places()
    vectors = 2 + shape.coordinates + shape.vectors
    addresses = [0 if one is None else one.data_ptr() for one in tensors]
    for at, some in (
        (0, addresses[:2]),
        (places["coordinates" if shape.coordinates else "vectors"], addresses[2:vectors]),
        (places["tensors"], addresses[vectors:]),
    ):
        for i, address in enumerate(some):
            data[at + 8 * i : at + 8 * i + 8] = address.to_bytes(8, "little")
    source = emit.kernel_source(call.plan, call.way)
    run_blocks(source, data, call.cut.blocks, call.way.threads, call.cut.shared_bytes, backwards)


def run_blocks(
    source: str, data: bytearray, blocks: tuple[int, int, int], threads: int, shared_bytes: int, backwards: bool
) -> None:
    kernel = library(source).polyphase_kernel
    assert shared_bytes <= SHARED_ROOM
    room, size = shared_room(), (shared_bytes + 15) // 16 * 16
    parameters = (ctypes.c_char * len(data)).from_buffer(data)
    for place in itertools.product(*map(range, blocks)):
        block = Block(place, blocks, room.last(size), threads, backwards)
        kernel(parameters, ctypes.byref(block))


class GuardedRoom:
    """Shared memory, which ends where nothing may be touched: reading on ends the process, as it does on a device."""

    def __init__(self) -> None:
        self._memory = (ctypes.c_char * (SHARED_ROOM + mmap.PAGESIZE)).from_buffer(
            mmap.mmap(-1, SHARED_ROOM + mmap.PAGESIZE)
        )
        self._end = ctypes.addressof(self._memory) + SHARED_ROOM
        assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(self._end), ctypes.c_size_t(mmap.PAGESIZE), 0) == 0

    def last(self, size: int) -> int:
        """Where so many bytes begin, which are a pattern."""
        ctypes.memset(self._end - size, 0x5A, size)
        return self._end - size


@functools.cache
def shared_room() -> GuardedRoom:
    return GuardedRoom()


class Memory(TorchMemory):
    """The host's, which begins as a pattern."""

    def __init__(self) -> None:
        self.device, self.stream_of = 0, lambda device: 0

    def empty(self, size: int) -> Tensor:
        return torch.full((size,), 0xA5, dtype=torch.uint8)

    def staged(self, size: int) -> Tensor:
        return torch.empty(size, dtype=torch.uint8)

    def there(self, staged: Tensor) -> Tensor:
        return staged.clone()


class Stream(batches.Stream):
    """A stream of the host: what is launched runs now. kernels: what was, in order. made_at_once: tables of graphs.
    freed: pieces of the driver's memory."""

    def __init__(self, *, backwards: bool = False) -> None:
        self.device, self.number, self.captures, self.put, self.memory = 0, 0, False, _on_host, Memory()
        self.readers, self.made_at_once = 0, 0
        self._pieces, self.freed = dict[int, Tensor](), list[int]()
        self.backwards = backwards
        self.kernels: list[batches.Kernel] = []
        self.driver = Driver(self.run_function)  # of a launcher that it is installed in
        self._functions: list[tuple[Any, Any]] = []

    def capture(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """What follows is as if a graph were captured: its tables lie in memory of the driver's, here the host's."""
        self.captures, self.readers, self.driver.captures = True, batches.OF_GRAPHS, 1
        self.put = functools.partial(memory.uploaded, self.device)
        monkeypatch.setattr(memory, "_latest", {})
        monkeypatch.setattr(memory, "_kept_forever", set())
        for one in (self.allocate, self.free, self.upload, self.run_at_once):
            monkeypatch.setattr(driver, one.__name__, one)

    def allocate(self, device: int, size: int) -> int:
        piece = self.memory.empty(size)
        self._pieces[piece.data_ptr()] = piece
        return piece.data_ptr()

    def free(self, device: int, address: int) -> None:
        """It stays, as a pattern, for those who still read it."""
        self._pieces[address].fill_(0xA5)
        self.freed.append(address)

    def upload(self, device: int, address: int, data: bytes) -> None:
        ctypes.memmove(address, data, len(data))

    def run_at_once(
        self, device: int, function: int, blocks: tuple[int, int, int], threads: int, shared: int, call: bytearray
    ) -> None:
        address, number = struct.unpack_from("=2q", call)
        self.made_at_once += number
        self.run_function(function, blocks, threads, shared, (address, number))
        self.kernels.pop()  # no part of the graph

    def most_blocks(self, chosen: items.Chosen) -> int:
        return 3  # which have more than one tile each

    def function(self, plan: MapsPlan | WarpPlan | None, chosen: items.Chosen | None) -> int:
        if (plan, chosen) not in self._functions:
            self._functions.append((plan, chosen))
        return 1 + self._functions.index((plan, chosen))

    def run(self, kernel: batches.Kernel, address: int, number: int) -> None:
        self.kernels.append(kernel)
        plan, chosen, blocks, threads, shared_bytes = kernel
        source = emit.tap_maker_source() if plan is None or chosen is None else emit.kernel_source(plan, chosen.way)
        run_blocks(
            source, bytearray(struct.pack("=2q", address, number)), blocks, threads, shared_bytes, self.backwards
        )

    def run_function(
        self, function: int, blocks: tuple[int, int, int], threads: int, shared_bytes: int, given: tuple[int, int]
    ) -> None:
        """For `stand_in.Driver`."""
        self.run(batches.Kernel(*self._functions[function - 1], blocks, threads, shared_bytes), *given)


def run_batch(stream: Stream, calls: Sequence[tuple[Program, Sequence[Tensor]]]) -> list[Tensor]:
    own = [items.Item(record_for(program, inputs)) for program, inputs in calls]
    outs = [empty(one.record.out.shape, one.record.out.strides, one.record.out.dtype) for one in own]
    given = [(item, out, *call[1]) for item, out, call in zip(own, outs, calls, strict=True)]
    batches.launch_on(stream, batches.Calls.of(given))
    return outs


def address_of(data: bytearray) -> int:
    return ctypes.addressof((ctypes.c_char * len(data)).from_buffer(data))


def gradients(
    gradient: Tensor,
    image: Tensor,
    coordinates: Tensor,
    sampler: Warp,
    needed: tuple[bool, bool],
    *fields: Tensor,
    deterministic: bool = True,
    backwards: bool = False,
) -> Gradients:
    """Of a warp, as launches make them one after the other."""
    of_gradient, of_image, of_coordinates = (on_cuda(facts(one)) for one in (gradient, image, coordinates))
    of_fields = operands.describe_fields(gradient.shape, len(fields), [facts(one) for one in fields])
    record = GradientRecord(sampler, of_gradient, of_image, of_coordinates, needed, Operands(tensors=of_fields))
    return WarpGradients(record, ARCHITECTURE).run(
        functools.partial(execute, backwards=backwards),
        lambda shape, dtype: empty(shape, dense_strides(shape, False), dtype),
        deterministic,
        gradient,
        image,
        coordinates,
        *fields,
    )


def way_of(program: Program, *inputs: Tensor) -> str:
    return launch.prepared(record_for(program, inputs), True, ARCHITECTURE).way.template


def _on_host(*parts: bytes | None) -> tuple[list[int], object]:
    kept = [None if one is None else torch.tensor([*one], dtype=torch.uint8) for one in parts]
    return [0 if one is None else one.data_ptr() for one in kept], kept


@functools.cache
def library(source: str, *options: str) -> ctypes.CDLL:
    """Built once in a test session."""
    folder = Path(tempfile.gettempdir()) / f"polyphase-cuda-host-{os.getuid()}"
    folder.mkdir(exist_ok=True)
    text = repr((source, sorted(build.headers().items()), options, settings.compiler()))
    path = folder / f"{hashlib.sha256(text.encode()).hexdigest()[:24]}.so"
    if not path.exists():
        shared = build.INCLUDE.parents[1] / "cpu" / "include"
        part = path.with_suffix(f".{os.getpid()}")
        command = [*settings.compiler(), "-std=c++17", "-O0", "-shared", "-fPIC", "-ffp-contract=off", "-w", *options]
        command += ["-I", str(build.INCLUDE), "-I", str(shared), "-x", "c++", "-o", str(part), "-"]
        subprocess.run(command, input=source, text=True, check=True)
        part.rename(path)
    return ctypes.CDLL(str(path))
