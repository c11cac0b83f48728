// What a kernel does to the values of a row, by dtype: floats, uint8 with 16 bit weights, or moving alone.
#pragma once

#include "polyphase/ahead.h"
#include "polyphase/floats.h"
#include "polyphase/pick.h"
#include "polyphase/quantised.h"

namespace polyphase {

template <class T>
struct FloatSampler {
  using Value = T;
  using Weight = T;
  using Lanes = FloatLanes<T>;
  static constexpr Arithmetic kArithmetic = sizeof(T) == 8 ? Arithmetic::kFloat64 : Arithmetic::kFloat32;
  static constexpr bool kAnyOrder = true;

  static void pack(const double* weights, int taps, Weight* packed) {
    for (int t = 0; t < taps; ++t) packed[t] = static_cast<Weight>(weights[t]);
  }
  static void sum(const T* const* rows, const Weight* weights, int taps, int, T* out, int64_t length,
                  const Ahead<T>* ahead) {
    vertical(rows, weights, taps, out, length, ahead);
  }
};

struct QuantisedSampler {
  using Value = uint8_t;
  using Weight = int32_t;  // a pair of them
  using Lanes = ByteLanes;
  static constexpr Arithmetic kArithmetic = Arithmetic::kQuantised;
  static constexpr bool kAnyOrder = false;  // eager rounds after the horizontal pass, then after the vertical one

  static void pack(const double* weights, int taps, Weight* packed) { pack_pairs(weights, taps, packed); }
  static void sum(const uint8_t* const* rows, const Weight* pairs, int taps, int precision, uint8_t* out, int64_t length,
                  const Ahead<uint8_t>*) {
    vertical(rows, pairs, taps, precision, out, length);
  }
};

// Values of any dtype, moved. `kNearest` is the arithmetic that finds the nearest pixel.
template <class T, Arithmetic kNearest>
struct MovingSampler {
  using Value = T;
  using Weight = T;
  struct Lanes {
    Lanes(const Taps&, int64_t) {}
    int64_t readable_length() const { return 0; }
    size_t bytes() const { return 0; }
    bool fetches() const { return false; }
    void run(const T*, T*, const Ahead<T>*) const {}
  };
  static constexpr Arithmetic kArithmetic = kNearest;
  static constexpr bool kAnyOrder = true;
  static void pack(const double*, int, Weight*) {}
  static void sum(const T* const*, const Weight*, int, int, T*, int64_t, const Ahead<T>*) {}
};

// The tables by which a row is read horizontally.
template <class Sampler>
class RowMap {
 public:
  using T = typename Sampler::Value;
  struct BorderRun {
    int64_t begin, end;  // pixels
    int32_t number;
  };

  RowMap(const Taps& taps, int64_t channels) {
    if (taps.index_only) {
      picked_ = new PickLanes(taps, channels * static_cast<int64_t>(sizeof(T)));
    } else {
      weighted_ = new typename Sampler::Lanes(taps, channels);
    }
    for (int64_t x = 0; taps.border != nullptr && x < taps.out_size; ++x) {
      if (taps.border[x] == 0) continue;
      if (borders_.size() > 0 && borders_.back().end == x && borders_.back().number == taps.border[x]) {
        borders_.back().end = x + 1;
      } else {
        borders_.push_back({x, x + 1, taps.border[x]});
      }
    }
  }

  ~RowMap() {
    delete weighted_;
    delete picked_;
  }
  RowMap(const RowMap&) = delete;
  RowMap& operator=(const RowMap&) = delete;

  bool weighted() const { return weighted_ != nullptr; }
  bool fetches() const { return weighted() && weighted_->fetches(); }
  int64_t readable_length() const { return weighted_ ? weighted_->readable_length() : 0; }
  const Buffer<BorderRun>& borders() const { return borders_; }
  size_t bytes() const {
    return sizeof(*this) + borders_.bytes() + (weighted_ ? weighted_->bytes() : picked_->bytes());
  }

  // `ahead` is for maps that fetch.
  void run(const T* in, T* out, const Ahead<T>* ahead = nullptr) const {
    if (weighted_) return weighted_->run(in, out, ahead);
    picked_->run(reinterpret_cast<const uint8_t*>(in), reinterpret_cast<uint8_t*>(out));
  }

  // Strides in elements.
  void run_rows(const T* in, int64_t in_stride, T* out, int64_t out_stride, int64_t rows) const {
    if (weighted_) {
      for (int64_t r = 0; r < rows; ++r) weighted_->run(in + r * in_stride, out + r * out_stride, nullptr);
      return;
    }
    constexpr int64_t kSize = sizeof(T);
    picked_->run_rows(reinterpret_cast<const uint8_t*>(in), in_stride * kSize, reinterpret_cast<uint8_t*>(out),
                      out_stride * kSize, rows);
  }

 private:
  typename Sampler::Lanes* weighted_ = nullptr;
  PickLanes* picked_ = nullptr;
  Buffer<BorderRun> borders_;
};

}  // namespace polyphase
