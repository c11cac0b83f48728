// Where points of attention lie in their levels: four pixels each, with weights.
#pragma once

#include "polyphase/core/abi.h"
#include "polyphase/core/buffer.h"
#include "polyphase/warp/attention_call.h"
#include "polyphase/warp/corners.h"

namespace polyphase {

constexpr int kPoints = 16;  // at a time

// The levels of so many points.
template <class P>
struct LevelTile {
  P half[2][kPoints], last[2][kPoints], offset;  // along x and y, as a `PixelAxis` has them
  int32_t width[kPoints], first[kPoints];
};

// Those of all points of an output, which are the same for each. Behind the last point there is nothing: a level of no pixels.
template <class P>
class PointLevels {
 public:
  explicit PointLevels(const AttentionCall& call) {
    tiles_.resize((call.points + kPoints - 1) / kPoints);
    int64_t point = 0;
    for (int64_t l = 0; l < call.level_count; ++l) {
      const Level& level = call.levels[l];
      for (int64_t end = point + level.points; point < end; ++point) put(level, call.align_corners != 0, point);
    }
  }

  // Of the points from a multiple of `kPoints` on.
  const LevelTile<P>& of(int64_t point) const { return tiles_[point / kPoints]; }

 private:
  void put(const Level& level, bool align_corners, int64_t point) {
    LevelTile<P>& tile = tiles_[point / kPoints];
    const int64_t i = point % kPoints, size[2] = {level.width, level.height};
    for (int a = 0; a < 2; ++a) {
      const PixelAxis<P> axis(size[a], align_corners);
      tile.half[a][i] = axis.half;
      tile.last[a][i] = axis.last;
      tile.offset = axis.offset;
    }
    tile.width[i] = static_cast<int32_t>(level.width);
    tile.first[i] = static_cast<int32_t>(level.first);
  }

  Buffer<LevelTile<P>> tiles_;
};

template <class P>
struct AttentionPoints {
  int count = 0;
  alignas(64) int32_t pixel[kCorners][kPoints];  // less than 0: outside the level
  alignas(64) P weight[kCorners][kPoints];
  alignas(64) P fraction[2][kPoints];

  // places: x and y of so many points, one after the other.
  POLYPHASE_ROW_LOOP void find(const P* places, int64_t points, const LevelTile<P>& levels) {
    alignas(64) P coordinates[2][kPoints] = {};
    count = static_cast<int>(points);
    for (int i = 0; i < count; ++i) {
      coordinates[0][i] = places[2 * i];
      coordinates[1][i] = places[2 * i + 1];
    }
#pragma GCC ivdep
    for (int i = 0; i < kPoints; ++i) {
      const auto x = Between<P>::of(coordinates[0][i], levels.half[0][i], levels.last[0][i], levels.offset);
      const auto y = Between<P>::of(coordinates[1][i], levels.half[1][i], levels.last[1][i], levels.offset);
      const int32_t at = levels.first[i] + y.first * levels.width[i] + x.first;
      put(0, i, at, x.inside[0] & y.inside[0], x.weight(0) * y.weight(0));
      put(1, i, at + 1, x.inside[1] & y.inside[0], x.weight(1) * y.weight(0));
      put(2, i, at + levels.width[i], x.inside[0] & y.inside[1], x.weight(0) * y.weight(1));
      put(3, i, at + levels.width[i] + 1, x.inside[1] & y.inside[1], x.weight(1) * y.weight(1));
      fraction[0][i] = x.fraction;
      fraction[1][i] = y.fraction;
    }
  }

  // Pixels of weight 0 are as if they lay outside.
  void leave_out_weightless() {
    for (int k = 0; k < kCorners; ++k) {
      for (int i = 0; i < kPoints; ++i) pixel[k][i] = weight[k][i] == 0 ? -1 : pixel[k][i];
    }
  }

 private:
  POLYPHASE_BLOCK void put(int k, int i, int32_t at, bool inside, P weight_there) {
    pixel[k][i] = inside ? at : -1;
    weight[k][i] = weight_there;
  }
};

}  // namespace polyphase
