"""`accelerate(check=True)`: a call that our kernels took, compared with ATen's own kernel.

Values that are only moved, and integers, must have the same bits, and where everything lies must be the same. Sums of
floats may differ as `torch.testing.assert_close` allows, relative to the greatest value that was read or is there, and
those of warps by what the rounding of positions makes. In half precision eager is not one function: ours is compared
with ATen's own kernel in float32.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from polyphase.compile.eager_faults import Call, fault_of
from polyphase.decompositions.upsample import arguments_of
from polyphase.errors import DiffersFromEagerError
from polyphase.records.facts import HALF
from polyphase.torch_private import OpOverload
from polyphase.torch_versions import ROUNDS_LINEAR_POSITIONS_ONCE

#: Relative and absolute, as `torch.testing.assert_close` has them.
TOLERANCES = {
    torch.float16: (1e-3, 1e-5),
    torch.bfloat16: (1.6e-2, 1e-5),
    torch.float32: (1.3e-6, 1e-5),
    torch.float64: (1e-7, 1e-7),
}
_LINEAR = ("upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d")
#: What ATen's antialiased kernels on CUDA say of windows that are too long for them: nothing is there to compare with.
_NO_ROOM = "Too much shared memory required"

#: How steep a bicubic image of values from -1 to 1 can be, per pixel.
_STEEPEST = 4


def of_positions(sizes: Sequence[int], dtype: torch.dtype) -> float:
    """What the rounding of positions makes of values from -1 to 1: our kernels take one within a unit of its axis's
    last place of a whole or half pixel to lie there (`kSettled` in warp/positions.h)."""
    return _STEEPEST * sum(sizes) * torch.finfo(dtype).eps


def check(op: OpOverload, args: Sequence[Any], ours: Any, own: Callable[..., Any], moves: bool) -> None:
    """`own`: ATen's own kernel. `moves`: whether values are only moved. Raises where they differ."""
    call = Call(op, arguments_of(op, args, {}))
    if fault_of(call) is not None:
        return
    in_float = call.dtype in HALF and (not moves or "grid" in call.arguments)
    try:
        theirs = own(*[one.float() if in_float and isinstance(one, Tensor) else one for one in args])
    except RuntimeError as error:
        if _NO_ROOM not in str(error):
            raise
        return
    for place, (got, want) in enumerate(zip(_as_tuple(ours), _as_tuple(theirs), strict=True)):
        if got is None or want is None:
            continue
        want = want.to(got.dtype) if moves else want
        seen = _lies_otherwise(got, want) or _differs(got, want, moves or not got.is_floating_point(), call)
        if seen:
            which = f"result {place} of " if isinstance(ours, tuple) else ""
            raise DiffersFromEagerError(
                f"{which}{_described(call)}: {seen}. It is an error of ours, or one of PyTorch that is not known yet: "
                "please report it with this message; without accelerate(), PyTorch's own kernel runs"
            )


def _as_tuple(results: Any) -> tuple[Any, ...]:
    return results if isinstance(results, tuple) else (results,)


def _lies_otherwise(got: Tensor, want: Tensor) -> str | None:
    if got.shape != want.shape:
        return f"shape {tuple(got.shape)} instead of {tuple(want.shape)}"
    if _strides(got) != _strides(want):
        return f"strides {got.stride()} instead of {want.stride()}"
    return None


def _strides(tensor: Tensor) -> list[int]:
    """Lists the strides that matter."""
    if not tensor.numel():
        return []
    return [stride for n, stride in zip(tensor.shape, tensor.stride(), strict=True) if n > 1]


def _differs(got: Tensor, want: Tensor, to_the_bit: bool, call: Call) -> str | None:
    if not got.numel() or (got.dtype == want.dtype and torch.equal(_bits(got), _bits(want))):
        return None
    if to_the_bit:
        bytes_of_one = got.dtype.itemsize
        wrong = (_bits(got) != _bits(want)).view(*got.shape, bytes_of_one).any(-1)
        distance = (got != want).double() if got.is_complex() else (got.double() - want.double()).abs()
    else:
        distance = (got.double() - want.double()).abs()
        read = [one for one in call.arguments.values() if isinstance(one, Tensor)]
        finite = all(bool(one.isfinite().all()) for one in read)
        relative, absolute = TOLERANCES[got.dtype]
        if "grid" in call.arguments and not call.is_backward:
            absolute = max(absolute, of_positions(call.image.shape[2:], torch.promote_types(got.dtype, torch.float32)))
        elif call.name in _LINEAR and not ROUNDS_LINEAR_POSITIONS_ONCE:
            absolute = max(absolute, of_positions(call.image.shape[2:], want.dtype))
        scale = max(1.0, *map(_greatest, (want, *read)))
        same = (got == want) | (got.isnan() & want.isnan())
        same |= want.isnan() & (not finite)  # eager multiplies NaN and infinity by a weight of 0
        wrong = ~same & ~(distance <= absolute * scale + relative * want.abs().double())
    count = int(wrong.sum())
    if not count:
        return None
    worst = torch.where(wrong, distance.nan_to_num(nan=torch.inf), -1.0).flatten().argmax()
    where = tuple(int(one) for one in torch.unravel_index(worst, got.shape))
    return (
        f"{count} of {got.numel()} elements differ from those of ATen's own kernel, most at {where}: "
        f"{got[where].item()} instead of {want[where].item()}"
    )


def _bits(tensor: Tensor) -> Tensor:
    return tensor.contiguous().flatten().view(torch.uint8)


def _greatest(tensor: Tensor) -> float:
    if not tensor.numel() or not tensor.is_floating_point():
        return 0.0
    return float(tensor.abs().nan_to_num(nan=0.0, posinf=0.0, neginf=0.0).max())


def _described(call: Call) -> str:
    named = ", ".join(f"{name}={_short(value)}" for name, value in call.arguments.items())
    return f"aten.{call.name}({named})"


def _short(value: Any) -> str:
    if not isinstance(value, Tensor):
        return repr(value)
    return f"{str(value.dtype).removeprefix('torch.')} {tuple(value.shape)} with strides {value.stride()}"
