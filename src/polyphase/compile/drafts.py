"""A program while it grows: a node that samples, and what stands before and after it in a functional graph.

Every function here takes a draft and gives another, or says why not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.fx import Node
from torch.fx.experimental.symbolic_shapes import statically_known_true

from polyphase.calls.devices import wing_of
from polyphase.compile.arithmetic import expression_of, is_pointwise
from polyphase.compile.nodes import same, value
from polyphase.compile.reasons import Why
from polyphase.compile.recognise import MapsOf, Sampling, WarpOf
from polyphase.errors import InvalidProgramError
from polyphase.kernels.expressions import CPP_TYPES
from polyphase.sampling.axis_maps import AxisMap, NotMerged, compose
from polyphase.sampling.pointwise import (
    MOST_OPERATIONS_PER_TAP,
    VALUE,
    Channel,
    Expression,
    Operand,
    chain,
    dtype_of,
    length_of,
)
from polyphase.sampling.programs import Axes, Border, Program, Sampler
from polyphase.sampling.steps import Pad, Size
from polyphase.sampling.warps import Warp

Refusal: TypeAlias = "Why | NotMerged"

#: What eager's arithmetic is known of. It has next to none of uint16.
COMPUTED = tuple(dtype for dtype in CPP_TYPES if dtype != torch.uint16)
#: More than any tensor has.
MOST_DIMENSIONS = 64
#: Beyond it, what is gained by one pass less is lost: other kernels have more registers.
MOST_OPERATIONS = 32


@dataclass(frozen=True)
class Draft:
    """nodes: all that the program does, in the graph's order; the last one's value is its output's."""

    image: Node
    nodes: tuple[Node, ...]
    maps: tuple[AxisMap, ...] = ()
    adjoint_of: tuple[Size, ...] = ()
    warp: Warp | None = None
    coordinates: Node | None = None
    fields: tuple[Node, ...] = ()  # that coordinates are computed from
    prologue: Expression = VALUE
    epilogue: Expression = VALUE
    borders: tuple[Border, ...] = ()
    vectors: tuple[Node, ...] = ()
    tensors: tuple[Node, ...] = ()
    permutation: tuple[int, ...] = ()  # of the output's dimensions, at the end
    same_dimensions: int = MOST_DIMENSIONS  # how many of the last ones are the image's: those before were regrouped
    not_fused: tuple[tuple[Node, Refusal], ...] = field(default=(), compare=False)

    @property
    def last(self) -> Node:
        return self.nodes[-1]

    @property
    def axes(self) -> int:
        """How many of the last dimensions are mapped; before them come the channels."""
        return len(self.maps) if self.warp is None else value(self.image).dim() - 2

    @property
    def weighted(self) -> bool:
        return self.warp is not None or bool(self.adjoint_of) or any(one.weighted for one in self.maps)

    def program(self) -> Program:
        sampler: Sampler = self.warp or Axes(self.maps, self.adjoint_of)
        return Program(value(self.image).dtype, sampler, self.prologue, self.epilogue, self.borders)


def start(node: Node, sampling: Sampling) -> Draft | Refusal:
    if isinstance(sampling, WarpOf):
        warp = {"warp": sampling.sampler, "coordinates": sampling.coordinates, "fields": sampling.fields}
        return _checked(Draft(sampling.image, (node,), **warp))
    maps, borders = _bordered(sampling, ())
    if borders and borders[0].value != sampling.border:  # as NaN alone is
        return Why.BORDER_IS_NAN
    return _checked(Draft(sampling.image, (node,), maps, sampling.adjoint_of, borders=borders))


def followed_by_sampling(draft: Draft, node: Node, sampling: Sampling) -> Draft | Refusal:
    """Index-only maps change places with arithmetic; so arithmetic before a weighted step becomes the prologue."""
    if isinstance(sampling, WarpOf) or draft.warp is not None:
        return Why.WARP_AND_MAPS
    if draft.adjoint_of or sampling.adjoint_of:
        return Why.ADJOINT_AND_MAPS
    if draft.tensors or (draft.vectors and len(sampling.steps) > draft.axes):
        return Why.OPERAND_BEFORE_MAP
    if len(sampling.steps) >= draft.same_dimensions:  # the channels before those mapped must be the same too
        return Why.REGROUPED
    added, borders = _bordered(sampling, draft.borders, stored=draft.epilogue != VALUE)
    count = max(len(draft.maps), len(added))
    maps = []
    for first, second in zip(_widened(draft.maps, count), _widened(added, count), strict=True):
        both = compose(first, second)
        if isinstance(both, NotMerged):
            return both
        maps.append(both)
    grown = replace(draft, maps=tuple(maps), borders=borders, nodes=(*draft.nodes, node))
    if any(one.weighted for one in added) and draft.epilogue != VALUE:
        if draft.weighted or borders:
            return Why.ARITHMETIC_BEFORE_WEIGHTED
        grown = replace(grown, prologue=chain(draft.prologue, draft.epilogue), epilogue=VALUE)
    return _checked(grown)


