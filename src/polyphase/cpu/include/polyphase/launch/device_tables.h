// The tables of CUDA's kernels: windows of taps, or lists of them, as `Axis` of call.h describes them, made as tables of the CPU
// are, by the rules of CUDA's eager.
#pragma once

#include <cstdint>
#include <cstring>

#include "polyphase/core/abi.h"
#include "polyphase/core/buffer.h"
#include "polyphase/core/standard.h"
#include "polyphase/taps/taps.h"
#include "polyphase/taps/weights.h"

namespace polyphase::device_tables {

// As `cuda/maps.py` has them.
enum class Arithmetic : int64_t { kBytes, kFloat32, kFloat64 };
enum class WeightType : int64_t { kInt32, kFloat32, kFloat64 };

// Windows may be so many times as wide as the taps in them; beyond that, taps are listed.
constexpr int64_t kSparse = 4;

using detail::borders_of;
using detail::Rounding;
using detail::Selection;
using detail::selection_of;
using Firsts = Buffer<int32_t>;
using Bytes = Buffer<uint8_t>;

// `weight` is empty where every output that is no border has one tap of weight 1. Lists have an index.
struct HostTable {
  int64_t in_size = 0, out_size = 0, taps = 0, precision = 0;
  Firsts first, index, border;
  Bytes weight;
  bool listed = false, ascends = true, descends = false;

