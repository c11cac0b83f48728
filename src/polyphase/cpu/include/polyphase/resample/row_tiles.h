// The outputs of a row in tiles, for passes that lay out pixels before they sum them (four_rows.h, rgb_rows.h, byte_rows.h):
// so many neighbouring outputs that what they read stays in the first-level cache.
#pragma once

#include "polyphase/core/abi.h"
#include "polyphase/core/buffer.h"
#include "polyphase/core/standard.h"

namespace polyphase {

// The weights of a unit of neighbouring pixels, of 16 bits each. kTile: units of a tile, where outputs that are summed together
// need no more.
template <class Lanes>
struct WordUnits {
  using Weights = Lanes;
  static constexpr int64_t kTaps = sizeof(Weights) / sizeof(int16_t), kTile = 256 / kTaps;

  static void put(Weights* unit, int64_t tap, int16_t weight) {
    std::memcpy(reinterpret_cast<int16_t*>(unit) + tap, &weight, sizeof(weight));
  }
};
using WordPairs = WordUnits<int32_t>;
using WordQuads = WordUnits<int64_t>;

// Every output reads the same number of units, those that its taps lie in; pixels that are no taps weigh 0.
template <class Units>
class RowTiles {
 public:
  using Weights = typename Units::Weights;
  static constexpr int64_t kTogether = 4;  // outputs that are summed side by side

  // Outputs up to `end`, from that of the tile before on, and the units they read.
  struct Tile {
    int64_t first, count;
    int64_t end;
  };

  static int64_t units_for(const Taps& taps) {
    int64_t units = 0;
    for (int64_t x = 0; x < taps.out_size; ++x) units = max(units, units_of(taps, x));
    return units;
  }

  // step: from a unit to the next, in `places`.
  void build(const Taps& taps, int64_t step) {
    out_size_ = taps.out_size;
    units_ = longest_ = units_for(taps);
    const int64_t outputs = (out_size_ + kTogether - 1) / kTogether * kTogether;
    places_.resize(outputs);
    weights_.resize(outputs * units_);
    for (int64_t x = 0; x < out_size_; x += kTogether) add_outputs(taps, x, step);
  }

  size_t bytes() const { return tiles_.bytes() + places_.bytes() + weights_.bytes(); }

  const Tile* begin() const { return tiles_.begin(); }
  const Tile* end() const { return tiles_.end(); }
  int64_t units() const { return units_; }      // that every output reads
  int64_t longest() const { return longest_; }  // units of a tile
  // From output x on, which is a multiple of kTogether: the first unit of each, and for every kTogether outputs and each unit
  // in turn the unit's weights for each.
  const int32_t* places(int64_t x) const { return places_.data() + x; }
  const Weights* weights(int64_t x) const { return weights_.data() + x * units_; }

 private:
  static constexpr int64_t kUnit = Units::kTaps;

  static int64_t units_of(const Taps& taps, int64_t x) {
    const int32_t begin = taps.begin[x], end = taps.begin[x + 1];
    return begin == end ? 0 : taps.index[end - 1] / kUnit - taps.index[begin] / kUnit + 1;
  }

  // The first unit of output x, early enough for units_ of them.
  int64_t first_unit(const Taps& taps, int64_t x) const {
    return min<int64_t>(taps.index[taps.begin[x]] / kUnit, (taps.in_size + kUnit - 1) / kUnit - units_);
  }

  // kTogether outputs, or as many as are left: in the latest tile if their pixels fit into it.
  void add_outputs(const Taps& taps, int64_t from, int64_t step) {
    const int64_t to = min(from + kTogether, out_size_);
    int64_t first = INT64_MAX, end = 0;
    for (int64_t x = from; x < to; ++x) {
      if (units_of(taps, x) == 0) continue;
      first = min(first, first_unit(taps, x));
      end = max(end, first_unit(taps, x) + units_);
    }
    if (end == 0) first = 0, end = units_;  // nothing but border
    if (tiles_.size() > 0) {
      const Tile& last = tiles_.back();
      const int64_t both_first = min(first, last.first), both_end = max(end, last.first + last.count);
      if (both_end - both_first <= Units::kTile) first = both_first, end = both_end, tiles_.resize(tiles_.size() - 1);
    }
    tiles_.push_back({first, end - first, to});
    longest_ = max(longest_, end - first);
    for (int64_t x = from; x < from + kTogether; ++x) {
      places_[x] = static_cast<int32_t>(first * step);  // of a border, and beyond the end: any pixels, which weigh 0
      if (x >= to || units_of(taps, x) == 0) continue;
      const int64_t start = first_unit(taps, x);
      places_[x] = static_cast<int32_t>(start * step);
      for (int32_t t = taps.begin[x]; t < taps.begin[x + 1]; ++t) {
        const int64_t tap = taps.index[t] - kUnit * start;
        Units::put(weights_.data() + from * units_ + tap / kUnit * kTogether + (x - from), tap % kUnit, taps.quantised[t]);
      }
    }
  }

  int64_t out_size_ = 0;
  int64_t units_ = 0, longest_ = 0;
  Buffer<Tile> tiles_;
  Buffer<int32_t> places_;
  Buffer<Weights> weights_;
};

}  // namespace polyphase
