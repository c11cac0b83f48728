"""The value of one element of a recorded tensor, as a function of the output's pixel: by recursion over the calls that
made it. An element is told by an index for each dimension, which is made of numbers and of the pixel's digits.

Where a dimension's places are split or joined by a view, digits are regrouped; nothing is multiplied out.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any, TypeAlias

import sympy
import torch
from torch import Tensor
from torch.fx.experimental.sym_node import SymNode
from torch.fx.experimental.symbolic_shapes import statically_known_true

from polyphase.compile.coordinates import algebra
from polyphase.compile.coordinates.algebra import (
    ONE,
    TWO,
    ZERO,
    Extent,
    Index,
    Known,
    Part,
    Read,
    Refused,
    Value,
    extent_of,
    is_same,
    known,
)
from polyphase.compile.coordinates.recorded import Call, Recording
from polyphase.compile.reasons import Why
from polyphase.sampling.pointwise import Place, Select
from polyphase.sampling.steps import Size

aten, prims = torch.ops.aten, torch.ops.prims

#: Of a sum of products, and of what is summed at all.
MOST_TERMS = 4
#: Coordinates are computed in these, and counted in these.
DTYPES = (torch.float32, torch.float64, torch.int32, torch.int64, torch.bool)

Indices: TypeAlias = "tuple[Index, ...]"


class Walk:
    """Of one recording. Its inputs are leaves. environment: what is known of symbolic sizes."""

    def __init__(self, recording: Recording, environment: Any) -> None:
        self._recording, self.environment = recording, environment
        self._leaves = {id(one): number for number, one in enumerate(recording.inputs)}
        self._found: dict[tuple[int, Indices], Value] = {}

    def value(self, tensor: Any, at: Indices) -> Value:
        if not isinstance(tensor, Tensor):
            return known(tensor)
        key = id(tensor), at
        if key not in self._found:
            self._found[key] = self._value(tensor, at)
        return self._found[key]

    def _value(self, tensor: Tensor, at: Indices) -> Value:
        if id(tensor) in self._leaves:
            return Read(self._leaves[id(tensor)], at)
        call = self._recording.made(tensor)
        if call is None or call.operator not in readers():
            raise Refused(Why.NOT_A_FORMULA, "a constant" if call is None else str(call.operator))
        if tensor.dtype not in DTYPES:
            raise Refused(Why.ANOTHER_DTYPE, str(call.operator))
        return readers()[call.operator](self, call, at)

    def broadcast(self, given: Any, at: Indices) -> Value:
        """Of an argument that broadcasts to what `at` is an index of."""
        if not isinstance(given, Tensor):
            return known(given)
        own = at[len(at) - given.dim() :]
        return self.value(given, tuple(() if is_same(n, 1) else one for n, one in zip(given.shape, own, strict=True)))


Reader: TypeAlias = Callable[[Walk, Call, Indices], Value]


def pixel(shape: Sequence[Size], component: int) -> Indices:
    """The index of a grid's component (N, out..., axes) at a pixel."""
    digits = [_dimension(n, digit=number) for number, n in enumerate(shape[:-1])]
    return *digits, _dimension(shape[-1], component)


# ---- indices


def _dimension(extent: Size | Extent, at: Size | Extent = 0, digit: int | None = None) -> Index:
    return () if is_same(extent, 1) else (Part(extent_of(extent), extent_of(at), digit),)


def constant(index: Index) -> int | None:
    """The place, if it is the same for all pixels."""
    place = 0
    for part in index:
        if part.digit is not None or not isinstance(part.at, int) or not isinstance(part.extent, int):
            return None
        place = place * part.extent + part.at
    return place


def _constant(index: Index, call: Call) -> int:
    place = constant(index)
    if place is None:
        raise Refused(Why.NOT_A_FORMULA, f"{call.operator} along the pixels")
    return place


