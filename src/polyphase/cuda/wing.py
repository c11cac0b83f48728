"""What CUDA brings: the entry of this wing in the registry."""

from __future__ import annotations

from polyphase.cuda import launch
from polyphase.kernels.devices import MovingCosts, Wing
from polyphase.kernels.records import MOST_OPERANDS
