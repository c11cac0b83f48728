"""Readers of operators that compute: tensors made of nothing, and arithmetic."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import sympy
import torch
from torch import Tensor
from torch.fx.experimental.sym_node import SymNode
from torch.fx.experimental.symbolic_shapes import statically_known_true

from polyphase.compile.coordinates import algebra
from polyphase.compile.coordinates.algebra import ONE, TWO, ZERO, Index, Known, Refused, Value, is_same, known
from polyphase.compile.coordinates.recorded import Call
from polyphase.compile.coordinates.walk import Indices, Reader, Walk, constant_place, dimension
from polyphase.compile.reasons import Why
from polyphase.sampling.pointwise import Place, Select
from polyphase.sampling.steps import Size

aten, prims = torch.ops.aten, torch.ops.prims

#: Of a sum of products, and of what is summed at all.
MOST_TERMS = 4


# ---- tensors made of nothing


def _number(value: float) -> Reader:
    return lambda walk, call, at: known(value)


def _full(walk: Walk, call: Call, at: Indices) -> Value:
    return _rounded(call.arguments()["fill_value"], call)


def _scalar(walk: Walk, call: Call, at: Indices) -> Value:
    return _rounded(call.arguments()["s"], call)


def _rounded(number: Any, call: Call) -> Value:
    """Rounds a number as a tensor of floats has it."""
    dtype = call.result.dtype
    plain = isinstance(number, float) and dtype.is_floating_point
    return known(torch.tensor(number, dtype=dtype, device="cpu").item() if plain else number)


def _eye(walk: Walk, call: Call, at: Indices) -> Value:
    return known(1 if constant_place(at[0], call) == constant_place(at[1], call) else 0)


def _arange(walk: Walk, call: Call, at: Indices) -> Value:
    given = call.arguments()
    start, step = known(given.get("start") or 0), known(given.get("step") or 1)
    return algebra.as_written("add", algebra.as_written("mul", _place(at[0]), step), start)


def _iota(walk: Walk, call: Call, at: Indices) -> Value:
    given = call.arguments()
    return algebra.add(algebra.multiply(_place(at[0]), known(given["step"])), known(given["start"]))


def _linspace(walk: Walk, call: Call, at: Indices) -> Value:
    if not call.result.dtype.is_floating_point:
        raise Refused(Why.NOT_A_FORMULA, f"{call.operator} to integers")
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
        entry = walk.value(given["theta"], (at[0], row, dimension(len(spatial) + 1, column)))
        if column < len(spatial):
            axis = len(spatial) - 1 - column
            entry = algebra.multiply(entry, base(_place(at[1 + axis]), spatial[axis], given["align_corners"]))
        terms.append(entry)
    return algebra.sum_of(terms)


def base(place: Value, n: Size, align_corners: bool) -> Value:
    """Computes affine_grid's place of n: (2 i + 1 - n) / n, or / (n - 1) where corners are aligned."""
    if is_same(n, 1):
        return ZERO
    size = known(n)
    doubled = algebra.add(algebra.multiply(place, TWO), algebra.subtract(ONE, size))
    return algebra.divide(doubled, algebra.subtract(size, ONE) if align_corners else size)


# ---- arithmetic


def _two(op: str) -> Reader:
    """Reads an operator of two tensors, or a tensor and a number, the second times alpha."""

    def read(walk: Walk, call: Call, at: Indices) -> Value:
        left, right = (walk.broadcast(one, at) for one in call.args[:2])
        alpha = call.kwargs.get("alpha", 1)
        return algebra.as_written(op, left, right if alpha == 1 else algebra.as_written("mul", right, known(alpha)))

    return read


def _one(op: str) -> Reader:
    return lambda walk, call, at: algebra.as_written(op, walk.value(call.args[0], at))


def _reciprocal(walk: Walk, call: Call, at: Indices) -> Value:
    return algebra.as_written("div", ONE, walk.value(call.args[0], at))


def _reversed_subtract(walk: Walk, call: Call, at: Indices) -> Value:
    left, right = (walk.broadcast(one, at) for one in call.args[:2])
    alpha = call.arguments()["alpha"]
    return algebra.as_written("sub", right, left if alpha == 1 else algebra.as_written("mul", left, known(alpha)))


def _extreme(op: str) -> Reader:
    return lambda walk, call, at: algebra.as_written(op, *(walk.broadcast(one, at) for one in call.args))


def _power(walk: Walk, call: Call, at: Indices) -> Value:
    of, exponent = walk.value(call.args[0], at), call.args[1]
    if exponent == 0.5:
        return algebra.as_written("sqrt", of)
    if exponent not in (1, 2, 3):
        raise Refused(Why.NOT_A_FORMULA, f"{call.operator} of {exponent}")
    power = of
    for _ in range(int(exponent) - 1):
        power = algebra.as_written("mul", power, of)
    return power


def _clamp(walk: Walk, call: Call, at: Indices) -> Value:
    given = call.arguments()
    value = walk.value(given["self"], at)
    for name, op in (("min", "maximum"), ("max", "minimum")):
        if given.get(name) is not None:
            value = algebra.as_written(op, value, walk.broadcast(given[name], at))
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
        numbers = [algebra.simplified(one, walk.dtype) for one in (left, right)]
        are_known = all(isinstance(one, Known) for one in numbers)
        for answer in (True, False) if are_known else ():
            if _is_settled(holds(*(one.number for one in numbers)), answer, walk.environment):
                return ONE if answer else ZERO
        if sides is None or are_known:
            raise Refused(Why.NOT_A_FORMULA, f"{call.operator} of what is not known")
        return Select(*sides(left, right), *_CONDITION)

    return read


def _is_settled(claim: Any, answer: bool, environment: Any) -> bool:
    """Whether a claim about sizes is known to be true, or false, whatever they are."""
    claim = algebra.as_made(claim)
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
        k = dimension(count, number)
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
        whole.insert(dim, dimension(of.shape[dim], place))
    return tuple(whole)


READERS: dict[Any, Reader] = {
    **dict.fromkeys((aten.ones.default, aten.ones_like.default, aten.new_ones.default), _number(1)),
    **dict.fromkeys((aten.zeros.default, aten.zeros_like.default, aten.new_zeros.default), _number(0)),
    **dict.fromkeys((aten.full.default, aten.full_like.default, aten.new_full.default), _full),
    aten.scalar_tensor.default: _scalar,
    **dict.fromkeys((aten.eye.default, aten.eye.m), _eye),
    **dict.fromkeys((aten.arange.default, aten.arange.start, aten.arange.start_step), _arange),
    prims.iota.default: _iota,
    aten.linspace.default: _linspace,
    aten.affine_grid_generator.default: _affine_grid,
    **dict.fromkeys((aten.add.Tensor, aten.add.Scalar), _two("add")),
    **dict.fromkeys((aten.sub.Tensor, aten.sub.Scalar), _two("sub")),
    **dict.fromkeys((aten.mul.Tensor, aten.mul.Scalar), _two("mul")),
    **dict.fromkeys((aten.div.Tensor, aten.div.Scalar), _two("div")),
    **dict.fromkeys((aten.rsub.Tensor, aten.rsub.Scalar), _reversed_subtract),
    aten.reciprocal.default: _reciprocal,
    aten.pow.Tensor_Scalar: _power,
    **{getattr(aten, op).default: _one(op) for op in ("neg", "sqrt", "abs", "floor", "ceil", "round")},
    **{getattr(aten, op).default: _extreme(op) for op in ("minimum", "maximum")},
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
