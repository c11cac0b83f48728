// The driver: rows of the output, one after the other, through the passes of a program.
//
//     source row -> prologue -> [horizontal] -> vertical -> depth -> [horizontal] -> epilogue -> target row
//
// Weighted sums of rows are made from a few rows at hand (RowCache), so there is never an image in between. Where the
// horizontal pass comes, and how rows are summed, is chosen in row_ways.h.
#pragma once

#include <cstring>

#include "polyphase/core/abi.h"
#include "polyphase/core/rows.h"
#include "polyphase/core/scalar.h"
#include "polyphase/core/standard.h"
#include "polyphase/resample/ahead.h"
#include "polyphase/resample/borders.h"
#include "polyphase/resample/moved_rows.h"
#include "polyphase/resample/operand_rows.h"
#include "polyphase/resample/row_cache.h"
#include "polyphase/resample/row_ways.h"
#include "polyphase/resample/scattered_row.h"
#include "polyphase/resample/spaced.h"
#include "polyphase/resample/zeroed.h"

namespace polyphase {

template <class Prologue, class Epilogue>
class Worker {
 public:
  using S = typename Prologue::From;
  using T = typename Prologue::To;
  using O = typename Epilogue::To;
  static_assert(__is_same(T, typename Epilogue::From), "what is loaded is sampled and then stored");

  explicit Worker(const MapsCall& call)
      : call_(call),
        sampler_(*call.sampler),
        map_(call.row_map),
        in_length_(call.x.in_size * call.read_channels),
        made_channels_(map_ != nullptr ? map_->channels : call.read_channels),
        out_length_(call.x.out_size * made_channels_),
        stored_length_(call.x.out_size * call.channels),
        readable_length_(max(in_length_, map_ ? map_->readable_length : 0)),
        source_dense_(are_dense(call.x.in_stride, call.in_channel_stride, call.read_channels, call.x.in_size)),
        target_dense_(ScatteredRow<O>::is_dense(call)),
        way_(choose_way(facts())),
        summed_first_(way_.horizontal == Horizontal::kLast ? map_->first_read * call.read_channels : 0),
        summed_length_(way_.horizontal == Horizontal::kFirst  ? out_length_
                       : way_.horizontal == Horizontal::kLast ? (map_->end_read - map_->first_read) * call.read_channels
                                                              : in_length_),
        operands_(call),
        borders_(call),
        scattered_(call),
        zeroed_(zeroes_target<Epilogue>(call)) {
    const int64_t together = way_.together ? kMostTogether : 1;
    if (!source_dense_) {
      gathered_.resize(together * readable_length_);
      std::memset(gathered_.data(), 0, together * readable_length_ * sizeof(S));  // what has no weight is not gathered
    }
    if (!Prologue::kIdentity || way_.lengthens) loaded_.resize(together * readable_length_);
    const int64_t kept_length = way_.horizontal == Horizontal::kFirst || way_.together ? out_length_ : readable_length_;
    if (way_.together || way_.vertical == Sum::kKept) {
      const int64_t taps = way_.vertical == Sum::kNone ? 1 : call.y.most_taps;
      vertical_.kept.resize(taps + together - 1, kept_length, call.y.in_size * call.z.in_size);
    }
    if (way_.vertical == Sum::kByTiles) tile_rows_.resize(call.y.most_taps * kTile);
    if (way_.depth == Sum::kKept) depth_.kept.resize(call.z.most_taps, kept_length, call.z.in_size);
    if (way_.sums()) {
      if (way_.horizontal == Horizontal::kLast && way_.vertical != Sum::kAtOnce) {
        summed_.resize(readable_length_);
        std::memset(summed_.data(), 0, readable_length_ * kSize);  // what has no weight is not summed
      }
      const int64_t taps = max(call.y.most_taps, call.z.most_taps) + 1;  // uint8 takes the last of an odd number twice
      if (way_.vertical != Sum::kNone) vertical_.rows.resize(taps);
      if (way_.depth != Sum::kNone) depth_.rows.resize(taps);
      weights_.resize(taps);
    }
    if (!Epilogue::kIdentity) sampled_.resize(stored_length_);
    if (made_channels_ != call.channels) all_channels_.resize(out_length_);
  }

