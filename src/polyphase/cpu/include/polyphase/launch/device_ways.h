// Which kernel does a call of axis maps, by geometry alone. `docs/tuning-cuda.md` has the measurements behind the numbers.
#pragma once

#include "polyphase/launch/device_cuts.h"

namespace polyphase::device {

constexpr int64_t kMostRowsMoved = int64_t{1} << 30;  // which a kernel counts in 32 bits
// Bytes from row to row, of rows that are walked along, and of all that a strip reads: they are counted in 32 bits.
constexpr int64_t kMostBetweenRows = 1 << 22, kMostWalked = int64_t{1} << 32;
// Rows that a strip of byte_walk.h makes, and that it reads ahead.
constexpr int64_t kWalkedRows = 32, kWalkedAhead = 2;
constexpr int64_t kMostAtOnce = 64;  // taps, of both axes together, that one thread fetches at once
constexpr int64_t kMostRows = 4, kMostInRing = 8, kMostInByteRing = 64, kFewTaps = 4;
// Registers that a thread has for inputs that are fetched ahead; for rows that were summed along x; and of byte_walk.h.
constexpr int64_t kDirectRegisters = 48, kAheadRegisters = 36, kMostAheadRegisters = 56, kMostAhead = 8;
constexpr int64_t kRingRegisters = 24, kWalkRegisters = 40;

class Ways {
 public:
  Ways(const Case& one, bool reads_tensors) : case_(one), reads_tensors_(reads_tensors), cutter_(one, reads_tensors) {}

  // The kernel of a call's own: most are made for numbers of taps and for how rows lie.
  Way own() const {
    const Program& program = case_.program;
    if (program.weighted == 0) {
      const bool fits = !case_.z.there() && fits_in_row(case_) && case_.geometry.y.out_size < kMostRowsMoved;
      return fits ? moved() : general();
    }
    const bool by_windows = !case_.x.listed() && !case_.y.listed() && !case_.z.there();
    if (!by_windows || !fits_in_row(case_)) return general();
    const int64_t kx = case_.taps_x(), ky = case_.taps_y();
    if (kx * ky <= kMostAtOnce && case_.outputs() < program.few_outputs) return direct_by_registers(kx);
    if (case_.y.there() && !(case_.y.ascends() || case_.y.descends())) return general();
    if (max(kx, ky) <= kMostInRing) return can_walk_bytes() ? bytes_by_few_taps(kx, ky) : ring(kx, ky);
    if (can_shrink()) return shrink();
    const bool few = max(kx, ky) <= kMostInByteRing && case_.channels() <= 4;
    if (program.sums_bytes == 0 || !all_in_order(case_) || !few) return general();
    const Way way = byte_ring(case_.x.words_in_fours(), ky);
    return fits(way) ? way : general();
  }

  Way general() const {
    Way way = Way(Kernel::kGeneral, 128, 1).of(case_.program.weighted != 0, case_.bordered, int64_t{128});
    way.moved_bytes = moved_bytes();
    return way;
  }

  // ky: of the window that so many rows have together.
  Way direct(int64_t kx, int64_t ky, int64_t rows) const {
    const int64_t channels = case_.channels() <= 4 ? case_.channels() : 0;
    const int64_t resident = (ky * kx * case_.wide() <= kDirectRegisters ? 640 : 512) / 64;  // what more registers allow
    return Way(Kernel::kDirect, 64, resident).of(kx, ky, channels, step(), rows, case_.bordered, int64_t{64});
  }

  Way ring(int64_t kx, int64_t ky) const {
    // Where images grow, there are more outputs to store than rows to wait for.
    const bool grows = case_.grows();
    int64_t columns = grows ? 8 : max<int64_t>(1, 8 / max<int64_t>(case_.from_bytes, 4));
    while (columns > 1 && !fits_pixels(columns)) columns /= 2;
    const bool pixel = columns > 1;
    if (!pixel) columns = max<int64_t>(1, min<int64_t>(grows ? 4 : 2, (grows ? 16 : 8) / case_.largest_element()));
    const int64_t few = few_rows(ky);
    const auto fits_registers = [&] {
      const bool fits = columns * ky * case_.wide() <= kRingRegisters;
      return fits && few * row_registers(kx, columns, pixel) <= kMostAheadRegisters;
    };
    while (columns > 1 && !fits_registers()) columns /= 2;
    return ring_of(kx, ky, columns, pixel && columns > 1);
  }

