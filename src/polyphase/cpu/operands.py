"""What the arithmetic of a program reads besides its image, checked: a kernel does not see where a tensor ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TypeAlias

import torch
from torch import Tensor

from polyphase.cpu.emit import slots
from polyphase.cpu.layout import Sizes
from polyphase.cpu.plan import Arithmetic
from polyphase.errors import WrongInputError
from polyphase.sampling.pointwise import Channel, Operand, operands_of

#: dtype, shape and strides of a tensor.
Facts: TypeAlias = tuple[torch.dtype, Sizes, Sizes]
Given: TypeAlias = "Mapping[int, Tensor] | None"


@dataclass(frozen=True)
class Operands:
    """How a kernel finds its operands: vectors first, then tensors, each in the order of their slots.

    vectors: bytes of an element. tensors: bytes of an element, and strides along the output's dimensions. copied: which
    operands are vectors that do not lie densely, and have to be made so.
    """

    vectors: tuple[int, ...] = ()
    tensors: tuple[tuple[int, Sizes], ...] = ()
    copied: tuple[int, ...] = ()

    def dense(self, operands: Sequence[Tensor]) -> Sequence[Tensor]:
        if not self.copied:
            return operands
        return [one.contiguous() if i in self.copied else one for i, one in enumerate(operands)]


def ordered(plan: Arithmetic, channels: Given, tensors: Given) -> list[Tensor]:
    """Operands that were given by slot, as kernels take them."""
    found = []
    for kind, name, given in ((Channel, "vector", channels), (Operand, "tensor", tensors)):
        for slot in slots(kind, plan.prologue, plan.epilogue):
            one = (given or {}).get(slot)
            if one is None or one.device.type != "cpu":
                seen = "missing" if one is None else f"on {one.device}"
                raise WrongInputError(f"{name} {slot} of the program is {seen}; it must be given, on the CPU")
            found.append(one)
    return found


def describe(plan: Arithmetic, out_shape: Sizes, channel: int, given: Sequence[Facts]) -> Operands:
    """`channel`: the dimension a vector goes along. A tensor's shape is one that broadcasts to the output's."""
    vectors, tensors = _leaves(plan, Channel), _leaves(plan, Operand)
    if len(given) != len(vectors) + len(tensors):
        raise WrongInputError(
            f"{len(given)} operands; the program reads {len(vectors)} vectors, {len(tensors)} tensors"
        )
    if vectors and channel < 0:
        raise WrongInputError(
            f"an output of shape {tuple(out_shape)} without channels; the program reads their vectors"
        )
    of_vectors, of_tensors = given[: len(vectors)], given[len(vectors) :]
    for leaf, facts in zip(vectors, of_vectors, strict=True):
        n = out_shape[channel]
        along = (n, *[1] * (len(out_shape) - 1 - channel))
        shape = facts[1]
        is_vector = shape == (n,) or (shape[-len(along) :] == along and prod(shape) == n)
        _check("vector", leaf, facts, is_vector, f"{n} values along dimension {channel}")
    strides = []
    for leaf, facts in zip(tensors, of_tensors, strict=True):
        along_output = _broadcast(facts, out_shape)
        _check("tensor", leaf, facts, along_output is not None, f"a shape that broadcasts to {tuple(out_shape)}")
        strides.append(along_output or ())
    return Operands(
        tuple(dtype.itemsize for dtype, _, _ in of_vectors),
        tuple((facts[0].itemsize, along) for facts, along in zip(of_tensors, strides, strict=True)),
        tuple(i for i, facts in enumerate(of_vectors) if not _is_dense(facts)),
    )


def _leaves(plan: Arithmetic, kind: type[Channel] | type[Operand]) -> list[Channel | Operand]:
    read = operands_of(plan.prologue) + operands_of(plan.epilogue)
    leaves = {leaf.slot: leaf for leaf in read if isinstance(leaf, kind)}
    return [leaves[slot] for slot in sorted(leaves)]


def _check(name: str, leaf: Channel | Operand, facts: Facts, fits: bool, needed: str) -> None:
    if facts[0] != leaf.dtype or not fits:
        raise WrongInputError(
            f"{name} {leaf.slot} of the program is {facts[0]} of shape {tuple(facts[1])}; needed is {leaf.dtype}, "
            f"{needed}"
        )


def _is_dense(facts: Facts) -> bool:
    _, shape, strides = facts
    return all(n == 1 or stride == 1 for n, stride in zip(shape, strides, strict=True))


def _broadcast(facts: Facts, out_shape: Sizes) -> Sizes | None:
    """Strides along the output's dimensions: 0 where the tensor has one element for all."""
    _, shape, strides = facts
    missing = len(out_shape) - len(shape)
    if missing < 0 or any(n not in (1, out) for n, out in zip(shape, out_shape[missing:], strict=True)):
        return None
    return (0,) * missing + tuple(0 if n == 1 else stride for n, stride in zip(shape, strides, strict=True))
