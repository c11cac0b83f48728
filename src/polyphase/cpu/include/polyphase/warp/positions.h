// Where the pixels of an output row lie in the image: read from a grid, or computed from an affine matrix or by a formula.
//
// A tile is a few pixels of a row. Loops over tiles have a constant length and no branches: the compiler vectorises them
// for every instruction set. What lies beyond the row's end is computed like the rest and thrown away.
#pragma once

#include <cstring>

#include "polyphase/core/cache.h"
#include "polyphase/core/unroll.h"
#include "polyphase/simd/vector.h"
#include "polyphase/warp/abi.h"
#include "polyphase/warp/formula.h"
#include "polyphase/warp/rules.h"

namespace polyphase {

constexpr int kTile = 32;  // pixels
// Vectors of positions that are made side by side: several where a processor looks ahead too little to find the next one's
// operations while it waits for the results of one, or where a tile is not many.
#if defined(POLYPHASE_NEON)
constexpr int kSideBySide = 4;
#elif defined(__AVX512F__)
constexpr int kSideBySide = 2;
#else
constexpr int kSideBySide = 1;
#endif

#if defined(POLYPHASE_WARPS_IN_REGISTERS)
template <class P>
inline Vec<P> nearest_half(Vec<P> position) {
  const Vec<P> halves = Vec<P>::broadcast(kHalves<P>);
  return position.plus(halves).minus(halves);
}
#endif

template <class P>
struct alignas(64) TileOf {
  P at[kTile];
};

// What a formula reads for a tile, which is part of a row.
template <class P, class Formula, int kAxes>
struct FormulaTile {
  // What is the same for all its pixels.
  struct Shared {
    P entries[at_least_one_of(Formula::kEntries)];
    P numbers[at_least_one_of(Formula::kNumbers)];
    P place[2], base[2];  // along axes before the last
    const P* fields[at_least_one_of(Formula::kFields)];  // of the tile
  };

  Shared shared;
  TileOf<P> row_place, row_base;
  TileOf<P> copied[at_least_one_of(Formula::kFields)];  // of fields that do not lie as they are read

  struct Pixel {
    const Shared& shared;
    const FormulaTile& tile;
    int i;

    template <int n>
    POLYPHASE_BLOCK P entry() const { return shared.entries[n]; }
    template <int n>
    POLYPHASE_BLOCK P number() const { return shared.numbers[n]; }
    template <int a>
    POLYPHASE_BLOCK P place() const {
      if constexpr (a == kAxes - 1) {
        return tile.row_place.at[i];
      } else {
        return shared.place[a];
      }
    }
    template <int a>
    POLYPHASE_BLOCK P base() const {
      if constexpr (a == kAxes - 1) {
        return tile.row_base.at[i];
      } else {
        return shared.base[a];
      }
    }
    template <int f>
    POLYPHASE_BLOCK P field() const { return shared.fields[f][i]; }
  };

  // function(i, pixel) for every pixel of the tile: a loop that the compiler vectorises, if the function is inlined and has no
  // loops of its own.
  template <class Function>
  POLYPHASE_BLOCK void each_pixel(const Function& function) const {
    const Shared copied = shared;  // the compiler knows that nothing else writes there
#pragma GCC ivdep
    for (int i = 0; i < kTile; ++i) function(i, Pixel{copied, *this, i});
  }
};

// G: the dtype of the grid, matrix or entries. P: the dtype of positions.
//
// kSettled: a position that is, in all axes, as near to a whole or half pixel as rounding may have moved it is taken to lie
// there: of turned and shifted integers, sums are then exact, and round as they should. An arbitrary position comes that
// near in one axis now and then, in all of them hardly ever, and stays where it is. Not for the nearest pixel, nor for
// gradients: both jump at a half or a whole pixel, and are on that side of it where eager is.
template <class G, class P, int kAxes, bool kSettled, class Formula = NoFormula>
class Positions {
 public:
  explicit Positions(const WarpCall& call)
      : call_(call),
        x_stride_(grid_of(call).row_stride()),
        walks_(call.is_points() && !grid_of(call).are_one(call.planes_of_points())),
        dense_(call.coordinate_strides.component == 1 && x_stride_ == kAxes && !walks_) {
    for (int i = 0; i < kTile; ++i) ramp_.at[i] = i;
    for (int a = 0; a < kAxes; ++a) axes_[a] = PixelAxis<P>(call.in_size[2 - a], call.align_corners != 0, sizeof(G) < 8);
    for (int i = 0; i < Formula::kNumbers; ++i) at_.shared.numbers[i] = static_cast<P>(call.numbers[i]);
  }

