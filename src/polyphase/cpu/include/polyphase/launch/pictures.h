// Pillow's pictures warped as Pillow does it, to the bit: positions and sums are doubles, results are cut off, not rounded.
// Nearest pixels of an affine warp lie where fixed numbers say, of 16 bits before the point and 16 after it.
//
// Vectors are those of GCC and Clang: what an instruction set lacks is made of what it has.
#pragma once

#include <cmath>
#include <cstring>

#include "polyphase/core/standard.h"
#include "polyphase/launch/running.h"

namespace polyphase {

// As `pipelines/pillow.py` packs it.
struct PictureWarp {
  enum Filter : int64_t { kNearest = 0, kFixedNearest = 1, kBilinear = 2, kBicubic = 3 };

  int64_t in_height, in_width;
  int64_t out_height, out_width;
  int64_t bands;      // 3: pixels of four bytes, of which the fourth stays as it is   1: pixels of a byte
  int64_t filter;
  double numbers[8];  // from a pixel of the result to where it is read: two rows of a matrix, then the divisor's two numbers
};
static_assert(sizeof(PictureWarp) == 112);

#if defined(__AVX512F__)
constexpr int kPicturePixels = 8;
#else
constexpr int kPicturePixels = 4;
#endif
typedef double PictureDoubles __attribute__((vector_size(8 * kPicturePixels)));
typedef int32_t PictureInts __attribute__((vector_size(4 * kPicturePixels)));

inline PictureDoubles as_doubles(PictureInts of) { return __builtin_convertvector(of, PictureDoubles); }
inline PictureDoubles as_doubles(PictureDoubles of) { return of; }

// How pixels are mixed: so many along each axis, the first of them so far before the place, which lies so far from a corner.
// Whole numbers are so small that differences of them are exact, as those of doubles would be.
struct NearestPixel {
  static constexpr int kTaps = 1, kFirst = 0;
  static constexpr double kCentre = 0;
};

struct BilinearPixels {
  static constexpr int kTaps = 2, kFirst = 0;
  static constexpr double kCentre = 0.5;

  template <class Values>
  static PictureDoubles mixed(const Values (&v)[kTaps], PictureDoubles d) {
    return as_doubles(v[0]) + as_doubles(v[1] - v[0]) * d;
  }
  static PictureDoubles as_byte(PictureDoubles value) { return value; }
};

struct BicubicPixels {
  static constexpr int kTaps = 4, kFirst = -1;
  static constexpr double kCentre = 0.5;

  template <class Values>
  static PictureDoubles mixed(const Values (&v)[kTaps], PictureDoubles d) {
    const Values step = v[0] - v[1];
    const PictureDoubles squared = as_doubles(step + step + v[2] - v[3]), cubed = as_doubles(v[1] - v[0] - v[2] + v[3]);
    return as_doubles(v[1]) + d * (as_doubles(v[2] - v[0]) + d * (squared + d * cubed));
  }
  static PictureDoubles as_byte(PictureDoubles value) {
    const PictureDoubles none = {}, most = 255.0 - none;
    const PictureDoubles least = value < none ? none : value;
    return least > most ? most : least;
  }
};

class PictureRows {
 public:
  // in, out: lists of where rows begin.
  PictureRows(const PictureWarp& warp, const uint8_t* const* in, uint8_t* const* out) : warp_(warp), in_(in), out_(out) {
    for (int axis = 0; axis < 2 && warp.filter == PictureWarp::kFixedNearest; ++axis) {
      const double* const m = warp.numbers + 3 * axis;
      fixed_[axis][0] = fixed(m[0]);
      fixed_[axis][1] = fixed(m[1]);
      fixed_[axis][2] = fixed(m[2] + m[0] * 0.5 + m[1] * 0.5);
    }
  }

  void run(int64_t threads) {
    const auto body = [](void* self, int64_t begin, int64_t end) {
      const auto& rows = *static_cast<const PictureRows*>(self);
      for (int64_t y = begin; y < end; ++y) rows.warp_.bands == 3 ? rows.any_row<3>(y) : rows.any_row<1>(y);
    };
    Threads::run(warp_.out_height, threads, body, this);
  }

 private:
  static constexpr int kPixels = kPicturePixels;
  using Doubles = PictureDoubles;
  using Ints = PictureInts;
  typedef int64_t Mask __attribute__((vector_size(8 * kPixels)));

  // Where some pixels are read: those around each, how far from the first, and which lie inside. What is read one by one is in
  // memory: an element of a vector takes longer.
  template <int kTaps>
  struct Places {
    int32_t x[kTaps][kPixels], y[kTaps][kPixels];
    Doubles dx, dy;
    int32_t inside[kPixels];
    bool any_inside, all_inside;

