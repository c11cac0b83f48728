// A request for images of other sizes than it was made for, where a template says what their rows and columns go through.
// What it cannot tell is refused, and Python does it.
#pragma once

#include <cstring>

#include "polyphase/launch/request.h"
#include "polyphase/launch/templates.h"
#include "polyphase/launch/tensors.h"

namespace polyphase {

// How an image (channels, height, width) lies in memory, as far as results lie by it: `_order` of `pipelines/templates.py`.
enum class Order { kRows, kPixels, kPixelsApart, kOther };

inline Order order_of(const int64_t* size, const int64_t* stride) {
  const int64_t channels = size[0], width = size[2];
  if (stride[0] >= stride[1] && stride[1] >= stride[2]) return Order::kRows;
  if (channels < 2 || stride[0] < 1 || stride[2] < channels * stride[0]) return Order::kOther;
  if (stride[1] != Request::kByRows && stride[1] < width * stride[2]) return Order::kOther;
  const bool dense = stride[0] == 1 && stride[2] == channels && stride[1] == width * channels;
  return dense ? Order::kPixels : Order::kPixelsApart;
}

// Requests that differ from one in the size of the image (channels, height, width), its steps, and what follows from these.
class SizedRequest {
 public:
  SizedRequest(const uint8_t* request, int64_t request_bytes) {
    request_.assign(request, request_bytes);
    in_pixels_ = made().out_stride[0] == 1;
    pixel_ = made().out_stride[2];
  }
  SizedRequest(SizedRequest&&) = default;

  // Whether the request is what follows from its own size; without that it is of no use.
  bool holds(const Followed& followed) const {
    if (made().rank != 3 || made().map_count != 2 || made().copies != 0) return false;
    Buffer<uint8_t> again;
    if (!fill(made().in_size, made().in_stride, followed, &again)) return false;
    return std::memcmp(again.data(), request_.data(), again.size()) == 0;
  }

  const Request& made() const { return *reinterpret_cast<const Request*>(request_.data()); }

  // Whether an image has as many channels as the one it was made for, and lies in memory as that does: `kind_of` of
  // `pipelines/templates.py`.
  bool is_like(const Extent& image) const {
    const Order order = order_of(image.size, image.stride);
    return image.rank == 3 && image.size[0] == made().in_size[0] && image.size[1] >= 2 && image.size[2] >= 2 &&
           order != Order::kOther && order == order_of(made().in_size, made().in_stride);
  }

  // The request for an image of this size, and for a new tensor; false where it has another number of steps.
  bool fill(const int64_t* size, const int64_t* stride, const Followed& followed, Buffer<uint8_t>* filled) const {
    filled->assign(request_.data(), request_.size());
    Request& request = *reinterpret_cast<Request*>(filled->data());
    const int64_t rows = followed.steps(0), columns = followed.steps(1);
    const int64_t channels = size[0], height = followed.size(0), width = followed.size(1);
    if (request.last_step[0] != rows || request.last_step[1] != rows + columns) return false;
    const int64_t out_size[] = {channels, height, width};
    const int64_t in_rows[] = {height * width, width, 1}, in_pixels[] = {1, width * pixel_, pixel_};
    for (int d = 0; d < 3; ++d) {
      request.in_size[d] = size[d];
      request.in_stride[d] = stride[d];
      request.out_size[d] = out_size[d];
      request.out_stride[d] = (in_pixels_ ? in_pixels : in_rows)[d];
    }
    auto* const steps = reinterpret_cast<Step*>(filled->data() + sizeof(Request));
    std::memcpy(steps, followed.step(0), rows * sizeof(Step));
    std::memcpy(steps + rows, followed.step(1), columns * sizeof(Step));
    return true;
  }

 private:
  Buffer<uint8_t> request_;
  bool in_pixels_ = false;
  int64_t pixel_ = 0;  // from a pixel of the result to the next, where these lie one after the other
};

}  // namespace polyphase
