// Bytes through windows of few taps by products of matrices, for many images of several sizes: blocks take tile after tile
// of them, of all planes of an image. What that reads is brought to shared memory at once, with the weights of its outputs. A
// warp makes 16 x 16 outputs at a time: sums along x, which are rounded to bytes, and sums of those along y.
#pragma once

#include "polyphase/cuda/byte_pairs.h"
#include "polyphase/cuda/tile_facts.h"

namespace polyphase {

// kPlanes: of kChannels channels each, which lie side by side, as pixels do; one of both is 1. kFours: four neighbouring
// outputs are stored at once. Of the call, tiles are all of an image and strips those along a row; tile and strip are groups
// of outputs in one, along x and down y, and taps the matrices of a group; span and staged_rows: bytes and rows of a plane in
// shared memory. `tiles.py` has the same.
template <class Load, class Store, int kPlanes, int kChannels, bool kFours, int kThreads>
struct ByteTiles {
  static_assert(Load::kIsIdentity, "bytes are summed as they lie in memory");
  static_assert(kPlanes == 1 || kChannels == 1, "a value is looked up by its plane or by its channel");
  using To = typename Store::To;
  using Outputs = ByteOutputs<Store, kChannels>;
  static constexpr int kWarps = kThreads / kLanes, kValues = kPlanes * kChannels;

  using Facts = TileFacts<kChannels, kThreads>;
  using Tile = typename Facts::Tile;

  static void run(const TiledBatch<MapsCall>& batch, const Block& block) {
    const Facts facts(batch, block, block.shared());
    const Shared shared(block.shared() + Facts::bytes());
    facts.begin(block);
#pragma unroll 1
    for (int turn = 0; facts.is_there(turn); ++turn) {
      const MapsCall& call = facts.call(turn);
      const Tile& tile = facts.tile(turn);
      block.each_thread([&](int thread) {
        shared.fetch_weights(call, tile, thread);
        fetch(call, tile, shared.rows(call, tile), thread);
        Piece::end_group();
        if (turn == 0) shared.begin(thread);
        if (tile.has_new_values) shared.look_up(call, thread);
        Piece::arrived<0>();
      });
      block.template each_thread<true>([&](int thread) {
        if (thread >= kThreads - kLanes) facts.go_on(turn, thread - (kThreads - kLanes));
      });
      each_warp(block, [&](int warp) {
        static_assert(kMostUnits == 2, "items are of the first unit, or of the second");
#pragma unroll 1
        for (int item = warp; item < tile.groups.columns * tile.groups.units; item += kWarps) {
          const int unit = item >= tile.groups.columns ? 1 : 0, column = item - unit * tile.groups.columns;
          if (call.x.taps == 1) {
            make<1>(call, shared, tile, column, unit);
          } else {
            make<2>(call, shared, tile, column, unit);
          }
        }
        Piece::arrived<0>();
      });
    }
  }

 private:
  // Of a block, behind facts: what sums begin with, outputs by bytes, weights along x and y, and rows.
  struct Shared {
    Four* starts;  // of every plane, or channel, and of sums along x
    To* outputs;
    uint8_t* weights;

    explicit Shared(uint8_t* memory) {
      starts = reinterpret_cast<Four*>(memory);
      outputs = reinterpret_cast<To*>(starts + kValues + 1);
      weights = reinterpret_cast<uint8_t*>(outputs + kPlanes * Outputs::kSize);
    }

    uint8_t* rows(const MapsCall& call, const Tile& of) const {
      return weights + Tile::weight_bytes(call, of.groups.columns + of.groups.units);
    }

    // Sums are rounded by a half, and have the number of their outputs behind them: a whole one tells where its is.
    void begin(int thread) const {
      if (thread > kValues) return;
      const uint32_t start = 32768u + (thread < kValues ? static_cast<uint32_t>(thread) << 24 : 0);
      starts[thread] = {{start, start, start, start}};
    }

