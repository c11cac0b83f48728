// Images of half precision that are made floats before they are sampled: a value is then converted once, not for every output that
// it is read for, and read as those of floats are.
#pragma once

#include "polyphase/core/abi.h"
#include "polyphase/core/buffer.h"
#include "polyphase/core/convert.h"
#include "polyphase/core/rows.h"
#include "polyphase/core/scalar.h"
#include "polyphase/core/standard.h"
#include "polyphase/warp/abi.h"
#include "polyphase/warp/channels.h"

namespace polyphase {

// From S to V, value by value, where that needs no rounding.
template <class S, class V>
struct Widened {
  using From = S;
  using To = V;
  static constexpr bool kIdentity = false;
  static void row(const S* in, V* out, int64_t n, const RowOperands&) { convert(in, out, n); }
};

template <class S>
constexpr bool kIsHalf = __is_same(S, half) || __is_same(S, bfloat16);

// An image of at most so many times as many pixels as are sampled: so much quicker is it to sample floats.
constexpr int64_t kMostWidened = 16;
// So many elements are made floats together, of several images.
constexpr int64_t kWidenedTogether = 1 << 17;

// Whether images are to be widened: their rows lie side by side, as those of planes or of pixels.
inline bool is_worth_widening(const WarpCall& call) {
  const ImageStrides& s = call.image_strides;
  const bool dense = s.x == 1 || (s.channel == 1 && s.x == call.channels);
  return dense && pixels_of(call) <= kMostWidened * call.out_size[0] * call.out_size[1] * call.out_size[2];
}

// Some images of a call, from number `first` on, as images of V.
template <class S, class V>
class WidenedImages {
 public:
  // O, G: the dtypes of the target and of coordinates.
  template <class O, class G>
  WidenedImages(const WarpCall& call, int64_t first, int64_t images, V* to, O*, G*)
      : call_(call),
        planes_(call.image_strides.x == 1),
        row_(call.in_size[2] * (planes_ ? 1 : call.channels)),
        from_(static_cast<const S*>(call.source) + first * call.image_strides.batch),
        to_(to),
        some(call) {
    const int64_t plane = call.in_size[1] * row_, volume = call.in_size[0] * plane;
    some.batch = images;
    some.source = to;
    some.target = static_cast<O*>(call.target) + first * call.target_strides.batch;
    some.coordinates = static_cast<const G*>(call.coordinates) + first * call.coordinate_strides.batch;
    some.image_strides = {pixels_of(call) * call.channels, planes_ ? volume : 1, plane, row_, planes_ ? 1 : call.channels};
    for (int64_t t = 0; t < call.tensor_count; ++t) {
      const Operand& tensor = call.tensors[t];
      some.tensors[t].data = static_cast<const uint8_t*>(tensor.data) + first * tensor.outer_strides[0] * tensor.element_bytes;
    }
  }

  void widen() { call_.parallel(some.batch * rows(), call_.threads, some_rows, this); }

 private:
  // Of an image: counted over (channels, z, y).
  int64_t rows() const { return (planes_ ? call_.channels : 1) * call_.in_size[0] * call_.in_size[1]; }

  static void some_rows(void* context, int64_t begin, int64_t end) {
    const WidenedImages& images = *static_cast<const WidenedImages*>(context);
    const ImageStrides& s = images.call_.image_strides;
    const int64_t high = images.call_.in_size[1], deep = images.call_.in_size[0];
    for (int64_t r = begin; r < end; ++r) {
      const int64_t plane = r / high / deep, channels = images.rows() / high / deep;
      const int64_t offset = plane / channels * s.batch + plane % channels * s.channel + r / high % deep * s.z + r % high * s.y;
      Widened<S, V>::row(images.from_ + offset, images.to_ + r * images.row_, images.row_, RowOperands());
    }
  }

  const WarpCall& call_;
  const bool planes_;
  const int64_t row_;  // elements
  const S* from_;
  V* to_;

 public:
  WarpCall some;  // the call on them
};

// Of this thread; what samples them has memory of its own.
template <class V>
struct WidenedPixels : Buffer<V> {};

// Sampler: a warp of floats.
template <class Sampler, class S, class V, class O, class G>
void warp_widened(const WarpCall& call) {
  const int64_t size = pixels_of(call) * call.channels, together = max<int64_t>(1, min(call.batch, kWidenedTogether / size));
  Kept<WidenedPixels<V>> pixels;
  pixels->resize_unset(together * size);
  for (int64_t first = 0; first < call.batch; first += together) {
    const int64_t count = min(together, call.batch - first);
    WidenedImages<S, V> images(call, first, count, pixels->data(), static_cast<O*>(nullptr), static_cast<G*>(nullptr));
    images.widen();
    Sampler::run(images.some);
  }
}

}  // namespace polyphase
