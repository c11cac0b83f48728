"""What the CPU brings: the entry of this wing in the registry."""

from __future__ import annotations

from polyphase.calls.devices import MovingCosts, Wing
from polyphase.cpu import attention, isa, launch, libraries, slower
from polyphase.records.records import MOST_OPERANDS

WING = Wing(
    device="cpu",
    most_operands=MOST_OPERANDS,
    longest_axis=2**28,  # tables count its taps in 32 bits
    longest_runs=2**16,  # images have shorter ones
    most_warped=2**31 - 1,  # kernels count the elements of a plane in 32 bits
    survives_fork=True,
    costs=MovingCosts(worth_a_call=8192, vector=16),
    architecture=isa.chosen,
    bind=launch.bind,
    bind_gradients=launch.bind_gradients,
    attend=attention.attend,
    attend_gradients=attention.gradients,
    bind_any_size=launch.bind_any_size,
    bound_of=launch.bound_of,
    bind_like=launch.bind_like,
    sized=launch.Sized,
    again=launch.again,
    dispatched_kernels=launch.dispatched_kernels,
    forget=launch.forget,
    tap_bytes=libraries.tap_bytes,
    described=launch.described,
    built_from=launch.built_from,
    stats=libraries.stats,
    launch_all=launch.launch_all,
    makes_patchwork=True,
    warp_picture=launch.warp_picture,
    slower=slower.SLOWER,
    drawer=launch.drawer,
)
