// Index-only maps of a row: pixels are moved, bytes untouched, whatever their dtype. A pixel here is all the bytes that
// move together: channels times the size of an element.
#pragma once

#include <cstring>

#include "polyphase/abi.h"
#include "polyphase/ahead.h"
#include "polyphase/buffer.h"
#include "polyphase/bytes.h"
#include "polyphase/minmax.h"

namespace polyphase {

template <int kPixel>
inline void copy_each(const uint8_t* in, const int32_t* pixels, int64_t count, int64_t, uint8_t* out) {
  for (int64_t x = 0; x < count; ++x) {
    std::memcpy(out + x * kPixel, in + static_cast<int64_t>(pixels[x]) * kPixel, kPixel);
  }
}

template <>
inline void copy_each<0>(const uint8_t* in, const int32_t* pixels, int64_t count, int64_t pixel, uint8_t* out) {
  for (int64_t x = 0; x < count; ++x) std::memcpy(out + x * pixel, in + pixels[x] * pixel, pixel);
}

// Rows of pixels in the opposite order. Strides are in bytes.
struct TurnedRows {
  const uint8_t* in;  // the last pixel of the first row
  int64_t in_stride;
  uint8_t* out;
  int64_t out_stride;
  int64_t rows;
  int64_t bytes;  // of a row; at least kLeastTurned
  int64_t pixel;  // bytes; `turns` says whether there is a way for it
};

#if defined(POLYPHASE_BYTE_SHUFFLES)

// A block of the opposite order: where kSpan bytes come from if their pixels are turned, and such bytes turned.
#if defined(__AVX512VBMI__)
constexpr int kTurnedBlock = 64, kSpan = 64;
using TurnedPlaces = __m512i;
POLYPHASE_BLOCK TurnedPlaces load_places(const uint8_t* places) { return _mm512_loadu_si512(places); }
POLYPHASE_BLOCK void copy_turned_block(const uint8_t* end, TurnedPlaces places, uint8_t* out) {
  _mm512_storeu_si512(out, _mm512_permutexvar_epi8(places, _mm512_loadu_si512(end - 64)));
}
#else
constexpr int kTurnedBlock = 32, kSpan = 16;
using TurnedPlaces = __m256i;
POLYPHASE_BLOCK TurnedPlaces load_places(const uint8_t* places) {
  return _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(places)));
}
POLYPHASE_BLOCK void copy_turned_block(const uint8_t* end, TurnedPlaces places, uint8_t* out) {
  const __m256i values = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(end - 32));
  const __m256i turned = _mm256_permute4x64_epi64(_mm256_shuffle_epi8(values, places), 0x4e);  // halves exchanged
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), turned);
}
#endif

struct TurnedBytes {
  uint8_t places[kSpan] = {};
  constexpr TurnedBytes(int pixel) {
    for (int b = 0; b < kSpan; ++b) places[b] = static_cast<uint8_t>(kSpan - pixel * (b / pixel + 1) + b % pixel);
  }
};
constexpr TurnedBytes kTurnedBytes[] = {1, 2, 4, 8, 16};  // by the logarithm of a pixel's bytes

constexpr bool turns(int64_t pixel) { return 16 % pixel == 0; }
constexpr int64_t kLeastTurned = kTurnedBlock;

inline void copy_turned(TurnedRows t) {
  constexpr int64_t kStep = kTurnedBlock;
  const TurnedPlaces places = load_places(kTurnedBytes[__builtin_ctzll(static_cast<uint64_t>(t.pixel))].places);
  for (; t.rows > 0; --t.rows, t.in += t.in_stride, t.out += t.out_stride) {
    const uint8_t* const end = t.in + t.pixel;
    int64_t at = 0;
    for (; at < t.bytes - 2 * kStep; at += 2 * kStep) {
      copy_turned_block(end - at, places, t.out + at);
      copy_turned_block(end - at - kStep, places, t.out + at + kStep);
    }
    if (at < t.bytes - kStep) copy_turned_block(end - at, places, t.out + at);
    copy_turned_block(end - t.bytes + kStep, places, t.out + t.bytes - kStep);  // some of the block before once more
  }
}

