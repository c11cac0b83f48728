// The horizontal pass over rows of bytes with many taps, four rows at a time, by products of bytes (AVX-512 with VNNI).
//
// It goes by tiles (row_tiles.h). A tile is laid out first, in units of 16 bytes of one row with the same of the other rows
// beside them: four neighbouring pixels, channel by channel, or sixteen of a plane. Then an output is a sum over such units
// without any shuffle, however many outputs read a pixel, and weights are loaded once for all rows and channels. Meanwhile
// what the next tile reads is fetched.
#pragma once

#include "polyphase/core/abi.h"
#include "polyphase/core/buffer.h"
#include "polyphase/core/cache.h"
#include "polyphase/core/standard.h"
#include "polyphase/core/unroll.h"
#include "polyphase/resample/row_tiles.h"
#include "polyphase/simd/bytes.h"

#if defined(POLYPHASE_BYTE_PRODUCTS)

namespace polyphase {

// The weights of so many neighbouring pixels, split.
template <int kPixels>
struct SplitUnits {
  struct Weights {
    int8_t high[kPixels], low[kPixels];
  };
  using Register = LongBytes::Register;
  using Sums = ByteProducts::Sums;
  static constexpr int64_t kTaps = kPixels, kTile = 128;

  static void put(Weights* unit, int64_t tap, int16_t weight) {
    const SplitWeight split(weight);
    unit->high[tap] = split.high, unit->low[tap] = split.low;
  }
};

// A lane of 32 bits has four pixels of a channel, and so an output's sum.
struct PixelUnits : SplitUnits<4> {
  static ByteProducts::Weights load(const Weights& unit) { return {in_each_lane(unit.high), in_each_lane(unit.low)}; }
  static Register half(int precision) { return LongBytes::broadcast(1 << (precision - 1)); }
  // Four outputs of every row, a byte for each of four channels.
  static Register finished(const Sums& p, const Sums& q, const Sums& r, const Sums& s, Register bits) {
    const auto shifted = [&](const Sums& sums) { return LongBytes::shift_right(ByteProducts::total(sums), bits); };
    return LongBytes::pack(shifted(p), shifted(q), shifted(r), shifted(s));
  }

 private:
  static Register in_each_lane(const int8_t* weights) {
    int32_t lane;
    std::memcpy(&lane, weights, sizeof(lane));
    return LongBytes::broadcast(lane);
  }
};

// A lane has four of sixteen pixels, and so a quarter of an output's sum.
struct PlaneUnits : SplitUnits<16> {
  static ByteProducts::Weights load(const Weights& unit) {
    return {LongBytes::in_each(unit.high), LongBytes::in_each(unit.low)};
  }
  static Register half(int precision) { return _mm512_maskz_set1_epi32(0x1111, 1 << (precision - 1)); }
  // Four outputs of every row, a lane for each.
  static Register finished(const Sums& p, const Sums& q, const Sums& r, const Sums& s, Register bits) {
    const Register u = added(ByteProducts::total(p), ByteProducts::total(q));
    const Register v = added(ByteProducts::total(r), ByteProducts::total(s));
    const Register sums = _mm512_add_epi32(_mm512_unpacklo_epi64(u, v), _mm512_unpackhi_epi64(u, v));
    const Register positive = _mm512_max_epi32(LongBytes::shift_right(sums, bits), LongBytes::broadcast(0));
    return _mm512_min_epi32(positive, LongBytes::broadcast(255));
  }

 private:
  static Register added(Register a, Register b) {
    return _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
  }
};

template <class Units>
class RowsOfUnits {
 public:
  void build(const Taps& taps, int64_t channels, int64_t pixel) {
    channels_ = channels;
    pixel_ = pixel;
    precision_ = taps.precision;
    in_length_ = taps.in_size * pixel;
    out_length_ = taps.out_size * channels;
    tiles_.build(taps, 1);
    for (int i = 0; i < 16; ++i) {
      const int64_t channel = i / Units::kTaps, tap = i % Units::kTaps;
      shuffle_[i] = channel < channels ? static_cast<uint8_t>(tap * pixel + channel) : LongBytes::kNone;
      compact_[i] = static_cast<uint8_t>((i / channels * 4 + i % channels) % 16);
    }
  }

  size_t bytes() const { return tiles_.bytes(); }

  // Up to four rows. Of fewer the last ones are made more than once.
  POLYPHASE_ROW_LOOP void run(const uint8_t* const* in, uint8_t* const* out, int rows) const {
    const auto row = [&](int r) { return min(r, rows - 1); };
    const Rows four = {{in[0], in[row(1)], in[row(2)], in[row(3)]}, {out[0], out[row(1)], out[row(2)], out[row(3)]}};
    static thread_local Buffer<uint8_t> laid_out;
    laid_out.resize(tiles_.longest() * kUnit);
    int64_t x = 0;
    for (const Tile& tile : tiles_) {
      lay_out(tile, four, laid_out.data());
      sum(laid_out.data() - tile.first * kUnit, x, tile.end, four, coming_after(tile, (tile.end - x) / kTogether + 1));
      x = tile.end;
    }
  }

 private:
  using Register = LongBytes::Register;
  using Tiles = RowTiles<Units>;
  using Tile = typename Tiles::Tile;
  static constexpr int kRows = LongBytes::kRows;
  static constexpr int64_t kTogether = Tiles::kTogether;
  static constexpr int64_t kUnit = LongBytes::kSize;  // of all rows, as it is laid out

  struct Rows {
    const uint8_t* in[kRows];
    uint8_t* out[kRows];
  };

