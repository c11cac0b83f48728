"""Without values: shapes, dtypes and strides on meta and fake tensors are eager's."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from tests.decompositions.calls import Call, calls

FORWARDS = [call for call in (*calls(torch.float32), *calls(torch.uint8)) if "backward" not in call.op.name()]
FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}


def chosen() -> list[Any]:
    """Aligned corners change values, and neither shapes nor strides: they are for the full run."""
    return [
        pytest.param(call, last, id=f"{last}-{call}", marks=pytest.mark.full if "ac=T" in call.label else ())
        for last in (False, True)
        for call in FORWARDS
        if not last or call.tensors((8, 9, 7))[0].dim() in FORMATS
    ]


@pytest.mark.parametrize(("call", "channels_last"), chosen())
def test_fake_and_meta(call: Call, channels_last: bool) -> None:
    image, *others = call.tensors((8, 9, 7), (2, 3))
    if channels_last:
        image = image.contiguous(memory_format=FORMATS[image.dim()])
    want = call.eager(image, *others)
    with FakeTensorMode() as mode:
        fake = call.decomposed(*(mode.from_tensor(tensor) for tensor in (image, *others)))
    meta = call.decomposed(*(tensor.to("meta") for tensor in (image, *others)))
    for got in (fake, meta):
        assert (got.shape, got.dtype, got.stride()) == (want.shape, want.dtype, want.stride())