  // Image axis a: 0 is x.
  const PixelAxis<P>& axis(int a) const { return axes_[a]; }

  // Goes to image n of the batch.
  void enter_image(int64_t n) {
    const CoordinateStrides& s = call_.coordinate_strides;
    coordinates_ = static_cast<const G*>(call_.coordinates) + n * s.batch;
    if constexpr (Formula::kExists) {
      n_ = n;
      for (int i = 0; i < Formula::kEntries; ++i) at_.shared.entries[i] = static_cast<P>(coordinates_[i * s.component]);
      return;
    }
    if (!call_.affine) return;
    // A matrix leads from an output pixel straight to a position: origin + x * step[0] + y * step[1] + z * step[2].
    for (int a = 0; a < kAxes; ++a) {
      const G* matrix = coordinates_ + a * s.y;
      const double half = PixelAxis<double>(call_.in_size[2 - a], call_.align_corners != 0).half;
      double coordinate = 1 + static_cast<double>(matrix[kAxes * s.x]);
      for (int b = 0; b < kAxes; ++b) {
        const double factor = static_cast<double>(matrix[b * s.x]), first = base_coordinate(0, 2 - b);
        coordinate += factor * first;
        step_[a][b] = call_.out_size[2 - b] > 1 ? factor * half * (base_coordinate(1, 2 - b) - first) : 0;
      }
      origin_[a] = coordinate * half - (call_.align_corners ? 0 : 0.5);
    }
  }

  // The positions of `count` pixels from (z, y, x) on, unpadded: out[0] along the image's x axis, out[1] along y. The rest of
  // the tile is of no meaning.
  void tile(int64_t z, int64_t y, int64_t x, int count, TileOf<P> (&out)[kAxes]) {
    unsettled_tile(z, y, x, count, out);
    for (int i = 0; kSettled && i < kTile; ++i) {
      bool close = true;
      for (int a = 0; a < kAxes; ++a) close &= abs(out[a].at[i] - nearest_half(out[a].at[i])) <= axes_[a].near;
      for (int a = 0; a < kAxes; ++a) out[a].at[i] = close ? nearest_half(out[a].at[i]) : out[a].at[i];
    }
  }

  // What `block` needs of the first `count` pixels of a tile of an image: by a matrix, its first position; of a dense grid, where
  // its part begins; else nothing, as `enter_tile` has put its positions into `tile_`.
  struct Start {
    P x, y;
    const G* grid;
    int count;
  };
  POLYPHASE_BLOCK Start enter_tile(int64_t y, int64_t x, int count) {
    static_assert(kAxes == 2, "images");
    if (!Formula::kExists && call_.affine) {
      const double at_x = static_cast<double>(x), at_y = static_cast<double>(y);
      return {static_cast<P>(origin_[0] + step_[0][0] * at_x + step_[0][1] * at_y),
              static_cast<P>(origin_[1] + step_[1][0] * at_x + step_[1][1] * at_y), nullptr, count};
    }
    if constexpr (Formula::kExists) {
      read_formula(0, y, x, count);
      compute(tile_);
      return {0, 0, nullptr, count};
    }
    if (!__is_same(G, P) || !dense_) {
      tile(0, y, x, count, tile_);
      return {0, 0, nullptr, count};
    }
    const G* grid = coordinates_ + y * call_.coordinate_strides.y + x * 2;
    if (count < kTile) return {0, 0, whole_tile(grid, count), count};
    prefetch_right(grid, kAxes);
    return {0, 0, grid, count};
  }

