"""Other libraries, where they are installed."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import re
from pathlib import Path
from typing import Any

import torch

_operators: list[torch.library.Library] = []


@functools.cache
def imported(name: str) -> Any:
    """The module, or why there is none."""
    if name.partition(".")[0] == "torchvision":
        define_missing_operators()
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


def define_missing_operators() -> None:
    """Names the operators of a torchvision whose wheel is of another build of torch than ours, as one for CUDA beside a
    torch for the CPU: its own library cannot be loaded then. Its transforms need none of them, but its import does."""
    spec = importlib.util.find_spec("torchvision")
    if spec is None or spec.origin is None or _operators:
        return
    folder = Path(spec.origin).parent
    if any(map(_loads, folder.glob("_C*.so"))):
        return
    text = (folder / "_meta_registrations.py").read_text()
    library = torch.library.Library("torchvision", "DEF")
    for name in dict.fromkeys(re.findall(r'register_(?:meta|fake)\("(?:torchvision::)?(\w+)"', text)):
        library.define(f"{name}(Tensor tensor) -> Tensor")
    _operators.append(library)


def _loads(extension: Path) -> bool:
    try:
        torch.ops.load_library(str(extension))
    except OSError:
        return False
    return True
