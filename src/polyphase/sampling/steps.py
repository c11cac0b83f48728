"""The steps an image axis can go through, as frozen data. A chain of them is an axis map.

Weighted steps mix neighbouring pixels; index-only steps move them. Sizes may be symbolic (`torch.SymInt`), so that one
traced decomposition serves every size.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias, cast

from polyphase.errors import InvalidStepError, UnknownNameError
from polyphase.sampling import filters

#: A number of pixels. Also a torch.SymInt, which behaves like an int, wherever a decomposition is traced; and a
#: SizeSlot in a program for any size.
Size: TypeAlias = int

#: The part of an axis that is resized, in pixels and fractions of them: where it begins and where it ends. Pixels
#: outside of it are there all the same, for a filter that reaches them.
Box: TypeAlias = tuple[float, float]

PAD_MODES = ("constant", "reflect", "replicate", "circular", "symmetric")


@dataclass(frozen=True)
class SizeSlot:
    """The `number`-th of the sizes a program is given when it runs (`templates.py`)."""

    number: int


def size_slot(number: int) -> Size:
    return cast(Size, SizeSlot(number))


@dataclass(frozen=True)
class Resize:
    """Resample to `size` pixels with a filter.

    `scale` is the user's scale_factor (output over input), used instead of the ratio of the sizes; like PyTorch,
    align_corners ignores it. `box`: what becomes `size` pixels, if not the whole axis; aligned corners are the centres
    of its first and its last pixel. `first`: bytes are summed along this axis, and rounded, before they are along later
    ones; else along later ones first.
    """

    size: Size
    filter: str
    antialias: bool = False
    align_corners: bool = False
    scale: float | None = None
    box: Box | None = None
    first: bool = False

    def __post_init__(self) -> None:
        _scale_as_float(self)
        _check_box(self, least=1.0 if self.align_corners else 0.0)
        allowed = filters.ANTIALIAS if self.antialias else filters.PLAIN
        if self.filter not in allowed:
            kind = "antialias filter" if self.antialias else "filter without antialias"
            raise UnknownNameError(kind, self.filter, allowed)
        _check_positive(self.size, self.scale)


@dataclass(frozen=True)
class Area:
    """The mean of the input pixels each output pixel touches (adaptive average pooling)."""

    size: Size

    def __post_init__(self) -> None:
        _check_positive(self.size)


@dataclass(frozen=True)
class Nearest:
    """One input pixel per output pixel. `exact` takes the pixel under the output pixel's centre, not its corner."""

    size: Size
    exact: bool = False
    scale: float | None = None
    box: Box | None = None

    def __post_init__(self) -> None:
        _scale_as_float(self)
        _check_box(self)
        _check_positive(self.size, self.scale)


@dataclass(frozen=True)
class Flip:
    """Back to front."""


@dataclass(frozen=True)
class Slice:
    """Pixels start, start + step, ... below stop; 0 <= start <= stop, step >= 1."""

    start: Size
    stop: Size
    step: int = 1

    def __post_init__(self) -> None:
        if self.step < 1:
            raise InvalidStepError(f"slice step {self.step}; it must be at least 1: use Flip to go backwards")
        if _known(self.start, self.stop) and not 0 <= self.start <= self.stop:
            raise InvalidStepError(f"slice {self.start}:{self.stop}; 0 <= start <= stop: resolve negative bounds first")


@dataclass(frozen=True)
class Pad:
    """`before` and `after` more pixels; negative numbers crop.

    A constant border is not a value of the axis: `border` numbers the program's list of border values, from 1.
    """

    before: Size
    after: Size
    mode: str = "constant"
    border: int = 0

    def __post_init__(self) -> None:
        if self.mode not in PAD_MODES:
            raise UnknownNameError("pad mode", self.mode, PAD_MODES)
        if self.border < 0 or (self.mode == "constant") != (self.border > 0):
            raise InvalidStepError(
                f"pad mode {self.mode!r} with border {self.border}; "
                "a constant border has a number from 1, every other mode has none"
            )