  // A vector of the tile's positions, from pixel i on.
  template <class Lanes>
  POLYPHASE_BLOCK void block(const Start& start, int i, Lanes& out_x, Lanes& out_y) const {
    if (!Formula::kExists && call_.affine) {
      const Lanes place = Lanes::load(ramp_.at + i);
      out_x = multiply_add(place, Lanes::broadcast(static_cast<P>(step_[0][0])), Lanes::broadcast(start.x));
      out_y = multiply_add(place, Lanes::broadcast(static_cast<P>(step_[1][0])), Lanes::broadcast(start.y));
      return settle(out_x, out_y);
    }
    if constexpr (Formula::kExists) {
      unsettled_block(i, out_x, out_y);
      return settle(out_x, out_y);
    }
    if constexpr (__is_same(G, P) && !Formula::kExists) {
      if (start.grid != nullptr) {
        const Lanes one = Lanes::broadcast(1), offset = Lanes::broadcast(axes_[0].offset);
        const typename Lanes::Pair pairs = Lanes::load_pairs(start.grid + 2 * i);
        out_x = multiply_add(pairs.first.plus(one), Lanes::broadcast(axes_[0].half), offset);
        out_y = multiply_add(pairs.second.plus(one), Lanes::broadcast(axes_[1].half), offset);
        return settle(out_x, out_y);
      }
    }
    out_x = Lanes::load(tile_[0].at + i);
    out_y = Lanes::load(tile_[1].at + i);
  }

  // each(i, x, y) for kSideBySide vectors of the tile at a time, from pixel i on, until it has no more pixels.
  template <class Each>
  POLYPHASE_BLOCK void each_block(const Start& start, const Each& each) const {
    using Lanes = Vec<P>;
    constexpr int kSide = kSideBySide, kStep = kSide * Lanes::kLanes;
    Lanes x[kSide], y[kSide];
    if constexpr (Formula::kExists) {
      for (int i = 0; i < start.count; i += kStep) {
        repeat<kSide>([&](auto k) __attribute__((always_inline)) { unsettled_block(i + k * Lanes::kLanes, x[k], y[k]); });
        settle<kSide>(x, y);
        each(i, x, y);
      }
      return;
    }
    if (!call_.affine) {
      for (int i = 0; i < start.count; i += kStep) {
        repeat<kSide>([&](auto k) __attribute__((always_inline)) { block(start, i + k * Lanes::kLanes, x[k], y[k]); });
        each(i, x, y);
      }
      return;
    }
    const Lanes step_x = Lanes::broadcast(static_cast<P>(step_[0][0]));
    const Lanes step_y = Lanes::broadcast(static_cast<P>(step_[1][0]));
    const Lanes start_x = Lanes::broadcast(start.x), start_y = Lanes::broadcast(start.y);
    for (int i = 0; i < start.count; i += kStep) {
      repeat<kSide>([&](auto k) __attribute__((always_inline)) {
        const Lanes place = Lanes::load(ramp_.at + i + k * Lanes::kLanes);
        x[k] = multiply_add(place, step_x, start_x);
        y[k] = multiply_add(place, step_y, start_y);
      });
      settle<kSide>(x, y);
      each(i, x, y);
    }
  }

  // The coordinate of output pixel i along axis `a` (0 is z) before an affine matrix: from -1 to 1.
  double base_coordinate(int64_t i, int a) const {
    const int64_t n = call_.out_size[a];
    const int64_t steps = call_.align_corners ? (n > 1 ? n - 1 : 1) : n;
    return static_cast<double>(2 * i + 1 - n) / static_cast<double>(steps);
  }

  // What the formula reads for the latest tile.
  const FormulaTile<P, Formula, kAxes>& formula_tile() const { return at_; }

 private:
  // What lies so close together for the tile to the right, which comes a band of tiles later: time for it to arrive.
  POLYPHASE_BLOCK static void prefetch_right(const G* tile, int64_t x_stride) {
    constexpr int64_t kLine = kCacheLine / static_cast<int64_t>(sizeof(G));
    for (int64_t i = 0; i < kTile * x_stride; i += kLine) __builtin_prefetch(tile + kTile * x_stride + i);
  }

  // A vector of the positions that a formula leads to, from pixel i of the tile on.
  template <class Lanes>
  POLYPHASE_BLOCK void unsettled_block(int i, Lanes& x, Lanes& y) const {
    const Lanes one = Lanes::broadcast(1), offset = Lanes::broadcast(axes_[0].offset);
    x = multiply_add(Lanes::load(tile_[0].at + i).plus(one), Lanes::broadcast(axes_[0].half), offset);
    y = multiply_add(Lanes::load(tile_[1].at + i).plus(one), Lanes::broadcast(axes_[1].half), offset);
  }

