// Pillow's pictures warped as Pillow does it, to the bit: positions and sums are doubles, results are cut off, not rounded.
//
// Vectors are those of GCC and Clang: what an instruction set lacks is made of what it has.
#pragma once

#include <cstring>

#include "polyphase/core/standard.h"
#include "polyphase/launch/running.h"

namespace polyphase {

// As `pipelines/pillow.py` packs it.
struct PictureWarp {
  int64_t in_height, in_width;
  int64_t out_height, out_width;
  int64_t bands;      // 3: pixels of four bytes, of which the fourth stays as it is   1: pixels of a byte
  double numbers[8];  // from a pixel of the result to where it is read: two rows of a matrix, then the divisor's two numbers
};
static_assert(sizeof(PictureWarp) == 104);

class PictureRows {
 public:
  // in, out: lists of where rows begin.
  PictureRows(const PictureWarp& warp, const uint8_t* const* in, uint8_t* const* out) : warp_(warp), in_(in), out_(out) {}

  void run(int64_t threads) {
    const auto body = [](void* self, int64_t begin, int64_t end) {
      const auto& rows = *static_cast<const PictureRows*>(self);
      for (int64_t y = begin; y < end; ++y) rows.warp_.bands == 3 ? rows.row<3>(y) : rows.row<1>(y);
    };
    Threads::run(warp_.out_height, threads, body, this);
  }

 private:
#if defined(__AVX512F__)
  static constexpr int kPixels = 8;
#else
  static constexpr int kPixels = 4;
#endif
  typedef double Doubles __attribute__((vector_size(8 * kPixels)));
  typedef int64_t Mask __attribute__((vector_size(8 * kPixels)));
  typedef int32_t Ints __attribute__((vector_size(4 * kPixels)));

  // Where some pixels are read: the four around each, how far from the first, and which lie inside. What is read one by one
  // is in memory: an element of a vector takes longer.
  struct Places {
    int32_t x[2][kPixels], y[2][kPixels];
    Doubles dx, dy;
    int64_t inside[kPixels];
    bool all_inside;
  };

  static Doubles all(double value) { return value - Doubles{}; }
  static Doubles chosen(Mask mask, Doubles a, Doubles b) { return mask ? a : b; }

  template <int kBands>
  void row(int64_t y) const {
    for (int64_t x = 0; x < warp_.out_width; x += kPixels) {
      const int64_t count = min<int64_t>(kPixels, warp_.out_width - x);
      Places places;
      if (!find(static_cast<double>(x) + 0.5, static_cast<double>(y) + 0.5, places)) continue;
      uint8_t* const out = out_[y] + x * kPixelBytes<kBands>;
      const Ints made = sampled<kBands>(places);
      if (kBands == 3 && count == kPixels && places.all_inside) {
        Ints before;
        std::memcpy(&before, out, sizeof(before));
        const Ints after = (before & ~0xffffff) | made;
        std::memcpy(out, &after, sizeof(after));
        continue;
      }
      int32_t pixels[kPixels];
      std::memcpy(pixels, &made, sizeof(made));
      for (int64_t i = 0; i < count; ++i) {
        if (places.inside[i] != 0) put<kBands>(out + i * kPixelBytes<kBands>, pixels[i]);
      }
    }
  }

  // False where none lies inside.
  bool find(double first_x, double y, Places& places) const {
    const double* const m = warp_.numbers;
    static constexpr double kSteps[] = {0, 1, 2, 3, 4, 5, 6, 7};
    Doubles steps;
    std::memcpy(&steps, kSteps, sizeof(steps));
    const Doubles x = first_x + steps;
    Doubles from_x = m[0] * x + all(m[1] * y) + m[2], from_y = m[3] * x + all(m[4] * y) + m[5];
    if (m[6] != 0 || m[7] != 0) {
      const Doubles divisor = m[6] * x + all(m[7] * y) + 1.0;
      from_x /= divisor;
      from_y /= divisor;
    }
    const auto width = static_cast<double>(warp_.in_width), height = static_cast<double>(warp_.in_height);
    const Mask inside = (from_x >= 0.0) & (from_x < width) & (from_y >= 0.0) & (from_y < height);
    std::memcpy(places.inside, &inside, sizeof(inside));
    int64_t any = 0, every = -1;
    for (int i = 0; i < kPixels; ++i) any |= places.inside[i], every &= places.inside[i];
    if (any == 0) return false;
    places.all_inside = every != 0;
    places.dx = split(chosen(inside, from_x - 0.5, all(0)), warp_.in_width, places.x);
    places.dy = split(chosen(inside, from_y - 0.5, all(0)), warp_.in_height, places.y);
    return true;
  }

