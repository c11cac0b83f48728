"""Without values: shapes, dtypes and strides on meta and fake tensors are eager's."""

from __future__ import annotations

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from tests.decompositions.calls import Call, calls

FORWARDS = [call for call in (*calls(torch.float32), *calls(torch.uint8)) if "backward" not in call.op.name()]
FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}


@pytest.mark.parametrize("call", FORWARDS, ids=str)
@pytest.mark.parametrize("channels_last", [False, True])
def test_fake_and_meta(call: Call, channels_last: bool) -> None:
    image, *others = call.tensors((8, 9, 7), (2, 3))
    if channels_last and image.dim() in FORMATS:
        image = image.contiguous(memory_format=FORMATS[image.dim()])
    want = call.eager(image, *others)
    with FakeTensorMode() as mode:
        fake = call.decomposed(*(mode.from_tensor(tensor) for tensor in (image, *others)))
    meta = call.decomposed(*(tensor.to("meta") for tensor in (image, *others)))
    for got in (fake, meta):
        assert (got.shape, got.dtype, got.stride()) == (want.shape, want.dtype, want.stride())