def followed_by_arithmetic(draft: Draft, node: Node) -> Draft | Refusal:
    """An epilogue that is longer by one operation."""
    if any(border.stored for border in draft.borders):
        return Why.ARITHMETIC_AROUND_BORDER
    if not isinstance(node.meta.get("val"), Tensor) or not is_pointwise(node):
        return Why.NOT_SAMPLING_NOR_POINTWISE
    if not same(value(node).shape, value(draft.last).shape):
        return Why.BROADENS
    operands = _Operands(draft, node)
    expression = expression_of(node, lambda one: draft.epilogue if one is draft.last else operands.read(one))
    if expression is None:
        return operands.refusal or Why.NOT_SAMPLING_NOR_POINTWISE
    grown = replace(operands.draft, epilogue=expression, nodes=(*draft.nodes, node))
    return _of_dtype(grown, value(node).dtype)


def preceded_by_arithmetic(draft: Draft, node: Node) -> Draft | Refusal:
    """A prologue that is longer by one operation: `node`, which computes the draft's image."""
    if not isinstance(node.meta.get("val"), Tensor) or not is_pointwise(node):
        return Why.NOT_SAMPLING_NOR_POINTWISE
    images = [one for one in node.all_input_nodes if isinstance(one.meta.get("val"), Tensor)
              and same(value(one).shape, value(node).shape)]  # fmt: skip
    if len(images) != 1:
        return Why.TENSOR_IN_PROLOGUE
    operands = _Operands(draft, node, vectors_only=True)
    expression = expression_of(node, lambda one: VALUE if one is images[0] else operands.read(one))
    if expression is None:
        return operands.refusal or Why.NOT_SAMPLING_NOR_POINTWISE
    most = MOST_OPERATIONS if draft.warp is None else MOST_OPERATIONS_PER_TAP
    if length_of(expression) + length_of(draft.prologue) > most:
        return Why.TOO_LONG
    grown = replace(
        operands.draft, image=images[0], prologue=chain(expression, draft.prologue), nodes=(node, *draft.nodes)
    )
    return _of_dtype(grown, value(draft.last).dtype)


def followed_by_view(draft: Draft, node: Node) -> Draft | Refusal:
    """A view that regroups the dimensions before the channels, as batches are: the program is the same."""
    same = _same_dimensions(value(draft.last), value(node))
    if same <= draft.axes:
        return Why.NOT_SAMPLING_NOR_POINTWISE
    if draft.tensors:
        return Why.OPERAND_BEFORE_MAP
    return replace(draft, nodes=(*draft.nodes, node), same_dimensions=min(same, draft.same_dimensions))


def preceded_by_view(draft: Draft, node: Node, of: Node) -> Draft | Refusal:
    same = _same_dimensions(value(of), value(node))
    if draft.warp is not None or draft.tensors or same <= draft.axes:
        return Why.NOT_SAMPLING_NOR_POINTWISE
    nodes = (node, *draft.nodes)
    return replace(draft, image=of, nodes=nodes, same_dimensions=min(same, draft.same_dimensions))


def _same_dimensions(before: Tensor, after: Tensor) -> int:
    """How many of the last dimensions a view leaves as they are; none if it leaves elements out."""
    if not statically_known_true(before.numel() == after.numel()):
        return 0
    count = 0
    for one, other in zip(reversed(before.shape), reversed(after.shape), strict=False):
        if not statically_known_true(one == other):
            break
        count += 1
    return count