  // Bytes of every row, a few cache lines at a time.
  struct Coming {
    POLYPHASE_BLOCK void fetch(const Rows& rows) {
      for (int64_t l = lines; l > 0; --l, at += kCacheLine) {
#pragma GCC unroll 4
        for (int r = 0; r < kRows; ++r) __builtin_prefetch(rows.in[r] + at);
      }
    }
    int64_t at, lines;
  };

  // What the next tile reads and this one does not, in so many steps.
  Coming coming_after(const Tile& tile, int64_t steps) const {
    const Tile* const next = &tile + 1;
    if (next == tiles_.end()) return {0, 0};
    const int64_t unit = Units::kTaps * pixel_, at = max(tile.first + tile.count, next->first) * unit;
    return {at, ((next->first + next->count) * unit - at) / (steps * kCacheLine) + 1};
  }

  // A unit by each load of 16 bytes; the last ones of a row from where there is room to read beyond its end.
  POLYPHASE_BLOCK void lay_out(const Tile& tile, const Rows& rows, uint8_t* to) const {
    const int64_t step = Units::kTaps * pixel_, length = in_length_, end = (tile.first + tile.count) * step;
    int64_t at = tile.first * step;
    const Register by_channel = LongBytes::in_each(shuffle_);
    const uint8_t *a = rows.in[0], *b = rows.in[1], *c = rows.in[2], *d = rows.in[3];
    const auto lay_out_unit = [&] {
      LongBytes::store(to, LongBytes::shuffle(LongBytes::load_rows(a + at, b + at, c + at, d + at), by_channel));
      at += step;
      to += kUnit;
    };
    for (const int64_t stop = min(end, length - 15); at < stop;) lay_out_unit();
    if (at >= end) return;
    uint8_t rest[kRows][32] = {};
    for (int r = 0; r < kRows; ++r) std::memcpy(rest[r], rows.in[r] + at, static_cast<size_t>(length - at));
    a = rest[0] - at, b = rest[1] - at, c = rest[2] - at, d = rest[3] - at;
    while (at < end) lay_out_unit();
  }

  // Outputs x to end. `laid_out`: where unit 0 of the row would lie.
  POLYPHASE_BLOCK void sum(const uint8_t* laid_out, int64_t x, int64_t end, const Rows& rows, Coming coming) const {
    using Sums = ByteProducts::Sums;
    const int64_t units = tiles_.units();
    const int32_t* place = tiles_.places(x);
    const typename Units::Weights* weights = tiles_.weights(x);
    const Register bits = LongBytes::broadcast(precision_), half = Units::half(precision_);
    const Register compact = LongBytes::in_each(compact_);
    const auto at = [&](int i) { return laid_out + place[i] * kUnit; };
    for (; x < end; x += kTogether, place += kTogether) {
      Sums p = ByteProducts::started(half), q = p, r = p, s = p;
      coming.fetch(rows);
      const uint8_t *at_p = at(0), *at_q = at(1), *at_r = at(2), *at_s = at(3);
      for (int64_t k = units; k > 0; --k, weights += kTogether) {
        add(at_p, weights[0], p);
        add(at_q, weights[1], q);
        add(at_r, weights[2], r);
        add(at_s, weights[3], s);
      }
      store(rows, x * channels_, LongBytes::shuffle(Units::finished(p, q, r, s, bits), compact));
    }
  }

  // A unit, and to the next one.
  POLYPHASE_BLOCK static void add(const uint8_t*& from, const typename Units::Weights& weights, ByteProducts::Sums& sums) {
    ByteProducts::add(sums, LongBytes::load(from), Units::load(weights));
    asm("" : "+v"(sums.high), "+v"(sums.low));  // else GCC moves sums between registers at the loop's end
    from += kUnit;
    asm("" : "+r"(from));  // else it is a register and a common index, which make two instructions of a load
  }

  // Four pixels of every row, from element `at` on. Pixels of fewer than four bytes store more than they are: the next ones
  // overwrite it.
  POLYPHASE_BLOCK void store(const Rows& rows, int64_t at, Register pixels) const {
    if (at + 16 > out_length_) return store_last(rows, at, pixels);
    LongBytes::store_rows(rows.out, at, pixels);
  }
  POLYPHASE_ROW_LOOP void store_last(const Rows& rows, int64_t at, Register pixels) const {
    uint8_t stored[kRows][16];
    LongBytes::store(stored, pixels);
    const size_t bytes = static_cast<size_t>(min(out_length_ - at, kTogether * channels_));
    for (int r = 0; r < kRows; ++r) std::memcpy(rows.out[r] + at, stored[r], bytes);
  }

  int64_t channels_ = 0, pixel_ = 0;
  int precision_ = 0;
  int64_t in_length_ = 0, out_length_ = 0;
  uint8_t shuffle_[16] = {}, compact_[16] = {};
  Tiles tiles_;
};

class ByteRows {
 public:
  static constexpr bool takes(int64_t channels) { return channels <= 4; }
  static constexpr int64_t kMostPicked = INT64_MAX;  // taps, up to which values are picked out of windows instead

  void build(const Taps& taps, int64_t channels, int64_t pixel) {
    is_plane_ = channels == 1;
    is_plane_ ? plane_.build(taps, channels, pixel) : pixels_.build(taps, channels, pixel);
  }
  size_t bytes() const { return plane_.bytes() + pixels_.bytes(); }
  void run(const uint8_t* const* in, uint8_t* const* out, int rows) const {
    is_plane_ ? plane_.run(in, out, rows) : pixels_.run(in, out, rows);
  }

 private:
  bool is_plane_ = false;
  RowsOfUnits<PlaneUnits> plane_;
  RowsOfUnits<PixelUnits> pixels_;
};

}  // namespace polyphase

#endif
