// What a launch hands to a kernel of warps. `cuda/calls.py` packs it and describes every field; where the two differ, no
// kernel compiles.
#pragma once

#include "polyphase/cuda/call.h"
#include "polyphase/warp/formula.h"

namespace polyphase {

// A warp of (batch, channels, z, y, x); an image has one z. Sizes are z, y, x; strides are in elements.
struct WarpCall {
  // Filled in by a launch.
  Global<void> target;
  Global<const void> source;
  Global<const void> coordinates;  // a grid, matrices, or the entries of a formula, whose fields are the last tensors
  Global<const void> vectors[at_least_one(kVectors)];
  Global<const void> tensors[at_least_one(kTensors)];

  int64_t batch;
  int64_t channels;
  int64_t in_size[3];
  int64_t out_size[3];
  ImageStrides image_strides;
  ImageStrides target_strides;
  CoordinateStrides coordinate_strides;
  double base_first[3];  // the coordinate, before a matrix, of the first output pixel along each axis,
  double base_step[3];   // and from one to the next
  int64_t padding;
  int64_t align_corners;

  Global<const void> fill;  // what lies outside, as values are sampled; of channel c at c * fill_step
  int64_t fill_step;        // 0 where one is for all

  // How the work is cut: a block makes a tile of outputs, of `chunk` channels.
  int64_t tiles;   // along a row
  int64_t strips;  // of tiles, down all rows of an image
  int64_t chunks;  // of channels
  int64_t chunk;
  int64_t steps;   // of a block down its tile
  int64_t group;   // strips that are made of all images before those further down; all there are: image after image

  int64_t sum_bits;  // of gradients: 2^sum_bits is no less than the output's pixels in a plane

  ImageStrides tensor_strides[at_least_one(kTensors)];
  double numbers[at_least_one(kNumbers)];
};

}  // namespace polyphase
