// The horizontal pass over RGB, four rows at a time, with no lane unused (AVX2).
//
// As in four_rows.h pixels are laid out first, four neighbours of four rows at a time: two pairs of pixels, three channels and
// four rows are 24 lanes of 32 bits, each a pair. They fill three registers where pixels of four channels fill four:
//
//   pair 0    rows 0 and 1: red, green, blue; rows 2 and 3: red         each half of a register: one of the two rows,
//   pair 1    the same                                                  rows 0 and 2 in the low half, 1 and 3 in the high one
//   both      rows 2 and 3: green of pair 0, of pair 1, blue of pair 0, of pair 1
//
// So an output is a sum over such groups of four pixels; what the last register added up is added by twos at the end.
#pragma once

#include "polyphase/core/abi.h"
#include "polyphase/core/buffer.h"
#include "polyphase/core/standard.h"
#include "polyphase/core/unroll.h"
#include "polyphase/resample/row_tiles.h"
#include "polyphase/simd/bytes.h"

namespace polyphase {

#if defined(POLYPHASE_FOUR_ROWS)

class RgbRows {
 public:
  // Three products for each group of four pixels, or four for two pairs. As groups begin at every fourth pixel, outputs may
  // need more of them; and there is a little more to do around the sums. Places are 32 bit numbers of bytes.
  static bool suits(const Taps& taps) {
    if (taps.in_size > INT32_MAX / kGroup) return false;
    return 6 * Tiles::units_for(taps) + 3 <= 4 * RowTiles<WordPairs>::units_for(taps);
  }

  void build(const Taps& taps) {
    precision_ = taps.precision;
    in_length_ = taps.in_size * kChannels;
    out_length_ = taps.out_size * kChannels;
    tiles_.build(taps, kGroup);
  }

  size_t bytes() const { return tiles_.bytes(); }

  // Four rows.
  POLYPHASE_ROW_LOOP void run(const uint8_t* const* in, uint8_t* const* out) const {
    static thread_local Buffer<uint8_t> laid_out;
    laid_out.resize((tiles_.longest() + kUnrolled) * kGroup);
    int64_t x = 0;
    for (const Tiles::Tile& tile : tiles_) {
      lay_out(tile, in, laid_out.data());
      sum(laid_out.data() - tile.first * kGroup, x, tile.end, out);
      x = tile.end;
    }
  }

 private:
  using Vector = Avx2Bytes;
  using Register = Vector::Register;
  using Tiles = RowTiles<WordQuads>;
  static constexpr int kChannels = 3, kRows = 4;
  static constexpr int64_t kTogether = Tiles::kTogether;
  static constexpr int64_t kGroup = 3 * Vector::kSize;   // bytes of a group as it is laid out,
  static constexpr int64_t kGroupBytes = 4 * kChannels;  // and in a row
  static constexpr int kUnrolled = 4;                    // groups that are laid out by a turn of the loop

  static Register kept(const uint8_t* table) {
    Register v = Vector::in_each(table);
    asm("" : "+x"(v));  // else every use loads it anew
    return v;
  }

  // Groups by loads of 16 bytes, a few more than the tile has; the last ones of a row from where there is room to read beyond
  // its end.
  POLYPHASE_BLOCK void lay_out(const Tiles::Tile& tile, const uint8_t* const* in, uint8_t* to) const {
    constexpr uint8_t kNone = Vector::kNone;
    constexpr uint8_t kRed[16] = {kNone, kNone, kNone, kNone, kNone, kNone, kNone, kNone, kNone, kNone, kNone, kNone, 0, 3, 6, 9};
    constexpr uint8_t kFirst[16] = {0, kNone, 3, kNone, 1, kNone, 4, kNone, 2, kNone, 5, kNone, 12, kNone, 13, kNone};
    constexpr uint8_t kSecond[16] = {6, kNone, 9, kNone, 7, kNone, 10, kNone, 8, kNone, 11, kNone, 14, kNone, 15, kNone};
    constexpr uint8_t kOthers[16] = {1, kNone, 4, kNone, 7, kNone, 10, kNone, 2, kNone, 5, kNone, 8, kNone, 11, kNone};
    const Register red = kept(kRed), first = kept(kFirst), second = kept(kSecond), others = kept(kOthers);
    const int64_t length = in_length_, end = (tile.first + tile.count) * kGroupBytes;
    int64_t at = tile.first * kGroupBytes;
    const uint8_t *a = in[0] + at, *b = in[1] + at, *c = in[2] + at, *d = in[3] + at;
    const auto lay_out_groups = [&](auto count) {
      repeat<count>([&](auto i) {
        const Register upper = Vector::halves(a + i * kGroupBytes, b + i * kGroupBytes);
        const Register lower = Vector::halves(c + i * kGroupBytes, d + i * kGroupBytes);
        const Register pairs = Vector::with_last(upper, Vector::shuffle(lower, red));
        Vector::store(to + i * kGroup, Vector::shuffle(pairs, first));
        Vector::store(to + i * kGroup + Vector::kSize, Vector::shuffle(pairs, second));
        Vector::store(to + i * kGroup + 2 * Vector::kSize, Vector::shuffle(lower, others));
      });
      constexpr int64_t kStep = count * kGroupBytes;
      at += kStep, a += kStep, b += kStep, c += kStep, d += kStep;
      asm("" : "+r"(a), "+r"(b), "+r"(c), "+r"(d));  // else they have a common index, which makes two instructions of a load
      to += count * kGroup;
    };
    const int64_t stop = min(end, length - (kUnrolled - 1) * kGroupBytes - 15);
    while (at < stop) lay_out_groups(Constant<kUnrolled>());
    if (at >= end) return;
    uint8_t rest[kRows][kUnrolled * kGroupBytes + 16] = {};
    for (int r = 0; r < kRows; ++r) std::memcpy(rest[r], in[r] + at, static_cast<size_t>(length - at));
    a = rest[0], b = rest[1], c = rest[2], d = rest[3];
    while (at < end) lay_out_groups(Constant<1>());
  }

