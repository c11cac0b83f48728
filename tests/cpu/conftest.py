from __future__ import annotations

import mmap
import multiprocessing
import os
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

import pytest
import torch

from polyphase import settings
from polyphase.calls import binding
from polyphase.cpu import isa, launch

Tell: TypeAlias = Callable[[object], None]

SANITISERS = "-g1 -fsanitize=address,undefined,float-cast-overflow -fno-sanitize-recover=all"


#: Kernels for the others, which fewer machines run, are tested by `make test-full`, or where they are the best.
USUAL = {"avx2", isa.available()[-1]}


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=() if name in USUAL else pytest.mark.full) for name in isa.available()],
)
def instruction_set(request: pytest.FixtureRequest) -> Iterator[str]:
    """Kernels, and nothing but kernels, run meanwhile, built for this instruction set.

    For a whole module at a time: Hypothesis takes no fixture that begins anew with every test.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("POLYPHASE_ISA", request.param)
        patch.delattr(binding, "plain_torch")
        binding.forget()
        yield request.param
    binding.forget()


def in_a_child(function: Callable[[Tell], None], seconds: float = 120) -> None:
    """Runs where a fault, or no end, is only the child's. The function tells what it does next, for the failure's text.

    By fork: what was loaded and cached here is there too. Parallel loops of torch's own are not safe there.
    """
    page = 4096
    notes = mmap.mmap(-1, 2 * page)  # what is done, and what was raised

    def note(place: int, text: str) -> None:
        notes[place * page : (place + 1) * page] = text.encode()[-page:].ljust(page, b"\0")

    def run() -> None:
        try:
            function(lambda doing: note(0, str(doing)))
        except BaseException:
            note(1, traceback.format_exc())
            os._exit(1)

    child = multiprocessing.get_context("fork").Process(target=run)
    child.start()
    child.join(seconds)
    ended = child.exitcode is not None
    child.kill()
    child.join()
    doing, raised = (notes[i * page : (i + 1) * page].rstrip(b"\0").decode(errors="replace") for i in range(2))
    assert ended, f"no end after {seconds:g} s, at {doing}"
    assert child.exitcode == 0, f"ended with {child.exitcode} at {doing}\n{raised}"


def run_sanitised(code: str) -> None:
    """In a process of its own, whose kernels have AddressSanitizer and UndefinedBehaviorSanitizer in them, and are not
    optimised, which takes half as long to build.

    The allocator is the sanitiser's, so that tensors end where they end. The code prints what it does next, for the
    failure's text.
    """
    compiler = settings.compiler()
    # It looks for what throws before a library brings that along.
    runtimes = [_library_of(compiler, name) for name in ("libasan.so", "libstdc++.so.6")]
    if not all(Path(one).is_absolute() for one in runtimes):
        pytest.skip("the compiler has no AddressSanitizer")
    environment = {
        **os.environ,
        "LD_PRELOAD": " ".join(runtimes),
        "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1",
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "CXX": " ".join([*compiler, SANITISERS]),
    }
    unoptimised = "from polyphase.cpu import build; build.FLAGS += ('-O0',)"  # the last flag counts, so not by CXX
    done = subprocess.run(
        [sys.executable, "-c", f"{unoptimised}\n{code}"], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, f"at {done.stdout.splitlines()[-1:]}\n{done.stderr[-6000:]}"


def _library_of(compiler: Sequence[str], name: str) -> str:
    """Its path; the name where the compiler has none."""
    asked = [*compiler, f"-print-file-name={name}"]
    return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
def fresh_outputs(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """New tensors are full of NaN, and not of what the last one had there. Threads would only wait for each other."""
    monkeypatch.setattr(
        launch, "empty_strided", lambda shape, strides, dtype: torch.empty_strided(shape, strides, dtype=dtype)
    )
    torch.use_deterministic_algorithms(True)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(False)
