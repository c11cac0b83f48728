"""Generated C++ becomes a shared library: it came with the package, or is built once and found in the cache from then
on."""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import math
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from polyphase import settings
from polyphase.cpu import isa
from polyphase.errors import BuildFailedError
from polyphase.kernels import store
from polyphase.version import __version__

INCLUDE = Path(__file__).parent / "include"
#: Loops of some dozen instructions take longer where they happen to begin within a line of code.
FLAGS = ("-std=c++17", "-O1", "-falign-loops=32", "-fPIC", "-shared", "-fvisibility=hidden", "-ffp-contract=off")
#: What macOS's linker must be told: Python's functions come from the process that loads a library.
SYSTEM_FLAGS = {"darwin": ("-Wl,-undefined,dynamic_lookup",)}
COMPILER_SECONDS = 120.0
#: A failure that may pass is tried again after so many times as long as it took, and no sooner than these seconds:
#: every call asks for what is missing.
PATIENCE, RETRY_SECONDS = 10.0, 1.0
LINES_SHOWN = 30

#: What compilers and their drivers say, in English, of a place that is full and of failures that another try may not
#: meet.
NO_ROOM = ("No space left on device", "Disk quota exceeded", "Read-only file system")
MAY_PASS = ("Killed", "out of memory", "Cannot allocate memory", "memory exhausted", "Resource temporarily unavailable")

#: How many libraries this process has compiled, by their stem.
built: Counter[str] = Counter()


class Request(NamedTuple):
    """A library to be had. `stem` begins its file name, `options` are more compiler flags, `purpose` is for people."""

    source: str
    isa: str
    stem: str = "kernel"
    options: tuple[str, ...] = ()
    include: Path = INCLUDE
    purpose: str = ""


def library(
    source: str, isa: str, *, stem: str = "kernel", options: tuple[str, ...] = (), include: Path = INCLUDE
) -> Path:
    return libraries([Request(source, isa, stem, options, include)])[0]


def libraries(requests: Iterable[Request]) -> list[Path]:
    requests = list(requests)
    found = {one: path for one in requests if (path := store.prebuilt(prebuilt_name(one))) is not None}
    missing = [one for one in requests if one not in found]
    if missing:
        found |= zip(missing, _built(missing), strict=True)
    return [found[one] for one in requests]


def prebuilt_name(request: Request) -> str:
    """Names the library for this very source, headers, flags and kind of machine, whichever compiler made it."""
    facts = (request.source, _headers(request.include), _flags(request), os.uname().machine, __version__)
    return store.prebuilt_name(request.stem, request.isa, facts, ".so")


def _built(requests: list[Request]) -> list[Path]:
    """Builds those that are missing, side by side."""
    planned = [_planned(request) for request in requests]
    by_name = {one.name: one for one in planned}
    for name in by_name:
        _raise_if_it_failed(name)

    def make(scratch: Path, missing: list[str]) -> list[str]:
        return _compile([by_name[name] for name in missing], scratch)

    started = time.monotonic()
    try:
        found = store.obtain({name: f"{one.request.purpose}, {one.request.isa}" for name, one in by_name.items()}, make)
    except OSError as error:
        text = f"there is no room to build in, neither in the cache directory nor in a temporary one: {error}. {_AGAIN}"
        _failures.update(dict.fromkeys(by_name, _Failure(text, _next_try(started))))
        raise BuildFailedError(text) from None
    for one in planned:
        if one.name not in found:
            raise BuildFailedError(_failures[one.name].text)
    return [found[one.name] for one in planned]


class _Planned(NamedTuple):
    """A library with its name in the cache, and what makes it."""

    name: str
    request: Request
    command: tuple[str, ...]


def _planned(request: Request) -> _Planned:
    compiler, flags = settings.compiler(), _flags(request)
    return _Planned(f"{request.stem}-{_key(request, compiler, flags)}.so", request, (*compiler, *flags))


def _flags(request: Request) -> tuple[str, ...]:
    return (*FLAGS, *SYSTEM_FLAGS.get(sys.platform, ()), *isa.flags(request.isa), *request.options)


class _Failure(NamedTuple):
    text: str
    until: float  # it is not tried again, by time.monotonic


_failures: dict[str, _Failure] = {}
_AGAIN = "That may pass: it is tried again from time to time"
_NEVER_AGAIN = "This process does not ask the same compiler for it again"


def _next_try(started: float) -> float:
    """When to try again what failed in a way that may pass, and was started then."""
    now = time.monotonic()
    return now + max(PATIENCE * (now - started), RETRY_SECONDS)


def _raise_if_it_failed(name: str) -> None:
    """Raises the failure of a build that is not to be tried again yet."""
    failure = _failures.get(name)
    if failure is not None and time.monotonic() < failure.until:
        raise BuildFailedError(failure.text)


