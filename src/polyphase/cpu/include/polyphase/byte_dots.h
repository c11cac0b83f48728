// Many taps of uint8 pixels (a 1080p image to 224 pixels has 18): an output is a dot product of neighbouring pixels.
//
// A chunk is as many neighbouring taps as one register takes, of two outputs of a plane (AVX2: of one) or of the up to
// four channels of one output. Four registers of partial sums are added up together.
#pragma once

#include "polyphase/abi.h"
#include "polyphase/ahead.h"
#include "polyphase/buffer.h"
#include "polyphase/bytes.h"
#include "polyphase/standard.h"
#include "polyphase/unroll.h"

#if defined(POLYPHASE_BYTE_VECTORS)

namespace polyphase {

#if !defined(POLYPHASE_NEON)
inline __m128i load16(const void* p) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); }
#endif

// How bytes are picked from a chunk of interleaved pixels, and the results put side by side.
struct Tables {
  uint8_t shuffle[64];
  uint8_t interleave[64];
};

// The part that depends on the instruction set.
#if defined(__AVX512VBMI__) && defined(__AVX512VNNI__)

struct Dots {
  using Register = __m512i;
  static constexpr int kPlaneOutputs = 2;                  // of a plane in one register
  static constexpr int kPixels = 16;                       // outputs that are made together, of several channels
  static constexpr int kPlaneTaps = 16, kPixelTaps = 8;    // of a chunk
  static constexpr int kPlaneChunk = 64, kPixelChunk = 16;  // bytes of its weights
  static constexpr int kPixelLoad = 32;                     // bytes that are read for it
  static constexpr int kLeastUnrolled = 2, kUnrolled = 3;   // so many chunks, of pixels

  POLYPHASE_BLOCK static Register plane_sum(const uint8_t* in, const int32_t* starts, const uint8_t* weights, int chunks) {
    Register total = _mm512_setzero_si512();
    for (int g = 0; g < chunks; ++g, in += kPlaneTaps, weights += kPlaneChunk) {
      const __m256i first = _mm256_castsi128_si256(load16(in + starts[0]));
      const Register v = _mm512_cvtepu8_epi16(_mm256_inserti128_si256(first, load16(in + starts[1]), 1));
      total = _mm512_dpwssd_epi32(total, v, _mm512_loadu_si512(weights));
    }
    return total;
  }