  // What the loop finds stays in registers.
  void find_order() {
    const int32_t* const begins = first.data();
    int32_t lowest = 0, highest = 0;  // steps from one to the next
    for (int64_t i = 1; i < first.size(); ++i) {
      const int32_t step = begins[i] - begins[i - 1];
      lowest = min(lowest, step);
      highest = max(highest, step);
    }
    ascends = lowest == 0;
    descends = highest == 0;
  }
};

inline Sampler sampler_of(Arithmetic arithmetic) {
  Sampler sampler{};  // it finds the nearest pixel by a float ratio
  sampler.fuses_backward = true;
  sampler.weigh = arithmetic == Arithmetic::kBytes     ? Weights<TapArithmetic::kQuantised>::weigh
                  : arithmetic == Arithmetic::kFloat32 ? Weights<TapArithmetic::kFloat32InDouble>::weigh
                                                       : Weights<TapArithmetic::kFloat64>::weigh;
  return sampler;
}

// What has a border begins where its neighbour does.
inline void fill_borders(Firsts& rows) {
  int64_t known = 0;
  while (known < rows.size() && rows[known] < 0) ++known;
  int32_t latest = known < rows.size() ? rows[known] : 0;
  for (int32_t& row : rows) latest = row = row >= 0 ? row : latest;
}

// Of values that only move.
inline void fill_moves(const AxisRequest& request, HostTable& table) {
  const Rounding float_ratio{true};
  table.first = selection_of(request.steps, request.steps + request.step_count, request.in_size, float_ratio);
  table.in_size = request.in_size;
  table.out_size = table.first.size();
  table.taps = 1;
  table.border = borders_of(table.first);
  if (table.border.size() > 0) fill_borders(table.first);
  table.find_order();
}

// Where windows of a width begin, which read from low to high: where an output's first tap has no weight, earlier, so that they
// ascend or descend; where that would take wider windows, at the first tap.
inline void fill_firsts(const Firsts& low, const Firsts& high, int64_t width, int64_t in_size, Firsts& first) {
  const int64_t count = low.size();
  const auto fits = [&] {
    for (int64_t i = 0; i < count; ++i) {
      if (high[i] - first[i] >= width) return false;
    }
    return true;
  };
  const auto ascend = [&] {
    for (int64_t i = count - 1; i >= 0; --i) first[i] = i == count - 1 ? low[i] : min(low[i], first[i + 1]);
  };
  const auto descend = [&] {
    for (int64_t i = 0; i < count; ++i) first[i] = i == 0 ? low[i] : min(low[i], first[i - 1]);
  };
  first.resize_unset(count);
  ascend();
  if (!fits()) descend();
  if (!fits()) first.assign(low.data(), count);
  for (int64_t i = 0; i < count; ++i) first[i] = min<int32_t>(first[i], static_cast<int32_t>(in_size - width));
}

// The inputs that every output reads first and last, of one without taps those of its neighbour; how many taps there are at
// most, 0 for none at all.
inline int64_t find_reads(const TapTable& taps, Firsts& low, Firsts& high) {
  const int64_t outputs = taps.out_size();
  low.resize_unset(outputs);
  high.resize_unset(outputs);
  int64_t most = 0, known = -1;
  for (int64_t i = 0; i < outputs; ++i) {
    const int32_t begin = taps.begin[i], end = taps.begin[i + 1];
    if (begin < end) {
      low[i] = taps.index[begin];
      high[i] = taps.index[end - 1];
      for (int64_t before = known < 0 ? 0 : i; before < i; ++before) {  // those before the first that has taps
        low[before] = low[i];
        high[before] = high[i];
      }
      known = i;
    } else if (known >= 0) {
      low[i] = low[known];
      high[i] = high[known];
    }
    most = max<int64_t>(most, end - begin);
  }
  for (int64_t i = 0; known < 0 && i < outputs; ++i) low[i] = high[i] = 0;  // none has taps
  return most;
}

template <class Weight, class From>
void fill_weights(const TapTable& taps, const Buffer<From>& weights, HostTable& table) {
  if (table.listed) {
    table.weight.resize(weights.size() * static_cast<int64_t>(sizeof(Weight)));
    auto* const to = reinterpret_cast<Weight*>(table.weight.data());
    for (int64_t t = 0; t < weights.size(); ++t) to[t] = static_cast<Weight>(weights[t]);
    return;
  }
  table.weight.resize(table.out_size * table.taps * static_cast<int64_t>(sizeof(Weight)));
  auto* row = reinterpret_cast<Weight*>(table.weight.data());
  for (int64_t i = 0; i < table.out_size; ++i, row += table.taps) {
    for (int32_t t = taps.begin[i]; t < taps.begin[i + 1]; ++t) {
      row[taps.index[t] - table.first[i]] = static_cast<Weight>(weights[t]);
    }
  }
}

template <class From>
void fill_weights(const TapTable& taps, const Buffer<From>& weights, WeightType type, HostTable& table) {
  if (type == WeightType::kInt32) return fill_weights<int32_t>(taps, weights, table);
  if (type == WeightType::kFloat32) return fill_weights<float>(taps, weights, table);
  fill_weights<double>(taps, weights, table);
}

inline void fill_windows_or_lists(const TapTable& taps, WeightType type, HostTable& table) {
  Firsts low, high;
  const int64_t most = find_reads(taps, low, high);
  int64_t width = 1;
  for (int64_t i = 0; i < table.out_size; ++i) width = max<int64_t>(width, high[i] - low[i] + 1);
  table.listed = width > kSparse * most + kSparse && most > 0;
  if (table.listed) {
    table.first.assign(taps.begin.data(), taps.begin.size());
    table.index.assign(taps.index.data(), taps.index.size());
    table.ascends = false;
  } else {
    table.taps = width;
    fill_firsts(low, high, width, max(table.in_size, width), table.first);
    if (most > 0) table.find_order();
  }
  if (taps.quantised.size() > 0) return fill_weights(taps, taps.quantised, type, table);
  fill_weights(taps, taps.exact, type, table);
}

// `border` is empty where no output has one.
inline void make_table(const AxisRequest& request, Arithmetic arithmetic, WeightType type, HostTable& table) {
  bool weighted = request.transposed != 0;
  for (int64_t s = 0; s < request.step_count; ++s) weighted |= detail::is_weighted(request.steps[s]);
  if (!weighted) return fill_moves(request, table);
  Kept<TapTable> kept;
  TapTable& taps = *kept;
  make_taps(request, sampler_of(arithmetic), &taps);
  table.in_size = taps.in_size;
  table.out_size = taps.out_size();
  table.precision = taps.precision;
  bool any = false;
  for (const int32_t one : taps.border) any |= one != 0;
  if (any && request.transposed == 0) table.border.assign(taps.border.data(), taps.border.size());
  fill_windows_or_lists(taps, type, table);
}

// That such a table of bytes has, of steps of which one is weighted.
inline int32_t precision_of(const Step* steps, int64_t count, int64_t in_size) {
  const Step* weighted = steps;
  while (weighted != steps + count - 1 && !detail::is_weighted(*weighted)) ++weighted;
  return Weights<TapArithmetic::kQuantised>::precision(steps, weighted, in_size);
}

// ---- windows in other forms. `bytes`: of a weight.

struct Windows {
  const int32_t* first;
  const uint8_t* weight;
  int64_t in_size, out_size, taps, bytes;
};

// Inputs that neighbouring outputs begin at, the last less the first, at most: of any `count`, or of groups of so many from the
// first output on.
inline int64_t spread(const int32_t* first, int64_t outputs, int64_t count, bool grouped) {
  int64_t widest = 0;
  if (outputs == 0) return 0;
  count = min(count, outputs);
  bool ascends = true, descends = true;
  for (int64_t i = 1; i < outputs; ++i) {
    ascends &= first[i] >= first[i - 1];
    descends &= first[i] <= first[i - 1];
  }
  for (int64_t i = 0; grouped ? i < outputs : i + count <= outputs; i += grouped ? count : 1) {
    const int64_t last = min(i + count, outputs) - 1;
    int32_t least = min(first[i], first[last]), most = max(first[i], first[last]);
    for (int64_t k = i; !ascends && !descends && k <= last; ++k) {
      least = min(least, first[k]);
      most = max(most, first[k]);
    }
    widest = max<int64_t>(widest, most - least);
  }
  return widest;
}

// False where output i is not input begin + i * step throughout.
inline bool is_progression(const int32_t* first, int64_t outputs, int64_t& begin, int64_t& step) {
  if (outputs == 0) return false;
  begin = first[0];
  step = outputs > 1 ? first[1] - first[0] : 0;
  for (int64_t i = 0; i < outputs; ++i) {
    if (first[i] != begin + i * step) return false;
  }
  return true;
}

// The same by windows of so many taps, which `count` neighbours have in common; weights are there for whole groups. False where
// they do not fit.
inline bool widen(const Windows& from, int64_t count, int64_t taps, Firsts& first, Bytes& weight) {
  const int64_t outputs = from.out_size, groups = (outputs + count - 1) / count;
  first.resize(outputs);
  weight.resize(groups * count * taps * from.bytes);
  for (int64_t i = 0; i < outputs; ++i) {
    if (i % count == 0) {
      int32_t least = from.first[i];
      for (int64_t k = i; k < min(i + count, outputs); ++k) least = min(least, from.first[k]);
      first[i] = min(least, static_cast<int32_t>(from.in_size - taps));
    } else {
      first[i] = first[i - 1];
    }
    const int64_t before = from.first[i] - first[i], place = i * taps + before;
    if (first[i] < 0 || before + from.taps > taps) return false;
    std::memcpy(weight.data() + place * from.bytes, from.weight + i * from.taps * from.bytes, from.taps * from.bytes);
  }
  return true;
}

// Quantised windows from multiples of 4 on, of so many taps, in 16 bits. False where they do not fit.
inline bool in_fours(const Windows& from, int64_t taps, Firsts& first, Bytes& weight) {
  first.resize(from.out_size);
  weight.resize(from.out_size * taps * static_cast<int64_t>(sizeof(int16_t)));
  const auto* read = reinterpret_cast<const int32_t*>(from.weight);
  auto* written = reinterpret_cast<int16_t*>(weight.data());
  for (int64_t i = 0; i < from.out_size; ++i, written += taps) {
    const int32_t lead = from.first[i] % 4;
    first[i] = from.first[i] - lead;
    if (lead + from.taps > taps) return false;
    for (int64_t k = 0; k < from.taps; ++k) written[lead + k] = static_cast<int16_t>(*read++);
  }
  return true;
}

inline void reverse(const Windows& from, Firsts& first, Bytes& weight) {
  const int64_t outputs = from.out_size, row = from.weight == nullptr ? 0 : from.taps * from.bytes;
  first.resize(outputs);
  weight.resize(outputs * row);
  for (int64_t i = 0; i < outputs; ++i) {
    first[i] = from.first[outputs - 1 - i];
    if (row > 0) std::memcpy(weight.data() + i * row, from.weight + (outputs - 1 - i) * row, row);
  }
}

// Of windows of neighbouring columns that lie alike in all groups: kFirsts and kEdge of ring.h, the inputs of a group, and what
// all groups' inner ones begin at a multiple of. Windows lie so at the edges too, beyond which no input has a weight.
struct InStep {
  int64_t firsts, edge, inputs, multiple;
};

inline int64_t greatest_divisor(int64_t a, int64_t b) {
  while (b != 0) {
    const int64_t left = a % b;
    a = b;
    b = left;
  }
  return a < 0 ? -a : a;
}

// Of columns' groups of which there are no outputs left over, by weights of 4 or 8 bytes.
class Steps {
 public:
  Steps(const Windows& from, int64_t columns) : from_(from), columns_(columns), groups_(from.out_size / columns) {
    const int32_t* const middle = from.first + groups_ / 2 * columns;
    within_.assign(middle, columns);
    least_ = middle[0];
    for (const int32_t one : within_) least_ = min<int64_t>(least_, one);
    for (int32_t& one : within_) one -= static_cast<int32_t>(least_);
    if (groups_ > 1) find_step(middle);
  }