def _key(request: Request, compiler: tuple[str, ...], flags: tuple[str, ...]) -> str:
    # The CPU's features matter where CXX brings flags of its own, such as -march=native.
    machine = (os.uname().machine, sorted(isa.features()))
    facts = (request.source, _headers(request.include), compiler, _identity(compiler), flags, machine, __version__)
    return hashlib.sha256(repr(facts).encode()).hexdigest()[: store.KEY_DIGITS]


def _identity(compiler: tuple[str, ...]) -> list[tuple[str, int, int]]:
    """Tells a compiler from its next version without running it; of `ccache g++`, both programs."""
    programs = [os.path.realpath(found) for word in compiler if (found := shutil.which(word))]
    return [(program, os.stat(program).st_size, os.stat(program).st_mtime_ns) for program in programs]


@functools.cache
def _headers(include: Path) -> str:
    """Read without pathlib, which would be most of a process's first call."""
    digest, root = hashlib.sha256(), os.fspath(include)
    for folder, names in sorted((folder, sorted(files)) for folder, _, files in os.walk(root)):
        digest.update(os.fsencode(folder[len(root) :]) + b"\0")
        for name in names:
            with open(f"{folder}/{name}", "rb", buffering=0) as file:
                digest.update(b"\0".join((os.fsencode(name), file.read(), b"")))
    return digest.hexdigest()


def _compile(wanted: list[_Planned], scratch: Path) -> list[str]:
    """Side by side; the names of what could be made. No compiler outlives this, whatever is raised meanwhile: Ctrl-C
    ends them at once."""
    started = time.monotonic()
    made = []
    with contextlib.ExitStack() as running:
        compilers = [_start(one, scratch, running) for one in wanted]
        for one, compiler in zip(wanted, compilers, strict=True):
            failure = _end(compiler, started + COMPILER_SECONDS)
            library = scratch / one.name
            if failure is None and not (library.is_file() and library.stat().st_size):
                failure = _Ended("it made no library")
            if failure is None:
                made.append(one.name)
                built[one.request.stem] += 1
            else:
                until = _next_try(started) if failure.may_pass else math.inf
                _failures[one.name] = _Failure(_complaint(one, scratch, failure), until)
    return made


def _command(one: _Planned, folder: Path) -> list[str]:
    library = folder / one.name
    return [*one.command, "-I", str(one.request.include), "-o", str(library), str(library.with_suffix(".cpp"))]


class _Ended(NamedTuple):
    """How a compiler failed. may_pass: another try may not."""

    text: str
    may_pass: bool = False


def _start(one: _Planned, scratch: Path, running: contextlib.ExitStack) -> subprocess.Popen[str] | _Ended:
    command = _command(one, scratch)
    Path(command[-1]).write_text(one.request.source, encoding="utf-8")
    try:
        # A session of its own, for the driver's children to end with it, and their temporary files with the scratch.
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
            env={**os.environ, "LC_ALL": "C", "TMPDIR": str(scratch)},
        )
    except OSError as error:
        return _Ended(str(error), may_pass=error.errno in (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE))
    running.enter_context(process)
    running.callback(_kill, process)
    return process


def _end(process: subprocess.Popen[str] | _Ended, deadline: float) -> _Ended | None:
    """What went wrong, if something did. Raises where there is no room: the place is to blame, not the compiler."""
    if isinstance(process, _Ended):
        return process
    try:
        output, _ = process.communicate(timeout=max(deadline - time.monotonic(), 0.1))
    except subprocess.TimeoutExpired:
        _kill(process)
        return _Ended(f"no end after {COMPILER_SECONDS:g} s", may_pass=True)
    if process.returncode == 0:
        return None
    if any(said in output for said in NO_ROOM):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    by_signal = process.returncode < 0 or process.returncode > 128  # as a shell says it
    text = "\n".join([f"exit status {process.returncode}", *output.splitlines()[-LINES_SHOWN:]])
    return _Ended(text, by_signal or any(said in output for said in MAY_PASS))


def _kill(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def _complaint(one: _Planned, scratch: Path, failure: _Ended) -> str:
    kept = store.keep(Path(one.name).with_suffix(".cpp").name, one.request.source)
    text = (
        f"the C++ compiler failed: {failure.text}\n"
        f"The command was: {shlex.join(_command(one, scratch))}\n"
        f"The source is kept in {kept}. {_AGAIN if failure.may_pass else _NEVER_AGAIN}. "
        "Another compiler can be named with CXX"
    )
    # As from where the source is kept: to be run again, and the same text every time.
    return text.replace(str(scratch), str(kept.parent))
