"""Kernels, their samplers and the launcher, loaded: built when first asked for, found in the store from then on."""

from __future__ import annotations

import ctypes
import functools
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from polyphase import settings
from polyphase.calls.handles import use_handles
from polyphase.cpu import build, emit, isa
from polyphase.errors import BuildFailedError
from polyphase.kernels.plans import MapsPlan, WarpPlan, purpose, sampled_as
from polyphase.kernels.tables import TapBytes
from polyphase.records import records
from polyphase.records.facts import Sizes
from polyphase.records.recipes import encode
from polyphase.sampling.axis_maps import AxisMap
from polyphase.sampling.pointwise import VALUE

LAUNCHER = Path(__file__).parent / "launcher.cpp"
MOST_TRIES = 3

#: Of kernels whose loops the compiler vectorises, comparisons among them.
_OF_LOOPS = ("-ftree-vectorize", "-fno-trapping-math", "-fno-math-errno")

_lock = threading.RLock()


def _unlock_in_child() -> None:
    """A thread of the parent that is building is not there in a forked child, but the lock it held would be."""
    global _lock
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_unlock_in_child)

_libraries: dict[build.Request, ctypes.PyDLL] = {}  # never unloaded: tables in the launcher's cache point into them
_kernels: set[int] = set()

#: Calls that waited for libraries, also for those that another thread was building.
_waited: Counter[str] = Counter()


class Launcher(NamedTuple):
    """What launcher.cpp gives Python; its comments say how each is called."""

    bind: Callable[[bytes], object]
    launch: Callable[..., None]
    fresh: Callable[..., Callable[..., Tensor]]
    gradients: Callable[..., Callable[..., tuple[Tensor | None, Tensor | None]]]
    any_size: Callable[..., Callable[..., Tensor]]
    bound_of: Callable[..., tuple[object, tuple[Sizes, Sizes, torch.dtype]] | None]
    again: Callable[..., Callable[..., Any]]
    read_by_handles: Callable[[type, bytes], None]
    taps: Callable[[int, int, bool, bytes], tuple[int, bytes, bytes, bytes, bytes, int, bool]]
    counts: Callable[[], tuple[int, int, int]]
    launch_all: Callable[..., None]
    sized: Callable[..., tuple[Callable[..., Any], ...]]
    drawer: Callable[[bytes, int, int], Callable[..., tuple[float, ...] | None]]
    warp_picture: Callable[[bytes, object, object], None]
    attend: Callable[[int, bytes], None]
    dispatch_by: Callable[[bytes], None]
    operator: Callable[..., int]
    put: Callable[[int], None]
    take_away: Callable[[int], None]
    direct: Callable[[bool], None]
    forget: Callable[[], None]


class Addresses(NamedTuple):
    """Where a plan's kernel lies, and the functions it samples with: along axes that are weighted, and along those that
    are not; 0 where there are none."""

    kernel: int
    sampler: int = 0
    mover: int = 0


@functools.cache
def launcher() -> Launcher:
    functions = _loaded([launcher_request(isa.chosen())])[0].polyphase_functions
    functions.argtypes, functions.restype = [ctypes.py_object] * 2, ctypes.py_object
    made = Launcher(*functions(torch.get_num_threads, settings.huge_pages()))
    use_handles(made.read_by_handles)
    return made


#: The kernel that every plan has meanwhile, where there is one.
_kernel_of_all: list[int] = []


def addresses(plan: MapsPlan | WarpPlan, moves: bool = False) -> Addresses:
    """Gives the addresses of all that a plan needs, built side by side. `moves`: some axes are not weighted."""
    found = built_addresses(plan, moves)
    return found._replace(kernel=_kernel_of_all[0]) if _kernel_of_all else found


@functools.cache
def built_addresses(plan: MapsPlan | WarpPlan, moves: bool) -> Addresses:
    *others, kernel, _ = _loaded([*requests(plan, moves), launcher_request(isa.chosen())])
    found = [_address(sampler, emit.SAMPLER_SYMBOL) for sampler in others]
    address = _address(kernel, emit.KERNEL_SYMBOL)
    _kernels.add(address)
    return Addresses(address, found[0], found[-1] if moves else 0) if found else Addresses(address)


def _loaded(requests: list[build.Request]) -> list[ctypes.PyDLL]:
    """What somebody removes after it was found and before it is loaded is built again."""
    if all(one in _libraries for one in requests):
        return [_libraries[one] for one in requests]
    _waited["builds"] += 1
    with _lock:
        _load([one for one in requests if one not in _libraries])
        return [_libraries[one] for one in requests]