  // By so many columns.
  Way ring_by(int64_t kx, int64_t ky, int64_t columns) const { return ring_of(kx, ky, columns, columns > 1 && fits_pixels(columns)); }
  // pixel: columns are channels of one.
  Way ring_of(int64_t kx, int64_t ky, int64_t columns, bool pixel) const {
    const Together together = shared(pixel ? 1 : columns);
    const int64_t row = row_registers(kx, columns, pixel), few = few_rows(ky);
    int64_t ahead = rows_ahead(ky, row);
    ahead = max(ahead, few * row <= kMostAheadRegisters ? few : 1);
    const bool deep = ahead > ky;
    const int64_t threads = pixel && case_.from_bytes > 2 ? 128 : 64;
    int64_t strip = pixel || deep ? 64 : 32;  // each begins with waiting for what is fetched ahead
    if (case_.outputs() < 2 * case_.program.many_threads * columns * strip && !case_.varies) strip = 16;
    const bool few_registers = kx * ky * case_.wide() <= 4 && !pixel && !deep;
    return Way(Kernel::kRing, threads, (few_registers ? 640 : 512) / threads)
        .of(kx, ky, columns, pixel, together.firsts, together.edge, together.count, step(), stores(columns), ahead, case_.bordered,
            strip, threads);
  }

  // at_once: as all calls allow.
  Way shrink(bool at_once, bool bordered) const {
    Way way = Way(Kernel::kShrink, 128, 1).of(at_once, bordered, int64_t{128});
    way.tile = case_.channels() == 1 ? 112 : max<int64_t>(1, 224 / case_.channels());
    way.strip = 4;
    return way;
  }
  Way shrink() const { return shrink(shrinks_at_once(), case_.bordered); }
  bool shrinks_at_once() const {
    const int64_t row = case_.geometry.x.in_size * case_.geometry.pixel.in_size;
    return row % 4 == 0 && rows_are_multiples(case_, 4) && !case_.varies;
  }
  bool can_shrink() const {
    const bool sums_floats = case_.program.weighted != 0 && case_.program.sums_bytes == 0;
    const bool ordered = sums_floats && !case_.z.there() && all_in_order(case_);
    return ordered && case_.row_is_dense() && fits_in_row(case_) && fits(shrink());
  }

  bool can_walk_bytes() const {
    const Program& program = case_.program;
    if (program.sums_bytes == 0 || program.loads_as_is == 0) return false;
    const bool fits = case_.row_is_dense() && case_.channels() <= 4 && case_.geometry.y.in_stride < kMostBetweenRows;
    return fits && strips_are_short();
  }
  Way byte_walk(int64_t kx, int64_t ky) const {
    const int64_t channels = case_.channels(), pixels = channels == 1 ? 2 : 1, threads = channels == 1 ? 64 : 128;
    const bool aligned = by_words(case_) && case_.geometry.x.in_size * channels % 4 == 0 && !case_.varies;
    const int64_t words = (kx * channels + 6) / 4;
    const int64_t ahead = max<int64_t>(1, min(kWalkedAhead, kWalkRegisters / (words * pixels)));
    const int64_t resident = max(kx, ky) <= kFewTaps ? 1024 : 768;  // threads: wider windows take more registers
    return Way(Kernel::kByteWalk, threads, resident / threads)
        .of(kx, ky, channels, pixels, aligned, stores(pixels * channels), ahead, case_.bordered, kWalkedRows, threads);
  }
  // stores: as all calls allow.
  Way byte_stage(int64_t kx, int64_t ky, int64_t stores, bool bordered, Kernel kernel = Kernel::kByteStage) const {
    const int64_t channels = case_.channels(), threads = 128, rows = 8, buffers = 2, strip = 32;
    return Way(kernel, threads, 768 / threads)
        .of(kx, ky, channels, pixels_of_stage(), stores, bordered, rows, buffers, strip, threads);
  }
  Way byte_stage(int64_t kx, int64_t ky) const { return byte_stage(kx, ky, stage_stores(), case_.bordered); }
  int64_t stage_stores() const { return stores(pixels_of_stage() * case_.channels()); }
  // words: of a window along x; reads_words: as all calls allow.
  Way byte_ring(int64_t words, int64_t ky, bool reads_words, bool bordered) const {
    const int64_t channels = case_.channels(), rows = 16, strip = 16, threads = channels == 1 ? 256 : 128;
    return Way(Kernel::kByteRing, threads, channels == 1 ? 4 : 6)
        .of(words, ky, channels, reads_words, bordered, rows, strip, threads);
  }
  Way byte_ring(int64_t words, int64_t ky) const { return byte_ring(words, ky, by_words(case_), case_.bordered); }