class _Operands:
    """Tensors that a node reads besides the value, as operands of a draft that grows by them."""

    def __init__(self, draft: Draft, node: Node, vectors_only: bool = False) -> None:
        self.draft, self.refusal = draft, None
        self._shape, self._vectors_only = value(node).shape, vectors_only

    refusal: Refusal | None

    def read(self, node: Node) -> Expression | None:
        tensor = node.meta.get("val")
        if not isinstance(tensor, Tensor):
            self.refusal = Why.OPERAND_IS_NO_TENSOR
            return None
        here = tensor.device == value(self.draft.image).device
        if not here or tensor.dtype not in COMPUTED:
            self.refusal = Why.ANOTHER_DTYPE if here else Why.OPERAND_ELSEWHERE
            return None
        axes = self._vector_axes(tensor)
        if axes is not None and self._can_have_axes(axes):
            self.draft = replace(self.draft, maps=_widened(self.draft.maps, axes) if self.draft.warp is None else ())
            return self._slot("vectors", node, Channel)
        if self._vectors_only:
            self.refusal = Why.TENSOR_IN_PROLOGUE
        elif is_pointwise(node) and tensor.dim() and not _all_ones(tensor.shape):
            self.refusal = Why.OPERAND_IS_COMPUTED
        elif tensor.dim() > self.draft.same_dimensions:
            self.refusal = Why.REGROUPED
        else:
            return self._slot("tensors", node, Operand)
        return None

    def _slot(self, name: str, node: Node, kind: type[Channel] | type[Operand]) -> Expression | None:
        nodes: tuple[Node, ...] = getattr(self.draft, name)
        if node not in nodes:
            nodes = (*nodes, node)
        fields = len(self.draft.fields) if kind is Operand else 0
        if len(nodes) + fields > wing_of(value(self.draft.image).device).most_operands:
            self.refusal = Why.TOO_MANY_OPERANDS
            return None
        changes: dict[str, Any] = {name: nodes}
        self.draft = replace(self.draft, **changes)
        return kind(nodes.index(node), value(node).dtype)

    def _vector_axes(self, tensor: Tensor) -> int | None:
        """How many dimensions come after the only one that has more than one element."""
        wide = [dim for dim, n in enumerate(tensor.shape) if not statically_known_true(n == 1)]
        if len(wide) != 1:
            return None
        axes = tensor.dim() - 1 - wide[0]
        fits = axes < len(self._shape) and same((tensor.shape[wide[0]],), (self._shape[-1 - axes],))
        return axes if fits and axes > 0 else None

    def _can_have_axes(self, axes: int) -> bool:
        if axes >= self.draft.same_dimensions:
            return False
        return axes == self.draft.axes or (
            self.draft.warp is None and not self.draft.vectors and axes > self.draft.axes
        )


def _bordered(
    sampling: MapsOf, borders: tuple[Border, ...], stored: bool = False
) -> tuple[tuple[AxisMap, ...], tuple[Border, ...]]:
    """The maps of one sampling, its border numbered after those there are."""
    number = len(borders) + 1
    steps = [replace(step, border=number) if isinstance(step, Pad) and step.border else step for step in sampling.steps]
    if any(isinstance(step, Pad) and step.border for step in steps) and not sampling.adjoint_of:
        borders = (*borders, Border(sampling.border, stored))
    return tuple(AxisMap(() if step is None else (step,)) for step in steps), borders


def _widened(maps: Sequence[AxisMap], count: int) -> tuple[AxisMap, ...]:
    """Maps of `count` last dimensions: those before stay as they are."""
    return (*[AxisMap(())] * (count - len(maps)), *maps)


def _checked(draft: Draft) -> Draft | Refusal:
    """Whether kernels compute it at all."""
    try:
        program = draft.program()
    except InvalidProgramError:
        return Why.ANOTHER_DTYPE
    arithmetic = draft.prologue != VALUE or draft.epilogue != VALUE or draft.weighted
    dtypes = (program.source, program.sampled, program.target)
    if arithmetic and any(dtype not in COMPUTED for dtype in dtypes):
        return Why.ANOTHER_DTYPE
    return draft if length_of(draft.epilogue) <= MOST_OPERATIONS else Why.TOO_LONG


def _of_dtype(draft: Draft, dtype: torch.dtype) -> Draft | Refusal:
    checked = _checked(draft)
    if isinstance(checked, Draft) and dtype_of(draft.epilogue, draft.program().sampled) != dtype:
        return Why.ANOTHER_RESULT_DTYPE
    return checked


def _all_ones(shape: Sequence[Size]) -> bool:
    return all(statically_known_true(n == 1) for n in shape)