  template <class Lanes>
  POLYPHASE_BLOCK void settle(Lanes& x, Lanes& y) const {
    settle<1>(&x, &y);
  }
  template <int kSide, class Lanes>
  POLYPHASE_BLOCK void settle(Lanes* x, Lanes* y) const {
    if constexpr (kSettled) {
      const Lanes near_x = Lanes::broadcast(axes_[0].near), near_y = Lanes::broadcast(axes_[1].near);
      Lanes half_x[kSide], half_y[kSide];
      typename Lanes::Mask close[kSide];
      repeat<kSide>([&](auto k) __attribute__((always_inline)) {
        half_x[k] = nearest_half(x[k]);
        half_y[k] = nearest_half(y[k]);
      });
      repeat<kSide>([&](auto k) __attribute__((always_inline)) {
        close[k] = x[k].distance(half_x[k]).at_most(near_x) & y[k].distance(half_y[k]).at_most(near_y);
      });
      repeat<kSide>([&](auto k) __attribute__((always_inline)) {
        x[k] = x[k].replaced(close[k], half_x[k]);
        y[k] = y[k].replaced(close[k], half_y[k]);
      });
    }
  }

  void unsettled_tile(int64_t z, int64_t y, int64_t x, int count, TileOf<P> (&out)[kAxes]) {
    if constexpr (Formula::kExists) {
      read_formula(z, y, x, count);
      compute(out);
      return to_pixels(out);
    }
    if (call_.affine) {
      for (int a = 0; a < kAxes; ++a) {
        // In double up to the tile, where one rounding is left: nearer to the exact position than a grid of floats.
        double start = origin_[a] + step_[a][0] * static_cast<double>(x) + step_[a][1] * static_cast<double>(y);
        if (kAxes == 3) start += step_[a][2] * static_cast<double>(z);
        const P first = static_cast<P>(start), step = static_cast<P>(step_[a][0]);
        for (int i = 0; i < kTile; ++i) out[a].at[i] = multiply_add(ramp_.at[i], step, first);
      }
      return;
    }
    const CoordinateStrides& s = call_.coordinate_strides;
    if (walks_) {
      walk_grid(x, count, out);
    } else {
      read_grid(coordinates_ + z * s.z + y * s.y + x * x_stride_, count, out);
    }
    to_pixels(out);
  }

  // A formula's coordinates.
  void compute(TileOf<P> (&out)[kAxes]) const {
    at_.each_pixel([&](int i, const auto& pixel) __attribute__((always_inline)) {
      P found[kAxes];
      Formula::coordinates(pixel, found);
      repeat<kAxes>([&](auto a) __attribute__((always_inline)) { out[a].at[i] = found[a]; });
    });
  }

  void to_pixels(TileOf<P> (&out)[kAxes]) const {
    for (int a = 0; a < kAxes; ++a) {
      P* at = out[a].at;
      const P half = axes_[a].half;
      if (call_.align_corners) {
        for (int i = 0; i < kTile; ++i) at[i] = (at[i] + 1) * half;
      } else {
        for (int i = 0; i < kTile; ++i) at[i] = multiply_add(at[i] + 1, half, P(-0.5));
      }
    }
  }

  void read_formula(int64_t z, int64_t y, int64_t x, int count) {
    const int64_t before[2] = {kAxes == 3 ? z : y, y};
    for (int a = 0; a < kAxes - 1; ++a) {
      at_.shared.place[a] = static_cast<P>(before[a]);
      if (Formula::kReadsBase) at_.shared.base[a] = kept_base(before[a], a);
    }
    if (x != row_at_) {  // tiles go down before they go right
      row_at_ = x;
      for (int i = 0; i < kTile; ++i) at_.row_place.at[i] = static_cast<P>(x) + ramp_.at[i];
      for (int i = 0; Formula::kReadsBase && i < kTile; ++i) at_.row_base.at[i] = static_cast<P>(base_coordinate(x + i, 2));
    }
    for (int f = 0; f < Formula::kFields; ++f) {
      const Operand& field = call_.tensors[Formula::kFirstField + f];
      const G* from = static_cast<const G*>(field.data) + n_ * field.outer_strides[0] + z * field.z_stride +
                      y * field.y_stride + x * field.x_stride;
      if (field.x_stride <= kAxes) prefetch_right(from, field.x_stride);
      if constexpr (__is_same(G, P)) {
        at_.shared.fields[f] = from;
        if (field.x_stride == 1 && count == kTile) continue;
      }
      P* const to = at_.copied[f].at;
      at_.shared.fields[f] = to;
      // Strides that the compiler knows: of a plane, and of one component of a grid's.
      if (count < kTile) {
        for (int i = 0; i < kTile; ++i) to[i] = i < count ? static_cast<P>(from[i * field.x_stride]) : P(0);
      } else if (!__is_same(G, P) && field.x_stride == 1) {
        for (int i = 0; i < kTile; ++i) to[i] = static_cast<P>(from[i]);
      } else if (field.x_stride == kAxes) {
        for (int i = 0; i < kTile; ++i) to[i] = static_cast<P>(from[i * kAxes]);
      } else {
        for (int i = 0; i < kTile; ++i) to[i] = static_cast<P>(from[i * field.x_stride]);
      }
    }
  }

