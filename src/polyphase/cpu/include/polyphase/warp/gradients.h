// The gradients of a warp: of the image, by adding to the pixels each output was made of; of the coordinates, by the
// slopes of the weights.
//
// Deterministic: every pixel of the image's gradient is summed by one thread, in the order of the output's pixels,
// however many threads there are. The gradient of a matrix, or of a formula's entries, is summed by row of the output; Python
// adds up the rows.
#pragma once

#include "polyphase/core/rows.h"
#include "polyphase/core/standard.h"
#include "polyphase/warp/cubic_rows.h"
#include "polyphase/warp/taps.h"

namespace polyphase {

// A tile's taps and the gradient of its output. Load: from the image's dtype to V, which sums are made in.
template <class Load, class Filter, class G, class P, int kAxes, class Formula>
class GradientTile {
 public:
  using S = typename Load::From;
  using V = typename Load::To;
  using Taps = WarpTaps<Filter, P, kAxes>;
  static constexpr bool kRows = kAxes == 3 && Filter::kTaps == 4;

  explicit GradientTile(const WarpCall& call)
      : call_(call),
        x_stride_(given(call).row_stride()),
        walks_(call.is_points() && !given(call).are_one(call.planes_of_points())),
        positions(call),
        gradient_(static_cast<const S*>(call.target)) {}

  int64_t rows() const { return call_.out_size[0] * call_.out_size[1]; }

  // Row r of the output of image n.
  void enter_row(int64_t n, int64_t r) {
    z_ = r / call_.out_size[1];
    y_ = r % call_.out_size[1];
    positions.enter_image(n);
    row_ = gradient_ + n * call_.target_strides.batch + z_ * call_.target_strides.z + y_ * call_.target_strides.y;
  }

  void enter_tile(int64_t x, const ImageStrides& image, bool slopes) {
    x_ = x;
    count = static_cast<int>(min<int64_t>(kTile, call_.out_size[2] - x));
    TileOf<P> at[kAxes];
    positions.tile(z_, y_, x, count, at);
    if (walks_) {
      PointWalk walk(given(call_), x);
      for (int i = 0; i < count; ++i, walk.next()) walked_[i] = walk.offset();
    }
    taps.make(at, positions, call_.padding, image, slopes);
    if constexpr (!kRows) taps.combine();
  }

  // The gradient of channel c of the tile's output; 0 beyond its end.
  void load_gradient(int64_t c, V* out) const {
    alignas(64) S values[kTile] = {};
    const S* from = row_ + c * call_.target_strides.channel;
    if (walks_) {
      for (int i = 0; i < count; ++i) values[i] = from[walked_[i]];
    } else {
      from += x_ * x_stride_;
      for (int i = 0; i < count; ++i) values[i] = from[i * x_stride_];
    }
    load(values, out);
    for (int i = count; i < kTile; ++i) out[i] = 0;
  }

  static void load(const S* values, V* out) {
    if constexpr (Load::kIdentity) {
      for (int i = 0; i < kTile; ++i) out[i] = values[i];
    } else {
      Load::row(values, out, kTile, RowOperands());
    }
  }

 private:
  // Where the gradient that came in lies.
  static PointRows given(const WarpCall& call) {
    const ImageStrides& s = call.target_strides;
    return call.is_points() ? call.points_of(s.z, s.y, s.x) : PointRows{1, 2, 0, 0, s.x};
  }

  const WarpCall& call_;
  const int64_t x_stride_;  // of the gradient, from point to point of a row
  const bool walks_;        // it is one of points that do not lie as one row
  int64_t walked_[kTile];   // where they lie

 public:
  Positions<G, P, kAxes, false, Formula> positions;
  Taps taps;
  int count = 0;  // pixels

 private:
  const S* gradient_;
  const S* row_ = nullptr;
  int64_t z_ = 0, y_ = 0, x_ = 0;
};

// Adds the output's gradient to channels `begin` to `end` of an image's.
template <class Load, class Filter, class G, class P, int kAxes, class Formula>
class ImageGradient {
 public:
  using V = typename Load::To;
  using Tile = GradientTile<Load, Filter, G, P, kAxes, Formula>;

