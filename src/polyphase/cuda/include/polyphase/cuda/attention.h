// Attention at sampled places, and its gradients. A few threads share an output, each with channels of its own, and a block
// has some outputs. Where points lie is found once for all channels, some points at a time, and handed on in shared memory.
#pragma once

#include "polyphase/core/standard.h"
#include "polyphase/cuda/atomics.h"
#include "polyphase/cuda/block.h"
#include "polyphase/cuda/vectors.h"
#include "polyphase/warp/attention_call.h"
#include "polyphase/warp/corners.h"

namespace polyphase {

// What is added to the value's gradient: nothing, floats, or integers, whose sums are the same in any order.
enum AttentionAdding { kAddNoValues, kAddValues, kAddRoundedValues };

// `cuda/attention.py` packs it.
struct AttentionLaunch : AttentionCall {
  int64_t lanes;      // threads that share an output
  int64_t at_once;    // outputs of a block
  int64_t chunk;      // points that are found together
  const double* scales;  // of (image, head): what gradients are multiplied by, to become integers that fit
  int64_t* sums;         // of such integers; of doubles, behind all of them the sums of what these leave
  double rest;           // which are counted in units of 1 / rest
};

// A point's four pixels. gone: the output does not exist, nor does the point.
template <class P>
struct AttentionPoint {
  int32_t pixel[kCorners];  // less than 0: outside the level
  P weight[kCorners];
  P fraction[2], half[2];
  P share;  // of the output
};

template <class T, class P, int kTogether, int kThreads>
struct AttentionBlock {
  using Point = AttentionPoint<P>;
  using Channels = Vector<T, kTogether>;

  const AttentionLaunch& call;
  int64_t first;  // output

  // Outputs are counted over (batch, query, head).
  int64_t output_of(int thread) const { return first + thread / static_cast<int>(call.lanes); }
  bool has_work(int thread) const {
    return thread < call.lanes * call.at_once && output_of(thread) < call.outputs();
  }
  int channel_of(int thread) const { return thread % static_cast<int>(call.lanes) * kTogether; }
  // Between channels of a thread.
  int64_t step() const { return call.lanes * kTogether; }

  const T* output(int64_t number) const {
    const int64_t head = number % call.heads, query = number / call.heads % call.queries, n = number / call.heads / call.queries;
    const OutputStrides& s = call.output_strides;
    return static_cast<const T*>(call.output) + n * s.batch + query * s.query + head * s.head;
  }
  const T* value(int64_t number) const {
    const int64_t head = number % call.heads, n = number / call.heads / call.queries;
    return static_cast<const T*>(call.value) + n * call.value_strides.batch + head * call.value_strides.head;
  }
  static Channels read(const T* from) { return *reinterpret_cast<const Channels*>(from); }

  // Of the points from `begin` on, those of a thread; kept: pixels that weigh nothing are needed too.
  template <bool kKept>
  void find(int thread, int64_t begin, Point* points) const {
    for (int64_t i = thread; i < call.at_once * call.chunk; i += kThreads) {
      const int64_t number = first + i / call.chunk, p = begin + i % call.chunk;
      if (number < call.outputs() && p < call.points) points[i] = point<kKept>(number, p);
    }
  }

 private:
  template <bool kKept>
  Point point(int64_t number, int64_t p) const {
    const int64_t at = number * call.points + p;
    int l = 0;
    for (; p >= call.levels[l].points; ++l) p -= call.levels[l].points;
    const Level& level = call.levels[l];
    const PixelAxis<P> axes[2] = {{level.width, call.align_corners != 0}, {level.height, call.align_corners != 0}};
    const T* const place = static_cast<const T*>(call.places) + at * 2;
    const auto x = Between<P>::of(static_cast<P>(place[0]), axes[0].half, axes[0].last, axes[0].offset);
    const auto y = Between<P>::of(static_cast<P>(place[1]), axes[1].half, axes[1].last, axes[1].offset);
    Point found;
    const int32_t pixel = static_cast<int32_t>(level.first) + y.first * static_cast<int32_t>(level.width) + x.first;
#pragma unroll
    for (int k = 0; k < kCorners; ++k) {
      const int right = k & 1, below = k >> 1;
      const int32_t there = pixel + right + below * static_cast<int32_t>(level.width);
      found.weight[k] = x.weight(right) * y.weight(below);
      const bool is_read = x.inside[right] && y.inside[below] && (kKept || found.weight[k] != 0);
      found.pixel[k] = is_read ? there : -1;
    }
    found.fraction[0] = x.fraction;
    found.fraction[1] = y.fraction;
    found.half[0] = axes[0].half;
    found.half[1] = axes[1].half;
    found.share = static_cast<P>(static_cast<const T*>(call.weights)[at]);
    return found;
  }
};

template <class T, class P, int kTogether, int kThreads>
struct AttentionForward {
  using Part = AttentionBlock<T, P, kTogether, kThreads>;
  using Point = typename Part::Point;
  using Channels = typename Part::Channels;
  struct Sums {
    P of[kTogether];
  };