  // Output rows begin to end, counted over (outer, y, z).
  void run(int64_t begin, int64_t end) {
    const int64_t rows = call_.y.out_size * call_.z.out_size;
    while (begin < end) {
      const int64_t outer = begin / rows, stop = min(end, (outer + 1) * rows);
      enter(outer);
      last_y_ = (stop - 1 - outer * rows) / call_.z.out_size;
      if (kPlain && way_.moves_rows) {
        move_rows(begin - outer * rows, stop - outer * rows);
      } else {
        for (int64_t i = begin - outer * rows; i < stop - outer * rows; ++i) {
          row(i / call_.z.out_size, i % call_.z.out_size);
        }
      }
      begin = stop;
    }
  }

 private:
  static constexpr int64_t kTile = 512;  // elements
  static constexpr int64_t kSize = sizeof(T);
  static constexpr bool kPlain = Prologue::kIdentity && Epilogue::kIdentity;

  RowFacts facts() const {
    const Axis &y = call_.y, &z = call_.z;
    RowFacts facts = {};
    facts.sums_rows = weighted(y);
    facts.sums_planes = weighted(z);
    facts.moves_only = kPlain && target_dense_ && z.out_size == 1 && z.taps == nullptr && !call_.source_by_rows;
    facts.in_place = Prologue::kIdentity && source_dense_;
    facts.by_pieces = !Prologue::kIdentity && source_dense_ && call_.vector_count == 0;
    facts.too_long = y.most_taps * readable_length_ * kSize > kNear;
    facts.far = y.in_size * in_length_ * kSize > kNear;
    if (map_ == nullptr) return facts;
    facts.has_map = true;
    facts.sums_pixels = map_->weighted;
    facts.must_be_last = call_.sums_rows_first != 0;
    facts.first_is_better = !sampler_.any_order || horizontal_first_is_cheaper(call_);
    facts.shrinks = out_length_ < in_length_;
    facts.reads_beyond_end = readable_length_ > in_length_;
    facts.fetches = map_->fetches;
    facts.offers_together = map_->run_together != nullptr && z.out_size == 1;
    facts.offers_at_once = map_->run_sum != nullptr;
    facts.wants_at_once = map_->sums_all;
    return facts;
  }

  // Goes to one place of the outer axes.
  void enter(int64_t outer) {
    in_ = static_cast<const S*>(call_.source_by_rows ? rows()[0] : call_.source);
    out_ = static_cast<O*>(call_.target);
    border_ = 0;
    operands_.enter();
    for (int64_t a = call_.outer_count - 1; a >= 0; --a) {
      const Axis& axis = call_.outer[a];
      const int64_t i = outer % axis.out_size;
      outer /= axis.out_size;
      border_ = max(border_, border_of(axis, i));
      in_ += picked(axis, i) * axis.in_stride;
      out_ += axis.place(i);
      operands_.enter(a, i);
    }
    vertical_.kept.clear();
    depth_.kept.clear();
  }

  const void* const* rows() const { return static_cast<const void* const*>(call_.source); }

  // How far row y lies from the first, in elements.
  int64_t row_offset(int64_t y) const {
    if (!call_.source_by_rows) return y * call_.y.in_stride;
    return (reinterpret_cast<intptr_t>(rows()[y]) - reinterpret_cast<intptr_t>(rows()[0])) / static_cast<int64_t>(sizeof(S));
  }

  static int32_t border_of(const Axis& axis, int64_t i) {
    return axis.taps != nullptr && axis.taps->border != nullptr ? axis.taps->border[i] : 0;
  }

  // The one input an index-only axis takes for output i; of a border, any.
  static int64_t picked(const Axis& axis, int64_t i) {
    if (axis.taps == nullptr) return i;
    return axis.taps->begin[i] == axis.taps->begin[i + 1] ? 0 : axis.taps->index[axis.taps->begin[i]];
  }

