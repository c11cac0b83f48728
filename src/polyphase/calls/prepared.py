"""Programs by their text, for any size: what compiled graphs call."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from torch import Tensor

from polyphase.calls.binding import bind
from polyphase.records.facts import Facts, Sizes, facts
from polyphase.sampling.programs import Program
from polyphase.sampling.templates import fill
from polyphase.sampling.text import from_text


class Prepared:
    """A program, to be called with an image, the coordinates of a warp, operands (vectors first, then tensors, each in
    the order of their slots, then a formula's fields), the sizes for its slots, and an output to write."""

    def __init__(self, text: str) -> None:
        self.program: Program = from_text(text)
        self._into = functools.lru_cache(maxsize=128)(self._bind)  # each keeps its tables

    def __call__(self, *inputs_and_sizes: Any, out: Tensor) -> None:
        *inputs, sizes = inputs_and_sizes
        self._into(sizes, facts(out), *map(facts, inputs))(out, *inputs)

    def fixed(self, sizes: Sizes, out: Tensor, *inputs: Tensor) -> Callable[..., None]:
        """What to call, with an output and inputs, for tensors like these and no others."""
        return self._bind(sizes, facts(out), *map(facts, inputs))

    def filled(self, sizes: Sizes, image: Sizes) -> Program:
        """The program for an image of this shape."""
        return fill(self.program, sizes, image[len(image) - self.program.axes(len(image)) :])

    def _bind(self, sizes: Sizes, out: Facts, *inputs: Facts) -> Callable[..., None]:
        return bind(self.filled(sizes, inputs[0].shape), inputs, out).into


class FixedCall:
    """A call of a program whose tensors have the same sizes and strides every time, as a graph without symbolic sizes
    promises: they are looked at once."""

    def __init__(self, text: str) -> None:
        self._program = prepared(text)
        self._call: Callable[..., None] | None = None

    def __call__(self, *inputs_and_sizes: Any, out: Tensor) -> None:
        *inputs, sizes = inputs_and_sizes
        if self._call is None:
            self._call = self._program.fixed(sizes, out, *inputs)
        self._call(out, *inputs)


prepared = functools.cache(Prepared)
