// Kernels that serve many sizes: a call has one of them until a kernel of its own is worth a build.
//
// A call's own kernel (`device_ways.h`) is made for just the taps and the rows that it has, so that nearly every new size would
// build one. Those here have one of few numbers of taps, and nothing else that follows from a size alone; wider windows hold
// weights of 0. Each gives the bits that the call's own kernel gives.
#pragma once

#include "polyphase/launch/device_ways.h"

namespace polyphase::device {

// From one to the next, windows are not much wider than they need to be.
constexpr int64_t kServed[] = {2, 4, 6, 8, 12, 16, 24, 32, 48, 64};
constexpr int64_t kMostFetched = 96;  // inputs that a thread of `direct.h` may fetch at once, in registers
// Inputs that `general.h` reads in all, of a call that it is to do instead: it takes a few milliseconds at the most.
constexpr int64_t kMostByGeneral = 1 << 27;

// The ways that can do a call in the stead of its own: the best first, the one that serves most sizes last. None of a large
// call whose own way serves many sizes.
class Servers {
 public:
  static constexpr int kMost = 2;

  Servers(const Case& one, bool reads_tensors, const Way& own)
      : case_(one.of_sizes()), ways_(case_, reads_tensors), own_(own) {
    find_closest();
    if (own.is(Kernel::kGeneral)) return;
    const int64_t inputs = case_.outputs() * read_by(case_.x) * read_by(case_.y) * read_by(case_.z);
    if (inputs <= kMostByGeneral) found_[count_++] = ways_.general();
  }

  int count() const { return count_; }
  const Way& operator[](int i) const { return found_[i]; }

 private:
  void add(const Way& way) {
    if (!(way == own_)) found_[count_++] = way;
  }

  void find_closest() {
    const int64_t kx = taps_of(case_.x), ky = taps_of(case_.y);
    switch (own_.kernel) {
      case Kernel::kMoved: return add(ways_.moved());
      case Kernel::kShrink: return add(ways_.shrink());
      case Kernel::kDirect: return find_direct(kx);
      case Kernel::kRing: return kx > 0 && ky > 0 ? add(ways_.ring(kx, ky)) : void();
      case Kernel::kByteWalk: return kx > 0 && ky > 0 ? add(ways_.byte_walk(kx, ky)) : void();
      case Kernel::kByteStage: return kx > 0 && ky > 0 ? add(ways_.byte_stage(kx, ky)) : void();
      case Kernel::kByteRing: {
        if (kx == 0 || ky == 0) return;
        const Way way = ways_.byte_ring((kx + 6) / 4, ky);
        return ways_.fits(way) ? add(way) : void();
      }
      default: return;
    }
  }
  void find_direct(int64_t kx) {
    const int64_t most = kMostFetched * 4 / max<int64_t>(case_.program.work_bytes, 4);
    const int64_t rows_in = case_.y.there() ? case_.y.in_size() : case_.geometry.y.out_size;
    for (int64_t rows = case_.y.made() ? 1 : kMostRows; rows > 0; rows -= kMostRows - 1) {  // as many, or one
      const int64_t ky = at_least(ways_.reach_of_rows(rows), rows_in);
      if (kx > 0 && ky > 0 && kx * ky <= (rows > 1 ? kDirectRegisters : most)) return add(ways_.direct(kx, ky, rows));
    }
  }

  static int64_t read_by(const AxisTable& table) { return table.there() && !table.listed() ? table.taps() : 1; }
  // Of windows; 0 where the axis is too short for as many.
  static int64_t taps_of(const AxisTable& table) { return table.there() ? at_least(table.taps(), table.in_size()) : 1; }
  static int64_t at_least(int64_t taps, int64_t in_size) {
    for (const int64_t one : kServed) {
      if (one >= taps) return one <= in_size ? one : 0;
    }
    return 0;
  }

  const Case case_;
  const Ways ways_;
  const Way own_;
  Way found_[kMost];
  int count_ = 0;
};

}  // namespace polyphase::device
