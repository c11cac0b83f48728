"""Launching: threads, forks, memory, and sizes that do not belong together."""

from __future__ import annotations

import ctypes
import itertools
import math
import os
import random
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from polyphase import settings, stats
from polyphase.calls import binding
from polyphase.sampling.apply import apply_taps
from polyphase.sampling.axis_maps import AxisMap
from polyphase.sampling.evaluate import evaluate
from polyphase.sampling.programs import Axes, Program
from polyphase.sampling.steps import Area, Flip, Nearest, Pad, Resize, Slice, Step
from polyphase.sampling.windows import eager_arithmetic
from tests.cpu.conftest import Tell, in_a_child
from tests.support.samples import image

FILTERS: dict[str, Callable[[int], Step]] = {
    "bilinear": partial(Resize, filter="bilinear"),
    "bilinear aa": partial(Resize, filter="bilinear", antialias=True),
    "bicubic aa": partial(Resize, filter="bicubic", antialias=True),
    "lanczos aa": partial(Resize, filter="lanczos", antialias=True),
    "nearest": Nearest,
}


def maps_of(*axes: Step | tuple[Step, ...]) -> tuple[AxisMap, ...]:
    return tuple(AxisMap(steps if isinstance(steps, tuple) else (steps,)) for steps in axes)


HALVED = maps_of(*2 * [Resize(100, "bilinear", antialias=True)])


@pytest.fixture(autouse=True)
def _threads_as_before() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def content(tensor: Tensor) -> bytes:
    """Compared as bytes: torch.equal may start threads of torch's, which do not survive a fork."""
    return ctypes.string_at(tensor.data_ptr(), tensor.numel() * tensor.element_size())


def with_threads(count: int, picture: Tensor, maps: tuple[AxisMap, ...]) -> bytes:
    torch.set_num_threads(count)
    return content(binding.resample(picture, maps))


# ---- threads


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("layout", ["CF", "CL"])
def test_threads_change_nothing(dtype: torch.dtype, layout: str) -> None:
    """Also where a thread's part begins within an image, and where there are fewer rows than threads."""
    for shape, step in itertools.product([(1, 3, 301, 203), (3, 1, 257, 254), (1, 64, 3, 1100)], FILTERS.values()):
        picture = image(shape, dtype, layout)
        for after in ((149, 102), (2, 400), (400, 2)):
            maps = maps_of(*map(step, after))
            assert len({with_threads(count, picture, maps) for count in (1, 2, 5)}) == 1, (shape, maps)


def test_threads_change_no_volume() -> None:
    picture = image((1, 3, 30, 40, 50), torch.float32)
    maps = maps_of(Resize(33, "bilinear"), Pad(3, 4, "constant", 1), Resize(77, "bicubic"))
    assert len({with_threads(count, picture, maps) for count in (1, 2, 5)}) == 1


def test_several_python_threads_at_once() -> None:
    torch.set_num_threads(2)
    pictures = [image((1, 3, 150 + n, 200), dtype) for n, dtype in enumerate([torch.uint8, torch.float32] * 4)]
    jobs = [(picture, maps_of(*2 * [step(90)])) for picture in pictures for step in FILTERS.values()] * 3
    expected = [content(binding.resample(*job)) for job in jobs]
    binding.forget()
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda job: content(binding.resample(*job)), jobs)) == expected


def test_the_interpreter_runs_meanwhile() -> None:
    picture, maps = image((1, 3, 1500, 1500), torch.float32), maps_of(*2 * [FILTERS["lanczos aa"](2500)])
    torch.set_num_threads(1)
    binding.resample(picture, maps)
    running, ticks = threading.Event(), 0

    def work() -> None:
        running.set()
        binding.resample(picture, maps)
        running.clear()

    worker = threading.Thread(target=work)
    worker.start()
    running.wait()
    while running.is_set():
        ticks += 1
    worker.join()
    assert ticks > 1000  # a few, if the interpreter were locked


def test_no_more_threads_to_be_had() -> None:
    """Those there are do the work; and more when there are more."""
    picture = image((1, 3, 300, 300), torch.float32)
    expected = with_threads(1, picture, HALVED)

    def limited(tell: Tell) -> None:
        tell("limited")
        used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        unlimited = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (used + (4 << 20), unlimited[1]))  # a thread's stack takes 8 MiB
        assert with_threads(8, picture, HALVED) == expected
        resource.setrlimit(resource.RLIMIT_AS, unlimited)
        tell("unlimited")
        assert with_threads(8, picture, HALVED) == expected

    in_a_child(limited, seconds=30)


