"""Programs by their text, for any size: what compiled graphs call."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from torch import Tensor

from polyphase.cpu import launch, launch_warp, plain_torch
from polyphase.cpu.launch import facts, warn_once
from polyphase.cpu.layout import Sizes
from polyphase.cpu.operands import Facts
from polyphase.errors import BuildFailedError, CompilerMissingError
from polyphase.sampling.programs import Axes, Program
from polyphase.sampling.templates import fill
from polyphase.sampling.text import from_text


class Prepared:
    """A program, to be called with an image, the coordinates of a warp, operands (vectors first, then tensors, each in
    the order of their slots), the sizes for its slots, and an output to write."""

    def __init__(self, text: str) -> None:
        self.program: Program = from_text(text)
        self._bound = functools.lru_cache(maxsize=128)(self._bind)  # each keeps its tables

    def __call__(self, *inputs_and_sizes: Any, out: Tensor) -> None:
        *inputs, sizes = inputs_and_sizes
        self.bound(sizes, out, *inputs)(out, *inputs)

    def bound(self, sizes: Sizes, out: Tensor, *inputs: Tensor) -> Callable[..., None]:
        """For tensors like these, to be called with an output and inputs."""
        return self._bound(sizes, facts(out), *[facts(one) for one in inputs])

    def _bind(self, sizes: Sizes, out: Facts, image: Facts, *others: Facts) -> Callable[..., None]:
        sampler = self.program.sampler
        axes = len(sampler.maps) if isinstance(sampler, Axes) else len(image[1]) - 2
        program = fill(self.program, sizes, image[1][len(image[1]) - axes :])
        try:
            if isinstance(sampler, Axes):
                return launch.bind_program(program, image, out, others)
            if launch_warp.is_too_far(*image[1:]):
                return _plain(program)
            return launch_warp.bind_program(program, image, others[0], out, others[1:])
        except (CompilerMissingError, BuildFailedError) as error:
            warn_once(error)
            return _plain(program)


class FixedCall:
    """A call of a program whose tensors have the same sizes and strides every time, as a graph without symbolic sizes
    promises: they are looked at once."""

    def __init__(self, text: str) -> None:
        self._program = prepared(text)
        self._call: Callable[..., None] | None = None

    def __call__(self, *inputs_and_sizes: Any, out: Tensor) -> None:
        *inputs, sizes = inputs_and_sizes
        if self._call is None:
            self._call = self._program.bound(sizes, out, *inputs)
        self._call(out, *inputs)


def _plain(program: Program) -> Callable[..., None]:
    def call(out: Tensor, *inputs: Tensor) -> None:
        out.copy_(plain_torch.run(program, *inputs))

    return call


prepared = functools.cache(Prepared)
