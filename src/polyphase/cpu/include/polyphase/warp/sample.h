// The values of an image at the taps of a tile, weighted and summed.
//
// Taps outside the image are read at offset 0 with weight 0, which spoils the sum where that pixel is no finite number.
// So a sum that came out NaN is done again, tap by tap, without those of weight 0.
#pragma once

#include <cstring>

#include "polyphase/core/rows.h"
#include "polyphase/core/standard.h"
#include "polyphase/core/unroll.h"
#include "polyphase/simd/vector.h"
#include "polyphase/warp/channels.h"
#include "polyphase/warp/cubic_rows.h"
#include "polyphase/warp/pixels.h"
#include "polyphase/warp/planes.h"
#include "polyphase/warp/taps.h"
#include "polyphase/warp/widened.h"

namespace polyphase {

// An element of 16 bytes, moved.
struct Bytes16 {
  uint64_t first, second;
};

template <class Prologue, class Filter, class P, int kAxes>
class WarpSampler {
 public:
  using S = typename Prologue::From;
  using V = typename Prologue::To;
  using Taps = WarpTaps<Filter, P, kAxes>;
  static constexpr bool kWeighted = Filter::kTaps > 1;
  static constexpr int kChunk = 64;  // channels that are sampled together
  static constexpr bool kFloats = __is_same(S, float) && Prologue::kIdentity;
  // A pixel of up to four channels is a Quad: of floats, or of bytes made floats.
  static constexpr bool kBytes = kWeighted && __is_same(Prologue, Widened<uint8_t, float>);
  static constexpr bool kQuads = kWeighted && (kFloats || kBytes);

  explicit WarpSampler(const WarpCall& call)
      : call_(call), image_(static_cast<const S*>(call.source)) {
    interleaved_ = call.channels > 1 && call.image_strides.channel == 1;
    // The last offsets from which four elements can be read: of a plane, and of interleaved channels.
    last_in_plane_ = (call.in_size[0] - 1) * call.image_strides.z + (call.in_size[1] - 1) * call.image_strides.y +
                     (call.in_size[2] - 1) * call.image_strides.x - 3;
    last_quad_ = last_in_plane_ + call.channels - 1;
    // What vectors hold for the prologue is one plane's, or of no plane.
    const bool mixes = interleaved_ && call.channels <= 4 && call.image_strides.x == call.channels;
    by_rows_ = kRows && (call.image_strides.x == 1 || (mixes && (Prologue::kIdentity || call.vector_count == 0)));
  }

  // How the tile is best sampled: by rows of four neighbours, its pixels as Quads, its pixels by many channels, or its
  // planes.
  bool by_rows() const { return by_rows_; }
  bool by_quads() const { return kQuads && interleaved_ && call_.channels <= 4; }
  bool by_pixels() const { return kWeighted && interleaved_; }
  Taps& taps() { return taps_; }
  const S* image() const { return image_n_; }

  // Goes to image n of the batch.
  void enter_image(int64_t n) { image_n_ = image_ + n * call_.image_strides.batch; }

  // Up to kPlanes channels from c on; the first to rows[0].
  void sample_planes(int64_t c, int count, V* const (&rows)[4]) {
    if constexpr (kPlanar) {
      if (call_.image_strides.x == 1 || !kWeighted) return sample_planes_of<float>(c, count, rows);
    }
#if defined(__AVX2__)
    if constexpr (kBytes && kAxes == 2) {
      if (call_.image_strides.x == 1 && taps_.inner && taps_.furthest() <= last_in_plane_) {
        return sample_planes_of<uint8_t>(c, count, rows);
      }
    }
#endif
    if constexpr (kWeighted) taps_.combine();
    for (int p = 0; p < count; ++p) {
      const S* plane = image_n_ + (c + p) * call_.image_strides.channel;
      if constexpr (kWeighted) {
        sum_plane(plane, c + p, rows[p]);
      } else {
        pick(plane, c + p, rows[p]);
      }
    }
  }

