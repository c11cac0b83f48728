"""Puts `polyphase::attention` into Dynamo's graph, in place of attention at sampled places that is written out, so that
no sample is in memory, neither forward nor backward. Later it would be too late: autograd has then saved samples.

It begins at calls that sample, and ends with views of their sum. Leaves are the value, places and weights, before they
were viewed, and before a place was scaled and shifted by numbers.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.fx import GraphModule, Node

from polyphase.calls.devices import has_kernels
from polyphase.compile.attention.found import Found
from polyphase.compile.attention.samples import BY_NUMBERS, VIEWS, Reading, Summed, is_by_numbers
from polyphase.compile.coordinates.algebra import Refused, is_same
from polyphase.compile.coordinates.cutout import Search, calls_of, example, may_write, stops_gradients
from polyphase.compile.coordinates.graph_calls import GraphCalls
from polyphase.compile.coordinates.recorded import SizeAskedError
from polyphase.compile.nodes import put
from polyphase.compile.reasons import NotFused, Why

aten = torch.ops.aten

SAMPLERS = (F.grid_sample, torch.grid_sampler, torch.grid_sampler_2d, aten.grid_sampler_2d.default)
SUMS = (torch.sum, "sum")
#: Calls from a sampler on; sums among them that may be the last.
LONGEST, MOST_SUMS = 24, 3


@dataclass(frozen=True)
class Attended:
    """What one kernel computes. nodes: what samples, multiplies and sums."""

    nodes: tuple[str, ...]
    levels: int

    def __str__(self) -> str:
        return f"{', '.join(self.nodes)}: one sum over the points of {self.levels} levels; no sample is in memory"


def with_attention(module: GraphModule) -> tuple[Attended | NotFused, ...]:
    """Looks into the graphs of higher-order operators too. Gives what became attention; and what did not, and why."""
    found: list[Attended | NotFused] = []
    for one in module.modules():
        if isinstance(one, GraphModule):
            made = list(_made(one))
            if made:
                found += made
                one.recompile()
    return tuple(found)


def _made(module: GraphModule) -> Iterator[Attended | NotFused]:
    paths: dict[tuple[Node, ...], list[list[Node]]] = {}  # by where sums may end
    for node in module.graph.nodes:
        path = _path(node) if node.target in SAMPLERS else []
        ends = tuple(_ends(path))
        if ends:
            paths.setdefault(ends, []).append(path)
    for ends, alike in paths.items():
        tried = (_replaced(module, last, alike) for last in ends)
        results = [one for one in itertools.islice(_until_attended(tried), MOST_SUMS) if one is not None]
        yield from results[-1:] if results and isinstance(results[-1], Attended) else results[:1]


def _until_attended(results: Iterable[Attended | NotFused | None]) -> Iterator[Attended | NotFused | None]:
    for one in results:
        yield one
        if isinstance(one, Attended):
            return


def _path(sampler: Node) -> list[Node]:
    """Follows a sampler's result, as long as it is read by one node alone."""
    path = [sampler]
    while len(path[-1].users) == 1 and len(path) < LONGEST:
        (node,) = path[-1].users
        if node.op not in ("call_function", "call_method") or may_write(node):
            break
        path.append(node)
    return path


def _ends(path: list[Node]) -> Iterator[Node]:
    """Gives the last view of each sum on a path."""
    for place, node in enumerate(path):
        if node.target in SUMS:
            views_of_it = itertools.takewhile(_is_view, path[place + 1 :])
            yield [node, *views_of_it][-1]


def _replaced(module: GraphModule, last: Node, paths: list[list[Node]]) -> Attended | NotFused | None:
    """None where there is nothing to be said."""
    inner = dict.fromkeys(node for path in paths for node in path[: path.index(last) + 1])
    calls: GraphCalls | None = None
    try:
        found = _found(last, inner)
        if found is None:
            return None
        with module.graph.inserting_before(last):
            calls = GraphCalls(module.graph, last)
            result = found.emitted(calls, example(last))
    except Refused as refused:
        if calls is not None:
            calls.undo()
        return NotFused(str(last), refused.why, refused.at)
    computed = tuple(str(one) for one in inner if not _is_view(one))
    put(last, result)
    return Attended(computed, len(found.sizes))


def _is_view(node: Node) -> bool:
    recording = calls_of(node)
    return recording is not None and bool(recording.calls) and recording.operators() <= VIEWS.keys()


class _Region(Search):
    """Backwards through what attention is made of, and further through views and arithmetic with numbers."""

    def __init__(self, last: Node, inner: dict[Node, None]) -> None:
        super().__init__(last.graph, last.next, 1)
        self._inner = inner

    def _is_leaf(self, node: Node) -> bool:
        return node not in self._inner and not self._is_passed(node)

    def _is_passed(self, node: Node) -> bool:
        if node.op not in ("call_function", "call_method") or stops_gradients(node) or may_write(node):
            return False
        several = [one for one in node.all_input_nodes if isinstance(example(one), tuple | list)]
        if several:
            return node.target is operator.getitem and all(map(self._is_passed, several))
        recording = calls_of(node) if isinstance(example(node), Tensor | tuple | list) else None
        return recording is not None and all(
            call.operator in VIEWS or (call.operator in BY_NUMBERS and is_by_numbers(call))
            for call in recording.calls.values()
        )


def _found(last: Node, inner: dict[Node, None]) -> Found | None:
    """None where there is nothing to be said of: no kernels, or nothing to compute."""
    if any(map(stops_gradients, inner)):
        raise Refused(Why.NOT_ATTENTION, "gradients stop at it")
    try:
        cut = _Region(last, inner).cut_out(last)
    except SizeAskedError:
        raise Refused(Why.NOT_ATTENTION, "a size is asked for") from None
    leaves = [example(one) for one in cut.leaves]
    if any(is_same(n, 0) for one in leaves for n in one.shape):
        return None
    assert cut.recording.result is not None, "a sum is a tensor"
    seen = Reading(cut.recording).of(cut.recording.result)
    if not isinstance(seen, Summed):
        raise Refused(Why.NOT_ATTENTION, "points are left")
    read = {seen.weights.leaf, *(one.leaf for level in seen.levels for one in (level.image, level.grid))}
    if not all(hasattr(leaves[leaf], "fake_mode") and has_kernels(leaves[leaf].device.type) for leaf in read):
        return None
    return Found.of(cut.leaves, seen)
