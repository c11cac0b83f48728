"""Polyphase: a compiler for image resampling in PyTorch."""

from polyphase import decompositions
from polyphase.version import __version__

__all__ = ["__version__", "decompositions"]