  // The taps of a chunk channel after channel, as 16 bit values.
  static void put_pixel_weight(uint8_t* chunk, int64_t tap, int16_t weight) { std::memcpy(chunk + 2 * tap, &weight, 2); }
  static void fill_shuffle(int channels, uint8_t* table) {
    for (int c = 0; c < 4; ++c) {
      for (int t = 0; t < 8; ++t) table[16 * c + 2 * t] = static_cast<uint8_t>(t * channels + min(c, channels - 1));
    }
  }
  // The pixels of kPixels outputs, or of the first n.
  template <int kChunks>
  POLYPHASE_BLOCK static void pixels(const uint8_t* in, const int32_t* starts, const uint8_t* weights, int any_chunks,
                                     int channels, int precision, const Tables& tables, uint8_t* out, int64_t n) {
    const int chunks = kChunks == 0 ? any_chunks : kChunks;
    const int64_t step = kPixelTaps * channels;
    const Register by_channel = _mm512_loadu_si512(tables.shuffle);
    const Register half = _mm512_maskz_set1_epi32(0x1111, 1 << (precision - 1));  // in one of the four lanes to be added
    const Register bits = Bytes::broadcast(precision);
    Register sums[4];
    for (int i = 0; i < 4; ++i) {
      Register r[4];
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j, weights += chunks * kPixelChunk) {
        r[j] = pixel_sum(in + starts[4 * i + j], step, weights, chunks, by_channel, half);
      }
      sums[i] = Bytes::shift_right(added(r), bits);
    }
    const Register planes = _mm512_packus_epi16(_mm512_packs_epi32(sums[0], sums[1]), _mm512_packs_epi32(sums[2], sums[3]));
    Bytes::store_first(out, static_cast<int>(n) * channels,
                       _mm512_permutexvar_epi8(_mm512_loadu_si512(tables.interleave), planes));
  }
  // Channel after channel, 16 outputs each, to channels side by side.
  static uint8_t interleaved(int output, int channel) { return static_cast<uint8_t>(16 * channel + output); }

  // Register r holds outputs r and r + 4 of a plane.
  static __m128i finish_plane(const Register* r, int precision) {
    const Register s = added(r);
    const Register pairs = _mm512_add_epi32(s, _mm512_shuffle_i32x4(s, s, _MM_SHUFFLE(2, 3, 0, 1)));
    const __m256i eight = _mm512_castsi512_si256(_mm512_shuffle_i32x4(pairs, pairs, _MM_SHUFFLE(3, 3, 2, 0)));
    const __m256i sums = _mm256_srav_epi32(_mm256_add_epi32(eight, _mm256_set1_epi32(1 << (precision - 1))), _mm256_set1_epi32(precision));
    const __m256i positive = _mm256_max_epi32(sums, _mm256_setzero_si256());
    return _mm512_cvtusepi32_epi8(_mm512_castsi256_si512(positive));
  }

  static void store(uint8_t* out, int64_t n, __m128i bytes) {
    _mm512_mask_storeu_epi8(out, static_cast<__mmask64>((1u << n) - 1), _mm512_castsi128_si512(bytes));
  }

 private:
  // step: bytes from a chunk's pixels to the next one's.
  POLYPHASE_BLOCK static Register pixel_sum(const uint8_t* in, int64_t step, const uint8_t* weights, int chunks,
                                            Register by_channel, Register total) {
#pragma GCC unroll 3
    for (int g = 0; g < chunks; ++g, in += step, weights += kPixelChunk) {
      const __m256i window = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(in));
      const Register v = Bytes::shuffle_pairs(_mm512_castsi256_si512(window), by_channel);
      total = _mm512_dpwssd_epi32(total, v, _mm512_broadcast_i32x4(load16(weights)));
    }
    return total;
  }

  // 32 bit lane 4 * g + r of the result: the sum of the four lanes of 128 bit group g of register r.
  static Register added(const Register* r) {
    const Register u = _mm512_add_epi32(_mm512_unpacklo_epi32(r[0], r[1]), _mm512_unpackhi_epi32(r[0], r[1]));
    const Register v = _mm512_add_epi32(_mm512_unpacklo_epi32(r[2], r[3]), _mm512_unpackhi_epi32(r[2], r[3]));
    return _mm512_add_epi32(_mm512_unpacklo_epi64(u, v), _mm512_unpackhi_epi64(u, v));
  }
};

#elif defined(__AVX2__)

struct Dots {
  using Register = __m256i;
  static constexpr int kPlaneOutputs = 1;
  static constexpr int kPixels = 4;
  static constexpr int kPlaneTaps = 16, kPixelTaps = 4;
  static constexpr int kPlaneChunk = 32, kPixelChunk = 8;
  static constexpr int kPixelLoad = 16;
  static constexpr int kLeastUnrolled = 3, kUnrolled = 5;

  POLYPHASE_BLOCK static Register plane_sum(const uint8_t* in, const int32_t* starts, const uint8_t* weights, int chunks) {
    Register total = _mm256_setzero_si256();
    in += starts[0];
    for (int g = 0; g < chunks; ++g, in += kPlaneTaps, weights += kPlaneChunk) {
      const Register v = _mm256_cvtepu8_epi16(load16(in));
      total = _mm256_add_epi32(total, _mm256_madd_epi16(v, Bytes::load(weights)));
    }
    return total;
  }

