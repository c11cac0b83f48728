// From a tensor's dimensions to the axes of a Call: which are rows, which are pixels, which are merely walked along.
#pragma once

#include "polyphase/core/abi.h"
#include "polyphase/core/standard.h"

namespace polyphase {

// One dimension of the tensors. Strides are in elements.
struct Dimension {
  int64_t in_size;
  int64_t out_size;
  int64_t in_stride;
  int64_t out_stride;
  const Step* steps;
  int64_t step_count;  // 0: the identity
  bool weighted;       // outputs may be sums; else each is one input, or a border
  bool first;          // `Step::kFirst`
  bool channels;       // vectors are per this dimension: it stays a dimension of its own
  Blocks blocks;       // of the target
  int64_t tensor_strides[kMaxOperands];

  // Of so many elements, so far apart.
  static Dimension plain(int64_t size = 1, int64_t stride = 0) {
    return {size, size, stride, stride, nullptr, 0, false, false, false, {}, {}};
  }

  bool mapped() const { return step_count > 0; }
  // Whether it is an axis, never part of a pixel or of another dimension.
  bool is_axis() const { return mapped() || blocks.size > 0; }
  // Whether it goes along the rows of a picture that lie anywhere: `Request::kByRows`. Only y can.
  bool by_rows() const { return in_stride < 0; }
};

// A few of them, in order; no more are made or copied than there are.
class Dimensions {
 public:
  static constexpr int64_t kMost = kMaxOuter + 5;

  Dimensions() = default;
  Dimensions(const Dimensions& other) { *this = other; }
  Dimensions& operator=(const Dimensions& other) {
    size_ = other.size_;
    for (int64_t i = 0; i < size_; ++i) items_[i] = other.items_[i];
    return *this;
  }

  int64_t size() const { return size_; }
  bool full() const { return size_ == kMost; }
  Dimension& operator[](int64_t i) { return items_[i]; }
  const Dimension& operator[](int64_t i) const { return items_[i]; }
  Dimension& back() { return items_[size_ - 1]; }
  void push_back(const Dimension& d) { items_[size_++] = d; }
  Dimension take(int64_t place) {
    const Dimension taken = items_[place];
    for (int64_t i = place + 1; i < size_; ++i) items_[i - 1] = items_[i];
    --size_;
    return taken;
  }

