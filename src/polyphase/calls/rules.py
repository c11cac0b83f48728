"""Eager's arithmetic on each device."""

from __future__ import annotations

import platform

import torch

from polyphase.sampling.windows import DeviceRules

#: Eager's arithmetic on each device. All CPUs of the ARM kind have fused multiply-adds, so compilers use them unasked.
RULES = {
    "cpu": DeviceRules(bicubic_backward_fused=platform.machine() in ("aarch64", "arm64")),
    "cuda": DeviceRules(antialias_in_double=True, nearest_in_double=False, antialiases_half=True),
}


def rules_of(device: torch.device) -> DeviceRules:
    """Eager's arithmetic there; of a device that nothing is known of, that of most."""
    return RULES.get(device.type, DeviceRules())
