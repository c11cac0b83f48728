// The table of an axis: made on the host, or on the device by a recipe; and other forms of it, as kernels read them.
#pragma once

#include "polyphase/launch/device_recipes.h"
#include "polyphase/launch/device_tables.h"
#include "polyphase/launch/request.h"

namespace polyphase::device {

using device_tables::Bytes;
using device_tables::Firsts;
using device_tables::HostTable;
using device_tables::InStep;
using device_tables::Windows;

// What tables are made for: weights of so many bytes.
struct Weighing {
  device_tables::Arithmetic arithmetic;
  device_tables::WeightType type;

  int64_t bytes() const { return type == device_tables::WeightType::kFloat64 ? 8 : 4; }
  void one(uint8_t* to) const {
    const int32_t integer = 1;
    const float single = 1;
    const double twice = 1;
    if (type == device_tables::WeightType::kInt32) std::memcpy(to, &integer, sizeof(integer));
    if (type == device_tables::WeightType::kFloat32) std::memcpy(to, &single, sizeof(single));
    if (type == device_tables::WeightType::kFloat64) std::memcpy(to, &twice, sizeof(twice));
  }
};

[[noreturn]] inline void refuse_windows() { throw BadCall{"windows that the kernel was not made for"}; }

class AxisTable {
 public:
  // Of an axis that is not mapped.
  AxisTable() = default;
  static AxisTable on_host(const AxisRequest& request, const Weighing& weighing) {
    AxisTable table(kOnHost, weighing.bytes());
    device_tables::make_table(request, weighing.arithmetic, weighing.type, table.host_);
    return table;
  }
  // precision: of quantised weights; -1 where kernels ask the table for it.
  static AxisTable on_device(const TapRecipe& recipe, int64_t precision = -1) {
    AxisTable table(kOnDevice, 0);
    table.recipe_ = recipe;
    table.precision_ = precision;
    return table;
  }
  // Windows of one tap of weight 1.
  static AxisTable identity(int64_t size, const Weighing& weighing) {
    AxisTable table(kOnHost, weighing.bytes());
    HostTable& host = table.host_;
    host.in_size = host.out_size = size;
    host.taps = 1;
    host.first.resize(size);
    for (int64_t i = 0; i < size; ++i) host.first[i] = static_cast<int32_t>(i);
    return table.weighted(weighing);
  }

  bool there() const { return kind_ != kNone; }
  bool made() const { return kind_ == kOnDevice; }
  bool on_the_host() const { return kind_ == kOnHost; }
  const HostTable& host() const { return host_; }
  const TapRecipe& recipe() const { return recipe_; }
  int64_t in_size() const { return made() ? recipe_.whole : host_.in_size; }
  int64_t out_size() const { return made() ? recipe_.out_size : host_.out_size; }
  int64_t taps() const { return made() ? recipe_.taps : host_.taps; }
  int64_t fewest_taps() const { return made() ? device::fewest_taps(recipe_) : host_.taps; }
  int64_t precision() const {
    if (!made()) return host_.precision;
    return recipe_.in_matrices() ? 16 : recipe_.quantised != 0 ? precision_ : 0;
  }
  bool ascends() const { return made() ? recipe_.direction * recipe_.step > 0 : host_.ascends; }
  bool descends() const { return made() ? !ascends() : host_.descends; }
  bool only_descends() const { return descends() && !ascends(); }
  bool listed() const { return !made() && host_.listed; }
  bool bordered() const { return host_.border.size() > 0; }
  bool has_weights() const { return made() || host_.weight.size() > 0; }

