"""`polyphase::program`: a whole program on tensors, as it stands in a compiled graph.

Such graphs are beyond autograd: the operator has no derivative. Its kernels are called directly where a graph is
compiled (`compile/lower.py`); the operator is what graphs are made of, and the safe path.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from polyphase.calls.prepared import prepared
from polyphase.ops.library import LIBRARY, put
from polyphase.sampling.steps import Size

# inputs: the image, the coordinates of a warp, vectors, tensors. program: its text; sizes fill its slots.
# An output's strides are given, whatever the image's: any order will do.
LIBRARY.define(
    "program(Tensor[] inputs, str program, SymInt[] sizes, SymInt[] out_size, SymInt[] out_stride) -> Tensor",
    tags=(torch.Tag.pt2_compliant_tag,),
)
program = torch.ops.polyphase.program.default


def _on_device(
    inputs: Sequence[Tensor], program: str, sizes: Sequence[int], out_size: Sequence[int], out_stride: Sequence[int]
) -> Tensor:
    run = prepared(program)
    out = torch.empty_strided(out_size, out_stride, dtype=run.program.target, device=inputs[0].device)
    run(*inputs, tuple(sizes), out=out)
    return out


def _without_data(
    inputs: Sequence[Tensor], program: str, sizes: Sequence[Size], out_size: Sequence[Size], out_stride: Sequence[Size]
) -> Tensor:
    return inputs[0].new_empty_strided(tuple(out_size), tuple(out_stride), dtype=prepared(program).program.target)


put("program", _on_device, _without_data)