#else
constexpr bool turns(int64_t pixel) { return pixel == 1; }
constexpr int64_t kLeastTurned = 8;

inline void copy_turned(TurnedRows t) {
  for (; t.rows > 0; --t.rows, t.in += t.in_stride, t.out += t.out_stride) {
    int64_t at = 0;
    for (; at + 8 <= t.bytes; at += 8) {
      uint64_t eight;
      std::memcpy(&eight, t.in - at - 7, 8);
      eight = __builtin_bswap64(eight);
      std::memcpy(t.out + at, &eight, 8);
    }
    for (; at < t.bytes; ++at) t.out[at] = t.in[-at];
  }
}
#endif

using CopyEach = void (*)(const uint8_t*, const int32_t*, int64_t, int64_t, uint8_t*);

inline CopyEach copy_each_of(int64_t pixel) {
  switch (pixel) {
    case 1: return copy_each<1>;
    case 2: return copy_each<2>;
    case 3: return copy_each<3>;
    case 4: return copy_each<4>;
    case 6: return copy_each<6>;
    case 8: return copy_each<8>;
    case 12: return copy_each<12>;
    case 16: return copy_each<16>;
    default: return copy_each<0>;
  }
}

class PickLanes {
 public:
  PickLanes(const Taps& taps, int64_t channels, int64_t element_bytes)
      : pixel_(channels * element_bytes), in_bytes_(taps.in_size * pixel_), copy_(copy_each_of(pixel_)) {
    pixels_.resize(taps.out_size);
    for (int64_t x = 0; x < taps.out_size; ++x) {
      pixels_[x] = taps.begin[x] == taps.begin[x + 1] ? -1 : taps.index[taps.begin[x]];
    }
    for (int64_t x = 0; x < taps.out_size;) x = add_run(x);
    one_table_ = runs_.size() == 1 && runs_[0].kind == kWindow && tables_.size() == kTable &&
                 blocks_.back().bytes == kRegister;
  }

  int64_t readable_length() const { return 0; }
  bool fetches() const { return false; }
  size_t bytes() const {
    return sizeof(*this) + runs_.bytes() + blocks_.bytes() + pixels_.bytes() + tables_.bytes();
  }

  // Outputs that are a constant border are left alone.
  POLYPHASE_ROW_LOOP void run(const uint8_t* in, uint8_t* out, const Ahead*) const { run_once(in, out); }

  // Of small images, rows are many and short.
  POLYPHASE_ROW_LOOP void run_rows(const uint8_t* in, int64_t in_stride, const int32_t* rows, uint8_t* out,
                                   int64_t out_stride, int64_t count) const {
    if (one_table_ && rows == nullptr) return run_rows_by_one_table(in, in_stride, out, out_stride, count);
    if (runs_.size() == 1 && runs_[0].kind == kTurned && rows == nullptr) {
      return copy_turned({in + runs_[0].first, in_stride, out, out_stride, count, runs_[0].count, pixel_});
    }
    for (int64_t r = 0; r < count; ++r, out += out_stride) run_once(in + (rows == nullptr ? r : rows[r]) * in_stride, out);
  }

 private:
  void run_once(const uint8_t* in, uint8_t* out) const {
    for (const Run& r : runs_) {
      switch (r.kind) {
        case kCopy: std::memcpy(out + r.out, in + r.first, static_cast<size_t>(r.count)); break;
        case kTurned: copy_turned({in + r.first, 0, out + r.out, 0, 1, r.count, pixel_}); break;
        case kEach: copy_(in, pixels_.data() + r.first, r.count, pixel_, out + r.out); break;
        case kWindow: pick_windows<kWindow>(r, in, out + r.out); break;
        case kWideWindow: pick_windows<kWideWindow>(r, in, out + r.out); break;
        case kWords: pick_words(r, in, out + r.out); break;
      }
    }
  }

