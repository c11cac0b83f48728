// Attention at sampled places, and its gradients. Where a point lies is found once for all channels; each of its four pixels is
// then a few vectors of channels. No sample is ever in memory.
#pragma once

#include "polyphase/core/abi.h"
#include "polyphase/core/buffer.h"
#include "polyphase/core/unroll.h"
#include "polyphase/simd/vector.h"
#include "polyphase/warp/attention_call.h"
#include "polyphase/warp/attention_points.h"
#include "polyphase/warp/channels.h"

namespace polyphase {

// Work is divided by image and head, whose pixels then stay in a near cache; `block` queries at a time.
template <class P>
struct AttentionPart {
  const P* value;
  const P* places;
  const P* weights;
  int64_t image, head, first, end;  // queries

  AttentionPart(const AttentionCall& call, int64_t number, int64_t block) {
    const int64_t blocks = (call.queries + block - 1) / block;
    head = number / blocks % call.heads;
    image = number / blocks / call.heads;
    first = number % blocks * block;
    end = min(first + block, call.queries);
    value = static_cast<const P*>(call.value) + image * call.value_strides.batch + head * call.value_strides.head;
    places = static_cast<const P*>(call.places);
    weights = static_cast<const P*>(call.weights);
  }

  // Of all points, where those of a query begin.
  int64_t point_of(const AttentionCall& call, int64_t query) const {
    return ((image * call.queries + query) * call.heads + head) * call.points;
  }
  template <class Pointer>
  Pointer output(const AttentionCall& call, int64_t query) const {
    const OutputStrides& s = call.output_strides;
    return static_cast<Pointer>(call.output) + image * s.batch + query * s.query + head * s.head;
  }
};

// Channels of a pixel: whole vectors, or, of 0 vectors, the first `rest` elements of one.
template <class P, int kVectors>
struct ChannelBlock {
  using Lanes = Vec<P>;
  static constexpr int kCount = kVectors > 0 ? kVectors : 1;
  int rest = 0;

  template <int v>
  POLYPHASE_BLOCK Lanes load(const P* at) const {
    if constexpr (kVectors > 0) return Lanes::load(at + v * Lanes::kLanes);
    return Lanes::load_first(at, rest);
  }
  template <int v>
  POLYPHASE_BLOCK void store(Lanes value, P* at) const {
    if constexpr (kVectors > 0) return value.store(at + v * Lanes::kLanes);
    value.store_first(at, rest);
  }
};

// Calls function(block, channel) for all channels, by blocks that a processor has registers for.
template <class P, class Function>
inline void each_block(int64_t channels, const Function& function) {
  constexpr int64_t kLanes = Vec<P>::kLanes;
  int64_t c = 0;
  for (; c + 4 * kLanes <= channels; c += 4 * kLanes) function(ChannelBlock<P, 4>(), c);
  if (c + 2 * kLanes <= channels) {
    function(ChannelBlock<P, 2>(), c);
    c += 2 * kLanes;
  }
  if (c + kLanes <= channels) {
    function(ChannelBlock<P, 1>(), c);
    c += kLanes;
  }
  if (c < channels) function(ChannelBlock<P, 0>{static_cast<int>(channels - c)}, c);
}

template <class P>
class Attention {
 public:
  static void run(const AttentionCall& call, int64_t threads, Parallel parallel) {
    const int64_t blocks = (call.queries + kBlock - 1) / kBlock;
    parallel(call.batch * call.heads * blocks, threads, some, const_cast<AttentionCall*>(&call));
  }

 private:
  static constexpr int64_t kBlock = 64;
  using Points = AttentionPoints<P>;
  using Lanes = Vec<P>;

  explicit Attention(const AttentionCall& call) : call_(call), levels_(call), zeros_(call.channels) {}

  static void some(void* context, int64_t begin, int64_t end) {
    Attention self(*static_cast<const AttentionCall*>(context));
    for (int64_t i = begin; i < end; ++i) self.part(AttentionPart<P>(self.call_, i, kBlock));
  }

  void part(const AttentionPart<P>& part) {
    for (int64_t q = part.first; q < part.end; ++q) {
      P* const output = part.template output<P*>(call_, q);
      const int64_t first = part.point_of(call_, q);
      if (call_.points == 0) std::memset(output, 0, call_.channels * sizeof(P));
      for (int64_t p = 0; p < call_.points; p += kPoints) {
        points_.find(part.places + (first + p) * 2, min<int64_t>(kPoints, call_.points - p), levels_.of(p));
        points_.leave_out_weightless();
        add(part, part.weights + first + p, p == 0, output);
      }
    }
  }