  // row() for what is only read and written in place: small images are many short rows. Those that are the same border,
  // or none, together.
  void move_rows(int64_t begin, int64_t end) {
    const Axis& y = call_.y;
    while (begin < end) {
      const int32_t border = max(border_, border_of(y, begin));
      int64_t stop = y.taps == nullptr ? end : begin + 1;
      while (stop < end && max(border_, border_of(y, stop)) == border) ++stop;
      MovedRows rows = {reinterpret_cast<const uint8_t*>(in_), y.in_stride * kSize, nullptr,
                        reinterpret_cast<uint8_t*>(out_ + begin * y.out_stride), y.out_stride * kSize, stop - begin};
      if (border == 0) {
        if (y.taps != nullptr) rows.list = y.taps->index + y.taps->begin[begin];  // a tap each
        if (y.taps == nullptr) rows.in += begin * rows.in_stride;
        map_ != nullptr ? map_->run_rows(map_, rows) : copy_rows(rows, out_length_ * kSize);
      }
      borders_.each(border, [&](int32_t n, int64_t from, int64_t to) { fill_border(n, from, to, rows); });
      begin = stop;
    }
  }

  void fill_border(int32_t number, int64_t begin, int64_t end, MovedRows rows) {
    const int64_t pixel = call_.channels * kSize;
    if (filled_with_ != number) {
      filled_.resize(call_.x.out_size * pixel);
      borders_.put(number, 0, call_.x.out_size, filled_.data(), kSize);
      filled_with_ = number;
    }
    rows.in = filled_.data();
    rows.in_stride = 0;
    rows.list = nullptr;
    rows.out += begin * pixel;
    copy_rows(rows, (end - begin) * pixel);
  }

  void row(int64_t y, int64_t z) {
    if (zeroed_ && sums_nothing(y, z)) return;
    O* target = out_ + call_.y.place(y) + call_.z.place(z);
    O* dense = target_dense_ ? target : scattered_.row();
    T* sampled = Epilogue::kIdentity ? reinterpret_cast<T*>(dense) : sampled_.data();
    const int32_t border = max(border_, max(border_of(call_.y, y), border_of(call_.z, z)));
    if (border == 0 && all_channels_.size() > 0) {
      copy_pixels(sample(y, z, all_channels_.data()), made_channels_, 1, sampled, call_.channels, 1, call_.channels,
                  call_.x.out_size);
    } else if (border == 0) {
      const T* values = sample(y, z, sampled);
      if (values != sampled) std::memcpy(sampled, values, out_length_ * kSize);
    }
    const bool bordered = borders_.has(border);
    if (bordered) borders_.put_all(border, sampled, Borders::kBeforeEpilogue);
    if (!Epilogue::kIdentity) Epilogue::row(sampled, dense, stored_length_, operands_.at(y, z));
    if (bordered) borders_.put_all(border, dense, Borders::kAroundEpilogue);
    if (!target_dense_) scattered_.store(target);
  }

  bool sums_nothing(int64_t y, int64_t z) const {
    return (way_.vertical != Sum::kNone && is_sum_of_nothing(call_.y, y)) || (way_.depth != Sum::kNone && is_sum_of_nothing(call_.z, z));
  }

  // The row of output (y, z): in `out`, or where it lies in the source.
  const T* sample(int64_t y, int64_t z, T* out) {
    if (sums_nothing(y, z)) {
      std::memset(out, 0, static_cast<size_t>(all_channels_.size() > 0 ? all_channels_.size() : out_length_) * kSize);
      return out;
    }
    if (way_.vertical == Sum::kAtOnce) return sum_at_once(y, picked(call_.z, z), out);
    if (way_.vertical == Sum::kNone && way_.together) return made_together(y, picked(call_.z, z));
    T* summed = way_.horizontal == Horizontal::kLast ? summed_.data() : out;
    const T* values = way_.depth == Sum::kNone ? across(y, picked(call_.z, z), summed) : sum_planes(y, z, summed);
    if (way_.horizontal != Horizontal::kLast) return values;
    map_->run(map_, values, out, later_);
    return out;
  }

