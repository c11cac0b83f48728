// What a constant pad leaves around an image: runs of a row, and whole rows, that are a value of their own.
//
// Borders are numbered from 1. Where two meet, the higher number is what one sees: it was put on later.
#pragma once

#include "polyphase/core/abi.h"
#include "polyphase/resample/spaced.h"

namespace polyphase {

class Borders {
 public:
  // Some go through the epilogue with the pixels; the others are put on what is stored.
  enum When { kBeforeEpilogue, kAroundEpilogue };

  explicit Borders(const MapsCall& call) : call_(call), map_(call.row_map) {}

  // Whether there are any in a row of border number `of_row`, which is 0 for a row of the image.
  bool has(int32_t of_row) const { return of_row > 0 || (map_ != nullptr && map_->border_count > 0); }

  // put(number, begin, end) for what such a row is, and for what is more by the row's own map.
  template <class Put>
  void each(int32_t of_row, const Put& put) const {
    if (of_row > 0) put(of_row, 0, call_.x.out_size);
    for (int64_t b = 0; map_ != nullptr && b < map_->border_count; ++b) {
      const BorderRun& run = map_->borders[b];
      if (run.number > of_row) put(run.number, run.begin, run.end);
    }
  }

  template <class T>
  void put_all(int32_t of_row, T* row, When when) const {
    each(of_row, [&](int32_t number, int64_t begin, int64_t end) {
      if (when_of(number) == when) put(number, begin, end, reinterpret_cast<uint8_t*>(row), sizeof(T));
    });
  }

  // On pixels begin to end of a row, whose elements have so many bytes.
  void put(int32_t number, int64_t begin, int64_t end, uint8_t* row, int64_t element) const {
    const uint8_t* value = call_.borders + (number - 1) * call_.border_stride;
    const int64_t bytes = when_of(number) == kAroundEpilogue ? call_.stored_border_bytes : call_.border_bytes;
    uint8_t* out = row + begin * call_.channels * element;
    uint8_t* const stop = row + end * call_.channels * element;
    if (out != stop) fill_repeating(out, stop - out, value, bytes);
  }

 private:
  When when_of(int32_t number) const { return number >= call_.first_stored ? kAroundEpilogue : kBeforeEpilogue; }

  const MapsCall& call_;
  const RowMap* map_;
};

}  // namespace polyphase
