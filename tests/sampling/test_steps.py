from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from polyphase.errors import InvalidStepError, PolyphaseError, UnknownNameError
from polyphase.sampling.steps import Area, Flip, Nearest, Pad, Resize, Slice, Step, Weighted, output_size
from polyphase.sampling.windows import index_taps, weighted_taps
from tests.sampling.eager import TRUTH
from tests.sampling.strategies import index_steps, quick, sizes, weighted_steps

INVALID: list[tuple[type[Any], dict[str, Any], type[PolyphaseError], str]] = [
    (Resize, {"size": 4, "filter": "cubic"}, UnknownNameError, "filter without antialias 'cubic'.*bicubic, bilinear"),
    (Resize, {"size": 4, "filter": "lanczos"}, UnknownNameError, "filter without antialias 'lanczos'"),
    (
        Resize,
        {"size": 4, "filter": "nearest", "antialias": True},
        UnknownNameError,
        "antialias filter 'nearest'.*bicubic, bilinear, box, hamming, lanczos",
    ),
    (Resize, {"size": 0, "filter": "bilinear"}, InvalidStepError, "resize to 0 pixels.*at least 1"),
    (Resize, {"size": 4, "filter": "bilinear", "scale": 0.0}, InvalidStepError, "scale 0.0.*greater than 0"),
    (Resize, {"size": 4, "filter": "bilinear", "scale": -2.0}, InvalidStepError, "scale -2.0"),
    (Resize, {"size": 4, "filter": "bilinear", "scale": float("nan")}, InvalidStepError, "scale nan"),
    (Area, {"size": -1}, InvalidStepError, "resize to -1 pixels"),
    (Nearest, {"size": 0}, InvalidStepError, "resize to 0 pixels"),
    (Nearest, {"size": 3, "scale": 0.0}, InvalidStepError, "scale 0.0"),
    (
        Nearest,
        {"size": 3, "box": (2.0, 2.0)},
        InvalidStepError,
        r"box of \(2.0, 2.0\); it begins at 0 or later and ends",
    ),
    (Nearest, {"size": 3, "box": (-1, 2)}, InvalidStepError, r"box of \(-1, 2\)"),
    (Nearest, {"size": 3, "box": (0, float("nan"))}, InvalidStepError, "box of"),
    (Nearest, {"size": 3, "box": (0, float("inf"))}, InvalidStepError, "box of"),
    (Nearest, {"size": 3, "box": (0.0, 1.0, 2.0)}, InvalidStepError, "box of"),
    (Nearest, {"size": 3, "scale": 2.0, "box": (0, 1)}, InvalidStepError, "box of .* and a scale of 2.0"),
    (
        Resize,
        {"size": 3, "filter": "bilinear", "align_corners": True, "box": (0.5, 1.0)},
        InvalidStepError,
        "1.0 pixels or more",
    ),
    (Slice, {"start": 0, "stop": 4, "step": 0}, InvalidStepError, "slice step 0.*at least 1.*Flip"),
    (Slice, {"start": 0, "stop": 4, "step": -1}, InvalidStepError, "slice step -1.*at least 1"),
    (Slice, {"start": -1, "stop": 4}, InvalidStepError, "slice -1:4; 0 <= start <= stop"),
    (Slice, {"start": 5, "stop": 4}, InvalidStepError, "slice 5:4"),
    (Pad, {"before": 1, "after": 1, "mode": "mirror"}, UnknownNameError, "pad mode 'mirror'.*circular, constant"),
    (Pad, {"before": 1, "after": 1}, InvalidStepError, "'constant' with border 0.*number from 1"),
    (Pad, {"before": 1, "after": 1, "border": -1}, InvalidStepError, "'constant' with border -1"),
    (Pad, {"before": 1, "after": 1, "mode": "reflect", "border": 1}, InvalidStepError, "'reflect' with border 1"),
]


@pytest.mark.parametrize(("kind", "fields", "error", "message"), INVALID)
def test_invalid_step(kind: type[Any], fields: dict[str, Any], error: type[PolyphaseError], message: str) -> None:
    with pytest.raises(error, match=message):
        kind(**fields)


def test_negative_border_without_constant_mode() -> None:
    with pytest.raises(InvalidStepError, match="border -1"):
        Pad(1, 1, "reflect", border=-1)


UNFIT: list[tuple[Step, int, str]] = [
    (Resize(4, "bilinear"), 0, "resize an axis of 0 pixels"),
    (Area(4), 0, "resize an axis of 0 pixels"),
    (Nearest(4), 0, "resize an axis of 0 pixels"),
    (Nearest(4, box=(1, 8.5)), 8, r"a box of \(1.0, 8.5\) of an axis of 8 pixels; it ends beyond the axis"),
    (Slice(2, 9), 8, "slice 2:9 of an axis of 8 pixels; stop is beyond the end"),
    (Pad(8, 0, "reflect"), 8, r"reflect pad of \(8, 0\) on an axis of 8 pixels; at most 7 each side"),
    (Pad(0, 9, "circular"), 8, r"circular pad of \(0, 9\) on an axis of 8 pixels; at most 8 each side"),
    (Pad(1, 1, "replicate"), 0, "replicate pad of an empty axis; only a constant border"),
    (Pad(-5, -4, "replicate"), 8, r"pad \(-5, -4\) crops more than the 8 pixels"),
    (Pad(-5, -4, border=1), 8, r"pad \(-5, -4\) crops more than the 8 pixels"),
]


@pytest.mark.parametrize(("step", "in_size", "message"), UNFIT)
def test_step_that_does_not_fit_the_axis(step: Step, in_size: int, message: str) -> None:
    with pytest.raises(InvalidStepError, match=message):
        output_size(step, in_size)


FIT: list[tuple[Step, int, int]] = [
    (Resize(4, "bilinear"), 1, 4),
    (Flip(), 0, 0),
    (Slice(0, 0), 0, 0),
    (Slice(1, 8, 3), 8, 3),
    (Slice(1, 7, 3), 8, 2),
    (Pad(7, 7, "reflect"), 8, 22),
    (Pad(8, 8, "circular"), 8, 24),
    (Pad(100, 3, "replicate"), 1, 104),
    (Pad(2, 3, border=1), 0, 5),
    (Pad(-5, -3, "reflect"), 8, 0),
]


@pytest.mark.parametrize(("step", "in_size", "size"), FIT)
def test_output_size(step: Step, in_size: int, size: int) -> None:
    assert output_size(step, in_size) == size


@given(st.data())
@quick
def test_output_size_is_that_of_the_taps(data: st.DataObject) -> None:
    in_size = data.draw(sizes())
    index_only = data.draw(index_steps(in_size, border=1))
    weighted = data.draw(weighted_steps())
    assert not isinstance(index_only, Weighted)
    assert isinstance(weighted, Weighted)
    assert index_taps(index_only, in_size, TRUTH).out_size == output_size(index_only, in_size)
    assert weighted_taps(weighted, in_size, TRUTH).out_size == output_size(weighted, in_size)


def test_symbolic_sizes_are_not_asked() -> None:
    """A guard on a symbolic size would make the trace one for this size only."""
    from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv

    shape_env = ShapeEnv()
    symbol = shape_env.create_symbol(
        17, source=torch._dynamo.source.ConstantSource("n"), dynamic_dim=DimDynamic.DYNAMIC
    )
    n: Any = shape_env.create_symintnode(symbol, hint=17)
    for step in (Resize(n, "bilinear"), Area(n), Nearest(n), Slice(0, n), Pad(n, 1, "reflect"), Flip()):
        output_size(step, n)
    assert not shape_env.guards