  // Both passes over the rows of input plane z, where these are used where they lie.
  const T* sum_at_once(int64_t y, int64_t z, T* out) {
    const Taps& taps = *call_.y.taps;
    const int begin = taps.begin[y], count = taps.begin[y + 1] - begin;
    const T* plane = reinterpret_cast<const T*>(in_) + z * call_.z.in_stride;
    for (int k = 0; k < count; ++k) vertical_.rows[k] = plane + row_offset(taps.index[begin + k]);
    sampler_.pack(taps, begin, count, weights_.data());
    if (way_.fetches) find_rows_ahead(vertical_, y, summed_first_);
    map_->run_sum(map_, vertical_.rows.data(), weights_.data(), count, out, way_.fetches ? &ahead_ : nullptr);
    return out;
  }

  // The sum over depth: of the vertical sums for y, one for each plane.
  const T* sum_planes(int64_t y, int64_t z, T* out) {
    if (y != depth_y_) depth_.kept.clear();
    depth_y_ = y;
    return sum(depth_, z, out, y, 0);
  }

  // The vertical pass of input plane z.
  const T* across(int64_t y, int64_t z, T* out) {
    if (!Prologue::kIdentity && way_.vertical == Sum::kByTiles) return sum_by_tiles(y, z, out);
    if (way_.vertical != Sum::kNone) return sum(vertical_, y, out, y, z);
    return base_row(picked(call_.y, y), z, way_.depth == Sum::kNone ? loaded_.data() : out, y);
  }

  // A vertical sum of rows that have to be loaded and are too long to be kept: a tile of each at a time, loaded anew for
  // every sum.
  const T* sum_by_tiles(int64_t y, int64_t z, T* out) {
    const Taps& taps = *call_.y.taps;
    const int begin = taps.begin[y], count = taps.begin[y + 1] - begin;
    for (int k = 0; k < count; ++k) vertical_.rows[k] = tile_rows_.data() + k * kTile;
    if (count > 0) vertical_.rows[count] = vertical_.rows[count - 1];
    sampler_.pack(taps, begin, count, weights_.data());
    for (int64_t from = summed_first_; from < summed_first_ + summed_length_; from += kTile) {
      const int64_t length = min(kTile, summed_first_ + summed_length_ - from);
      for (int k = 0; k < count; ++k) {
        const S* source = in_ + row_offset(taps.index[begin + k]) + z * call_.z.in_stride + from;
        T* tile = tile_rows_.data() + k * kTile;
        Prologue::row(source, tile, length, operands_.vectors());
      }
      sampler_.sum(vertical_.rows.data(), weights_.data(), count, taps.precision, out + from, length, nullptr);
    }
    return out;
  }

  // Sums along one axis.
  struct RowSum {
    const Axis& axis;
    Buffer<const void*> rows = {};  // those of one sum
    RowCache<T> kept = {};
  };

  // Output i of an axis: of depth, the sum of the vertical sums for output y; else of the rows of input plane z.
  POLYPHASE_ROW_LOOP const T* sum(RowSum& sums, int64_t i, T* out, int64_t y, int64_t z) {
    const Taps& taps = *sums.axis.taps;
    const int begin = taps.begin[i], count = taps.begin[i + 1] - begin;
    const auto summand = [&](int64_t from, T* into) {
      return &sums == &depth_ ? across(y, from, into) : base_row(from, z, into, y);
    };
    const void** const rows = sums.rows.data();
    const bool kept = sums.kept.slots() > 0;
    if (kept) {
      const int64_t first_key = z * sums.axis.in_size;
      int missing = sums.kept.find(taps.index + begin, count, first_key, rows);
      if (way_.together) {
        for (; missing > 0; missing = sums.kept.find(taps.index + begin, count, first_key, rows)) make_together(i, z);
      }
      for (int k = 0; missing > 0; ++k) {
        if (rows[k] != nullptr) continue;
        T* into = sums.kept.add(first_key + taps.index[begin + k]);
        const T* made = summand(taps.index[begin + k], into);
        if (made != into) std::memcpy(into + summed_first_, made + summed_first_, summed_length_ * kSize);
        rows[k] = into;
        --missing;
      }
    } else {
      for (int k = 0; k < count; ++k) rows[k] = summand(taps.index[begin + k], loaded_.data());
    }
    for (int k = 0; k < count; ++k) rows[k] = static_cast<const T*>(rows[k]) + summed_first_;
    if (count > 0) rows[count] = rows[count - 1];
    sampler_.pack(taps, begin, count, weights_.data());
    const Ahead* now = nullptr;
    if (way_.fetches && !kept) {
      find_rows_ahead(sums, i, 0);
      // The sum waits for memory itself: better to fetch few rows in the horizontal pass after it.
      const bool later = map_ != nullptr && map_->fetches && way_.depth == Sum::kNone && ahead_.bytes() <= kFetched;
      later_ = later ? &ahead_ : nullptr;
      now = later ? nullptr : &ahead_;
    }
    sampler_.sum(rows, weights_.data(), count, taps.precision, out + summed_first_, summed_length_, now);
    return out;
  }

