// One kernel for calls of one plan, of several sizes.
#pragma once

#include "polyphase/launch/device_ways.h"

namespace polyphase::device {

class BatchWays {
 public:
  // At least one.
  explicit BatchWays(const Buffer<const Ways*>& calls) : calls_(calls), first_(*calls[0]), case_(first_.of()) {}

  // What is not summed has the way of the first.
  Way chosen() const {
    const auto has_tiles = [](const Ways& one) {
      const Case& of = one.of();
      return all_in_order(of) && !of.z.there() && fits_in_row(of) && one.can_walk_bytes() && fits_tiles(one);
    };
    const bool same = all([&](const Ways& one) {
      return one.of().planes() == case_.planes() && one.of().channels() == case_.channels();
    });
    return case_.program.weighted != 0 && same && all(has_tiles) ? tiles() : by_windows();
  }

  // The one that the widest windows among them need, by few numbers of taps, as builds take long.
  Way by_windows() const {
    if (case_.program.weighted == 0) return first_.own();
    const bool in_order = all([](const Ways& one) { return all_in_order(one.of()) && !one.of().z.there() && fits_in_row(one.of()); });
    const bool same = all([&](const Ways& one) { return one.of().channels() == case_.channels(); });
    if (!in_order || !same) return general();
    if (all([](const Ways& one) { return one.can_shrink(); })) {
      return first_.shrink(all([](const Ways& one) { return one.shrinks_at_once(); }), bordered());
    }
    int64_t most = 0, least = kMostInByteRing;  // which is all that is asked of axes' lengths
    for (const Ways* one : calls_) {
      const AxisTable &x = one->of().x, &y = one->of().y;
      most = max(most, max(x.taps(), y.taps()));
      least = min(least, min(x.in_size(), y.in_size()));
    }
    int64_t taps = kFewTaps;
    while (taps < most) taps *= 2;
    const bool bytes = all([](const Ways& one) { return one.of().program.sums_bytes != 0; });
    if (!bytes || taps > kMostInByteRing || taps > least || case_.channels() > 4) return general();
    if (taps <= kMostInRing && all([](const Ways& one) { return one.can_walk_bytes(); })) {
      return first_.byte_stage(taps, taps, stores(), bordered(), taps == kFewTaps ? Kernel::kByteStage : Kernel::kByteStages);
    }
    const bool words = all([](const Ways& one) { return by_words(one.of()); });
    const Way way = first_.byte_ring((taps + 6) / 4, taps, words, bordered());
    return all([&](const Ways& one) { return one.fits(way); }) ? way : general();
  }

  // Of a call that walks over bytes, by tables along x and y.
  static bool fits_tiles(const Ways& one) {
    constexpr int64_t kMostChannels = 4;  // values of a byte are looked up by the channel, which is one of few
    const Case& of = one.of();
    const Geometry& geometry = of.geometry;
    if (of.bordered || one.reads_tensors() || geometry.outer.size() > 1) return false;
    if (geometry.outer.size() == 1 && geometry.outer[0].mapped()) return false;
    if (of.planes() * of.channels() > kMostChannels || geometry.x.out_stride != 1 || geometry.z.out_size != 1) return false;
    if (!of.x.there() || !of.y.there() || !of.x.can_be_matrices() || !of.y.can_be_matrices()) return false;
    TileCut cut;
    int64_t matrices, shared_bytes;
    return one.cutter().cut_into_tiles(cut, matrices, shared_bytes);
  }

 private:
  template <class Holds>
  bool all(const Holds& holds) const {
    for (const Ways* one : calls_) {
      if (!holds(*one)) return false;
    }
    return true;
  }
  bool bordered() const { return !all([](const Ways& one) { return !one.of().bordered; }); }
  int64_t stores() const {
    int64_t stores = kAtOnce;
    for (const Ways* one : calls_) stores = min(stores, one->stage_stores());
    return stores;
  }
  Way general() const {
    Way way = first_.general();
    way.constants[1] = bordered();
    return way;
  }

  Way tiles() const {
    // Threads of a block, and of a multiprocessor that has few registers for each: a pixel's channels take more.
    const int64_t threads = 128, resident = case_.channels() == 1 ? 640 : 512;
    const bool in_fours = all([](const Ways& one) { return stores_fours(one.of()); });
    return Way(Kernel::kByteTiles, threads, resident / threads).of(case_.planes(), case_.channels(), in_fours, threads);
  }
  // Whether four neighbouring outputs can be stored at once.
  static bool stores_fours(const Case& of) {
    const Dimension& pixel = of.geometry.pixel;
    const bool aligned = of.target_alignment % (4 * of.to_bytes) == 0 && (pixel.out_size <= 1 || pixel.out_stride % 4 == 0);
    const Dimension& y = of.geometry.y;
    const bool rows = y.out_size <= 1 || y.out_stride % 4 == 0;
    const Dimensions& outer = of.geometry.outer;
    const bool planes = outer.size() == 0 || outer[0].out_size <= 1 || outer[0].out_stride % 4 == 0;
    return aligned && rows && planes && of.geometry.x.out_size % 4 == 0 && of.to_bytes <= 4;
  }

  const Buffer<const Ways*>& calls_;
  const Ways& first_;
  const Case& case_;
};

}  // namespace polyphase::device
