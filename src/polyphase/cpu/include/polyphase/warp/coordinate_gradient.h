// The gradient of a warp's coordinates: by the slopes of the weights.
#pragma once

#include "polyphase/warp/gradient_tile.h"

namespace polyphase {

// Of fewer channels a pixel is no vector to be multiplied.
constexpr int64_t kFewestProducts = 8;

// The gradient of a row of coordinates, or that row's share of the gradient of a matrix, by tiles that `tile` enters.
template <class Load, class Filter, class G, class P, int kAxes, class Formula>
class CoordinateGradient {
 public:
  using S = typename Load::From;
  using V = typename Load::To;
  using Tile = GradientTile<Load, Filter, G, P, kAxes, Formula>;

  CoordinateGradient(const WarpCall& call, Tile& tile)
      : call_(call), tile_(tile), by_pixels_(call.channels >= kFewestProducts && call.image_strides.channel == 1) {}

  // Rows are counted over (batch, z, y).
  void run(int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t n = row / tile_.rows(), r = row % tile_.rows();
      tile_.enter_row(n, r);
      begin_row();
      for (int64_t x = 0; x < call_.out_size[2]; x += kTile) tile(n, r, x);
      end_row(row);
    }
  }

  void begin_row() {
    for (double& sum : sums_) sum = 0;
  }
  void end_row(int64_t row) {
    if (!Formula::kExists && !call_.affine) return;
    double* share = static_cast<double*>(call_.coordinate_gradient) + row * kSums;
    for (int m = 0; m < kSums; ++m) share[m] = sums_[m];
  }

  // Of a grid whose points are one row: tiles, counted over the batch.
  void run_tiles(int64_t begin, int64_t end) {
    const int64_t tiles = tiles_of_points(call_);
    for (int64_t t = begin; t < end; ++t) {
      tile_.enter_row(t / tiles, 0);
      tile(t / tiles, 0, t % tiles * kTile);
    }
  }

  static int64_t tiles_of_points(const WarpCall& call) { return (call.out_size[2] + kTile - 1) / kTile; }

 private:
  static constexpr int kCount = WarpTaps<Filter, P, kAxes>::kCount;
  static constexpr int kMatrix = kAxes * (kAxes + 1);
  static constexpr int sums() {
    if constexpr (Formula::kExists) {
      return Formula::kEntries;
    } else {
      return kMatrix;
    }
  }
  static constexpr int kSums = sums();

  void tile(int64_t n, int64_t r, int64_t x) {
    tile_.enter_tile(x, call_.image_strides, true);
    add_tile(n, r, x);
  }

 public:
  // The tile that was entered, with slopes: of row r of image n, from pixel x on.
  void add_tile(int64_t n, int64_t r, int64_t x) {
    const int64_t pixel = (n * tile_.rows() + r) * call_.out_size[2] + x;
    sum_channels(static_cast<const S*>(call_.source) + n * call_.image_strides.batch);
    if constexpr (Formula::kExists) {
      through_formula(pixel);
    } else if (call_.affine) {
      add_to_matrix(x, r);
    } else {
      store(pixel);
    }
  }

 private:
  // by_axis_[a] = sum over channels and taps of gradient * value * slope along axis a.
  void sum_channels(const S* image) {
    if constexpr (Tile::kRows) {
      return sum_rows(image);
    } else if constexpr (Load::kIdentity) {
      if (by_pixels_) return sum_pixels(image);
      if constexpr (kAxes == 2 && Filter::kTaps == 2) return sum_squares(image);
    }
    sum_taps(image);
  }

  // 2 x 2 taps of a plane: those of a row by their slopes, and of a column. What is no number is summed again, tap by tap.
  POLYPHASE_ROW_LOOP void sum_squares(const S* image) {
    const auto &x = tile_.taps.axes[0], &y = tile_.taps.axes[1];
    TileOf<P> along_x = {}, along_y = {};
    for (int64_t c = 0; c < call_.channels; ++c) {
      alignas(64) V gradient[kTile], a[kTile], b[kTile], d[kTile], e[kTile];
      tile_.load_gradient(c, gradient);
      const S* plane = image + c * call_.image_strides.channel;
      gather(plane, tile_.taps.offset[0], a);
      gather(plane, tile_.taps.offset[1], b);
      gather(plane, tile_.taps.offset[2], d);
      gather(plane, tile_.taps.offset[3], e);
      for (int i = 0; i < kTile; ++i) {
        const P sloped = y.weight[0][i] * (x.slope[0][i] * a[i] + x.slope[1][i] * b[i]) +
                         y.weight[1][i] * (x.slope[0][i] * d[i] + x.slope[1][i] * e[i]);
        const P weighed = y.slope[0][i] * (x.weight[0][i] * a[i] + x.weight[1][i] * b[i]) +
                          y.slope[1][i] * (x.weight[0][i] * d[i] + x.weight[1][i] * e[i]);
        along_x.at[i] += gradient[i] * sloped;
        along_y.at[i] += gradient[i] * weighed;
      }
    }
    if (!are_finite(along_x.at) || !are_finite(along_y.at)) return sum_taps(image);
    const P half_x = tile_.positions.axis(0).half, half_y = tile_.positions.axis(1).half;
    for (int i = 0; i < kTile; ++i) {
      by_axis_[0].at[i] = along_x.at[i] * half_x;
      by_axis_[1].at[i] = along_y.at[i] * half_y;
    }
  }

