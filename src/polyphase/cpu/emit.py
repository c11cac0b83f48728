"""A plan becomes C++: a kernel, with what is done to a row before and after sampling, and the sampler it calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from polyphase.kernels.expressions import (
    CPP_FILTERS,
    CPP_TYPES,
    ROUNDED,
    cpp_expression,
    divided_often,
    divides_often,
)
from polyphase.kernels.formulas import formula_type
from polyphase.kernels.plans import MapsPlan, Plan, WarpPlan
from polyphase.records.operands import leaves, slots
from polyphase.sampling.integers import SUMMED_IN
from polyphase.sampling.pointwise import VALUE, Cast, Channel, Expression, Operand

KERNEL_SYMBOL = "polyphase_kernel"
SAMPLER_SYMBOL = "polyphase_sampler"

_KERNEL = """\
{includes}

namespace polyphase {{
{functions}
using Run = {run};

}}  // namespace polyphase

extern "C" __attribute__((visibility("default"))) const auto {symbol} = polyphase::Run::kernel();
"""

_SAMPLER = """\
#include "polyphase/{header}"
#include "polyphase/resample/sampler.h"

using namespace polyphase;

extern "C" __attribute__((visibility("default"))) const auto {symbol} = sampler<{rows}>();
"""

_ATTENTION = """\
#include "polyphase/warp/attention.h"

