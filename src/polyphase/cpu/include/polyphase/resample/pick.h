// Index-only maps of a row: pixels are moved, bytes untouched, whatever their dtype. A pixel here is all the bytes that
// move together: channels times the size of an element.
#pragma once

#include <cstring>

#include "polyphase/core/abi.h"
#include "polyphase/core/buffer.h"
#include "polyphase/core/standard.h"
#include "polyphase/core/unroll.h"
#include "polyphase/resample/ahead.h"
#include "polyphase/resample/moved_rows.h"
#include "polyphase/resample/pick_windows.h"
#include "polyphase/resample/turned.h"

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
  PickLanes(const Taps& taps, int64_t, int64_t channels, int64_t element_bytes)
      : channels_(channels), pixel_(channels * element_bytes), in_bytes_(taps.in_size * pixel_), copy_(copy_each_of(pixel_)) {
    pixels_.resize(taps.out_size);
    for (int64_t x = 0; x < taps.out_size; ++x) {
      pixels_[x] = taps.begin[x] == taps.begin[x + 1] ? -1 : taps.index[taps.begin[x]];
    }
    for (int64_t x = 0; x < taps.out_size;) x = add_run(x);
    one_table_ = runs_.size() == 1 && runs_[0].kind == kWindow && tables_equal();
  }

  int64_t channels() const { return channels_; }
  int64_t readable_length() const { return 0; }
  bool fetches() const { return false; }
  bool has_one_table() const { return one_table_; }
  size_t bytes() const {
    return sizeof(*this) + runs_.bytes() + windows_.bytes() + pixels_.bytes() + tables_.bytes();
  }

  // Outputs that are a constant border are left alone.
  POLYPHASE_ROW_LOOP void run(const uint8_t* in, uint8_t* out, const Ahead*) const { run_all({in, 0, nullptr, out, 0, 1}); }

  // Small images have many short rows. So it is chosen once for several rows how a part of them is moved.
  POLYPHASE_ROW_LOOP void run_rows(const MovedRows& rows) const {
    const int64_t most = runs_.size() == 1 ? rows.count : 4;
    for (int64_t r = 0; r < rows.count; r += most) run_all(rows.from(r, most));
  }

 private:
  using Window = picking::Window;
  using ShortRow = picking::ShortRow;
  using WideWindow = picking::WideWindow;
  using FarWindow = picking::FarWindow;
  using Words = picking::Words;
  using FarWords = picking::FarWords;

  // kWords: a wide window whose pixels are whole 32 bit words, which are picked faster than bytes. kFar...: two wide windows
  // side by side. kShortRow: all of a row that is shorter than a window.
  enum Kind : int32_t { kCopy, kTurned, kEach, kShortRow, kWindow, kWideWindow, kFarWindow, kWords, kFarWords };
  struct Run {
    Kind kind;
    int64_t count;  // kCopy, kTurned: bytes, kEach: pixels, else blocks
    int64_t first;  // kCopy, kTurned: byte of the input, kEach: place in pixels_, else place in windows_
    int64_t out;    // byte of the output
    int64_t end;    // byte of the output the next run begins at
    // A block is as many pixels as a register takes, out of a window of the input. The last one of a run may be shorter,
    // or lie over the one before it.
    int64_t step;        // bytes of output from one block to the next but the last
    int64_t last_out;    // byte of the output
    int64_t last_bytes;  // of the output
  };

#if defined(POLYPHASE_BYTE_SHUFFLES)
  template <class Way>
  Way make() const {
    if constexpr (__is_constructible(Way, int64_t)) {
      return Way(in_bytes_);
    } else {
      return Way();
    }
  }

  // Whether the next row is prefetched where rows shrink, and not only where they are flipped: as much of it as a block reads
  // of this one. ARM gains by it; AVX-512 too, if it is fetched to the first-level cache; AVX2 does not.
#if defined(POLYPHASE_NEON) || defined(__AVX512VBMI__)
  static constexpr bool kFetchesShrinking = true;
#else
  static constexpr bool kFetchesShrinking = false;
