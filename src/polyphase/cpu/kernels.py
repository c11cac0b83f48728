"""Kernels, their samplers and the launcher, loaded: built when first asked for, found in the cache from then on."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import tempfile
import threading
from collections.abc import Callable
from dataclasses import replace
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
def address(plan: Plan | WarpPlan, moves: bool = False) -> int:
    """Where the kernel of a plan lies, for the launcher. What else it needs is built beside it; see `samplers`."""
    with _lock:
        others = [] if isinstance(plan, WarpPlan) else _sampler_requests(plan, moves)
        *_, path = build.libraries([*others, _launcher_request(), _kernel_request(plan)])  # what takes longest first
        _kernels.add(path)
        return _symbol(path, emit.KERNEL_SYMBOL)


@functools.cache
def samplers(plan: Plan, moves: bool) -> tuple[int, int]:
    """Where the functions lie that the kernel of a plan samples with, for the launcher: along axes that are weighted,
    and along those that are not, 0 where there are none (`moves`)."""
    with _lock:
        paths = build.libraries(_sampler_requests(plan, moves))
        addresses = [_symbol(path, emit.SAMPLER_SYMBOL) for path in paths]
        return addresses[0], addresses[-1] if moves else 0


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
    """Only plain loops are for the compiler to vectorise: generated ones, and those of warps; comparisons in them only
    where they need not trap. It takes a sixth of a kernel's time to build; so would -O2, which gains nothing."""
    options: tuple[str, ...] = ()
    if isinstance(plan, WarpPlan):
        options = ("-ftree-vectorize", "-fno-trapping-math", "-fno-math-errno")
    elif plan.source not in (None, plan.work) or not plan.prologue == plan.epilogue == VALUE:
        options = ("-ftree-vectorize",)
    return build.Request(emit.kernel_source(plan), plan.isa, options=options)


def _sampler_requests(plan: Plan, moves: bool) -> list[build.Request]:
    plans = [plan, replace(plan, weighted=False)] if moves and plan.weighted else [plan]
    options = ("-ftree-vectorize",) if plan.isa == "portable" else ()
    return [build.Request(emit.sampler_source(one), one.isa, "sampler", options) for one in plans]


def _launcher_request() -> build.Request:
    return build.Request(LAUNCHER.read_text(encoding="utf-8"), isa.chosen(), "launcher", ("-pthread",))
