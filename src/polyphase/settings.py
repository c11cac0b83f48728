"""The environment variables that users can set. All are read here, when they are needed and never at import.

`POLYPHASE_CACHE_DIR`
    Where built kernels are kept. Where unset: `$XDG_CACHE_HOME/polyphase`, else `~/.cache/polyphase`.

`POLYPHASE_CACHE_MAX_MB`
    The size of that cache in megabytes: kernels that were not used for longest are removed first. Where unset: 512.

`POLYPHASE_DEVICES`
    Devices that our kernels run on, `none` for none; on other devices PyTorch's run. Where unset: `cpu,cuda`.

`POLYPHASE_ISA`
    The instruction set of CPU kernels: `avx512vbmi`, `avx512`, `avx2`, `portable` (SSE2, NEON). Where unset: the best
    that the processor has.

`POLYPHASE_CUDA_ARCH`
    The architecture of CUDA kernels: `sm_75`, `sm_90` and so on. Where unset: the GPU's own.

`POLYPHASE_HUGE_PAGES`
    `off`: large outputs on the CPU are written to pages of the usual size. Where unset, or `on`: to large ones, where
    the system leaves that to programs. Read once, at the first call.

`CXX`
    The C++ compiler, with arguments if need be: `ccache g++`. Where unset: the first of `g++`, `c++` and `clang++`.

A variable that is empty counts as unset.
"""

from __future__ import annotations

import functools
import os
import re
import shlex
import shutil
import sys
import tempfile
from pathlib import Path

from polyphase.errors import CompilerMissingError, NoKernelsWarning, UnknownSettingError, WrongSettingError, warn

ISAS = ("portable", "avx2", "avx512", "avx512vbmi")  # from the least to the most demanding
DEVICES = ("cpu", "cuda")
COMPILERS = ("g++", "c++", "clang++")
CACHE_MAX_MB = "512"
NOT_ON_WINDOWS = (
    "Polyphase has no kernels for Windows yet: everything works, by PyTorch's own operations and at their speed. "
    "The fix: run it in WSL 2, or set POLYPHASE_DEVICES=none to leave it so without this warning"
)


def cache_dir() -> Path:
    if chosen := os.environ.get("POLYPHASE_CACHE_DIR"):
        return Path(os.path.expanduser(chosen)).absolute()
    xdg = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if xdg.is_absolute():  # the XDG specification has relative paths ignored
        return xdg / "polyphase"
    try:
        return Path.home() / ".cache" / "polyphase"
    except RuntimeError:  # a user without a home, as in some containers
        return Path(tempfile.gettempdir()) / f"polyphase-{os.geteuid()}"


def cache_max_bytes() -> float:
    chosen = os.environ.get("POLYPHASE_CACHE_MAX_MB") or CACHE_MAX_MB
    try:
        most = float(chosen) * 1e6
    except ValueError:
        most = -1
    if not most >= 0:  # nor NaN
        raise WrongSettingError(
            f"POLYPHASE_CACHE_MAX_MB={chosen}; it is a number of megabytes, 0 or more: set it to such, or unset it"
        )
    return most


def devices() -> frozenset[str]:
    """The types of device that are not switched off."""
    return _devices(os.environ.get("POLYPHASE_DEVICES"))


@functools.cache  # asked for every call that is not the latest one again
def _devices(chosen: str | None) -> frozenset[str]:
    names = [name.strip() for name in chosen.split(",")] if chosen else DEVICES
    for name in names:
        if name not in (*DEVICES, "none"):
            raise UnknownSettingError("device in POLYPHASE_DEVICES", name, (*DEVICES, "none"))
    wanted = frozenset(names) - {"none"}
    if wanted and sys.platform == "win32":
        warn(NOT_ON_WINDOWS, NoKernelsWarning)
        return frozenset()
    return wanted


def forced_isa() -> str | None:
    isa = os.environ.get("POLYPHASE_ISA")
    if not isa:
        return None
    if isa not in ISAS:
        raise UnknownSettingError("instruction set in POLYPHASE_ISA", isa, ISAS)
    return isa


def huge_pages() -> bool:
    chosen = os.environ.get("POLYPHASE_HUGE_PAGES") or "on"
    if chosen not in ("on", "off"):
        raise UnknownSettingError("choice in POLYPHASE_HUGE_PAGES", chosen, ("on", "off"))
    return chosen == "on"


def forced_cuda_architecture() -> str | None:
    forced = os.environ.get("POLYPHASE_CUDA_ARCH")
    if forced and not re.fullmatch(r"sm_\d+[af]?", forced):
        raise UnknownSettingError("architecture in POLYPHASE_CUDA_ARCH", forced, ("sm_75", "sm_80", "sm_90", "..."))
    return forced or None


def compiler() -> tuple[str, ...]:
    """The words that a compiler command starts with; the first is an absolute path."""
    wanted = os.environ.get("CXX", "").strip()
    candidates = [_words(wanted)] if wanted else [[name] for name in COMPILERS]
    for program, *arguments in candidates:
        if found := shutil.which(program):
            return (os.path.abspath(found), *arguments)
    raise CompilerMissingError(
        f"no C++ compiler: looked for {f'CXX={wanted}' if wanted else ', '.join(COMPILERS)}; "
        "install g++, or set CXX to a C++ compiler"
    )


def _words(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError:  # a quotation without end: no program has such a name, and the error shows it
        return [command]
