// The driver: rows of the output, one after the other, through the passes of a program.
//
//     source row -> prologue -> [horizontal] -> vertical -> depth -> [horizontal] -> epilogue -> target row
//
// Weighted sums of rows are made from a few rows at hand (RowCache), so there is never an image in between. The
// horizontal pass comes where it costs least; for uint8 it comes first, as eager rounds.
#pragma once

#include <cstring>

#include "polyphase/abi.h"
#include "polyphase/ahead.h"
#include "polyphase/moved_rows.h"
#include "polyphase/pass_order.h"
#include "polyphase/row_cache.h"
#include "polyphase/rows.h"
#include "polyphase/scalar.h"
#include "polyphase/spaced.h"
#include "polyphase/standard.h"

namespace polyphase {

// Bytes that may be fetched into the first-level cache beside what is used there.
constexpr int64_t kFetched = 12 << 10;

template <class Prologue, class Epilogue>
class Worker {
 public:
  using S = typename Prologue::From;
  using T = typename Prologue::To;
  using O = typename Epilogue::To;
  static_assert(__is_same(T, typename Epilogue::From), "what is loaded is sampled and then stored");

  explicit Worker(const Call& call)
      : call_(call),
        sampler_(*call.sampler),
        map_(call.row_map),
        in_length_(call.x.in_size * call.channels),
        out_length_(call.x.out_size * call.channels),
        readable_length_(max(in_length_, map_ ? map_->readable_length : 0)),
        source_dense_(dense(call.x.in_stride, call.in_channel_stride, call.x.in_size)),
        target_dense_(dense(call.x.out_stride, call.out_channel_stride, call.x.out_size)),
        far_(call.y.in_size * in_length_ * kSize > kNear),
        vertical_(weighted(call.y)),
        depth_(weighted(call.z)) {
    const bool sums = vertical_ || depth_;
    in_place_ = Prologue::kIdentity && source_dense_;
    // Rows that cannot be read where they lie are kept while they are summed; of a row that shrinks, less is kept after.
    const bool keeps_less = !in_place_ && out_length_ < in_length_ && !depth_;
    const bool sums_all = map_ != nullptr && map_->sums_all && in_place_ && vertical_ && !depth_;
    horizontal_first_ = sums && map_ != nullptr && map_->weighted && !sums_all &&
                        (!sampler_.any_order || keeps_less || horizontal_first_is_cheaper(call));
    if (!source_dense_) gathered_.resize(readable_length_);
    if (!Prologue::kIdentity || (source_dense_ && readable_length_ > in_length_)) loaded_.resize(readable_length_);
    fetches_ = horizontal_first_ && far_ && in_place_ && vertical_ && map_->fetches;
    summed_length_ = horizontal_first_ ? out_length_ : in_length_;
    const int64_t slot = horizontal_first_ ? out_length_ : readable_length_;
    by_tiles_ = vertical_ && !depth_ && !horizontal_first_ && !Prologue::kIdentity && source_dense_ &&
                call.vector_count == 0 && call.y.most_taps * slot * kSize > kNear;
    if (by_tiles_) tile_rows_.resize(call.y.most_taps * kTile);
    const bool made = (horizontal_first_ || !in_place_) && !by_tiles_;
    at_once_ = vertical_ && !depth_ && !made && !by_tiles_ && map_ != nullptr && map_->run_sum != nullptr;
    if (vertical_ && made) base_rows_.resize(call.y.most_taps, slot, call.y.in_size * call.z.in_size);
    if (depth_ && (vertical_ || made)) vertical_rows_.resize(call.z.most_taps, slot, call.z.in_size);
    if (sums && !horizontal_first_ && map_ != nullptr) summed_.resize(slot);
    if (!Epilogue::kIdentity || !target_dense_) sampled_.resize(out_length_);
    if (!target_dense_) stored_.resize(out_length_);
    if (sums) {
      const int64_t taps = max(call.y.most_taps, call.z.most_taps);
      pointers_.resize(taps + 1);  // of an odd number of rows, uint8 takes the last one twice
      weights_.resize(taps + 1);
    }
    expand_vectors();
  }

