"""Rows that are flipped: no table is read for each block, and the row that comes next is fetched meanwhile."""

import ctypes
import functools
from typing import Any

import pytest
import torch

from polyphase.cpu import build, isa

HARNESS = """
#include "polyphase/resample/pick.h"

using namespace polyphase;

#if defined(POLYPHASE_BYTE_SHUFFLES)
extern "C" __attribute__((visibility("default"))) const bool picks_bytes = true;
#else
extern "C" __attribute__((visibility("default"))) const bool picks_bytes = false;
#endif

extern "C" __attribute__((visibility("default"))) bool has_one_table(const int32_t* pixels, const int32_t* ascending,
                                                                     int64_t out_size, int64_t in_size, int64_t pixel) {
  const Taps taps = {in_size, out_size, ascending, pixels, nullptr, nullptr, 0, 1};
  return PickLanes(taps, 1, 1, pixel).has_one_table();
}
"""


@functools.cache
def harness(level: str) -> Any:
    library = ctypes.CDLL(str(build.library(HARNESS, level, stem="test_flipped_rows")))
    if not ctypes.c_bool.in_dll(library, "picks_bytes"):
        pytest.skip("without shuffles of bytes, every pixel is moved alone")
    library.has_one_table.restype = ctypes.c_bool
    return library.has_one_table


def has_one_table(level: str, pixels: torch.Tensor, width: int, pixel_bytes: int) -> Any:
    places, ascending = pixels.int(), torch.arange(len(pixels) + 1, dtype=torch.int32)
    tables = (ctypes.c_void_p(tensor.data_ptr()) for tensor in (places, ascending))
    return harness(level)(*tables, *map(ctypes.c_int64, (len(pixels), width, pixel_bytes)))


@pytest.mark.parametrize("level", isa.available())
@pytest.mark.parametrize("pixel_bytes", [3, 6, 12])
@pytest.mark.parametrize("width", [64, 70, 223, 224, 1000, 1920])
def test_flipped_rgb_has_one_table(level: str, pixel_bytes: int, width: int) -> None:
    assert has_one_table(level, torch.arange(width).flip(0), width, pixel_bytes)


@pytest.mark.parametrize("level", isa.available())
def test_nearest_has_a_table_for_each_block(level: str) -> None:
    assert not has_one_table(level, torch.arange(1000) * 2 // 3, 1000, 3)
