"""Whether a drawn call ends as it should, in every way in: eager's result, or an error that is eager's or ours.

Bits are compared where values are moved or are integers, floats by DESIGN.md's tolerances. What eager is known to do
wrong is listed in `tests/conformance/expected_*.py`; such calls are held against the reference there.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

import polyphase.functional as P
from polyphase import accelerate
from polyphase.compile.checked import of_positions
from polyphase.errors import PolyphaseError
from tests.conformance import expected_functional_differences as expected
from tests.conformance.checks import HALF, Case, close, same_bits
from tests.conformance.expected_functional_differences import OTHER_OUTCOMES
from tests.conformance.functional import asked
from tests.conformance.functional_checks import (
    Pair,
    gradient_failures,
    gradient_strides_failure,
    gradients,
    greatest,
    outputs,
    strides_failure,
    values_failures,
)
from tests.conformance.test_functional_outcomes import kind_of_difference
from tests.hostile.drawn import Drawn
from tests.support.eager import grid_sample

EAGER: dict[str, Callable[..., Tensor]] = {
    "interpolate": F.interpolate,
    "pad": F.pad,
    "flip": torch.flip,
    "grid_sample": F.grid_sample,
}


def wrong_with(call: Drawn) -> list[str]:
    """Nothing, if all is well."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if call.function in EAGER:
            return _against_eager(call)
        return _against_its_meaning(call)


def outcome(function: Callable[..., Tensor], *args: Any, **options: Any) -> Tensor | Exception:
    try:
        return function(*args, **options)
    except Exception as error:
        return error


def _against_eager(call: Drawn) -> list[str]:
    function, theirs = getattr(P, call.function), EAGER[call.function]
    ours, eager = (outcome(one, *call.tensors, **call.options) for one in (function, theirs))
    with accelerate():
        for _ in range(5):  # the first ones by Python, the last by what is known then
            accelerated = outcome(theirs, *call.tensors, **call.options)
    if isinstance(eager, Exception) and "INTERNAL ASSERT FAILED" in str(eager):
        return []  # a fault of eager's: docs/where-eager-is-wrong.md
    found = [_accelerated_otherwise(call, accelerated, ours, eager)]
    if isinstance(ours, Exception) and not isinstance(ours, PolyphaseError) and repr(ours) != repr(eager):
        found.append(f"an error that is not ours: {ours!r}")
    if isinstance(ours, Exception) or isinstance(eager, Exception):
        given = asked(function, *call.tensors, **call.options)
        kind = kind_of_difference(ours, eager, comparable=False)
        if kind and not any(line.kind == kind and line.applies(given) for line in OTHER_OUTCOMES[call.function]):
            found.append(f"ours {kind}: {ours!r:.200}; eager: {eager!r:.200}")
    else:
        found += _compared(call)
    return [one for one in found if one]


def _accelerated_otherwise(
    call: Drawn, accelerated: Tensor | Exception, ours: Tensor | Exception, eager: Tensor | Exception
) -> str | None:
    """Accelerated calls are eager's in outcome; in values they are our function's, or ATen's own kernel's."""
    if isinstance(accelerated, Exception) or isinstance(eager, Exception):
        same = type(accelerated) is type(eager) and str(accelerated)[:60] == str(eager)[:60]
        return None if same else f"accelerated {accelerated!r:.200}; eager {eager!r:.200}"
    if (accelerated.shape, accelerated.dtype) != (eager.shape, eager.dtype):
        return f"accelerated {accelerated.dtype} {tuple(accelerated.shape)}, eager {eager.dtype} {tuple(eager.shape)}"
    keeps_strides = call.function == "flip" or call.options.get("mode") == "constant"
    if keeps_strides and accelerated.stride() != eager.stride():
        return f"accelerated strides {accelerated.stride()}, eager's {eager.stride()}"
    if not eager.numel():  # and now and then of a negative size: docs/where-eager-is-wrong.md
        return None
    if call.options.get("mode") == "circular":  # not replaced, and now and then uninitialised memory
        return None
    others = [one for one in (ours, eager) if isinstance(one, Tensor)]
    return None if any(same_bits(accelerated, one) is None for one in others) else "accelerated has other values"