  // From -0.5 on: the pixels before and after, within the picture, and how far it is from the first.
  static Doubles split(Doubles position, int64_t size, int32_t (&pixels)[2][kPixels]) {
    const Ints whole = __builtin_convertvector(position, Ints);  // towards 0
    const Doubles above = __builtin_convertvector(whole, Doubles);
    const Doubles floor = chosen(position < above, above - 1.0, above);
    const Ints before = __builtin_convertvector(floor, Ints), after = before + 1;
    const auto last = static_cast<int32_t>(size - 1);
    const Ints two[2] = {before < 0 ? Ints{} : before, after > last ? last - Ints{} : after};
    std::memcpy(pixels, two, sizeof(two));
    return position - floor;
  }

  template <int kBands>
  Ints sampled(const Places& places) const {
    int32_t taken_one_by_one[4][kPixels];
#pragma GCC unroll 8
    for (int i = 0; i < kPixels; ++i) {
      const uint8_t *const upper = in_[places.y[0][i]], *const lower = in_[places.y[1][i]];
      const int64_t left = places.x[0][i] * kPixelBytes<kBands>, right = places.x[1][i] * kPixelBytes<kBands>;
      taken_one_by_one[0][i] = taken<kBands>(upper + left);
      taken_one_by_one[1][i] = taken<kBands>(upper + right);
      taken_one_by_one[2][i] = taken<kBands>(lower + left);
      taken_one_by_one[3][i] = taken<kBands>(lower + right);
    }
    Ints corners[4];
    std::memcpy(corners, taken_one_by_one, sizeof(corners));
    Ints made = {};
#pragma GCC unroll 3
    for (int band = 0; band < kBands; ++band) {
      Doubles values[4];
#pragma GCC unroll 4
      for (int corner = 0; corner < 4; ++corner) {
        values[corner] = __builtin_convertvector(corners[corner] >> 8 * band & 0xff, Doubles);
      }
      const Doubles upper = values[0] + (values[1] - values[0]) * places.dx;
      const Doubles lower = values[2] + (values[3] - values[2]) * places.dx;
      made |= __builtin_convertvector(upper + (lower - upper) * places.dy, Ints) << 8 * band;
    }
    return made;
  }

  template <int kBands>
  static constexpr int64_t kPixelBytes = kBands == 3 ? 4 : 1;

  template <int kBands>
  static int32_t taken(const uint8_t* pixel) {
    if (kBands == 1) return *pixel;
    int32_t four;
    std::memcpy(&four, pixel, 4);
    return four;
  }

  template <int kBands>
  static void put(uint8_t* pixel, int32_t bands) {
    for (int band = 0; band < kBands; ++band) pixel[band] = static_cast<uint8_t>(bands >> 8 * band);
  }

  const PictureWarp& warp_;
  const uint8_t* const* in_;
  uint8_t* const* out_;
};

// the warp as bytes, the source, the target: what have the addresses of their lists of rows
inline void warp_picture(const uint8_t* data, int64_t size, PyObject* source, PyObject* target) {
  PictureWarp warp;
  if (size != sizeof(warp)) throw BadCall{"a warp of another size than it is"};
  std::memcpy(&warp, data, sizeof(warp));
  const bool fits = min(min(warp.in_height, warp.in_width), min(warp.out_height, warp.out_width)) > 0;
  if (!fits || (warp.bands != 1 && warp.bands != 3)) throw BadCall{"a warp of no picture"};
  Addresses rows;
  add_address(target, rows);
  add_address(source, rows);
  PictureRows made(warp, static_cast<const uint8_t* const*>(rows.data[1]), static_cast<uint8_t* const*>(rows.data[0]));
  const int64_t most = warp.out_height * warp.out_width / kWarpedElementsPerThread;
  const int64_t threads = most <= 1 ? 1 : min(most, torch_threads());
  without_gil(1, [&] { made.run(threads); });
}

}  // namespace polyphase
