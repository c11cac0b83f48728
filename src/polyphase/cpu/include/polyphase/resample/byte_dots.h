// The horizontal pass over uint8 pixels with many taps (from 1920 to 224 pixels there are 18): an output is a dot product of
// neighbouring pixels and their weights.
//
// Taps are taken in chunks: as many neighbours as fit into a register, for one output of a plane or for all channels, up to
// four, of one output. Partial sums stay in lanes; those of four registers are added up together.
#pragma once

#include "polyphase/core/abi.h"
#include "polyphase/core/buffer.h"
#include "polyphase/core/standard.h"
#include "polyphase/core/unroll.h"
#include "polyphase/resample/ahead.h"
#include "polyphase/simd/bytes.h"

#if defined(POLYPHASE_BYTE_VECTORS) && !defined(POLYPHASE_BYTE_PRODUCTS)

#if defined(__AVX2__)
#include "polyphase/resample/dots_avx2.h"
#elif defined(POLYPHASE_NEON)
#include "polyphase/resample/dots_neon.h"
#else
#include "polyphase/resample/dots_sse2.h"
#endif

namespace polyphase {

// Dots: what differs by instruction set. Where it makes no pixels (kPixels is 0), only planes are for dot products.
template <class Dots>
class DotProducts {
 public:
  static constexpr int kMostChannels = Dots::kPixels > 0 ? 4 : 1;

  void build(const Taps& taps, int64_t channels) {
    channels_ = static_cast<int>(channels);
    precision_ = taps.precision;
    out_size_ = taps.out_size;
    const int64_t chunk = channels_ == 1 ? Dots::kPlaneTaps : Dots::kPixelTaps;
    const int64_t widest = widest_of(taps, 0, out_size_ - 1);
    chunks_ = static_cast<int>((widest + chunk - 1) / chunk);
    in_length_ = taps.in_size * channels_;
    // A plane's outputs begin early enough for their chunks to end within the row. With several channels, the last chunk's
    // load may go beyond the row's end: see run_pixels.
    if (channels_ == 1) readable_length_ = chunks_ * chunk;
    furthest_ = channels_ == 1 ? max<int64_t>(0, taps.in_size - readable_length_) : INT32_MAX;

    const int64_t outputs = (out_size_ + kGroup - 1) / kGroup * kGroup;
    starts_.resize(outputs);
    weights_.resize(outputs * chunks_ * chunk_bytes());
    for (int64_t x = 0; x < out_size_; ++x) add_output(taps, x, chunk);
    if constexpr (Dots::kPixels > 0) {
      for (int64_t x = 0; channels_ > 1 && x < outputs; x += Dots::kPixels) add_extent(x);
      Dots::fill_shuffle(channels_, tables_.shuffle);
      for (int i = 0; i < 16; ++i) tables_.interleave[i] = Dots::interleaved(i / channels_, i % channels_);
    }
  }

  int64_t readable_length() const { return readable_length_; }
  size_t bytes() const { return starts_.bytes() + extents_.bytes() + weights_.bytes(); }

  POLYPHASE_ROW_LOOP void run(const uint8_t* in, uint8_t* out, const Ahead* ahead) const {
    if (channels_ == 1) return with_constant<1, 2>(chunks_, [&](auto chunks) { run_plane<chunks>(in, out, ahead); });
    if constexpr (Dots::kPixels > 0) {
      with_constant<Dots::kLeastUnrolled, Dots::kUnrolled>(chunks_,
                                                           [&](auto chunks) { run_pixels<chunks>(in, out, ahead); });
    }
  }

 private:
  static constexpr int64_t kGroup = 16;  // outputs: a multiple of all that are made together
  static constexpr int64_t kFinished = 4;  // outputs of a plane
  static constexpr int64_t kStep = 16;   // outputs, after which `Fetching` takes a step

  // The first and the last byte at which one of kPixels outputs begins.
  struct Extent {
    int32_t first, last;
  };

  int64_t chunk_bytes() const { return channels_ == 1 ? Dots::kPlaneChunk : Dots::kPixelChunk; }

