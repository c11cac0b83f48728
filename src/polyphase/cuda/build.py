"""CUDA C++ becomes machine code, built once by NVRTC and found in the cache from then on."""

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
SHARED = ("core/scalar.h", "core/standard.h", "warp/rules.h")
#: Sums are fused where they say so: else what is computed would depend on the compiler.
OPTIONS = ("--std=c++17", "--device-as-default-execution-space", "--fmad=false")

#: How many kernels this process has compiled.
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


def _target(architecture: str) -> str:
    number = int("".join(filter(str.isdigit, architecture)))
    known = driver.known_architectures()
    if number in known:
        return architecture
    return f"compute_{max((one for one in known if one < number), default=known[0])}"


@functools.cache
def headers() -> dict[str, str]:
    """By the names that sources include them by."""
    shared = Path(kernels.__file__).parents[1] / "cpu" / "include"
    found = {path.relative_to(INCLUDE).as_posix(): path for path in INCLUDE.rglob("*.h")}
    found |= {f"polyphase/{name}": shared / "polyphase" / name for name in SHARED}
    found["cstdint"] = INCLUDE / "nvrtc" / "cstdint"
    return {name: path.read_text(encoding="utf-8") for name, path in sorted(found.items())}
