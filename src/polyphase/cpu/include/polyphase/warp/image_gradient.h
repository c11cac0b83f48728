// The gradient of a warp's image: by adding to the pixels each output was made of.
#pragma once

#include "polyphase/warp/gradient_tile.h"

namespace polyphase {

// Adds the output's gradient to channels `begin` to `end` of an image's, of the tiles that `tile` enters.
template <class Load, class Filter, class G, class P, int kAxes, class Formula>
class ImageGradient {
 public:
  using V = typename Load::To;
  using Tile = GradientTile<Load, Filter, G, P, kAxes, Formula>;

  ImageGradient(const WarpCall& call, Tile& tile) : call_(call), tile_(tile) {}

  // Of image n, to `image`, where channel `begin` lies.
  void run(int64_t n, int64_t begin, int64_t end, V* image, const ImageStrides& strides) {
    for (int64_t r = 0; r < tile_.rows(); ++r) {
      tile_.enter_row(n, r);
      for (int64_t x = 0; x < call_.out_size[2]; x += kTile) {
        tile_.enter_tile(x, strides, false);
        add_tile(begin, end, image, strides);
      }
    }
  }

  // The tile that was entered, whose offsets are by these strides.
  void add_tile(int64_t begin, int64_t end, V* image, const ImageStrides& strides) {
    const bool interleaved = strides.channel == 1 && end - begin > 1;
    for (int64_t c = begin; c < end; c += interleaved ? kChunk : 1) {
      V* plane = image + (c - begin) * strides.channel;
      if constexpr (Tile::kRows) {
        if (strides.x == 1) {
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

 private:
  static constexpr int64_t kChunk = Tile::kChunk;

  // A position that is no number touches nothing.
  static bool touches(V weight) { return weight < 0 || weight > 0; }

  // To add 0 where a tap touches nothing changes nothing, where the gradient is finite. A position that is no number makes the
  // first weight none.
  POLYPHASE_ROW_LOOP void add_plane(int64_t c, V* plane) {
    alignas(64) V gradient[kTile], shares[kCount][kTile];
    tile_.load_gradient(c, gradient);
    tile_.taps.combine();
    for (int k = 0; k < kCount; ++k) {
      for (int i = 0; i < kTile; ++i) shares[k][i] = tile_.taps.weight[k][i] * gradient[i];
    }
    if (!are_finite(shares[0])) {
      for (int i = 0; i < tile_.count; ++i) add_taps(i, gradient[i], plane);
      return;
    }
    for (int i = 0; i < tile_.count; ++i) {
      repeat<kCount>([&](auto k) __attribute__((always_inline)) { plane[tile_.taps.offset[k][i]] += shares[k][i]; });
    }
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

  POLYPHASE_ROW_LOOP void add_pixels(int64_t c, int64_t channels, V* image) {
    using Lanes = Vec<V>;
    int64_t stride;
    const V* from = tile_.load_pixels(c, channels, &stride);
    tile_.taps.combine();
    for (int i = 0; i < tile_.count; ++i, from += stride) {
      for (int k = 0; k < kCount; ++k) {
        const V weight = tile_.taps.weight[k][i];
        if (!touches(weight)) continue;
        V* pixel = image + tile_.taps.offset[k][i];
        const Lanes factor = Lanes::broadcast(weight);
        int64_t l = 0;
        for (; l + Lanes::kLanes <= channels; l += Lanes::kLanes) {
          multiply_add(Lanes::load(from + l), factor, Lanes::load(pixel + l)).store(pixel + l);
        }
        const int rest = static_cast<int>(channels - l);
        if (rest > 0) {
          multiply_add(Lanes::load_first(from + l, rest), factor, Lanes::load_first(pixel + l, rest)).store_first(pixel + l, rest);
        }
      }
    }
  }

  static constexpr int kCount = WarpTaps<Filter, P, kAxes>::kCount;

  const WarpCall& call_;
  Tile& tile_;
  Conditional<Tile::kRows, CubicRows<P, false>, Unused> rows_;
};

}  // namespace polyphase