def _compared(call: Drawn) -> list[str | None]:
    moves = call.function in ("flip", "pad") or "nearest" in call.options.get("mode", "")
    theirs = EAGER[call.function]
    case = Case(str(call), lambda *tensors: theirs(*tensors, **call.options), call.tensors, index_only=moves)
    pair = outputs(case)
    if _gives_other_values(call):
        return []
    if not pair.eager.numel():  # nothing that could lie elsewhere: its shape and dtype
        return [close(pair.ours, pair.eager)]
    if case.dtype in HALF and (call.function == "grid_sample" or not moves):
        found: list[str | None] = [strides_failure(pair), _half_failure(pair)]
    elif call.function == "grid_sample" and not moves:
        found = [strides_failure(pair), _warp_failure(pair)]
    else:
        found = [strides_failure(pair), *values_failures(pair)]
    if case.dtype in (torch.float32, torch.float64) and pair.ours.numel() > 0 and case.tensors[0].numel() < 10**6:
        for one in gradients(case):
            found += [gradient_strides_failure(one)]
            found += [_warp_gradient_failure(one)] if call.function == "grid_sample" else gradient_failures(one)
    return found


def _warp_failure(pair: Pair) -> str | None:
    """Values lie between 0 and 1; positions far outside are rounded to as many places, and reflected."""
    image = pair.case.tensors[0]
    tolerance = max(1e-5, of_positions(image.shape[2:], pair.ours.dtype) * _farthest(pair))
    return close(pair.ours, pair.eager, rtol=1.3e-6, atol=tolerance)


def _farthest(pair: Pair) -> float:
    """By how much positions are larger than the image before they are reflected."""
    reflected = pair.seen.asked.arguments["padding_mode"] == "reflection"
    return max(greatest(pair.case.tensors[1]), 1) if reflected else 1


def _warp_gradient_failure(pair: Pair) -> str | None:
    """A coordinate's gradient is a difference of neighbours, times the image's size, summed over channels: what is left
    of it where they are equal is rounding, and weights come of positions that are rounded to a place of the image's
    sizes. A pixel's is a sum over any number of outputs, in any order."""
    _, channels, *sizes = pair.case.tensors[0].shape
    of_coordinates = channels * max(sizes) * max(8, sum(sizes) / 4) * _farthest(pair)
    of_pixels = 256 * max(greatest(pair.eager), 1) * _farthest(pair)
    terms = of_coordinates if pair.seen.place else of_pixels
    return close(pair.ours, pair.eager, rtol=1e-5, atol=terms * torch.finfo(pair.ours.dtype).eps)


def _gives_other_values(call: Drawn) -> bool:
    given = asked(getattr(P, call.function), *call.tensors, **call.options)
    return any(line.kind == "gives other values" and line.applies(given) for line in OTHER_OUTCOMES[call.function])


def _half_failure(pair: Pair) -> str | None:
    """Eager is not one function in half precision. Ours is float32 rounded once."""
    if expected.find(expected.FORWARD, pair.seen) is not None:
        return None
    truth = pair.case.run(torch.float32)
    if pair.case.index_only:
        return same_bits(pair.ours, truth.to(pair.ours.dtype))
    eps = torch.finfo(pair.ours.dtype).eps
    return close(pair.ours.float(), truth, rtol=eps, atol=max(2e-4, eps * 1e-2))


def _against_its_meaning(call: Drawn) -> list[str]:
    """Functions that eager has not."""
    ours = outcome(getattr(P, call.function), *call.tensors, **call.options)
    meant = outcome(MEANING[call.function], *call.tensors, **call.options)
    if isinstance(ours, Exception) or isinstance(meant, Exception):
        refused = isinstance(ours, PolyphaseError) and (
            isinstance(meant, Exception) or 0 in call.options.get("size", ())
        )
        return [] if refused else [f"ours {ours!r:.200}; meant {meant!r:.200}"]
    if ours.dtype != call.tensors[0].dtype:
        return [f"{ours.dtype}"]
    if call.function == "crop":
        failure = same_bits(ours, meant)
    else:
        # A matrix leads to positions directly: a float32 grid is off by its last place, times the image's size.
        longest = max(call.tensors[0].shape[2:])
        tolerance = 1e-5 * longest if ours.dtype == torch.float32 else 1e-9 * longest
        failure = close(ours.double(), meant, rtol=tolerance, atol=tolerance * max(greatest(meant), 1))
    return [failure] if failure else []


def _cropped(image: Tensor, top: int, left: int, height: int, width: int) -> Tensor:
    result = image.new_zeros(*image.shape[:-2], height, width)
    for row in range(max(top, 0), min(top + height, image.shape[-2])):
        first, last = max(left, 0), min(left + width, image.shape[-1])
        if first < last:
            result[..., row - top, first - left : last - left] = image[..., row, first:last]
    return result


def _composed(image: Tensor, theta: Tensor, size: Any, mode: str, padding_mode: str, align_corners: bool) -> Tensor:
    grid = F.affine_grid(theta.double(), size, align_corners)
    return grid_sample(image.double(), grid, mode, padding_mode, align_corners)


MEANING: dict[str, Callable[..., Tensor]] = {"crop": _cropped, "affine_sample": _composed}
