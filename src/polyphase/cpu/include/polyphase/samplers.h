// What is done to the rows of values of one type, whatever the program around them: floats, uint8 with 16 bit weights, or
// moving alone. A library of its own for each, built once: a program's kernel is then the driver and its arithmetic.
#pragma once

#include "polyphase/abi.h"
#include "polyphase/ahead.h"
#include "polyphase/floats.h"
#include "polyphase/pick.h"
#include "polyphase/quantised.h"

namespace polyphase {

template <class T>
struct FloatSampler {
  using Value = T;
  using Lanes = FloatLanes<T>;
  static constexpr Arithmetic kArithmetic = sizeof(T) == 8 ? Arithmetic::kFloat64 : Arithmetic::kFloat32;
  static constexpr bool kAnyOrder = true;

  static void pack(const double* weights, int taps, void* packed) {
    for (int t = 0; t < taps; ++t) static_cast<T*>(packed)[t] = static_cast<T>(weights[t]);
  }
  static void sum(const T* const* rows, const void* packed, int taps, int, T* out, int64_t length, const Ahead* ahead) {
    vertical(rows, static_cast<const T*>(packed), taps, out, length, ahead);
  }
};

struct QuantisedSampler {
  using Value = uint8_t;
  using Lanes = ByteLanes;
  static constexpr Arithmetic kArithmetic = Arithmetic::kQuantised;
  static constexpr bool kAnyOrder = false;  // eager rounds after the horizontal pass, then after the vertical one

  static void pack(const double* weights, int taps, void* packed) {
    pack_pairs(weights, taps, static_cast<int32_t*>(packed));
  }
  static void sum(const uint8_t* const* rows, const void* packed, int taps, int precision, uint8_t* out, int64_t length,
                  const Ahead*) {
    vertical(rows, static_cast<const int32_t*>(packed), taps, precision, out, length);
  }
};

// Values of any type. `kNearest` is the arithmetic that finds the nearest pixel.
template <Arithmetic kNearest>
struct MovingSampler {
  using Value = uint8_t;
  struct Lanes {
    Lanes(const Taps&, int64_t) {}
    int64_t readable_length() const { return 0; }
    size_t bytes() const { return 0; }
    bool fetches() const { return false; }
    void run(const uint8_t*, uint8_t*, const Ahead*) const {}
  };
  static constexpr Arithmetic kArithmetic = kNearest;
  static constexpr bool kAnyOrder = true;
  static void pack(const double*, int, void*) {}
  static void sum(const uint8_t* const*, const void*, int, int, uint8_t*, int64_t, const Ahead*) {}
};

// The tables by which rows are read: of weights, or of places where every output is one input.
template <class Rows>
class RowTables : public RowMap {
 public:
  RowTables(const Taps& taps, int64_t channels, int64_t element_bytes) : RowMap() {
    weighted = taps.index_only == 0;
    if (weighted) {
      sums_ = new typename Rows::Lanes(taps, channels);
      readable_length = sums_->readable_length();
      fetches = sums_->fetches();
    } else {
      picks_ = new PickLanes(taps, channels * element_bytes);
    }
    find_borders(taps);
    borders = borders_.data();
    border_count = borders_.size();
    bytes = static_cast<int64_t>(sizeof(*this) + (weighted ? sums_->bytes() : picks_->bytes())) + borders_.bytes();
  }
  ~RowTables() {
    delete sums_;
    delete picks_;
  }
  RowTables(const RowTables&) = delete;
  RowTables& operator=(const RowTables&) = delete;

  void run(const void* in, void* out, const Ahead* ahead) const {
    if (weighted) return sums_->run(static_cast<const T*>(in), static_cast<T*>(out), ahead);
    picks_->run(static_cast<const uint8_t*>(in), static_cast<uint8_t*>(out));
  }

  void run_rows(const void* in, int64_t in_stride, void* out, int64_t out_stride, int64_t rows) const {
    const auto* from = static_cast<const uint8_t*>(in);
    auto* to = static_cast<uint8_t*>(out);
    if (!weighted) return picks_->run_rows(from, in_stride, to, out_stride, rows);
    for (int64_t r = 0; r < rows; ++r) run(from + r * in_stride, to + r * out_stride, nullptr);
  }

 private:
  using T = typename Rows::Value;

  void find_borders(const Taps& taps) {
    for (int64_t x = 0; taps.border != nullptr && x < taps.out_size; ++x) {
      if (taps.border[x] == 0) continue;
      if (borders_.size() > 0 && borders_.back().end == x && borders_.back().number == taps.border[x]) {
        borders_.back().end = x + 1;
      } else {
        borders_.push_back({x, x + 1, taps.border[x]});
      }
    }
  }

  typename Rows::Lanes* sums_ = nullptr;
  PickLanes* picks_ = nullptr;
  Buffer<BorderRun> borders_;
};

template <class Rows>
constexpr Sampler sampler() {
  using Tables = RowTables<Rows>;
  using T = typename Rows::Value;
  Sampler s = {};
  s.prepare = [](const Taps& taps, int64_t channels, int64_t element_bytes) -> const RowMap* {
    return new Tables(taps, channels, element_bytes);
  };
  s.release = [](const RowMap* map) { delete static_cast<const Tables*>(map); };
  s.run = [](const RowMap* map, const void* in, void* out, const Ahead* ahead) {
    static_cast<const Tables*>(map)->run(in, out, ahead);
  };
  s.run_rows = [](const RowMap* map, const void* in, int64_t in_stride, void* out, int64_t out_stride, int64_t rows) {
    static_cast<const Tables*>(map)->run_rows(in, in_stride, out, out_stride, rows);
  };
  s.pack = Rows::pack;
  s.sum = [](const void* const* rows, const void* packed, int taps, int precision, void* out, int64_t length,
             const Ahead* ahead) {
    Rows::sum(reinterpret_cast<const T* const*>(rows), packed, taps, precision, static_cast<T*>(out), length, ahead);
  };
  s.arithmetic = Rows::kArithmetic;
  s.any_order = Rows::kAnyOrder;
  return s;
}

}  // namespace polyphase
