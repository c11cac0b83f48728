"""Our rules for memory formats are torch's."""

from __future__ import annotations

import itertools

import pytest
import torch

from polyphase.records.facts import facts
from polyphase.records.layout import dense_strides, is_channels_last, order_on, output_strides
from polyphase.sampling.axis_maps import AxisMap
from polyphase.sampling.programs import maps_program
from polyphase.sampling.steps import Area, Flip, Pad, Step
from tests.support.samples import LAYOUTS, image

SHAPES = [
    *itertools.product((1, 2), (1, 3), (1, 4), (1, 5)),
    *itertools.product((1, 2), (1, 3), (1, 2), (1, 4), (1, 5)),
    *((2, 3, 7), (3, 4), (5,), (2, 2, 2, 2, 2, 2), (0, 3, 4, 5), (2, 0, 4, 5), (2, 3, 0, 5)),
]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", [shape for shape in SHAPES if len(shape) > 3])
def test_channels_last_is_what_torch_suggests(shape: tuple[int, ...], layout: str) -> None:
    for tensor in (image(shape, layout=layout), image(shape, layout=layout).as_strided(shape, [0] * len(shape))):
        suggested = torch._prims_common.suggest_memory_format(tensor)
        assert is_channels_last(tensor.shape, tensor.stride()) == (suggested != torch.contiguous_format)


@pytest.mark.parametrize("shape", SHAPES)
def test_strides_are_those_torch_gives(shape: tuple[int, ...]) -> None:
    assert dense_strides(shape, False) == torch.empty(shape).stride()
    if len(shape) in (4, 5):
        last = torch.channels_last if len(shape) == 4 else torch.channels_last_3d
        assert dense_strides(shape, True) == torch.empty(shape, memory_format=last).stride()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_flips_keep_dense_strides(layout: str) -> None:
    tensor = image((2, 3, 5, 7), layout=layout)
    flip = maps_program(tensor.dtype, (AxisMap((Flip(),)),))
    assert output_strides(flip, facts(tensor), tensor.shape) == tensor.flip(-1).stride()


@pytest.mark.parametrize(
    ("step", "device", "forward", "gradient"),
    [
        (Pad(1, 2, "reflect", 0), "cpu", None, None),
        (Pad(1, 2, "reflect", 0), "cuda", "contiguous", "contiguous"),
        (Pad(1, 2, "replicate", 0), "cuda", None, "contiguous"),
        (Pad(1, 2, "constant", 1), "cuda", None, None),
        (Area(4), "cuda", None, None),
    ],
)
def test_orders_of_eager_on_a_device(step: Step, device: str, forward: str | None, gradient: str | None) -> None:
    """As eager's kernels make them; on a GPU, `tests/cuda/on_gpu.py` compares."""
    maps = (AxisMap((step,)), AxisMap(()))
    assert order_on(torch.device(device), maps, transposed=False) == forward
    assert order_on(torch.device(device), maps, transposed=True) == gradient
