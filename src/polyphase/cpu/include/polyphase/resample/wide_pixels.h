// The horizontal pass over interleaved float pixels of many channels: these fill vectors, and each output is a sum of whole
// pixels. The last vector of a pixel may overlap the one before: some channels are then computed twice.
#pragma once

#include "polyphase/core/abi.h"
#include "polyphase/core/buffer.h"
#include "polyphase/core/standard.h"
#include "polyphase/core/unroll.h"
#include "polyphase/resample/ahead.h"
#include "polyphase/resample/float_sums.h"
#include "polyphase/simd/vector.h"

namespace polyphase {

template <class T>
class WidePixels {
 public:
  // False where a pixel does not fill a vector.
  bool build(const Taps& taps, int64_t channels) {
    if (channels < V::kLanes) return false;
    channels_ = channels;
    out_size_ = taps.out_size;
    grows_ = taps.out_size > taps.in_size;
    weights_.assign(taps.exact, taps.begin[taps.out_size]);
    begin_.assign(taps.begin, taps.out_size + 1);
    index_.assign(taps.index, taps.begin[taps.out_size]);
    for (int64_t x = 0; x < out_size_; ++x) most_taps_ = max(most_taps_, begin_[x + 1] - begin_[x]);
    return true;
  }

  size_t bytes() const { return weights_.bytes() + begin_.bytes() + index_.bytes(); }

  // See FloatLanes.
  bool sums_all() const { return most_taps_ <= 2 && channels_ >= 4 * V::kLanes; }
  bool sums_rows() const { return most_taps_ <= 2 && (sums_all() || !grows_); }

  POLYPHASE_ROW_LOOP void run(const T* in, T* out) const {
    for (int64_t x = 0; x < out_size_; ++x, out += channels_) {
      if (begin_[x + 1] - begin_[x] == 2) {
        const int32_t t = begin_[x];
        sum_two<1>(in + index_[t] * channels_, in + index_[t + 1] * channels_, t, out);
        continue;
      }
      int64_t c = 0;
      for (; c + 4 * V::kLanes <= channels_; c += 4 * V::kLanes) sum_channels<4>(in, x, c, out + c);
      for (; c < channels_; c += V::kLanes) {
        const int64_t from = min(c, channels_ - V::kLanes);
        sum_channels<1>(in, x, from, out + from);
      }
    }
  }

  // Both passes at once, where an output has two taps at most. A pixel's sum over the rows is kept for the next outputs:
  // where a row grows, these mostly read it too.
  POLYPHASE_ROW_LOOP void run_sum(const Summands<T>& summands, T* out) const {
    static thread_local Buffer<T> sums;
    sums.resize(2 * channels_);
    T* const places[] = {sums.data(), sums.data() + channels_};
    int32_t kept[] = {-1, -1};  // which pixels they are of
    const auto sum_of = [&](int32_t pixel, int32_t other) -> const T* {
      if (kept[0] == pixel) return places[0];
      if (kept[1] == pixel) return places[1];
      const int place = kept[0] == other;
      kept[place] = pixel;
      vertical_from(summands.rows, pixel * channels_, summands.weights, summands.count, places[place], channels_);
      return places[place];
    };
    const int64_t size = out_size_;
    const bool pairs = channels_ * static_cast<int64_t>(sizeof(T)) <= kNearOutputs;
    for (int64_t x = 0; x < size; ++x) {
      const int32_t t = begin_[x], taps = begin_[x + 1] - t;
      T* const to = out + x * channels_;
      if (taps == 0) {  // a border; or, of an adjoint, a pixel that nothing read
        vertical<T>(nullptr, nullptr, 0, to, channels_);
        continue;
      }
      if (taps == 2 && summands.count == 2 && !grows_) {
        sum_two_by_two(summands, t, to);
        continue;
      }
      const T* const left = sum_of(index_[t], taps == 2 ? index_[t + 1] : -1);
      if (taps == 1) {
        vertical(&left, weights_.data() + t, 1, to, channels_);
        continue;
      }
      const T* const right = sum_of(index_[t + 1], index_[t]);
      if (pairs && x + 1 < size && reads_same(t, x + 1)) {
        sum_two<2>(left, right, t, to);
        ++x;
      } else {
        sum_two<1>(left, right, t, to);
      }
    }
  }