  Way moved() const {
    const int64_t from = case_.from_bytes, size = case_.largest_element(), most = from == 1 ? 16 : 8;
    int64_t columns = case_.output_is_dense() ? max<int64_t>(1, min(most, 16 / size)) : 1;
    while (columns > 1 && stores_of(case_, columns, false) != kAtOnce) columns /= 2;
    // The less a thread reads of a row, the more rows, or threads, have to be on their way.
    int64_t rows = from == 1 ? 2 : from == 2 ? 8 : 4, strip = from == 1 ? 8 : 16, resident = from == 2 ? 2 : 4;
    if (columns * size <= 8) {
      rows = columns >= 8 ? 4 : 8;
      strip = 16;
      resident = columns == 1 && size <= 4 ? 6 : 4;
    }
    if (case_.bordered || case_.program.moves == 0) {  // which takes registers
      rows = min<int64_t>(rows, 4);
      resident = min<int64_t>(resident, 4);
    }
    int64_t threads = 256;
    const int64_t outputs = case_.varies ? int64_t{1} << 62 : case_.outputs();
    if (outputs < case_.program.few_outputs) {
      threads /= 2;
      resident *= 2;
    }
    static constexpr int64_t kLeast[][2] = {{2, 16}, {2, 8}, {1, 8}, {1, 4}};  // rows of a strip, and bytes of a row
    const auto are_few = [&] { return outputs < case_.program.many_threads * columns * strip; };
    for (const auto& least : kLeast) {
      while (strip > least[0] && are_few()) strip /= 2;
      while (columns > 1 && columns * size > least[1] && are_few()) columns /= 2;
    }
    int64_t begin = 0, along = 1;
    const bool goes = !case_.x.there() || case_.x.goes_along(begin, along);
    const bool lies_so = goes && (along == 1 || (along == -1 && case_.channels() == 1));
    const bool several = columns > 1 && from <= 4 && columns * from >= 4;
    const bool by_words = several && case_.row_is_dense() && row_bytes_in(case_) < int64_t{1} << 29;
    const bool runs = by_words && (lies_so || (!goes && from == 1)), computed = goes && !case_.y.there();
    Way way = Way(Kernel::kMoved, threads, resident)
                  .of(columns, case_.output_is_dense(), computed, runs, min(rows, strip), case_.bordered, threads);
    way.moved_bytes = moved_bytes();
    way.strip = strip;
    return way;
  }

  bool fits(const Way& way) const { return cutter_.cut(way).shared_bytes <= kMostShared; }
  // Of rows that are summed together.
  int64_t reach_of_rows(int64_t rows) const {
    return case_.y.there() ? case_.y.reach_of_groups(rows) : min(rows, case_.geometry.y.out_size);
  }
  const Case& of() const { return case_; }
  bool reads_tensors() const { return reads_tensors_; }
  const Cutter& cutter() const { return cutter_; }

 private:
  // kFirsts, kEdge and kTogether of ring.h.
  struct Together {
    int64_t firsts, edge, count;
  };

  int64_t moved_bytes() const { return case_.program.moves != 0 ? case_.from_bytes : 0; }
  int64_t stores(int64_t columns) const { return stores_of(case_, columns, case_.varies); }
  int64_t pixels_of_stage() const { return case_.channels() == 1 ? 2 : 1; }
  // Small ones are known to the kernel, so that they are parts of addresses.
  int64_t step() const {
    const int64_t step = case_.geometry.x.in_stride;
    return 1 <= step && step <= 4 ? step : 0;
  }