    void look_up(const MapsCall& call, int thread) const {
#pragma unroll
      for (int p = 0; p < kPlanes; ++p) {
        Outputs::template fill<kThreads>(call, plane_place(call, p), outputs + p * Outputs::kSize, thread);
      }
    }

    void fetch_weights(const MapsCall& call, const Tile& of, int thread) const {
      const int along = Tile::weight_bytes(call, of.groups.columns), all = along + Tile::weight_bytes(call, of.groups.units);
      const uint8_t *const x = global(of.weights_along), *const y = global(of.weights_down) - along;
#pragma unroll 1
      for (int i = thread * Piece::kBytes; i < all; i += kThreads * Piece::kBytes) {
        Piece::copy((i < along ? x : y) + i, weights + i);
      }
    }
  };

  // ---- rows to shared memory: eight pieces of a row by neighbouring threads, and more rows by others

  static constexpr int kAcross = 8, kDown = kThreads / kAcross, kWide = kAcross * Piece::kBytes;
  static_assert(kDown % Piece::kBytes == 0, "a thread's rows begin alike in their pieces");

  static void fetch(const MapsCall& call, const Tile& tile, uint8_t* to, int thread) {
    if (tile.inside) {
      fetch<true>(call, tile, to, thread);
    } else {
      fetch<false>(call, tile, to, thread);
    }
  }

  template <bool kInside>
  static void fetch(const MapsCall& call, const Tile& tile, uint8_t* to, int thread) {
    const int row = thread / kAcross, column = thread % kAcross * Piece::kBytes;
    const auto step = static_cast<int>(call.y.in_stride), span = static_cast<int>(call.span);
    const int64_t to_next = call.outer[0].in_stride;
    const int staged = static_cast<int>(call.staged_rows) * span, length = tile.length, rows = tile.rows - row;
    const uint8_t* begin = global(tile.from) + int64_t(row) * step;
    to += row * span;
#pragma unroll 1
    for (int p = 0; p < kPlanes; ++p) {
      const int lead = static_cast<int>(reinterpret_cast<uintptr_t>(begin)) & (Piece::kBytes - 1);
#pragma unroll 1
      for (int at = column; at < lead + length; at += kWide) {
        if constexpr (kInside) {
          fetch_rows(begin + (at - lead), to + at, rows, step, span);
        } else {
          fetch_within(plane_of(call, p), begin + (at - lead), to + at, rows, step, span);
        }
      }
      begin += to_next;
      to += staged;
    }
  }

  // A piece of every kDown-th of so many rows.
  static void fetch_rows(const uint8_t* from, uint8_t* to, int rows, int step, int span) {
    constexpr int kUnrolled = 4;
    const int64_t far = int64_t(kDown) * step;
#pragma unroll 1
    for (; rows > 0; rows -= kUnrolled * kDown) {
#pragma unroll
      for (int k = 0; k < kUnrolled; ++k) {
        if (k * kDown < rows) Piece::copy(from, to);
        from += far;
        to += kDown * span;
      }
    }
  }

  struct Bytes {
    const uint8_t *begin, *end;
  };

  static Bytes plane_of(const MapsCall& call, int p) {
    const uint8_t* const begin = static_cast<const uint8_t*>(call.source) + (call.source_origin + p * call.outer[0].in_stride);
    return {begin, begin + Tile::plane_bytes(call)};
  }

  // The same where pieces of the first row may begin before what may be read, or those of the last end behind it.
  static void fetch_within(const Bytes& plane, const uint8_t* from, uint8_t* to, int rows, int step, int span) {
#pragma unroll 1
    for (; rows > 0; rows -= kDown, from += int64_t(kDown) * step, to += kDown * span) {
      if (from >= plane.begin && from + Piece::kBytes <= plane.end) {
        Piece::copy(from, to);
        continue;
      }
#pragma unroll 1
      for (int i = 0; i < Piece::kBytes; ++i) to[i] = from + i >= plane.begin && from + i < plane.end ? from[i] : 0;
    }
  }

  // ---- 16 x 16 outputs of every plane

