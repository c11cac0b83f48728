"""Generated C++ becomes a shared library, built once and found in the cache from then on."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import shlex
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
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
COMPILER_SECONDS = 120.0
#: What could not be built is not tried again for so long: every new size asks for it.
RETRY_SECONDS = 60.0
LINES_SHOWN = 30

#: How many libraries this process has compiled, by their stem.
built: Counter[str] = Counter()


class Request(NamedTuple):
    """A library to be had. `stem` begins its file name, `options` are more compiler flags."""

    source: str
    isa: str
    stem: str = "kernel"
    options: tuple[str, ...] = ()
    include: Path = INCLUDE


def library(
    source: str, isa: str, *, stem: str = "kernel", options: tuple[str, ...] = (), include: Path = INCLUDE
) -> Path:
    return _obtain(_planned(Request(source, isa, stem, options, include)))


def libraries(requests: Iterable[Request]) -> list[Path]:
    """As `library`, those that are missing built side by side. To find them all, threads would only take turns."""
    planned = [_planned(request) for request in requests]
    found = {library.name: entry for library in planned if (entry := store.find(library.name)) is not None}
    missing = [library for library in planned if library.name not in found]
    if missing:
        with ThreadPoolExecutor(max(2, os.cpu_count() or 1)) as pool:
            found |= zip((library.name for library in missing), pool.map(_obtain, missing), strict=True)
    return [found[library.name] for library in planned]


class _Planned(NamedTuple):
    """A library with its name in the cache, and what makes it."""

    name: str
    request: Request
    command: tuple[str, ...]


def _planned(request: Request) -> _Planned:
    compiler = settings.compiler()
    flags = (*FLAGS, *isa.flags(request.isa), *request.options)
    return _Planned(f"{request.stem}-{_key(request, compiler, flags)}.so", request, (*compiler, *flags))


class _Failure(NamedTuple):
    text: str
    until: float  # by time.monotonic


_failures: dict[str, _Failure] = {}


def _obtain(library: _Planned) -> Path:
    failure = _failures.get(library.name)
    if failure is not None and time.monotonic() < failure.until:
        raise BuildFailedError(failure.text)
    try:
        return store.obtain(
            library.name, lambda scratch: _compile(library.request, library.command, scratch / library.name)
        )
    except BuildFailedError as error:
        _failures[library.name] = _Failure(str(error), time.monotonic() + RETRY_SECONDS)
        raise


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
    digest = hashlib.sha256()
    for path in sorted(path for path in include.rglob("*") if path.is_file()):
        digest.update(b"\0".join((os.fsencode(path.relative_to(include)), path.read_bytes(), b"")))
    return digest.hexdigest()


def _compile(request: Request, compiler: tuple[str, ...], library: Path) -> Path:
    source = library.with_suffix(".cpp")
    source.write_text(request.source, encoding="utf-8")
    command = (*compiler, "-I", str(request.include), "-o", str(library), str(source))
    failure = _run(command)
    if failure is None and not (library.is_file() and library.stat().st_size):
        failure = "it made no library"
    if failure is not None:
        source.replace(library.parents[1] / source.name)
        text = (
            f"the C++ compiler failed: {failure}\n"
            f"The command was: {shlex.join(command)}\n"
            f"The source is kept in {source}. Another compiler can be named with CXX"
        )
        # As from where the source is kept: to be run again, and the same text every time.
        raise BuildFailedError(text.replace(str(library.parent), str(library.parents[1])))
    built[request.stem] += 1
    return library


def _run(command: tuple[str, ...]) -> str | None:
    """What went wrong, if something did."""
    try:
        # A session of its own, for the driver's children to end with it.
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
        )
    except OSError as error:
        return str(error)
    with process:
        try:
            output, _ = process.communicate(timeout=COMPILER_SECONDS)
        except subprocess.TimeoutExpired:
            _kill(process)
            return f"no end after {COMPILER_SECONDS:g} s"
        except BaseException:
            _kill(process)
            raise
    if process.returncode == 0:
        return None
    return "\n".join([f"exit status {process.returncode}", *output.splitlines()[-LINES_SHOWN:]])


def _kill(process: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
