"""A plan becomes C++: a kernel, with what is done to a row before and after sampling, and the sampler it calls."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from polyphase.cpu.plan import Arithmetic, Plan, WarpPlan
from polyphase.cpu.pointwise import CPP_TYPES, ROUNDED, cpp_expression, divided_often
from polyphase.sampling.pointwise import VALUE, Channel, Expression, Operand, operands_of

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
#include "polyphase/{header}.h"
#include "polyphase/sampler.h"

using namespace polyphase;

extern "C" __attribute__((visibility("default"))) const auto {symbol} = sampler<{rows}>();
"""

#: By the bytes of an element that is only moved.
_MOVED = {1: "uint8_t", 2: "uint16_t", 4: "uint32_t", 8: "uint64_t", 16: "Bytes16"}
_WARP_FILTERS = {"nearest": "Nearest", "bilinear": "Linear", "bicubic": "Cubic"}

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


def kernel_source(plan: Plan | WarpPlan) -> str:
    load, store = _load(plan), _store(plan)
    header, run = _warp(plan, load, store) if isinstance(plan, WarpPlan) else _resample(plan, load, store)
    headers = [header, *(["convert"] if "convert(" in load + store else [])]
    includes = "\n".join(f'#include "polyphase/{one}.h"' for one in headers)
    return _KERNEL.format(includes=includes, functions=load + store, run=run, symbol=KERNEL_SYMBOL)


def sampler_source(plan: Plan) -> str:
    """What the kernels of many plans have in common: tables, and sums of rows."""
    header, rows = _rows(plan)
    return _SAMPLER.format(header=header, rows=rows, symbol=SAMPLER_SYMBOL)


def _resample(plan: Plan, load: str, store: str) -> tuple[str, str]:
    unchanged = f"Unchanged<{'uint8_t' if plan.source is None else CPP_TYPES[plan.work]}>"
    return "resample", f"Resample<{_name(load, unchanged)}, {_name(store, unchanged)}>"


def _warp(plan: WarpPlan, load: str, store: str) -> tuple[str, str]:
    work = _MOVED[plan.element_bytes] if plan.source is None else CPP_TYPES[plan.work]
    unchanged = f"Unchanged<{work}>"
    loads = f"Widened<uint8_t, {work}>" if _widens(plan) else unchanged
    types = f"{_WARP_FILTERS[plan.mode]}, {CPP_TYPES[plan.coordinates]}, {CPP_TYPES[plan.positions]}, {plan.axes}"
    if plan.gradients:
        return "warp_gradients", f"WarpGradients<{_name(load, loads)}, {types}>"
    return "warp", f"Warp<{_name(load, loads)}, {types}, {_name(store, unchanged)}>"


def _name(function: str, otherwise: str) -> str:
    """What a generated function is called, if there is one."""
    return function.split()[1] if function else otherwise


def slots(kind: type[Channel] | type[Operand], *expressions: Expression) -> list[int]:
    """Which operands of a kind are read: a kernel is given those, in this order."""
    return sorted({leaf.slot for one in expressions for leaf in operands_of(one) if isinstance(leaf, kind)})


def _rows(plan: Plan) -> tuple[str, str]:
    """The header and the template."""
    if not plan.weighted:
        nearest = "kFloat64" if plan.sampled == torch.float64 else "kFloat32"
        return "pick", f"MovingSampler<Arithmetic::{nearest}>"
    quantised = plan.work == torch.uint8
    return ("quantised", "QuantisedSampler") if quantised else ("floats", f"FloatSampler<{CPP_TYPES[plan.work]}>")


def _widens(plan: Arithmetic) -> bool:
    """Whether integers become floats when they are loaded, and nothing else happens: a template knows how."""
    return plan.prologue == VALUE and plan.source == torch.uint8 and plan.work != torch.uint8


def _load(plan: Arithmetic) -> str:
    """From what is in memory to what is summed; "" where that is the same, or only wider."""
    if plan.source is None or _widens(plan) or (plan.prologue == VALUE and plan.source == plan.work):
        return ""
    converts = plan.prologue == VALUE
    body = _CONVERSION if converts else _arithmetic("Load", plan, plan.prologue, plan.source, "in[i]")
    return _function("Load", plan.source, plan.work, body, _divisors(plan, plan.prologue))


def _store(plan: Arithmetic) -> str:
    """From what was summed to what goes to memory. Sums are rounded to what is sampled before anything else."""
    if plan.source is None or (plan.epilogue == VALUE and plan.target == plan.work):
        return ""
    converts = plan.epilogue == VALUE and plan.sampled in (*ROUNDED, torch.uint8)
    value = _sampled_value(plan)
    body = _CONVERSION if converts else _arithmetic("Store", plan, plan.epilogue, plan.sampled, value)
    return _function("Store", plan.work, plan.target, body, _divisors(plan, plan.epilogue))


def _function(name: str, stored: torch.dtype, target: torch.dtype, body: str, divisors: Sequence[int]) -> str:
    bits = sum(1 << place for place in divisors)
    return _FUNCTION.format(name=name, stored=CPP_TYPES[stored], target=CPP_TYPES[target], body=body, divisors=bits)


def _sampled_value(plan: Arithmetic) -> str:
    if plan.sampled in ROUNDED:
        return f"rounded<{CPP_TYPES[plan.sampled]}>(in[i])"
    return "saturated(in[i])" if plan.sampled == torch.uint8 and plan.work != torch.uint8 else "in[i]"


def _arithmetic(name: str, plan: Arithmetic, expression: Expression, dtype: torch.dtype, value: str) -> str:
    """One loop for rows of one channel, whose vector operands are constants, and one for interleaved channels."""
    computed = cpp_expression(expression, dtype).text
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
    of_element += [f"const auto value = {value};", f"out[i] = To({computed});"]
    loop = ["for (int64_t i = 0; i < n; ++i) {", *_indent(of_element), "}"]
    fast = "kFastDivision" if "quotient" in computed else "false"
    return _ARITHMETIC.format(name=name, fast=fast, loop="\n".join(_indent(lines + of_row + loop, "    ")))


def _divisors(plan: Arithmetic, expression: Expression) -> list[int]:
    """The places, among the program's vectors, of those that are divided by and whose reciprocals help."""
    places = slots(Channel, plan.prologue, plan.epilogue)
    value = plan.source if expression is plan.prologue and plan.source is not None else plan.sampled
    return sorted({places.index(slot) for slot in divided_often(expression, value)})


def _pointers(
    plan: Arithmetic, expression: Expression, kind: type[Channel] | type[Operand], field: str, name: str
) -> list[str]:
    """The operands' data, typed. Their places are those among all the program's operands."""
    places = slots(kind, plan.prologue, plan.epilogue)
    leaves = {leaf.slot: leaf.dtype for leaf in operands_of(expression) if isinstance(leaf, kind)}
    return [
        f"const auto* {name}{slot} = static_cast<const {CPP_TYPES[dtype]}*>(operands.{field}[{places.index(slot)}]);"
        for slot, dtype in sorted(leaves.items())
    ]


def _indent(lines: list[str], by: str = "  ") -> list[str]:
    return [by + line for line in lines]