  POLYPHASE_ROW_LOOP void add(const AttentionPart<P>& part, const P* weights, bool is_first, P* output) const {
    each_block<P>(call_.channels, [&](auto block, int64_t c) __attribute__((always_inline)) {
      using Block = decltype(block);
      Lanes total[Block::kCount];
      repeat<Block::kCount>([&](auto v) __attribute__((always_inline)) {
        total[v] = is_first ? Lanes::zero() : block.template load<v>(output + c);
      });
      for (int i = 0; i < points_.count; ++i) {
        Lanes sampled[Block::kCount];
        repeat<Block::kCount>([&](auto v) __attribute__((always_inline)) { sampled[v] = Lanes::zero(); });
        for (int k = 0; k < kCorners; ++k) {
          const P* const pixel = pixel_of(part, k, i) + c;
          const Lanes weight = Lanes::broadcast(points_.weight[k][i]);
          repeat<Block::kCount>([&](auto v) __attribute__((always_inline)) {
            sampled[v] = multiply_add(block.template load<v>(pixel), weight, sampled[v]);
          });
        }
        const Lanes weight = Lanes::broadcast(weights[i]);
        repeat<Block::kCount>([&](auto v) __attribute__((always_inline)) {
          total[v] = multiply_add(sampled[v], weight, total[v]);
        });
      }
      repeat<Block::kCount>([&](auto v) __attribute__((always_inline)) { block.template store<v>(total[v], output + c); });
    });
  }

  // What lies outside is zeros that are read elsewhere.
  POLYPHASE_BLOCK const P* pixel_of(const AttentionPart<P>& part, int corner, int i) const {
    const int64_t pixel = points_.pixel[corner][i];
    return pixel < 0 ? zeros_.data() : part.value + pixel * call_.value_strides.pixel;
  }

  const AttentionCall& call_;
  const PointLevels<P> levels_;
  const Buffer<P> zeros_;
  Points points_;
};

// Every image and head has one thread, which alone adds to its pixels: the same bits for any number of threads.
template <class P>
class AttentionGradients {
 public:
  static void run(const AttentionCall& call, int64_t threads, Parallel parallel) {
    parallel(call.batch * call.heads, threads, some, const_cast<AttentionCall*>(&call));
  }

 private:
  using Points = AttentionPoints<P>;
  using Lanes = Vec<P>;

  explicit AttentionGradients(const AttentionCall& call)
      : call_(call), levels_(call), zeros_(call.channels), unread_(call.channels) {}

  static void some(void* context, int64_t begin, int64_t end) {
    AttentionGradients self(*static_cast<const AttentionCall*>(context));
    for (int64_t i = begin; i < end; ++i) self.part(AttentionPart<P>(self.call_, i, max<int64_t>(1, self.call_.queries)));
  }

  void part(const AttentionPart<P>& part) {
    const ValueStrides s = call_.gradient_strides();
    P* const added_to = static_cast<P*>(call_.value_gradient);
    added_to_ = added_to == nullptr ? nullptr : added_to + part.image * s.batch + part.head * s.head;
    for (int64_t q = part.first; q < part.end; ++q) {
      const int64_t first = part.point_of(call_, q);
      for (int64_t p = 0; p < call_.points; p += kPoints) {
        const int64_t at = first + p;
        points_.find(part.places + at * 2, min<int64_t>(kPoints, call_.points - p), levels_.of(p));
        multiply(part, part.weights + at, part.template output<const P*>(call_, q));
        store(levels_.of(p), part.weights + at, at);
      }
    }
  }

