"""The launcher: a small library for the CPU, which prepares calls on the host and launches them by the driver."""

from __future__ import annotations

import ctypes
import functools
import struct
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from polyphase.calls import dispatched
from polyphase.calls.devices import LaunchSized
from polyphase.calls.handles import use_handles
from polyphase.cpu import build, isa  # the launcher is a library for the CPU
from polyphase.cuda import driver
from polyphase.errors import BuildFailedError, CompilerMissingError

SOURCE = Path(__file__).parent / "launcher.cpp"

_lock = threading.Lock()


@dataclass(frozen=True)
class LaunchPlan:
    """`Plan` of launcher.cpp: how a kernel is launched on a device, how many operands its call has, and where.
    makes_tables: it makes tables for other kernels, so that its launches are counted apart."""

    device: int
    function: int
    blocks: tuple[int, int, int]
    threads: int
    shared_bytes: int
    vectors: int
    tensors: int
    vectors_at: int
    tensors_at: int
    makes_tables: bool = False

    def packed(self) -> bytes:
        operands = (self.vectors, self.tensors, self.vectors_at, self.tensors_at)
        sizes = (*self.blocks, self.threads, self.shared_bytes, driver.waits(self.device, self.function), *operands)
        context = driver.context_address(self.device)
        return struct.pack("=13q", self.function, context, *sizes, self.makes_tables)


#: With a stream, and the addresses of target, source, vectors and tensors; whether a graph is being captured.
Run = Callable[..., int]


class Bound(NamedTuple):
    """run: launches. part: what the launcher's functions know it by."""

    run: Run
    part: object


def bind(plan: LaunchPlan, call: bytes, tables: Sequence[object] = ()) -> Bound:
    """`call`: what the kernel is given, addresses of tensors aside. `tables`: what keeps those that it reads."""
    functions = _functions()
    part = functions.bind(plan.packed(), call, tuple(tables))
    return Bound(functools.partial(functions.launch, part), part)


class Answers(Protocol):
    """What is asked for by the launcher: `programs.OnDevice`."""

    def choose(self, own: bytes, servers: Sequence[bytes]) -> object: ...
    def ask(self, own: bytes, waits: bool) -> object: ...
    def stream_of(self, device: int) -> int: ...
    def tap_maker(self, device: int) -> int: ...
    def refused(self, device: int) -> object: ...


def program(facts: bytes, device: int, answers: Answers) -> object:
    """What the launcher knows a program on a device by. `facts`: `Program` of device_cases.h."""
    context = driver.context_address(device)
    asked = (answers.choose, answers.ask, answers.stream_of, answers.tap_maker, answers.refused)
    return _functions().program(facts, context, device or 0, *asked)


def bind_request(program: object, request: bytes, aligned: bool) -> Bound:
    functions = _functions()
    part = functions.bind_request(program, request, aligned)
    return Bound(functools.partial(functions.launch, part), part)


def tables(part: object) -> tuple[object, ...]:
    """What keeps the tables of a call that `bind` was given them for."""
    return _functions().tables(part)


class AnySizeCall(NamedTuple):
    """As `FreshCall`, of a program. refused: the exceptions that say that no kernel can be had, where `otherwise` is
    called too. strides_like: of an output in the order of others."""

    program: object
    refused: tuple[type[Exception], ...]
    empty: Callable[..., Tensor]
    dtype: torch.dtype
    strides_like: Callable[..., tuple[int, ...]]
    stream_of: Callable[[int], int]
    device: int
    otherwise: Callable[..., Tensor]


def any_size(request: bytes, rules: bytes, call: AnySizeCall) -> Callable[..., Tensor]:
    """A function of an image of any size. `rules`: `records.AnySize`."""
    return _functions().any_size(request, rules, call)


def bound_of(call: Callable[..., Tensor], *given: Any) -> tuple[object, tuple[Any, ...]] | None:
    """Tells of what `any_size` made what it calls for an image of this size, and the place of the output."""
    return _functions().bound_of(call, *given)