  // Outputs x to end. `laid_out`: where group 0 of the row would lie.
  POLYPHASE_BLOCK void sum(const uint8_t* laid_out, int64_t x, int64_t end, uint8_t* const* out) const {
    const int64_t groups = tiles_.units();
    const int32_t* place = tiles_.places(x);
    const int64_t* weights = tiles_.weights(x);
    const int32_t rounding = 1 << (precision_ - 1);
    const Register bits = Vector::broadcast(precision_), half = Vector::broadcast(rounding);
    const Register half_of_two = Vector::broadcast_two(rounding);  // in one of two lanes to be added
    for (; x < end; x += kTogether, place += kTogether) {
      Register p = half, q = half, r = half, s = half;
      Register t = half_of_two, u = t, v = t, w = t;
      const uint8_t *at_p = laid_out + place[0], *at_q = laid_out + place[1];
      const uint8_t *at_r = laid_out + place[2], *at_s = laid_out + place[3];
      for (int64_t k = groups; k > 0; --k, weights += kTogether) {
        add(at_p, weights, p, t);
        add(at_q, weights + 1, q, u);
        add(at_r, weights + 2, r, v);
        add(at_s, weights + 3, s, w);
      }
      const auto shifted = [&](Register sums) { return Vector::shift_right(sums, bits); };
      const Register two = shifted(Vector::add_neighbours(t, u)), others = shifted(Vector::add_neighbours(v, w));
      store(out, x * kChannels, Vector::pack(shifted(p), shifted(q), shifted(r), shifted(s)),
            Vector::pack(two, others, two, others));
    }
  }

  // A group, and to the next one.
  POLYPHASE_BLOCK static void add(const uint8_t*& from, const int64_t* weights, Register& sum, Register& of_both) {
    const int32_t* pairs = reinterpret_cast<const int32_t*>(weights);
    sum = Vector::dot(sum, Vector::broadcast(pairs[0]), Vector::load(from));
    asm("" : "+x"(sum));  // else GCC moves sums between registers at the loop's end
    sum = Vector::dot(sum, Vector::broadcast(pairs[1]), Vector::load(from + Vector::kSize));
    asm("" : "+x"(sum));
    of_both = Vector::dot(of_both, Vector::broadcast_two(*weights), Vector::load(from + 2 * Vector::kSize));
    asm("" : "+x"(of_both));
    from += kGroup;
    asm("" : "+r"(from));  // else it is a register and a common index, which make two instructions of a product
  }

  // Four pixels of every row, from element `at` on. `most`: of the rows above red, green, blue, then red of those below, for
  // each pixel in turn. `others`: of those below green and blue, twice. What is stored beyond four pixels the next ones
  // overwrite.
  POLYPHASE_BLOCK void store(uint8_t* const* out, int64_t at, Register most, Register others) const {
    constexpr uint8_t kUpper[16] = {0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, 3, 7, 11, 15};
    constexpr uint8_t kLower[16] = {12, 0, 1, 13, 2, 3, 14, 4, 5, 15, 6, 7};
    const Register upper = Vector::shuffle(most, Vector::in_each(kUpper));
    const Register lower = Vector::shuffle(Vector::with_last(others, upper), Vector::in_each(kLower));
    if (at + 16 > out_length_) return store_last(out, at, upper, lower);
    Vector::store_rows(out, at, upper);
    Vector::store_rows(out + 2, at, lower);
  }
  POLYPHASE_ROW_LOOP void store_last(uint8_t* const* out, int64_t at, Register upper, Register lower) const {
    uint8_t pixels[kRows][16];
    Vector::store(pixels, upper);
    Vector::store(pixels + 2, lower);
    const size_t bytes = static_cast<size_t>(min(out_length_ - at, kTogether * kChannels));
    for (int r = 0; r < kRows; ++r) std::memcpy(out[r] + at, pixels[r], bytes);
  }

  int precision_ = 0;
  int64_t in_length_ = 0, out_length_ = 0;
  Tiles tiles_;
};

#endif

}  // namespace polyphase