  static void run(const AttentionLaunch& call, const Block& block) {
    auto* const points = reinterpret_cast<Point*>(block.shared());
    const int64_t step = int64_t(block.count().x) * call.at_once;
    for (int64_t first = block.place().x * call.at_once; first < call.outputs(); first += step) {
      const Part part = {call, first};
      for (int64_t c = 0; c < call.channels; c += part.step()) add_up(part, block, c, points);
    }
  }

 private:
  // The channels from c on.
  static void add_up(const Part& part, const Block& block, int64_t c, Point* points) {
    const AttentionLaunch& call = part.call;
    States<Sums, kThreads> sums;
    block.each_thread([&](int thread) { sums.of(thread) = {}; });
    for (int64_t begin = 0; begin < call.points; begin += call.chunk) {
      block.each_thread([&](int thread) { part.template find<false>(thread, begin, points); });
      block.each_thread([&](int thread) {
        const int64_t channel = c + part.channel_of(thread);
        if (!part.has_work(thread) || channel >= call.channels) return;
        const Point* const own = points + thread / static_cast<int>(call.lanes) * call.chunk;
        const T* const value = part.value(part.output_of(thread)) + channel;
        const int64_t count = min(call.chunk, call.points - begin);
        for (int64_t i = 0; i < count; ++i) add(value, call.value_strides.pixel, own[i], sums.of(thread));
      });
    }
    block.each_thread([&](int thread) {
      const int64_t channel = c + part.channel_of(thread);
      if (!part.has_work(thread) || channel >= call.channels) return;
      Channels rounded;
#pragma unroll
      for (int i = 0; i < kTogether; ++i) rounded.items[i] = static_cast<T>(sums.of(thread).of[i]);
      T* const to = const_cast<T*>(part.output(part.output_of(thread))) + channel;
      *reinterpret_cast<Channels*>(to) = rounded;
    });
  }

  static void add(const T* value, int64_t pixel, const Point& point, Sums& sums) {
    P sampled[kTogether] = {};
#pragma unroll
    for (int k = 0; k < kCorners; ++k) {
      Channels read = {};
      if (point.pixel[k] >= 0) read = Part::read(value + point.pixel[k] * pixel);
#pragma unroll
      for (int i = 0; i < kTogether; ++i) sampled[i] = multiply_add(static_cast<P>(read.items[i]), point.weight[k], sampled[i]);
    }
#pragma unroll
    for (int i = 0; i < kTogether; ++i) sums.of[i] = multiply_add(sampled[i], point.share, sums.of[i]);
  }
};

template <class T, class P, int kTogether, int kThreads, int kAdding>
struct AttentionBackward {
  using Part = AttentionBlock<T, P, kTogether, kThreads>;
  using Point = typename Part::Point;
  using Channels = typename Part::Channels;

  static constexpr int kProducts = 3;

  // Shared memory has, for each point of a thread, its part of products with the gradient: element (point, product, thread);
  // then the points.
  static void run(const AttentionLaunch& call, const Block& block) {
    auto* const products = reinterpret_cast<P*>(block.shared());
    auto* const points = reinterpret_cast<Point*>(products + call.chunk * kProducts * kThreads);
    const int64_t step = int64_t(block.count().x) * call.at_once;
    for (int64_t first = block.place().x * call.at_once; first < call.outputs(); first += step) {
      const Part part = {call, first};
      for (int64_t begin = 0; begin < call.points; begin += call.chunk) {
        block.each_thread([&](int thread) { part.template find<true>(thread, begin, points); });
        block.each_thread([&](int thread) {
          if (part.has_work(thread)) multiply(part, thread, min(call.chunk, call.points - begin), points, products);
        });
        block.each_thread([&](int thread) { store(part, thread, begin, points, products); });
      }
    }
  }