def regrouped(at: Indices, shape: Sequence[Size], call: Call) -> Indices:
    """The index of the same element in another shape."""
    parts = [part for index in at for part in index]
    found: list[Index] = []
    for n in reversed(shape):
        taken: list[Part] = []
        extent: Extent = 1
        while not is_same(extent, n):
            if not parts:
                raise Refused(Why.NOT_A_FORMULA, f"{call.operator} of a shape that is not known to fit")
            part = parts.pop()
            rest = _rest(n, extent)
            if rest is not None and isinstance(part.extent, int) and part.extent > rest:
                if part.digit is not None or not isinstance(part.at, int) or part.extent % rest:
                    raise Refused(Why.NOT_A_FORMULA, f"{call.operator} that splits the pixels")
                parts.append(Part(part.extent // rest, part.at // rest))
                part = Part(rest, part.at % rest)
            taken.insert(0, part)
            extent = extent * part.extent
        found.insert(0, tuple(taken))
    if parts:
        raise Refused(Why.NOT_A_FORMULA, f"{call.operator} of a shape that is not known to fit")
    return tuple(found)


def _rest(n: Size, extent: Extent) -> int | None:
    return n // extent if isinstance(n, int) and isinstance(extent, int) and n % extent == 0 else None


def _dim(call: Call, name: str = "dim", of: Tensor | None = None) -> int:
    return int(call.arguments()[name]) % max((call.result if of is None else of).dim(), 1)


# ---- views


def _same(walk: Walk, call: Call, at: Indices) -> Value:
    return walk.value(call.args[0], at)


def _converted(walk: Walk, call: Call, at: Indices) -> Value:
    before, after = call.args[0].dtype, call.result.dtype
    if before.is_floating_point and not after.is_floating_point:
        raise Refused(Why.NOT_A_FORMULA, f"{call.operator} to integers")
    return walk.value(call.args[0], at)


def _view(walk: Walk, call: Call, at: Indices) -> Value:
    return walk.value(call.args[0], regrouped(at, call.args[0].shape, call))


def _unsqueeze(walk: Walk, call: Call, at: Indices) -> Value:
    dim = _dim(call)
    return walk.value(call.args[0], (*at[:dim], *at[dim + 1 :]))


def _permute(walk: Walk, call: Call, at: Indices) -> Value:
    order = [dim % len(at) for dim in call.args[1]]
    return walk.value(call.args[0], tuple(at[order.index(dim)] for dim in range(len(at))))


def _transpose(walk: Walk, call: Call, at: Indices) -> Value:
    first, second = _dim(call, "dim0"), _dim(call, "dim1")
    swapped = list(at)
    swapped[first], swapped[second] = swapped[second], swapped[first]
    return walk.value(call.args[0], tuple(swapped))


def _reversed(walk: Walk, call: Call, at: Indices) -> Value:
    return walk.value(call.args[0], at[::-1])


def _expand(walk: Walk, call: Call, at: Indices) -> Value:
    return walk.broadcast(call.args[0], at)


def _repeat(walk: Walk, call: Call, at: Indices) -> Value:
    of = call.args[0]
    own = at[len(at) - of.dim() :]
    for n, result in zip(of.shape, call.result.shape[len(at) - of.dim() :], strict=True):
        if not is_same(n, 1) and not is_same(n, result):
            raise Refused(Why.NOT_A_FORMULA, f"{call.operator} of more than one element")
    return walk.value(of, tuple(() if is_same(n, 1) else one for n, one in zip(of.shape, own, strict=True)))


def _select(walk: Walk, call: Call, at: Indices) -> Value:
    of, place = call.args[0], call.arguments()["index"]
    dim = _dim(call, of=of)
    if isinstance(place, int) and place < 0:
        place = place + of.shape[dim]
    return walk.value(of, (*at[:dim], _dimension(of.shape[dim], place), *at[dim:]))


def _slice(walk: Walk, call: Call, at: Indices) -> Value:
    given, of = call.arguments(), call.args[0]
    dim = _dim(call)
    return walk.value(of, (*at[:dim], _in_slice(given, of.shape[dim], at[dim], call), *at[dim + 1 :]))


def _in_slice(given: dict[str, Any], n: Size, index: Index, call: Call) -> Index:
    """The place in a whole dimension of n of a place in its slice."""
    start, step = given["start"] or 0, given["step"]
    if isinstance(start, int) and start < 0:
        start = start + n
    if is_same(n, 1):
        return ()
    place = constant(index)
    if place is not None:
        return _dimension(n, start + step * place)
    if step != 1 or len(index) != 1:
        raise Refused(Why.NOT_A_FORMULA, f"{call.operator} of some of the pixels")
    return (replace(index[0], extent=extent_of(n), at=extent_of(index[0].at + extent_of(start))),)


def _flip(walk: Walk, call: Call, at: Indices) -> Value:
    of, flipped = call.args[0], list(at)
    for dim in call.args[1]:
        n = of.shape[dim]
        if not is_same(n, 1):
            flipped[dim] = _dimension(n, n - 1 - _constant(at[dim], call))
    return walk.value(of, tuple(flipped))


def _unbound(walk: Walk, call: Call, at: Indices) -> Value:
    of, dim = call.args[0], _dim(call, of=call.args[0])
    assert call.position is not None
    return walk.value(of, (*at[:dim], _dimension(of.shape[dim], call.position), *at[dim:]))


def _split(walk: Walk, call: Call, at: Indices) -> Value:
    given, of, dim = call.arguments(), call.args[0], _dim(call)
    assert call.position is not None
    sizes = given.get("split_sizes")
    start = sum(sizes[: call.position]) if sizes is not None else given["split_size"] * call.position
    index = _in_slice({"start": start, "step": 1}, of.shape[dim], at[dim], call)
    return walk.value(of, (*at[:dim], index, *at[dim + 1 :]))


# ---- tensors made of others


def _stack(walk: Walk, call: Call, at: Indices) -> Value:
    dim = _dim(call)
    number = _constant(at[dim], call)
    return walk.value(call.args[0][number], (*at[:dim], *at[dim + 1 :]))


def _cat(walk: Walk, call: Call, at: Indices) -> Value:
    dim = _dim(call)
    place = _constant(at[dim], call)
    for one in call.args[0]:
        if one.dim() != len(at):  # an empty vector counts for nothing
            continue
        n = one.shape[dim]
        if not isinstance(n, int):
            break
        if place < n:
            return walk.value(one, (*at[:dim], _dimension(n, place), *at[dim + 1 :]))
        place -= n
    raise Refused(Why.NOT_A_FORMULA, f"{call.operator} of symbolic sizes")


def _select_scatter(walk: Walk, call: Call, at: Indices) -> Value:
    given, dim = call.arguments(), _dim(call)
    n, place = call.result.shape[dim], given["index"]
    written = place + n if isinstance(place, int) and place < 0 else place
    if is_same(n, 1) or _constant(at[dim], call) == written:
        return walk.value(given["src"], (*at[:dim], *at[dim + 1 :]))
    return walk.value(given["self"], at)


def _slice_scatter(walk: Walk, call: Call, at: Indices) -> Value:
    given, dim = call.arguments(), _dim(call)
    n = call.result.shape[dim]
    start, stop = given["start"] or 0, n if given["end"] is None else given["end"]
    reaches_the_end = is_same(stop, n) or (isinstance(stop, int) and stop == _NO_END)
    if is_same(start, 0) and reaches_the_end and given["step"] == 1:
        return walk.value(given["src"], at)
    place = _constant(at[dim], call)
    if not isinstance(n, int) or not isinstance(start, int) or not isinstance(stop, int):
        raise Refused(Why.NOT_A_FORMULA, f"{call.operator} of symbolic sizes")
    places = range(*slice(start, stop, given["step"]).indices(n))
    if place not in places:
        return walk.value(given["self"], at)
    return walk.value(given["src"], (*at[:dim], _dimension(len(places), places.index(place)), *at[dim + 1 :]))


#: What a slice ends with that goes on to the end.
_NO_END = 2**63 - 1


def _copy(walk: Walk, call: Call, at: Indices) -> Value:
    return walk.broadcast(call.args[1], at)


def _filled(walk: Walk, call: Call, at: Indices) -> Value:
    return walk.broadcast(call.arguments()["value"], at)


def _constant_pad(walk: Walk, call: Call, at: Indices) -> Value:
    """Of dimensions that the pixels do not go along; of others, by nothing."""
    given, of = call.arguments(), call.args[0]
    amounts = dict(enumerate(zip(given["pad"][::2], given["pad"][1::2], strict=True)))
    inner = list(at)
    for back, (before, after) in amounts.items():
        dim = len(at) - 1 - back
        if is_same(before, 0) and is_same(after, 0):
            continue
        place, n = _constant(at[dim], call), of.shape[dim]
        if not isinstance(n, int) or not isinstance(before, int):
            raise Refused(Why.NOT_A_FORMULA, f"{call.operator} of symbolic sizes")
        if not before <= place < before + n:
            return known(given["value"])
        inner[dim] = _dimension(n, place - before)
    return walk.value(of, tuple(inner))


# ---- tensors made of nothing


def _number(value: float) -> Reader:
    return lambda walk, call, at: known(value)


def _full(walk: Walk, call: Call, at: Indices) -> Value:
    return known(call.arguments()["fill_value"])


def _scalar(walk: Walk, call: Call, at: Indices) -> Value:
    return known(call.arguments()["s"])


def _eye(walk: Walk, call: Call, at: Indices) -> Value:
    return known(1 if _constant(at[0], call) == _constant(at[1], call) else 0)


def _arange(walk: Walk, call: Call, at: Indices) -> Value:
    given = call.arguments()
    start, step = known(given.get("start") or 0), known(given.get("step") or 1)
    return algebra.add(algebra.multiply(_place(at[0]), step), start)


def _iota(walk: Walk, call: Call, at: Indices) -> Value:
    given = call.arguments()
    return algebra.add(algebra.multiply(_place(at[0]), known(given["step"])), known(given["start"]))


def _linspace(walk: Walk, call: Call, at: Indices) -> Value:
    given = call.arguments()
    start, end, steps = (known(given[name]) for name in ("start", "end", "steps"))
    if steps.number == 1:
        return start
    step = algebra.divide(algebra.subtract(end, start), algebra.subtract(steps, ONE))
    return algebra.add(algebra.multiply(_place(at[0]), step), start)


def _place(index: Index) -> Value:
    """The place itself, as a value."""
    total: Value = ZERO
    for part in index:
        if part.digit == 0:
            raise Refused(Why.NOT_A_FORMULA, "the number of an image in its batch")
        value = known(part.at)
        if part.digit is not None:
            value = algebra.add(Place(part.digit - 1), value)
        total = algebra.add(algebra.multiply(total, known(part.extent)), value)
    return total


def _affine_grid(walk: Walk, call: Call, at: Indices) -> Value:
    given = call.arguments()
    spatial = given["size"][2:]
    row, terms = at[-1], []
    for column in range(len(spatial) + 1):
        entry = walk.value(given["theta"], (at[0], row, _dimension(len(spatial) + 1, column)))
        if column < len(spatial):
            axis = len(spatial) - 1 - column
            entry = algebra.multiply(entry, base(_place(at[1 + axis]), spatial[axis], given["align_corners"]))
        terms.append(entry)
    return algebra.sum_of(terms)


def base(place: Value, n: Size, align_corners: bool) -> Value:
    """As affine_grid has a place of n: (2 i + 1 - n) / n, or / (n - 1) where corners are aligned."""
    if is_same(n, 1):
        return ZERO
    size = known(n)
    doubled = algebra.add(algebra.multiply(place, TWO), algebra.subtract(ONE, size))
    return algebra.divide(doubled, algebra.subtract(size, ONE) if align_corners else size)


# ---- arithmetic


def _two(function: Callable[[Value, Value], Value]) -> Reader:
    """Of two tensors, or a tensor and a number, the second times alpha."""

    def read(walk: Walk, call: Call, at: Indices) -> Value:
        left, right = (walk.broadcast(one, at) for one in call.args[:2])
        alpha = call.kwargs.get("alpha", 1)
        return function(left, right if alpha == 1 else algebra.multiply(right, known(alpha)))

    return read


def _one(function: Callable[[Value], Value]) -> Reader:
    return lambda walk, call, at: function(walk.value(call.args[0], at))


def _reversed_subtract(walk: Walk, call: Call, at: Indices) -> Value:
    left, right = (walk.broadcast(one, at) for one in call.args[:2])
    return algebra.subtract(right, algebra.multiply(left, known(call.arguments()["alpha"])))


def _power(walk: Walk, call: Call, at: Indices) -> Value:
    of, exponent = walk.value(call.args[0], at), call.args[1]
    if exponent == 0.5:
        return algebra.square_root(of)
    if exponent not in (1, 2, 3):
        raise Refused(Why.NOT_A_FORMULA, f"{call.operator} of {exponent}")
    power = of
    for _ in range(int(exponent) - 1):
        power = algebra.multiply(power, of)
    return power


def _clamp(walk: Walk, call: Call, at: Indices) -> Value:
    given = call.arguments()
    value = walk.value(given["self"], at)
    for name, op in (("min", "maximum"), ("max", "minimum")):
        if given.get(name) is not None:
            value = algebra.apply(op, value, walk.broadcast(given[name], at))
    return value


def _where(walk: Walk, call: Call, at: Indices) -> Value:
    condition = walk.broadcast(call.args[0], at)
    if isinstance(condition, Known):
        return walk.broadcast(call.args[1 if condition.number != 0 else 2], at)
    yes, no = (walk.broadcast(one, at) for one in call.args[1:])
    if not isinstance(condition, Select) or (condition.greater, condition.otherwise) != _CONDITION:
        raise Refused(Why.NOT_A_FORMULA, f"{call.operator} by more than one comparison")
    return algebra.select(condition, yes, no)


#: What is selected by a comparison that is not known yet.
_CONDITION: tuple[Value, Value] = (ONE, ZERO)


def _compared(
    holds: Callable[[Any, Any], Any], sides: Callable[[Value, Value], tuple[Value, Value]] | None = None
) -> Reader:
    """A number, 1 or 0, where it is known; else what `where` fills in. sides: which of the two is the greater one."""

    def read(walk: Walk, call: Call, at: Indices) -> Value:
        left, right = (walk.broadcast(one, at) for one in call.args[:2])
        if isinstance(left, Known) and isinstance(right, Known):
            for answer in (True, False):
                if _is_settled(holds(left.number, right.number), answer, walk.environment):
                    return ONE if answer else ZERO
        if sides is None or (isinstance(left, Known) and isinstance(right, Known)):
            raise Refused(Why.NOT_A_FORMULA, f"{call.operator} of what is not known")
        return Select(*sides(left, right), *_CONDITION)

    return read


def _is_settled(claim: Any, answer: bool, environment: Any) -> bool:
    """Whether a claim about sizes is known to be true, or false, whatever they are."""
    if claim in (sympy.true, sympy.false):
        return bool(claim) is answer
    symbolic = torch.SymBool(SymNode(claim if answer else sympy.Not(claim), environment, bool, None))
    return bool(statically_known_true(symbolic))


def _product(walk: Walk, call: Call, at: Indices) -> Value:
    """(..., i, k) times (..., k, j), summed over k; vectors have no i, or no j."""
    return _products(walk, call, call.args[0], call.args[1], at)


def _products(walk: Walk, call: Call, left: Tensor, right: Tensor, at: Indices) -> Value:
    count = left.shape[-1]
    if not isinstance(count, int) or count > MOST_TERMS:
        raise Refused(Why.NOT_A_FORMULA, f"{call.operator} that sums more than {MOST_TERMS} products")
    batch, rest = at[: left.dim() - 2], at[left.dim() - 2 :]
    row, column = (rest[:1], rest[1:]) if left.dim() > 1 else ((), rest)
    terms = []
    for number in range(count):
        k = _dimension(count, number)
        factors = walk.value(left, (*batch, *row, k)), walk.value(right, (*batch, k, *column))
        terms.append(algebra.multiply(*factors))
    return algebra.sum_of(terms)


def _sum_and_product(walk: Walk, call: Call, at: Indices) -> Value:
    given = call.arguments()
    product = _products(walk, call, call.args[1], call.args[2], at)
    return algebra.add(
        algebra.multiply(walk.broadcast(call.args[0], at), known(given["beta"])),
        algebra.multiply(product, known(given["alpha"])),
    )


def _sum(walk: Walk, call: Call, at: Indices) -> Value:
    given, of = call.arguments(), call.args[0]
    dims = sorted(dim % of.dim() for dim in given["dim"] or range(of.dim()))
    count = math.prod(of.shape[dim] for dim in dims)
    if not isinstance(count, int) or count > MOST_TERMS:
        raise Refused(Why.NOT_A_FORMULA, f"{call.operator} of more than {MOST_TERMS} elements")
    kept = list(at)
    if given["keepdim"]:
        kept = [one for dim, one in enumerate(at) if dim not in dims]
    places = itertools.product(*(range(of.shape[dim]) for dim in dims))
    return algebra.sum_of([walk.value(of, _put_in(kept, dims, of, place)) for place in places])


def _put_in(kept: Sequence[Index], dims: Sequence[int], of: Tensor, places: Sequence[int]) -> Indices:
    whole = list(kept)
    for dim, place in zip(dims, places, strict=True):
        whole.insert(dim, _dimension(of.shape[dim], place))
    return tuple(whole)


def _operation(op: str) -> Reader:
    return _one(lambda value: algebra.apply(op, value))


@cache
def readers() -> dict[Any, Reader]:
    """By operator of ATen. What is not here ends a walk."""
    return {
        **dict.fromkeys((aten.clone.default, aten.alias.default, aten.lift_fresh_copy.default), _same),
        **dict.fromkeys((aten._to_copy.default, prims.convert_element_type.default), _converted),
        **dict.fromkeys(
            (aten.view.default, aten._unsafe_view.default, aten.reshape.default, aten._reshape_alias.default), _view
        ),
        **dict.fromkeys((aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims), _view),
        aten.unsqueeze.default: _unsqueeze,
        aten.permute.default: _permute,
        aten.transpose.int: _transpose,
        aten.t.default: _reversed,
        aten.expand.default: _expand,
        aten.repeat.default: _repeat,
        aten.select.int: _select,
        aten.slice.Tensor: _slice,
        aten.flip.default: _flip,
        aten.unbind.int: _unbound,
        **dict.fromkeys((aten.split.Tensor, aten.split_with_sizes.default), _split),
        aten.stack.default: _stack,
        aten.cat.default: _cat,
        aten.select_scatter.default: _select_scatter,
        aten.slice_scatter.default: _slice_scatter,
        aten.copy.default: _copy,
        **dict.fromkeys((aten.fill.Scalar, aten.fill.Tensor), _filled),
        aten.constant_pad_nd.default: _constant_pad,
        **dict.fromkeys((aten.ones.default, aten.ones_like.default, aten.new_ones.default), _number(1)),
        **dict.fromkeys((aten.zeros.default, aten.zeros_like.default, aten.new_zeros.default), _number(0)),
        **dict.fromkeys((aten.full.default, aten.full_like.default, aten.new_full.default), _full),
        aten.scalar_tensor.default: _scalar,
        **dict.fromkeys((aten.eye.default, aten.eye.m), _eye),
        **dict.fromkeys((aten.arange.default, aten.arange.start, aten.arange.start_step), _arange),
        prims.iota.default: _iota,
        aten.linspace.default: _linspace,
        aten.affine_grid_generator.default: _affine_grid,
        **dict.fromkeys((aten.add.Tensor, aten.add.Scalar), _two(algebra.add)),
        **dict.fromkeys((aten.sub.Tensor, aten.sub.Scalar), _two(algebra.subtract)),
        **dict.fromkeys((aten.mul.Tensor, aten.mul.Scalar), _two(algebra.multiply)),
        **dict.fromkeys((aten.div.Tensor, aten.div.Scalar), _two(algebra.divide)),
        **dict.fromkeys((aten.rsub.Tensor, aten.rsub.Scalar), _reversed_subtract),
        aten.neg.default: _one(algebra.negate),
        aten.reciprocal.default: _one(lambda value: algebra.divide(ONE, value)),
        aten.sqrt.default: _one(algebra.square_root),
        aten.pow.Tensor_Scalar: _power,
        **{getattr(aten, op).default: _operation(op) for op in ("abs", "floor", "ceil", "round")},
        **{getattr(aten, op).default: _two(partial(algebra.apply, op)) for op in ("minimum", "maximum")},
        **dict.fromkeys((aten.clamp.default, aten.clamp_min.default, aten.clamp_max.default), _clamp),
        aten.where.self: _where,
        **dict.fromkeys((aten.eq.Scalar, aten.eq.Tensor), _compared(sympy.Eq)),
        **dict.fromkeys((aten.ne.Scalar, aten.ne.Tensor), _compared(sympy.Ne)),
        **dict.fromkeys((aten.ge.Scalar, aten.ge.Tensor), _compared(sympy.Ge)),
        **dict.fromkeys((aten.le.Scalar, aten.le.Tensor), _compared(sympy.Le)),
        **dict.fromkeys((aten.gt.Scalar, aten.gt.Tensor), _compared(sympy.Gt, lambda left, right: (left, right))),
        **dict.fromkeys((aten.lt.Scalar, aten.lt.Tensor), _compared(sympy.Lt, lambda left, right: (right, left))),
        **dict.fromkeys((aten.mm.default, aten.bmm.default, aten.mv.default, aten.dot.default), _product),
        **dict.fromkeys((aten.addmm.default, aten.baddbmm.default), _sum_and_product),
        aten.sum.dim_IntList: _sum,
    }


#: What makes a tensor without values.
EMPTY = (aten.empty.memory_format, aten.new_empty.default, aten.empty_like.default, aten.empty_strided.default)


#: What reads the shape of a tensor, and none of its values.
OF_SHAPES = (
    *(aten.ones_like.default, aten.zeros_like.default, aten.full_like.default, aten.empty_like.default),
    *(aten.new_ones.default, aten.new_zeros.default, aten.new_full.default, aten.new_empty.default),
)


#: How functional calls end that were to write to their arguments.
WRITTEN_BACK = (aten.copy_.default, aten.as_strided_.default)


def is_known(operator: Any) -> bool:
    return operator in readers() or operator in EMPTY or operator in WRITTEN_BACK
