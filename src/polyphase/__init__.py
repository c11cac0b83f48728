"""Polyphase: a compiler for image resampling in PyTorch."""

from typing import TYPE_CHECKING

from polyphase.importing import uncollected as _uncollected

with _uncollected():
    from polyphase import decompositions, functional, transforms
    from polyphase.calls.counts import stats
    from polyphase.calls.devices import import_the_usual as _import_the_usual
    from polyphase.compile.accelerate import accelerate
    from polyphase.compile.registration import register as _register
    from polyphase.pipelines.columns import OnColumn
    from polyphase.pipelines.pipeline import fuse
    from polyphase.version import __version__

    _import_the_usual()

if TYPE_CHECKING:
    from polyphase.explaining.run import explain

__all__ = [
    "OnColumn",
    "__version__",
    "accelerate",
    "decompositions",
    "explain",
    "functional",
    "fuse",
    "stats",
    "transforms",
]

_register()


def __getattr__(name: str) -> object:
    """`explain` needs Dynamo and Inductor, which take a second to import: they are imported when it is first used."""
    if name == "explain":
        from polyphase.explaining import run

        return run.explain
    raise AttributeError(f"module 'polyphase' has no attribute {name!r}")
