"""Functions of ours in place of the driver's, for the launcher."""

from __future__ import annotations

import ctypes
import functools
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from polyphase.calls.handles import use_handles
from polyphase.cpu import build, isa
from polyphase.cuda import driver, launcher
from polyphase.errors import DriverError

CONTEXT, OWN_STREAM = 42, 99
POINTER = ctypes.c_void_p


def no_driver() -> Any:
    raise DriverError("a stand-in has none of its functions")


class Attribute(ctypes.Structure):
    """As the driver has them, and what a launch is said by."""

    _fields_ = (("number", ctypes.c_int), ("unused", ctypes.c_int), ("value", ctypes.c_int * 16))


class Config(ctypes.Structure):
    _fields_ = (
        ("sizes", ctypes.c_uint * 7),
        ("stream", POINTER),
        ("attributes", ctypes.POINTER(Attribute)),
        ("attribute_count", ctypes.c_uint),
    )


class Driver:
    """Stands in for the driver: launches are remembered, with their stream and the first two of their parameters;
    operands: the third of each, where there is one. parameters: all of the latest. early: the number and value of an
    attribute, for each that had one. waits: whether its kernels wait for those before them.

    run: what is done besides with a function, its blocks, threads, shared bytes and these two. pieces: memory that was
    given out, by address; freed: what was given back. copies: their sizes, and streams. waited: streams that waited for
    what another copied, and 0 for whoever waited on the host. filled: the streams that filled memory.
    """

    def __init__(self, run: Callable[..., None] | None = None) -> None:
        self.run = run
        self.launches: list[tuple[int, int, int]] = []
        self.operands: list[int] = []
        self.early: list[tuple[int, int]] = []
        self.waits = False
        self.captures, self.status = 0, 0
        self.pieces, self.freed = dict[int, ctypes.Array[ctypes.c_char]](), list[int]()
        self.copies, self.waited, self.filled = list[tuple[int, int]](), list[int](), list[int]()
        made: list[tuple[Callable[..., int], list[Any]]] = [
            (self.launch, [POINTER, *[ctypes.c_uint] * 7, POINTER, POINTER, ctypes.POINTER(POINTER)]),
            (self.current, [ctypes.POINTER(POINTER)]),
            (lambda context: 0, [POINTER]),
            (lambda context: 0, [POINTER]),
            (self.capturing, [POINTER, ctypes.POINTER(ctypes.c_int)]),
            (self.launch_early, [ctypes.POINTER(Config), POINTER, POINTER, ctypes.POINTER(POINTER)]),
            (self.allocate, [ctypes.POINTER(POINTER), ctypes.c_size_t]),
            (self.free, [ctypes.c_int64]),
            (self.copy, [ctypes.c_int64, POINTER, ctypes.c_size_t, POINTER]),
            (lambda event, flags: 0, [ctypes.POINTER(POINTER), ctypes.c_uint]),
            (lambda event: 0, [POINTER]),
            (self.record, [POINTER, POINTER]),
            (self.wait, [POINTER, POINTER, ctypes.c_uint]),
            (lambda event: self.wait(None, event, 0), [POINTER]),
            (self.new_stream, [ctypes.POINTER(POINTER), ctypes.c_uint]),
            (lambda mode: 0, [ctypes.POINTER(ctypes.c_int)]),
        ]
        self.functions = [ctypes.CFUNCTYPE(ctypes.c_int, *kinds)(one) for one, kinds in made]

    def addresses(self) -> ctypes.Array[ctypes.c_int64]:
        return (ctypes.c_int64 * len(self.functions))(*[ctypes.cast(one, POINTER).value or 0 for one in self.functions])

    def launch(self, *given: Any) -> int:
        stream, extra = given[8], given[10]
        (size,) = struct.unpack("=Q", ctypes.string_at(extra[3], 8))
        parameters = ctypes.string_at(extra[1], size)
        self.parameters, first_two = parameters, struct.unpack_from("=2q", parameters)
        self.launches.append((stream or 0, *first_two))
        self.operands += struct.unpack_from("=q", parameters, 16) if size >= 24 else ()
        if self.run is not None and self.status == 0:
            self.run(given[0], given[1:4], given[4], given[7], first_two)
        return self.status

    def launch_early(self, config: Any, function: Any, parameters: Any, extra: Any) -> int:
        given = config[0]
        self.early += [(one.number, one.value[0]) for one in given.attributes[: given.attribute_count]]
        return self.launch(function, *given.sizes, given.stream, parameters, extra)

    def current(self, context: Any) -> int:
        context[0] = CONTEXT
        return 0

    def capturing(self, stream: Any, status: Any) -> int:
        status[0] = self.captures
        return 0

    def allocate(self, address: Any, size: int) -> int:
        piece = ctypes.create_string_buffer(b"\xa5" * size, size)
        address[0] = ctypes.addressof(piece)
        self.pieces[address[0]] = piece
        return self.status

    def free(self, address: int) -> int:
        """It stays, as a pattern, for those who still read it."""
        self.freed.append(address)
        ctypes.memset(address, 0xA5, len(self.pieces[address]))
        return 0

    def copy(self, to: int, data: int, size: int, stream: Any) -> int:
        self.copies.append((size, stream or 0))
        ctypes.memmove(to, data, size)
        return 0

    def record(self, event: Any, stream: Any) -> int:
        self.filled.append(stream or 0)
        return 0

    def wait(self, stream: Any, event: Any, flags: int) -> int:
        self.waited.append(stream or 0)
        return 0

    def new_stream(self, stream: Any, flags: int) -> int:
        stream[0] = OWN_STREAM
        return 0

    def install(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """In a copy of the library: another may have the driver's functions."""
        source = launcher.SOURCE.read_text()
        (path,) = build.libraries([build.Request(source, isa.chosen(), "launcher", purpose="a test")])
        shutil.copy(path, folder / "launcher.so")
        functions = ctypes.PyDLL(str(folder / "launcher.so")).polyphase_functions
        functions.argtypes, functions.restype = [ctypes.c_void_p], ctypes.py_object
        made = launcher._Functions(*functions(self.addresses()))
        use_handles(made.read_by_handles)
        installed = functools.cache(lambda: made)
        installed()  # as what counts launches asks
        monkeypatch.setattr(launcher, "_functions", installed)
        monkeypatch.setattr(driver, "_driver", no_driver)  # a machine with a GPU has one
        monkeypatch.setattr(driver, "context_address", lambda device: CONTEXT)
        monkeypatch.setattr(driver, "waits", lambda device, function: self.waits)