  // kWords: a wide window whose pixels are whole 32 bit words, of which picking takes a third of the time.
  enum Kind : int32_t { kCopy, kTurned, kEach, kWindow, kWideWindow, kWords };
  struct Run {
    Kind kind;
    int64_t count;  // kCopy, kTurned: bytes, kEach: pixels, else blocks
    int64_t first;  // kCopy, kTurned: byte of the input, kEach: place in pixels_, else place in blocks_
    int64_t out;    // byte of the output
    int64_t end;    // byte of the output the next run begins at
  };
  // As many pixels as a register takes, or fewer at the end of a run, out of a window of the input.
  struct Block {
    int32_t in;     // byte the window begins at
    int32_t bytes;  // of output
    int32_t table;  // in tables_
  };

#if defined(__AVX512VBMI__)
  static constexpr int kRegister = 64, kWindowBytes = 64, kWideWindowBytes = 128;
  static constexpr int kWordsRegister = 64, kWordsWindow = 128;
  using Register = __m512i;
  static Register load(const uint8_t* p) { return _mm512_loadu_si512(p); }
  static void store(uint8_t* out, Register v) { _mm512_storeu_si512(out, v); }
  static void store_first(uint8_t* out, int n, Register v) { Bytes::store_first(out, n, v); }
  template <Kind kKind>
  static Register pick(const uint8_t* in, Register table) {
    if (kKind == kWideWindow) return _mm512_permutex2var_epi8(load(in), table, load(in + 64));
    return _mm512_permutexvar_epi8(table, load(in));
  }
  using Words = __m512i;
  static Words load_words(const uint8_t* p) { return _mm512_loadu_si512(p); }
  static void store_whole_words(uint8_t* out, Words v) { _mm512_storeu_si512(out, v); }
  static void store_words(uint8_t* out, int n, Words v) { Bytes::store_first(out, n, v); }
  static Words pick_words(const uint8_t* in, Words table) {
    return _mm512_permutex2var_epi32(load_words(in), table, load_words(in + 64));
  }
#elif defined(__AVX2__)
  static constexpr int kRegister = 16, kWindowBytes = 16, kWideWindowBytes = 16;
  static constexpr int kWordsRegister = 32, kWordsWindow = 64;
  using Register = __m128i;
  static Register load(const uint8_t* p) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)); }
  static void store(uint8_t* out, Register v) { _mm_storeu_si128(reinterpret_cast<__m128i*>(out), v); }
  static void store_first(uint8_t* out, int n, Register v) {
    alignas(16) uint8_t buffer[16];
    store(buffer, v);
    std::memcpy(out, buffer, static_cast<size_t>(n));
  }
  template <Kind>
  static Register pick(const uint8_t* in, Register table) {
    return _mm_shuffle_epi8(load(in), table);
  }
  using Words = __m256i;
  static Words load_words(const uint8_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
  static void store_whole_words(uint8_t* out, Words v) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), v); }
  static void store_words(uint8_t* out, int n, Words v) { Bytes::store_first(out, n, v); }
  static Words pick_words(const uint8_t* in, Words table) {
    const __m256 low = _mm256_castsi256_ps(_mm256_permutevar8x32_epi32(load_words(in), table));
    const __m256 high = _mm256_castsi256_ps(_mm256_permutevar8x32_epi32(load_words(in + 32), table));
    const __m256 from_high = _mm256_castsi256_ps(_mm256_slli_epi32(table, 28));  // bit 3 to the sign
    return _mm256_castps_si256(_mm256_blendv_ps(low, high, from_high));
  }
#else
  static constexpr int kRegister = 0, kWindowBytes = 0, kWideWindowBytes = 0;
  static constexpr int kWordsRegister = 0, kWordsWindow = 0;
#endif