    void lie(Ints mask) {
      std::memcpy(inside, &mask, sizeof(inside));
      int32_t any = 0, every = -1;
      for (int i = 0; i < kPixels; ++i) any |= inside[i], every &= inside[i];
      any_inside = any != 0;
      all_inside = every != 0;
    }
  };

  static Doubles all(double value) { return value - Doubles{}; }
  static Doubles chosen(Mask mask, Doubles a, Doubles b) { return mask ? a : b; }

  template <int kBands>
  void any_row(int64_t y) const {
    switch (warp_.filter) {
      case PictureWarp::kNearest: return row<NearestPixel, kBands>(y);
      case PictureWarp::kFixedNearest: return kBands == 1 ? fixed_row<uint8_t>(y) : fixed_row<uint32_t>(y);
      case PictureWarp::kBilinear: return row<BilinearPixels, kBands>(y);
      default: return row<BicubicPixels, kBands>(y);
    }
  }

  template <class Filter, int kBands>
  void row(int64_t y) const {
    constexpr int kMade = Filter::kTaps == 1 ? kPixelBytes<kBands> : kBands;  // what is only moved is moved whole
    for (int64_t x = 0; x < warp_.out_width; x += kPixels) {
      const int64_t count = min<int64_t>(kPixels, warp_.out_width - x);
      Places<Filter::kTaps> places;
      find<Filter>(x, y, places);
      if (!places.any_inside) continue;
      uint8_t* const out = out_[y] + x * kPixelBytes<kBands>;
      const Ints made = sampled<Filter, kBands>(places);
      if (kBands == 3 && count == kPixels && places.all_inside) {
        Ints before = {};
        if (kMade == 3) std::memcpy(&before, out, sizeof(before));
        const Ints after = (before & ~0xffffff) | made;
        std::memcpy(out, &after, sizeof(after));
        continue;
      }
      int32_t pixels[kPixels];
      std::memcpy(pixels, &made, sizeof(made));
      for (int64_t i = 0; i < count; ++i) {
        if (places.inside[i] != 0) put<kMade>(out + i * kPixelBytes<kBands>, pixels[i]);
      }
    }
  }

  template <class Filter, class PlacesOf>
  void find(int64_t x, int64_t y, PlacesOf& places) const {
    static constexpr double kSteps[] = {0, 1, 2, 3, 4, 5, 6, 7};
    Doubles steps;
    std::memcpy(&steps, kSteps, sizeof(steps));
    const Doubles at_x = static_cast<double>(x) + 0.5 + steps;
    const double at_y = static_cast<double>(y) + 0.5;
    const double* const m = warp_.numbers;
    Doubles from_x = m[0] * at_x + all(m[1] * at_y) + m[2], from_y = m[3] * at_x + all(m[4] * at_y) + m[5];
    if (m[6] != 0 || m[7] != 0) {
      const Doubles divisor = m[6] * at_x + all(m[7] * at_y) + 1.0;
      from_x /= divisor;
      from_y /= divisor;
    }
    const auto width = static_cast<double>(warp_.in_width), height = static_cast<double>(warp_.in_height);
    const Mask inside = (from_x >= 0.0) & (from_x < width) & (from_y >= 0.0) & (from_y < height);
    places.lie(__builtin_convertvector(inside, Ints));
    if (!places.any_inside) return;
    places.dx = split<Filter>(chosen(inside, from_x - Filter::kCentre, all(0)), warp_.in_width, places.x);
    places.dy = split<Filter>(chosen(inside, from_y - Filter::kCentre, all(0)), warp_.in_height, places.y);
  }

  // The pixels around a position from -0.5 on, within the picture, and how far it is from the one before it.
  template <class Filter>
  static Doubles split(Doubles position, int64_t size, int32_t (&pixels)[Filter::kTaps][kPixels]) {
    const Ints whole = __builtin_convertvector(position, Ints);  // towards 0
    const Doubles above = as_doubles(whole);
    const Doubles floor = chosen(position < above, above - 1.0, above);
    const Ints before = __builtin_convertvector(floor, Ints), last = static_cast<int32_t>(size - 1) - Ints{};
    for (int tap = 0; tap < Filter::kTaps; ++tap) {
      const Ints at = before + (Filter::kFirst + tap);
      const Ints within = at < 0 ? Ints{} : at > last ? last : at;
      std::memcpy(pixels[tap], &within, sizeof(within));
    }
    return position - floor;
  }

