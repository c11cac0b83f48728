"""What the arithmetic of a program reads besides its image, found and checked: a kernel does not see where a tensor
ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from torch import Tensor

from polyphase.cpu.emit import slots
from polyphase.cpu.layout import Sizes
from polyphase.cpu.plan import Arithmetic
from polyphase.errors import WrongInputError
from polyphase.sampling.pointwise import Channel, Operand, operands_of

Given: TypeAlias = "Mapping[int, Tensor] | None"


@dataclass(frozen=True)
class Operands:
    """A vector per channel, and tensors of the output's shape, in the order of their slots."""

    vectors: tuple[Tensor, ...] = ()
    tensors: tuple[Tensor, ...] = ()


def find(plan: Arithmetic, out_shape: Sizes, channels: Given, tensors: Given) -> Operands:
    vectors = _found(plan, Channel, "vector", (out_shape[1],), channels)
    return Operands(
        tuple(one.contiguous() for one in vectors), tuple(_found(plan, Operand, "tensor", out_shape, tensors))
    )


def _found(
    plan: Arithmetic, kind: type[Channel] | type[Operand], name: str, shape: Sizes, given: Given
) -> Sequence[Tensor]:
    expressions = (plan.prologue, plan.epilogue)
    leaves = {leaf.slot: leaf for one in expressions for leaf in operands_of(one) if isinstance(leaf, kind)}
    found = []
    for slot in slots(kind, *expressions):
        one, wanted = (given or {}).get(slot), leaves[slot].dtype
        if one is None or one.device.type != "cpu" or (one.dtype, tuple(one.shape)) != (wanted, tuple(shape)):
            seen = "missing" if one is None else f"{one.dtype} of shape {tuple(one.shape)} on {one.device}"
            raise WrongInputError(
                f"{name} {slot} of the program is {seen}; needed is {wanted} of shape {tuple(shape)} on the CPU"
            )
        found.append(one)
    return found
