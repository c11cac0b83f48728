"""Tables as bytes: what the CPU makes in C++, and the plain twin."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from polyphase.calls.devices import wing_of
from polyphase.calls.rules import RULES
from polyphase.kernels.tables import TapBytes, tap_bytes
from polyphase.sampling.axis_maps import AxisMap
from polyphase.sampling.steps import Area, Flip, Nearest, Pad, Resize, Slice

MAPS = {
    "nothing": AxisMap(()),
    "flip": AxisMap((Flip(),)),
    "nearest": AxisMap((Nearest(13),)),
    "pad": AxisMap((Pad(2, 3, "constant", 1),)),
    "reflect": AxisMap((Pad(2, 3, "reflect"),)),
    "bilinear": AxisMap((Resize(33, "bilinear"),)),
    "bicubic, cropped": AxisMap((Resize(7, "bicubic"), Slice(1, 6))),
    "antialiased": AxisMap((Resize(7, "bilinear", antialias=True),)),
    "area": AxisMap((Area(6),)),
    "resize and pad": AxisMap((Resize(30, "bilinear", antialias=True), Flip(), Pad(1, 0, "constant", 1))),
}


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.uint8])
@pytest.mark.parametrize("name", MAPS)
def test_the_plain_twin(name: str, dtype: torch.dtype, transposed: bool) -> None:
    if transposed and dtype == torch.uint8:
        pytest.skip("rounded arithmetic has no adjoint")
    ours: TapBytes = wing_of(torch.device("cpu")).tap_bytes(MAPS[name], 20, dtype, transposed)
    twin = tap_bytes(MAPS[name], 20, dtype, RULES["cpu"], transposed)
    assert replace(ours, weight=b"") == replace(twin, weight=b"")
    weights = [torch.frombuffer(bytearray(one.weight) or bytearray(8), dtype=torch.float64) for one in (ours, twin)]
    eps = torch.finfo(dtype).eps if dtype.is_floating_point else 0
    torch.testing.assert_close(*weights, rtol=4 * eps, atol=eps)