 private:
  Dimension items_[kMost];
  int64_t size_ = 0;
};

// The dimensions by their part in a Call.
struct Geometry {
  Dimension x = Dimension::plain(), y = x, z = x;
  Dimension pixel = Dimension::plain(1, 1);  // what lies within a pixel, never mapped
  Dimensions outer;
};

// In rows of at least so many bytes, an axis before them is better resampled row by row than pixel by pixel.
constexpr int64_t kLongRow = 256;

// Elements that lie side by side within what does not: no more are a pixel, where nothing is mapped.
constexpr int64_t kMostOfPixel = 4;

// A flipped axis that is longer has tables that are longer than what is moved by them.
constexpr int64_t kLongestFlip = 1 << 14;

// What is flipped along both of two axes is flipped as one, if they lie so.
inline bool are_flips(const Dimension& outer, const Dimension& inner) {
  const auto is_flip = [](const Dimension& d) {
    return d.step_count == 1 && d.steps[0].kind == Step::kFlip && d.blocks.size == 0;
  };
  return is_flip(outer) && is_flip(inner) && outer.in_size * inner.in_size <= kLongestFlip;
}

inline bool can_join(const Dimension& outer, const Dimension& inner, int64_t tensors, bool joins_flips) {
  if (outer.channels || inner.channels) return false;
  if ((outer.is_axis() || inner.is_axis()) && !(joins_flips && are_flips(outer, inner))) return false;
  for (int64_t t = 0; t < tensors; ++t) {
    if (outer.tensor_strides[t] != inner.tensor_strides[t] * inner.out_size) return false;
  }
  return outer.in_stride == inner.in_stride * inner.in_size && outer.out_stride == inner.out_stride * inner.out_size;
}

// In the order of the target's memory, neighbours that are walked along as one joined, sizes of 1 left out.
inline Dimensions tidy(Dimensions dimensions, int64_t tensors, bool joins_flips = true) {
  for (int64_t i = 1; i < dimensions.size(); ++i) {  // a few, and mostly sorted
    for (int64_t j = i; j > 0 && dimensions[j - 1].out_stride < dimensions[j].out_stride; --j) {
      swap(dimensions[j - 1], dimensions[j]);
    }
  }
  Dimensions tidied;
  for (int64_t i = 0; i < dimensions.size(); ++i) {
    const Dimension& d = dimensions[i];
    if (!d.is_axis() && !d.channels && !d.by_rows() && d.in_size == 1) continue;
    if (tidied.size() > 0 && can_join(tidied.back(), d, tensors, joins_flips)) {
      const Dimension outer = tidied.back();
      tidied.back() = d;
      tidied.back().in_size *= outer.in_size;
      tidied.back().out_size *= outer.out_size;
    } else {
      tidied.push_back(d);
    }
  }
  return tidied;
}

// Weighted dimensions, in their places, as they follow each other in the tensor, whatever lies next to what in the target.
inline void keep_order_of_sums(const Dimensions& tensor, Dimensions& tidied) {
  int64_t next = 0;
  for (int64_t i = 0; i < tidied.size(); ++i) {
    if (!tidied[i].weighted) continue;
    while (!tensor[next].weighted) ++next;
    tidied[i] = tensor[next++];
  }
}

// The last place that `wanted` holds for, or -1.
template <class Wanted>
int64_t last_place(const Dimensions& dimensions, Wanted wanted) {
  int64_t place = dimensions.size() - 1;
  while (place >= 0 && !wanted(dimensions[place])) --place;
  return place;
}

// So many times more outputs than inputs may be taken apart before they are written; three channels are by vectors.
constexpr double kMostGrowth = 1, kMostGrowthOfThree = 8;

// Whether channels side by side are what lies so far apart, or the first three of four.
inline bool is_pixel(int64_t channels, int64_t stride) { return stride == channels || (channels == 3 && stride == 4); }

// Channels that lie side by side in the source, and apart in the target: an image of (height, width, channels), permuted.
// Its rows are read as they lie, and spread out when they are written, unless that is much more. Their place, or -1.
inline int64_t channels_of_source(const Dimensions& dimensions, const Dimension& row) {
  double in = 1, out = 1;
  for (int64_t i = 0; i < dimensions.size(); ++i) {
    in *= static_cast<double>(dimensions[i].in_size);
    out *= static_cast<double>(dimensions[i].out_size);
  }
  const int64_t place = last_place(dimensions, [&row](const Dimension& d) {
    return !d.is_axis() && d.in_stride == 1 && d.in_size > 1 && is_pixel(d.in_size, row.in_stride) && row.in_size > 1;
  });
  const bool three = place >= 0 && dimensions[place].in_size == 3;
  return out > in * (three ? kMostGrowthOfThree : kMostGrowth) ? -1 : place;
}

// What is done around a row of no more pixels takes longer than the row.
#if defined(__aarch64__)
constexpr int64_t kShortRow = 32;
#else
constexpr int64_t kShortRow = 16;  // longer vectors: more of a row is one
#endif
constexpr int64_t kShortRowOfVolume = 32;  // where sums are made along all three axes
// So many times as long as short rows are columns that are better rows.
constexpr int64_t kTurnedGrowth = 4;
constexpr int64_t kLeastPlanes = 24, kMostPlanes = 64;

// The most planes that go together so that none is left over; 1 where these would be few.
inline int64_t planes_together(int64_t planes) {
  for (int64_t count = min(planes, kMostPlanes); count >= kLeastPlanes; --count) {
    if (planes % count == 0) return count;
  }
  return 1;
}

// Of many planes with short rows, several are taken for one image whose pixels have a channel of each: rows are then gathered
// and spread, and what is done around a row is done once for all of them. Leaves the other dimensions in `rest`.
inline Dimension take_planes(Dimensions& rest) {
  const int64_t place = last_place(rest, [](const Dimension& d) { return !d.is_axis() && !d.channels; });
  Dimension pixel = Dimension::plain(1, 1);
  const int64_t count = place < 0 ? 1 : planes_together(rest[place].in_size);
  if (count == 1) return pixel;
  if (count == rest[place].in_size) return rest.take(place);
  Dimension& groups = rest[place];
  pixel = groups;
  pixel.in_size = pixel.out_size = count;
  groups.in_size = groups.out_size = groups.in_size / count;
  groups.in_stride *= count;
  groups.out_stride *= count;
  for (int64_t& stride : groups.tensor_strides) stride *= count;
  return pixel;
}

// Axes of which every output takes the same input: they make no rows, and what is walked along beside them may.
inline Dimensions take_single_outputs(Dimensions& rest) {
  Dimensions taken;
  for (int64_t i = 0; i < rest.size();) {
    const Dimension& d = rest[i];
    if (d.mapped() && !d.weighted && d.out_size == 1 && d.blocks.size == 0 && !d.by_rows()) {
      taken.push_back(rest.take(i));
    } else {
      ++i;
    }
  }
  return taken;
}

// any_order: sums along one axis need not be made before those along another; where they are rounded in between, those along
// the last one come first. False where more axes are weighted than a kernel has passes, or the tensor has too many dimensions.
inline bool arrange(const Dimensions& dimensions, int64_t element_bytes, int64_t tensors, bool any_order, Geometry* geometry) {
  Dimensions rest = tidy(dimensions, tensors);
  if (!any_order) keep_order_of_sums(dimensions, rest);
  const Dimensions single = take_single_outputs(rest);
  const auto is_axis = [](const Dimension& d) { return d.is_axis(); };
  const auto weighted = [](const Dimension& d) { return d.weighted; };
  int64_t last_mapped = last_place(rest, is_axis);
  const bool tail = last_mapped + 1 < rest.size();
  int64_t sums = 0;
  for (int64_t i = 0; i < rest.size(); ++i) sums += rest[i].weighted ? 1 : 0;
  const auto is_row = [&](const Dimension& d) {
    const bool is_pixel = (d.in_size <= kMostOfPixel || d.in_size == element_bytes) && rest.size() > 1;
    return !d.channels && (last_mapped < 0 ? !is_pixel : sums <= 1 && d.in_size * element_bytes >= kLongRow);
  };
  const bool rows_mapped = tail && last_mapped >= 0 && rest[last_mapped].by_rows();
  bool row_of_tail = tail && (rows_mapped ? last_mapped + 2 == rest.size() : is_row(rest.back()));
  if (tail && !row_of_tail) {
    geometry->pixel = rest.take(rest.size() - 1);
    // Of pixels that do not lie side by side.
    row_of_tail = last_mapped + 1 < rest.size() && (rows_mapped || is_row(rest.back()));
  } else if (!tail && last_mapped >= 0) {
    const int64_t channels = channels_of_source(rest, rest[last_mapped]);
    if (channels >= 0) geometry->pixel = rest.take(channels);
    last_mapped = rest.size() - 1;
  }
  const int64_t row = row_of_tail ? rest.size() - 1 : last_mapped;
  if (row >= 0 && !rest[row].by_rows()) geometry->x = rest.take(row);
  const Dimension& x = geometry->x;
  if (geometry->pixel.out_size == 1 && x.weighted && x.blocks.size == 0 && max(x.in_size, x.out_size) <= (sums == 3 ? kShortRowOfVolume : kShortRow)) {
    geometry->pixel = take_planes(rest);
  }
  int64_t y = last_place(rest, [](const Dimension& d) { return d.by_rows(); });
  if (y < 0) y = last_place(rest, weighted);
  if (y < 0) y = last_place(rest, [](const Dimension& d) { return !d.channels; });
  if (y >= 0) geometry->y = rest.take(y);
  const int64_t z = last_place(rest, weighted);
  if (z >= 0) geometry->z = rest.take(z);
  for (int64_t i = 0; i < single.size(); ++i) rest.push_back(single[i]);
  geometry->outer = rest;
  return last_place(geometry->outer, weighted) < 0 && geometry->outer.size() <= kMaxOuter;
}

// Whether `d` lies side by side in the source, as the columns of a transposed view do, and not rows.
inline bool lies_along(const Dimension& d, const Geometry& g) {
  const bool dense = g.pixel.in_size == 1 || g.pixel.in_stride == 1;
  return dense && d.in_size > 1 && d.in_stride == g.pixel.in_size && g.x.in_stride > d.in_stride;
}

// Whether rows are better made along `d`, and sums along x: where that is how the source lies, if such rows are not much shorter,
// and a target that does not lie so is not much more; and where rows are short sums and `d` is not short. The order of sums is then another.
inline bool is_better_row(const Dimension& d, const Geometry& g) {
  const Dimension& x = g.x;
  const bool plain = !x.channels && !d.channels && !x.by_rows() && !d.by_rows() && x.blocks.size == 0 && d.blocks.size == 0;
  if (!plain || x.first || d.first || !(x.mapped() || d.mapped())) return false;
  const int64_t longest = max(x.in_size, x.out_size), shortest = min(d.in_size, d.out_size);
  const bool short_too = shortest <= kShortRow && shortest * kTurnedGrowth < longest;
  if (lies_along(d, g) && !short_too) return longest <= kShortRow || x.out_size * d.out_size <= x.in_size * d.in_size;
  const int64_t side_by_side = g.pixel.in_stride == 1 ? g.pixel.out_size : 1;
  return x.weighted && longest * side_by_side <= kShortRow && shortest >= kTurnedGrowth * longest;
}

// any_order: as `arrange` has it. Where it is not free, sums along what were rows still come first.
inline void choose_row(Geometry& g, bool any_order) {
  if (!any_order && g.z.weighted) return;
  const bool deep = any_order && min(g.z.in_size, g.z.out_size) > min(g.y.in_size, g.y.out_size);
  Dimension& other = deep && !lies_along(g.y, g) ? g.z : g.y;
  if (!is_better_row(other, g)) return;
  swap(g.x, other);
  g.y.first = !any_order && g.x.weighted && g.y.weighted;
}

}  // namespace polyphase