  // Whether output i is input begin + i * step and no more, as of flips and crops.
  bool goes_along(int64_t& begin, int64_t& step) const {
    const bool moves = on_the_host() && !has_weights() && !bordered() && !listed();
    return moves && device_tables::is_progression(host_.first.data(), host_.out_size, begin, step);
  }
  // Inputs that any `count` neighbouring outputs read from, at most; and neighbours from a multiple of `count` on.
  int64_t reach(int64_t count) const {
    return made() ? device::most_begins(recipe_, count) + recipe_.taps : spread(count, false) + host_.taps;
  }
  int64_t reach_of_groups(int64_t count) const { return made() ? reach(count) : spread(count, true) + host_.taps; }
  // Of bytes, in a window that begins at a multiple of 4.
  int64_t words_in_fours() const {
    int64_t lead = made() ? 3 : 0;
    for (const int32_t first : host_.first) lead = max<int64_t>(lead, first % 4);
    return (lead + taps() + 3) / 4;
  }
  // Whether windows of neighbouring columns lie alike in all groups, as those of a whole number of times the size do.
  bool lies_in_step(int64_t columns, InStep& found, AxisTable* table = nullptr) const {
    if (!on_the_host() || !has_weights() || listed() || host_.out_size < 1 || host_.out_size % columns != 0) return false;
    Firsts first;
    Bytes weight;
    if (!device_tables::Steps(windows(), columns).find(found, first, weight)) return false;
    if (table != nullptr) *table = with(move(first), move(weight), host_.taps);
    return true;
  }

  // With a weight of 1 for every output.
  AxisTable weighted(const Weighing& weighing) const {
    AxisTable table(kOnHost, weighing.bytes());
    table.like(host_);
    table.copy(host_.first, table.host_.first);
    table.host_.weight.resize(host_.out_size * weighing.bytes());
    for (int64_t i = 0; i < host_.out_size; ++i) weighing.one(table.host_.weight.data() + i * weighing.bytes());
    return table;
  }
  // By windows of so many taps, which the axis has; `count` neighbouring outputs have one window.
  AxisTable widened(int64_t taps, int64_t count = 1) const {
    if (made()) {
      TapRecipe recipe = recipe_;
      recipe.taps = taps;
      return on_device(recipe, precision_);
    }
    Firsts first;
    Bytes weight;
    if (!device_tables::widen(windows(), count, taps, first, weight)) refuse_windows();
    return with(move(first), move(weight), taps);
  }
  // For outputs that are walked along backwards.
  AxisTable reversed() const {
    if (made()) {
      TapRecipe recipe = recipe_;
      recipe.begin += recipe.step * (recipe.out_size - 1);
      recipe.step = -recipe.step;
      return on_device(recipe, precision_);
    }
    Firsts first;
    Bytes weight;
    device_tables::reverse(windows(), first, weight);
    AxisTable table = with(move(first), move(weight), host_.taps);
    const int64_t last = host_.border.size() - 1;
    for (int64_t i = 0; i <= last; ++i) table.host_.border[i] = host_.border[last - i];
    table.host_.ascends = host_.descends;
    table.host_.descends = host_.ascends;
    return table;
  }
  // Quantised windows as byte_ring.h reads them: words from multiples of 4 on, of weights in pairs of 16 bits.
  AxisTable in_fours(int64_t words) const {
    if (made()) {
      TapRecipe recipe = recipe_;
      recipe.taps = 4 * words;
      recipe.form = kInFours;
      return on_device(recipe, precision_);
    }
    Firsts first;
    Bytes weight;
    if (!device_tables::in_fours(windows(), 4 * words, first, weight)) refuse_windows();
    AxisTable table = with(move(first), move(weight), 4 * words);
    table.weight_bytes_ = sizeof(int16_t);
    table.host_.descends = false;
    return table;
  }

  // Whether weights are not negative, and their two bytes as good as they.
  bool can_be_matrices() const {
    if (made()) return recipe_.quantised != 0 && recipe_.cubic == 0;
    if (listed() || bordered() || host_.precision > kBits) return false;
    const auto* weight = reinterpret_cast<const int32_t*>(host_.weight.data());
    for (int64_t i = 0; has_weights() && i < host_.out_size; ++i) {
      int64_t sum = 0;
      for (int64_t k = 0; k < host_.taps; ++k, sum += *weight++) {
        if (*weight < 0) return false;
      }
      if (sum << (kBits - host_.precision) > kGreatest + 1 + kRounding) return false;
    }
    return true;
  }
  // With `count` matrices for every group of outputs, as weight_matrices.h describes them.
  AxisTable as_matrices(int64_t count, bool along_x) const {
    if (made()) {
      TapRecipe recipe = recipe_;
      recipe.taps = count;
      recipe.form = along_x ? kMatricesAlongX : kMatricesAlongY;
      return on_device(recipe, precision_);
    }
    const int64_t groups = parts(host_.out_size, kGroup);
    Firsts ranges(2 * groups);
    Bytes weight(groups * count * kMatrixBytes);
    for (int64_t g = 0; g < groups; ++g) fill_group(g, count, along_x, ranges.data() + 2 * g, weight.data());
    AxisTable table = with(move(ranges), move(weight), count);
    table.host_.precision = kBits;
    return table;
  }

