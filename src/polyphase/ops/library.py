"""The library our torch operators are defined in. They go when it does, so it stays for as long as the process."""

from collections.abc import Callable
from typing import Any

import torch

from polyphase.calls import devices

LIBRARY = torch.library.Library("polyphase", "DEF")

#: The dispatch keys of devices that have a wing.
_KERNEL_KEYS = tuple(device.upper() for device in devices.MODULES)


def put(name: str, kernel: Callable[..., Any], without_data: Callable[..., Any]) -> None:
    """An operator that was defined: what it does on devices that have a wing, and without data."""
    for key in _KERNEL_KEYS:
        LIBRARY.impl(name, kernel, key)
    torch.library.register_fake(f"polyphase::{name}", without_data, lib=LIBRARY)
