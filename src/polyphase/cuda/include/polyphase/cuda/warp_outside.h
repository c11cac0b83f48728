// Tiles of which no pixel has a tap in the image: where an image is turned, or made smaller, there are many. They are filled.
//
// Memory is written by sectors of 32 bytes, and far slower where two blocks write a part of one each. So where two such tiles
// are neighbours along a row, the border between them is moved on to where the next sector begins: another column in each row
// and channel.
#pragma once

#include "polyphase/cuda/vectors.h"
#include "polyphase/cuda/warp_taps.h"

namespace polyphase {

// Whether a matrix leads from no pixel of the tile that begins with `first` to a pixel of image n. It is computed in P, which
// is quick: the answer is no where rounding might decide it, and where a position might be infinite or NaN, as such pixels are
// not zeros. Neighbouring blocks get the same answer for the same tile.
template <class Filter, class G, class P>
inline bool misses_image(const WarpCall& call, int64_t n, const OutputPixel& first, int columns, int rows) {
  const CoordinateStrides& s = call.coordinate_strides;
  const P step_x = static_cast<P>(call.base_step[2]), step_y = static_cast<P>(call.base_step[1]);
  const P base_x = static_cast<P>(call.base_first[2]) + static_cast<P>(first.x) * step_x;
  const P base_y = static_cast<P>(call.base_first[1]) + static_cast<P>(first.y) * step_y;
  bool misses = false, finite = true;
#pragma unroll
  for (int a = 0; a < 2; ++a) {
    const G* matrix = static_cast<const G*>(call.coordinates) + n * s.batch + a * s.y;
    const P by_x = static_cast<P>(matrix[0]), by_y = static_cast<P>(matrix[s.x]), moved = static_cast<P>(matrix[2 * s.x]) + 1;
    const PixelAxis<P> axis(call.in_size[2 - a], call.align_corners != 0);
    const P start = (by_x * base_x + by_y * base_y + moved) * axis.half + axis.offset;
    const P along_x = by_x * step_x * axis.half * static_cast<P>(columns - 1);
    const P along_y = by_y * step_y * axis.half * static_cast<P>(rows - 1);
    const P low = start + min(along_x, P(0)) + min(along_y, P(0)) + P(Filter::kFirst);
    const P high = start + max(along_x, P(0)) + max(along_y, P(0)) + P(Filter::kFirst + Filter::kTaps);
    const P error = (abs(by_x) + abs(by_y) + abs(moved) + 1) * axis.half * P(1.0 / (1 << 19));
    misses = misses | (high < -error) | (low > static_cast<P>(call.in_size[2 - a]) + error);
    finite = finite & (error - error == 0);
  }
  return misses & finite;
}

// Which of a tile and those before and behind it along a row lie outside.
enum Neighbourhood { kTileItself, kTileBefore, kTileBehind, kNeighbourhood };

// A row of such a tile, in one channel, filled by several threads. first: where the tile's first column lies. columns: from
// there to the end of the target's row.
template <class To, int kColumns>
struct OutsideRow {
  static constexpr int kSectorBytes = 32, kThreadsOfRow = kColumns * sizeof(To) / 16;
  static_assert(kColumns * sizeof(To) % kSectorBytes == 0, "a tile begins and ends at the same place in a sector");

  To* first;
  int32_t columns;

  void fill(int thread, bool before, bool behind, To value) const {
    constexpr int kOfThread = 16 / sizeof(To);
    const uint64_t bytes = (0 - reinterpret_cast<uint64_t>(first)) % kSectorBytes;
    // Columns before the first whole sector: they are left to the tile before, if that is outside too.
    const auto aside = static_cast<int32_t>(bytes / sizeof(To));
    const int32_t end = min(columns, behind ? kColumns + aside : kColumns);
    const int32_t own = aside + thread * kOfThread;
    if (own + kOfThread <= end) {
      Vector<To, kOfThread> values;
#pragma unroll
      for (int i = 0; i < kOfThread; ++i) values.items[i] = value;
      *reinterpret_cast<Vector<To, kOfThread>*>(first + own) = values;
    } else {
#pragma unroll 1
      for (int32_t x = own; x < end; ++x) first[x] = value;
    }
    if (before) return;
#pragma unroll 1
    for (int32_t x = thread; x < min(aside, end); x += kThreadsOfRow) first[x] = value;
  }
};

}  // namespace polyphase