 private:
  using V = Vec<T>;
  static constexpr int64_t kNearOutputs = 512;  // bytes: outputs of no more are made in pairs

  // Whether output x too reads the pixels of the taps t and t + 1, and no others.
  bool reads_same(int32_t t, int64_t x) const {
    return begin_[x + 1] - begin_[x] == 2 && index_[begin_[x]] == index_[t] && index_[begin_[x] + 1] == index_[t + 1];
  }

  // One output of two pixels, with the weights from t on; or two, one after the other.
  template <int kOutputs>
  POLYPHASE_BLOCK void sum_two(const T* left, const T* right, int32_t t, T* out) const {
    const int64_t length = channels_;
    V weights[2 * kOutputs];
    repeat<2 * kOutputs>([&](auto i) { weights[i] = V::broadcast(weights_[t + i]); });
    for_vectors([&](int64_t c) {
      const V a = V::load(left + c), b = V::load(right + c);
      repeat<kOutputs>([&](auto i) {
        T* const to = out + i * length + c;
        multiply_add(b, weights[2 * i + 1], multiply_add(a, weights[2 * i], V::zero())).store(to);
        fetch_target(to);
      });
    });
  }

  // The same of the sums of two rows.
  POLYPHASE_BLOCK void sum_two_by_two(const Summands<T>& summands, int32_t t, T* out) const {
    const int64_t left = index_[t] * channels_, right = index_[t + 1] * channels_;
    const T *p = summands.rows[0] + left, *q = summands.rows[1] + left;
    const T *r = summands.rows[0] + right, *s = summands.rows[1] + right;
    const V upper = V::broadcast(summands.weights[0]), lower = V::broadcast(summands.weights[1]);
    const V first = V::broadcast(weights_[t]), second = V::broadcast(weights_[t + 1]);
    for_vectors([&](int64_t c) {
      const V a = multiply_add(V::load(q + c), lower, multiply_add(V::load(p + c), upper, V::zero()));
      const V b = multiply_add(V::load(s + c), lower, multiply_add(V::load(r + c), upper, V::zero()));
      multiply_add(b, second, multiply_add(a, first, V::zero())).store(out + c);
      fetch_target(out + c);
    });
  }

  // function(c) for each vector of a pixel's channels, from channel c on. The last may overlap the one before.
  template <class Function>
  POLYPHASE_BLOCK void for_vectors(const Function& function) const {
    const int64_t length = channels_;
    int64_t c = 0;
    for (; c + 2 * V::kLanes <= length; c += 2 * V::kLanes) function(c), function(c + V::kLanes);
    for (; c < length; c += V::kLanes) function(min(c, length - V::kLanes));
  }

  template <int kVectors>
  POLYPHASE_BLOCK void sum_channels(const T* in, int64_t x, int64_t c, T* out) const {
    V totals[kVectors];
    repeat<kVectors>([&](auto v) { totals[v] = V::zero(); });
    for (int32_t t = begin_[x]; t < begin_[x + 1]; ++t) {
      const T* pixel = in + index_[t] * channels_ + c;
      const V weight = V::broadcast(weights_[t]);
      repeat<kVectors>([&](auto v) { totals[v] = multiply_add(V::load(pixel + v * V::kLanes), weight, totals[v]); });
    }
    store_channels<kVectors>(totals, out);
  }

  template <int kVectors>
  POLYPHASE_BLOCK static void store_channels(const V* totals, T* out) {
    repeat<kVectors>([&](auto v) {
      totals[v].store(out + v * V::kLanes);
      fetch_target(out + v * V::kLanes);
    });
  }

  int64_t channels_ = 0;
  int64_t out_size_ = 0;
  int32_t most_taps_ = 0;  // of an output
  bool grows_ = false;
  Buffer<T> weights_;
  Buffer<int32_t> begin_, index_;  // as Taps has them
};

}  // namespace polyphase