  // Output rows begin to end, counted over (outer, y, z).
  void run(int64_t begin, int64_t end) {
    const int64_t rows = call_.y.out_size * call_.z.out_size;
    while (begin < end) {
      const int64_t outer = begin / rows, stop = min(end, (outer + 1) * rows);
      enter(outer);
      if (moves_only()) {
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

  bool dense(int64_t x_stride, int64_t channel_stride, int64_t pixels) const {
    const bool channels_dense = call_.channels == 1 || channel_stride == 1;
    return channels_dense && (pixels == 1 || x_stride == call_.channels);
  }

  // Goes to one place of the outer axes.
  void enter(int64_t outer) {
    in_ = static_cast<const S*>(call_.source);
    out_ = static_cast<O*>(call_.target);
    border_ = 0;
    for (int64_t t = 0; t < call_.tensor_count; ++t) tensor_offsets_[t] = 0;
    for (int64_t a = call_.outer_count - 1; a >= 0; --a) {
      const Axis& axis = call_.outer[a];
      const int64_t i = outer % axis.out_size;
      outer /= axis.out_size;
      border_ = max(border_, border_of(axis, i));
      in_ += picked(axis, i) * axis.in_stride;
      out_ += i * axis.out_stride;
      if (a == call_.channel_axis) select_channel(i);
      for (int64_t t = 0; t < call_.tensor_count; ++t) tensor_offsets_[t] += i * call_.tensors[t].outer_strides[a];
    }
    base_rows_.clear();
    vertical_rows_.clear();
  }

  static int32_t border_of(const Axis& axis, int64_t i) {
    return axis.taps != nullptr && axis.taps->border != nullptr ? axis.taps->border[i] : 0;
  }

  // The one input an index-only axis takes for output i; of a border, any.
  static int64_t picked(const Axis& axis, int64_t i) {
    if (axis.taps == nullptr) return i;
    return axis.taps->begin[i] == axis.taps->begin[i + 1] ? 0 : axis.taps->index[axis.taps->begin[i]];
  }

  bool moves_only() const {
    return kPlain && !vertical_ && !depth_ && in_place_ && target_dense_ && readable_length_ == in_length_ &&
           call_.z.out_size == 1 && call_.z.taps == nullptr;
  }

  // row() for what is only read and written in place: small images are many short rows. Those that are the same border,
  // or none, together.
  void move_rows(int64_t begin, int64_t end) {
    const Axis& y = call_.y;
    while (begin < end) {
      const int32_t border = max(border_, border_of(y, begin));
      int64_t stop = begin + 1;
      while (stop < end && max(border_, border_of(y, stop)) == border) ++stop;
      MovedRows rows = {reinterpret_cast<const uint8_t*>(in_), y.in_stride * kSize, nullptr,
                        reinterpret_cast<uint8_t*>(out_ + begin * y.out_stride), y.out_stride * kSize, stop - begin};
      if (border == 0) {
        if (y.taps != nullptr) rows.list = y.taps->index + y.taps->begin[begin];  // a tap each
        if (y.taps == nullptr) rows.in += begin * rows.in_stride;
        map_ != nullptr ? map_->run_rows(map_, rows) : copy_rows(rows, out_length_ * kSize);
      }
      fill_borders(border, rows);
      begin = stop;
    }
  }

  // put_borders for rows.
  void fill_borders(int32_t of_rows, const MovedRows& rows) {
    if (of_rows > 0) fill_border(of_rows, 0, call_.x.out_size, rows);
    for (int64_t b = 0; map_ != nullptr && b < map_->border_count; ++b) {
      const BorderRun& run = map_->borders[b];
      if (run.number > of_rows) fill_border(run.number, run.begin, run.end, rows);
    }
  }

  void fill_border(int32_t number, int64_t begin, int64_t end, MovedRows rows) {
    const int64_t pixel = call_.channels * kSize;
    if (filled_with_ != number) {
      filled_.resize(call_.x.out_size * pixel);
      put_border(number, 0, call_.x.out_size, filled_.data(), kSize, number >= call_.first_stored);
      filled_with_ = number;
    }
    rows.in = filled_.data();
    rows.in_stride = 0;
    rows.list = nullptr;
    rows.out += begin * pixel;
    copy_rows(rows, (end - begin) * pixel);
  }

  void row(int64_t y, int64_t z) {
    O* target = out_ + y * call_.y.out_stride + z * call_.z.out_stride;
    O* dense = target_dense_ ? target : stored_.data();
    T* sampled = Epilogue::kIdentity ? reinterpret_cast<T*>(dense) : sampled_.data();
    const int32_t border = max(border_, max(border_of(call_.y, y), border_of(call_.z, z)));
    if (border == 0) {
      const T* values = sample(y, z, sampled);
      if (values != sampled) std::memcpy(sampled, values, out_length_ * kSize);
    }
    put_borders(border, reinterpret_cast<uint8_t*>(sampled), sizeof(T), false);
    if (!Epilogue::kIdentity) {
      Epilogue::row(sampled, dense, out_length_, operands(y, z));
    }
    put_borders(border, reinterpret_cast<uint8_t*>(dense), sizeof(O), true);
    if (!target_dense_) scatter(target);
  }

  // The row of output (y, z): in `out`, or where it lies in the source.
  const T* sample(int64_t y, int64_t z, T* out) {
    if (at_once_) return sum_at_once(y, picked(call_.z, z), out);
    const bool horizontal_last = map_ != nullptr && !horizontal_first_;
    T* summed = horizontal_last ? summed_.data() : out;
    const T* values;
    if (depth_) {
      if (y != depth_y_) vertical_rows_.clear();
      depth_y_ = y;
      values = sum(call_.z, z, vertical_rows_, summed, {true, y, 0});
    } else {
      values = across(y, picked(call_.z, z), summed);
    }
    if (!horizontal_last) return values;
    map_->run(map_, values, out, later_);
    return out;
  }

  // Both passes over the rows of input plane z, where these are used where they lie.
  const T* sum_at_once(int64_t y, int64_t z, T* out) {
    const Taps& taps = *call_.y.taps;
    const int begin = taps.begin[y], count = taps.begin[y + 1] - begin;
    const T* plane = reinterpret_cast<const T*>(in_) + z * call_.z.in_stride;
    for (int k = 0; k < count; ++k) pointers_[k] = plane + taps.index[begin + k] * call_.y.in_stride;
    sampler_.pack(taps.weight + begin, count, weights_.data());
    if (far_) find_rows_ahead(call_.y, y);
    map_->run_sum(map_, pointers_.data(), weights_.data(), count, out, far_ ? &ahead_ : nullptr);
    return out;
  }

  // The vertical pass of input plane z.
  const T* across(int64_t y, int64_t z, T* out) {
    if (by_tiles_) return sum_by_tiles(y, z, out);
    if (vertical_) return sum(call_.y, y, base_rows_, out, {false, y, z});
    return base_row(picked(call_.y, y), z, depth_ ? out : loaded_.data(), y);
  }

  // A vertical sum of rows that have to be loaded and are too long to be kept: a tile of each at a time, loaded anew for
  // every sum.
  const T* sum_by_tiles(int64_t y, int64_t z, T* out) {
    const Taps& taps = *call_.y.taps;
    const int begin = taps.begin[y], count = taps.begin[y + 1] - begin;
    for (int k = 0; k < count; ++k) pointers_[k] = tile_rows_.data() + k * kTile;
    if (count > 0) pointers_[count] = pointers_[count - 1];
    sampler_.pack(taps.weight + begin, count, weights_.data());
    for (int64_t from = 0; from < in_length_; from += kTile) {
      const int64_t length = min(kTile, in_length_ - from);
      for (int k = 0; k < count; ++k) {
        const S* source = in_ + taps.index[begin + k] * call_.y.in_stride + z * call_.z.in_stride + from;
        T* tile = tile_rows_.data() + k * kTile;
        Prologue::row(source, tile, length, row_operands_);
      }
      sampler_.sum(pointers_.data(), weights_.data(), count, taps.precision, out + from, length, nullptr);
    }
    return out;
  }

  // What is summed for output y: the vertical sums of that y, one for each plane, or the rows of input plane z.
  struct Summands {
    bool of_depth;
    int64_t y, z;
  };

  // A weighted sum of rows.
  POLYPHASE_ROW_LOOP const T* sum(const Axis& axis, int64_t i, RowCache<T>& cache, T* out, const Summands& rows) {
    const Taps& taps = *axis.taps;
    const int begin = taps.begin[i], count = taps.begin[i + 1] - begin;
    const bool cached = cache.slots() > 0;
    const int64_t first_key = rows.z * axis.in_size;
    if (cached) {
      int missing = cache.find(taps.index + begin, count, first_key, pointers_.data());
      for (int k = 0; missing > 0; ++k) {
        if (pointers_[k] != nullptr) continue;
        const int64_t from = taps.index[begin + k];
        T* into = cache.add(first_key + from);
        const T* made = rows.of_depth ? vertical_sum(rows.y, from, into) : base_row(from, rows.z, into, rows.y);
        pointers_[k] = into;
        if (made != into) std::memcpy(into, made, summed_length_ * kSize);
        --missing;
      }
    } else {
      for (int k = 0; k < count; ++k) {
        const int64_t from = taps.index[begin + k];
        pointers_[k] = rows.of_depth ? across(rows.y, from, loaded_.data()) : base_row(from, rows.z, loaded_.data(), rows.y);
      }
    }
    if (count > 0) pointers_[count] = pointers_[count - 1];
    sampler_.pack(taps.weight + begin, count, weights_.data());
    const Ahead* now = nullptr;
    if (far_ && !cached) {
      find_rows_ahead(axis, i);
      // The sum waits for memory itself: better to fetch few rows in the horizontal pass after it.
      const bool later = map_ != nullptr && map_->fetches && !depth_ && ahead_.bytes() <= kFetched;
      later_ = later ? &ahead_ : nullptr;
      now = later ? nullptr : &ahead_;
    }
    sampler_.sum(pointers_.data(), weights_.data(), count, taps.precision, out, summed_length_, now);
    return out;
  }

  // Of rows that are used where they lie: those the next sum reads and this one does not.
  POLYPHASE_ROW_LOOP void find_rows_ahead(const Axis& axis, int64_t i) {
    constexpr int64_t kMost = 8;
    const Taps& taps = *axis.taps;
    const int32_t count = taps.begin[i + 1] - taps.begin[i];
    ahead_.count = 0;
    if (count == 0 || i + 1 == axis.out_size || taps.begin[i + 1] == taps.begin[i + 2]) return;
    const int64_t last = taps.index[taps.begin[i + 1] - 1], next_last = taps.index[taps.begin[i + 2] - 1];
    ahead_ = {static_cast<const uint8_t*>(pointers_[count - 1]) + axis.in_stride * kSize, in_length_ * kSize,
              axis.in_stride * kSize, clamp<int64_t>(next_last - last, 0, kMost)};
  }

  // A row of the depth's sum: made by a vertical one, which uses the same list of pointers.
  const T* vertical_sum(int64_t y, int64_t z, T* into) {
    const int64_t size = pointers_.size();
    Buffer<const void*> outer_pointers;
    outer_pointers = move(pointers_);
    pointers_.resize(size);
    const T* made = across(y, z, into);
    pointers_ = move(outer_pointers);
    return made;
  }

  // Input row (y, z), for output row out_y: loaded, and resampled where that comes first.
  const T* base_row(int64_t y, int64_t z, T* into, int64_t out_y) {
    const S* source = in_ + y * call_.y.in_stride + z * call_.z.in_stride;
    if (!horizontal_first_) return load(source, into);
    const T* row = load(source, loaded_.data());
    map_->run(map_, row, into, fetches_ && find_row_ahead(row, y, out_y) ? &ahead_ : nullptr);
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
    ahead_ = {reinterpret_cast<const uint8_t*>(row + (next - y) * call_.y.in_stride), in_length_ * kSize,
              call_.y.in_stride * kSize, 1};
    return ahead_.bytes() <= kFetched;
  }

  // The row as it lies in memory where that will do; else in `into`, which is readable_length_ long.
  POLYPHASE_ROW_LOOP const T* load(const S* source, T* into) {
    if (!source_dense_) source = gathered(source);
    if (!Prologue::kIdentity) {
      Prologue::row(source, into, in_length_, row_operands_);
      return into;
    }
    const T* values = reinterpret_cast<const T*>(source);
    const bool read_in_full = map_ != nullptr && (horizontal_first_ || (!vertical_ && !depth_));
    if (!source_dense_ || !read_in_full || readable_length_ == in_length_) return values;
    std::memcpy(into, values, in_length_ * kSize);
    return into;
  }

  const S* gathered(const S* source) {
    copy_pixels(source, call_.x.in_stride, call_.in_channel_stride, gathered_.data(), call_.channels, 1, call_.channels,
                call_.x.in_size);
    return gathered_.data();
  }

  void scatter(O* target) {
    copy_pixels(static_cast<const O*>(stored_.data()), call_.channels, 1, target, call_.x.out_stride,
                call_.out_channel_stride, call_.channels, call_.x.out_size);
  }

  // Fills what is border number `of_row`, or more by the row's own map; `stored`: only those that go around the epilogue.
  void put_borders(int32_t of_row, uint8_t* row, int64_t element, bool stored) {
    if (of_row > 0) put_border(of_row, 0, call_.x.out_size, row, element, stored);
    if (map_ == nullptr) return;
    for (int64_t b = 0; b < map_->border_count; ++b) {
      const BorderRun& run = map_->borders[b];
      if (run.number > of_row) put_border(run.number, run.begin, run.end, row, element, stored);
    }
  }

  void put_border(int32_t number, int64_t begin, int64_t end, uint8_t* row, int64_t element, bool stored) {
    if ((number >= call_.first_stored) != stored) return;
    const uint8_t* value = call_.borders + (number - 1) * call_.border_stride;
    const int64_t bytes = stored ? call_.stored_border_bytes : call_.border_bytes;
    uint8_t* out = row + begin * call_.channels * element;
    uint8_t* const stop = row + end * call_.channels * element;
    if (out == stop) return;
    std::memcpy(out, value, bytes);
    for (int64_t done = bytes; out + done < stop; done *= 2) {  // what is filled, doubled
      std::memcpy(out + done, out, min<int64_t>(done, stop - out - done));
    }
  }

  // Per-channel vectors of interleaved rows, once for every element of a row.
  void expand_vectors() {
    if (kPlain) return;
    row_operands_ = {};
    row_operands_.planar = call_.channel_axis >= 0;
    if (row_operands_.planar) return;
    for (int64_t v = 0; v < call_.vector_count; ++v) {
      const int64_t bytes = call_.channels * call_.vectors[v].element_bytes;
      const int64_t pixels = max(call_.x.in_size, call_.x.out_size);
      expanded_[v].resize(bytes * pixels);
      std::memcpy(expanded_[v].data(), call_.vectors[v].data, bytes);
      for (int64_t done = bytes; done < bytes * pixels; done *= 2) {  // what is there, doubled
        std::memcpy(expanded_[v].data() + done, expanded_[v].data(), min(done, bytes * pixels - done));
      }
      row_operands_.vectors[v] = expanded_[v].data();
      if ((Prologue::kDivisors | Epilogue::kDivisors) >> v & 1) expand_reciprocals(v, call_.channels * pixels);
    }
  }

  void expand_reciprocals(int64_t v, int64_t count) {
    reciprocals_[v].resize(count);
    const float* divisors = reinterpret_cast<const float*>(expanded_[v].data());
    for (int64_t i = 0; i < count; ++i) reciprocals_[v].data()[i] = reciprocal_of(divisors[i]);
    row_operands_.reciprocals[v] = reciprocals_[v].data();
  }

  void select_channel(int64_t channel) {
    if (kPlain) return;
    for (int64_t v = 0; v < call_.vector_count; ++v) {
      const Operand& vector = call_.vectors[v];
      row_operands_.vectors[v] = static_cast<const uint8_t*>(vector.data) + channel * vector.element_bytes;
    }
  }

  const RowOperands& operands(int64_t y, int64_t z) {
    for (int64_t t = 0; t < call_.tensor_count; ++t) {
      const Operand& tensor = call_.tensors[t];
      const int64_t offset = tensor_offsets_[t] + y * tensor.y_stride + z * tensor.z_stride;
      const uint8_t* row = static_cast<const uint8_t*>(tensor.data) + offset * tensor.element_bytes;
      row_operands_.tensors[t] = dense(tensor.x_stride, tensor.channel_stride, call_.x.out_size) ? row : gather_tensor(t, row);
    }
    return row_operands_;
  }

  const void* gather_tensor(int64_t t, const uint8_t* row) {
    const Operand& tensor = call_.tensors[t];
    const int64_t bytes = tensor.element_bytes;
    tensor_rows_[t].resize(out_length_ * bytes);
    uint8_t* out = tensor_rows_[t].data();
    for (int64_t x = 0; x < call_.x.out_size; ++x) {
      for (int64_t c = 0; c < call_.channels; ++c, out += bytes) {
        std::memcpy(out, row + (x * tensor.x_stride + c * tensor.channel_stride) * bytes, bytes);
      }
    }
    return tensor_rows_[t].data();
  }

  const Call& call_;
  const Sampler& sampler_;
  const RowMap* map_;
  int64_t in_length_;        // elements of a source row
  int64_t out_length_;       // elements of a target row
  int64_t readable_length_;  // elements the horizontal pass may read of a row
  int64_t summed_length_ = 0;  // elements of the rows that are summed
  bool source_dense_, target_dense_;
  bool far_;  // a plane of the source is no longer near if it was used a moment ago
  bool vertical_, depth_;
  bool horizontal_first_ = false;
  bool in_place_ = false;  // source rows are used where they lie
  bool fetches_ = false;   // rows that come first through the horizontal pass, while the one before them does
  bool by_tiles_ = false;  // vertical sums are made a tile at a time
  bool at_once_ = false;   // the vertical pass and the horizontal one after it

  const S* in_ = nullptr;
  O* out_ = nullptr;
  int32_t border_ = 0;
  int32_t filled_with_ = 0;  // the border that `filled_` is a row of
  int64_t depth_y_ = -1;  // vertical_rows_ are of this y
  int64_t tensor_offsets_[kMaxOperands] = {};
  RowOperands row_operands_ = {};
  Ahead ahead_ = {};
  const Ahead* later_ = nullptr;  // for the horizontal pass to fetch

  RowCache<T> base_rows_;      // rows the vertical pass sums
  RowCache<T> vertical_rows_;  // rows the depth pass sums
  Buffer<S> gathered_;
  Buffer<T> tile_rows_;
  Buffer<T> loaded_, summed_, sampled_;
  Buffer<O> stored_;
  Buffer<const void*> pointers_;
  Buffer<uint64_t> weights_;  // as the sampler packs them
  Buffer<uint8_t> filled_;
  Buffer<uint8_t> expanded_[kMaxOperands], tensor_rows_[kMaxOperands];
  Buffer<float> reciprocals_[kMaxOperands];
};

template <class Prologue, class Epilogue>
struct Resample {
  static void run(const Call& call) {
    int64_t rows = call.y.out_size * call.z.out_size;
    for (int64_t a = 0; a < call.outer_count; ++a) rows *= call.outer[a].out_size;
    const auto body = [](void* context, int64_t begin, int64_t end) {
      Worker<Prologue, Epilogue>(*static_cast<const Call*>(context)).run(begin, end);
    };
    call.parallel(rows, call.threads, body, const_cast<Call*>(&call));
  }

  static constexpr Kernel kernel() { return {run, sizeof(typename Prologue::To)}; }
};

}  // namespace polyphase