  // The taps of a chunk channel after channel, as 16 bit values. Their weights are the same for each: a quarter of the
  // memory, and tables of a large image stay in the first-level cache.
  static void put_pixel_weight(uint8_t* chunk, int64_t tap, int16_t weight) { std::memcpy(chunk + 2 * tap, &weight, 2); }
  static void fill_shuffle(int channels, uint8_t* table) {
    for (int i = 0; i < 32; ++i) table[i] = Bytes::kNone;
    for (int t = 0; t < 4; ++t) {
      for (int c = 0; c < channels; ++c) table[8 * c + 2 * t] = static_cast<uint8_t>(t * channels + c);
    }
  }
  template <int kChunks>
  POLYPHASE_BLOCK static void pixels(const uint8_t* in, const int32_t* starts, const uint8_t* weights, int any_chunks,
                                     int channels, int precision, const Tables& tables, uint8_t* out, int64_t n) {
    const int chunks = kChunks == 0 ? any_chunks : kChunks;
    const int64_t step = kPixelTaps * channels;
    const Register by_channel = Bytes::load(tables.shuffle);
    const Register half = _mm256_set1_epi64x(1 << (precision - 1));  // in one of the two lanes to be added
    Register r[4];
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j, weights += chunks * kPixelChunk) {
      r[j] = pixel_sum(in + starts[j], step, weights, chunks, by_channel, half);
    }
    const Register bits = Bytes::broadcast(precision);
    const Register words = _mm256_packs_epi32(Bytes::shift_right(_mm256_hadd_epi32(r[0], r[1]), bits),
                                              Bytes::shift_right(_mm256_hadd_epi32(r[2], r[3]), bits));
    const __m128i bytes = _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
    store(out, n * channels, _mm_shuffle_epi8(bytes, load16(tables.interleave)));
  }
  // Two channels of four outputs, then the two others.
  static uint8_t interleaved(int output, int channel) {
    return static_cast<uint8_t>(8 * (channel / 2) + 2 * (output % 4) + channel % 2);
  }

  static __m128i finish_plane(const Register* r, int precision) {
    const Register h = _mm256_hadd_epi32(_mm256_hadd_epi32(r[0], r[1]), _mm256_hadd_epi32(r[2], r[3]));
    return rounded(_mm_add_epi32(_mm256_castsi256_si128(h), _mm256_extracti128_si256(h, 1)), precision);
  }

  static void store(uint8_t* out, int64_t n, __m128i bytes) {
    alignas(16) uint8_t buffer[16];
    _mm_store_si128(reinterpret_cast<__m128i*>(buffer), bytes);
    switch (n) {  // a constant size is one or two moves
      case 4: std::memcpy(out, buffer, 4); break;
      case 12: std::memcpy(out, buffer, 12); break;
      default: std::memcpy(out, buffer, static_cast<size_t>(n));
    }
  }

 private:
  POLYPHASE_BLOCK static Register pixel_sum(const uint8_t* in, int64_t step, const uint8_t* weights, int chunks,
                                            Register by_channel, Register total) {
#pragma GCC unroll 5
    for (int g = 0; g < chunks; ++g, in += step, weights += kPixelChunk) {
      const Register v = _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(load16(in)), by_channel);
      const Register each = _mm256_broadcastq_epi64(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(weights)));
      total = Bytes::dot(total, v, each);
    }
    return total;
  }

  static __m128i rounded(__m128i sums, int precision) {
    const __m128i shifted = _mm_srai_epi32(_mm_add_epi32(sums, _mm_set1_epi32(1 << (precision - 1))), precision);
    const __m128i words = _mm_packs_epi32(shifted, _mm_setzero_si128());
    return _mm_packus_epi16(words, words);
  }
};

#elif defined(POLYPHASE_NEON)

struct Dots {
  using Register = Bytes::Register;
  static constexpr int kPlaneOutputs = 1;
  static constexpr int kPixels = 4;
  static constexpr int kPlaneTaps = 8, kPixelTaps = 4;
  static constexpr int kPlaneChunk = 16, kPixelChunk = 8;
  static constexpr int kPixelLoad = 16;
  static constexpr int kLeastUnrolled = 3, kUnrolled = 5;

  POLYPHASE_BLOCK static Register plane_sum(const uint8_t* in, const int32_t* starts, const uint8_t* weights, int chunks) {
    Register total = Bytes::broadcast(0);
    in += starts[0];
    for (int g = 0; g < chunks; ++g, in += kPlaneTaps, weights += kPlaneChunk) {
      const neon::Shorts eight = neon::widened_low(load8(in));
      total = Bytes::dot(total, reinterpret_cast<Register>(eight), Bytes::load(weights));
    }
    return total;
  }

