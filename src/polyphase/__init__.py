"""Polyphase: a compiler for image resampling in PyTorch."""

from polyphase import decompositions, functional
from polyphase.compile.accelerate import accelerate
from polyphase.compile.registration import register as _register
from polyphase.cpu.kernels import stats
from polyphase.version import __version__

__all__ = ["__version__", "accelerate", "decompositions", "functional", "stats"]

_register()