# ---- forks


def test_forked_after_threads_were_used() -> None:
    picture = image((2, 3, 300, 300), torch.uint8)
    expected = with_threads(2, picture, HALVED)

    def again(tell: Tell) -> None:
        for count in (2, 1, 5):
            tell(count)
            assert with_threads(count, picture, HALVED) == expected
        in_a_child(lambda tell: tell(with_threads(2, picture, HALVED) == expected), seconds=20)

    in_a_child(again, seconds=30)
    assert with_threads(2, picture, HALVED) == expected


def test_forked_while_others_work() -> None:
    """At any moment of their work: locks that they hold are not held in the child."""
    picture, stop = image((1, 3, 300, 300), torch.uint8), threading.Event()
    expected = with_threads(2, picture, HALVED)

    def work(seed: int) -> None:
        sizes = random.Random(seed)
        while not stop.is_set():
            binding.resample(picture, maps_of(*(Resize(sizes.randint(1, 300), "bilinear") for _ in range(2))))

    def once(tell: Tell) -> None:
        tell("as before")
        assert with_threads(2, picture, HALVED) == expected
        tell("another size")
        binding.resample(picture, maps_of(Resize(57, "bicubic"), Flip()))

    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(2)]
    for worker in workers:
        worker.start()
    try:
        for _ in range(20):
            in_a_child(once, seconds=30)
    finally:
        stop.set()
        for worker in workers:
            worker.join()


def test_os_fork() -> None:
    picture = image((1, 3, 300, 300), torch.float32)
    expected = with_threads(2, picture, HALVED)
    child = os.fork()
    if child == 0:
        os._exit(0 if with_threads(2, picture, HALVED) == expected else 1)
    for _ in range(300):
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            assert status == 0
            return
        time.sleep(0.1)
    os.kill(child, 9)
    os.waitpid(child, 0)
    raise AssertionError("no end after 30 s")


class Halved(Dataset[Tensor]):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Tensor:
        return binding.resample(image((1, 3, 300, 300), torch.uint8, "CL", seed=index), HALVED)[0]


def test_data_loader_workers() -> None:
    torch.set_num_threads(2)
    expected = [content(Halved()[index]) for index in range(8)]
    loader = DataLoader(Halved(), batch_size=None, num_workers=2, multiprocessing_context="fork", timeout=60)
    assert [content(picture) for picture in loader] == expected


# ---- memory

COUNTING = """
#include <malloc.h>
#include <atomic>
#include <cerrno>
#include <cstdint>

// malloc and free, with a count of the bytes that are allocated now, and of the most there were.
static std::atomic<int64_t> now{0}, most{0};

static void* taken(void* p) {
  if (p == nullptr) return p;
  const int64_t bytes = now += malloc_usable_size(p);
  for (int64_t seen = most; bytes > seen && !most.compare_exchange_weak(seen, bytes);) {
  }
  return p;
}

static void given_back(void* p) {
  if (p != nullptr) now -= malloc_usable_size(p);
}

extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);
void __libc_free(void*);

void* malloc(size_t n) { return taken(__libc_malloc(n)); }
void* calloc(size_t count, size_t n) { return taken(__libc_calloc(count, n)); }
void* memalign(size_t alignment, size_t n) { return taken(__libc_memalign(alignment, n)); }
void* aligned_alloc(size_t alignment, size_t n) { return memalign(alignment, n); }
int posix_memalign(void** p, size_t alignment, size_t n) { return (*p = memalign(alignment, n)) ? 0 : ENOMEM; }
void* realloc(void* p, size_t n) {
  given_back(p);
  return taken(__libc_realloc(p, n));
}
void free(void* p) {
  given_back(p);
  __libc_free(p);
}

int64_t bytes_now() { return now; }
int64_t most_bytes() { return most; }
void count_anew() { most = now.load(); }
}
"""


class Large(NamedTuple):
    dtype: torch.dtype
    layout: str
    before: tuple[int, int]
    after: tuple[int, int]
    filter: str
    threads: int

    @property
    def allowed(self) -> float:
        """Bytes besides the output: 2% of input and output, and 64 KiB."""
        return 0.02 * 3 * (math.prod(self.before) + math.prod(self.after)) * self.dtype.itemsize + 64 * 1024

    def picture(self) -> Tensor:
        planar = torch.zeros((1, 3, *self.before), dtype=self.dtype)
        return planar if self.layout == "CF" else planar.contiguous(memory_format=torch.channels_last)

    def maps(self) -> tuple[AxisMap, ...]:
        sizes = zip(self.before, self.after, strict=True)
        return maps_of(*(() if before == after else FILTERS[self.filter](after) for before, after in sizes))