  void add_output(const Taps& taps, int64_t x, int64_t chunk) {
    if (taps.begin[x] == taps.begin[x + 1]) return;
    const int64_t start = min<int64_t>(taps.index[taps.begin[x]], furthest_);
    starts_[x] = static_cast<int32_t>(start * channels_);
    for (int32_t t = taps.begin[x]; t < taps.begin[x + 1]; ++t) {
      const int64_t tap = taps.index[t] - start;
      uint8_t* const weights = weights_.data() + (x * chunks_ + tap / chunk) * chunk_bytes();
      if (channels_ == 1) {
        std::memcpy(weights + 2 * (tap % chunk), taps.quantised + t, 2);
      } else if constexpr (Dots::kPixels > 0) {
        Dots::put_pixel_weight(weights, tap % chunk, taps.quantised[t]);
      }
    }
  }

  void add_extent(int64_t x) {
    Extent extent = {starts_[x], starts_[x]};
    for (int64_t i = x; i < x + Dots::kPixels; ++i) {
      extent.first = min(extent.first, starts_[i]);
      extent.last = max(extent.last, starts_[i]);
    }
    extents_.push_back(extent);
  }

  // Members are read before the loops: a byte that is stored may alias any of them, so they would be read again after it.

  template <int kChunks>
  void run_plane(const uint8_t* in, uint8_t* out, const Ahead* ahead) const {
    const int chunks = kChunks == 0 ? chunks_ : kChunks, precision = precision_;
    const int64_t size = out_size_, stride = static_cast<int64_t>(chunks) * Dots::kPlaneChunk;
    const int32_t* starts = starts_.data();
    const uint8_t* weights = weights_.data();
    Fetching fetching(ahead, size / kStep + 1);
    for (int64_t x = 0; x < size; x += kFinished) {
      if (x % kStep == 0) fetching.step();
      typename Dots::Register r[kFinished];
#pragma GCC unroll 4
      for (int j = 0; j < kFinished; ++j, ++starts, weights += stride) r[j] = Dots::plane_sum(in + *starts, weights, chunks);
      Dots::store(out + x, min(kFinished, size - x), Dots::finish_plane(r, precision));
    }
  }

  template <int kChunks>
  void run_pixels(const uint8_t* in, uint8_t* out, const Ahead* ahead) const {
    const int chunks = chunks_, channels = channels_, precision = precision_;
    const int64_t size = out_size_, length = in_length_;
    const int64_t reach = (chunks - 1) * Dots::kPixelTaps * channels + Dots::kPixelLoad;
    const int32_t* starts = starts_.data();
    const Extent* extent = extents_.data();
    const uint8_t* weights = weights_.data();
    Fetching fetching(ahead, size / kStep + 1);
    for (int64_t x = 0; x < size; x += Dots::kPixels) {
      if (x % kStep == 0) fetching.step();
      const uint8_t* from = extent->last + reach > length ? padded_end(in, extent->first, reach) : in;
      Dots::template pixels<kChunks>(from, starts, weights, chunks, channels, precision, tables_, out,
                                     min<int64_t>(Dots::kPixels, size - x));
      starts += Dots::kPixels;
      weights += Dots::kPixels * chunks * Dots::kPixelChunk;
      out += Dots::kPixels * channels;
      ++extent;
    }
  }

  // Copies the row from byte `first` on to where there is room to read beyond its end. Returns where byte 0 would lie there,
  // so that offsets are the same.
  POLYPHASE_ROW_LOOP const uint8_t* padded_end(const uint8_t* in, int64_t first, int64_t reach) const {
    static thread_local Buffer<uint8_t> end;
    end.resize(in_length_ - first + reach);
    std::memcpy(end.data(), in + first, static_cast<size_t>(in_length_ - first));
    return end.data() - first;
  }

  int channels_ = 1;
  int precision_ = 0;
  int chunks_ = 0;
  int64_t out_size_ = 0;
  int64_t readable_length_ = 0;
  int64_t in_length_ = 0;
  int64_t furthest_ = 0;       // pixel an output's chunks may begin at
  Buffer<int32_t> starts_;  // where they begin, in bytes
  Buffer<Extent> extents_;
  Buffer<uint8_t> weights_;
  DotTables tables_ = {};
};

using ByteDots = DotProducts<Dots>;

}  // namespace polyphase

#else

namespace polyphase {

struct ByteDots {
  static constexpr int kMostChannels = 0;
  void build(const Taps&, int64_t) {}
  int64_t readable_length() const { return 0; }
  size_t bytes() const { return 0; }
  void run(const uint8_t*, uint8_t*, const Ahead*) const {}
};

}  // namespace polyphase

#endif