  Way direct_by_registers(int64_t kx) const {
    int64_t rows = case_.y.made() ? 1 : kMostRows;  // each has a window of its own
    while (rows > 1 && reach_of_rows(rows) * kx * case_.wide() > kDirectRegisters) --rows;
    return direct(kx, reach_of_rows(rows), rows);
  }

  // That can be fetched ahead.
  static int64_t few_rows(int64_t ky) { return ky % 2 == 0 ? 2 : ky; }
  // Elements of 16 bits are half as much on their way: more rows of them than the ring has.
  int64_t rows_ahead(int64_t ky, int64_t row) const {
    int64_t ahead = 0;
    const auto take = [&](int64_t rows) {
      if (rows * row <= kAheadRegisters && rows <= kMostAhead) ahead = max(ahead, rows);
    };
    for (int64_t rows = 1; rows <= ky; ++rows) {
      if (ky % rows == 0) take(rows);
    }
    if (case_.grows() && case_.from_bytes <= 2) {
      take(2 * ky);
      take(4 * ky);
    }
    return max<int64_t>(ahead, 1);
  }

  // That hold what a thread reads of a row: `Inputs` of ring.h.
  int64_t row_registers(int64_t kx, int64_t columns, bool pixel) const {
    // Of elements that are read at once. Where images shrink, so much else is kept that words do not count.
    const auto registers = [&](int64_t count) {
      const bool in_words = case_.from_bytes > 4 || (case_.grows() && count * case_.from_bytes % 4 == 0);
      return in_words ? count * case_.from_bytes / 4 : count;
    };
    if (pixel) return kx * registers(columns);
    InStep found;
    if (!in_step(columns, found)) return columns * kx * registers(1);
    const int64_t inner = found.inputs - 2 * found.edge, together = shared(columns).count;
    return inner / together * registers(together) + 2 * found.edge * registers(1);
  }
  // False where it is not to be known: it follows from a size.
  bool in_step(int64_t columns, InStep& found) const {
    const bool known = columns > 1 && case_.channels() == 1 && !case_.varies;
    return known && case_.x.lies_in_step(columns, found);
  }
  Together shared(int64_t columns) const {
    InStep found;
    if (!in_step(columns, found)) return {-1, 0, 1};
    int64_t together = 16 / case_.from_bytes;
    const int64_t inner = found.inputs - 2 * found.edge;
    const auto lies_so = [&] {
      const bool fits = inner % together == 0 && found.multiple % together == 0;
      return case_.row_is_dense() && fits && rows_are_multiples(case_, together);
    };
    while (together > 1 && !lies_so()) together /= 2;
    return {found.firsts, found.edge, together};
  }

  // Whether so many channels of a pixel can be read at once.
  bool fits_pixels(int64_t columns) const {
    const Dimension &pixel = case_.geometry.pixel, &x = case_.geometry.x;
    const int64_t bytes = columns * case_.from_bytes;
    const bool lie_so = bytes <= 16 && pixel.in_size % columns == 0 && pixel.in_stride == 1;
    const bool begin_so = (x.in_size <= 1 || x.in_stride % columns == 0) && rows_begin_at(case_, columns);
    return lie_so && begin_so && case_.source_alignment % bytes == 0;
  }

  // Whether the rows that a strip reads extend over few enough bytes: where windows are not antialiased, as many rows may lie
  // between them as an image has.
  bool strips_are_short() const {
    const Dimension& y = case_.geometry.y;
    if (y.in_stride * (y.in_size + kWalkedAhead) < kMostWalked) return true;
    const int64_t rows = case_.y.there() ? case_.y.reach(kWalkedRows) : kWalkedRows;
    return y.in_stride * (rows + kWalkedAhead) < kMostWalked;
  }

  // Where there are few threads for what memory could bring meanwhile, it is brought ahead of them, if their windows lie near
  // each other.
  Way bytes_by_few_taps(int64_t kx, int64_t ky) const {
    const Way way = byte_stage(kx, ky);
    const bool near = case_.x.there() && case_.x.reach(tile_of(way)) <= staged_reach(way);
    return near && case_.outputs() < case_.program.few_to_walk ? way : byte_walk(kx, ky);
  }

  const Case& case_;
  const bool reads_tensors_;
  const Cutter cutter_;
};

}  // namespace polyphase::device
