// How the work of a call is cut among blocks, for each kernel.
#pragma once

#include "polyphase/launch/device_cases.h"
#include "polyphase/launch/device_tiles.h"

namespace polyphase::device {

// Shared memory of a block that lets a few blocks be resident, and what every GPU has.
constexpr int64_t kShared = 48 * 1024, kMostShared = 64 * 1024;
constexpr int64_t kMostBlocks = 65535;  // a GPU's limit: what is left beyond it, blocks do one after another
constexpr int64_t kLine = 128;          // bytes that a memory access takes, or hands out, at once

// `call.h` says what the last six are.
struct Cut {
  int64_t blocks[3];
  int64_t shared_bytes = 0;
  int64_t tiles = 1, strips = 1, tile = 0, strip = 0, span = 0, staged_rows = 0;
};

// `OutputRow` of rows.h.
inline int64_t output_row_bytes(int64_t weight_bytes) { return round_up(weight_bytes + 8); }

// `ByteOutputs` of byte_pairs.h.
inline int64_t looked_up_bytes(const Case& one, bool reads_tensors) {
  return one.to_bytes > 1 && !reads_tensors ? 256 * one.channels() * one.to_bytes : 0;
}

// Of byte_stage.h: pixels that a block makes, and that they may read.
inline int64_t tile_of(const Way& way) { return way.threads * way.constants[3]; }
inline int64_t staged_reach(const Way& way) {
  const int64_t kx = way.constants[0];
  return tile_of(way) * max<int64_t>(kx, 2) / 2 + kx + 1;
}

class Cutter {
 public:
  // reads_tensors: the epilogue does.
  Cutter(const Case& one, bool reads_tensors) : case_(one), geometry_(one.geometry), reads_tensors_(reads_tensors) {}

  Cut cut(const Way& way) const {
    switch (way.kernel) {
      case Kernel::kGeneral: return rows(way);
      case Kernel::kDirect: return direct(way);
      case Kernel::kRing: return ring(way);
      case Kernel::kShrink: return shrink(way);
      case Kernel::kByteWalk: return byte_walk(way);
      case Kernel::kByteStage:
      case Kernel::kByteStages: return byte_stage(way);
      case Kernel::kByteRing: return byte_ring(way);
      case Kernel::kByteTiles: return byte_tiles();
      case Kernel::kMoved: return moved(way);
    }
    refuse_windows();
  }

  TileLayout layout() const {
    constexpr int64_t kFacts = 320;  // bytes of facts of tiles
    const int64_t planes = case_.planes(), values = planes * case_.channels();
    const int64_t looked_up = case_.to_bytes > 1 ? 256 * values * case_.to_bytes : 0;
    return {planes, case_.channels(), kFacts + 16 * (values + 1) + looked_up, kTileRoom};
  }
  bool cut_into_tiles(TileCut& cut, int64_t& matrices, int64_t& shared_bytes) const {
    const auto matrices_of = [](const AxisTable& table) {
      return table.made() ? device::matrices_of(table.recipe()) : parts(table.reach(kGroup), kInputs);
    };
    const auto inputs = [](const AxisTable& table, int64_t count) {
      return table.made() ? most_inputs(table.recipe(), count) : table.reach(count);
    };
    const AxisTable &x = case_.x, &y = case_.y;
    matrices = max(matrices_of(x), matrices_of(y));
    return device::cut_into_tiles(
        layout(), matrices, x.out_size(), y.out_size(), [&](int64_t count) { return inputs(x, count); },
        [&](int64_t count) { return inputs(y, count); }, cut, shared_bytes);
  }

 private:
  Cut of(int64_t along, int64_t down) const {
    return {{along, min(down, kMostBlocks), min(case_.planes(), kMostBlocks)}};
  }
  Cut in_strips(int64_t tiles, int64_t strip, int64_t shared_bytes) const {
    const int64_t strips = parts(geometry_.y.out_size, strip);
    Cut cut = of(tiles, strips);
    cut.shared_bytes = shared_bytes;
    cut.tiles = tiles;
    cut.strips = strips;
    cut.strip = strip;
    return cut;
  }