class FreshCall(NamedTuple):
    """All that a call without operands takes from an image to a new tensor, as launcher.cpp has it: empty(*shape) makes
    that, stream_of(device) says where to launch, and otherwise(image) does what is not aligned."""

    part: object
    empty: Callable[..., Tensor]
    shape: tuple[object, ...]
    stream_of: Callable[[int], int]
    device: int
    otherwise: Callable[..., Tensor]


def fresh(call: FreshCall) -> Callable[..., Tensor]:
    """A function of an image, by one call into C."""
    return _functions().fresh(call)


def again() -> Callable[..., Callable[..., Any]] | None:
    try:
        return _functions().again
    except (CompilerMissingError, BuildFailedError):
        return None


@functools.cache
def dispatched_kernels() -> dispatched.Kernels | None:
    return dispatched.usable(_functions())


class SizedParts(NamedTuple):
    """What launches of images of any size take, as launcher.cpp has it. kernel and tap_maker: `Bound.part` of each.
    empty(size) makes a tensor of bytes on the device, staged(size) one on the host that there(it) copies to the device.
    read: what is read besides images."""

    kernel: object
    tap_maker: object
    stream_of: Callable[[int], int]
    device: int
    empty: Callable[[int], Tensor]
    staged: Callable[[int], Tensor]
    there: Callable[[Tensor], Tensor]
    read: object


def sized(pattern: bytes, row: bytes, templates: bytes, parts: SizedParts) -> LaunchSized | None:
    """`pattern`: `RowPattern` of sized_rows.h. `templates`: as of `devices.BySize`. None where the row is no image's by
    these."""
    return _functions().sized(pattern, row, templates, parts)


class Counted(NamedTuple):
    """Launches of kernels, of those that make tables, and tables that were made for images of any size."""

    launches: int
    makers: int
    tables: int


def counted() -> Counted:
    return Counted(*_functions().counts()) if _functions.cache_info().currsize else Counted(0, 0, 0)


class _Functions(NamedTuple):
    bind: Callable[[bytes, bytes, tuple[object, ...]], object]
    program: Callable[..., object]
    bind_request: Callable[[object, bytes, bool], object]
    tables: Callable[[object], tuple[object, ...]]
    any_size: Callable[[bytes, bytes, AnySizeCall], Callable[..., Tensor]]
    bound_of: Callable[..., tuple[object, tuple[Any, ...]] | None]
    launch: Run
    fresh: Callable[[FreshCall], Callable[..., Tensor]]
    sized: Callable[[bytes, bytes, bytes, SizedParts], LaunchSized | None]
    counts: Callable[[], tuple[int, int, int]]
    again: Callable[..., Callable[..., Any]]
    read_by_handles: Callable[[type, bytes], None]
    dispatch_by: Callable[[bytes], None]
    operator: Callable[..., int]
    put: Callable[[int], None]
    take_away: Callable[[int], None]
    direct: Callable[[bool], None]


class _DeviceFunctions(NamedTuple):
    """The functions of `maps.py`: they need no driver."""

    arrange: Callable[[bytes, bytes, bool, bool, bool], tuple[object, int]]
    about: Callable[[object], tuple[Any, ...]]
    own_way: Callable[[object], bytes]
    servers: Callable[[object, bytes], tuple[bytes, ...]]
    way_of_all: Callable[[tuple[object, ...], bool], bytes]
    way_by: Callable[..., bytes]
    prepare: Callable[[object, bytes, bytes], tuple[Any, ...]]


def request(architecture: str) -> build.Request:
    source = SOURCE.read_text(encoding="utf-8")
    return build.Request(source, architecture, "launcher", purpose="all calls of CUDA kernels")


@functools.cache
def _library() -> ctypes.PyDLL:
    with _lock:
        (path,) = build.libraries([request(isa.chosen())])
        return ctypes.PyDLL(str(path))


@functools.cache
def _functions() -> _Functions:
    library = _library()
    with _lock:
        functions = library.polyphase_functions
        functions.argtypes, functions.restype = [ctypes.c_void_p], ctypes.py_object
        made = _Functions(*functions(driver.launching_functions()))
    use_handles(made.read_by_handles)
    return made


@functools.cache
def device_functions() -> _DeviceFunctions:
    functions = _library().polyphase_device_functions
    functions.restype = ctypes.py_object
    return _DeviceFunctions(*functions())