 private:
  enum Kind { kNone, kOnHost, kOnDevice };
  static constexpr int64_t kBits = 16, kGreatest = 65535;  // of weights
  static constexpr int64_t kRounding = 64;  // what sums may be beyond 1, over 2^16: bytes come out as bytes

  AxisTable(Kind kind, int64_t weight_bytes) : kind_(kind), weight_bytes_(weight_bytes) {}

  template <class T>
  static void copy(const Buffer<T>& from, Buffer<T>& to) {
    to.assign(from.data(), from.size());
  }
  // All but windows and weights.
  void like(const HostTable& other) {
    host_.in_size = other.in_size;
    host_.out_size = other.out_size;
    host_.taps = other.taps;
    host_.precision = other.precision;
    host_.ascends = other.ascends;
    host_.descends = other.descends;
    copy(other.border, host_.border);
  }
  AxisTable with(Firsts&& first, Bytes&& weight, int64_t taps) const {
    AxisTable table(kOnHost, weight_bytes_);
    table.like(host_);
    table.host_.first = move(first);
    table.host_.weight = move(weight);
    table.host_.taps = taps;
    return table;
  }
  Windows windows() const {
    return {host_.first.data(), has_weights() ? host_.weight.data() : nullptr, host_.in_size, host_.out_size, host_.taps,
            weight_bytes_};
  }
  int64_t spread(int64_t count, bool grouped) const {
    return device_tables::spread(host_.first.data(), host_.out_size, count, grouped);
  }

  void fill_group(int64_t group, int64_t count, bool along_x, int32_t* range, uint8_t* made) const {
    const int64_t end = min((group + 1) * kGroup, host_.out_size);
    range[0] = host_.first[group * kGroup];
    for (int64_t i = group * kGroup; i < end; ++i) range[0] = min(range[0], host_.first[i]);
    for (int64_t i = group * kGroup; i < end; ++i) {
      range[1] = max(range[1], host_.first[i] + static_cast<int32_t>(host_.taps));
      const int64_t row = i % kGroup, of_row = along_x ? row / 2 % 2 * 8 + row / 4 * 2 + row % 2 : row;
      const auto* weights = reinterpret_cast<const int32_t*>(host_.weight.data()) + i * host_.taps;
      for (int64_t k = 0; k < host_.taps; ++k) {
        const int64_t weight = min(int64_t{weights[k]} << (kBits - host_.precision), kGreatest);
        if (weight <= 0) continue;
        const int64_t place = host_.first[i] - range[0] + k, matrix = group * count + place / kMatrixInputs;
        uint8_t* const byte = made + matrix * kMatrixBytes + byte_of(of_row, place % kMatrixInputs, along_x);
        byte[0] = static_cast<uint8_t>(weight >> 8);
        byte[kMatrixBytes / 2] = static_cast<uint8_t>(weight & 255);
      }
    }
  }
  static constexpr int64_t kMatrixInputs = 32;
  static int64_t byte_of(int64_t row, int64_t k, bool along_x) {
    const int64_t column = along_x ? k % 8 / 4 * 16 + k / 8 * 4 + k % 4
                                   : k / 16 * 16 + k % 8 / 2 * 4 + k % 16 / 8 * 2 + k % 2;
    return (4 * (row % 8) + column % 16 / 4) * 16 + column / 16 * 8 + row / 8 * 4 + column % 4;
  }

  Kind kind_ = kNone;
  int64_t weight_bytes_ = 0;
  HostTable host_;
  TapRecipe recipe_ = {};
  int64_t precision_ = -1;
};

}  // namespace polyphase::device