  explicit ImageGradient(const WarpCall& call) : call_(call), tile_(call) {}

  void run(int64_t n, int64_t begin, int64_t end) {
    const bool interleaved = call_.channels > 1 && call_.image_gradient_strides.channel == 1;
    V* image = static_cast<V*>(call_.image_gradient) + n * call_.image_gradient_strides.batch;
    for (int64_t r = 0; r < tile_.rows(); ++r) {
      tile_.enter_row(n, r);
      for (int64_t x = 0; x < call_.out_size[2]; x += kTile) {
        tile_.enter_tile(x, call_.image_gradient_strides, false);
        for (int64_t c = begin; c < end; c += interleaved ? kChunk : 1) {
          V* plane = image + c * call_.image_gradient_strides.channel;
          if constexpr (Tile::kRows) {
            if (call_.image_gradient_strides.x == 1) {
              if (c == begin) rows_.make(tile_.taps);
              add_rows(c, plane);
              continue;
            }
          }
          if (interleaved) {
            add_pixels(c, min(kChunk, end - c), plane);
          } else {
            add_plane(c, plane);
          }
        }
      }
    }
  }

 private:
  static constexpr int64_t kChunk = 64;

  // A position that is no number touches nothing.
  static bool touches(V weight) { return weight < 0 || weight > 0; }

  void add_plane(int64_t c, V* plane) {
    alignas(64) V gradient[kTile];
    tile_.load_gradient(c, gradient);
    for (int i = 0; i < tile_.count; ++i) add_taps(i, gradient[i], plane);
  }

  void add_taps(int i, V gradient, V* plane) {
    tile_.taps.combine();
    for (int k = 0; k < kCount; ++k) {
      const V weight = tile_.taps.weight[k][i];
      if (touches(weight)) plane[tile_.taps.offset[k][i]] += weight * gradient;
    }
  }

  // Taps of weight 0 are neighbours of others: to add 0 to them changes nothing, where the gradient is finite.
  POLYPHASE_ROW_LOOP void add_rows(int64_t c, V* plane) {
    using Four = QuadOf<V>;
    alignas(64) V gradient[kTile];
    tile_.load_gradient(c, gradient);
    const auto& x = tile_.taps.axes[0];
    for (int i = 0; i < tile_.count; ++i) {
      const V given = gradient[i];
      if (!tile_.taps.are_neighbours(i) || given - given != 0) {
        add_taps(i, given, plane);
        continue;
      }
      V* first = plane + tile_.taps.place(0, 0, i);
      const V shares[4] = {x.weight[0][i] * given, x.weight[1][i] * given, x.weight[2][i] * given, x.weight[3][i] * given};
      const Four across = Four::load(shares);
      repeat<kCubicRows>([&](auto r) __attribute__((always_inline)) {
        V* at = first + rows_.offset[r][i];
        multiply_add(across, rows_.weight[r][i], Four::load(at)).store(at);
      });
    }
  }

  void add_pixels(int64_t c, int64_t channels, V* image) {
    alignas(64) V gradient[kTile];
    for (int64_t l = 0; l < channels; ++l) {
      tile_.load_gradient(c + l, gradient);
      for (int i = 0; i < tile_.count; ++i) pixels_[i * kChunk + l] = gradient[i];
    }
    tile_.taps.combine();
    for (int i = 0; i < tile_.count; ++i) {
      const V* from = pixels_ + i * kChunk;
      for (int k = 0; k < kCount; ++k) {
        const V weight = tile_.taps.weight[k][i];
        if (!touches(weight)) continue;
        V* pixel = image + tile_.taps.offset[k][i];
        for (int64_t l = 0; l < channels; ++l) pixel[l] += weight * from[l];
      }
    }
  }

  static constexpr int kCount = WarpTaps<Filter, P, kAxes>::kCount;

