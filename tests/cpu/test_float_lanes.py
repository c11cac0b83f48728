"""Both passes over float rows at once, against one after the other: the same bits."""

import ctypes
import functools
from typing import Any

import pytest
import torch

from polyphase.cpu import build, isa
from polyphase.records.recipes import encode
from polyphase.sampling.axis_maps import AxisMap
from polyphase.sampling.steps import Resize

HARNESS = """
#include "polyphase/resample/floats.h"
#include "polyphase/taps/weights.h"

using namespace polyphase;

// False where there is one way alone.
extern "C" __attribute__((visibility("default"))) bool both_ways(
    const Step* step, int64_t in_size, int64_t channels, const float* const* rows, const float* weights, int count,
    float* summed, float* by_passes, float* at_once) {
  TapTable table;
  Weights<TapArithmetic::kFloat32>::weigh(step, step, in_size, true, {nullptr, 0, 1, step->a}, &table);
  const FloatLanes<float> lanes(table.view(), channels, channels, sizeof(float));
  if (!lanes.sums_rows()) return false;
  vertical(rows, weights, count, summed, in_size * channels);
  lanes.run(summed, by_passes, nullptr);
  lanes.run_sum(rows, weights, count, at_once, nullptr);
  return true;
}
"""
CHANNELS = [1, 2, 3, 4, 9, 16, 20, 33, 64, 70, 130]
SIZES = [(33, 17), (40, 32), (64, 51), (100, 60), (100, 80), (131, 70), (400, 256), (456, 270), (90, 100)]


@functools.cache
def harness(level: str) -> Any:
    function = ctypes.CDLL(str(build.library(HARNESS, level, stem="test_float_lanes"))).both_ways
    function.restype = ctypes.c_bool
    return function


def pointer(tensor: torch.Tensor) -> ctypes.c_void_p:
    return ctypes.c_void_p(tensor.data_ptr())


@pytest.mark.parametrize("level", isa.available())
def test_at_once_is_one_after_the_other(level: str) -> None:
    torch.manual_seed(0)
    compared = 0
    for in_size, out_size in SIZES:
        for channels in CHANNELS:
            for antialias in (False, True):
                for count in range(1, 5):
                    step = encode(AxisMap((Resize(out_size, "bilinear", antialias=antialias),)))
                    rows = torch.randn(count, in_size * channels)
                    rows[torch.rand_like(rows) < 0.01] = torch.nan
                    rows[torch.rand_like(rows) < 0.01] = -torch.inf
                    weights, summed = torch.rand(count), torch.empty(in_size * channels)
                    by_passes, at_once = torch.empty(2, out_size * channels)
                    pointers = (ctypes.c_void_p * count)(*(row.data_ptr() for row in rows))
                    results = map(pointer, (summed, by_passes, at_once))
                    sizes = ctypes.c_int64(in_size), ctypes.c_int64(channels)
                    if harness(level)(step, *sizes, pointers, pointer(weights), count, *results):
                        compared += 1
                        assert torch.equal(at_once.view(torch.int32), by_passes.view(torch.int32)), (
                            in_size,
                            out_size,
                            channels,
                        )
    assert compared > 20