def _load(missing: list[build.Request]) -> None:
    for tries in range(MOST_TRIES):
        paths = build.libraries(missing)
        try:
            for one, path in zip(missing, paths, strict=True):
                _libraries[one] = ctypes.PyDLL(str(path))
            break
        except OSError as error:
            if path.exists() or tries == MOST_TRIES - 1:
                raise BuildFailedError(
                    f"{path} was built but cannot be loaded: {error}. "
                    "Set POLYPHASE_CACHE_DIR to a directory whose files can be executed"
                ) from None


def _address(library: ctypes.PyDLL, symbol: str) -> int:
    return ctypes.addressof(ctypes.c_char.in_dll(library, symbol))


def tap_bytes(axis_map: AxisMap, in_size: int, dtype: torch.dtype, transposed: bool = False) -> TapBytes:
    """The table of an axis for images of a dtype, as the CPU's eager has it."""
    sampler = _sampler(dtype, axis_map.may_sum(transposed), isa.chosen())
    return TapBytes(*launcher().taps(sampler, in_size, transposed, encode(axis_map)))


@functools.cache
def _sampler(dtype: torch.dtype, weighted: bool, architecture: str) -> int:
    plan = MapsPlan(source=dtype, sampled=dtype, target=dtype, weighted=weighted, architecture=architecture)
    return _address(_loaded(_sampler_requests(plan, moves=False))[0], emit.SAMPLER_SYMBOL)


@contextmanager
def kernel_of_all_plans(source: str) -> Iterator[None]:
    """Has every plan use the kernel of a source meanwhile, built as those of plans with arithmetic are."""
    kernel = _address(_loaded([build.Request(source, isa.chosen(), options=_OF_LOOPS)])[0], emit.KERNEL_SYMBOL)
    _kernel_of_all.append(kernel)
    try:
        yield
    finally:
        _kernel_of_all.remove(kernel)


@functools.cache
def attention(dtype: torch.dtype, gradients: bool, architecture: str) -> int:
    """The address of what runs attention at sampled places, or makes its gradients."""
    *_, kernel, _ = _loaded([attention_request(dtype, gradients, architecture), launcher_request(architecture)])
    address = _address(kernel, emit.KERNEL_SYMBOL)
    _kernels.add(address)
    return address


def attention_request(dtype: torch.dtype, gradients: bool, architecture: str) -> build.Request:
    purpose = (
        f"{'gradients of ' if gradients else ''}attention at sampled places in {str(dtype).removeprefix('torch.')}"
    )
    return build.Request(emit.attention_source(dtype, gradients), architecture, options=_OF_LOOPS, purpose=purpose)


def stats() -> dict[str, int]:
    """Counts what `calls.counts` has, of this device."""
    launched, made, cached = launcher().counts() if launcher.cache_info().currsize else (0, 0, 0)
    return {
        "kernels_built": build.built["kernel"],
        "kernels_loaded": len(_kernels),
        "builds_waited": _waited["builds"],
        "kernels_launched": launched,
        "makers_launched": 0,
        "tables_made": made,
        "tables_cached": cached,
    }


def requests(plan: MapsPlan | WarpPlan, moves: bool) -> list[build.Request]:
    """The libraries of a plan: its samplers, then its kernel."""
    samplers = [] if isinstance(plan, WarpPlan) else _sampler_requests(plan, moves)
    return [*samplers, _kernel_request(plan)]


def _kernel_request(plan: MapsPlan | WarpPlan) -> build.Request:
    """Only plain loops are for the compiler to vectorise: generated ones, and those of warps; comparisons in them only
    where they need not trap. -O2 takes longer to build and gains nothing."""
    options: tuple[str, ...] = ()
    if isinstance(plan, WarpPlan):
        options = _OF_LOOPS
    elif plan.source not in (None, plan.work) or not plan.prologue == plan.epilogue == VALUE:
        options = ("-ftree-vectorize",)
    return build.Request(emit.kernel_source(plan), plan.architecture, options=options, purpose=purpose(plan))


def _sampler_requests(plan: MapsPlan, moves: bool) -> list[build.Request]:
    plans = [plan, replace(plan, weighted=False)] if moves and plan.weighted else [plan]
    options = ("-ftree-vectorize",) if plan.architecture == "portable" else ()
    return [
        build.Request(emit.sampler_source(one), one.architecture, "sampler", options, purpose=sampled_as(one))
        for one in plans
    ]


@functools.cache
def launcher_request(architecture: str) -> build.Request:
    source = LAUNCHER.read_text(encoding="utf-8") + "\n" + records.assertions()
    return build.Request(source, architecture, "launcher", ("-pthread",), purpose="all calls")
