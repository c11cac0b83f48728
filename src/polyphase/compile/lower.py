"""Programs in Inductor: a direct call of the kernel, on an output that Inductor allocates.

The generated code finds or builds the kernel from the program's text alone: where it comes from a cache, nothing of
this file has run.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import sympy
import torch

from polyphase.calls.prepared import prepared
from polyphase.compile.fuse import MADE_FROM, Fused
from polyphase.compile.recognise import ATEN_OPERATORS
from polyphase.ops.program import program as program_op
from polyphase.torch_private import (
    ExternKernel,
    ExternKernelOut,
    FixedLayout,
    Layout,
    TensorBox,
    V,
    constrain_to_fx_strides,
    lowerings,
    make_fallback,
    register_lowering,
)

_IMPORT = "from polyphase.calls.prepared import FixedCall as polyphase_fixed, prepared as polyphase_program"


class ProgramKernel(ExternKernelOut):  # type: ignore[misc]
    """`polyphase_<digest>(inputs..., sizes, out=buffer)`; of fixed sizes a callable of its own, which is quicker."""

    def __init__(self, text: str, layout: FixedLayout, inputs: Sequence[Any], sizes: Sequence[Any]) -> None:
        self.text = text
        self.fused: Fused | None = V.graph.current_node.meta.get(MADE_FROM)
        super().__init__(layout, inputs, (tuple(sizes),), python_kernel_name="polyphase")
        self.is_fixed = not any(map(_is_symbolic, (layout, *self.inputs))) and not any(n.free_symbols for n in sizes)
        digest = hashlib.sha256(text.encode()).hexdigest()[:12]
        self.python_kernel_name = f"polyphase_{digest}" + (f"_{self.get_name()}" if self.is_fixed else "")

    def codegen(self, wrapper: Any) -> None:
        make = f"polyphase_fixed({self.text!r})"
        if not self.is_fixed:
            make = f"polyphase_program({self.text!r})"
        wrapper.add_import_once(_IMPORT)
        wrapper.add_import_once(f"{self.python_kernel_name} = {make}")
        super().codegen(wrapper)


def _is_symbolic(buffer: Any) -> bool:
    """Whether a tensor's size or place in memory depends on symbols."""
    layout = buffer if isinstance(buffer, Layout) else buffer.get_layout()
    return any(getattr(n, "free_symbols", None) for n in (*layout.size, *layout.stride))


@register_lowering(program_op, type_promotion_kind=None)  # type: ignore[untyped-decorator]
def _lower(inputs: Any, text: str, sizes: Any, out_size: Any, out_stride: Any) -> Any:
    tensors = [ExternKernel.realize_input(one) for one in inputs]
    layout = FixedLayout(
        device=tensors[0].get_device(),
        dtype=prepared(text).program.target,
        size=[_expression(n) for n in out_size],
        stride=[_expression(n) for n in out_stride],
    )
    return TensorBox.create(ProgramKernel(text, layout, tensors, [_expression(n) for n in sizes]))


# What Inductor knows only taken apart stays whole in a graph where ATen's own kernel is the quickest, which is called
# then. Graphs that are not ours have no such nodes.
for _op in ATEN_OPERATORS:
    if _op not in lowerings:
        make_fallback(_op, constrain_to_fx_strides, warn=False, override_decomp=True)


def _expression(size: Any) -> Any:
    if isinstance(size, torch.SymInt):
        return size.node.expr
    return size if isinstance(size, sympy.Expr) else sympy.Integer(size)