#endif
  template <bool kOneTable>
  static void fetch_window(const uint8_t* next) {
#if defined(__AVX512VBMI__)
    if (!kOneTable) {
      __builtin_prefetch(next);
      __builtin_prefetch(next + kCacheLine);
      return;
    }
#endif
    fetch_later(next);
  }

  // kOneTable: all blocks but the last have the same table, as those of a flipped row have. What a run says is read before
  // the loops: stores may alias it, so it would be read again after each.
  template <class Way, bool kOneTable = false>
  POLYPHASE_ROW_LOOP void pick(const Run& run, const MovedRows& rows) const {
    const Way way = make<Way>();
    const int64_t first_out = run.out, step = run.step, last_out = run.last_out, last = run.count - 1;
    const int last_bytes = static_cast<int>(run.last_bytes);
    const int32_t* const windows = windows_.data() + run.first;
    const uint8_t* const tables = tables_.data() + run.first * kTable;
    const auto only = Way::load(tables);
    const bool shrinks = kFetchesShrinking && in_bytes_ > pixels_.size() * pixel_;
    const bool far = (kOneTable || shrinks) && rows.count * in_bytes_ > kNear;
    constexpr int kOfLine = static_cast<int>(kCacheLine) / Way::kRegister;  // blocks
    for (int64_t r = 0; r < rows.count; ++r) {
      const uint8_t* const in = rows.source(r);
      const uint8_t* const next_in = kOneTable || kFetchesShrinking ? rows.source(rows.after(r)) : nullptr;
      uint8_t* const row = rows.target(r);
      uint8_t* out = row + first_out;
      // Whole registers are stored: less than a pixel too much, which the next block, of a pixel at least, overwrites.
      const auto pick_block = [&](int64_t b, uint8_t* to) {
        Way::store(to, way.pick(in + windows[b], kOneTable ? only : Way::load(tables + b * kTable)));
      };
      int64_t b = 0;
      for (; b + kOfLine <= last; b += kOfLine, out += kOfLine * step) {
        if (far) fetch_window<kOneTable>(next_in + windows[b]);
        fetch_target(out);
        repeat<kOfLine>([&](auto i) { pick_block(b + i, out + i * step); });
      }
      for (; b < last; ++b, out += step) pick_block(b, out);
      const auto picked = way.pick(in + windows[last], Way::load(tables + last * kTable));
      if (last_bytes == Way::kRegister) {
        Way::store(row + last_out, picked);
      } else {
        Way::store_first(row + last_out, last_bytes, picked);
      }
    }
  }
#else
  template <class, bool = false>
  void pick(const Run&, const MovedRows&) const {}
