// A request for images of other sizes than it was made for, where transforms make their steps of the size: by the rules of
// `pipelines/sizes.py`. What it cannot tell is refused, and Python does it.
#pragma once

#include <cstring>

#include "polyphase/core/abi.h"
#include "polyphase/core/buffer.h"
#include "polyphase/core/sides.h"
#include "polyphase/launch/request.h"
#include "polyphase/launch/tensors.h"

namespace polyphase {

// A transform, as `pipelines/ways.py` packs it.
struct SizeStep {
  enum Kind : int64_t { kShorter, kLonger, kTo, kCentre };
  int64_t kind;
  int64_t a;    // kShorter: of the shorter side   kLonger: of the longer one   kTo, kCentre: height
  int64_t b;    // kShorter: the longer side's limit, or 0                      kTo, kCentre: width
  int64_t order[4];   // of sums, as `pipelines/pillow.py` has it
  Step resize;        // but for its size
};
static_assert(sizeof(SizeStep) == 120);

// What an image's rows and columns go through. marks: what was done, two bits for each transform: nothing, or along which
// axes. Sizes of less than 2 are refused: strides do not tell how such an image lies.
class Followed {
 public:
  Followed(int64_t height, int64_t width) : size_{height, width} {}

  bool take(const SizeStep& step) {
    const int64_t before[2] = {size_[0], size_[1]};
    marks_ <<= 2;
    return (step.kind == SizeStep::kCentre ? crop(step) : resize(step)) && mark(before);
  }

  uint64_t marks() const { return marks_; }
  int64_t size(int axis) const { return size_[axis]; }
  int64_t steps(int axis) const { return count_[axis]; }
  const Step* step(int axis) const { return steps_[axis]; }

 private:
  static constexpr int64_t kMostSteps = 16;

  bool mark(const int64_t (&before)[2]) {
    for (int axis = 0; axis < 2; ++axis) marks_ |= uint64_t{size_[axis] != before[axis]} << axis;
    return size_[0] >= 2 && size_[1] >= 2;
  }

  bool resize(const SizeStep& step) {
    int64_t target[2] = {step.a, step.b};
    if (step.kind != SizeStep::kTo) {
      target[0] = size_[0];
      target[1] = size_[1];
      resize_side(step.kind == SizeStep::kLonger, step.a, step.b, target);
    }
    if (target[0] == size_[0] && target[1] == size_[1]) return true;
    const bool rows_first = sums_rows_first(step.order, target);
    for (int axis = 0; axis < 2; ++axis) {
      Step made = step.resize;
      made.a = size_[axis] = target[axis];
      if (axis == 0 && rows_first) made.d |= Step::kFirst;
      if (!add(axis, made)) return false;
    }
    return true;
  }

  // Likewise in `pipelines/pillow.py`.
  bool sums_rows_first(const int64_t (&order)[4], const int64_t (&target)[2]) const {
    const int64_t sum = order[0] * size_[0] + order[1] * target[0] + order[2] * size_[1] + order[3] * target[1];
    return target[0] < size_[0] && sum > 0;
  }

  bool crop(const SizeStep& step) {
    const int64_t target[2] = {step.a, step.b};
    for (int axis = 0; axis < 2; ++axis) {
      if (target[axis] > size_[axis]) return false;  // there is a border around
      if (target[axis] == size_[axis]) continue;
      const auto start = static_cast<int64_t>(__builtin_nearbyint(static_cast<double>(size_[axis] - target[axis]) / 2));
      size_[axis] = target[axis];
      if (!slice(axis, start, start + target[axis])) return false;
    }
    return true;
  }

  // A part of a part is one.
  bool slice(int axis, int64_t start, int64_t stop) {
    Step* const last = count_[axis] == 0 ? nullptr : &steps_[axis][count_[axis] - 1];
    if (last == nullptr || last->kind != Step::kSlice) {
      return add(axis, {Step::kSlice, start, stop, 1, 0, __builtin_nan(""), 0, __builtin_nan("")});
    }
    last->b = last->a + stop;
    last->a += start;
    return true;
  }

  bool add(int axis, const Step& step) {
    if (count_[axis] == kMostSteps) return false;
    steps_[axis][count_[axis]++] = step;
    return true;
  }

