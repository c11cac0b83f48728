// What a launch hands to a kernel of axis maps. `cuda/calls.py` packs it and describes every field; where the two
// differ, no kernel compiles.
#pragma once

#include <cstdint>

namespace polyphase {

constexpr int kMaxOuter = 6;
constexpr int kMaxOperands = 8;

// One axis. Strides are in elements of the source and of the target. Tables lie on the device.
struct Axis {
  int64_t in_size;
  int64_t out_size;
  int64_t in_stride;
  int64_t out_stride;
  // Windows: output i reads taps inputs from first[i] on, all of them inside the image; a weight of 0 stands for an input
  // that is not read. Lists (index is not null): output i reads index[t] for t in [first[i], first[i + 1]).
  // No table (first is null): the identity.
  const int32_t* first;
  const int32_t* index;
  const void* weight;     // of an output's taps, one after another; null where each has one tap of weight 1
  const int32_t* border;  // null, or per output: 0 sampled, n the program's n-th constant border
  int64_t taps;           // of a window
  int64_t precision;      // of quantised weights, which stand over 2^precision
};

// Where a tensor of the output's shape has the element that belongs to an output.
struct TensorStrides {
  int64_t origin;
  int64_t outer[kMaxOuter];
  int64_t z, y, x, channel;
};

// A row is x.out_size pixels of `channels` elements each; y and z are the other axes that may be weighted; every other
// axis is outer, its map index-only or the identity.
struct MapsCall {
  // Filled in by a launch.
  void* target;
  const void* source;
  const void* vectors[kMaxOperands];
  const void* tensors[kMaxOperands];

  Axis outer[kMaxOuter];
  Axis z, y, x;
  int64_t outer_count;
  int64_t planes;  // the product of the outer sizes
  int64_t channels;
  int64_t in_channel_stride;
  int64_t out_channel_stride;
  int64_t target_origin;  // of the first output, in elements: an axis that is walked backwards has a negative stride
  int64_t channel_axis;   // the outer axis that vectors go along; -1: the channels of a pixel
  TensorStrides tensor_strides[kMaxOperands];

  const uint8_t* borders;  // border n, from 1: from (n - 1) * border_stride on
  int64_t border_stride;
  int64_t first_stored;    // borders from this number on are in the target's dtype and go around the epilogue

  const int32_t* offsets;  // of moved values: for every element of a row, where the source's row has it

  // How the work is cut: as each kernel says.
  int64_t tiles;        // along a row
  int64_t strips;       // of rows in a plane
  int64_t tile;         // outputs in a tile
  int64_t strip;        // rows in a strip
  int64_t span;         // elements of a staged row
  int64_t staged_rows;
};

}  // namespace polyphase
