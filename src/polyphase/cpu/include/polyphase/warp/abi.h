// What the launcher and the kernels of warps hand to each other: plain data, no ownership.
#pragma once

#include "polyphase/core/abi.h"
#include "polyphase/warp/points.h"
#include "polyphase/warp/rules.h"

namespace polyphase {

// A warp of (batch, channels, z, y, x), or its gradients; an image has one z. Of operands, outer_strides[0] is the batch's.
struct WarpCall : KernelCall {
  int64_t batch;
  int64_t channels;
  int64_t in_size[3];   // z, y, x
  int64_t out_size[3];  // z, y, x: of points that are taken for one row, 1, 1, and how many there are
  int64_t points[2];    // of such, the rows of a plane and the points of a row as the grid has them; else 0
  ImageStrides image_strides;
  ImageStrides target_strides;          // or of the gradient that came in
  ImageStrides image_gradient_strides;  // for gradients only
  CoordinateStrides coordinate_strides;
  int64_t affine;   // coordinates are matrices
  int64_t formula;  // they are the entries of a formula, whose fields are the last tensors
  const double* numbers;  // of the formula
  int64_t padding;
  int64_t align_corners;

  int64_t fill_rule;    // a FillRule
  const uint8_t* fill;  // of channel c: a value as it is sampled, from c * fill_stride bytes on
  int64_t fill_stride;

  bool is_points() const { return points[1] > 0; }
  PointRows points_of(int64_t z_stride, int64_t y_stride, int64_t x_stride) const {
    return {points[0], points[1], z_stride, y_stride, x_stride};
  }
  int64_t planes_of_points() const { return out_size[2] / (points[0] * points[1]); }
};

}  // namespace polyphase
