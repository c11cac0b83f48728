"""What is to be seen on a GPU, which CI has not: `python -m tests.cuda.on_gpu`.

conformance: the samples of `tests/support`, through our functions and through `accelerate()`, forward and backward.
random: calls against the CPU kernels; uint8 and what only moves to the bit, but for ties where a matrix finds the
    positions or a warp rounds to bytes; floats by their error against float64.
compiled: the tests of `tests/compile`, with all tensors on the GPU.
times: the first call of a kernel, built and from the disk cache, and the memory that calls hold.

Parts of the work run side by side in processes of their own, for builds take the longest. One process, for
compute-sanitizer: `--jobs 1`, which few calls are given anyway. `--device cpu` tries the script itself.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence

import torch

import polyphase
import polyphase.functional as P
from polyphase.calls import binding
from polyphase.cuda import warps, ways
from tests.cuda import times
from tests.cuda.judging import Found, exact_failure, float_failure, integer_failure, strides_failure, tie_failure
from tests.cuda.random_calls import INTEGERS, draw, placed, warped

MODES = ("conformance", "random", "compiled", "times")
#: What is farther from float64 than the CPU's, on average of many values, is no luck.
MOST_TIMES_THE_CPU = 1.5
MANY_VALUES = 100_000
#: Fewer calls, or samples, are no work for several processes.
FEW_WORK = {"random": 1000, "conformance": 100}
MOST_NOTES = 60
RESULT = "RESULT "


# ---- random calls


def random_calls(numbers: Sequence[int], seed: int, device: str, found: Found) -> None:
    """Every other call as if images were large: ways of large images, on small ones."""
    began = time.monotonic()
    for turn, few in enumerate(FEW):
        with ways_of(*few):
            for place, number in enumerate(numbers):
                if number % len(FEW) == turn:
                    random_call(seed, number, device, found)
                if place % 500 == 499:
                    print(f"{place + 1} of {len(numbers)} numbers, {time.monotonic() - began:.0f} s", flush=True)


#: What counts as few: outputs that have too few columns, or too few threads, and pixels of a warp. As it is, and so
#: that images are large.
FEW = ((ways.FEW_OUTPUTS, ways.FEW_TO_WALK, warps.FEW_PIXELS), (0, ways.FEW_TO_WALK, 0), (0, 0, 0))


@contextlib.contextmanager
def ways_of(few_outputs: int, few_to_walk: int, few_pixels: int) -> Iterator[None]:
    ways.FEW_OUTPUTS, ways.FEW_TO_WALK, warps.FEW_PIXELS = few_outputs, few_to_walk, few_pixels
    binding.forget()
    try:
        yield
    finally:
        ways.FEW_OUTPUTS, ways.FEW_TO_WALK, warps.FEW_PIXELS = FEW[0]


def random_call(seed: int, number: int, device: str, found: Found) -> None:
    call = draw(seed, number)
    image = call.image()
    want = call.run(image)
    launched = polyphase.stats()["kernels_launched"]
    try:
        got = call.run(placed(image, device, call.shifted))
    except Exception as error:
        return found.failed(f"call {number}, {call}", f"{type(error).__name__}: {error}")
    here = got.cpu()
    found.checked["random"] += 1
    found.notes["random calls without a kernel of ours"] += polyphase.stats()["kernels_launched"] == launched
    if call.dtype == torch.float64 and "nearest" in call.mode and call.function is P.interpolate:
        found.notes["float64 nearest, whose ratio is another on CUDA"] += 1
        return None
    found.failed(f"call {number}, {call}", strides_failure(got, want))
    by_sums = call.function is warped and not call.backward and not call.moves
    longest = max(*call.shape[2:], *want.shape[2:], *call.options.get("size", ()))
    if call.dtype in INTEGERS and not call.moves and "nearest" not in call.mode:
        found.failed(f"call {number}, {call}", integer_failure(here, want, longest))
        return None
    if by_sums and ("nearest" in call.mode or not call.dtype.is_floating_point):
        most = math.inf if "nearest" in call.mode else 1
        found.failed(f"call {number}, {call}", tie_failure(here, want, most))
        return None
    if call.moves or not call.dtype.is_floating_point:
        found.failed(f"call {number}, {call}", exact_failure(here, want))
        return None
    truth = want if call.dtype == torch.float64 else call.run(image.double())
    kind = f"{call.mode}{' backward' * call.backward} {call.dtype}"
    found.failed(f"call {number}, {call}", float_failure(here, [want], truth, longest, found.errors, kind))
    return None


# ---- compiled graphs


def compiled(asked: argparse.Namespace) -> bool:
    """Whether tests fail. What is about the CPU says so itself."""
    command = [sys.executable, "-m", "pytest", "-q", "-m", "not full and not cpu", f"-n{asked.jobs or os.cpu_count()}"]
    command += ["-p", "tests.cuda.default_device"] if asked.device == "cuda" else []
    alone = {"OMP_NUM_THREADS": "1", "TORCHINDUCTOR_COMPILE_THREADS": "1"}
    command += ["--ignore=tests/compile/test_threads.py"]  # another thread has another default device
    return subprocess.run([*command, "tests/compile"], env={**os.environ, **alone}).returncode != 0


# ---- processes


def main() -> int:
    asked = _parser().parse_args()
    modes = MODES if "all" in asked.modes or not asked.modes else asked.modes
    if asked.device == "cuda" and not torch.cuda.is_available():
        print("no GPU here; --device cpu tries this script itself", file=sys.stderr)
        return 2
    if asked.part:
        found = Found()
        _part(modes[0], asked, found)
        print(RESULT + found.to_json(), flush=True)
        return 0
    wrong = 0
    for mode in modes:
        began = time.monotonic()
        if mode == "times":
            wrong += times.main(asked.device)
        elif mode == "compiled":
            wrong += compiled(asked)
        else:
            found = _in_processes(mode, asked)
            wrong += _told(mode, found, time.monotonic() - began)
    return 1 if wrong else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m tests.cuda.on_gpu", description=__doc__.splitlines()[0])
    parser.add_argument("modes", nargs="*", choices=(*MODES, "all", []), help="all of them, if none is said")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--calls", type=int, default=10_000, help="random ones")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, help="processes; one where there are few calls")
    parser.add_argument("--samples", type=int, help="only so many of conformance, spread over all")
    parser.add_argument("--part", help=argparse.SUPPRESS)
    return parser


def _part(mode: str, asked: argparse.Namespace, found: Found) -> None:
    torch.set_num_threads(1)
    first, step = map(int, asked.part.split("/"))
    numbers = _numbers(mode, asked)[first::step]
    if mode == "random":
        random_calls(numbers, asked.seed, asked.device, found)
    else:
        from tests.cuda.conforming import conformance

        conformance(numbers, asked.device, found)


def _numbers(mode: str, asked: argparse.Namespace) -> Sequence[int]:
    if mode == "random":
        return range(asked.calls)
    from tests.cuda.conforming import all_samples  # takes seconds

    count = len(all_samples())
    return range(0, count, max(1, count // asked.samples) if asked.samples else 1)


def _in_processes(mode: str, asked: argparse.Namespace) -> Found:
    found = Found()
    work = len(_numbers(mode, asked))
    jobs = asked.jobs or (1 if work < FEW_WORK[mode] else min(16, os.cpu_count() or 1))
    if jobs == 1:
        asked.part = "0/1"
        _part(mode, asked, found)
        return found
    command = [sys.executable, "-m", "tests.cuda.on_gpu", mode, "--device", asked.device, "--seed", str(asked.seed)]
    command += ["--calls", str(asked.calls)] + (["--samples", str(asked.samples)] if asked.samples else [])
    running = [
        subprocess.Popen(
            [*command, "--part", f"{job}/{jobs}"],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        for job in range(jobs)
    ]
    for job, process in enumerate(running):
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith(RESULT):
                found.add(line.removeprefix(RESULT))
            elif job == 0 or line.startswith("WRONG"):
                print(line, end="", flush=True)
        if process.wait():
            found.failed(f"process {job} of {jobs}", f"ended with status {process.returncode}")
    return found


def _told(mode: str, found: Found, seconds: float) -> int:
    for note, times_seen in found.notes.most_common(MOST_NOTES):
        if times_seen:
            print(f"note: {times_seen} x {note}")
    print("mean errors against float64, where they are not the CPU's within a twentieth:")
    for kind, (values, ours, cpu) in sorted(found.errors.sums.items()):
        if not cpu * 0.95 <= ours <= cpu * 1.05:
            print(f"  {kind:50s} {values:9.0f} values, here {ours / values:.2e}, CPU {cpu / values:.2e}")
        if values > MANY_VALUES and ours > MOST_TIMES_THE_CPU * cpu and "float64" not in kind:
            found.failed(kind, f"{ours / cpu:.2f} times the CPU's error on average")
    counts = ", ".join(f"{name} {number}" for name, number in found.checked.items())
    print(f"{mode}: {counts}: {len(found.failures)} wrong, {seconds:.0f} s", flush=True)
    return len(found.failures) or not found.checked


if __name__ == "__main__":
    sys.exit(main())
