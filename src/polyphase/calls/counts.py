"""`polyphase.stats()`."""

from __future__ import annotations

from polyphase.calls import devices

COUNTS = (
    *("kernels_built", "kernels_loaded", "builds_waited", "kernels_launched", "makers_launched"),
    *("tables_made", "tables_cached"),
)


def stats() -> dict[str, int]:
    """Counts of this process.

    kernels_built: kernels that were compiled. kernels_loaded: kernels in memory. builds_waited: times that a call
    waited for a kernel to be compiled, or to be loaded from disk; where it stays as it is, every call found what it
    needs in memory. kernels_launched: runs of kernels that make pixels, or gradients. makers_launched: runs of kernels
    that make tables of taps for others, on CUDA. tables_made, tables_cached: tables of taps made, and found.
    """
    found = [wing.stats() for wing in devices.loaded()]
    return {name: sum(one[name] for one in found) for name in COUNTS}