  // Of two taps after the other two, four 16 bit lanes each.
  static void put_pixel_weight(uint8_t* chunk, int64_t tap, int16_t weight) { std::memcpy(chunk + 2 * tap, &weight, 2); }
  static void fill_shuffle(int channels, uint8_t* table) {
    for (int i = 0; i < 32; ++i) table[i] = Bytes::kNone;
    for (int t = 0; t < 4; ++t) {
      for (int c = 0; c < channels; ++c) table[8 * t + 2 * c] = static_cast<uint8_t>(t * channels + c);
    }
  }
  template <int kChunks>
  POLYPHASE_BLOCK static void pixels(const uint8_t* in, const int32_t* starts, const uint8_t* weights, int any_chunks,
                                     int channels, int precision, const Tables& tables, uint8_t* out, int64_t n) {
    const int chunks = kChunks == 0 ? any_chunks : kChunks;
    const int64_t step = kPixelTaps * channels, stride = static_cast<int64_t>(chunks) * kPixelChunk;
    const Register first = Bytes::load(tables.shuffle), second = Bytes::load(tables.shuffle + 16);
    const Register half = Bytes::broadcast(1 << (precision - 1)), bits = Bytes::broadcast(precision);
    const Register p = pixel_sum(in + starts[0], step, weights, chunks, first, second, half);
    const Register q = pixel_sum(in + starts[1], step, weights + stride, chunks, first, second, half);
    const Register r = pixel_sum(in + starts[2], step, weights + 2 * stride, chunks, first, second, half);
    const Register s = pixel_sum(in + starts[3], step, weights + 3 * stride, chunks, first, second, half);
    const Register fours = Bytes::pack(Bytes::shift_right(p, bits), Bytes::shift_right(q, bits),
                                       Bytes::shift_right(r, bits), Bytes::shift_right(s, bits));
    store(out, n * channels, neon::pick(fours, Bytes::load(tables.interleave)));
  }
  static uint8_t interleaved(int output, int channel) { return static_cast<uint8_t>(4 * (output % 4) + channel); }

  static Register finish_plane(const Register* r, int precision) {
    using neon::added_pairs;
    const neon::Ints sums = added_pairs(added_pairs(Bytes::sums(r[0]), Bytes::sums(r[1])),
                                        added_pairs(Bytes::sums(r[2]), Bytes::sums(r[3])));
    const neon::Ints shifted = (sums + (1 << (precision - 1))) >> precision;
    return neon::narrowed(shifted, shifted, shifted, shifted);
  }

  static void store(uint8_t* out, int64_t n, Register bytes) {
    switch (n) {  // a constant size is one or two moves
      case 4: std::memcpy(out, &bytes, 4); break;
      case 12: std::memcpy(out, &bytes, 12); break;
      default: std::memcpy(out, &bytes, static_cast<size_t>(n));
    }
  }

 private:
  static Register load8(const uint8_t* p) {
    uint64_t bytes;
    std::memcpy(&bytes, p, 8);
    typedef uint64_t Longs __attribute__((vector_size(16)));
    return reinterpret_cast<Register>(Longs{bytes});
  }

  POLYPHASE_BLOCK static Register pixel_sum(const uint8_t* in, int64_t step, const uint8_t* weights, int chunks,
                                            Register first, Register second, Register half) {
    using namespace neon;
    Ints total = Bytes::sums(half);
#pragma GCC unroll 5
    for (int g = 0; g < chunks; ++g, in += step, weights += kPixelChunk) {
      const Register window = Bytes::load(in);
      const Shorts two = Bytes::shorts(pick(window, first)), others = Bytes::shorts(pick(window, second));
      const Shorts four = Bytes::shorts(load8(weights));
      total = add_products_high<1>(add_products_low<0>(total, two, four), two, four);
      total = add_products_high<3>(add_products_low<2>(total, others, four), others, four);
    }
    return Bytes::of(total);
  }
};

#else

struct Dots {
  using Register = __m128i;
  static constexpr int kPlaneOutputs = 1;
  static constexpr int kPixels = 4;
  static constexpr int kPlaneTaps = 8, kPixelTaps = 2;
  static constexpr int kPlaneChunk = 16, kPixelChunk = 16;
  static constexpr int kPixelLoad = 8;
  static constexpr int kLeastUnrolled = 1, kUnrolled = 3;