  // Nearest pixels by fixed numbers, which grow from pixel to pixel and from row to row: pixels inside lie side by side.
  template <class Pixel>
  void fixed_row(int64_t y) const {
    const auto &across = fixed_[0], &down = fixed_[1];
    int64_t from_x = across[2] + across[1] * y, from_y = down[2] + down[1] * y, begin = 0, end = warp_.out_width;
    keep_inside(from_x, across[0], warp_.in_width, &begin, &end);
    keep_inside(from_y, down[0], warp_.in_height, &begin, &end);
    auto* const out = reinterpret_cast<Pixel*>(out_[y]);
    from_x += across[0] * begin;
    from_y += down[0] * begin;
    for (int64_t x = begin; x < end; ++x, from_x += across[0], from_y += down[0]) {
      out[x] = reinterpret_cast<const Pixel*>(in_[from_y >> 16])[from_x >> 16];
    }
  }

  // From where on, and up to where, numbers of an axis of so many pixels lie inside.
  static void keep_inside(int64_t first, int64_t step, int64_t size, int64_t* begin, int64_t* end) {
    const int64_t least = step < 0 ? first - (size << 16) + 1 : -first;  // in steps away from the first: the least, and too far
    const int64_t most = step < 0 ? first + 1 : (size << 16) - first, length = step < 0 ? -step : step;
    if (length == 0) {
      if (least > 0 || most <= 0) *end = *begin;
      return;
    }
    *begin = max(*begin, least <= 0 ? 0 : (least + length - 1) / length);
    *end = max(*begin, min(*end, most <= 0 ? 0 : (most + length - 1) / length));
  }

  static int64_t fixed(double number) { return static_cast<int64_t>(std::floor(number * 65536.0 + 0.5)); }

  template <class Filter, int kBands, class PlacesOf>
  Ints sampled(const PlacesOf& places) const {
    constexpr int kTaps = Filter::kTaps;
    int32_t taken_one_by_one[kTaps][kTaps][kPixels];
#pragma GCC unroll 8
    for (int i = 0; i < kPixels; ++i) {
#pragma GCC unroll 4
      for (int down = 0; down < kTaps; ++down) {
        const uint8_t* const from = in_[places.y[down][i]];
#pragma GCC unroll 4
        for (int across = 0; across < kTaps; ++across) {
          taken_one_by_one[down][across][i] = taken<kBands>(from + places.x[across][i] * kPixelBytes<kBands>);
        }
      }
    }
    Ints pixels[kTaps][kTaps];
    std::memcpy(pixels, taken_one_by_one, sizeof(pixels));
    return mixed<Filter, kBands>(pixels, places.dx, places.dy);
  }

  template <class Filter, int kBands, int kTaps>
  static Ints mixed(const Ints (&pixels)[kTaps][kTaps], Doubles dx, Doubles dy) {
    if constexpr (kTaps == 1) return pixels[0][0];
    if constexpr (kTaps > 1) {
      Ints made = {};
#pragma GCC unroll 3
      for (int band = 0; band < kBands; ++band) {
        Doubles rows[kTaps];
#pragma GCC unroll 4
        for (int down = 0; down < kTaps; ++down) {
          Ints values[kTaps];
#pragma GCC unroll 4
          for (int across = 0; across < kTaps; ++across) values[across] = pixels[down][across] >> 8 * band & 0xff;
          rows[down] = Filter::mixed(values, dx);
        }
        made |= __builtin_convertvector(Filter::as_byte(Filter::mixed(rows, dy)), Ints) << 8 * band;
      }
      return made;
    }
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

  template <int kBytes>
  static void put(uint8_t* pixel, int32_t bytes) {
    for (int i = 0; i < kBytes; ++i) pixel[i] = static_cast<uint8_t>(bytes >> 8 * i);
  }

  const PictureWarp& warp_;
  const uint8_t* const* in_;
  uint8_t* const* out_;
  int64_t fixed_[2][3];  // of x and y: how much they grow from pixel to pixel, from row to row, and the first
};

// the warp as bytes, the source, the target: what have the addresses of their lists of rows
inline void warp_picture(const uint8_t* data, int64_t size, PyObject* source, PyObject* target) {
  PictureWarp warp;
  if (size != sizeof(warp)) throw BadCall{"a warp of another size than it is"};
  std::memcpy(&warp, data, sizeof(warp));
  const bool fits = min(min(warp.in_height, warp.in_width), min(warp.out_height, warp.out_width)) > 0;
  const bool has_filter = warp.filter >= PictureWarp::kNearest && warp.filter <= PictureWarp::kBicubic;
  if (!fits || !has_filter || (warp.bands != 1 && warp.bands != 3)) throw BadCall{"a warp of no picture"};
  Addresses rows;
  add_address(target, rows);
  add_address(source, rows);
  PictureRows made(warp, static_cast<const uint8_t* const*>(rows.data[1]), static_cast<uint8_t* const*>(rows.data[0]));
  const int64_t most = warp.out_height * warp.out_width / kWarpedElementsPerThread;
  const int64_t threads = most <= 1 ? 1 : min(most, torch_threads());
  without_gil(1, [&] { made.run(threads); });
}

}  // namespace polyphase
