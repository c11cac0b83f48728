// What Python, the launcher and the warp kernels hand to each other: plain data, no ownership.
//
// Every field is eight bytes. `cpu/warp_calls.py` packs them in this order; the launcher fills in what Packed holds.
#pragma once

#include "polyphase/abi.h"

namespace polyphase {

enum WarpPadding : int64_t { kZeros, kBorder, kReflection };

// In elements.
struct ImageStrides {
  int64_t batch, channel, z, y, x;
};
// Of a grid; of matrices (batch, row, column) only batch, y (rows) and x (columns).
struct CoordinateStrides {
  int64_t batch, z, y, x, component;
};

// A warp of (batch, channels, z, y, x); an image has one z.
struct WarpCall {
  Packed packed;  // buffers: image, coordinates, target; for gradients see warp_gradients.h
  int64_t batch;
  int64_t channels;
  int64_t in_size[3];   // z, y, x
  int64_t out_size[3];  // z, y, x
  ImageStrides image;
  ImageStrides target;          // or of the gradient that came in
  ImageStrides image_gradient;  // for gradients only
  CoordinateStrides coordinates;
  int64_t affine;  // coordinates are matrices
  int64_t padding;
  int64_t align_corners;
  int64_t vector_count;
  int64_t tensor_count;
  Operand vectors[kMaxOperands];
  Operand tensors[kMaxOperands];  // outer_strides[0] is the batch's
};

// What a warp kernel's library exports under the name `polyphase_kernel`.
struct WarpKernel {
  void (*run)(const WarpCall& call);
};

}  // namespace polyphase
