"""What CUDA brings: the entry of this wing in the registry."""

from __future__ import annotations

import torch

from polyphase.calls.devices import MovingCosts, Wing
from polyphase.calls.rules import RULES
from polyphase.cuda import attention, batches, items, launch, launcher
from polyphase.kernels import tables
from polyphase.kernels.tables import TapBytes
from polyphase.records.records import MOST_OPERANDS
from polyphase.sampling.axis_maps import AxisMap


def _tap_bytes(axis_map: AxisMap, in_size: int, dtype: torch.dtype, transposed: bool = False) -> TapBytes:
    return tables.tap_bytes(axis_map, in_size, dtype, RULES["cuda"], transposed)


WING = Wing(
    device="cuda",
    most_operands=MOST_OPERANDS,
    longest_axis=2**28,  # tables count its taps in 32 bits
    longest_runs=2**16,  # images have shorter ones
    most_warped=2**62,  # kernels count in 64 bits where planes are that large
    survives_fork=False,
    costs=MovingCosts(worth_a_call=8192, vector=4, gathers=4),
    architecture=launch.architecture,
    bind=launch.bind,
    bind_gradients=launch.bind_gradients,
    attend=attention.attend,
    attend_gradients=attention.gradients,
    bind_any_size=launch.bind_any_size,
    bound_of=launch.bound_of,
    again=launcher.again,
    dispatched_kernels=launcher.dispatched_kernels,
    forget=launch.forget,
    tap_bytes=_tap_bytes,
    described=launch.described,
    built_from=launch.built_from,
    stats=launch.stats,
    launch_all=batches.launch_all,
    launch_into=batches.launch_into,
    bind_like=batches.bind_like,
    bind_batched=batches.bind,
    of_size=items.of_size,
)