#endif

  void run_all(const MovedRows& rows) const {
    for (const Run& run : runs_) move(run, rows);
  }

  void move(const Run& run, const MovedRows& rows) const {
    switch (run.kind) {
      case kCopy: {
        MovedRows part = rows;
        part.in += run.first;
        part.out += run.out;
        copy_rows(part, run.count);
        break;
      }
      case kTurned: copy_turned({run.first, run.out, run.count, pixel_}, rows); break;
      case kEach:
        for (int64_t r = 0; r < rows.count; ++r) {
          copy_(rows.source(r), pixels_.data() + run.first, run.count, pixel_, rows.target(r) + run.out);
        }
        break;
      case kWindow: one_table_ ? pick<Window, true>(run, rows) : pick<Window>(run, rows); break;
      case kShortRow: pick<ShortRow>(run, rows); break;
      case kWideWindow: pick<WideWindow>(run, rows); break;
      case kFarWindow: pick<FarWindow>(run, rows); break;
      case kWords: pick<Words>(run, rows); break;
      case kFarWords: pick<FarWords>(run, rows); break;
    }
  }

  static constexpr int kTable = max(Window::kRegister, Words::kRegister);  // bytes
  static constexpr int64_t kLongCopy = kTable > 0 ? 1024 : 64;  // bytes; shorter ones go with what is around them

  // The run that begins at pixel x; returns where the next begins.
  int64_t add_run(int64_t x) {
    const int64_t end = pixels_.size();
    if (pixels_[x] < 0) return x + 1;
    const int64_t copied = neighbours(x);
    if (copied * pixel_ >= kLongCopy || x + copied == end || pixels_[x + copied] < 0) {
      runs_.push_back({kCopy, copied * pixel_, pixels_[x] * pixel_, x * pixel_, (x + copied) * pixel_, 0, 0, 0});
      return x + copied;
    }
    if (const int64_t turned = turns(pixel_) ? turned_neighbours(x) : 0; turned > 1 && turned * pixel_ >= kLeastTurned) {
      runs_.push_back({kTurned, turned * pixel_, pixels_[x] * pixel_, x * pixel_, (x + turned) * pixel_, 0, 0, 0});
      return x + turned;
    }
    int64_t stop = x;
    while (stop < end && pixels_[stop] >= 0 && (stop == x || neighbours(stop) * pixel_ < kLongCopy)) ++stop;
    for (const Kind kind : kWays) {
      if (fits_all(kind, x, stop)) return add_blocks(kind, x, stop);
    }
    while (x < stop) x = add_block(x, stop);
    return stop;
  }

  bool fits_all(Kind kind, int64_t x, int64_t stop) const {
    const int64_t most = most_pixels(kind);
    if (most == 0 || stop - x < 2) return false;
    for (; x < stop; x += most) {
      if (!fits(x, min(most, stop - x), window_bytes(kind))) return false;
    }
    return true;
  }

  // The last of several blocks begins within the one before, if it can, and so is whole: nothing is masked, and the tables of
  // a flipped row are alike.
  int64_t add_blocks(Kind kind, int64_t x, int64_t stop) {
    const int64_t whole = most_pixels(kind);
    for (const int64_t from = x; x < stop; x += whole) {
      if (stop - x < whole && x > from && fits(stop - whole, whole, window_bytes(kind))) {
        x = stop - whole;
        runs_.back().end = x * pixel_;
      }
      add_window(kind, x, min(whole, stop - x));
    }
    return stop;
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
    for (const Kind kind : kWays) {
      const int64_t count = min(most_pixels(kind), stop - x);
      if (count > 1 && fits(x, count, window_bytes(kind))) return add_window(kind, x, count);
    }
    const int64_t each = max<int64_t>(min(most_pixels(kWindow), stop - x), 1);
    extend(kEach, each, x, x * pixel_, (x + each) * pixel_);
    return x + each;
  }

  static constexpr Kind kWays[] = {kShortRow, kWindow, kWords, kWideWindow, kFarWords, kFarWindow};  // the quickest first
  static constexpr bool kMasks = !__is_same(ShortRow, Window);
  static constexpr bool of_words(Kind kind) { return kind >= kWords; }

  // Of a block.
  int64_t most_pixels(Kind kind) const {
    if (!of_words(kind)) return Window::kRegister / pixel_;
    return pixel_ % 4 == 0 ? Words::kRegister / pixel_ : 0;
  }

  int64_t window_bytes(Kind kind) const {
    if (of_words(kind)) return kind == kWords ? Words::kBytes : FarWords::kBytes;
    if (kind == kShortRow) return in_bytes_ < Window::kBytes && kMasks ? in_bytes_ : INT64_MAX;
    return kind == kWindow ? Window::kBytes : kind == kWideWindow ? WideWindow::kBytes : FarWindow::kBytes;
  }

  // Whether some pixels from x on lie within a window of so many bytes.
  bool fits(int64_t x, int64_t count, int64_t window) const {
    if (in_bytes_ < window) return false;
    int64_t low = pixels_[x];
    for (int64_t p = x; p < x + count; ++p) low = min<int64_t>(low, pixels_[p]);
    return (highest(x, count) - low + 1) * pixel_ <= window;
  }

  int64_t highest(int64_t x, int64_t count) const {
    int64_t high = pixels_[x];
    for (int64_t p = x; p < x + count; ++p) high = max<int64_t>(high, pixels_[p]);
    return high;
  }

  // A window ends with the last pixel that is picked out of it. Only where the row begins it ends later; in a flipped row,
  // that is the last block, and all before it have the same table.
  int64_t add_window(Kind kind, int64_t x, int64_t count) {
    const int64_t base = max<int64_t>(0, (highest(x, count) + 1) * pixel_ - window_bytes(kind));
    const int64_t table = tables_.size();
    tables_.resize(table + kTable);
    for (int64_t p = 0; p < count; ++p) {
      for (int64_t b = 0; b < pixel_; ++b) {
        const int64_t from = pixels_[x + p] * pixel_ + b - base, to = p * pixel_ + b;
        if (!of_words(kind)) {
          tables_[table + to] = static_cast<uint8_t>(from);
        } else if (b % 4 == 0) {  // indices of words, as 32 bit numbers
          tables_[table + to] = static_cast<uint8_t>(from / 4);
          std::memset(tables_.data() + table + to + 1, 0, 3);
        }
      }
    }
    extend(kind, 1, windows_.size(), x * pixel_, (x + count) * pixel_);
    windows_.push_back(static_cast<int32_t>(base));
    Run& run = runs_.back();
    if (run.count == 1) run.step = count * pixel_;
    run.last_out = x * pixel_;
    run.last_bytes = count * pixel_;
    return x + count;
  }

  // Whether all blocks but the last have the same table, as those of a flipped row have.
  bool tables_equal() const {
    for (int64_t table = kTable; table < tables_.size() - kTable; table += kTable) {
      if (std::memcmp(tables_.data(), tables_.data() + table, kTable) != 0) return false;
    }
    return true;
  }

  // The last run goes on, if it is of the same kind and ends where this begins.
  void extend(Kind kind, int64_t count, int64_t first, int64_t out, int64_t end) {
    if (runs_.size() > 0 && runs_.back().kind == kind && runs_.back().end == out) {
      runs_.back().count += count;
      runs_.back().end = end;
    } else {
      runs_.push_back({kind, count, first, out, end, 0, 0, 0});
    }
  }

  int64_t channels_, pixel_;
  int64_t in_bytes_;
  CopyEach copy_;
  bool one_table_ = false;  // one run of whole windows, all but the last picked by the same table
  Buffer<int32_t> pixels_;  // per output the input pixel, -1 for a border
  Buffer<Run> runs_;
  Buffer<int32_t> windows_;  // of each block, the byte of the input it begins at
  Buffer<uint8_t> tables_;   // of each block, kTable bytes
};

// Values of any type. `kNearest` is the arithmetic that finds the nearest pixel.
template <TapArithmetic kNearest>
struct MovingSampler {
  using Value = uint8_t;
  using Lanes = PickLanes;
  static constexpr TapArithmetic kArithmetic = kNearest, kFindsNearest = kNearest;
  static constexpr bool kSums = false, kAnyOrder = true;
  static void pack(const Taps&, int64_t, int, void*) {}
  static void sum(const uint8_t* const*, const void*, int, int, uint8_t*, int64_t, const Ahead*) {}
};

}  // namespace polyphase