 private:
  static void multiply(const Part& part, int thread, int64_t count, const Point* points, P* products) {
    const AttentionLaunch& call = part.call;
    const int64_t number = part.output_of(thread);
    const Point* const own = points + thread / static_cast<int>(call.lanes) * call.chunk;
    const T *const value = part.value(number), *const gradient = part.output(number);
    const Adder add(call, number);
    for (int64_t i = 0; i < count; ++i) {
      P sums[kProducts] = {};
      for (int64_t c = part.channel_of(thread); c < call.channels; c += part.step()) {
        const Channels given = Part::read(gradient + c);
        Channels read[kCorners] = {};
#pragma unroll
        for (int k = 0; k < kCorners; ++k) {
          const int64_t pixel = own[i].pixel[k];
          if (pixel < 0) continue;
          read[k] = Part::read(value + pixel * call.value_strides.pixel + c);
          if (own[i].weight[k] == 0) continue;
#pragma unroll
          for (int t = 0; t < kTogether; ++t) {
            add(pixel, c + t, own[i].weight[k] * own[i].share * static_cast<P>(given.items[t]));
          }
        }
#pragma unroll
        for (int t = 0; t < kTogether; ++t) add_products(own[i], read, t, static_cast<P>(given.items[t]), sums);
      }
#pragma unroll
      for (int s = 0; s < kProducts; ++s) products[(i * kProducts + s) * kThreads + thread] = sums[s];
    }
  }

  // The gradient of a channel times the sample, and times what that grows by along x and y. Of pixels, which may be much alike,
  // differences are summed, not sums subtracted.
  static void add_products(const Point& point, const Channels (&read)[kCorners], int channel, P gradient, P (&sums)[kProducts]) {
    P at[kCorners], sampled = 0;
#pragma unroll
    for (int k = 0; k < kCorners; ++k) {
      at[k] = static_cast<P>(read[k].items[channel]);
      // What weighs nothing has a slope all the same; but it may be no number.
      if (point.weight[k] == 0 && !(at[k] * 0 == 0)) at[k] = 0;
      sampled = multiply_add(at[k], point.weight[k], sampled);
    }
    const P x = point.fraction[0], y = point.fraction[1];
    const P of_x = multiply_add(at[1] - at[0], 1 - y, (at[3] - at[2]) * y);
    const P of_y = multiply_add(at[2] - at[0], 1 - x, (at[3] - at[1]) * x);
    sums[0] = multiply_add(gradient, sampled, sums[0]);
    sums[1] = multiply_add(gradient, of_x, sums[1]);
    sums[2] = multiply_add(gradient, of_y, sums[2]);
  }

  struct Adder {
    const AttentionLaunch& call;
    int64_t first;  // element of the value's gradient
    double scale = 0;

    Adder(const AttentionLaunch& call, int64_t number) : call(call) {
      const ValueStrides s = call.gradient_strides();
      const int64_t head = number % call.heads, n = number / call.heads / call.queries;
      first = n * s.batch + head * s.head;
      if (kAdding == kAddRoundedValues) scale = call.scales[n * call.heads + head];
    }

    void operator()(int64_t pixel, int64_t channel, P value) const {
      const int64_t at = first + pixel * call.heads * call.channels + channel;
      if constexpr (kAdding == kAddRoundedValues) {
        if (value * 0 == 0) return add_rounded(at, static_cast<double>(value) * scale);
      }
      if constexpr (kAdding != kAddNoValues) add_to(static_cast<P*>(call.value_gradient) + at, value);
    }

    // What is not finite has no place in integers: it is added to floats, where no order matters.
    void add_rounded(int64_t at, double scaled) const {
      const double whole = round_half_even(scaled);
      add_to(call.sums + at, static_cast<int64_t>(whole));
      if (sizeof(P) < 8) return;
      int64_t* const second = call.sums + call.batch * call.pixels * call.heads * call.channels;
      add_to(second + at, static_cast<int64_t>(round_half_even((scaled - whole) * call.rest)));
    }
  };

  // The gradients of places and weights.
  static void store(const Part& part, int thread, int64_t begin, const Point* points, const P* products) {
    const AttentionLaunch& call = part.call;
    for (int64_t i = thread; i < call.at_once * call.chunk; i += kThreads) {
      const int64_t own = i / call.chunk, number = part.first + own, p = begin + i % call.chunk;
      if (number >= call.outputs() || p >= call.points) continue;
      const Point& point = points[i];
      P sums[kProducts] = {};
#pragma unroll
      for (int s = 0; s < kProducts; ++s) {
        const P* const parts = products + (i % call.chunk * kProducts + s) * kThreads + own * call.lanes;
        for (int64_t l = 0; l < call.lanes; ++l) sums[s] += parts[l];
      }
      const int64_t at = number * call.points + p;
#pragma unroll
      for (int a = 0; a < 2; ++a) {
        static_cast<T*>(call.places_gradient)[at * 2 + a] = static_cast<T>(point.share * (sums[1 + a] * point.half[a]));
      }
      static_cast<T*>(call.weights_gradient)[at] = static_cast<T>(sums[0]);
    }
  }
};

}  // namespace polyphase
