"""The environment variables users can set, all read here, when they are asked for and never at import.

| variable | what it sets | where unset |
| --- | --- | --- |
| `POLYPHASE_CACHE_DIR` | where built kernels are kept | `$XDG_CACHE_HOME/polyphase`, else `~/.cache/polyphase` |
| `POLYPHASE_ISA` | instruction set of CPU kernels: `avx512`, `avx2`, `portable` (SSE2, NEON) | the best there is |
| `CXX` | the C++ compiler, with arguments if need be: `ccache g++` | `g++`, `c++` or `clang++`, the first that exists |

A variable that is empty counts as unset.
"""

from __future__ import annotations

import os
import shlex
import shutil
import tempfile
from pathlib import Path

from polyphase.errors import CompilerMissingError, UnknownNameError

ISAS = ("portable", "avx2", "avx512")  # from the least to the most demanding
COMPILERS = ("g++", "c++", "clang++")


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


def forced_isa() -> str | None:
    isa = os.environ.get("POLYPHASE_ISA")
    if not isa:
        return None
    if isa not in ISAS:
        raise UnknownNameError("instruction set in POLYPHASE_ISA", isa, ISAS)
    return isa


def compiler() -> tuple[str, ...]:
    """The words a compiler command starts with; the first is an absolute path."""
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
