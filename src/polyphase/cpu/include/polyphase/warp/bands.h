// How many rows of tiles are done before the tiles to the right of them.
//
// Many where an image is turned: neighbours in a row lie far from each other, and the next row's are near. Where it is not, what
// is read and written goes on place after place, and a processor that notices fetches it ahead; but in so many pages at a time
// at most. So a band has no more rows than that. What is not fetched ahead is waited for; but a large result goes past the caches
// (`simd/streamed.h`), and nothing of it has to be fetched.
#pragma once

#include "polyphase/core/cache.h"
#include "polyphase/core/standard.h"
#include "polyphase/warp/abi.h"

namespace polyphase {

constexpr int64_t kMostRowsOfBand = 16;

// Rows of a band, all of whose pages are followed. Sizes are in bytes, of an element. streams: the target is not fetched.
inline int64_t followed_rows(const WarpCall& call, int64_t of_image, int64_t of_coordinates, int64_t of_target, bool streams) {
  int64_t planes = 0;  // that are read or written beside each other
  double pages = 0;    // that a row of all of them touches; neighbours share a page where rows are short
  const auto count = [&](int64_t more, int64_t row) {
    planes += more;
    pages += static_cast<double>(more * min(row, kPage)) / kPage;
  };
  const auto count_images = [&](const ImageStrides& s, int64_t bytes) {
    count(s.channel == 1 ? 1 : call.channels, s.y * bytes);
  };
  count_images(call.image_strides, of_image);
  if (!streams) count_images(call.target_strides, of_target);
  if (!call.affine && !call.formula) count(1, call.coordinate_strides.y * of_coordinates);
  for (int64_t t = 0; t < call.tensor_count; ++t) {
    const Operand& tensor = call.tensors[t];
    count(tensor.channel_stride > 1 ? call.channels : 1, tensor.y_stride * tensor.element_bytes);
  }
  if (planes >= kFollowedPages || pages * kMostRowsOfBand < kFollowedPages) return kMostRowsOfBand;
  return max<int64_t>(1, static_cast<int64_t>((kFollowedPages - 1) / pages));
}

// `turned`: by so many of the image's rows a tile goes up or down; NaN where that is not known. By few, a band of few rows reads
// little that the band before has read.
inline bool lies_upright(int64_t followed, double turned) { return turned <= static_cast<double>(followed) / 2; }

}  // namespace polyphase
