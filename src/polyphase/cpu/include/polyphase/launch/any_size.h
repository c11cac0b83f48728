// A request for tensors of other sizes and strides than it was made for. What it says of sizes is made anew, by the rules
// of `binding.py` and `layout.py`; where they would not do, it is refused, and Python does it or says what is wrong.
#pragma once

#include <cstring>

#include "polyphase/launch/dimensions.h"
#include "polyphase/launch/tensors.h"

namespace polyphase {

// More pixels than any image has, and few enough to be added up.
constexpr int64_t kFar = int64_t{1} << 48;

// The length of an axis after a step, or 0 where there is nothing left or the step may not fit.
inline int64_t size_after(const Step& step, int64_t size) {
  if (step.kind <= Step::kNearest) return step.end > static_cast<double>(size) ? 0 : step.a;
  if (step.kind == Step::kFlip) return size;
  if (step.kind != Step::kPad) return 0;
  const int64_t before = step.a, after = step.b, mode = step.c;
  if (max(before, after) > kFar || min(before, after) < -kFar) return 0;
  const int64_t most = mode == kReflect ? size - 1 : mode == kCircular || mode == kSymmetric ? size : max(before, after);
  const bool leaves_some = size + min<int64_t>(before, 0) + min<int64_t>(after, 0) > 0;
  return leaves_some && max(before, after) <= most ? before + size + after : 0;
}

// Dimensions of a channels-last image, from the innermost on; those of others from the last to the first.
inline int64_t nth_dimension(int64_t rank, bool channels_last, int64_t n) {
  if (!channels_last) return rank - 1 - n;
  return n == 0 ? 1 : n == rank - 1 ? 0 : rank - n;
}

inline bool is_channels_last(const int64_t* size, const int64_t* stride, int64_t rank) {
  if ((rank != 4 && rank != 5) || stride[1] == 0) return false;
  int64_t least = 0;
  for (int64_t n = 0; n < rank; ++n) {
    const int64_t d = nth_dimension(rank, true, n);
    if (stride[d] < least || (d == 0 && least == stride[1])) return false;
    least = stride[d] * size[d];
  }
  return true;
}

// Makes a request one for tensors of these extents; says whether it can be bound.
class Refit {
 public:
  Refit(const AnySize& rules, const Step* steps, Request& request) : rules_(rules), steps_(steps), request_(request) {}

  bool to(const Extent& image, const Extent* coordinates) {
    if (image.rank != request_.rank || !has_elements(image)) return false;
    if (request_.affine && image.size[0] != request_.in_size[0]) return false;  // the user named the batch
    for (int64_t d = 0; d < image.rank; ++d) {
      request_.in_size[d] = image.size[d];
      request_.in_stride[d] = image.stride[d];
    }
    return (coordinates == nullptr ? map_sizes() : warp_sizes(*coordinates)) && lay_out();
  }
  // Whether the output's strides are still to be made, in the order of the image's.
  bool follows_image() const { return follows_image_; }

 private:
  static bool has_elements(const Extent& extent) {
    for (int64_t d = 0; d < extent.rank; ++d) {
      if (extent.size[d] < 1) return false;
    }
    return true;
  }

  bool map_sizes() {
    const int64_t first = request_.rank - request_.map_count;
    for (int64_t d = 0; d < first; ++d) request_.out_size[d] = request_.in_size[d];
    const Step* step = steps_;
    for (int64_t m = 0; m < request_.map_count; ++m) {
      int64_t& size = request_.out_size[first + m];
      size = request_.in_size[first + m];
      if (size > rules_.longest) return false;
      for (; step < steps_ + request_.last_step[m] && size > 0; ++step) size = size_after(*step, size);
      if (size < 1 || size > rules_.longest) return false;
    }
    return true;
  }

  // Of matrices (batch, axes, axes + 1) the request has the output's size; a grid (batch, out..., axes) has it itself.
  bool warp_sizes(const Extent& along) {
    const int64_t rank = request_.rank, axes = rank - 2;
    if (!has_elements(along) || along.rank != (request_.affine ? 3 : rank)) return false;
    if (along.size[0] != request_.in_size[0] || along.size[along.rank - 1] != axes + request_.affine) return false;
    if (request_.affine && along.size[1] != axes) return false;
    if (request_.border_stride != 0 && request_.in_size[1] * request_.border_stride != request_.border_size) return false;
    request_.out_size[0] = request_.in_size[0];
    int64_t reach = request_.out_size[1] = request_.in_size[1];
    for (int64_t d = 2; d < rank; ++d) {
      if (!request_.affine) request_.out_size[d] = along.size[d - 1];
      reach += (request_.in_size[d] - 1) * request_.in_stride[d];
    }
    if (reach > rules_.most_warped) return false;
    // As `_of_coordinates` of records.py has them: rows of matrices stand for y and columns for x; an image has no z.
    int64_t* const strides = request_.coordinate_stride;
    std::memset(strides, 0, sizeof(request_.coordinate_stride));
    strides[0] = along.stride[0];
    if (request_.affine) {
      strides[2] = along.stride[1];
      strides[3] = along.stride[2];
    } else {
      for (int64_t d = 1; d < along.rank; ++d) strides[d + 5 - along.rank] = along.stride[d];
    }
    return true;
  }

  // Where the output lies.
  bool lay_out() {
    const int64_t rank = request_.rank;
    const bool preserve = rules_.order == AnySize::kPreserve;
    const bool last = preserve ? is_channels_last(request_.in_size, request_.in_stride, rank)
                               : rules_.order == AnySize::kChannelsLast && (rank == 4 || rank == 5);
    int64_t stride = 1;
    bool same = true;
    for (int64_t n = 0; n < rank; ++n) {
      const int64_t d = nth_dimension(rank, last, n);
      request_.out_stride[d] = stride;
      same = same && stride == request_.in_stride[d];
      if (__builtin_mul_overflow(stride, request_.out_size[d], &stride)) return false;
    }
    int64_t bytes;
    if (__builtin_mul_overflow(stride, request_.element_bytes, &bytes) || bytes >= rules_.most_bytes) return false;
    follows_image_ = preserve && rules_.keeps_strides != 0 && !same;
    return true;
  }

  const AnySize& rules_;
  const Step* const steps_;
  Request& request_;
  bool follows_image_ = false;
};

}  // namespace polyphase