#if defined(POLYPHASE_BYTE_SHUFFLES)
  template <Kind kKind>
  void pick_windows(const Run& run, const uint8_t* in, uint8_t* out) const {
    const Block* block = blocks_.data() + run.first;
    for (int64_t b = 1; b < run.count; ++b, ++block) {
      // Whole registers: what is too much, the next block writes over. It has a pixel at least, and so has room for it.
      store(out, pick<kKind>(in + block->in, load(tables_.data() + block->table)));
      out += block->bytes;
    }
    store_first(out, block->bytes, pick<kKind>(in + block->in, load(tables_.data() + block->table)));
  }
  // Flipped rows: the whole row by whole registers.
  void run_rows_by_one_table(const uint8_t* in, int64_t in_stride, uint8_t* out, int64_t out_stride, int64_t rows) const {
    const Register table = load(tables_.data());
    const Block* const end = blocks_.end();
    for (int64_t r = 0; r < rows; ++r, in += in_stride, out += out_stride) {
      uint8_t* to = out;
      for (const Block* block = blocks_.begin(); block != end; to += block->bytes, ++block) {
        store(to, pick<kWindow>(in + block->in, table));
      }
    }
  }
  void pick_words(const Run& run, const uint8_t* in, uint8_t* out) const {
    const Block* block = blocks_.data() + run.first;
    for (int64_t b = 1; b < run.count; ++b, ++block) {
      store_whole_words(out, pick_words(in + block->in, load_words(tables_.data() + block->table)));
      out += block->bytes;
    }
    const Words last = pick_words(in + block->in, load_words(tables_.data() + block->table));
    if (block->bytes == kWordsRegister) return store_whole_words(out, last);
    store_words(out, block->bytes, last);
  }
#else
  template <Kind>
  void pick_windows(const Run&, const uint8_t*, uint8_t*) const {}
  void run_rows_by_one_table(const uint8_t*, int64_t, uint8_t*, int64_t, int64_t) const {}
  void pick_words(const Run&, const uint8_t*, uint8_t*) const {}
