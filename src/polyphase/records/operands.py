"""What the arithmetic of a program reads besides its image: in which order, and checked, for a kernel does not see
where a tensor ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import TypeAlias

from torch import Tensor

from polyphase.errors import WrongInputError
from polyphase.records.facts import Facts, Sizes
from polyphase.sampling.pointwise import VALUE, Channel, Expression, Operand, operands_of
from polyphase.sampling.programs import Program, Sampler
from polyphase.sampling.warps import Warp

Given: TypeAlias = "Mapping[int, Tensor] | None"
Leaf: TypeAlias = "Channel | Operand"


@dataclass(frozen=True)
class TensorOperand:
    element_bytes: int
    strides: Sizes  # along the output's dimensions


@dataclass(frozen=True)
class Operands:
    """How a kernel finds its operands: vectors first, then tensors, each in the order of their slots.

    vectors: bytes of an element. copied: which operands are vectors that do not lie densely, and have to be made so.
    channel: the dimension that vectors go along.
    """

    vectors: tuple[int, ...] = ()
    tensors: tuple[TensorOperand, ...] = ()
    copied: tuple[int, ...] = ()
    channel: int = 0

    def dense(self, operands: Sequence[Tensor]) -> Sequence[Tensor]:
        if not self.copied:
            return operands
        return [one.contiguous() if i in self.copied else one for i, one in enumerate(operands)]


NO_OPERANDS = Operands()


def leaves(kind: type[Channel] | type[Operand], *expressions: Expression) -> list[Leaf]:
    """The operands of a kind that are read, once each, in the order that kernels are given them."""
    found = {leaf.slot: leaf for one in expressions for leaf in operands_of(one) if isinstance(leaf, kind)}
    return [found[slot] for slot in sorted(found)]


def slots(kind: type[Channel] | type[Operand], *expressions: Expression) -> list[int]:
    return [leaf.slot for leaf in leaves(kind, *expressions)]


def ordered(program: Program, image: Tensor, channels: Given, tensors: Given) -> list[Tensor]:
    """Operands that were given by slot, as kernels take them."""
    found = []
    for kind, name, given in ((Channel, "vector", channels), (Operand, "tensor", tensors)):
        for slot in slots(kind, program.prologue, program.epilogue):
            one = (given or {}).get(slot)
            if one is None or one.device != image.device:
                seen = "missing" if one is None else f"on {one.device}"
                raise WrongInputError(f"{name} {slot} of the program is {seen}; it must be given, on {image.device}")
            found.append(one)
    return found


def by_slot(program: Program, given: Sequence[Tensor]) -> tuple[dict[int, Tensor], dict[int, Tensor]]:
    """`ordered` the other way round: vectors and tensors by their slots."""
    vectors, tensors = (slots(kind, program.prologue, program.epilogue) for kind in (Channel, Operand))
    split = len(vectors)
    return dict(zip(vectors, given[:split], strict=True)), dict(zip(tensors, given[split:], strict=True))


def fields_of(sampler: Sampler) -> int:
    """How many fields the coordinates of a warp are computed from."""
    return sampler.formula.fields if isinstance(sampler, Warp) and sampler.formula else 0


def describe(program: Program, out_shape: Sizes, channel: int, given: Sequence[Facts]) -> Operands:
    """`channel`: the dimension a vector goes along. A tensor's shape is one that broadcasts to the output's; last come
    the fields of a warp."""
    count = fields_of(program.sampler)
    if not count and not given and program.prologue == program.epilogue == VALUE:
        return NO_OPERANDS
    given, fields = given[: len(given) - count], given[len(given) - count :]
    found = _describe(program, out_shape, channel, given)
    return replace(found, tensors=found.tensors + describe_fields(out_shape, count, fields))


def describe_fields(out_shape: Sizes, count: int, given: Sequence[Facts]) -> tuple[TensorOperand, ...]:
    """A field has one value for all channels."""
    shape = (out_shape[0], 1, *out_shape[2:])
    found = []
    for one in given:
        along = _broadcast(one, shape)
        if along is None or len(given) != count:
            raise WrongInputError(
                f"{len(given)} fields for a warp to {tuple(out_shape)}, one of shape {tuple(one.shape)}; it reads "
                f"{count}, each of a shape that broadcasts to {shape}"
            )
        found.append(TensorOperand(one.dtype.itemsize, along))
    return tuple(found)


def _describe(program: Program, out_shape: Sizes, channel: int, given: Sequence[Facts]) -> Operands:
    vectors, tensors = (leaves(kind, program.prologue, program.epilogue) for kind in (Channel, Operand))
    if len(given) != len(vectors) + len(tensors):
        raise WrongInputError(
            f"{len(given)} operands; the program reads {len(vectors)} vectors, {len(tensors)} tensors"
        )
    if vectors and channel < 0:
        raise WrongInputError(
            f"an output of shape {tuple(out_shape)} without channels; the program reads their vectors"
        )
    of_vectors, of_tensors = given[: len(vectors)], given[len(vectors) :]
    for leaf, one in zip(vectors, of_vectors, strict=True):
        n = out_shape[channel]
        along = (n, *[1] * (len(out_shape) - 1 - channel))
        is_vector = one.shape == (n,) or (one.shape[-len(along) :] == along and prod(one.shape) == n)
        _check("vector", leaf, one, is_vector, f"{n} values along dimension {channel}")
    strides = []
    for leaf, one in zip(tensors, of_tensors, strict=True):
        along_output = _broadcast(one, out_shape)
        _check("tensor", leaf, one, along_output is not None, f"a shape that broadcasts to {tuple(out_shape)}")
        strides.append(along_output or ())
    return Operands(
        tuple(one.dtype.itemsize for one in of_vectors),
        tuple(TensorOperand(one.dtype.itemsize, along) for one, along in zip(of_tensors, strides, strict=True)),
        tuple(i for i, one in enumerate(of_vectors) if not _is_dense(one)),
        channel,
    )


def _check(name: str, leaf: Leaf, seen: Facts, fits: bool, needed: str) -> None:
    if seen.dtype != leaf.dtype or not fits:
        raise WrongInputError(
            f"{name} {leaf.slot} of the program is {seen.dtype} of shape {tuple(seen.shape)}; needed is {leaf.dtype}, "
            f"{needed}"
        )


def _is_dense(vector: Facts) -> bool:
    return all(n == 1 or stride == 1 for n, stride in zip(vector.shape, vector.strides, strict=True))


def _broadcast(tensor: Facts, out_shape: Sizes) -> Sizes | None:
    """Strides along the output's dimensions: 0 where the tensor has one element for all."""
    missing = len(out_shape) - len(tensor.shape)
    if missing < 0 or any(n not in (1, out) for n, out in zip(tensor.shape, out_shape[missing:], strict=True)):
        return None
    own = tuple(0 if n == 1 else stride for n, stride in zip(tensor.shape, tensor.strides, strict=True))
    return (0,) * missing + own
