"""Large outputs lie in large pages, where the system leaves that to programs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

CHOICE = Path("/sys/kernel/mm/transparent_hugepage/enabled")

#: An output of so many megabytes is made, and told: bytes of it that lie in large pages, and by how much memory grew.
PROGRAM = """
import re, sys
import torch
import polyphase.functional as P

def huge(tensor):
    found, here = 0, False
    for line in open("/proc/self/smaps"):
        if span := re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line):
            begin, end = (int(one, 16) for one in span.groups())
            here = begin < tensor.data_ptr() + tensor.nbytes and tensor.data_ptr() < end
        elif here and line.startswith("AnonHugePages:"):
            found += 1024 * int(line.split()[1])
    return found

def resident():
    return 4096 * int(open("/proc/self/statm").read().split()[1])

torch.set_num_threads(1)
small = torch.rand(1, 1, 8, 8)
P.interpolate(small, size=16, mode="bilinear")
before = resident()
out = P.interpolate(small, size=(1024, 256 * int(sys.argv[1])), mode="bilinear")
print(huge(out), resident() - before, out.nbytes)
"""


def made(megabytes: int, **settings: str) -> tuple[int, int, int]:
    command = [sys.executable, "-c", PROGRAM, str(megabytes)]
    result = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **settings}, check=True)
    huge, grown, size = map(int, result.stdout.split())
    return huge, grown, size


needs_a_choice = pytest.mark.skipif(
    not (CHOICE.exists() and re.search(r"\[(madvise|always)\]", CHOICE.read_text())),
    reason="the system gives no large pages",
)


@needs_a_choice
def test_large_outputs_lie_in_large_pages() -> None:
    huge, grown, size = made(64)
    assert size == 64 * 2**20
    if huge == 0:
        pytest.skip("the system has no large page left")
    assert huge <= size
    assert grown < size + 6 * 2**20  # tables, and what torch needs for its first large tensor


@needs_a_choice
def test_small_outputs_do_not() -> None:
    huge, _, _ = made(1)
    assert huge == 0 or "[always]" in CHOICE.read_text()


@needs_a_choice
@pytest.mark.skipif("[always]" in (CHOICE.read_text() if CHOICE.exists() else ""), reason="they are given unasked")
def test_they_can_be_switched_off() -> None:
    huge, _, _ = made(64, POLYPHASE_HUGE_PAGES="off")
    assert huge == 0