  // Up to kChunk channels from c on, of `pixels` pixels; those beyond are 0.
  void sample_pixels(int64_t c, int64_t count, int pixels) {
    if constexpr (kWeighted) {
      taps_.combine();
      sum_channels(c, count, pixels, pixels_, kChunk);
      for (int i = pixels; i < kTile; ++i) std::memset(pixels_ + i * kChunk, 0, sizeof(V) * static_cast<size_t>(count));
    }
  }

  // The same, pixel i to out + i * stride. False where one of these came out no number.
  bool sample_pixels_to(int64_t c, int64_t count, int pixels, V* out, int64_t stride) {
    if constexpr (kWeighted) {
      taps_.combine();
      return sum_channels(c, count, pixels, out, stride);
    }
    return false;
  }

  // Of the channels that were sampled latest, `count` from number l on, to rows.
  void take_channels(int64_t l, int64_t count, V* rows, int64_t stride) const {
    if constexpr (kWeighted) turn(pixels_ + l, kChunk, rows, stride, kTile, count);
  }

  // All channels of the tile, where there are no more than four; channel c to rows[c].
  void sample_quads(V* const (&rows)[4]) {
    if constexpr (kQuads) {
      const int channels = static_cast<int>(call_.channels);
      const bool whole = taps_.furthest() <= last_quad_;
#if defined(__AVX2__)
      if constexpr (kBytes) {
        if (whole) {
          taps_.combine();
          return sum_byte_pixels(image_n_, channels, taps_, rows);
        }
      }
#endif
      if (whole) {
        sample_quads(channels, rows, [](const auto* p) { return Quad::load(p); });
      } else {
        sample_quads(channels, rows, [channels](const auto* p) { return Quad::load_first(p, channels); });
      }
    }
  }

  // Of planes, channel c to rows[0]; or all channels, of pixels that have no more than four.
  POLYPHASE_ROW_LOOP void sample_rows(int64_t c, bool first, V* const (&rows)[4]) {
    if constexpr (kRows) {
      if (first) rows_.make(taps_);
      const int together = call_.image_strides.x == 1 ? 1 : static_cast<int>(call_.channels);
      with_constant<1, 4>(together, [&](auto count) {
        if constexpr (count > 0) sum_rows<count>(image_n_ + c * call_.image_strides.channel, c, rows);
      });
    }
  }

  // Channel c, without taps of weight 0.
  POLYPHASE_ROW_LOOP void sample_carefully(int64_t c, V* out) {
    const S* plane = image_n_ + c * call_.image_strides.channel;
    taps_.combine();
    for (int i = 0; i < kTile; ++i) {
      V sum = 0;
      for (int k = 0; k < Taps::kCount; ++k) {
        const V weight = taps_.weight[k][i];
        if (weight != 0) sum += weight * loaded(plane + taps_.offset[k][i], c);
      }
      out[i] = sum;
    }
  }

 private:
#if defined(__AVX2__)
  static constexpr bool kFours = false;  // all but some borders are done by cubic.h
#else
  static constexpr bool kFours = true;
#endif
  static constexpr bool kRows = kAxes == 3 && Filter::kTaps == 4;
  static constexpr bool kPlanar = kAxes == 2 && (kWeighted ? kFloats : sizeof(S) == 4 && Prologue::kIdentity) &&
                                  (Filter::kTaps < 4 || kFours);

  template <class T>
  void sample_planes_of(int64_t c, int count, V* const (&rows)[4]) {
    Planes<T> planes;
    for (int p = 0; p < count; ++p) {
      planes.in[p] = reinterpret_cast<const T*>(image_n_ + (c + p) * call_.image_strides.channel);
      planes.out[p] = reinterpret_cast<float*>(rows[p]);
    }
    with_constant<1, kPlanes>(count, [&](auto constant) {
      if constexpr (constant > 0) sample<constant>(planes);
    });
  }

#if defined(__AVX2__)
  template <int kCount>
  void sample(const Planes<uint8_t>& planes) {
    sum_byte_rows<kCount>(planes, taps_);
  }
#endif

