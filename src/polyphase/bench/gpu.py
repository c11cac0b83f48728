"""Time on the GPU alone: calls are captured in a CUDA graph, and its replay is timed by events on the stream."""

from __future__ import annotations

from collections.abc import Callable

import torch

from polyphase.bench.work import Call
from polyphase.errors import DeviceMissingError

CALLS_CAPTURED = 20
REPLAYS = 5


def check_available(device: str) -> None:
    if device == "cuda" and not torch.cuda.is_available():
        built = "sees no GPU" if torch.version.cuda else "is built without CUDA"
        raise DeviceMissingError(f"--device cuda, but torch {torch.__version__} {built} here; use --device cpu")


def replayed(call: Call) -> Callable[[], float]:
    """Seconds of a call, each time it is asked."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):  # what is set up in the first calls must not be captured
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(CALLS_CAPTURED):
            call()

    def seconds() -> float:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        graph.replay()
        start.record()
        for _ in range(REPLAYS):
            graph.replay()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) / 1e3 / (REPLAYS * CALLS_CAPTURED)

    return seconds