  int64_t size_[2];
  int64_t count_[2] = {0, 0};
  Step steps_[2][kMostSteps];
  uint64_t marks_ = 0;
};

// How an image (channels, height, width) lies in memory, as far as results lie by it: `_order` of `pipelines/sketches.py`.
enum class Order { kRows, kPixels, kPixelsApart, kOther };

inline Order order_of(const int64_t* size, const int64_t* stride) {
  const int64_t channels = size[0], width = size[2];
  if (stride[0] >= stride[1] && stride[1] >= stride[2]) return Order::kRows;
  if (channels < 2 || stride[0] < 1 || stride[2] < channels * stride[0]) return Order::kOther;
  if (stride[1] != Request::kByRows && stride[1] < width * stride[2]) return Order::kOther;
  const bool dense = stride[0] == 1 && stride[2] == channels && stride[1] == width * channels;
  return dense ? Order::kPixels : Order::kPixelsApart;
}

// Requests that differ from one in the size of the image (channels, height, width) and what follows from it.
class SizedRequest {
 public:
  SizedRequest(const uint8_t* request, int64_t request_bytes, const SizeStep* steps, int64_t count, int64_t longest,
               int64_t most_elements)
      : longest_(longest), most_elements_(most_elements) {
    request_.assign(request, request_bytes);
    steps_.assign(steps, count);
  }
  SizedRequest(SizedRequest&&) = default;

  // Whether the request is what follows from its own size; without that it is of no use.
  bool holds() {
    const Request& made = *reinterpret_cast<const Request*>(request_.data());
    if (made.rank != 3 || made.map_count != 2 || made.copies != 0) return false;
    in_pixels_ = made.out_stride[0] == 1;
    Followed followed(made.in_size[1], made.in_size[2]);
    if (!follow(followed)) return false;
    marks_ = followed.marks();
    Buffer<uint8_t> again;
    return fill(made.in_size, made.in_stride, nullptr, &again) && std::memcmp(again.data(), request_.data(), again.size()) == 0;
  }

  // Whether an image has as many channels as the one it was made for, and lies in memory as that does: `_kind_of` of
  // `pipelines/sketches.py`.
  bool is_like(const int64_t* size, const int64_t* stride) const {
    const Request& made = *reinterpret_cast<const Request*>(request_.data());
    const Order order = order_of(size, stride);
    return size[0] == made.in_size[0] && size[1] >= 2 && size[2] >= 2 && order != Order::kOther &&
           order == order_of(made.in_size, made.in_stride);
  }

  // The request for an image of this size, and for a new tensor where there is no target; false where that is another
  // program, or the target is of another size.
  bool fill(const int64_t* size, const int64_t* stride, const Extent* target, Buffer<uint8_t>* filled) const {
    Followed followed(size[1], size[2]);
    if (max(size[1], size[2]) > longest_ || !follow(followed) || followed.marks() != marks_) return false;
    filled->assign(request_.data(), request_.size());
    Request& request = *reinterpret_cast<Request*>(filled->data());
    const int64_t rows = followed.steps(0), columns = followed.steps(1), channels = size[0];
    const int64_t height = followed.size(0), width = followed.size(1);
    if (request.last_step[0] != rows || request.last_step[1] != rows + columns) return false;
    if (max(height, width) > longest_ || channels * height * width >= most_elements_) return false;
    const int64_t out_size[] = {channels, height, width};
    const int64_t in_rows[] = {height * width, width, 1}, in_pixels[] = {1, width * channels, channels};
    for (int d = 0; d < 3; ++d) {
      request.in_size[d] = size[d];
      request.in_stride[d] = stride[d];
      request.out_size[d] = out_size[d];
      request.out_stride[d] = target != nullptr ? target->stride[d] : (in_pixels_ ? in_pixels : in_rows)[d];
      if (target != nullptr && target->size[d] != out_size[d]) return false;
    }
    auto* const steps = reinterpret_cast<Step*>(filled->data() + sizeof(Request));
    std::memcpy(steps, followed.step(0), rows * sizeof(Step));
    std::memcpy(steps + rows, followed.step(1), columns * sizeof(Step));
    return true;
  }

 private:
  bool follow(Followed& followed) const {
    for (const SizeStep& step : steps_) {
      if (!followed.take(step)) return false;
    }
    return true;
  }

  Buffer<uint8_t> request_;
  Buffer<SizeStep> steps_;
  int64_t longest_, most_elements_;
  bool in_pixels_ = false;
  uint64_t marks_ = 0;
};

}  // namespace polyphase