LARGE = [
    Large(dtype, layout, before, after, name, threads=1 + number % 2)
    for dtype in (torch.uint8, torch.float32, torch.float16)
    for layout in ("CF", "CL")
    for before, after in [
        ((1600, 2560), (200, 320)),
        ((1080, 1920), (224, 224)),
        ((1200, 1200), (1300, 1300)),
        ((1600, 2560), (400, 2560)),
    ]
    for number, name in enumerate(FILTERS)
]


def print_extra_bytes() -> None:
    """What the subprocess does: how many bytes each call of LARGE takes besides its output."""
    counter = ctypes.CDLL(os.environ["LD_PRELOAD"])
    counter.bytes_now.restype = counter.most_bytes.restype = ctypes.c_int64

    def extra(picture: Tensor, maps: tuple[AxisMap, ...]) -> int:
        counter.count_anew()
        before: int = counter.bytes_now()
        out = binding.resample(picture, maps)
        most: int = counter.most_bytes()
        return most - before - out.numel() * out.element_size()

    for case in LARGE:
        torch.set_num_threads(case.threads)
        picture, maps = case.picture(), case.maps()
        binding.resample(picture, maps)  # makes the tables and starts the threads
        print(max(extra(picture, maps) for _ in range(3)))


@pytest.mark.skipif(sys.platform != "linux", reason="counts the allocations of the GNU C library")
def test_extra_memory_of_a_call(tmp_path: Path) -> None:
    source, library = tmp_path / "counting.cpp", tmp_path / "counting.so"
    source.write_text(COUNTING)
    subprocess.run([*settings.compiler(), "-O1", "-shared", "-fPIC", "-o", library, source], check=True)
    code = f"from {__name__} import print_extra_bytes; print_extra_bytes()"
    environment = {**os.environ, "LD_PRELOAD": str(library)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    extra = zip(LARGE, map(int, done.stdout.split()), strict=True)
    too_much = [f"{seen / case.allowed:.2f} of what is allowed: {case}" for case, seen in extra if seen > case.allowed]
    assert not too_much, "\n".join(too_much)


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def call_with_random_sizes(calls: int, numbers: random.Random) -> None:
    for _ in range(calls):
        before, after = ([numbers.randint(1, 64) for _ in range(2)] for _ in range(2))
        picture = torch.zeros((1, 3, *before), dtype=numbers.choice([torch.uint8, torch.float32, torch.float16]))
        step = FILTERS[numbers.choice(list(FILTERS))]
        binding.resample(picture, maps_of(*map(step, after)))


def assert_memory_is_stable(calls: int) -> None:
    """After as many calls as fill all caches."""

    def many(tell: Tell) -> None:
        numbers = random.Random(0)
        call_with_random_sizes(5000, numbers)
        before = resident()
        call_with_random_sizes(calls, numbers)
        grown = resident() - before
        assert grown < 4 << 20, f"{grown} bytes more"

    in_a_child(many, seconds=600)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_is_stable() -> None:
    assert_memory_is_stable(10_000)


@pytest.mark.full
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_is_stable_for_long() -> None:
    assert_memory_is_stable(100_000)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_tables_are_bounded() -> None:
    """Also those of many large sizes: 64 MiB of them, and what else there is."""

    def many(tell: Tell) -> None:
        before = resident()
        for size in range(3000, 3400):
            binding.resample(torch.zeros((1, 1, 2, size)), maps_of((), FILTERS["lanczos aa"](4000)))
        grown = resident() - before
        assert grown < 128 << 20, f"{grown} bytes more"

    in_a_child(many)


# ---- axes that keep their size


@pytest.mark.parametrize("filter", list(FILTERS))
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32], ids=str)
def test_an_axis_that_keeps_its_size_has_no_table(filter: str, dtype: torch.dtype) -> None:
    """The picture is that of the other axis alone."""
    picture = image((2, 3, 11, 41), dtype)
    for sizes, alone in (((7, 41), (FILTERS[filter](7), None)), ((11, 29), (None, FILTERS[filter](29)))):
        before = stats()["tables_made"]
        out = binding.resample(picture, tuple(AxisMap((FILTERS[filter](size),)) for size in sizes))
        assert stats()["tables_made"] <= before + 1
        only = tuple(AxisMap(() if step is None else (step,)) for step in alone)
        assert torch.equal(out, binding.resample(picture, only))


# ---- long axes


LONG = 2**16 + 5