  // The coordinate along an axis before the last: every row of a band has it again with each tile to the right, and divisions
  // would be waited for.
  P kept_base(int64_t i, int a) {
    Kept& kept = kept_[a][i % kKept];
    if (kept.place != i) kept = {i, static_cast<P>(base_coordinate(i, 3 - kAxes + a))};
    return kept.base;
  }

  static PointRows grid_of(const WarpCall& call) {
    const CoordinateStrides& s = call.coordinate_strides;
    return call.is_points() ? call.points_of(s.z, s.y, s.x) : PointRows{1, 2, 0, 0, s.x};
  }

  // `count` points from number `point` on of a grid that does not lie as one row.
  POLYPHASE_ROW_LOOP void walk_grid(int64_t point, int count, TileOf<P> (&out)[kAxes]) const {
    PointWalk walk(grid_of(call_), point);
    for (int i = 0; i < kTile; ++i) {
      for (int a = 0; a < kAxes; ++a) {
        out[a].at[i] = i < count ? static_cast<P>(coordinates_[walk.offset() + a * call_.coordinate_strides.component]) : P(0);
      }
      if (i < count) walk.next();
    }
  }

  // Points that lie one after the other, followed by points at the middle of the image.
  const G* whole_tile(const G* grid, int count) {
    std::memcpy(copied_, grid, static_cast<size_t>(count) * kAxes * sizeof(G));
    for (int i = count * kAxes; i < kTile * kAxes; ++i) copied_[i] = G();
    return copied_;
  }

  // A whole tile of points that lie one after the other.
  static void read_dense(const G* grid, TileOf<P> (&out)[kAxes]) {
    if constexpr (kAxes == 2 && __is_same(G, P)) {
      using Lanes = Vec<P>;
      for (int i = 0; i < kTile; i += Lanes::kLanes) {
        const typename Lanes::Pair pairs = Lanes::load_pairs(grid + 2 * i);
        pairs.first.store(out[0].at + i);
        pairs.second.store(out[1].at + i);
      }
    } else {
      for (int i = 0; i < kTile; ++i) {
        for (int a = 0; a < kAxes; ++a) out[a].at[i] = static_cast<P>(grid[i * kAxes + a]);
      }
    }
  }

  void read_grid(const G* grid, int count, TileOf<P> (&out)[kAxes]) {
    const CoordinateStrides& s = call_.coordinate_strides;
    if (dense_) {
      return read_dense(count == kTile ? grid : whole_tile(grid, count), out);
    }
    for (int i = 0; i < kTile; ++i) {
      for (int a = 0; a < kAxes; ++a) out[a].at[i] = i < count ? static_cast<P>(grid[i * x_stride_ + a * s.component]) : P(0);
    }
  }

  const WarpCall& call_;
  const int64_t x_stride_;          // of a grid, from point to point of a row
  const bool walks_;                // it is one of points that do not lie as one row
  const bool dense_;                // of a grid whose points lie one after the other
  const G* coordinates_ = nullptr;  // of the image
  PixelAxis<P> axes_[kAxes];
  TileOf<P> ramp_;
  double origin_[kAxes] = {}, step_[kAxes][kAxes] = {};  // of a matrix, in pixels
  alignas(64) G copied_[kTile * kAxes];  // of a dense grid, what is less than a tile
  TileOf<P> tile_[kAxes];  // positions of one whose grid is not dense; of one by a formula, its coordinates
  int64_t n_ = 0;
  int64_t row_at_ = -1;  // where the places in `at_` begin
  static constexpr int kKept = 16;
  struct Kept {
    int64_t place = -1;
    P base = 0;
  } kept_[2][Formula::kReadsBase ? kKept : 1];
  FormulaTile<P, Formula, kAxes> at_;
};

}  // namespace polyphase
