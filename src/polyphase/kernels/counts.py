"""`polyphase.stats()`."""

from __future__ import annotations

from polyphase.kernels import devices

COUNTS = ("kernels_built", "kernels_loaded", "kernels_launched", "tables_made", "tables_cached")


def stats() -> dict[str, int]:
    """Counts of this process: kernels compiled, kernels in memory, runs of a kernel, tables of axes made, and found."""
    found = [wing.stats() for wing in devices.loaded()]
    return {name: sum(one[name] for one in found) for name in COUNTS}
