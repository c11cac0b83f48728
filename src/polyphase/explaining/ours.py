"""A kernel of ours as it stands in a graph that Inductor compiles."""

from __future__ import annotations

import math
from typing import Any

from polyphase.calls.devices import Described, wing_of
from polyphase.calls.prepared import prepared
from polyphase.compile.fuse import Fused
from polyphase.compile.lower import ProgramKernel
from polyphase.explaining.buffers import format_of, number
from polyphase.explaining.model import OurKernel
from polyphase.kernels.plans import MapsPlan, WarpPlan
from polyphase.records.checking import record_of
from polyphase.records.facts import Facts
from polyphase.sampling.formulas import Formula
from polyphase.sampling.programs import Axes, Program
from polyphase.sampling.text import from_text, to_text
from polyphase.sampling.warps import Warp
from polyphase.torch_private import V


def our_kernel(node: ProgramKernel) -> OurKernel:
    program: Program = from_text(node.text)
    fused: Fused | None = node.fused
    nodes, sources, refused = (fused.nodes, fused.sources, fused.not_fused) if fused else ((), (), ())
    inputs, sizes = [_facts(one) for one in node.inputs], tuple(number(V.graph, n) for n in node.constant_args[0])
    plan, source, resources = _described(node, sizes)
    return OurKernel(
        node.text,
        f"{_description(plan)}; {plan.architecture}; {resources}",
        str(source),
        nodes,
        sources,
        _tables(program),
        sum(one["bytes"] for one in inputs),
        _facts(node)["bytes"],
        tuple(str(one) for one in refused if one.node in nodes),
        tuple(str(one) for one in refused if one.node not in nodes),
        tuple(inputs),
        sizes,
        _facts(node),
        _coordinates(program),
    )


def _described(node: ProgramKernel, sizes: tuple[int, ...]) -> Described:
    out, *inputs = (_as_in_the_example(one) for one in (node, *node.inputs))
    filled = prepared(node.text).filled(sizes, inputs[0].shape)
    return wing_of(out.device).described(record_of(filled, inputs, out))


def _as_in_the_example(node: Any) -> Facts:
    shape, strides = (tuple(number(V.graph, n) for n in sizes) for sizes in (node.get_size(), node.get_stride()))
    return Facts(node.get_dtype(), shape, strides, node.get_device())


def _description(plan: MapsPlan | WarpPlan) -> str:
    if plan.source is None:
        return "values are moved, whatever they are"
    steps = [
        f"loaded as {plan.source}",
        f"sampled as {plan.sampled}, summed in {plan.work}",
        f"stored as {plan.target}",
    ]
    return ", ".join(step.replace("torch.", "") for step in steps)


def _tables(program: Program) -> tuple[str, ...]:
    """The maps that tables of taps are made from, once for each size."""
    if not isinstance(program.sampler, Axes):
        return ("none: positions are computed for every pixel",)
    return tuple(to_text(one) for one in program.sampler.maps if one.steps)


def _coordinates(program: Program) -> str:
    match program.sampler:
        case Warp(source="grid"):
            return "read from a grid in memory"
        case Warp(formula=Formula() as formula):
            count, fields = formula.entries, formula.fields
            values = f"{count} {'value' if count == 1 else 'values'} an image" if count else ""
            tensors = f"{fields} {'tensor' if fields == 1 else 'tensors'} of a value for each pixel" if fields else ""
            sources = " and ".join(filter(None, (values, tensors))) or "the pixel alone"
            return f"computed in the kernel, from {sources}: of a grid, 0 bytes lie between"
        case Warp():
            return "computed in the kernel, from a matrix for each image: of a grid, 0 bytes lie between"
    return ""


def _facts(node: Any) -> dict[str, Any]:
    shape, strides = [[number(V.graph, n) for n in sizes] for sizes in (node.get_size(), node.get_stride())]
    dtype = node.get_dtype()
    return {
        "dtype": str(dtype),
        "shape": shape,
        "strides": strides,
        "device": str(node.get_device()),
        "format": format_of(shape, strides),
        "bytes": math.prod(shape) * dtype.itemsize,
    }