Weighted: TypeAlias = Resize | Area
IndexOnly: TypeAlias = Nearest | Flip | Slice | Pad
Step: TypeAlias = Weighted | IndexOnly


def output_size(step: Step, in_size: Size) -> Size:
    """The length of an axis of `in_size` pixels after the step; raises where the step does not fit the axis."""
    match step:
        case Resize() | Area() | Nearest():
            if isinstance(in_size, int) and in_size < 1:
                raise InvalidStepError(f"cannot resize an axis of {in_size} pixels; give it at least one")
            if not isinstance(step, Area) and step.box is not None and _known(in_size) and step.box[1] > in_size:
                raise InvalidStepError(f"a box of {step.box} of an axis of {in_size} pixels; it ends beyond the axis")
            return step.size
        case Flip():
            return in_size
        case Slice(start, stop, stride):
            if _known(stop, in_size) and stop > in_size:
                raise InvalidStepError(f"slice {start}:{stop} of an axis of {in_size} pixels; stop is beyond the end")
            return (stop - start + stride - 1) // stride
        case Pad(before, after):
            _check_pad(step, in_size)
            return before + in_size + after


def _check_pad(step: Pad, in_size: Size) -> None:
    if not _known(step.before, step.after, in_size):
        return
    most = in_size - 1 if step.mode == "reflect" else in_size
    if step.mode in ("reflect", "circular", "symmetric") and max(step.before, step.after) > most:
        raise InvalidStepError(
            f"{step.mode} pad of ({step.before}, {step.after}) on an axis of {in_size} pixels; at most {most} each side"
        )
    if step.mode != "constant" and in_size < 1:
        raise InvalidStepError(f"{step.mode} pad of an empty axis; only a constant border can be put around nothing")
    left = in_size - max(-step.before, 0) - max(-step.after, 0)
    if step.mode == "circular" and left < 1 and max(step.before, step.after) > 0:
        raise InvalidStepError(
            f"circular pad ({step.before}, {step.after}) leaves nothing of the {in_size} pixels there are to repeat"
        )
    if step.before + in_size + step.after < 0:
        raise InvalidStepError(f"pad ({step.before}, {step.after}) crops more than the {in_size} pixels there are")


def _check_positive(size: Size, scale: float | None = None) -> None:
    if _known(size) and size < 1:
        raise InvalidStepError(f"resize to {size} pixels; the output size must be at least 1")
    if scale is not None and not 0 < scale < math.inf:
        raise InvalidStepError(f"scale {scale}; a scale factor must be finite and greater than 0")


def _scale_as_float(step: Resize | Nearest) -> None:
    """2 and 2.0 are one scale, with one text."""
    if isinstance(step.scale, int):
        object.__setattr__(step, "scale", float(step.scale))


def _check_box(step: Resize | Nearest, least: float = 0.0) -> None:
    """Makes one of two floats, neither of them -0.0: equal boxes have one text."""
    if step.box is None:
        return
    if len(step.box) != 2 or not (0 <= step.box[0] < step.box[1] < math.inf and least <= step.box[1] - step.box[0]):
        raise InvalidStepError(
            f"a box of {step.box}; it begins at 0 or later and ends after that, {least} pixels or more from there"
        )
    if step.scale is not None:
        raise InvalidStepError(f"a box of {step.box} and a scale of {step.scale}; the box and the size give the scale")
    begin, end = step.box
    object.__setattr__(step, "box", (begin + 0.0, float(end)))


def _known(*sizes: Size) -> bool:
    """Only plain integers are checked: asking a symbolic size would specialise the trace, and a slot has no value."""
    for size in sizes:  # noqa: SIM110 a generator takes longer, and this is asked for every new size
        if not isinstance(size, int):
            return False
    return True