  // The row of output y where there is no sum over rows.
  const T* made_together(int64_t y, int64_t z) {
    const int32_t row = static_cast<int32_t>(picked(call_.y, y));
    const void* found;
    while (vertical_.kept.find(&row, 1, z * call_.y.in_size, &found) > 0) make_together(y, z);
    return static_cast<const T*>(found);
  }

  // Makes rows that output y reads and that are not at hand, and the next ones, as many as the horizontal pass takes.
  POLYPHASE_ROW_LOOP void make_together(int64_t y, int64_t z) {
    const Taps* taps = call_.y.taps;
    const int64_t first_key = z * call_.y.in_size;
    const void* in[kMostTogether];
    void* out[kMostTogether];
    int count = 0;
    const int64_t end = taps == nullptr ? last_y_ + 1 : taps->begin[last_y_ + 1];
    for (int64_t t = taps == nullptr ? y : taps->begin[y]; t < end && count < kMostTogether; ++t) {
      const int64_t row = taps == nullptr ? t : taps->index[t];
      if (vertical_.kept.has(first_key + row)) continue;
      out[count] = vertical_.kept.add(first_key + row);
      const S* source = in_ + row_offset(row) + z * call_.z.in_stride;
      in[count] = load(source, loaded_.size() > 0 ? loaded_.data() + count * readable_length_ : nullptr, count);
      ++count;
    }
    map_->run_together(map_, in, out, count);
  }

  // Of rows that are used where they lie, from some element on: those the next sum reads and this one does not.
  POLYPHASE_ROW_LOOP void find_rows_ahead(const RowSum& sums, int64_t i, int64_t first) {
    constexpr int64_t kMost = 8;
    const Axis& axis = sums.axis;
    const Taps& taps = *axis.taps;
    const int32_t count = taps.begin[i + 1] - taps.begin[i];
    ahead_.count = 0;
    if (count == 0 || i + 1 == axis.out_size || taps.begin[i + 1] == taps.begin[i + 2]) return;
    const int64_t last = taps.index[taps.begin[i + 1] - 1], next_last = taps.index[taps.begin[i + 2] - 1];
    if (next_last <= last) return;
    const int64_t step = &sums == &vertical_ ? row_offset(last + 1) - row_offset(last) : axis.in_stride;
    ahead_ = {static_cast<const uint8_t*>(sums.rows[count - 1]) + (first + step) * kSize, summed_length_ * kSize, step * kSize,
              min(next_last - last, kMost)};
  }

  // Input row (y, z), for output row out_y: loaded, and resampled where that comes first.
  const T* base_row(int64_t y, int64_t z, T* into, int64_t out_y) {
    const S* source = in_ + row_offset(y) + z * call_.z.in_stride;
    if (way_.horizontal != Horizontal::kFirst) return load(source, into);
    const T* row = load(source, loaded_.data());
    map_->run(map_, row, into, way_.fetches && find_row_ahead(row, y, out_y) ? &ahead_ : nullptr);
    return into;
  }

