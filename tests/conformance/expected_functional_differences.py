"""Where `polyphase.functional` is expected to differ from eager on the CPU, and why: the whole list.

Resizes differ as the decompositions do (but for bicubic's gradients, which are eager's), so those lines are
`expected_differences.py`'s; the others are here. A call that a line applies to is not compared with eager but with the
reference (forward), with transposed taps (backward) or with the layout that the line says. A line that no call differs
by any more fails.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from polyphase.compile.eager_faults import Call
from polyphase.sampling.integers import SUMMED_IN, can_be_mixed
from polyphase.torch_versions import SAMPLES_VOLUMES_BY_BICUBIC
from tests.conformance import expected_differences as of_decompositions
from tests.conformance.functional import Asked


@dataclass(frozen=True, eq=False)
class Seen:
    """A call of the functional API, and the ATen calls that eager makes of it: None where we do not decompose them.

    `place`: of gradients, whose it is among the tensors.
    """

    asked: Asked
    forward: Call | None
    backward: Call | None = None
    place: int = 0


@dataclass(frozen=True)
class Difference:
    reason: str
    applies: Callable[[Seen], bool]


def find(differences: tuple[Difference, ...], seen: Seen) -> Difference | None:
    return next((line for line in differences if line.applies(seen)), None)


def _forward(line: of_decompositions.Difference) -> Difference:
    return Difference(line.reason, lambda seen: seen.forward is not None and line.applies(seen.forward))


def _backward(line: of_decompositions.Difference) -> Difference:
    return Difference(line.reason, lambda seen: seen.backward is not None and line.applies(seen.backward))


def _is_channels_last(image: Tensor) -> bool:
    suggested = torch._prims_common.suggest_memory_format(image)
    return suggested in (torch.channels_last, torch.channels_last_3d)


def _is_area(seen: Seen, axes: int) -> bool:
    return seen.asked.mode == "area" and seen.asked.image.dim() == axes + 2


def _area_adds_hundreds(seen: Seen) -> bool:
    if seen.asked.mode != "area" or seen.asked.image.dtype != torch.float32:
        return False
    before, after = math.prod(seen.asked.image.shape[2:]), math.prod(output_size(seen.asked))
    return after > 20 * before


def output_size(asked: Asked) -> tuple[int, ...]:
    """Of `interpolate`."""
    size, factor = asked.arguments["size"], asked.arguments["scale_factor"]
    before = asked.image.shape[2:]
    if size is not None:
        return tuple(size) if isinstance(size, (tuple, list)) else (size,) * len(before)
    factors = factor if isinstance(factor, (tuple, list)) else (factor,) * len(before)
    return tuple(int(n * by) for n, by in zip(before, factors, strict=True))


def padded_axes(asked: Asked) -> list[tuple[int, int, int]]:
    """Size, and what is added before and after, from the last axis on."""
    pairs = zip(asked.amounts[::2], asked.amounts[1::2], strict=True)
    return [(n, before, after) for n, (before, after) in zip(reversed(asked.image.shape), pairs, strict=False)]


#: Values.
FORWARD = tuple(map(_forward, of_decompositions.FORWARD))
#: Gradients' values.
BACKWARD = (
    *(_backward(line) for line in of_decompositions.BACKWARD if line is not of_decompositions.BICUBIC_BACKWARD),
    Difference("float32: eager adds hundreds of gradients one after the other, for area too", _area_adds_hundreds),
)

#: Ours are channels last wherever the image is, or the gradient that comes in, and contiguous elsewhere.
STRIDES = (
    Difference(
        "area: eager makes an image of a line, and transposed lines of channels look channels last then; ours are "
        "contiguous as in the other modes",
        lambda seen: _is_area(seen, 1) and _is_channels_last(seen.asked.image.unsqueeze(-2)),
    ),
    Difference(
        "circular pad: eager's is contiguous even where the image is channels last; ours follows it",
        lambda seen: seen.asked.mode == "circular" and _is_channels_last(seen.asked.image),
    ),
)
GRADIENT_STRIDES = (
    *STRIDES,
    Difference(
        "affine_grid: eager's gradient of theta is what a matrix product leaves, transposed; ours is contiguous",
        lambda seen: seen.asked.name == "affine_grid",
    ),
)

TABLES = {"forward": FORWARD, "backward": BACKWARD, "strides": STRIDES, "gradient strides": GRADIENT_STRIDES}


@dataclass(frozen=True)
class OtherOutcome:
    """Calls of which one has a result and the other an error, or both another error. `kind`: what ours does."""

    kind: Literal["takes it", "refuses it", "raises another error", "gives other values"]
    reason: str
    applies: Callable[[Asked], bool]


RARE_DTYPES = (torch.uint16, torch.uint32, torch.uint64, torch.complex32, torch.float8_e4m3fn)


def _is_our_mode(asked: Asked) -> bool:
    """A mode that eager does not have, or not for so many axes."""
    if asked.mode == "lanczos":
        return asked.image.dim() != 4
    return asked.mode in ("hamming", "box") or (asked.mode in ("linear", "trilinear") and asked.arguments["antialias"])


def _is_a_mean_or_nothing(asked: Asked) -> bool:
    return set(output_size(asked)) == {1} or 0 in (*asked.image.shape[:2], *output_size(asked))


def _stays_as_it_is(asked: Asked) -> bool:
    return (
        not can_be_mixed(asked.image.dtype)
        and asked.arguments["antialias"]
        and output_size(asked) == asked.image.shape[2:]
    )


def _crops_everything(asked: Asked) -> bool:
    return any(n + before + after == 0 for n, before, after in padded_axes(asked))


def _left(n: int, before: int, after: int) -> int:
    """How much of an axis is left, before anything is repeated."""
    return n + min(before, 0) + min(after, 0)


def _wraps_nothing(asked: Asked) -> bool:
    return asked.mode == "circular" and any(_left(*axis) < 1 <= max(axis[1:]) for axis in padded_axes(asked))


def _wraps_more_than_is_left(asked: Asked) -> bool:
    return asked.mode == "circular" and any(0 < _left(*axis) < max(axis[1:]) for axis in padded_axes(asked))


def _is_overlooked(asked: Asked) -> bool:
    size = asked.arguments["size"]
    return bool(asked.arguments["align_corners"]) and min(size) == 0 and min(size[2:]) == 1


VOLUMES_BEFORE_2_15 = (
    OtherOutcome("takes it", "volumes by bicubic", lambda asked: asked.mode == "bicubic" and asked.image.dim() == 5),
)
#: From then on, eager looks at the size before the dtype, and refuses a negative one.
PADS_BEFORE_2_15 = (
    OtherOutcome(
        "raises another error",
        "what they move has any dtype, so that ours complains of the size where eager does of the dtype",
        lambda asked: asked.image.dtype in (torch.bool, *RARE_DTYPES) and asked.mode in ("reflect", "replicate"),
    ),
    OtherOutcome(
        "refuses it",
        "a crop of more than there is; of an empty batch, eager's reflect has a result of negative size",
        lambda asked: asked.mode == "reflect" and any(sum(axis) < 0 for axis in padded_axes(asked)),
    ),
)

OTHER_OUTCOMES = {
    "interpolate": (
        OtherOutcome("takes it", "nearest moves every dtype", lambda asked: "nearest" in str(asked.mode)),
        OtherOutcome(
            "takes it",
            "uint8 in every mode",
            lambda asked: asked.image.dtype == torch.uint8 and asked.mode in ("area", "linear", "trilinear"),
        ),
        OtherOutcome("takes it", "int16, uint16 and int32 in every mode", lambda asked: asked.image.dtype in SUMMED_IN),
        OtherOutcome(
            "takes it",
            "antialiased float16 and bfloat16",
            lambda asked: asked.arguments["antialias"] and asked.image.dtype in (torch.float16, torch.bfloat16),
        ),
        OtherOutcome("takes it", "antialiased lines and volumes; lanczos of them; hamming and box", _is_our_mode),
        OtherOutcome(
            "refuses it",
            "area to one pixel is a mean in eager, of complex numbers too, and NaN where there are no pixels; an empty "
            "result is of any dtype there",
            lambda asked: asked.mode == "area" and _is_a_mean_or_nothing(asked),
        ),
        OtherOutcome(
            "refuses it",
            "an antialiased resize mixes pixels, even to the size the image has; there eager copies any dtype",
            _stays_as_it_is,
        ),
        OtherOutcome(
            "raises another error",
            "a mode that eager does not know, so that it has another complaint than the dtype or the missing antialias",
            _is_our_mode,
        ),
    ),
    "pad": (
        OtherOutcome(
            "takes it",
            "reflect and replicate move every dtype",
            lambda asked: asked.image.dtype in (torch.bool, *RARE_DTYPES) and asked.mode in ("reflect", "replicate"),
        ),
        *(PADS_BEFORE_2_15 if torch.__version__ < "2.15" else ()),
        OtherOutcome(
            "takes it",
            "a crop to nothing gives an empty image; eager's reflect and replicate raise where all axes end empty",
            lambda asked: asked.mode in ("reflect", "replicate") and _crops_everything(asked),
        ),
        OtherOutcome(
            "refuses it",
            "circular pad with nothing left to repeat; eager's result is uninitialised memory, or empty",
            _wraps_nothing,
        ),
        OtherOutcome(
            "gives other values",
            "circular pad of more than is left after the crop; eager's first pixels are uninitialised memory",
            _wraps_more_than_is_left,
        ),
        OtherOutcome(
            "takes it",
            "circular pad of more than is left after the crop; eager cannot copy within overlapping memory",
            _wraps_more_than_is_left,
        ),
    ),
    "grid_sample": (
        OtherOutcome("takes it", "uint8 in every mode", lambda asked: asked.image.dtype == torch.uint8),
        OtherOutcome("takes it", "int16, uint16 and int32 in every mode", lambda asked: asked.image.dtype in SUMMED_IN),
        OtherOutcome("takes it", "nearest moves every dtype", lambda asked: asked.mode == "nearest"),
        *(VOLUMES_BEFORE_2_15 if not SAMPLES_VOLUMES_BY_BICUBIC else ()),
        OtherOutcome(
            "takes it",
            "coordinates of float32 for half precision",
            lambda asked: asked.image.dtype.itemsize == 2 and asked.arguments["grid"].dtype == torch.float32,
        ),
    ),
    "affine_grid": (
        OtherOutcome(
            "refuses it",
            "a size with a 0; eager does not look for one where corners are aligned and a size is 1",
            _is_overlooked,
        ),
        OtherOutcome(
            "raises another error",
            "a size with a 0 that eager does not see, but whose batch is not theta's",
            _is_overlooked,
        ),
    ),
    "flip": (OtherOutcome("takes it", "flip moves every dtype", lambda asked: asked.image.dtype in RARE_DTYPES),),
}