  template <int kCount>
  void sample(const Planes<float>& planes) {
    if constexpr (Filter::kTaps == 1) {
      pick_planes<kCount>(planes, taps_);
    } else if constexpr (Filter::kTaps == 2) {
      sum_pairs<kCount>(planes, taps_);
    } else {
#if !defined(__AVX2__)
      sum_fours<kCount>(planes, taps_);
#endif
    }
  }

  template <class Load>
  void sample_quads(int channels, float* const (&rows)[4], Load load) {
    taps_.combine();
    quads_to_rows(channels, rows, [&](int i) { return sum_pixel(image_n_, taps_, i, load); });
  }

  // Four pixels at a time.
  template <int kChannels>
  POLYPHASE_ROW_LOOP void sum_rows(const S* image, int64_t c, V* const (&out)[4]) {
    using Four = QuadOf<V>;
    const RowOperands given = operands(c, true);
    for (int i = 0; i < kTile; i += 4) {
      Four sums[4][kChannels];
      repeat<4>([&](auto p) __attribute__((always_inline)) { sum_rows_of(image, i + p, given, sums[p]); });
      if constexpr (kChannels == 1) {
        Four weights[4];
        repeat<4>([&](auto x) __attribute__((always_inline)) { weights[x] = Four::load(taps_.axes[0].weight[x] + i); });
        transpose(weights[0], weights[1], weights[2], weights[3]);
        repeat<4>([&](auto p) __attribute__((always_inline)) { weights[p].v *= sums[p][0].v; });
        transpose(weights[0], weights[1], weights[2], weights[3]);
        const Four sum = {(weights[0].v + weights[1].v) + (weights[2].v + weights[3].v)};
        sum.store(out[0] + i);
      } else {
        for (int p = 0; p < 4; ++p) sum_columns(i + p, sums[p], out);
      }
    }
  }

  template <int kChannels>
  POLYPHASE_BLOCK void sum_columns(int i, const QuadOf<V> (&sums)[kChannels], V* const (&out)[4]) {
    V columns[4 * kChannels];
    repeat<kChannels>([&](auto q) __attribute__((always_inline)) { sums[q].store(columns + 4 * q); });
    V weights[4];
    repeat<4>([&](auto x) __attribute__((always_inline)) { weights[x] = taps_.axes[0].weight[x][i]; });
    repeat<kChannels>([&](auto c) __attribute__((always_inline)) {
      const V* at = columns + c;
      out[c][i] = weights[0] * at[0] + weights[1] * at[kChannels] + (weights[2] * at[2 * kChannels] + weights[3] * at[3 * kChannels]);
    });
  }

  template <int kChannels>
  POLYPHASE_BLOCK void sum_rows_of(const S* image, int i, const RowOperands& given, QuadOf<V> (&sums)[kChannels]) {
    constexpr int kRow = 4 * kChannels, kAll = kCubicRows * kRow;
    if constexpr (Prologue::kIdentity) {
      if (taps_.are_neighbours(i)) {
        const S* first = image + taps_.place(0, 0, i);
        return sum_cubic_rows<kChannels>(rows_, i, [&](int r) { return first + rows_.offset[r][i]; }, sums);
      }
    }
    alignas(64) S copied[kAll];
    copy_rows<kChannels>(image, taps_, rows_, i, true, copied);
    if constexpr (Prologue::kIdentity) {
      sum_cubic_rows<kChannels>(rows_, i, [&](int r) { return copied + r * kRow; }, sums);
    } else {
      alignas(64) V wide[kAll];
      Prologue::row(copied, wide, kAll, given);
      sum_cubic_rows<kChannels>(rows_, i, [&](int r) { return wide + r * kRow; }, sums);
    }
  }