  // Of rows that are read in ascending order: the one that is new after row y, where it lies. False if there is none.
  POLYPHASE_ROW_LOOP bool find_row_ahead(const T* row, int64_t y, int64_t out_y) {
    const Taps& taps = *call_.y.taps;
    int64_t next = y + 1;
    if (y == taps.index[taps.begin[out_y + 1] - 1]) {  // the last one of this output
      if (out_y + 1 == call_.y.out_size || taps.begin[out_y + 1] == taps.begin[out_y + 2]) return false;
      if (taps.index[taps.begin[out_y + 2] - 1] <= y) return false;
      next = max<int64_t>(next, taps.index[taps.begin[out_y + 1]]);
    }
    const int64_t step = row_offset(next) - row_offset(y);
    ahead_ = {reinterpret_cast<const uint8_t*>(row + step), in_length_ * kSize, step * kSize, 1};
    return call_.source_by_rows || ahead_.bytes() <= kFetched;
  }

  // The row as it lies in memory where that will do; else in `into`, which is readable_length_ long.
  POLYPHASE_ROW_LOOP const T* load(const S* source, T* into, int64_t number = 0) {
    if (!source_dense_) source = gathered(source, gathered_.data() + number * readable_length_);
    if (!Prologue::kIdentity) {
      Prologue::row(source, into, in_length_, operands_.vectors());
      return into;
    }
    const T* values = reinterpret_cast<const T*>(source);
    if (!way_.lengthens) return values;
    std::memcpy(into, values, in_length_ * kSize);
    return into;
  }

  // Of the pixels that are read.
  const S* gathered(const S* source, S* into) {
    const int64_t first = map_ ? map_->first_read : 0, end = map_ ? map_->end_read : call_.x.in_size;
    copy_pixels(source + first * call_.x.in_stride, call_.x.in_stride, call_.in_channel_stride, into + first * call_.channels,
                call_.channels, 1, call_.channels, end - first);
    return into;
  }

  const MapsCall& call_;
  const Sampler& sampler_;
  const RowMap* map_;
  int64_t in_length_;        // elements of a source row
  int64_t made_channels_;    // of a pixel that was sampled: those that are stored, or all that were read
  int64_t out_length_;       // elements of a row that was sampled
  int64_t stored_length_;    // elements of a target row: fewer where a channel is dropped
  int64_t readable_length_;  // elements the horizontal pass may read of a row
  bool source_dense_, target_dense_;
  RowWay way_;
  int64_t summed_first_, summed_length_;  // elements of the rows that are summed: those that are read afterwards
  OperandRows<Prologue, Epilogue> operands_;
  Borders borders_;
  ScatteredRow<O> scattered_;
  const bool zeroed_;  // the target

  const S* in_ = nullptr;
  O* out_ = nullptr;
  int32_t border_ = 0;
  int32_t filled_with_ = 0;  // the border that `filled_` is a row of
  int64_t last_y_ = 0;  // of the rows that this worker makes
  int64_t depth_y_ = -1;  // the rows depth_ keeps are of this y
  Ahead ahead_ = {};
  const Ahead* later_ = nullptr;  // for the horizontal pass to fetch

  RowSum vertical_ = {call_.y}, depth_ = {call_.z};
  Buffer<S> gathered_;
  Buffer<T> tile_rows_;
  Buffer<T> loaded_, summed_, sampled_, all_channels_;
  Buffer<uint64_t> weights_;  // as the sampler packs them
  Buffer<uint8_t> filled_;
};

template <class Prologue, class Epilogue>
struct Resample {
  static void run(const KernelCall& any) {
    const MapsCall& call = static_cast<const MapsCall&>(any);
    int64_t rows = call.y.out_size * call.z.out_size;
    for (int64_t a = 0; a < call.outer_count; ++a) rows *= call.outer[a].out_size;
    const auto body = [](void* context, int64_t begin, int64_t end) {
      Worker<Prologue, Epilogue>(*static_cast<const MapsCall*>(context)).run(begin, end);
    };
    zero_target<Epilogue>(call);
    call.parallel(rows, call.threads, body, const_cast<MapsCall*>(&call));
  }

  static constexpr Kernel kernel() { return {run, sizeof(typename Prologue::To), Prologue::kIdentity}; }
};

}  // namespace polyphase
