"""Time on the GPU alone: calls are captured in a CUDA graph, and its replay is timed by events on the stream."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from polyphase.bench.work import Call
from polyphase.errors import DeviceMissingError

CALLS_CAPTURED = 20
REPLAYS = 5


def check_available(device: str) -> None:
    if device == "cuda" and not torch.cuda.is_available():
        raise DeviceMissingError(f"--device cuda, but {missing()} here; use --device cpu")


def missing() -> str:
    """What of CUDA is not there, where it is not available."""
    return f"torch {torch.__version__} {'sees no GPU' if torch.version.cuda else 'is built without CUDA'}"


def has_clock(tensor: Tensor) -> bool:
    """Whether work on a tensor is timed on its device, too."""
    return tensor.is_cuda


def replayed(call: Call, block_seconds: float) -> Callable[[], float]:
    """Seconds of a call, each time it is asked: of many in a row, as many as a block has time for."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):  # what is set up in the first calls must not be captured
        call()
        once = _elapsed(call)
        call()
    torch.cuda.current_stream().wait_stream(side)
    captured = max(1, min(CALLS_CAPTURED, int(block_seconds / REPLAYS / max(once, 1e-9))))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(captured):
            call()

    def replays() -> None:
        for _ in range(REPLAYS):
            graph.replay()

    def seconds() -> float:
        graph.replay()
        return _elapsed(replays) / (REPLAYS * captured)

    return seconds


def _elapsed(work: Callable[[], object]) -> float:
    """Seconds on the device."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    work()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) / 1e3
