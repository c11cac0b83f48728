"""A plan becomes C++: what is done to a row before and after sampling, and which templates do the sampling."""

from __future__ import annotations

import torch

from polyphase.cpu.plan import Arithmetic, Plan, WarpPlan
from polyphase.cpu.pointwise import CPP_TYPES, ROUNDED, cpp_expression
from polyphase.sampling.pointwise import VALUE, Channel, Expression, Operand, operands_of

KERNEL_SYMBOL = "polyphase_kernel"

_FILE = """\
#include "polyphase/{header}.h"
#include "polyphase/scalar.h"

namespace polyphase {{
{functions}
using Run = {run};

}}  // namespace polyphase

extern "C" __attribute__((visibility("default"))) const auto {symbol} = polyphase::Run::kernel();
"""

#: By the bytes of an element that is only moved.
_MOVED = {1: "uint8_t", 2: "uint16_t", 4: "uint32_t", 8: "uint64_t", 16: "Bytes16"}
_WARP_FILTERS = {"nearest": "Nearest", "bilinear": "Linear", "bicubic": "Cubic"}

_FUNCTION = """
struct {name} {{
  using From = {stored};
  using To = {target};
  static constexpr bool kIdentity = false;
  static void row(const From* in, To* out, int64_t n, const RowOperands& operands) {{
{body}
  }}
}};
"""


def kernel_source(plan: Plan | WarpPlan) -> str:
    load, store = _load(plan), _store(plan)
    header, run = _warp(plan, load, store) if isinstance(plan, WarpPlan) else _resample(plan, load, store)
    return _FILE.format(header=header, functions=load + store, run=run, symbol=KERNEL_SYMBOL)


def _resample(plan: Plan, load: str, store: str) -> tuple[str, str]:
    unchanged = f"Unchanged<{'uint8_t' if plan.source is None else CPP_TYPES[plan.work]}>"
    return "resample", f"Resample<{_name(load, unchanged)}, {_sampler(plan)}, {_name(store, unchanged)}>"


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


def _sampler(plan: Plan) -> str:
    if plan.weighted:
        return "QuantisedSampler" if plan.work == torch.uint8 else f"FloatSampler<{CPP_TYPES[plan.work]}>"
    moved = "uint8_t" if plan.source is None else CPP_TYPES[plan.work]
    nearest = "kFloat64" if plan.sampled == torch.float64 else "kFloat32"
    return f"MovingSampler<{moved}, Arithmetic::{nearest}>"


def _widens(plan: Arithmetic) -> bool:
    """Whether integers become floats when they are loaded, and nothing else happens: a template knows how."""
    return plan.prologue == VALUE and plan.source == torch.uint8 and plan.work != torch.uint8


def _load(plan: Arithmetic) -> str:
    """From what is in memory to what is summed; "" where that is the same, or only wider."""
    if plan.source is None or _widens(plan) or (plan.prologue == VALUE and plan.source == plan.work):
        return ""
    if plan.prologue == VALUE:
        body = "    static_cast<void>(operands);\n    convert(in, out, n);"
    else:
        body = _loops(plan, plan.prologue, plan.source, "in[i]")
    return _FUNCTION.format(name="Load", stored=CPP_TYPES[plan.source], target=CPP_TYPES[plan.work], body=body)


def _store(plan: Arithmetic) -> str:
    """From what was summed to what goes to memory. Sums are rounded to what is sampled before anything else."""
    if plan.source is None or (plan.epilogue == VALUE and plan.target == plan.work):
        return ""
    if plan.epilogue == VALUE and plan.sampled in (*ROUNDED, torch.uint8):
        body = "    static_cast<void>(operands);\n    convert(in, out, n);"
    else:
        body = _loops(plan, plan.epilogue, plan.sampled, _sampled_value(plan))
    return _FUNCTION.format(name="Store", stored=CPP_TYPES[plan.work], target=CPP_TYPES[plan.target], body=body)


def _sampled_value(plan: Arithmetic) -> str:
    if plan.sampled in ROUNDED:
        return f"rounded<{CPP_TYPES[plan.sampled]}>(in[i])"
    return "saturated(in[i])" if plan.sampled == torch.uint8 and plan.work != torch.uint8 else "in[i]"


def _loops(plan: Arithmetic, expression: Expression, dtype: torch.dtype, value: str) -> str:
    """One loop for rows of one channel, whose vector operands are constants, and one for interleaved channels."""
    vectors = _pointers(plan, expression, Channel, "vectors", "channels")
    tensors = _pointers(plan, expression, Operand, "tensors", "operands")
    each = [f"const auto operand{slot} = operands{slot}[i];" for slot in slots(Operand, expression)]
    each += [f"const auto value = {value};", f"out[i] = To({cpp_expression(expression, dtype).text});"]
    channels = slots(Channel, expression)
    of_row = [f"const auto channel{slot} = *channels{slot};" for slot in channels]
    of_element = [f"const auto channel{slot} = channels{slot}[i];" for slot in channels]
    lines = [*vectors, *tensors]
    if channels:
        lines += ["if (operands.planar) {", *_indent(of_row + _loop(each)), "  return;", "}"]
    elif not tensors:
        lines.append("static_cast<void>(operands);")
    return "\n".join(_indent(lines + _loop(of_element + each), "    "))


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


def _loop(body: list[str]) -> list[str]:
    return ["for (int64_t i = 0; i < n; ++i) {", *_indent(body), "}"]


def _indent(lines: list[str], by: str = "  ") -> list[str]:
    return [by + line for line in lines]
