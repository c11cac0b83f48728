// The horizontal pass over pixels of two to four bytes, four rows at a time (AVX2, and AVX-512 without VNNI).
//
// It goes by tiles (row_tiles.h). The pixels of a tile are laid out first, as 16 bit values: 16 bytes have two neighbouring
// pixels of one row, channel by channel, and the same two of the other rows lie beside them. Then an output is a sum over
// such pairs without any shuffle, however many outputs read a pixel, and the weights of a pair of taps are loaded once for
// all rows and channels. Nothing is prefetched: the hardware foresees four rows that are read in order.
#pragma once

#include "polyphase/core/abi.h"
#include "polyphase/core/buffer.h"
#include "polyphase/core/standard.h"
#include "polyphase/core/unroll.h"
#include "polyphase/resample/byte_rows.h"
#include "polyphase/resample/rgb_rows.h"
#include "polyphase/resample/row_tiles.h"
#include "polyphase/simd/bytes.h"

namespace polyphase {

#if defined(POLYPHASE_FOUR_ROWS)

class FourRows {
 public:
  static constexpr int kRows = 4;
  static constexpr bool takes(int64_t channels) { return channels >= 2 && channels <= 4; }
  // Taps, up to which values are picked out of windows instead. Windows of 64 bytes are taken for any number.
  static constexpr int64_t kMostPicked = Bytes::kWindow == 64 ? INT64_MAX : LongestBytes::kSize == 64 ? 6 : 8;

  void build(const Taps& taps, int64_t channels, int64_t pixel) {
    if (kHasRgb && pixel == 3 && RgbRows::suits(taps)) return rgb_.build(taps);
    channels_ = channels;
    pixel_ = pixel;
    precision_ = taps.precision;
    in_length_ = taps.in_size * pixel;
    out_size_ = taps.out_size;
    tiles_.build(taps, 1);
    for (int pair = 0; pair < 2; ++pair) fill_shuffle(pair);
    for (int i = 0; i < 16; ++i) compact_[i] = static_cast<uint8_t>(i / channels * 4 + i % channels);
  }

  size_t bytes() const { return tiles_.bytes() + rgb_.bytes(); }

  // Up to four rows. Of three the last is made twice, and so is one alone.
  POLYPHASE_ROW_LOOP void run(const uint8_t* const* in, uint8_t* const* out, int rows) const {
    const Rows four = {{in[0], in[rows > 1 ? 1 : 0], in[rows > 2 ? 2 : 0], in[rows - 1]},
                       {out[0], out[rows > 1 ? 1 : 0], out[rows > 2 ? 2 : 0], out[rows - 1]}};
    if (kHasRgb && channels_ == 0) return rgb_.run(four.in, four.out);
    rows > 2 ? run_tiles<LongestBytes, kRows / LongestBytes::kRows>(four) : run_tiles<Avx2Bytes, 1>(four);
  }

 private:
  static constexpr bool kHasRgb = LongestBytes::kSize == Avx2Bytes::kSize;
  using Tiles = RowTiles<WordPairs>;  // units are pairs of pixels
  static constexpr int64_t kTogether = Tiles::kTogether;

  struct Rows {
    const uint8_t* in[kRows];
    uint8_t* out[kRows];
  };

  // Of the first or the second pair in 16 bytes of a row, each channel's two values side by side.
  void fill_shuffle(int pair) {
    for (int i = 0; i < 16; ++i) shuffle_[pair][i] = LongestBytes::kNone;
    for (int c = 0; c < channels_; ++c) {
      for (int k = 0; k < 2; ++k) shuffle_[pair][4 * c + 2 * k] = static_cast<uint8_t>((2 * pair + k) * pixel_ + c);
    }
  }

  // kRegisters of this kind hold a pair of pixels of all rows.
  template <class Vector, int kRegisters>
  POLYPHASE_ROW_LOOP void run_tiles(const Rows& rows) const {
    constexpr int64_t kPair = kRegisters * Vector::kSize;
    static thread_local Buffer<uint8_t> laid_out;
    laid_out.resize((tiles_.longest() + 1) * kPair);
    int64_t x = 0;
    for (const Tiles::Tile& tile : tiles_) {
      lay_out<Vector, kRegisters>(tile, rows, laid_out.data());
      sum<Vector, kRegisters>(laid_out.data() - tile.first * kPair, x, tile.end, rows);
      x = tile.end;
    }
  }

  // Two pairs by each load of 16 bytes; the last ones of a row from where there is room to read beyond its end.
  template <class Vector, int kRegisters>
  POLYPHASE_BLOCK void lay_out(const Tiles::Tile& tile, const Rows& rows, uint8_t* to) const {
    const int64_t step = 4 * pixel_, length = in_length_, end = (tile.first + tile.count) * 2 * pixel_;
    int64_t at = tile.first * 2 * pixel_;
    const auto first = Vector::in_each(shuffle_[0]), second = Vector::in_each(shuffle_[1]);
    const uint8_t *a = rows.in[0], *b = rows.in[1], *c = rows.in[2], *d = rows.in[3];
    // One line of the cache after the other: stores to the same one are made together.
    const auto lay_out_two = [&] {
      const auto pixels = Vector::load_rows(a + at, b + at, c + at, d + at);
      if constexpr (kRegisters == 1) {
        Vector::store(to, Vector::shuffle(pixels, first));
        Vector::store(to + Vector::kSize, Vector::shuffle(pixels, second));
      } else {
        const auto others = Vector::load_rows(c + at, d + at, a + at, b + at);
        Vector::store(to, Vector::shuffle(pixels, first));
        Vector::store(to + Vector::kSize, Vector::shuffle(others, first));
        Vector::store(to + 2 * Vector::kSize, Vector::shuffle(pixels, second));
        Vector::store(to + 3 * Vector::kSize, Vector::shuffle(others, second));
      }
      at += step;
      to += 2 * kRegisters * Vector::kSize;
    };
    while (at < end && at + 16 <= length) lay_out_two();
    if (at >= end) return;
    uint8_t rest[kRows][32] = {};
    for (int r = 0; r < kRows; ++r) std::memcpy(rest[r], rows.in[r] + at, static_cast<size_t>(length - at));
    a = rest[0] - at, b = rest[1] - at, c = rest[2] - at, d = rest[3] - at;
    while (at < end) lay_out_two();
  }

