"""torchvision, where it is installed. Its wheel may be of another build of torch: then its own operators are missing,
which transforms do not need, but its import does."""

from __future__ import annotations

import importlib
import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest
import torch

_operators: list[torch.library.Library] = []


def torchvision(name: str = "torchvision.transforms.v2") -> Any:
    """One of its modules; the test is skipped where there is none."""
    pytest.importorskip("PIL", reason="Pillow is not installed")
    define_missing_operators()
    if importlib.util.find_spec("torchvision") is None:
        pytest.skip("torchvision is not installed")
    try:
        return importlib.import_module(name)
    except RuntimeError as error:
        if "torchvision::" not in str(error):
            raise
        pytest.skip(f"torchvision cannot be imported: {error}")


def define_missing_operators() -> None:
    spec = importlib.util.find_spec("torchvision")
    if spec is None or spec.origin is None or _operators:
        return
    folder = Path(spec.origin).parent
    if any(folder.glob("_C*.so")) and _loads(next(folder.glob("_C*.so"))):
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
