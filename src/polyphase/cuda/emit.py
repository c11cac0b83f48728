"""A plan becomes CUDA C++: what is done to a value before and after sampling, and the kernel that samples."""

from __future__ import annotations

import functools

import torch

from polyphase.cuda.calls import CallShape, MapsShape, WarpShape
from polyphase.cuda.made_tables import TAPS_CALL_BYTES
from polyphase.cuda.ways import Way
from polyphase.kernels.expressions import CPP_FILTERS, CPP_TYPES, ROUNDED, cpp_expression
from polyphase.kernels.formulas import formula_reads, formula_type
from polyphase.kernels.plans import MapsPlan, Plan, WarpPlan
from polyphase.records.operands import leaves, slots
from polyphase.sampling.pointwise import Channel, Expression, Operand, Value

KERNEL_SYMBOL = "polyphase_kernel"
TAP_THREADS = 256

_KERNEL = """\
{definitions}{includes}
namespace polyphase {{

{functions}
using Run = {run};

}}  // namespace polyphase

#ifdef __CUDACC__
extern "C" __global__ void __launch_bounds__({threads}, {blocks})
{symbol}(const __grid_constant__ polyphase::{parameters} call) {{
  polyphase::{runs}(call, polyphase::Block({lets_next_begin}));
}}
#else
extern "C" void {symbol}(const polyphase::{parameters}* call, const polyphase::Block* block) {{
  polyphase::{runs}(*call, *block);
}}
#endif

{assertions}"""

_LOAD = """\
struct Load {{
  using From = {stored};
  using To = {target};
  static constexpr bool kReadsChannel = {reads_channel};
  static constexpr bool kIsIdentity = {is_identity};

  template <class Call>
  static To apply(From value, const Call& call, int64_t channel) {{
{lines}
  }}
}};
"""

_STORE = """\
struct Store {{
  using From = {stored};
  using To = {target};
  static constexpr bool kReadsChannel = {reads_channel};
  static constexpr bool kIsIdentity = {is_identity};
  static constexpr bool kOnlyRounds = {only_rounds};  // to 16 bits

  template <class Call>
  static To apply(From sum, const Call& call, int64_t channel, const int64_t* offsets) {{
{lines}
  }}
}};
"""

#: By the bytes of an element that is only moved.
_MOVED = {1: "uint8_t", 2: "uint16_t", 4: "uint32_t", 8: "uint64_t", 16: "Bytes16"}


def call_shape(plan: MapsPlan | WarpPlan, way: Way) -> CallShape:
    return _shape(plan, way.outer)


@functools.lru_cache(maxsize=256)
def _shape(plan: MapsPlan | WarpPlan, outer: int) -> CallShape:
    vectors, tensors = (len(slots(kind, plan.prologue, plan.epilogue)) for kind in (Channel, Operand))
    if isinstance(plan, MapsPlan):
        return MapsShape(vectors, tensors, outer)
    reads = formula_reads(plan.formula)
    if plan.gradients:
        vectors, tensors = 2, 1  # as warp_gradients.h says
    return WarpShape(vectors, tensors + reads.fields, numbers=reads.numbers)


def loads_as_is(plan: Plan) -> bool:
    """Whether what is sampled is what lies in memory."""
    return plan.source is None or (plan.source == plan.work and isinstance(plan.prologue, Value))


def kernel_source(plan: MapsPlan | WarpPlan, way: Way) -> str:
    shape = call_shape(plan, way)
    types = _warp_types(plan) if isinstance(plan, WarpPlan) else _sum(plan, way)
    template = ", ".join(["Load", "Store", *types, *map(_constant, way.constants)])
    return _KERNEL.format(
        definitions=shape.definitions() + ("#define POLYPHASE_BATCHED\n" if way.batched else ""),
        includes=_includes(way.header, "batch") if way.batched else _includes(way.header),
        functions=_load(plan, way) + "\n" + _store(plan, way) + _formula(plan),
        run=f"{way.template}<{template}>",
        threads=way.threads,
        blocks=way.resident,
        symbol=KERNEL_SYMBOL,
        parameters=_parameters(shape, way),
        runs="run_one_of<polyphase::Run>" if way.batched and not way.tiled else "Run::run",
        lets_next_begin=_constant(way.lets_next_begin),
        assertions=shape.assertions(),
    )


def _parameters(shape: CallShape, way: Way) -> str:
    batch = "TiledBatch" if way.tiled else "Batch"
    return f"{batch}<polyphase::{shape.struct}>" if way.batched else shape.struct


def tap_maker_source() -> str:
    """The kernel that makes tables by recipes."""
    return _KERNEL.format(
        definitions=MapsShape(0, 0).definitions(),
        includes=_includes("tap_maker"),
        functions="",
        run=f"TapMaker<{TAP_THREADS}>",
        threads=TAP_THREADS,
        blocks=1,
        symbol=KERNEL_SYMBOL,
        parameters="TapsCall",
        runs="Run::run",
        lets_next_begin="true",
        assertions=f"static_assert(sizeof(polyphase::TapsCall) == {TAPS_CALL_BYTES});\n",
    )


