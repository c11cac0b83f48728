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
  // Coordinates that a matrix is applied to: along each axis that of the first output pixel, and from one pixel to the next.
  double base_first[3];
  double base_step[3];
  int64_t padding;
  int64_t align_corners;

  Global<const void> fill;  // values of what lies outside, of the type that is sampled: channel c's is number c * fill_step
  int64_t fill_step;        // 1, or 0 where all channels have one value

  // How the work is cut: a block makes a tile of outputs, of `chunk` channels.
  int64_t tiles;   // along a row
  int64_t strips;  // of tiles, down all rows of an image
  int64_t chunks;  // of channels
  int64_t chunk;
  int64_t steps;   // of a block down its tile
  int64_t group;   // so many strips are made of all images before those further down; if all, images are made one by one

  int64_t sum_bits;  // of gradients: 2^sum_bits is no less than the output's pixels in a plane

  ImageStrides tensor_strides[at_least_one(kTensors)];
  double numbers[at_least_one(kNumbers)];
};

}  // namespace polyphase
