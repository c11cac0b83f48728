"""Where eager's own kernels on the CPU are known to be wrong, or to contradict themselves, and ours differ from them.

`accelerate(check=True)` does not compare such calls, nor do our tests, which compare them with the reference.
`docs/where-eager-is-wrong.md` tells the same to users, with reproducers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from polyphase import torch_private
from polyphase.records.layout import is_channels_last
from polyphase.torch_private import OpOverload


@dataclass(frozen=True, eq=False)
class Call:
    """One call of an ATen overload, its arguments by name."""

    overload: OpOverload
    arguments: dict[str, Any]

    @property
    def name(self) -> str:
        """`upsample_nearest2d_backward` for `aten::upsample_nearest2d_backward`."""
        return str(torch_private.schema_of(self.overload).name).partition("::")[2]

    @property
    def is_backward(self) -> bool:
        return self.name.endswith("_backward")

    @property
    def is_upsample(self) -> bool:
        return "upsample" in self.name

    @property
    def image(self) -> Tensor:
        """The image, or the gradient that comes into a backward."""
        tensor: Tensor = next(value for value in self.arguments.values() if isinstance(value, Tensor))
        return tensor

    @property
    def dtype(self) -> torch.dtype:
        return self.image.dtype

    @property
    def in_size(self) -> tuple[int, ...]:
        return tuple(self.arguments["input_size"] if self.is_backward else self.image.shape)[2:]

    @property
    def out_size(self) -> tuple[int, ...]:
        return tuple(self.arguments["output_size"])

    @property
    def scales(self) -> tuple[float | None, ...]:
        """The scale of each axis, None where the sizes give it."""
        values = [value for name, value in self.arguments.items() if name.startswith("scales")]
        return tuple(value if value and value > 0 else None for value in values)

    @property
    def align_corners(self) -> bool:
        return bool(self.arguments.get("align_corners", False))


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
    return is_channels_last(image.shape, image.stride())


def _to_one_column(call: Call) -> bool:
    if not _is_separable(call):
        return False
    height, width = call.out_size
    spared = _is_channels_last(call.image) and call.image.shape[1] > 1
    return width == 1 and height > 1 and not spared


def _one_column_transposed(call: Call) -> bool:
    """Eager goes from pixel to pixel by the last stride, which need not be the way from row to row in one column. Three
    or four interleaved channels it reads as they lie, and what is dense in neither memory format it copies first."""
    image = call.image
    if not (_is_separable(call) and call.dtype == torch.uint8 and image.shape[1] <= 4):
        return False
    two_interleaved = image.shape[1] == 2 and image.is_contiguous(memory_format=torch.channels_last)
    dense = image.is_contiguous() or two_interleaved
    height, width = call.in_size
    return dense and width == 1 < height and image.stride(-1) != image.stride(-2)


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
)


def _sums_of_area(call: Call) -> float:
    """How many pixels, or gradients, one of the other side is the sum of."""
    after, before = (math.prod(size) for size in _area_sizes(call))
    return max(after, before) / max(min(after, before), 1)


def _area_sizes(call: Call) -> tuple[Sequence[int], Sequence[int]]:
    if call.is_backward:
        axes = call.image.dim() - 2 if call.image.dim() > 3 else call.image.dim() - 1
        return call.image.shape[-axes:], call.arguments["self"].shape[-axes:]
    after = call.arguments["output_size"]
    return after, call.image.shape[-len(after) :]


def _adds_a_corner(call: Call) -> bool:
    """What a corner of a replicate pad repeats."""
    if not (call.is_backward and call.name.startswith("replication")):
        return False
    amounts: Sequence[int] = call.arguments["padding"]
    repeated = [1 + max(pair) for pair in zip(amounts[::2], amounts[1::2], strict=True)]
    return math.prod(repeated) > 20


def _has_nan_coordinates(call: Call) -> bool:
    grid = call.arguments.get("grid")
    return isinstance(grid, Tensor) and not bool(grid.isfinite().all())


#: Of operators that our decompositions have no part in.
OTHERS = (
    Difference(
        "float32 area: eager adds hundreds of pixels, or gradients, one after the other",
        lambda call: "adaptive_avg_pool" in call.name and call.dtype == torch.float32 and _sums_of_area(call) > 20,
    ),
    Difference(
        "float32 replicate pad: eager adds the gradients of a corner one after the other",
        lambda call: call.dtype == torch.float32 and _adds_a_corner(call),
    ),
    Difference(
        "a coordinate that is not finite: eager's grid_sample of images and of volumes disagree",
        _has_nan_coordinates,
    ),
)


def fault_of(call: Call) -> Difference | None:
    """Finds the fault of eager's own kernel at a call, if it is a known one."""
    return find((*(BACKWARD if call.is_backward else FORWARD), *OTHERS), call)