def attention_source(dtype: torch.dtype, work: torch.dtype, together: int, threads: int, adding: int | None) -> str:
    """The kernel of attention at sampled places, or of its gradients, to which `adding` belongs."""
    constants = f"{CPP_TYPES[dtype]}, {CPP_TYPES[work]}, {together}, {threads}"
    run = f"AttentionForward<{constants}>" if adding is None else f"AttentionBackward<{constants}, {adding}>"
    return _KERNEL.format(
        definitions="",
        includes=_includes("attention"),
        functions="",
        run=run,
        threads=threads,
        blocks=1,
        symbol=KERNEL_SYMBOL,
        parameters="AttentionLaunch",
        runs="Run::run",
        lets_next_begin="true",
        assertions="",
    )


def _includes(*headers: str) -> str:
    return "".join(f'#include "polyphase/cuda/{one}.h"\n' for one in headers)


def _warp_types(plan: WarpPlan) -> list[str]:
    formula = "Formula" if plan.formula else "NoFormula"
    return [CPP_FILTERS[plan.mode], CPP_TYPES[plan.coordinates], CPP_TYPES[plan.positions], str(plan.axes), formula]


def _formula(plan: MapsPlan | WarpPlan) -> str:
    if isinstance(plan, MapsPlan) or not plan.formula:
        return ""
    first_field = 1 if plan.gradients else len(slots(Operand, plan.prologue, plan.epilogue))
    return formula_type(plan.formula, first_field, gradients=plan.gradients)


def _sum(plan: MapsPlan, way: Way) -> list[str]:
    if not way.sums:
        return []
    if not plan.weighted:
        return ["OneTap<Load::To>"]
    return ["ByteSum" if plan.work == torch.uint8 else f"FloatSum<{CPP_TYPES[plan.work]}>"]


def _constant(value: bool | int) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _load(plan: Plan, way: Way) -> str:
    if plan.source is None:
        moved = _MOVED[way.moved_bytes]
        identity = {"reads_channel": "false", "is_identity": "true", "lines": "    return value;"}
        return _LOAD.format(stored=moved, target=moved, **identity)
    value = cpp_expression(plan.prologue, plan.source).text
    lines = [*_operands(plan, plan.prologue), f"return To({value});"]
    types = {"stored": CPP_TYPES[plan.source], "target": CPP_TYPES[plan.work]}
    facts = {"reads_channel": _reads_channel(plan.prologue), "is_identity": _constant(loads_as_is(plan))}
    return _LOAD.format(**types, **facts, lines=_indented(lines))


def _store(plan: Plan, way: Way) -> str:
    """Sums are rounded to what is sampled before anything else."""
    if plan.source is None:
        moved = _MOVED[way.moved_bytes]
        identity = {"reads_channel": "false", "is_identity": "true", "only_rounds": "false", "lines": "    return sum;"}
        return _STORE.format(stored=moved, target=moved, **identity)
    value = f"rounded<{CPP_TYPES[plan.sampled]}>(sum)" if plan.sampled in ROUNDED else "sum"
    if plan.work.is_floating_point and not plan.sampled.is_floating_point:
        value = f"saturated<{CPP_TYPES[plan.sampled]}>(sum)"
    stored = cpp_expression(plan.epilogue, plan.sampled).text
    lines = [*_operands(plan, plan.epilogue), f"const auto value = {value};", f"return To({stored});"]
    types = {"stored": CPP_TYPES[plan.work], "target": CPP_TYPES[plan.target]}
    only_rounds = plan.sampled in ROUNDED and plan.target == plan.sampled and isinstance(plan.epilogue, Value)
    facts = {"reads_channel": _reads_channel(plan.epilogue), "is_identity": "false"}
    facts["only_rounds"] = _constant(only_rounds)
    return _STORE.format(**types, **facts, lines=_indented(lines))


def _operands(plan: Plan, expression: Expression) -> list[str]:
    """Their places are those among all the program's operands. Divisions, but for those of bytes, are the device's."""
    lines = ["constexpr bool kFast = false;", "int32_t unsafe = 0;", "static_cast<void>(kFast + unsafe);"]
    vectors, tensors = (slots(kind, plan.prologue, plan.epilogue) for kind in (Channel, Operand))
    for leaf in leaves(Channel, expression):
        data = f"static_cast<const {CPP_TYPES[leaf.dtype]}*>(call.vectors[{vectors.index(leaf.slot)}])"
        lines += [
            f"const auto channel{leaf.slot} = once({data} + channel);",
            f"constexpr float reciprocal{leaf.slot} = 0;",
        ]
        lines += [f"static_cast<void>(reciprocal{leaf.slot});"]
    for leaf in leaves(Operand, expression):
        place = tensors.index(leaf.slot)
        data = f"static_cast<const {CPP_TYPES[leaf.dtype]}*>(call.tensors[{place}])"
        lines += [f"const auto operand{leaf.slot} = {data}[offsets[{place}]];"]
    return lines


def _reads_channel(expression: Expression) -> str:
    return _constant(bool(slots(Channel, expression)))


def _indented(lines: list[str]) -> str:
    return "\n".join("    " + line for line in lines)
