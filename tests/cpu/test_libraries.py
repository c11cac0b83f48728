"""What is built for a call, and what it shares with other calls."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import torch
from torch import Tensor

from polyphase.cpu import libraries
from polyphase.kernels import binding
from polyphase.sampling.axis_maps import AxisMap
from polyphase.sampling.steps import Flip
from tests.cpu.conftest import in_a_child

BUILT = """
import torch
import polyphase.functional as P
from polyphase.cpu import build

image = torch.rand(1, 3, 20, 20)
stems = ("launcher", "sampler", "kernel")

def built_by(call, *args, **options):
    before = dict(build.built)
    call(*args, **options)
    print(*(build.built[stem] - before.get(stem, 0) for stem in stems))

built_by(P.interpolate, image, (10, 12), mode="bilinear")
built_by(P.interpolate, image, (30, 7), mode="bicubic", antialias=True)
built_by(P.interpolate, image.half(), (10, 12), mode="bilinear")
built_by(P.flip, image, (-1,))
built_by(P.interpolate, image.to(torch.uint8), (10, 12), mode="bilinear")
"""


def test_what_is_built(tmp_path: Path) -> None:
    environment = {**os.environ, "POLYPHASE_CACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run([sys.executable, "-c", BUILT], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "1 1 1",
        "0 0 0",  # one kernel for all filters and sizes
        "0 0 1",  # half precision is summed as float32 is
        "0 1 1",  # moved as bytes, whatever the dtype
        "0 1 0",  # bytes with nothing around them, again
    ]


def test_a_fork_while_another_thread_builds() -> None:
    """The child has the parent's lock, and not the thread that would release it."""
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with libraries._lock:
            held.set()
            done.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(60)
    try:
        in_a_child(lambda tell: assert_flips(torch.arange(3 * 5 * 7, dtype=torch.int16).view(3, 5, 7)), seconds=60)
    finally:
        done.set()
        thread.join()


def assert_flips(image: Tensor) -> None:
    assert torch.equal(binding.resample(image, (AxisMap((Flip(),)),)), image.flip(-1))
    libraries.addresses.cache_clear()
    binding.forget()
    assert torch.equal(binding.resample(image, (AxisMap((Flip(),)),)), image.flip(-1))
