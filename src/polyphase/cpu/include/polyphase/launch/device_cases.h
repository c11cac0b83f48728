// What a CUDA kernel is chosen by, and what is chosen: the facts of a call of axis maps, and a kernel with its constants.
#pragma once

#include "polyphase/launch/device_axes.h"
#include "polyphase/launch/geometry.h"

namespace polyphase::device {

// Of a program, its dtypes, and what few and many are: as `cuda/maps.py` packs it.
struct Program {
  int64_t weighted;  // outputs may be sums
  int64_t moves;     // values are only moved, and are bytes
  int64_t in_bytes, out_bytes;  // of elements
  int64_t arithmetic, weight_type;  // of tables
  int64_t work_bytes;  // of an element while it is sampled
  int64_t sums_bytes;
  int64_t loads_as_is;  // what is sampled is what lies in memory
  int64_t few_outputs, many_threads, few_to_walk;

  Weighing weighing() const {
    return {static_cast<device_tables::Arithmetic>(arithmetic), static_cast<device_tables::WeightType>(weight_type)};
  }
};

// `TEMPLATES` of cuda/ways.py, in order.
enum class Kernel : int64_t {
  kGeneral, kDirect, kRing, kShrink, kByteWalk, kByteStage, kByteStages, kByteRing, kByteTiles, kMoved
};

// A kernel, the constants behind its types (of which some are booleans, by bits), the threads of a block, and how many blocks a
// multiprocessor should hold. moved_bytes: of an element that is only moved. tile and strip: pixels and rows that a block
// makes, where it has room for them. outer: the outer axes of its calls.
struct Way {
  static constexpr int kMost = 13;

  Kernel kernel;
  int64_t count, booleans;
  int64_t constants[kMost];
  int64_t threads, resident, moved_bytes, tile, strip, outer;

  Way() = default;
  Way(Kernel kernel, int64_t threads, int64_t resident)
      : kernel(kernel), count(0), booleans(0), constants{}, threads(threads), resident(resident), moved_bytes(0), tile(0),
        strip(0), outer(1) {}

  template <class... Constants>
  Way& of(Constants... all) {
    (add(all), ...);
    return *this;
  }
  bool is(Kernel one) const { return kernel == one; }
  bool operator==(const Way& other) const { return std::memcmp(this, &other, sizeof(Way)) == 0; }

 private:
  void add(int64_t constant) { constants[count++] = constant; }
  void add(bool constant) {
    booleans |= int64_t{constant || !constant} << count;
    constants[count++] = constant ? 1 : 0;
  }
};

inline int64_t planes_of(const Geometry& geometry) {
  int64_t count = 1;
  for (int64_t i = 0; i < geometry.outer.size(); ++i) count *= geometry.outer[i].out_size;
  return count;
}

// Pixels, and what lies within them, side by side.
inline bool is_dense(int64_t within, int64_t between, int64_t count) { return (within == 1 || count == 1) && between == count; }

// Of a call, its tables, the elements' bytes, and what addresses are multiples of. varies: its kernel is to serve other sizes
// too: nothing is to follow from this one but numbers of taps. fewest: tables that are made have as few taps as they may.
struct Case {
  const Program& program;
  const Geometry& geometry;
  const AxisTable &x, &y, &z;
  bool bordered;
  int64_t from_bytes, to_bytes, source_alignment, target_alignment;
  bool varies = false, fewest = false;

  int64_t length() const { return geometry.x.out_size * geometry.pixel.out_size; }
  int64_t outputs() const { return length() * geometry.y.out_size * planes(); }
  int64_t planes() const { return planes_of(geometry); }
  int64_t channels() const { return geometry.pixel.in_size; }
  bool grows() const { return geometry.y.out_size >= geometry.y.in_size; }
  bool row_is_dense() const { return is_dense(geometry.pixel.in_stride, geometry.x.in_stride, geometry.pixel.in_size); }
  bool output_is_dense() const { return is_dense(geometry.pixel.out_stride, geometry.x.out_stride, geometry.pixel.out_size); }
  int64_t taps_x() const { return taps_of(x); }
  int64_t taps_y() const { return taps_of(y); }
  int64_t wide() const { return program.work_bytes == 8 ? 2 : 1; }  // registers of what is summed
  int64_t largest_element() const { return max(from_bytes, to_bytes); }
  Case of_sizes() const {
    Case other = *this;
    other.varies = true;
    return other;
  }
  Case of_fewest_taps() const {
    Case other = *this;
    other.fewest = true;
    return other;
  }

 private:
  int64_t taps_of(const AxisTable& table) const { return !table.there() ? 1 : fewest ? table.fewest_taps() : table.taps(); }
};

// ---- where rows begin

// Each axis but the row's pixels, of those that are walked along.
template <class Function>
bool all_others(const Geometry& geometry, const Function& holds) {
  for (int64_t i = 0; i < geometry.outer.size(); ++i) {
    if (!holds(geometry.outer[i])) return false;
  }
  return holds(geometry.y) && holds(geometry.z);
}

inline bool outputs_begin_at(const Case& one, int64_t count) {
  return all_others(one.geometry, [&](const Dimension& d) { return d.out_size <= 1 || d.out_stride % count == 0; });
}
inline bool rows_begin_at(const Case& one, int64_t count) {
  return all_others(one.geometry, [&](const Dimension& d) { return d.in_size <= 1 || d.in_stride % count == 0; });
}
// Whether rows can be read so many elements at a time.
inline bool rows_are_multiples(const Case& one, int64_t count) {
  return rows_begin_at(one, count) && one.source_alignment % (count * one.from_bytes) == 0;
}
// Whether bytes can be read four at a time.
inline bool by_words(const Case& one) { return one.row_is_dense() && one.from_bytes == 1 && rows_are_multiples(one, 4); }

// That an input row extends over.
inline int64_t row_bytes_in(const Case& one) {
  const Dimension &x = one.geometry.x, &pixel = one.geometry.pixel;
  return (x.in_size * x.in_stride + pixel.in_size * pixel.in_stride) * one.largest_element();
}
// Elements that a row may extend over where a kernel counts them in 32 bits.
inline bool fits_in_row(const Case& one) {
  return max(row_bytes_in(one), one.length() * one.largest_element()) < 0x7fffffff;
}

// Whether windows along x and y begin one behind the other.
inline bool all_in_order(const Case& one) {
  const auto in_order = [](const AxisTable& table) {
    return table.there() && !table.listed() && (table.ascends() || table.descends());
  };
  return in_order(one.x) && in_order(one.y);
}

// Only elements of a power of two are stored at once.
enum Stores { kApart, kBeside, kAtOnce };  // `Stores` of vectors.h

// How a thread's outputs lie.
inline Stores stores_of(const Case& one, int64_t columns, bool varies) {
  if (!one.output_is_dense()) return kApart;
  const int64_t bytes = columns * one.to_bytes;
  const bool aligned = outputs_begin_at(one, columns) && one.target_alignment % bytes == 0;
  const bool is_power = bytes <= 16 && (bytes & (bytes - 1)) == 0;
  return is_power && aligned && one.length() % columns == 0 && !varies ? kAtOnce : kBeside;
}

}  // namespace polyphase::device