  POLYPHASE_BLOCK static Register plane_sum(const uint8_t* in, const int32_t* starts, const uint8_t* weights, int chunks) {
    Register total = _mm_setzero_si128();
    in += starts[0];
    for (int g = 0; g < chunks; ++g, in += kPlaneTaps, weights += kPlaneChunk) {
      const Register eight = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(in));
      total = Bytes::dot(total, Bytes::interleave_low(eight, _mm_setzero_si128()), load16(weights));
    }
    return total;
  }

  // Both taps of each channel.
  static void put_pixel_weight(uint8_t* chunk, int64_t tap, int16_t weight) {
    for (int c = 0; c < 4; ++c) std::memcpy(chunk + 4 * c + 2 * tap, &weight, 2);
  }
  static void fill_shuffle(int, uint8_t*) {}
  static uint8_t interleaved(int, int) { return 0; }

  template <int kChunks>
  POLYPHASE_BLOCK static void pixels(const uint8_t* in, const int32_t* starts, const uint8_t* weights, int any_chunks,
                                     int channels, int precision, const Tables&, uint8_t* out, int64_t n) {
    const int chunks = kChunks == 0 ? any_chunks : kChunks;
    const int64_t stride = static_cast<int64_t>(chunks) * kPixelChunk, pixel = channels;
    const Register half = Bytes::broadcast(1 << (precision - 1)), bits = Bytes::broadcast(precision);
    const Register p = pixel_sum(in + starts[0], pixel, weights, chunks, half);
    const Register q = pixel_sum(in + starts[1], pixel, weights + stride, chunks, half);
    const Register r = pixel_sum(in + starts[2], pixel, weights + 2 * stride, chunks, half);
    const Register s = pixel_sum(in + starts[3], pixel, weights + 3 * stride, chunks, half);
    uint8_t buffer[16];  // four bytes for each of four outputs
    Bytes::store(buffer, Bytes::pack(Bytes::shift_right(p, bits), Bytes::shift_right(q, bits),
                                     Bytes::shift_right(r, bits), Bytes::shift_right(s, bits)));
    const auto put = [&](auto bytes) {  // a constant size is one or two moves
      for (int64_t i = 0; i < n; ++i) std::memcpy(out + i * bytes, buffer + 4 * i, bytes);
    };
    channels == 2 ? put(Constant<2>()) : channels == 3 ? put(Constant<3>()) : put(Constant<4>());
  }

  static Register finish_plane(const Register* r, int precision) {
    const Register u = _mm_add_epi32(_mm_unpacklo_epi32(r[0], r[1]), _mm_unpackhi_epi32(r[0], r[1]));
    const Register v = _mm_add_epi32(_mm_unpacklo_epi32(r[2], r[3]), _mm_unpackhi_epi32(r[2], r[3]));
    const Register sums = _mm_add_epi32(_mm_unpacklo_epi64(u, v), _mm_unpackhi_epi64(u, v));
    const Register rounded = _mm_add_epi32(sums, Bytes::broadcast(1 << (precision - 1)));
    const Register shifted = Bytes::shift_right(rounded, Bytes::broadcast(precision));
    return Bytes::pack(shifted, shifted, shifted, shifted);
  }

  static void store(uint8_t* out, int64_t n, Register bytes) { Bytes::store_first(out, static_cast<int>(n), bytes); }

 private:
  static Register load4(const uint8_t* p) {
    int32_t bytes;
    std::memcpy(&bytes, p, 4);
    return _mm_cvtsi32_si128(bytes);
  }

  // pixel: its bytes.
  POLYPHASE_BLOCK static Register pixel_sum(const uint8_t* in, int64_t pixel, const uint8_t* weights, int chunks,
                                            Register total) {
    for (int g = 0; g < chunks; ++g, in += kPixelTaps * pixel, weights += kPixelChunk) {
      const Register both = Bytes::interleave_low(load4(in), load4(in + pixel));
      total = Bytes::dot(total, Bytes::interleave_low(both, _mm_setzero_si128()), load16(weights));
    }
    return total;
  }
};

#endif

class ByteDots {
 public:
  static constexpr int kMostChannels = 4;

  void build(const Taps& taps, int64_t channels) {
    channels_ = static_cast<int>(channels);
    precision_ = taps.precision;
    out_size_ = taps.out_size;
    const int64_t chunk = channels_ == 1 ? Dots::kPlaneTaps : Dots::kPixelTaps;
    const int64_t widest = widest_of(taps, 0, out_size_ - 1);
    chunks_ = static_cast<int>((widest + chunk - 1) / chunk);
    in_length_ = taps.in_size * channels_;
    // A plane's outputs begin early enough for their chunks to end within the row. Of several channels, a chunk reads
    // more than there is in it: see run_pixels.
    if (channels_ == 1) readable_length_ = chunks_ * chunk;
    furthest_ = channels_ == 1 ? max<int64_t>(0, taps.in_size - readable_length_) : INT32_MAX;

    const int64_t outputs = (out_size_ + kGroup - 1) / kGroup * kGroup;
    starts_.resize(outputs);
    weights_.resize(outputs * chunks_ * (channels_ == 1 ? Dots::kPlaneChunk / Dots::kPlaneOutputs : Dots::kPixelChunk));
    for (int64_t x = 0; x < out_size_; ++x) add_output(taps, x, chunk);
    for (int64_t x = 0; channels_ > 1 && x < outputs; x += Dots::kPixels) add_extent(x);
    Dots::fill_shuffle(channels_, tables_.shuffle);
    for (int i = 0; i < 64; ++i) tables_.interleave[i] = Dots::interleaved(i / channels_ % 16, i % channels_);
  }

