"""Other libraries, where they are installed."""

from __future__ import annotations

import functools
import importlib
from typing import Any


@functools.cache
def imported(name: str) -> Any:
    """The module, or why there is none."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        return "not installed" if error.name == name.partition(".")[0] else f"not importable: {error}"
    except Exception as error:
        return f"not importable: {str(error).splitlines()[0]}"


def missing(name: str) -> str | None:
    """Why there is no such module, or None. No name, nothing missing."""
    found = imported(name) if name else None
    return f"{name.partition('.')[0]} is {found}" if isinstance(found, str) else None
