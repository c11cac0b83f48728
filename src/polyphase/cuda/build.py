"""CUDA C++ becomes machine code: what came with the package, or built once by NVRTC and found in the cache from then
on."""

from __future__ import annotations

import functools
import hashlib
from collections import Counter
from pathlib import Path

from polyphase import kernels
from polyphase.cuda import driver
from polyphase.kernels import store
from polyphase.version import __version__

INCLUDE = Path(__file__).parent / "include"
#: Headers that the CPU's kernels have too.
SHARED = (
    *("core/scalar.h", "core/standard.h", "taps/filters.h", "warp/rules.h", "warp/formula.h"),
    *("warp/attention_call.h", "warp/corners.h"),
)
#: Sums are fused where they say so: else what is computed would depend on the compiler.
OPTIONS = ("--std=c++17", "--device-as-default-execution-space", "--fmad=false")

#: What a wheel has kernels for. Machine code runs on its major version of GPUs, from its minor version on; the PTX at
#: the end on all later ones, whose driver compiles it.
PREBUILT_FOR = ("sm_75", "sm_80", "sm_90", "sm_100", "sm_120", "compute_120")

#: How many kernels this process has compiled, and how often a call waited for one, or for it to be loaded.
built: Counter[str] = Counter()


def image(source: str, architecture: str, purpose: str) -> bytes:
    """What the driver loads. `architecture`: sm_90; one that NVRTC does not know gets the newest PTX it can make, which
    the driver compiles."""
    target = _target(architecture)
    facts = (source, sorted(headers().items()), target, OPTIONS, driver.nvrtc_version(), __version__)
    name = f"cuda-{hashlib.sha256(repr(facts).encode()).hexdigest()[: store.KEY_DIGITS]}.cubin"

    def make(scratch: Path, missing: list[str]) -> list[str]:
        machine_code = driver.compile_source(source, headers(), (f"--gpu-architecture={target}", *OPTIONS))
        (scratch / name).write_bytes(machine_code)
        built["kernel"] += 1
        return missing

    return store.obtain({name: f"{purpose}, {target}"}, make)[name].read_bytes()


def prebuilt_image(source: str, architecture: str) -> bytes | None:
    """What came with the package for an architecture."""
    target = next((one for one in PREBUILT_FOR if _runs_on(one, architecture)), None)
    found = store.prebuilt(prebuilt_name(source, target)) if target else None
    return None if found is None else found.read_bytes()


def _runs_on(target: str, architecture: str) -> bool:
    least, number = _number(target), _number(architecture)
    return least <= number and (target.startswith("compute_") or least // 10 == number // 10)


def prebuilt_name(source: str, target: str) -> str:
    """Names the kernel of this very source and headers, whichever NVRTC made it."""
    facts = (source, sorted(headers().items()), OPTIONS, __version__)
    return store.prebuilt_name("cuda", target, facts, ".cubin")


def _number(architecture: str) -> int:
    return int("".join(filter(str.isdigit, architecture)))


def _target(architecture: str) -> str:
    number = _number(architecture)
    known = driver.known_architectures()
    if number in known:
        return architecture
    return f"compute_{max((one for one in known if one < number), default=known[0])}"


@functools.cache
def headers() -> dict[str, str]:
    """Reads all headers, by the names that sources include them by."""
    shared = Path(kernels.__file__).parents[1] / "cpu" / "include"
    found = {path.relative_to(INCLUDE).as_posix(): path for path in INCLUDE.rglob("*.h")}
    found |= {f"polyphase/{name}": shared / "polyphase" / name for name in SHARED}
    found["cstdint"] = INCLUDE / "nvrtc" / "cstdint"
    return {name: path.read_text(encoding="utf-8") for name, path in sorted(found.items())}