  // Bytes of each channel, as products want them; of two words each.
  using Columns = Lanes<uint32_t>[kChannels][2];

  template <int kMatrices>
  static void make(const MapsCall& call, const Shared& shared, const Tile& tile, int column, int unit) {
    const uint8_t* const of_columns = shared.weights + column * kMatrices * WeightMatrix::kBytes;
    const uint8_t* const of_rows = shared.weights + (tile.groups.columns + unit) * kMatrices * WeightMatrix::kBytes;
    Lanes<Weights> along[kMatrices];
    Lanes<To*> to;
    Lanes<int> wide, high;  // outputs inside the image, from the lane's own on
    each_lane([&](int lane) {
#pragma unroll
      for (int m = 0; m < kMatrices; ++m) along[m].of(lane) = Weights::at(of_columns + m * WeightMatrix::kBytes, lane);
      const int x = (tile.groups.column + column) * kGroup + lane % 4 * 4, y = (tile.groups.unit + unit) * kGroup + lane / 4;
      to.of(lane) = static_cast<To*>(call.target) + (call.target_origin + y * call.y.out_stride + x);
      wide.of(lane) = static_cast<int>(call.x.out_size) - x;
      high.of(lane) = static_cast<int>(call.y.out_size) - y;
    });
    const uint8_t* staged = shared.rows(call, tile);
    const auto step = static_cast<int>(call.y.in_stride), span = static_cast<int>(call.span);
    auto low = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(tile.from));  // of which four bits count
#pragma unroll 1
    for (int p = 0; p < kPlanes; ++p) {
      Lanes<uint32_t> columns[kChannels][2][kMatrices][2];
      sum_along_x<kMatrices>(along, {staged, low, step, span, tile.begins[column], tile.tops[unit], tile.ends[unit]},
                             shared.starts[kValues], columns);
#pragma unroll
      for (int c = 0; c < kChannels; ++c) {
        Lanes<Sums> sums[2];
        const Four start = shared.starts[kChannels == 1 ? p : c];
        sum<kMatrices, true, 0>(sums, of_rows, columns[c], start);
        if constexpr (kMatrices > 1) sum<kMatrices, false, 1>(sums, of_rows, columns[c], start);
        each_lane([&](int lane) {
          To* const own = global(to.of(lane)) + (kChannels > 1 ? c * call.out_channel_stride : 0);
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            Vector<To, 4> out;
#pragma unroll
            for (int k = 0; k < 4; ++k) out.items[k] = output(call, shared, p, c, sums[k / 2].of(lane)[2 * half + k % 2]);
            if (high.of(lane) > 8 * half) store(own + 8 * half * call.y.out_stride, out, wide.of(lane));
          }
        });
      }
      staged += static_cast<int>(call.staged_rows) * span;
      low += static_cast<uint32_t>(call.outer[0].in_stride);
      each_lane([&](int lane) { to.of(lane) += call.outer[0].out_stride; });
    }
  }

  // Rows of a plane in shared memory, and which of them are summed: bytes from `begin` on, of rows [top, end).
  struct Staged {
    const uint8_t* rows;
    uint32_t low;
    int step, span;
    int begin, top, end;
  };

  // Into bytes of columns, by matrix along y, and of two words each: rows 16 * i to 16 * i + 15 of the image make word i.
  template <int kMatrices>
  static void sum_along_x(Lanes<Weights> (&along)[kMatrices], const Staged& of, const Four& start,
                          Lanes<uint32_t> (&columns)[kChannels][2][kMatrices][2]) {
    Lanes<const uint8_t*> from[2];
    Lanes<uint32_t> shift[2];
    each_lane([&](int lane) {
#pragma unroll
      for (int eight = 0; eight < 2; ++eight) {
        const int row = of.top + eight * 8 + lane / 4;
        const auto lead = static_cast<int>((of.low + row * of.step) & (Piece::kBytes - 1));
        const int byte = row * of.span + lead + of.begin + lane % 4 * (8 * kChannels);
        from[eight].of(lane) = of.rows + (byte & ~3);
        shift[eight].of(lane) = 8 * static_cast<uint32_t>(byte);
      }
    });
#pragma unroll
    for (int i = 0; i < 2 * kMatrices; ++i) {
      if (i > 0 && of.top + 16 * i >= of.end) {  // weights of what follows are 0
        each_lane([&](int lane) {
#pragma unroll
          for (int c = 0; c < kChannels; ++c) columns[c][0][i / 2][i % 2].of(lane) = columns[c][1][i / 2][i % 2].of(lane) = 0;
        });
        continue;
      }
      Lanes<Sums> sums[2][kChannels];
#pragma unroll
      for (int eight = 0; eight < 2; ++eight) {
        Columns bytes;
        read(from[eight], shift[eight], 0, bytes);
#pragma unroll
        for (int c = 0; c < kChannels; ++c) multiply<true>(sums[eight][c], along[0], bytes[c], start);
        if constexpr (kMatrices > 1) {
          read(from[eight], shift[eight], kInputs * kChannels, bytes);
#pragma unroll
          for (int c = 0; c < kChannels; ++c) multiply<false>(sums[eight][c], along[1], bytes[c], start);
        }
      }
      each_lane([&](int lane) {
#pragma unroll
        for (int eight = 0; eight < 2; ++eight) from[eight].of(lane) += 16 * of.span;
#pragma unroll
        for (int c = 0; c < kChannels; ++c) {
          const Sums &upper = sums[0][c].of(lane), &lower = sums[1][c].of(lane);
#pragma unroll
          for (int k = 0; k < 2; ++k) {
            const uint32_t one = four_of<2, 6, 2, 6>(upper[2 * k], upper[2 * k + 1]);
            const uint32_t other = four_of<2, 6, 2, 6>(lower[2 * k], lower[2 * k + 1]);
            columns[c][k][i / 2][i % 2].of(lane) = four_of<0, 1, 4, 5>(one, other);
          }
        }
      });
    }
  }

  // Of eight rows, eight pixels of each lane.
  static void read(Lanes<const uint8_t*>& from, Lanes<uint32_t>& shift, int at, Columns& bytes) {
    each_lane([&](int lane) {
      const auto* const words = reinterpret_cast<const uint32_t*>(from.of(lane) + at);
      uint32_t shifted[2 * kChannels];
#pragma unroll
      for (int w = 0; w < 2 * kChannels; ++w) shifted[w] = from_byte(words[w], words[w + 1], shift.of(lane));
#pragma unroll
      for (int w = 0; w < 2; ++w) {
        uint32_t four[kChannels];
        apart(shifted + w * kChannels, four);
#pragma unroll
        for (int c = 0; c < kChannels; ++c) bytes[c][w].of(lane) = four[c];
      }
    });
  }

  // Along y, by one of the matrices.
  template <int kMatrices, bool kFirst, int kMatrix>
  static void sum(Lanes<Sums> (&sums)[2], const uint8_t* of_rows, Lanes<uint32_t> (&columns)[2][kMatrices][2],
                  const Four& start) {
    Lanes<Weights> down;
    each_lane([&](int lane) { down.of(lane) = Weights::at(of_rows + kMatrix * WeightMatrix::kBytes, lane); });
#pragma unroll
    for (int k = 0; k < 2; ++k) multiply<kFirst>(sums[k], down, columns[k][kMatrix], start);
  }

  static To output(const MapsCall& call, const Shared& shared, int p, int c, uint32_t sum) {
    if constexpr (Outputs::kLookedUp) return shared.outputs[sum >> 16];
    return byte_output<Store, false>(call, plane_place(call, p), {0, c}, 0, static_cast<int32_t>(sum >> 16 & 255));
  }

  static void store(To* to, const Vector<To, 4>& out, int wide) {
    if constexpr (kFours) {
      if (wide > 0) store_once(reinterpret_cast<Vector<To, 4>*>(to), out);
    } else {
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        if (k < wide) to[k] = out.items[k];
      }
    }
  }
};

}  // namespace polyphase
