"""Work in a forked process, which may die of it, never end, or want all the memory there is."""

from __future__ import annotations

import os
import resource
import select
import signal
import traceback
from collections.abc import Callable, Iterator
from typing import TextIO

import torch


def lines_of(work: Callable[[TextIO], None], seconds: float, most_bytes: int) -> Iterator[str]:
    """What the work writes, line by line, and one line more if it came to a bad end. It has so many seconds for each
    line, and so much memory more than it begins with."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        with os.fdopen(writing, "w", buffering=1) as out:
            try:
                _limit(most_bytes)
                work(out)
            except BaseException:
                print(traceback.format_exc().replace("\n", " | "), file=out)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb", buffering=0) as pipe:
        yield from _read(pipe.fileno(), child, seconds)
    status = os.waitpid(child, 0)[1]
    if status:
        yield f"the process ended with signal {os.WTERMSIG(status)}"


def _read(pipe: int, child: int, seconds: float) -> Iterator[str]:
    rest = b""
    while select.select([pipe], [], [], seconds)[0]:
        more = os.read(pipe, 1 << 16)
        if not more:
            return
        *lines, rest = (rest + more).split(b"\n")
        for line in lines:
            yield line.decode(errors="replace")
    yield f"no result within {seconds:.0f} s"
    os.kill(child, signal.SIGKILL)


def _limit(most_bytes: int) -> None:
    torch.set_num_threads(1)  # OpenMP's threads do not survive a fork
    with open("/proc/self/statm") as memory:
        used = int(memory.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + most_bytes, resource.getrlimit(resource.RLIMIT_AS)[1]))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
