"""Where our decompositions are expected to differ from eager on the CPU, and why: the whole list.

What is eager's fault is `polyphase.compile.eager_faults`'s; the others are here. A call that a line applies to is not
compared with eager but with the reference (forward) or with the transposed taps of our own forward (backward).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from polyphase.compile import eager_faults
from polyphase.compile.eager_faults import FORWARD, ONE_COLUMN_TRANSPOSED, Call, Difference, find
from polyphase.records.layout import is_channels_last
from polyphase.sampling import reference
from polyphase.sampling.axis_maps import AxisMap
from polyphase.sampling.evaluate import evaluate
from polyphase.sampling.programs import Axes, Program
from polyphase.sampling.steps import Nearest, Resize
from polyphase.sampling.windows import TapArithmetic, eager_arithmetic

__all__ = ["FORWARD", "ONE_COLUMN_TRANSPOSED", "Difference", "find"]


BICUBIC_BACKWARD = Difference(
    "float32 bicubic: eager's backward rounds coordinates twice where its forward rounds once, so it is not quite its "
    "adjoint",
    lambda call: call.name == "upsample_bicubic2d_backward" and call.dtype == torch.float32,
)

BACKWARD = (*eager_faults.BACKWARD, BICUBIC_BACKWARD)

CONTIGUOUS_GRADIENTS = (
    "upsample_bicubic2d_backward",
    "_upsample_bicubic2d_aa_backward",
    "_upsample_lanczos2d_aa_backward",
    "upsample_nearest3d_backward",
    "_upsample_nearest_exact3d_backward",
)

GRADIENT_STRIDES = (
    Difference(
        "eager's gradient is contiguous even where the one that came in is channels last; ours follows it",
        lambda call: call.name in CONTIGUOUS_GRADIENTS and is_channels_last(call.image.shape, call.image.stride()),
    ),
)

TABLES = {
    "forward": FORWARD,
    "backward": BACKWARD,
    "gradient strides": GRADIENT_STRIDES,
}


def steps(call: Call) -> list[Resize | Nearest]:
    """What an upsample call asks for, one step per axis, read from its name and arguments."""
    name = call.name.removesuffix("_backward").lstrip("_").removeprefix("upsample_")
    antialias, kind = name.endswith("_aa"), name.removesuffix("_aa")[:-2]
    sizes = list(zip(call.out_size, call.scales, strict=True))
    if kind.startswith("nearest"):
        return [Nearest(size, kind == "nearest_exact", scale) for size, scale in sizes]
    filter = {"linear": "bilinear", "trilinear": "bilinear"}.get(kind, kind)
    return [Resize(size, filter, antialias, call.align_corners, scale) for size, scale in sizes]


def expected_forward(call: Call) -> Tensor:
    """The reference's result: float64 for floats, exact integers for uint8."""
    maps = tuple(AxisMap((step,)) for step in steps(call))
    return reference.run(Program(call.dtype, Axes(maps)), call.image)


def expected_backward(call: Call, arithmetic: Callable[[torch.dtype], TapArithmetic] = eager_arithmetic) -> Tensor:
    """The incoming gradient through the transposed matrices of our forward's taps, in float64."""
    result = call.image.double()
    for dim, (step, size) in enumerate(zip(steps(call), call.in_size, strict=True), start=2):
        matrix = evaluate(AxisMap((step,)), size, arithmetic(call.dtype)).dense()
        result = torch.tensordot(result, matrix, dims=([dim], [0])).movedim(-1, dim)
    return result
