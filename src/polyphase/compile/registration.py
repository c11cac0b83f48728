"""The backend's name, where no installed package brings it: from a source tree."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, distribution
from typing import Any

NAME = "polyphase"


def register() -> None:
    """torch finds an installed package's backend by its entry point, when it is asked for."""
    if _is_installed():
        return
    from polyphase.torch_private import register_backend

    register_backend(polyphase, NAME)


def polyphase(graph: Any, example_inputs: list[Any], **options: Any) -> Any:
    """The backend, which is imported where it is used."""
    from polyphase.compile import backend

    return backend.polyphase(graph, example_inputs, **options)


def _is_installed() -> bool:
    try:
        points = distribution(NAME).entry_points
    except PackageNotFoundError:
        return False
    return any(point.group == "torch_dynamo_backends" and point.name == NAME for point in points)