  // What the prologue reads besides its values. planar: these are of channel c; else of the channels from c on.
  RowOperands operands(int64_t c, bool planar) const {
    RowOperands result = {};
    result.planar = planar;
    for (int64_t v = 0; v < call_.vector_count; ++v) {
      const ChannelOperand& vector = call_.vectors[v];
      result.vectors[v] = static_cast<const uint8_t*>(vector.data) + c * vector.element_bytes;
    }
    return result;
  }

  V loaded(const S* value, int64_t c) const {
    if constexpr (Prologue::kIdentity) {
      return *value;
    } else {
      V result;
      Prologue::row(value, &result, 1, operands(c, true));
      return result;
    }
  }

  void pick(const S* plane, int64_t c, V* out) {
    alignas(64) V values[kTile];
    load_tap(0, plane, c, values);
    for (int i = 0; i < kTile; ++i) out[i] = taps_.touched[i] ? values[i] : V{};
  }

  // Tap k of every pixel of a plane, after the prologue.
  void load_tap(int k, const S* plane, int64_t c, V* out) const {
    if constexpr (Prologue::kIdentity) {
      gather(plane, taps_.offset[k], out);
    } else {
      alignas(64) S values[kTile];
      gather(plane, taps_.offset[k], values);
      Prologue::row(values, out, kTile, operands(c, true));
    }
  }

  void sum_plane(const S* plane, int64_t c, V* out) {
    for (int i = 0; i < kTile; ++i) out[i] = 0;
    for (int k = 0; k < Taps::kCount; ++k) {
      alignas(64) V values[kTile];
      load_tap(k, plane, c, values);
      for (int i = 0; i < kTile; ++i) out[i] += taps_.weight[k][i] * values[i];
    }
  }

  // Pixels of many channels, a vector of them at a time: pixel i to out + i * stride. Whether all are numbers.
  POLYPHASE_ROW_LOOP bool sum_channels(int64_t c, int64_t count, int pixels, V* out, int64_t stride) {
    using Lanes = Vec<V>;
    const RowOperands given = operands(c, false);
    alignas(64) V wide[Prologue::kIdentity ? 1 : Taps::kCount][Prologue::kIdentity ? 1 : kChunk];
    bool nan = false;
    for (int i = 0; i < pixels; ++i) {
      const V* from[Taps::kCount];
      Lanes weight[Taps::kCount];
      for (int k = 0; k < Taps::kCount; ++k) {
        const S* pixel = image_n_ + taps_.offset[k][i] + c;
        weight[k] = Lanes::broadcast(taps_.weight[k][i]);
        if constexpr (Prologue::kIdentity) {
          from[k] = pixel;
        } else {
          Prologue::row(pixel, wide[k], count, given);
          from[k] = wide[k];
        }
      }
      V* to = out + i * stride;
      int64_t l = 0;
      for (; l + Lanes::kLanes <= count; l += Lanes::kLanes) {
        Lanes sum = Lanes::zero();
#pragma GCC unroll 4
        for (int k = 0; k < Taps::kCount; ++k) sum = multiply_add(Lanes::load(from[k] + l), weight[k], sum);
        nan |= sum.has_nan();
        sum.store(to + l);
      }
      if (l < count) {
        const int n = static_cast<int>(count - l);
        Lanes sum = Lanes::zero();
        for (int k = 0; k < Taps::kCount; ++k) sum = multiply_add(Lanes::load_first(from[k] + l, n), weight[k], sum);
        nan |= sum.has_nan();
        sum.store_first(to + l, n);
      }
    }
    return !nan;
  }

  const WarpCall& call_;
  const S* image_;
  const S* image_n_ = nullptr;
  bool interleaved_, by_rows_;
  int64_t last_quad_, last_in_plane_;
  Taps taps_;
  Conditional<kRows, CubicRows<P, false>, Unused> rows_;
  alignas(64) V pixels_[kWeighted ? kTile * kChunk : 1];  // element (pixel, channel) at pixel * kChunk + channel
};

}  // namespace polyphase
