"""The backend's name, where no installed package brings it: from a source tree."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, distribution

NAME = "polyphase"


def register() -> None:
    """torch finds an installed package's backend by its entry point, when it is asked for."""
    if _is_installed():
        return
    from torch._dynamo.backends.registry import register_backend

    from polyphase.compile.backend import polyphase

    register_backend(polyphase, NAME)


def _is_installed() -> bool:
    try:
        points = distribution(NAME).entry_points
    except PackageNotFoundError:
        return False
    return any(point.group == "torch_dynamo_backends" and point.name == NAME for point in points)
