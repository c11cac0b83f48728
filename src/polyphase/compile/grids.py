"""In Dynamo's graph: grids that are computed and sampled at become warps that compute their coordinates themselves, so
that there is no grid in memory, neither forward nor backward. Later it would be too late: autograd has then saved it.

affine_grid + grid_sample, and whatever comes to the same, become `polyphase::affine_sample`; all other functions of the
pixel become `polyphase::formula_warp`.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.fx import GraphModule, Node

from polyphase.calls.devices import has_kernels
from polyphase.compile.coordinates.algebra import STEPS, Refused, has_operation, has_step, simplified
from polyphase.compile.coordinates.cutout import CutOut, cut_out, example, may_write
from polyphase.compile.coordinates.emit import Emitter
from polyphase.compile.coordinates.found import Found, Tensors
from polyphase.compile.coordinates.readers import READERS
from polyphase.compile.coordinates.walk import Walk, pixel
from polyphase.compile.nodes import put
from polyphase.compile.reasons import NotFused, Why
from polyphase.sampling.formulas import is_smooth
from polyphase.sampling.warps import FILL_RULES, MODES, PADDINGS


@dataclass(frozen=True)
class Sampling:
    """A call that samples at a grid."""

    image: Any
    grid: Any
    mode: Any
    padding: Any
    align_corners: bool
    fill: Any = None
    fill_rule: Any = "blend"

    @property
    def rules(self) -> tuple[Any, ...]:
        """Gives the options as operators take them, behind the output's size."""
        return self.mode, self.padding, self.align_corners, self.fill, self.fill_rule


def without_grids(module: GraphModule) -> tuple[NotFused, ...]:
    """Removes grids, in the graphs of higher-order operators too. Gives what samples at a grid that stays, and why."""
    left: list[NotFused] = []
    for one in module.modules():
        if isinstance(one, GraphModule):
            left += _left_of(one)
            one.recompile()
    return tuple(left)


def _left_of(module: GraphModule) -> list[NotFused]:
    """What read a grid may be gone when others are replaced: then it is tried again."""
    found: dict[Node, NotFused | None] = {}
    waiting = [node for node in module.graph.nodes if node.target in _READERS]
    while waiting:
        found |= {node: _replaced(module, node) for node in waiting}
        again = [node for node in waiting if (why := found[node]) is not None and why.why is Why.NOT_ALONE]
        waiting = again if len(again) < len(waiting) else []
    return [why for why in found.values() if why is not None]


# ---- calls


def _by_names(function: Any) -> Callable[[Node], Sampling]:
    def read(node: Node) -> Sampling:
        given = _arguments(function, node)
        options = given["mode"], given["padding_mode"], bool(given["align_corners"])
        return Sampling(given["input"], given["grid"], *options, given.get("fill"), given.get("fill_rule", "blend"))

    return read


def _by_numbers(node: Node) -> Sampling:
    given = _arguments(_grid_sampler, node)
    mode, padding = given["interpolation_mode"], given["padding_mode"]
    known = mode in range(len(MODES)) and padding in range(len(PADDINGS))
    mode, padding = (MODES[mode], PADDINGS[padding]) if known else (mode, padding)
    return Sampling(given["input"], given["grid"], mode, padding, bool(given["align_corners"]))


def _grid_sampler(input: Any, grid: Any, interpolation_mode: Any, padding_mode: Any, align_corners: Any) -> None:
    """The signature of torch.grid_sampler, which cannot be asked for it."""


def _whole_call(
    input: Any, grid: Any, mode: Any, padding_mode: Any, align_corners: Any, fill: Any = None, fill_rule: Any = "blend"
) -> None:
    """That of polyphase::grid_sample."""


def _arguments(function: Any, node: Node) -> dict[str, Any]:
    call = inspect.signature(function).bind(*node.args, **node.kwargs)
    call.apply_defaults()
    return call.arguments


_READERS: dict[Any, Callable[[Node], Sampling]] = {
    F.grid_sample: _by_names(F.grid_sample),
    torch.ops.polyphase.grid_sample: _by_names(_whole_call),
    torch.ops.polyphase.grid_sample.default: _by_names(_whole_call),
    torch.grid_sampler: _by_numbers,
    torch.grid_sampler_2d: _by_numbers,
    torch.grid_sampler_3d: _by_numbers,
}


# ---- one of them


def _replaced(module: GraphModule, sampler: Node) -> NotFused | None:
    """Why not, if there is anything to say."""
    sampling = _READERS[sampler.target](sampler)
    if not _is_ours(sampling):
        return None
    if _is_affine(sampling, sampler):
        put(sampler, _affine_sample(module, sampler, sampling))
        return None
    try:
        cut = cut_out(sampling.grid, sampler)
        found = _found(cut, sampling)
        if found.is_a_leaf():
            return None
        _check_worth(found, cut, sampling)
        put(sampler, _computed(module, sampler, sampling, cut, found))
    except Refused as refused:
        return NotFused(str(sampler), refused.why, refused.at)
    except RecursionError:  # all that is asked of values goes down into their parts
        return NotFused(str(sampler), Why.LONG_FORMULA)
    return None


