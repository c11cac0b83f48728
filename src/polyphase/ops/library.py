"""The library our torch operators are defined in. They go when it does, so it stays for as long as the process."""

import torch

from polyphase.calls import devices

LIBRARY = torch.library.Library("polyphase", "DEF")

#: The dispatch keys of devices that have a wing.
KERNEL_KEYS = tuple(device.upper() for device in devices.MODULES)
