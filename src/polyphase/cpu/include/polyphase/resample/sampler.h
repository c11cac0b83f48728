// A sampler: what is done to values of one type, whatever the program around them. A library of its own, built once: a
// program's kernel is then the driver and its arithmetic. There are FloatSampler, QuantisedSampler (uint8 with 16 bit
// weights) and MovingSampler.
#pragma once

#include "polyphase/core/abi.h"
#include "polyphase/core/buffer.h"
#include "polyphase/resample/ahead.h"
#include "polyphase/resample/moved_rows.h"
#include "polyphase/taps/weights.h"

namespace polyphase {

template <class Rows>
class RowTables : public RowMap {
 public:
  RowTables(const Taps& taps, int64_t wanted, int64_t pixel, int64_t element_bytes)
      : RowMap(), lanes_(taps, wanted, pixel, element_bytes) {
    run = [](const RowMap* map, const void* in, void* out, const Ahead* ahead) {
      lanes(map).run(static_cast<const T*>(in), static_cast<T*>(out), ahead);
    };
    run_rows = [](const RowMap* map, const MovedRows& rows) {
      if constexpr (Rows::kSums) {
        run_each(map, rows);
      } else {
        lanes(map).run_rows(rows);
      }
    };
    if constexpr (Rows::kAnyOrder && Rows::kSums) {
      sums_all = lanes_.sums_all();
      if (lanes_.sums_rows()) {
        run_sum = [](const RowMap* map, const void* const* rows, const void* packed, int taps, void* out,
                     const Ahead* ahead) {
          Rows::run_sum(lanes(map), reinterpret_cast<const T* const*>(rows), packed, taps, static_cast<T*>(out), ahead);
        };
      }
    }
    if constexpr (!Rows::kAnyOrder) {
      if (lanes_.goes_together()) {
        run_together = [](const RowMap* map, const void* const* in, void* const* out, int rows) {
          lanes(map).run(reinterpret_cast<const T* const*>(in), reinterpret_cast<T* const*>(out), rows);
        };
      }
    }
    find_borders(taps);
    find_pixels_read(taps);
    channels = lanes_.channels();
    readable_length = lanes_.readable_length();
    borders = borders_.data();
    border_count = borders_.size();
    weighted = Rows::kSums;
    fetches = lanes_.fetches();
  }

  int64_t bytes() const { return static_cast<int64_t>(sizeof(*this) + lanes_.bytes()) + borders_.bytes(); }

 private:
  using T = typename Rows::Value;

  static const typename Rows::Lanes& lanes(const RowMap* map) { return static_cast<const RowTables*>(map)->lanes_; }

  static void run_each(const RowMap* map, const MovedRows& rows) {
    const int64_t step = map->run_together != nullptr ? kMostTogether : 1;
    for (int64_t r = 0; r < rows.count; r += step) {
      if (step == 1) {
        map->run(map, rows.source(r), rows.target(r), nullptr);
        continue;
      }
      const void* in[kMostTogether];
      void* out[kMostTogether];
      const int count = static_cast<int>(min(step, rows.count - r));
      for (int i = 0; i < count; ++i) in[i] = rows.source(r + i), out[i] = rows.target(r + i);
      map->run_together(map, in, out, count);
    }
  }

  void find_pixels_read(const Taps& taps) {
    first_read = taps.in_size, end_read = 0;
    for (int64_t x = 0; x < taps.out_size; ++x) {
      if (taps.begin[x] == taps.begin[x + 1]) continue;
      first_read = min<int64_t>(first_read, taps.index[taps.begin[x]]);
      end_read = max<int64_t>(end_read, taps.index[taps.begin[x + 1] - 1] + 1);
    }
    first_read = min(first_read, end_read);
  }

  void find_borders(const Taps& taps) {
    for (int64_t x = 0; taps.border != nullptr && x < taps.out_size; ++x) {
      if (taps.border[x] == 0) continue;
      if (borders_.size() > 0 && borders_.back().end == x && borders_.back().number == taps.border[x]) {
        borders_.back().end = x + 1;
      } else {
        borders_.push_back({x, x + 1, taps.border[x]});
      }
    }
  }

  typename Rows::Lanes lanes_;
  Buffer<BorderRun> borders_;
};

template <class Rows>
constexpr Sampler sampler() {
  using T = typename Rows::Value;
  using Tables = RowTables<Rows>;
  Sampler s = {};
  if constexpr (Rows::kSums) s.weigh = Weights<Rows::kArithmetic>::weigh;
  s.prepare = [](const Taps& taps, int64_t channels, int64_t pixel, int64_t element_bytes, int64_t* bytes) -> const RowMap* {
    const auto* tables = new Tables(taps, channels, pixel, element_bytes);
    *bytes = tables->bytes();
    return tables;
  };
  s.release = [](const RowMap* map) { delete static_cast<const Tables*>(map); };
  s.pack = Rows::pack;
  s.sum = [](const void* const* rows, const void* packed, int taps, int precision, void* out, int64_t length,
             const Ahead* ahead) {
    Rows::sum(reinterpret_cast<const T* const*>(rows), packed, taps, precision, static_cast<T*>(out), length, ahead);
  };
  s.any_order = Rows::kAnyOrder;
  s.nearest_in_double = Rows::kFindsNearest == TapArithmetic::kFloat64;
  return s;
}

}  // namespace polyphase