def _is_ours(sampling: Sampling) -> bool:
    """Whether all are tensors of one device that has kernels, of dtypes and options that both eager and we take."""
    if not isinstance(sampling.image, Node) or not isinstance(sampling.grid, Node):
        return False
    image, grid = example(sampling.image), example(sampling.grid)
    if not isinstance(image, Tensor) or not isinstance(grid, Tensor) or not hasattr(grid, "fake_mode"):
        return False
    axes = grid.dim() - 2
    return (
        image.device == grid.device
        and has_kernels(image.device.type)
        and image.dim() == grid.dim()
        and not _is_empty(image)
        and not _is_empty(grid)
        and axes in (2, 3)
        and sampling.mode in MODES
        and sampling.padding in PADDINGS
        and _is_no_mistake(sampling)
    )


def _is_empty(tensor: Tensor) -> bool:
    """A size that is 0 is never left open."""
    return any(isinstance(n, int) and n == 0 for n in tensor.shape)


def _is_no_mistake(sampling: Sampling) -> bool:
    """Tells whether arguments are right; of a fill that is not, the operator says so."""
    if sampling.fill is None:
        return True
    numbers = all(isinstance(one, float) and math.isfinite(one) for one in sampling.fill)
    return numbers and sampling.padding == "zeros" and sampling.fill_rule in FILL_RULES


# ---- affine_grid itself


def _is_affine(sampling: Sampling, sampler: Node) -> bool:
    if sampling.grid.target is not F.affine_grid:
        return False
    affine = _arguments(F.affine_grid, sampling.grid)
    theta = example(affine["theta"]) if isinstance(affine["theta"], Node) else None
    return (
        bool(affine["align_corners"]) == sampling.align_corners
        and isinstance(theta, Tensor)
        and theta.device == example(sampling.image).device
        and not _is_written_between(sampling.grid, sampler)
    )


def _affine_sample(module: GraphModule, sampler: Node, sampling: Sampling) -> Node:
    affine = _arguments(F.affine_grid, sampling.grid)
    given = (sampling.image, affine["theta"], affine["size"], *sampling.rules)
    with module.graph.inserting_before(sampler):
        return module.graph.call_function(torch.ops.polyphase.affine_sample.default, given)


def _is_written_between(first: Node, last: Node) -> bool:
    """Graphs of Dynamo are not functional: the matrix may be another by the time the grid is used."""
    node = first.next
    while node is not last:
        if may_write(node):
            return True
        node = node.next
    return False


# ---- coordinates that are computed otherwise


def _found(cut: CutOut, sampling: Sampling) -> Found:
    grid, made = example(sampling.grid), cut.recording.result
    if grid.dtype not in (torch.float32, torch.float64) or example(sampling.image).dtype != grid.dtype:
        raise Refused(Why.ANOTHER_DTYPE)
    assert made is not None, "a grid is a tensor"
    walk = Walk(cut.recording, cut.literals, READERS, grid.fake_mode.shape_env, grid.dtype)
    written = [walk.value(made, pixel(grid.shape, component)) for component in range(grid.dim() - 2)]
    if cut.recording.floats() != {grid.dtype} and any(map(has_step, written)):
        raise Refused(Why.ANOTHER_DTYPE, "what leads to a step")
    if torch.ops.aten.linspace.default in cut.recording.operators() and any(
        has_operation(one, STEPS) for one in written
    ):
        raise Refused(Why.NOT_A_FORMULA, "a step of linspace, whose last bits are torch's own")
    axes = tuple(simplified(one, grid.dtype) for one in written)
    return Found(axes, tuple(grid.shape[1:-1]), sampling.align_corners)


def _check_worth(found: Found, cut: CutOut, sampling: Sampling) -> None:
    users = [one for one in sampling.grid.users if one.target not in _READERS and one not in cut.inner]
    others = [one for one in users if not may_write(one)]
    if others:
        raise Refused(Why.NOT_ALONE, str(others[0]))
    matrix = found.matrix()
    needs_gradients = any(example(cut.leaves[one.leaf]).requires_grad for one in found.reads())
    if matrix is not None:
        # At their kinks, minimum and clamp have different slopes; what was written is not known.
        if needs_gradients and any(has_operation(one, ("minimum", "maximum")) for row in matrix for one in row):
            raise Refused(Why.NOT_SMOOTH)
        return
    tensors = Tensors(found)
    dtype = example(sampling.grid).dtype
    if any(example(cut.leaves[one.leaf]).dtype != dtype for one in tensors.fields):
        raise Refused(Why.ANOTHER_DTYPE, "a field of another dtype than the grid")
    if needs_gradients and not is_smooth(tensors.formula()[0]):
        raise Refused(Why.NOT_SMOOTH)


def _computed(module: GraphModule, sampler: Node, sampling: Sampling, cut: CutOut, found: Found) -> Node:
    with module.graph.inserting_before(sampler):
        emitter = Emitter(module.graph, sampling.image, sampling.grid, cut.leaves, sampler)
        try:
            matrix = found.matrix()
            if matrix is not None:
                return emitter.affine(found, matrix, sampling.rules)
            return emitter.formula(found, sampling.rules)
        except (Refused, RecursionError):
            emitter.undo()
            raise