  void sum_taps(const S* image) {
    tile_.taps.combine();
    make_slopes();
    for (TileOf<P>& sum : by_axis_) sum = {};
    for (int64_t c = 0; c < call_.channels; ++c) {
      alignas(64) V gradient[kTile];
      tile_.load_gradient(c, gradient);
      const S* plane = image + c * call_.image_strides.channel;
      for (int k = 0; k < kCount; ++k) {
        alignas(64) S values[kTile];
        alignas(64) V wide[kTile];
        for (int i = 0; i < kTile; ++i) values[i] = plane[tile_.taps.offset[k][i]];
        tile_.load(values, wide);
        for (int a = 0; a < kAxes; ++a) {
          const P* slope = slopes_[a][k];
          P* sum = by_axis_[a].at;
          for (int i = 0; i < kTile; ++i) {
            const P share = gradient[i] * wide[i] * slope[i];
            sum[i] += ((slope[i] < 0) | (slope[i] > 0)) ? share : P(0);  // what is not touched may be no number
          }
        }
      }
    }
  }

  // What is not finite may come of taps of slope 0, which are not to be read: it is summed again, tap by tap.
  void sum_rows(const S* image) {
    rows_.make(tile_.taps);
    for (int64_t c = 0; c < call_.channels; ++c) {
      alignas(64) V gradient[kTile];
      tile_.load_gradient(c, gradient);
      const S* plane = image + c * call_.image_strides.channel;
      mix_rows<Load>(plane, tile_.taps, rows_, call_.image_strides.x == 1, gradient, c == 0, mixed_);
    }
    alignas(64) P found[kAxes][kTile];
    const int32_t whole = slopes_of_rows(tile_.taps, rows_, mixed_, found);
    if (whole != -1) sum_taps(image);
    for (int a = 0; a < kAxes; ++a) {
      const P half = tile_.positions.axis(a).half;
      for (int i = 0; i < kTile; ++i) {
        if (whole >> i & 1) by_axis_[a].at[i] = found[a][i] * half;
      }
    }
  }

  // The same where the channels of a pixel lie side by side. Taps are weighted by their slopes before they meet the gradient:
  // what neighbours have in common then cancels, and is not summed. What is not finite is summed again, tap by tap.
  void sum_pixels(const V* image) {
    make_slopes();
    for (int64_t c = 0; c < call_.channels; c += Tile::kChunk) {
      multiply_pixels(image, c, min(Tile::kChunk, call_.channels - c));
    }
    bool numbers = true;
    for (int a = 0; a < kAxes; ++a) {
      alignas(64) V lanes[Vec<V>::kLanes][kTile];
      turn(products_[a][0], Vec<V>::kLanes, lanes[0], kTile, tile_.count, Vec<V>::kLanes);
      for (int i = 0; i < tile_.count; ++i) {
        V sum = 0;
        for (int l = 0; l < Vec<V>::kLanes; ++l) sum += lanes[l][i];
        by_axis_[a].at[i] = sum;
        numbers &= sum == sum;
      }
    }
    if (!numbers) sum_taps(image);
  }

  // Those of the channels from c on, which the first of them begin.
  POLYPHASE_ROW_LOOP void multiply_pixels(const V* image, int64_t c, int64_t channels) {
    using Lanes = Vec<V>;
    int64_t stride;
    const V* gradient = tile_.load_pixels(c, channels, &stride);
    for (int i = 0; i < tile_.count; ++i, gradient += stride) {
      const V* pixel[kCount];
      Lanes slope[kAxes][kCount], sum[kAxes];
      repeat<kCount>([&](auto k) __attribute__((always_inline)) {
        pixel[k] = image + tile_.taps.offset[k][i] + c;
        repeat<kAxes>([&](auto a) __attribute__((always_inline)) { slope[a][k] = Lanes::broadcast(slopes_[a][k][i]); });
      });
      repeat<kAxes>([&](auto a) __attribute__((always_inline)) {
        sum[a] = c == 0 ? Lanes::zero() : Lanes::load(products_[a][i]);
      });
      const auto add = [&](Lanes given, const auto& load) __attribute__((always_inline)) {
        Lanes along[kAxes];
        repeat<kAxes>([&](auto a) __attribute__((always_inline)) { along[a] = Lanes::zero(); });
        repeat<kCount>([&](auto k) __attribute__((always_inline)) {
          const Lanes value = load(pixel[k]);
          repeat<kAxes>([&](auto a) __attribute__((always_inline)) { along[a] = multiply_add(value, slope[a][k], along[a]); });
        });
        repeat<kAxes>([&](auto a) __attribute__((always_inline)) { sum[a] = multiply_add(given, along[a], sum[a]); });
      };
      int64_t l = 0;
      for (; l + Lanes::kLanes <= channels; l += Lanes::kLanes) {
        add(Lanes::load(gradient + l), [&](const V* at) __attribute__((always_inline)) { return Lanes::load(at + l); });
      }
      const int rest = static_cast<int>(channels - l);
      if (rest > 0) {
        add(Lanes::load_first(gradient + l, rest),
            [&](const V* at) __attribute__((always_inline)) { return Lanes::load_first(at + l, rest); });
      }
      repeat<kAxes>([&](auto a) __attribute__((always_inline)) { sum[a].store(products_[a][i]); });
    }
  }

