"""torchvision, where it is installed, though its wheel may be of another build of torch."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

import pytest

from polyphase.bench.libraries import define_missing_operators


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
