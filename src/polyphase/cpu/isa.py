"""Which instruction sets this CPU has, which one kernels are built for, and the compiler flags of each.

Flags are explicit lists, never `-march=native`: a library's key then says what runs in it.
"""

from __future__ import annotations

import functools
from pathlib import Path

from polyphase import settings
from polyphase.errors import MissingCpuFeaturesError

_AVX2 = ("avx2", "fma", "f16c")
_AVX512 = (*_AVX2, "avx512f", "avx512bw", "avx512vl", "avx512dq")
_AVX512VBMI = (*_AVX512, "avx512vbmi", "avx512_vnni")
# Named as Linux names them; an instruction set has the features of those below it.
NEEDED = {"portable": (), "avx2": _AVX2, "avx512": _AVX512, "avx512vbmi": _AVX512VBMI}


def chosen() -> str:
    """The instruction set to build for: the forced one, else the best there is."""
    return _chosen(settings.forced_isa(), features())


def chosen_for_moves() -> str:
    """The instruction set to build for where values are only moved."""
    return for_moves(chosen())


def for_moves(isa: str) -> str:
    """What moves are built for, of an instruction set and those below it: without VBMI, bytes are shuffled as on AVX2,
    which long registers only slow down."""
    return "avx2" if isa == "avx512" else isa


@functools.cache
def _chosen(forced: str | None, features: frozenset[str]) -> str:
    if forced is None:
        return available()[-1]
    if lacking := missing(forced):
        raise MissingCpuFeaturesError(
            f"POLYPHASE_ISA={forced}, but this CPU lacks {', '.join(lacking)}; "
            f"choose one of: {', '.join(available())}, or unset it"
        )
    return forced


def available() -> tuple[str, ...]:
    """What this CPU can run, from the least to the most demanding."""
    return tuple(isa for isa in settings.ISAS if not missing(isa))


def flags(isa: str) -> tuple[str, ...]:
    return tuple(f"-m{feature.replace('_', '')}" for feature in NEEDED[isa])


@functools.cache
def features() -> frozenset[str]:
    """What Linux says this CPU has; nothing on other systems, which therefore run the portable kernels."""
    try:
        with Path("/proc/cpuinfo").open() as lines:
            named = (line.partition(":") for line in lines)
            return next(frozenset(rest.split()) for name, _, rest in named if name.strip() in ("flags", "Features"))
    except (OSError, StopIteration):
        return frozenset()


def missing(isa: str) -> tuple[str, ...]:
    """The features that this CPU lacks for an instruction set."""
    return tuple(feature for feature in NEEDED[isa] if feature not in features())
