"""Kernels, what they sample with, and the launcher, loaded: built when first asked for, found in the cache from then on."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from polyphase.cpu import build, cache, emit, isa
from polyphase.cpu.plan import Plan, WarpPlan
from polyphase.sampling.pointwise import VALUE

LAUNCHER = Path(__file__).parent / "launcher.cpp"

_lock = threading.RLock()
_libraries: dict[Path, ctypes.CDLL] = {}  # never unloaded: tables in the launcher's cache point into them
_kernels: set[Path] = set()


class Launcher(NamedTuple):
    """What launcher.cpp gives Python; its comments say how each is called."""

    bind: Callable[..., object]
    launch: Callable[..., int]
    launch_packed: Callable[..., int]
    counts: Callable[[], tuple[int, int, int]]
    forget: Callable[[], int]


@functools.cache
def launcher() -> Launcher:
    with _lock:
        library = ctypes.PyDLL(str(build.libraries([_launcher_request()])[0]))
        library.polyphase_functions.restype = ctypes.py_object
        return Launcher(*library.polyphase_functions())


@functools.cache
def address(plan: Plan | WarpPlan) -> int:
    """Where the kernel of a plan lies, for the launcher. What it needs besides is built beside it."""
    with _lock:
        others = [] if isinstance(plan, WarpPlan) else [_sampler_request(plan)]
        *_, path = build.libraries([*others, _launcher_request(), _kernel_request(plan)])  # what takes longest first
        _kernels.add(path)
        return _symbol(path, emit.KERNEL_SYMBOL)


@functools.cache
def sampler(plan: Plan) -> int:
    """Where the functions lie that the kernel of a plan samples with, for the launcher."""
    with _lock:
        return _symbol(build.libraries([_sampler_request(plan)])[0], emit.SAMPLER_SYMBOL)


def _symbol(path: Path, name: str) -> int:
    if path not in _libraries:
        _libraries[path] = ctypes.CDLL(str(path))
    return ctypes.addressof(ctypes.c_char.in_dll(_libraries[path], name))


def source_file(plan: Plan | WarpPlan) -> Path:
    """The generated source of a plan's kernel, written out to be read: kernels are kept without theirs."""
    source = emit.kernel_source(plan)
    folder = (cache.trusted_directory() or Path(tempfile.gettempdir())) / "sources"
    folder.mkdir(mode=0o700, exist_ok=True)
    path = folder / f"kernel-{hashlib.sha256(source.encode()).hexdigest()[:16]}.cpp"
    path.write_text(source, encoding="utf-8")
    return path


def stats() -> dict[str, int]:
    """Counts of this process: kernels compiled, kernels in memory, runs of a kernel, tables of axes made, and found."""
    launched, made, cached = launcher().counts() if launcher.cache_info().currsize else (0, 0, 0)
    return {
        "kernels_built": build.built["kernel"],
        "kernels_loaded": len(_kernels),
        "kernels_launched": launched,
        "tables_made": made,
        "tables_cached": cached,
    }


def _kernel_request(plan: Plan | WarpPlan) -> build.Request:
    """Only plain loops are for the compiler to vectorise: generated ones, and those of warps; comparisons are vectorised
    only where they need not trap. -O2 would take a sixth longer and gain nothing."""
    options: tuple[str, ...] = ()
    if isinstance(plan, WarpPlan):
        options = ("-ftree-vectorize", "-fno-trapping-math", "-fno-math-errno")
    elif plan.source not in (None, plan.work) or not plan.prologue == plan.epilogue == VALUE:
        options = ("-ftree-vectorize",)
    return build.Request(emit.kernel_source(plan), plan.isa, options=options)


def _sampler_request(plan: Plan) -> build.Request:
    options = ("-ftree-vectorize",) if plan.isa == "portable" else ()
    return build.Request(emit.sampler_source(plan), plan.isa, "sampler", options)


def _launcher_request() -> build.Request:
    return build.Request(LAUNCHER.read_text(encoding="utf-8"), isa.chosen(), "launcher", ("-pthread",))
