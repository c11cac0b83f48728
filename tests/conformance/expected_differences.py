"""Where our decompositions are expected to differ from eager on the CPU, and why: the whole list.

A call that a line applies to is not compared with eager but with the reference (forward) or with the transposed taps
of our own forward (backward). `docs/where-eager-is-wrong.md` tells the same to users, with reproducers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from polyphase.sampling import reference
from polyphase.sampling.axis_maps import AxisMap
from polyphase.sampling.evaluate import evaluate
from polyphase.sampling.programs import Axes, Program
from polyphase.sampling.steps import Nearest, Resize
from polyphase.sampling.windows import TapArithmetic, eager_arithmetic
from tests.conformance.decompose import Call


@dataclass(frozen=True)
class Difference:
    reason: str
    applies: Callable[[Call], bool]


def find(differences: Sequence[Difference], call: Call | None) -> Difference | None:
    """The line of a table that applies to a call."""
    if call is None:
        return None
    return next((line for line in differences if line.applies(call)), None)


def _is_nearest(call: Call) -> bool:
    return "nearest" in call.name


def _is_separable(call: Call) -> bool:
    """Run by eager's separable kernel: everything antialiased, and weighted uint8."""
    return "_aa" in call.name or (call.is_upsample and not _is_nearest(call) and call.dtype == torch.uint8)


def _is_channels_last(image: Tensor) -> bool:
    suggested = torch._prims_common.suggest_memory_format(image)
    return suggested in (torch.channels_last, torch.channels_last_3d)


def _to_one_column(call: Call) -> bool:
    if not _is_separable(call):
        return False
    height, width = call.out_size
    spared = _is_channels_last(call.image) and call.image.shape[1] > 1
    return width == 1 and height > 1 and not spared


def _one_column_transposed(call: Call) -> bool:
    return _is_separable(call) and call.dtype == torch.uint8 and call.in_size[-1] == 1 and call.image.stride(-1) != 1


def _keeps_a_size(call: Call) -> bool:
    """A scale is given that leaves the size of an axis as it is, though it is not 1."""
    if not call.is_upsample or call.align_corners:
        return False
    axes = zip(call.in_size, call.out_size, call.scales, strict=True)
    return any(before == after and scale not in (None, 1.0) for before, after, scale in axes)


def _doubles_a_size(call: Call) -> bool:
    axes = zip(call.in_size, call.out_size, call.scales, strict=True)
    return any(2 * before == after and scale not in (None, 2.0) for before, after, scale in axes)


def _on_an_edge(call: Call) -> bool:
    """Some output lies on the edge of two input pixels but for rounding, so any other rounding takes the other one."""
    offset = 0.5 if "exact" in call.name else 0.0
    for before, after, scale in zip(call.in_size, call.out_size, call.scales, strict=True):
        ratio = before / after if scale is None else 1 / scale
        if ratio == float(torch.tensor(ratio)):
            continue  # nothing is rounded
        place = (torch.arange(after, dtype=torch.float64) + offset) * ratio
        if bool((((place - place.round()).abs() < 1e-6 * place) & (place.round() > 0)).any()):
            return True
    return False


def _adds_hundreds(call: Call) -> bool:
    """A pixel's gradient is the sum of hundreds of others."""
    if not call.is_upsample:
        return False
    spread = 1.0
    for before, after in zip(call.in_size, call.out_size, strict=True):
        spread *= max(after / max(before, 1), 1)
    return call.dtype == torch.float32 and spread > 20


ONE_COLUMN_TRANSPOSED = Difference(
    "eager takes the wrong row stride for a transposed uint8 image one pixel wide", _one_column_transposed
)
"""What eager's AVX2 code does, and no other."""

FORWARD = (
    Difference("eager's separable kernel repeats the first row of an output one pixel wide", _to_one_column),
    ONE_COLUMN_TRANSPOSED,
    Difference(
        "a scale that leaves the size as it is: eager's nearest heeds it or not by rank, size, layout and channels; "
        "ours heeds it",
        lambda call: _is_nearest(call) and _keeps_a_size(call),
    ),
    Difference(
        "a scale other than 2 that doubles the size: eager's small 2-D nearest takes it for 2; ours heeds it",
        lambda call: _is_nearest(call) and _doubles_a_size(call),
    ),
    Difference(
        "float64 nearest: eager has a float32 ratio in small or channels-last 2-D, else a float64 ratio; ours always "
        "has the latter",
        lambda call: _is_nearest(call) and call.dtype == torch.float64 and _on_an_edge(call),
    ),
    Difference(
        "nearest-exact: eager computes (i + 0.5) * ratio in small or channels-last 2-D, else "
        "ratio * (i + 0.5) - 0.5 + 0.5; ours is always the latter",
        lambda call: "nearest_exact" in call.name and _on_an_edge(call),
    ),
)

BICUBIC_BACKWARD = Difference(
    "float32 bicubic: eager's backward rounds coordinates twice where its forward rounds once, so it is not quite its "
    "adjoint",
    lambda call: call.name == "upsample_bicubic2d_backward" and call.dtype == torch.float32,
)

BACKWARD = (
    Difference(
        "a scale that leaves the size as it is: eager's nearest and bicubic backwards ignore it, its antialiased "
        "backwards do not, each unlike its forward; ours are the adjoints of our forwards",
        lambda call: _keeps_a_size(call) and (_is_nearest(call) or "bicubic" in call.name or "_aa" in call.name),
    ),
    Difference(
        "a scale other than 2 that doubles the size: eager's nearest backward takes it for 2; ours heeds it",
        lambda call: _is_nearest(call) and _doubles_a_size(call),
    ),
    Difference(
        "nearest: eager goes backward with a float32 ratio and, if exact, (i + 0.5) * ratio, whatever it did forward; "
        "ours is its own adjoint",
        lambda call: _is_nearest(call) and _on_an_edge(call) and (call.dtype == torch.float64 or "exact" in call.name),
    ),
    Difference(
        "float32: eager adds hundreds of gradients one after the other; ours is closer to float64, up to 800 times",
        _adds_hundreds,
    ),
    BICUBIC_BACKWARD,
)

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
        lambda call: call.name in CONTIGUOUS_GRADIENTS and _is_channels_last(call.image),
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