  // Outputs x to end. `laid_out`: where pair 0 of the row would lie.
  template <class Vector, int kRegisters>
  POLYPHASE_BLOCK void sum(const uint8_t* laid_out, int64_t x, int64_t end, const Rows& rows) const {
    using Sums = typename Vector::Register;
    constexpr int64_t kPair = kRegisters * Vector::kSize;
    const int64_t pairs = tiles_.units(), channels = channels_;
    const int32_t *place = tiles_.places(x), *weights = tiles_.weights(x);
    const Sums bits = Vector::broadcast(precision_), half = Vector::broadcast(1 << (precision_ - 1));
    const Sums compact = Vector::in_each(compact_);
    const auto at = [&](int i) { return laid_out + place[i] * kPair; };
    const auto finished = [&](Sums p, Sums q, Sums r, Sums s) {
      return Vector::shuffle(Vector::pack(Vector::shift_right(p, bits), Vector::shift_right(q, bits),
                                          Vector::shift_right(r, bits), Vector::shift_right(s, bits)), compact);
    };
    for (; x < end; x += kTogether, place += kTogether) {
      Sums p = half, q = half, r = half, s = half;
      Sums t = half, u = half, v = half, w = half;  // of the second register
      const uint8_t *at_p = at(0), *at_q = at(1), *at_r = at(2), *at_s = at(3);
      const auto add_pairs = [&](auto count) {
        const auto add = [&](const uint8_t*& from, const int32_t* weight, Sums& sum, Sums& other) {
          repeat<count>([&](auto k) {
            const Sums each = Vector::broadcast(weight[k * kTogether]);
            sum = Vector::dot(sum, each, Vector::load(from + k * kPair));  // AVX-512: only the last can be in memory
            asm("" : "+v"(sum));  // else GCC moves sums between registers at the loop's end
            if constexpr (kRegisters == 2) {
              other = Vector::dot(other, each, Vector::load(from + k * kPair + Vector::kSize));
              asm("" : "+v"(other));
            }
          });
          from += count * kPair;
          asm("" : "+r"(from));  // else it is a register and a common index, which make two instructions of a product
        };
        add(at_p, weights, p, t);
        add(at_q, weights + 1, q, u);
        add(at_r, weights + 2, r, v);
        add(at_s, weights + 3, s, w);
        weights += count * kTogether;
      };
      for (int64_t k = pairs / 2; k > 0; --k) add_pairs(Constant<2>());
      if (pairs % 2 > 0) add_pairs(Constant<1>());
      const Sums first = finished(p, q, r, s);
      store<Vector, kRegisters>(rows, x * channels, first, kRegisters == 2 ? finished(t, u, v, w) : first);
    }
  }

  // Four pixels of every row, from element `at` on. Pixels of fewer than four bytes store more than they are: the next ones
  // overwrite it.
  template <class Vector, int kRegisters, class Sums>
  POLYPHASE_BLOCK void store(const Rows& rows, int64_t at, Sums first, Sums second) const {
    if (at + 16 > out_size_ * channels_) return store_last<Vector, kRegisters>(rows, at, first, second);
    Vector::store_rows(rows.out, at, first);
    if constexpr (kRegisters == 2) Vector::store_rows(rows.out + Vector::kRows, at, second);
  }
  template <class Vector, int kRegisters, class Sums>
  POLYPHASE_ROW_LOOP void store_last(const Rows& rows, int64_t at, Sums first, Sums second) const {
    uint8_t pixels[2 * Vector::kRows][16];
    Vector::store(pixels, first);
    Vector::store(pixels + Vector::kRows, second);
    const size_t bytes = static_cast<size_t>(min(out_size_ * channels_ - at, kTogether * channels_));
    for (int r = 0; r < kRegisters * Vector::kRows; ++r) std::memcpy(rows.out[r] + at, pixels[r], bytes);
  }

  int64_t channels_ = 0;  // none: rows are rgb_'s
  int64_t pixel_ = 0;
  int precision_ = 0;
  int64_t in_length_ = 0, out_size_ = 0;
  uint8_t shuffle_[2][16] = {}, compact_[16] = {};
  Tiles tiles_;
  RgbRows rgb_;
};

#elif defined(POLYPHASE_BYTE_PRODUCTS)

using FourRows = ByteRows;

#else

struct FourRows {
  static constexpr bool takes(int64_t) { return false; }
  static constexpr int64_t kMostPicked = 0;
  void build(const Taps&, int64_t, int64_t) {}
  size_t bytes() const { return 0; }
  void run(const uint8_t* const*, uint8_t* const*, int) const {}
};

#endif

}  // namespace polyphase