@pytest.mark.parametrize("steps", [Flip(), Slice(3, LONG, 2), Pad(-2, 7, "constant", 1)], ids=str)
def test_long_runs_need_no_tables(steps: Step) -> None:
    """They are moved by torch's own functions, to the same places."""
    picture = image((2, LONG), torch.int16)
    before = stats()["tables_made"]
    for maps in (maps_of(steps), maps_of(Flip(), steps)):
        out = binding.resample(picture, maps, border=3)
        expected = picture
        for dim, one in enumerate(maps, start=2 - len(maps)):
            expected = apply_taps(expected, evaluate(one, picture.shape[dim], eager_arithmetic(torch.int16)), dim)
        if isinstance(steps, Pad):
            expected[:, -7:] = 3
        assert torch.equal(out, expected)
    assert stats()["tables_made"] == before


def test_long_runs_are_not_copied_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    picture = image((2, LONG), torch.int16)
    expected = {step: binding.resample(picture, maps_of(step)) for step in (Flip(), Slice(3, LONG - 1))}
    monkeypatch.delattr(binding, "_empty")
    assert torch.equal(binding.resample(picture, maps_of(Flip())), expected[Flip()])
    with pytest.raises(NameError):  # a view is no result
        binding.resample(picture, maps_of(Slice(3, LONG - 1)))


def test_an_axis_longer_than_kernels_count() -> None:
    one = torch.rand(1, 1, 1).expand(1, 1, 2**31 + 2**28)
    for step in (Nearest(16), Resize(16, "bilinear")):
        assert binding.resample(one, maps_of(step)).tolist() == one[..., :16].tolist()


@pytest.mark.parametrize("size", [2**31, 2**63])
def test_what_cannot_be_allocated_is_refused_at_once(size: int) -> None:
    def refuse(tell: Tell) -> None:
        picture = torch.ones(64, 4)
        for steps in ((Resize(size, "bilinear"),) * 2, (Nearest(size),) * 2, (Pad(size, 0, "constant", 1), Area(size))):
            tell(steps)
            with pytest.raises(RuntimeError, match=r"no memory has so many bytes|can't allocate"):
                binding.resample(picture, maps_of(*steps))

    in_a_child(refuse, seconds=10)


# ---- what does not belong together

ADJOINT = partial(binding.resample, transposed=True)
REFUSED: dict[str, Callable[[], object]] = {
    "more maps than dimensions": lambda: binding.resample(torch.ones(5), maps_of(Flip(), Flip())),
    "a slice beyond the end": lambda: binding.resample(torch.ones(5), maps_of(Slice(0, 6))),
    "a pad that takes it all": lambda: binding.resample(torch.ones(5), maps_of(Pad(-3, -3, "constant", 1))),
    "a resize of nothing": lambda: binding.resample(torch.ones(0), maps_of(Resize(5, "bilinear"))),
    "four weighted axes": lambda: binding.resample(torch.ones(2, 2, 2, 2), maps_of(*[Area(3)] * 4)),
    "an adjoint of another size": lambda: ADJOINT(torch.ones(9), maps_of(Resize(5, "bilinear")), in_size=(3,)),
    "an adjoint's slice": lambda: ADJOINT(torch.ones(500), maps_of(Slice(0, 100_000, 200)), in_size=(3,)),
    "an adjoint's crop": lambda: ADJOINT(torch.ones(5), maps_of((Slice(0, 100_000), Area(5))), in_size=(3,)),
    "an adjoint's reflection": lambda: ADJOINT(
        torch.ones(20_003), maps_of(Pad(10_000, 10_000, "reflect")), in_size=(3,)
    ),
    "an adjoint of too few axes": lambda: ADJOINT(torch.ones(5, 5), maps_of(*[Area(5)] * 2), in_size=(3,)),
    "an adjoint of nothing": lambda: ADJOINT(torch.ones(5), maps_of(Area(5)), in_size=(0,)),
    "a border without a value": lambda: binding.resample(torch.ones(5), maps_of(Pad(1, 1, "constant", 2))),
    "an image of another dtype": lambda: binding.run(
        Program(torch.float64, Axes(maps_of(*[Area(5)] * 2))), torch.ones(1, 1, 9, 9)
    ),
    "an image of another rank": lambda: binding.run(
        Program(torch.float32, Axes(maps_of(*[Area(5)] * 2))), torch.ones(9)
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    def refuse(tell: Tell) -> None:
        with pytest.raises(ValueError, match=r"\w"):
            REFUSED[name]()

    in_a_child(refuse, seconds=20)
