"""Builds what a wheel has: entries of the store, under names by which they are found whatever built them."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import NamedTuple

from polyphase.cpu import build
from polyphase.cuda import build as cuda_build
from wheels import symbols
from wheels.cuda_contents import Kernel

#: The instruction sets of machines, of which each runs the first at least.
ISAS = {"x86_64": ("portable", "avx2", "avx512", "avx512vbmi"), "aarch64": ("portable",)}

#: glibc 2.34 has these functions in another library and under a new version; the old one is there, too. Only where a
#: library is for other systems than the one that builds it does that matter.
_BASE = {"x86_64": "GLIBC_2.2.5", "aarch64": "GLIBC_2.17"}
_OLD_VERSIONS = "".join(
    f'__asm__(".symver {name},{name}@{_BASE.get(platform.machine())}");\n'
    for name in ("pthread_create", "pthread_detach", "pthread_mutex_trylock")
)


class Library(NamedTuple):
    """name: in the wheel. made: gives the entry's content."""

    name: str
    made: Callable[[], bytes]


def for_cpu(request: build.Request) -> Library:
    threads = "-pthread" in request.options
    built = request._replace(
        source=(_OLD_VERSIONS if threads else "") + request.source,
        options=(*request.options, "-s"),
    )

    def made() -> bytes:
        (path,) = build.libraries([built])
        if too_new := symbols.too_new(path):
            raise SystemExit(f"{request.purpose}: not for {symbols.TAG}, which lacks {', '.join(too_new)}")
        return path.read_bytes()

    return Library(build.prebuilt_name(request), made)


def for_cuda(kernel: Kernel, target: str) -> Library:
    return Library(
        cuda_build.prebuilt_name(kernel.source, target),
        lambda: cuda_build.image(kernel.source, target, kernel.purpose),
    )


def prebuild(libraries: Iterable[Library], folder: Path) -> None:
    """Into a folder, by all cores; what is built already is found in the store."""
    folder.mkdir(parents=True, exist_ok=True)
    wanted = {one.name: one.made for one in libraries}
    threads = ThreadPoolExecutor(os.cpu_count())
    try:
        made = {threads.submit(make): name for name, make in wanted.items()}
        for number, one in enumerate(as_completed(made), 1):
            (folder / made[one]).write_bytes(one.result())
            _show(number, len(made))
    finally:
        threads.shutdown(cancel_futures=True)  # where one cannot be built, the others need not be


def _show(number: int, of: int) -> None:
    """A line that is written over, on a terminal; elsewhere a line now and then."""
    if sys.stderr.isatty():
        print(f"\r{number} of {of} libraries", end="" if number < of else "\n", file=sys.stderr, flush=True)
    elif number % 100 == 0 or number == of:
        print(f"{number} of {of} libraries", file=sys.stderr, flush=True)
