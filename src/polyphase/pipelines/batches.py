"""Many pictures in one call: everything is drawn and bound, then a queue of threads runs it, into one tensor."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor

from polyphase.errors import WrongArgumentError, WrongImageError
from polyphase.kernels import devices
from polyphase.kernels.facts import Facts, elements, facts
from polyphase.kernels.layout import dense_strides
from polyphase.pipelines.picture import Picture
from polyphase.pipelines.sources import Source, of_tensor
from polyphase.pipelines.stages import Stage

#: So many images are bound before the first are run.
AT_ONCE = 16


def check_alike(pictures: Sequence[Picture], numbers: Sequence[int]) -> None:
    """`numbers`: of the images in the caller's list."""
    first = pictures[0]
    for picture, number in zip(pictures, numbers, strict=True):
        seen = (tuple(picture.shape), picture.dtype, picture.source.facts.device)
        wanted = (tuple(first.shape), first.dtype, first.source.facts.device)
        if seen != wanted:
            raise WrongImageError(
                f"image {number} becomes {_said(*seen)}, and image {numbers[0]} {_said(*wanted)}; a batch has one of "
                "each: end with a crop or a resize to one (height, width), or ask for a list (as_list=True)"
            )


def _said(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> str:
    return f"{dtype} of shape {shape} on {device}"


def empty_batch(picture: Picture, count: int, *, channels_last: bool, make: Any = torch.empty) -> Tensor:
    """For so many like a picture. `make`: allocates so many elements of a dtype."""
    shape = (count, *picture.shape)
    if channels_last and len(shape) != 4:
        raise WrongArgumentError(f"channels_last of a batch of shape {shape}; it is for (N, channels, height, width)")
    flat = make(elements(shape), dtype=picture.dtype, device=picture.source.facts.device)
    made: Tensor = flat.as_strided(shape, dense_strides(shape, channels_last))
    return made


def check_out(out: Any, picture: Picture, count: int) -> None:
    wanted = ((count, *picture.shape), picture.dtype, picture.source.facts.device)
    if not isinstance(out, Tensor) or (tuple(out.shape), out.dtype, out.device) != wanted:
        seen = _said(tuple(out.shape), out.dtype, out.device) if isinstance(out, Tensor) else type(out).__name__
        raise WrongArgumentError(f"out is {seen}; the batch is {_said(*wanted)}: give a tensor like that, or none")


def run_into(pictures: Sequence[Picture], targets: Sequence[Tensor]) -> None:
    """Each picture, none of which is recorded, into its tensor. Those of several programs are run one program after the
    other, all at a time."""
    sources = [picture.source for picture in pictures]
    stages = [picture.stages() for picture in pictures]
    for level in range(max(map(len, stages), default=0)):
        with _Queue(sources[0].facts.device) as queue:
            for i, own in enumerate(stages):
                if level < len(own):
                    out = targets[i] if own[level] is own[-1] else _empty(own[level].out)
                    queue.add(own[level], sources[i], out)
                    sources[i] = of_tensor(out)


def _empty(out: Facts) -> Tensor:
    return torch.empty_strided(out.shape, out.strides, dtype=out.dtype, device=out.device)


class _Queue:
    """Calls that do not depend on each other; all have run at the end of a `with`. Where torch has several threads,
    another one runs what there is while the next are bound."""

    def __init__(self, device: torch.device) -> None:
        self._launch_all = devices.wing_of(device).launch_all
        self._calls = list[tuple[Any, ...]]()  # which keep alive what they read and write
        self._runner = ThreadPoolExecutor(1) if torch.get_num_threads() > 1 else None
        self._running = list[Future[Any]]()

    def __enter__(self) -> _Queue:
        return self

    def add(self, stage: Stage, source: Source, out: Tensor) -> None:
        call, memory, inputs = stage.bound(source, facts(out))
        if call.by_torch or call.handle is None or self._launch_all is None:
            call.into(out, source.tensor() if call.by_torch else memory, *inputs)
            return
        self._calls.append((call.handle, out, memory, *inputs))
        if self._runner is not None and len(self._calls) == AT_ONCE:
            assert self._launch_all is not None, "there is something to launch"
            self._running.append(self._runner.submit(self._launch_all, *self._calls))
            self._calls = []

    def __exit__(self, *error: object) -> None:
        if self._runner is not None:
            self._runner.shutdown()
        for one in self._running:
            one.result()
        if self._calls and self._launch_all is not None and error == (None, None, None):
            self._launch_all(*self._calls)
