// A row whose place in the target is not one run of memory: channels lie apart, pixels have others between them, or the row
// is cut into blocks (patches), each of which may be stored several times. It is made here first.
#pragma once

#include <cstring>

#include "polyphase/core/abi.h"
#include "polyphase/core/buffer.h"
#include "polyphase/resample/spaced.h"

namespace polyphase {

template <class O>
class ScatteredRow {
 public:
  static bool is_dense(const MapsCall& call) {
    return call.copies == 1 && call.x.blocks.size == 0 && call.y.blocks.size == 0 &&
           are_dense(call.x.out_stride, call.out_channel_stride, call.channels, call.x.out_size);
  }

  explicit ScatteredRow(const MapsCall& call) : call_(call) {
    const int64_t length = call.x.out_size * call.channels;
    if (!is_dense(call)) row_.resize(length);
    if (call.x.blocks.size > 0) planes_.resize(length);
  }

  O* row() { return row_.data(); }

  void store(O* target) {
    const O* row = row_.data();
    if (call_.x.blocks.size == 0) {
      copy_pixels(row, call_.channels, 1, target, call_.x.out_stride, call_.out_channel_stride, call_.channels,
                  call_.x.out_size);
      return;
    }
    if (call_.channels == 1 || call_.out_channel_stride == 1) return store_blocks(row, call_.channels, target);
    // Channels that lie apart are taken apart once, so that blocks are runs.
    copy_pixels(row, call_.channels, 1, planes_.data(), 1, call_.x.out_size, call_.channels, call_.x.out_size);
    for (int64_t c = 0; c < call_.channels; ++c) {
      const O* plane = planes_.data() + c * call_.x.out_size;
      store_blocks(plane, 1, target + c * call_.out_channel_stride);
    }
  }

 private:
  // A row of pixels of so many elements, block by block.
  POLYPHASE_ROW_LOOP void store_blocks(const O* row, int64_t pixel, O* target) {
    const Blocks& blocks = call_.x.blocks;
    const int64_t stride = call_.x.out_stride, length = blocks.size * pixel;
    const O* const end = row + call_.x.out_size * pixel;
    for (O* group = target; row < end; group += blocks.outer_stride) {
      for (int64_t block = 0; block < blocks.together; ++block, row += length) {
        O* out = group + block * blocks.inner_stride;
        for (int64_t copy = 0; copy < call_.copies; ++copy, out += call_.copy_stride) {
          if (stride == pixel) {
            std::memcpy(out, row, length * sizeof(O));
          } else {
            copy_pixels(row, pixel, 1, out, stride, 1, pixel, blocks.size);
          }
        }
      }
    }
  }

  const MapsCall& call_;
  Buffer<O> row_;
  Buffer<O> planes_;  // its channels, one after the other
};

}  // namespace polyphase
