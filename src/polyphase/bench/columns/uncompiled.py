"""Eager, our functions, and the yardsticks."""

from __future__ import annotations

import torch

from polyphase import stats
from polyphase.bench.columns.base import Column
from polyphase.bench.operations import POLYPHASE, PYTORCH
from polyphase.bench.work import Call, Work, call_of
from polyphase.bench.workloads import Case
from polyphase.version import __version__


class Eager(Column):
    heading = "Eager"

    def make(self, work: Work) -> Call:
        return call_of(work, work.case.operation.function(PYTORCH))


class Polyphase(Column):
    """`polyphase.functional`."""

    heading = "Polyphase"

    @property
    def version(self) -> str:
        return __version__

    def can_run(self, case: Case) -> str | None:
        library = case.operation.library.partition(".")[0]
        return f"written with {library}, not with our functions" if library else None

    def make(self, work: Work) -> Call:
        return call_of(work, work.case.operation.function(POLYPHASE))

    def disproof(self, work: Work, call: Call) -> str | None:
        return without_kernels(work, call)


def without_kernels(work: Work, call: Call) -> str | None:
    before = stats()["kernels_launched"]
    call()
    launched = stats()["kernels_launched"] - before
    if launched < work.calls:
        return f"not our kernels: {launched} launched in {work.calls} calls"
    return None


class Yardstick(Column):
    """Measured beside the others to know the machine; no way to run a case."""

    yardstick = True

    @property
    def title(self) -> str:
        return self.heading


class MemoryFloor(Yardstick):
    """A copy that moves as many bytes as an image of the case must: what is read plus what is written.

    On a GPU it is made by a kernel. What `copy_` is there, a replayed graph does at two thirds of the memory's speed.
    """

    heading = "Memory floor"

    def make(self, work: Work) -> Call:
        words = max(1, work.bytes_moved // work.calls // 2 // 8)
        source = torch.zeros(words, dtype=torch.int64, device=self.options.device)
        target = torch.zeros_like(source)
        if source.is_cuda:
            return lambda: torch.bitwise_not(source, out=target)
        return lambda: target.copy_(source)


class Clock(Yardstick):
    """A loop in Python, the same for every case: how fast the processor is just now."""

    heading = "Clock"
    on_host = True

    def make(self, work: Work) -> Call:
        numbers = range(2000)
        return lambda: sum(numbers)