  const WarpCall& call_;
  Tile tile_;
  Conditional<Tile::kRows, CubicRows<P, false>, Unused> rows_;
  alignas(64) V pixels_[kTile * kChunk];
};

// The gradient of a row of coordinates, or that row's share of the gradient of a matrix.
template <class Load, class Filter, class G, class P, int kAxes, class Formula>
class CoordinateGradient {
 public:
  using S = typename Load::From;
  using V = typename Load::To;

  using Tile = GradientTile<Load, Filter, G, P, kAxes, Formula>;

  explicit CoordinateGradient(const WarpCall& call) : call_(call), tile_(call) {}

  // Rows are counted over (batch, z, y).
  void run(int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t n = row / tile_.rows(), r = row % tile_.rows();
      tile_.enter_row(n, r);
      for (double& sum : sums_) sum = 0;
      for (int64_t x = 0; x < call_.out_size[2]; x += kTile) tile(n, r, x);
      if (Formula::kExists || call_.affine) {
        double* share = static_cast<double*>(call_.coordinate_gradient) + row * kSums;
        for (int m = 0; m < kSums; ++m) share[m] = sums_[m];
      }
    }
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

  // Of row r of image n, from pixel x on.
  void tile(int64_t n, int64_t r, int64_t x) {
    const int64_t pixel = (n * tile_.rows() + r) * call_.out_size[2] + x;
    tile_.enter_tile(x, call_.image_strides, true);
    sum_channels(static_cast<const S*>(call_.source) + n * call_.image_strides.batch);
    if constexpr (Formula::kExists) {
      through_formula(pixel);
    } else if (call_.affine) {
      add_to_matrix(x, r);
    } else {
      store(pixel);
    }
  }

  // by_axis_[a] = sum over channels and taps of gradient * value * slope along axis a.
  void sum_channels(const S* image) {
    if constexpr (Tile::kRows) {
      sum_rows(image);
    } else {
      sum_taps(image);
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
  Tile tile_;
  Conditional<Tile::kRows, CubicRows<P, true>, Unused> rows_;
  alignas(64) V mixed_[Tile::kRows ? kTile : 1][kCount];
  TileOf<P> by_axis_[kAxes];
  alignas(64) P slopes_[kAxes][kCount][kTile];
  double sums_[kSums > 0 ? kSums : 1];
};

template <class Load, class Filter, class G, class P, int kAxes, class Formula = NoFormula>
struct WarpGradients {
  static void run(const KernelCall& any) {
    const WarpCall& call = static_cast<const WarpCall&>(any);
    WarpCall* context = const_cast<WarpCall*>(&call);
    if (call.image_gradient != nullptr) {
      call.parallel(call.batch * parts(call), call.threads, image_part, context);
    }
    if constexpr (Filter::kTaps > 1) {
      if (call.coordinate_gradient != nullptr) {
        if (call.is_points()) {
          call.parallel(call.batch * Coordinates::tiles_of_points(call), call.threads, coordinate_tiles, context);
        } else {
          call.parallel(call.batch * call.out_size[0] * call.out_size[1], call.threads, coordinate_rows, context);
        }
      }
    }
  }

  static constexpr Kernel kernel() { return {run, 0}; }

 private:
  // An image is split by its channels where there are fewer images than threads: each part goes over the whole output.
  static int64_t parts(const WarpCall& call) {
    return call.batch >= call.threads ? 1 : min(call.channels, call.threads);
  }

  static void image_part(void* context, int64_t begin, int64_t end) {
    const WarpCall& call = *static_cast<const WarpCall*>(context);
    const int64_t count = parts(call);
    ImageGradient<Load, Filter, G, P, kAxes, Formula> gradient(call);
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t part = unit % count;
      gradient.run(unit / count, call.channels * part / count, call.channels * (part + 1) / count);
    }
  }

  using Coordinates = CoordinateGradient<Load, Filter, G, P, kAxes, Formula>;

  static void coordinate_rows(void* context, int64_t begin, int64_t end) {
    Coordinates(*static_cast<const WarpCall*>(context)).run(begin, end);
  }
  static void coordinate_tiles(void* context, int64_t begin, int64_t end) {
    Coordinates(*static_cast<const WarpCall*>(context)).run_tiles(begin, end);
  }
};

}  // namespace polyphase