  // False where windows do not lie so.
  bool find(InStep& found, Firsts& first, Bytes& weight) const {
    int64_t widest = 0, firsts = 0;
    for (int64_t k = 0; k < columns_; ++k) {
      if (within_[k] > kMostWithin) return false;
      widest = max<int64_t>(widest, within_[k]);
      firsts += int64_t{within_[k]} << 4 * k;
    }
    const int64_t one_end = begin(0), other_end = begin(groups_ - 1), inputs = widest + from_.taps;
    const int64_t beyond = max(one_end, other_end) + inputs - from_.in_size;
    const int64_t edge = max(max<int64_t>(0, -min(one_end, other_end)), beyond);
    if (2 * edge >= inputs) return false;
    found = {firsts, edge, inputs, greatest_divisor(one_end + edge, step_)};
    return fill(first, weight);
  }

 private:
  static constexpr int32_t kMostWithin = 15;  // which 4 bits hold

  // The lower median of how far the group in the middle is from the one before.
  void find_step(const int32_t* middle) {
    Firsts apart(columns_);
    for (int64_t k = 0; k < columns_; ++k) {
      int64_t place = k;
      const int32_t one = middle[k] - middle[k - columns_];
      for (; place > 0 && apart[place - 1] > one; --place) apart[place] = apart[place - 1];
      apart[place] = one;
    }
    step_ = apart[(columns_ - 1) / 2];
  }
  int64_t begin(int64_t group) const { return least_ + step_ * (group - groups_ / 2); }