  Cut rows(const Way& way) const {
    Cut cut = of(parts(case_.length(), way.threads), geometry_.y.out_size * geometry_.z.out_size);
    cut.tiles = cut.blocks[0];
    return cut;
  }
  Cut direct(const Way& way) const {
    Cut cut = of(parts(case_.length(), way.threads), parts(geometry_.y.out_size, way.constants[4]));
    cut.tiles = cut.blocks[0];
    return cut;
  }
  Cut ring(const Way& way) const {
    const int64_t ky = way.constants[1], columns = way.constants[2], strip = way.constants[way.count - 2];
    const int64_t shared = (strip + 1) * output_row_bytes(ky * (case_.program.work_bytes == 8 ? 8 : 4));
    return in_strips(parts(case_.length(), way.threads * columns), strip, shared);
  }
  int64_t bytes_of_rows(int64_t ky, int64_t strip) const { return strip * output_row_bytes(parts(ky, 4) * 8); }
  Cut byte_walk(const Way& way) const {
    const int64_t ky = way.constants[1], pixels = way.constants[3], strip = way.constants[way.count - 2];
    const int64_t shared = bytes_of_rows(ky, strip + 1) + looked_up_bytes(case_, reads_tensors_);
    return in_strips(parts(geometry_.x.out_size, way.threads * pixels), strip, shared);
  }
  Cut byte_stage(const Way& way) const {
    constexpr int64_t kAround = 15 + 6;  // of byte_stage.h
    const int64_t ky = way.constants[1], channels = way.constants[2], strip = way.constants[way.count - 2];
    const int64_t rows = way.constants[way.count - 4], buffers = way.constants[way.count - 3];
    const int64_t staged = rows * buffers * round_up(staged_reach(way) * channels + kAround);
    const int64_t shared = bytes_of_rows(ky, strip + 1) + looked_up_bytes(case_, reads_tensors_) + staged;
    return in_strips(parts(geometry_.x.out_size, tile_of(way)), strip, shared);
  }
  Cut shrink(const Way& way) const {
    const int64_t channels = geometry_.pixel.in_size, work = max<int64_t>(case_.program.work_bytes, 4);
    const int64_t rows = case_.y.reach(4);
    int64_t tile = way.tile, span, shared;
    for (;; tile /= 2) {
      span = round_up(case_.x.reach(tile) * channels + 3, 4);
      shared = work * (4 * span + 4 * rows + case_.x.taps() * tile) + 4 * tile;
      if (shared <= kShared || tile == 1) break;
    }
    Cut cut = in_strips(parts(geometry_.x.out_size, tile), way.strip, shared);
    cut.tile = tile;
    cut.span = span;
    cut.staged_rows = rows;
    return cut;
  }
  Cut byte_ring(const Way& way) const {
    const int64_t words = way.constants[0], ky = way.constants[1], channels = way.constants[2];
    const int64_t rows = way.constants[way.count - 3], strip = way.constants[way.count - 2];
    const int64_t pixels = way.threads / channels;
    // Windows begin at multiples of 4, and are read as far as the widest that the kernel has.
    const int64_t span = round_up(case_.x.reach(pixels) - case_.x.taps(), 4) + 4 * words;
    Cut cut = in_strips(parts(geometry_.x.out_size, pixels), strip, bytes_of_rows(ky, strip) + rows * channels * span);
    cut.tile = pixels;
    cut.span = span;
    return cut;
  }
  Cut byte_tiles() const {
    TileCut found;
    int64_t matrices, shared_bytes;
    if (!cut_into_tiles(found, matrices, shared_bytes)) refuse_windows();
    return {{found.tiles, 1, 1}, shared_bytes, found.tiles, found.along, found.tile, found.strip, found.span, found.staged_rows};
  }
  Cut moved(const Way& way) const {
    const int64_t columns = way.constants[0], groups = parts(case_.length(), columns);
    // Long pieces of a row, but few threads without a group: the greatest power of two that leaves an eighth of them at most,
    // or else as few as can be.
    int64_t least = 0, fewest = 0, power = 0;
    while ((int64_t{2} << least) <= kLine / (columns * case_.to_bytes)) ++least;
    const auto threads = [&](int64_t p) { return parts(groups, int64_t{1} << p) << p; };
    for (int64_t p = least; (int64_t{1} << p) <= way.threads; ++p) fewest = p == least ? threads(p) : min(fewest, threads(p));
    const int64_t enough = max(groups + groups / 8, fewest);
    for (int64_t p = least; (int64_t{1} << p) <= way.threads; ++p) power = threads(p) <= enough ? p : power;
    const int64_t tiles = parts(groups, int64_t{1} << power), strips = parts(geometry_.y.out_size, way.strip);
    Cut cut = of(tiles, parts(strips, way.threads >> power));
    cut.tiles = tiles;
    cut.strips = strips;
    cut.tile = power;
    cut.strip = way.strip;
    cut.span = geometry_.x.in_size * geometry_.pixel.in_size;
    return cut;
  }

  const Case& case_;
  const Geometry& geometry_;
  const bool reads_tensors_;
};

}  // namespace polyphase::device