  void make_slopes() {
    using Taps = WarpTaps<Filter, P, kAxes>;
    for (int a = 0; a < kAxes; ++a) {
      const P half = tile_.positions.axis(a).half;
      for (int k = 0; k < kCount; ++k) {
        P* slope = slopes_[a][k];
        for (int i = 0; i < kTile; ++i) slope[i] = half;
        for (int b = 0; b < kAxes; ++b) {
          const AxisTaps<P, Filter::kTaps>& taps = tile_.taps.axes[b];
          const P* factor = b == a ? taps.slope[Taps::of_axis(k, b)] : taps.weight[Taps::of_axis(k, b)];
          for (int i = 0; i < kTile; ++i) slope[i] *= factor[i];
        }
      }
    }
  }

  // The gradient of a grid is dense, one pixel's axes after the other's.
  void store(int64_t pixel) {
    P* target = static_cast<P*>(call_.coordinate_gradient) + pixel * kAxes;
    for (int i = 0; i < tile_.count; ++i) {
      for (int a = 0; a < kAxes; ++a) target[i * kAxes + a] = by_axis_[a].at[i];
    }
  }

  // Shares of the entries' gradients; and the fields', which are dense, one field after the other, behind all the shares.
  void through_formula(int64_t pixel) {
    const int64_t rows = call_.batch * tile_.rows();
    P* const fields = reinterpret_cast<P*>(static_cast<double*>(call_.coordinate_gradient) + rows * kSums);
    TileOf<P> shares[at_least_one_of(kSums + Formula::kFields)];
    tile_.positions.formula_tile().each_pixel([&](int i, const auto& at) __attribute__((always_inline)) {
      P given[kAxes], found[at_least_one_of(kSums + Formula::kFields)];
      repeat<kAxes>([&](auto a) __attribute__((always_inline)) { given[a] = by_axis_[a].at[i]; });
      Formula::gradients(at, given, found);
      repeat<kSums + Formula::kFields>([&](auto s) __attribute__((always_inline)) { shares[s].at[i] = found[s]; });
    });
    for (int e = 0; e < kSums; ++e) {
      double sums[4] = {};  // four at a time
      for (int i = 0; i < tile_.count; ++i) sums[i % 4] += static_cast<double>(shares[e].at[i]);
      sums_[e] += sums[0] + sums[1] + sums[2] + sums[3];
    }
    for (int f = 0; f < Formula::kFields; ++f) {
      P* to = fields + f * rows * call_.out_size[2] + pixel;
      for (int i = 0; i < tile_.count; ++i) to[i] = shares[kSums + f].at[i];
    }
  }

  void add_to_matrix(int64_t x, int64_t r) {
    const double base[2] = {tile_.positions.base_coordinate(r % call_.out_size[1], 1),
                            tile_.positions.base_coordinate(r / call_.out_size[1], 0)};
    for (int a = 0; a < kAxes; ++a) {
      double sum = 0, along_x = 0;
      for (int i = 0; i < tile_.count; ++i) {
        const double gradient = by_axis_[a].at[i];
        sum += gradient;
        along_x += gradient * tile_.positions.base_coordinate(x + i, 2);
      }
      double* matrix = sums_ + a * (kAxes + 1);
      matrix[0] += along_x;
      for (int b = 1; b < kAxes; ++b) matrix[b] += sum * base[b - 1];
      matrix[kAxes] += sum;
    }
  }

  const WarpCall& call_;
  Tile& tile_;
  const bool by_pixels_;
  Conditional<Tile::kRows, CubicRows<P, true>, Unused> rows_;
  alignas(64) V mixed_[Tile::kRows ? kTile : 1][kCount];
  alignas(64) V products_[kAxes][kTile][Vec<V>::kLanes];  // lane by lane
  TileOf<P> by_axis_[kAxes];
  alignas(64) P slopes_[kAxes][kCount][kTile];
  double sums_[kSums > 0 ? kSums : 1];
};

}  // namespace polyphase