  bool fill(Firsts& first, Bytes& weight) const {
    first.resize(from_.out_size);
    weight.resize(from_.out_size * from_.taps * from_.bytes);
    const uint8_t* read = from_.weight;
    for (int64_t i = 0; i < from_.out_size; ++i) {
      first[i] = static_cast<int32_t>(begin(i / columns_) + within_[i % columns_]);
      const int64_t later = from_.first[i] - first[i];
      for (int64_t k = 0; k < from_.taps; ++k, read += from_.bytes) {
        const bool inside = later + k >= 0 && later + k < from_.taps;
        if (inside) std::memcpy(weight.data() + (i * from_.taps + later + k) * from_.bytes, read, from_.bytes);
        if (!inside && !is_zero(read)) return false;
      }
    }
    return true;
  }
  // Also -0, of a float.
  bool is_zero(const uint8_t* weight) const {
    uint64_t bits = 0;
    std::memcpy(&bits, weight, from_.bytes);
    return (bits << (65 - 8 * from_.bytes)) == 0;
  }

  const Windows& from_;
  const int64_t columns_, groups_;
  Firsts within_;
  int64_t least_, step_ = 0;
};

// Where the source's row has every element of the target's, in elements: -n for border n. Without windows pixel i is read for
// pixel i. columns: 0, or of the groups that are told besides how they lie: `Group` of moved.h.
struct RowOffsets {
  int64_t out_size, in_stride, channels, channel_stride, columns;

  void fill(const int32_t* first, const int32_t* border, Firsts& offsets) const {
    const int64_t length = out_size * channels, groups = columns == 0 ? 0 : length / columns;
    offsets.resize(length + groups);
    int32_t* to = offsets.data();
    for (int64_t i = 0; i < out_size; ++i) {
      const int64_t begin = (first == nullptr ? i : first[i]) * in_stride;
      for (int64_t c = 0; c < channels; ++c) {
        const bool outside = border != nullptr && border[i] > 0;
        *to++ = static_cast<int32_t>(outside ? -border[i] : begin + c * channel_stride);
      }
    }
    const int32_t* group = offsets.data();
    for (int64_t g = 0; g < groups; ++g, group += columns) *to++ = run_of(group);
  }

 private:
  int32_t run_of(const int32_t* group) const {
    bool forwards = true, backwards = true;
    int32_t lowest = group[0];
    for (int64_t k = 0; k < columns; ++k) {
      if (group[k] < 0) return 0;
      lowest = min(lowest, group[k]);
      forwards &= k == 0 || group[k] - group[k - 1] == 1;
      backwards &= k == 0 || group[k] - group[k - 1] == -1;
    }
    return forwards || backwards ? 4 * lowest + forwards + 2 * backwards : 0;
  }
};

}  // namespace polyphase::device_tables
