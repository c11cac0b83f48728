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

CONTEXT = 42
POINTER = ctypes.c_void_p


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

    run: what is done besides with a function, its blocks, threads, shared bytes and these two.
    """

    def __init__(self, run: Callable[..., None] | None = None) -> None:
        self.run = run
        self.launches: list[tuple[int, int, int]] = []
        self.operands: list[int] = []
        self.early: list[tuple[int, int]] = []
        self.waits = False
        self.captures, self.status = 0, 0
        made: list[tuple[Callable[..., int], list[Any]]] = [
            (self.launch, [POINTER, *[ctypes.c_uint] * 7, POINTER, POINTER, ctypes.POINTER(POINTER)]),
            (self.current, [ctypes.POINTER(POINTER)]),
            (lambda context: 0, [POINTER]),
            (lambda context: 0, [POINTER]),
            (self.capturing, [POINTER, ctypes.POINTER(ctypes.c_int)]),
            (self.launch_early, [ctypes.POINTER(Config), POINTER, POINTER, ctypes.POINTER(POINTER)]),
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
        monkeypatch.setattr(driver, "context_address", lambda device: CONTEXT)
        monkeypatch.setattr(driver, "waits", lambda device, function: self.waits)