#endif

  static constexpr int kTable = max(kRegister, kWordsRegister);  // bytes
  static constexpr int64_t kLongCopy = 64;  // bytes; shorter runs of neighbours go with what is around them

  // The run that begins at pixel x; returns where the next begins.
  int64_t add_run(int64_t x) {
    const int64_t end = pixels_.size();
    if (pixels_[x] < 0) return x + 1;
    const int64_t copied = neighbours(x);
    if (copied * pixel_ >= kLongCopy || copied == end - x) {
      runs_.push_back({kCopy, copied * pixel_, pixels_[x] * pixel_, x * pixel_, (x + copied) * pixel_});
      return x + copied;
    }
    if (const int64_t turned = turns(pixel_) ? turned_neighbours(x) : 0; turned > 1 && turned * pixel_ >= kLeastTurned) {
      runs_.push_back({kTurned, turned * pixel_, pixels_[x] * pixel_, x * pixel_, (x + turned) * pixel_});
      return x + turned;
    }
    int64_t stop = x;
    while (stop < end && pixels_[stop] >= 0 && (stop == x || neighbours(stop) * pixel_ < kLongCopy)) ++stop;
    for (const int64_t from = x; x < stop;) {
      if (x > from && stop - from >= kRegister / pixel_ && add_overlapping(stop, stop - x)) break;
      x = add_block(x, stop);
    }
    return stop;
  }

  // The last block of several is a whole one, some of its pixels copied twice: nothing is masked, and of a flipped row all
  // tables are the same. False where that is not possible, or too many pixels are left.
  bool add_overlapping(int64_t stop, int64_t left) {
    const Kind kind = runs_.back().kind;
    if (kind != kWindow && kind != kWords) return false;
    const int64_t whole = (kind == kWindow ? kRegister : kWordsRegister) / pixel_, x = stop - whole;
    const int64_t window = kind == kWindow ? kWindowBytes : kWordsWindow;
    if (left >= whole || x * pixel_ <= out_of_last_block() || !fits(x, whole, window)) return false;
    runs_.back().end = x * pixel_;
    blocks_.back().bytes = static_cast<int32_t>(x * pixel_ - out_of_last_block());
    add_window(kind, window, x, whole);
    return true;
  }

  // Where the last block of the last run writes to.
  int64_t out_of_last_block() const {
    int64_t out = runs_[runs_.size() - 1].out;
    for (int64_t b = runs_[runs_.size() - 1].first; b < blocks_.size() - 1; ++b) out += blocks_[b].bytes;
    return out;
  }

  int64_t neighbours(int64_t x) const {
    int64_t n = 1;
    while (x + n < pixels_.size() && pixels_[x + n] == pixels_[x] + n) ++n;
    return n;
  }

  int64_t turned_neighbours(int64_t x) const {
    int64_t n = 1;
    while (x + n < pixels_.size() && n <= pixels_[x] && pixels_[x + n] == pixels_[x] - n) ++n;
    return n;
  }

  // As many pixels from x on as one register takes, or one alone.
  int64_t add_block(int64_t x, int64_t stop) {
    const int64_t count = min<int64_t>(kRegister / pixel_, stop - x);
    const int64_t words = pixel_ % 4 == 0 ? min<int64_t>(kWordsRegister / pixel_, stop - x) : 0;
    if (fits(x, count, kWindowBytes)) return add_window(kWindow, kWindowBytes, x, count);
    if (fits(x, words, kWordsWindow)) return add_window(kWords, kWordsWindow, x, words);
    if (fits(x, count, kWideWindowBytes)) return add_window(kWideWindow, kWideWindowBytes, x, count);
    const int64_t each = max<int64_t>(count, 1);
    extend(kEach, each, x, x * pixel_, (x + each) * pixel_);
    return x + each;
  }

  // Whether some pixels from x on are worth a window, and lie within one of so many bytes.
  bool fits(int64_t x, int64_t count, int64_t window) const {
    if (count < 2 || in_bytes_ < window) return false;
    int64_t high = pixels_[x];
    for (int64_t p = x; p < x + count; ++p) high = max<int64_t>(high, pixels_[p]);
    return (high - lowest(x, count) + 1) * pixel_ <= window;
  }

  int64_t lowest(int64_t x, int64_t count) const {
    int64_t low = pixels_[x];
    for (int64_t p = x; p < x + count; ++p) low = min<int64_t>(low, pixels_[p]);
    return low;
  }

  int64_t add_window(Kind kind, int64_t window, int64_t x, int64_t count) {
    const int64_t base = min(lowest(x, count) * pixel_, in_bytes_ - window);
    const int64_t table = tables_.size();
    tables_.resize(table + kTable);
    for (int64_t p = 0; p < count; ++p) {
      for (int64_t b = 0; b < pixel_; ++b) {
        const int64_t from = pixels_[x + p] * pixel_ + b - base, to = p * pixel_ + b;
        if (kind != kWords) {
          tables_[table + to] = static_cast<uint8_t>(from);
        } else if (b % 4 == 0) {  // indices of words, as 32 bit numbers
          tables_[table + to] = static_cast<uint8_t>(from / 4);
          std::memset(tables_.data() + table + to + 1, 0, 3);
        }
      }
    }
    extend(kind, 1, blocks_.size(), x * pixel_, (x + count) * pixel_);
    blocks_.push_back({static_cast<int32_t>(base), static_cast<int32_t>(count * pixel_), shared_table(table)});
    return x + count;
  }

  // The last table, or the one before it if they are the same: of a flipped row they all are.
  int32_t shared_table(int64_t table) {
    if (blocks_.size() > 0) {
      const int32_t before = blocks_.back().table;
      if (std::memcmp(tables_.data() + before, tables_.data() + table, kTable) == 0) {
        tables_.resize(table);
        return before;
      }
    }
    return static_cast<int32_t>(table);
  }

  // The last run goes on, if it is of the same kind and ends where this begins.
  void extend(Kind kind, int64_t count, int64_t first, int64_t out, int64_t end) {
    if (runs_.size() > 0 && runs_.back().kind == kind && runs_.back().end == out) {
      runs_.back().count += count;
      runs_.back().end = end;
    } else {
      runs_.push_back({kind, count, first, out, end});
    }
  }

  int64_t pixel_;
  int64_t in_bytes_;
  CopyEach copy_;
  bool one_table_ = false;       // one run of whole windows, all picked by the same table
  Buffer<int32_t> pixels_;  // per output the input pixel, -1 for a border
  Buffer<Run> runs_;
  Buffer<Block> blocks_;
  Buffer<uint8_t> tables_;
};

// Values of any type. `kNearest` is the arithmetic that finds the nearest pixel.
template <Arithmetic kNearest>
struct MovingSampler {
  using Value = uint8_t;
  using Lanes = PickLanes;
  static constexpr Arithmetic kArithmetic = kNearest;
  static constexpr bool kSums = false, kAnyOrder = true;
  static void pack(const double*, int, void*) {}
  static void sum(const uint8_t* const*, const void*, int, int, uint8_t*, int64_t, const Ahead*) {}
};

}  // namespace polyphase