extern "C" __attribute__((visibility("default"))) void {symbol}(
    const polyphase::AttentionCall& call, int64_t threads, polyphase::Parallel parallel) {{
  polyphase::{run}::run(call, threads, parallel);
}}
"""

#: By the bytes of an element that is only moved.
_MOVED = {1: "uint8_t", 2: "uint16_t", 4: "uint32_t", 8: "uint64_t", 16: "Bytes16"}

_FUNCTION = """
struct {name} {{
  using From = {stored};
  using To = {target};
  static constexpr bool kIdentity = false;
  static constexpr uint32_t kDivisors = {divisors};
{body}
}};
"""

_CONVERSION = """\
  static void row(const From* in, To* out, int64_t n, const RowOperands&) { convert(in, out, n); }"""

_ARITHMETIC = """\
  static constexpr bool kDividesFast = {fast};
  template <bool kPlanar, bool kFast>
  static bool loop(const From* in, To* out, int64_t n, const RowOperands& operands) {{
    static_cast<void>(operands);
    int32_t unsafe = 0;
{loop}
    return unsafe != 0;
  }}
  static void row(const From* in, To* out, int64_t n, const RowOperands& operands) {{
    row_by_loops<{name}>(in, out, n, operands);
  }}"""


@dataclass(frozen=True)
class RowFunction:
    """What is done to a row before or after sampling: a C++ type, and its definition where it is generated."""

    type: str
    definition: str = ""
    converts: bool = False  # it needs core/convert.h


def kernel_source(plan: MapsPlan | WarpPlan) -> str:
    load, store = _load(plan), _store(plan)
    header, run = _warp(plan, load, store) if isinstance(plan, WarpPlan) else _resample(load, store)
    headers = [header, *(["core/convert.h"] if load.converts or store.converts else [])]
    includes = "\n".join(f'#include "polyphase/{one}"' for one in headers)
    functions = load.definition + store.definition + _formula(plan)
    return _KERNEL.format(includes=includes, functions=functions, run=run, symbol=KERNEL_SYMBOL)


def attention_source(dtype: torch.dtype, gradients: bool) -> str:
    """What runs attention at sampled places in a dtype."""
    kernel = "AttentionGradients" if gradients else "Attention"
    return _ATTENTION.format(run=f"{kernel}<{CPP_TYPES[dtype]}>", symbol=KERNEL_SYMBOL)


def sampler_source(plan: MapsPlan) -> str:
    """What the kernels of many plans have in common: tables, and sums of rows."""
    header, rows = _rows(plan)
    return _SAMPLER.format(header=header, rows=rows, symbol=SAMPLER_SYMBOL)


def _resample(load: RowFunction, store: RowFunction) -> tuple[str, str]:
    return "resample/resample.h", f"Resample<{load.type}, {store.type}>"


def _warp(plan: WarpPlan, load: RowFunction, store: RowFunction) -> tuple[str, str]:
    types = f"{CPP_FILTERS[plan.mode]}, {CPP_TYPES[plan.coordinates]}, {CPP_TYPES[plan.positions]}, {plan.axes}"
    formula = ", Formula" if plan.formula else ""
    if plan.gradients:
        return "warp/gradients.h", f"WarpGradients<{load.type}, {types}{formula}>"
    return "warp/warp.h", f"Warp<{load.type}, {types}, {store.type}{formula}>"


def _formula(plan: MapsPlan | WarpPlan) -> str:
    if not isinstance(plan, WarpPlan) or not plan.formula:
        return ""
    first_field = len(slots(Operand, plan.prologue, plan.epilogue))
    return formula_type(plan.formula, first_field, gradients=plan.gradients)


def _rows(plan: MapsPlan) -> tuple[str, str]:
    """The header and the template."""
    if not plan.weighted:
        nearest = "kFloat64" if plan.sampled == torch.float64 else "kFloat32"
        return "resample/pick.h", f"MovingSampler<TapArithmetic::{nearest}>"
    if plan.work == torch.uint8:
        return "resample/quantised.h", "QuantisedSampler"
    kind = "IntegerSampler" if plan.sampled in SUMMED_IN else "FloatSampler"
    return "resample/floats.h", f"{kind}<{CPP_TYPES[plan.work]}>"


def _load(plan: Plan) -> RowFunction:
    """Writes how what is in memory becomes what is summed."""
    if plan.source is None or (plan.prologue == VALUE and plan.source == plan.work):
        return _unchanged(plan)
    widens = plan.prologue in (VALUE, Cast(VALUE, plan.work))
    if widens and isinstance(plan, WarpPlan) and plan.source != plan.work:
        return RowFunction(f"Widened<{CPP_TYPES[plan.source]}, {CPP_TYPES[plan.work]}>")
    if plan.prologue == VALUE:
        return _conversion("Load", plan.source, plan.work)
    body = _arithmetic("Load", plan, plan.prologue, plan.source, "in[i]")
    return _function("Load", plan.source, plan.work, body, _divisors(plan, plan.prologue))


def _store(plan: Plan) -> RowFunction:
    """Writes how what was summed becomes what goes to memory. Sums are rounded to what is sampled before anything
    else."""
    if plan.source is None or (plan.epilogue == VALUE and plan.target == plan.work):
        return _unchanged(plan)
    if plan.epilogue == VALUE and plan.sampled in (*ROUNDED, torch.uint8, *SUMMED_IN):
        return _conversion("Store", plan.work, plan.target)
    body = _arithmetic("Store", plan, plan.epilogue, plan.sampled, _sampled_value(plan))
    return _function("Store", plan.work, plan.target, body, _divisors(plan, plan.epilogue))


def _unchanged(plan: Plan) -> RowFunction:
    """Values that are only moved are bytes to maps, and elements to warps."""
    if plan.source is not None:
        return RowFunction(f"Unchanged<{CPP_TYPES[plan.work]}>")
    return RowFunction(f"Unchanged<{_MOVED[plan.element_bytes] if isinstance(plan, WarpPlan) else 'uint8_t'}>")


def _conversion(name: str, stored: torch.dtype, target: torch.dtype) -> RowFunction:
    return RowFunction(name, _function(name, stored, target, _CONVERSION, ()).definition, converts=True)


def _function(name: str, stored: torch.dtype, target: torch.dtype, body: str, divisors: Sequence[int]) -> RowFunction:
    bits = sum(1 << place for place in divisors)
    types = {"stored": CPP_TYPES[stored], "target": CPP_TYPES[target]}
    return RowFunction(name, _FUNCTION.format(name=name, **types, body=body, divisors=bits))


def _sampled_value(plan: Plan) -> str:
    if plan.sampled in ROUNDED:
        return f"rounded<{CPP_TYPES[plan.sampled]}>(in[i])"
    from_floats = plan.work.is_floating_point and not plan.sampled.is_floating_point
    return f"saturated<{CPP_TYPES[plan.sampled]}>(in[i])" if from_floats else "in[i]"


def _arithmetic(name: str, plan: Plan, expression: Expression, dtype: torch.dtype, value: str) -> str:
    """One loop for rows of one channel, whose vector operands are constants, and one for interleaved channels."""
    lines = _pointers(plan, expression, Channel, "vectors", "channels")
    lines += _pointers(plan, expression, Operand, "tensors", "operands")
    places = slots(Channel, plan.prologue, plan.epilogue)
    divisors = [places[place] for place in _divisors(plan, expression)]
    lines += [f"const float* reciprocals{slot} = operands.reciprocals[{places.index(slot)}];" for slot in divisors]
    of_row, of_element = [], [f"const auto operand{slot} = operands{slot}[i];" for slot in slots(Operand, expression)]
    for slot in slots(Channel, expression):
        of_row.append(f"const auto channel{slot}_of_row = *channels{slot};")
        of_element.append(f"const auto channel{slot} = kPlanar ? channel{slot}_of_row : channels{slot}[i];")
    for slot in divisors:
        of_row.append(f"const float reciprocal{slot}_of_row = kPlanar ? reciprocal_of(channel{slot}_of_row) : 0;")
        of_element.append(
            f"const float reciprocal{slot} = kPlanar || !kFast ? reciprocal{slot}_of_row : reciprocals{slot}[i];"
        )
    of_element += [f"const auto value = {value};", f"out[i] = To({cpp_expression(expression, dtype).text});"]
    loop = ["for (int64_t i = 0; i < n; ++i) {", *_indent(of_element), "}"]
    fast = "kFastDivision" if divides_often(expression, dtype) else "false"
    return _ARITHMETIC.format(name=name, fast=fast, loop="\n".join(_indent(lines + of_row + loop, "    ")))


def _divisors(plan: Plan, expression: Expression) -> list[int]:
    """The places, among the program's vectors, of those that are divided by and whose reciprocals help."""
    places = slots(Channel, plan.prologue, plan.epilogue)
    value = plan.source if expression is plan.prologue and plan.source is not None else plan.sampled
    return sorted({places.index(slot) for slot in divided_often(expression, value)})


def _pointers(
    plan: Plan, expression: Expression, kind: type[Channel] | type[Operand], field: str, name: str
) -> list[str]:
    """The operands' data, typed. Their places are those among all the program's operands."""
    places = slots(kind, plan.prologue, plan.epilogue)
    return [
        f"const auto* {name}{leaf.slot} = static_cast<const {CPP_TYPES[leaf.dtype]}*>"
        f"(operands.{field}[{places.index(leaf.slot)}]);"
        for leaf in leaves(kind, expression)
    ]


def _indent(lines: list[str], by: str = "  ") -> list[str]:
    return [by + line for line in lines]