  // products_: of each point, the gradient times the sample, and times what that grows by along x and y. And the pixels'
  // gradients. Of pixels, which may be much alike, differences are summed, not sums subtracted.
  POLYPHASE_ROW_LOOP void multiply(const AttentionPart<P>& part, const P* weights, const P* gradient) {
    each_block<P>(call_.channels, [&](auto block, int64_t c) __attribute__((always_inline)) {
      using Block = decltype(block);
      alignas(64) P clean[kCorners][Block::kCount * Lanes::kLanes];
      Lanes given[Block::kCount];
      repeat<Block::kCount>([&](auto v) __attribute__((always_inline)) { given[v] = block.template load<v>(gradient + c); });
      for (int i = 0; i < points_.count; ++i) {
        const P* value[kCorners];
        Lanes weight[kCorners], sums[4] = {Lanes::zero(), Lanes::zero(), Lanes::zero(), Lanes::zero()};
        repeat<kCorners>([&](auto k) __attribute__((always_inline)) {
          const int64_t pixel = points_.pixel[k][i];
          value[k] = (pixel < 0 ? zeros_.data() : part.value + pixel * call_.value_strides.pixel) + c;
          if (points_.weight[k][i] == 0) value[k] = finite(value[k], Block::kCount * Lanes::kLanes, call_.channels - c, clean[k]);
          weight[k] = Lanes::broadcast(points_.weight[k][i]);
        });
        const P x = points_.fraction[0][i], y = points_.fraction[1][i];
        const Lanes right = Lanes::broadcast(x), left = Lanes::broadcast(1 - x), below = Lanes::broadcast(y), above = Lanes::broadcast(1 - y);
        repeat<Block::kCount>([&](auto v) __attribute__((always_inline)) {
          Lanes at[kCorners], sampled = Lanes::zero();
          repeat<kCorners>([&](auto k) __attribute__((always_inline)) {
            at[k] = block.template load<v>(value[k]);
            sampled = multiply_add(at[k], weight[k], sampled);
          });
          const Lanes of_x = multiply_add(less(at[1], at[0]), above, multiply_add(less(at[3], at[2]), below, Lanes::zero()));
          const Lanes of_y = multiply_add(less(at[2], at[0]), left, multiply_add(less(at[3], at[1]), right, Lanes::zero()));
          sums[0] = multiply_add(given[v], sampled, sums[0]);
          sums[1] = multiply_add(given[v], of_x, sums[1]);
          sums[2] = multiply_add(given[v], of_y, sums[2]);
        });
        add_sums(sums, c == 0, products_[i]);
        if (added_to_ == nullptr) continue;
        repeat<kCorners>([&](auto k) __attribute__((always_inline)) {
          const int64_t pixel = points_.pixel[k][i];
          const P share = points_.weight[k][i];
          P* const to = ((pixel < 0) | (share == 0) ? unread_.data() : added_to_ + pixel * gradient_step()) + c;
          const Lanes factor = Lanes::broadcast(share * weights[i]);
          repeat<Block::kCount>([&](auto v) __attribute__((always_inline)) {
            block.template store<v>(multiply_add(given[v], factor, block.template load<v>(to)), to);
          });
        });
      }
    });
  }

  static Lanes less(Lanes a, Lanes b) { return multiply_add(b, Lanes::broadcast(P(-1)), a); }

  // Of a pixel that weighs nothing, which has a slope all the same: what is no number, or infinite, as 0.
  static const P* finite(const P* pixel, int64_t most, int64_t channels, P* clean) {
    for (int64_t c = 0; c < min(most, channels); ++c) clean[c] = pixel[c] * 0 == 0 ? pixel[c] : P(0);
    return clean;
  }

  // The sums of the lanes of four vectors, in registers as long as that goes: a read waits for what was just stored at the same
  // place of another 4096 bytes, and values are read in steps of a thousand.
  POLYPHASE_BLOCK static void add_sums(Lanes (&vectors)[4], bool is_first, P (&to)[4]) {
    alignas(64) P lanes[4][Lanes::kLanes];
    typedef P Four __attribute__((vector_size(4 * sizeof(P))));
    Four sums = {};
#if defined(__AVX512F__)
    if constexpr (sizeof(P) == 4) {
      transpose_fours(vectors[0], vectors[1], vectors[2], vectors[3]);
      vectors[0].plus(vectors[1]).plus(vectors[2].plus(vectors[3])).store(lanes[0]);
      for (int l = 0; l < Lanes::kLanes; l += 4) sums += *reinterpret_cast<const Four*>(&lanes[0][l]);
    } else
#endif
    {
      for (int k = 0; k < 4; ++k) vectors[k].store(lanes[k]);
      for (int l = 0; l < Lanes::kLanes; ++l) sums += Four{lanes[0][l], lanes[1][l], lanes[2][l], lanes[3][l]};
    }
    Four& total = *reinterpret_cast<Four*>(to);
    total = is_first ? sums : total + sums;
  }

  int64_t gradient_step() const { return call_.heads * call_.channels; }

  // The gradients of places and weights, of the points from `at` on.
  void store(const LevelTile<P>& levels, const P* weights, int64_t at) {
    P* const places = static_cast<P*>(call_.places_gradient) + at * 2;
    P* const of_weights = static_cast<P*>(call_.weights_gradient) + at;
    for (int i = 0; i < points_.count; ++i) {
      for (int a = 0; a < 2; ++a) places[2 * i + a] = weights[i] * (products_[i][1 + a] * levels.half[a][i]);
      of_weights[i] = products_[i][0];
    }
  }

  const AttentionCall& call_;
  const PointLevels<P> levels_;
  const Buffer<P> zeros_;
  Buffer<P> unread_;
  P* added_to_ = nullptr;
  Points points_;
  alignas(64) P products_[kPoints][4] = {};
};

}  // namespace polyphase