  int64_t readable_length() const { return readable_length_; }
  size_t bytes() const { return starts_.bytes() + extents_.bytes() + weights_.bytes(); }

  POLYPHASE_ROW_LOOP void run(const uint8_t* in, uint8_t* out, const Ahead* ahead) const {
    if (channels_ == 1) return with_constant<1, 2>(chunks_, [&](auto chunks) { run_plane<chunks>(in, out, ahead); });
    with_constant<Dots::kLeastUnrolled, Dots::kUnrolled>(chunks_,
                                                         [&](auto chunks) { run_pixels<chunks>(in, out, ahead); });
  }

 private:
  static constexpr int64_t kGroup = 16;  // outputs: a multiple of all that are made together
  static constexpr int64_t kStep = 16;   // outputs, after which `Fetching` takes a step

  // Where the chunks of kPixels outputs begin at the earliest and at the latest.
  struct Extent {
    int32_t first, last;
  };

  // Of a plane, register r of a group of four holds the outputs r, r + 4, ...
  void add_output(const Taps& taps, int64_t x, int64_t chunk) {
    constexpr int64_t kFinished = 4 * Dots::kPlaneOutputs;
    if (taps.begin[x] == taps.begin[x + 1]) return;
    const int64_t start = min<int64_t>(taps.index[taps.begin[x]], furthest_);
    const int64_t within = x % kFinished, reg = within % 4, lane = within / 4;
    const int64_t slot = channels_ == 1 ? x - within + reg * Dots::kPlaneOutputs + lane : x;
    starts_[slot] = static_cast<int32_t>(start * channels_);
    for (int32_t t = taps.begin[x]; t < taps.begin[x + 1]; ++t) {
      const int64_t tap = taps.index[t] - start;
      const int16_t weight = static_cast<int16_t>(taps.weight[t]);
      if (channels_ == 1) {
        uint8_t* chunks = weights_.data() + slot / Dots::kPlaneOutputs * chunks_ * Dots::kPlaneChunk;
        std::memcpy(chunks + tap / chunk * Dots::kPlaneChunk + 2 * (lane * chunk + tap % chunk), &weight, 2);
      } else {
        uint8_t* chunks = weights_.data() + x * chunks_ * Dots::kPixelChunk;
        Dots::put_pixel_weight(chunks + tap / chunk * Dots::kPixelChunk, tap % chunk, weight);
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

  // Members are read before the loops: for all the compiler knows, a byte that is stored may be any of them.

  template <int kChunks>
  void run_plane(const uint8_t* in, uint8_t* out, const Ahead* ahead) const {
    constexpr int64_t kFinished = 4 * Dots::kPlaneOutputs;
    const int chunks = kChunks == 0 ? chunks_ : kChunks, precision = precision_;
    const int64_t size = out_size_, stride = static_cast<int64_t>(chunks) * Dots::kPlaneChunk;
    const int32_t* starts = starts_.data();
    const uint8_t* weights = weights_.data();
    Fetching fetching(ahead, size / kStep + 1);
    for (int64_t x = 0; x < size; x += kFinished) {
      if (x % kStep == 0) fetching.step();
      Dots::Register r[4];
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j, starts += Dots::kPlaneOutputs, weights += stride) {
        r[j] = Dots::plane_sum(in, starts, weights, chunks);
      }
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
      Dots::pixels<kChunks>(from, starts, weights, chunks, channels, precision, tables_, out,
                            min<int64_t>(Dots::kPixels, size - x));
      starts += Dots::kPixels;
      weights += Dots::kPixels * chunks * Dots::kPixelChunk;
      out += Dots::kPixels * channels;
      ++extent;
    }
  }

  // The row from `first` on where there is room to read beyond its end; as an address of the row's beginning.
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
  Tables tables_ = {};
};

}  // namespace polyphase

#endif
