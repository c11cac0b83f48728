// Taps of pixels that have all of them at hand, read from the image or from shared memory, and what they add up to.
#pragma once

#include "polyphase/cuda/vectors.h"
#include "polyphase/cuda/warp_box.h"
#include "polyphase/cuda/warp_tile.h"

namespace polyphase {

// How the channels of a pixel lie that are fetched together: apart, side by side, or as one vector.
enum Channels { kInPlanes, kInPixels, kInVectors };

// Where a pixel's taps begin, and what leads from a row of them to the next. `turned`: the second row comes first.
template <class Places>
struct Start {
  Places first, down;
  bool turned;
};

// Two pixels of three channels, side by side. Pairs of words that begin at a multiple of 8 bytes are read at once, so that four
// loads read them all: two pairs, the last word, and either the first word or the last but one.
template <class Word>
struct SixWords {
  Word items[6];

  static SixWords fetched_from(const Word* from) {
    using Pair = Vector<Word, 2>;
    const bool is_odd = reinterpret_cast<uint64_t>(from) % sizeof(Pair) != 0;
    const Pair* const pairs = reinterpret_cast<const Pair*>(from + is_odd);
    const Pair a = fetched(pairs), b = fetched(pairs + 1);
    const Word alone = fetched(from + (is_odd ? 0 : 4)), last = fetched(from + 5);
    if (is_odd) return {{alone, a.items[0], a.items[1], b.items[0], b.items[1], last}};
    return {{a.items[0], a.items[1], b.items[0], b.items[1], alone, last}};
  }
};

// Taps from the image itself, of kGroup channels at a time.
template <class Kernel, int kGroup>
struct FromImage {
  using P = typename Kernel::P;
  using From = typename Kernel::From;
  using Offset = typename Kernel::Offset;
  using Taps = InnerTaps<typename Kernel::Filter, P>;
  static constexpr int kChannelsAtOnce = kGroup;
  // Of the two taps in a row, where coordinates are read too: there loads are what takes longest.
  static constexpr bool kSixWords = Kernel::kReadsCoordinates && Kernel::kPixels > 1 && Kernel::kChannels == kInPixels &&
                                    kGroup == 3 && Kernel::kStep == 3 && Kernel::kTaps == 2 && sizeof(From) == 4;

  TilePlace<Kernel> place;

  bool has(const P (&at)[Kernel::kAxes]) const {
    bool inside = true;
#pragma unroll
    for (int a = 0; a < Kernel::kAxes; ++a) inside = inside & Taps::exist(at[a], P(0), place.tile.axes[a].last);
    return inside;
  }

  // Whether no tap of a pixel is inside. Of a position that is no finite number, taps are none.
  bool misses(const P (&at)[Kernel::kAxes]) const {
    bool outside = false, finite = true;
#pragma unroll
    for (int a = 0; a < Kernel::kAxes; ++a) {
      outside = outside | Taps::miss(at[a], place.tile.axes[a].last);
      finite = finite & (at[a] - at[a] == 0);
    }
    return outside & finite;
  }

  Start<Offset> start(const Taps (&taps)[Kernel::kAxes]) const {
    const ImageStrides& s = place.call.image_strides;
    const auto down = static_cast<Offset>(s.y);
    Offset first = taps[0].first * step() + taps[1].first * down;
    if (Kernel::kAxes == 3) first += taps[Kernel::kAxes - 1].first * static_cast<Offset>(s.z);
    const bool turned = Kernel::kByTurns && taps[1].first % 2 != 0;
    return {turned ? first + down : first, turned ? -down : down, turned};
  }

  // Of a pixel's taps in the channels from c on.
  void fetch(int64_t c, const Start<Offset>& start, From (&read)[kGroup][Kernel::kCount]) const {
    const ImageStrides& s = place.call.image_strides;
    const From* from = place.image(c);
    constexpr int kTaps = Kernel::kTaps;
#pragma unroll
    for (int line = 0; line < Kernel::kDeep * kTaps; ++line) {
      Offset offset = start.first + line % kTaps * start.down;
      if (Kernel::kAxes == 3) offset += line / kTaps * static_cast<Offset>(s.z);
      if constexpr (kSixWords) {
        const auto row = SixWords<From>::fetched_from(element(from, offset));
#pragma unroll
        for (int i = 0; i < 6; ++i) read[i % 3][line * kTaps + i / 3] = row.items[i];
        continue;
      }
#pragma unroll
      for (int x = 0; x < kTaps; ++x) {
        const int k = line * kTaps + x;
        if constexpr (Kernel::kChannels == kInVectors && kGroup > 1) {
          const auto values = fetched(reinterpret_cast<const Vector<From, kGroup>*>(element(from, offset) + x * step()));
#pragma unroll
          for (int t = 0; t < kGroup; ++t) read[t][k] = values.items[t];
        } else {
#pragma unroll
          for (int t = 0; t < kGroup; ++t) {
            read[t][k] = fetched(element(from + t * (Kernel::kChannels == kInPlanes ? s.channel : 1), offset) + x * step());
          }
        }
      }
    }
  }

  Offset step() const { return Kernel::kStep > 0 ? Kernel::kStep : static_cast<Offset>(place.call.image_strides.x); }
};

// Taps from shared memory, where the channels are that are asked for.
template <class Kernel, int kGroup>
struct FromBox {
  using P = typename Kernel::P;
  using From = typename Kernel::From;
  using Box = typename Kernel::Box;
  using Taps = InnerTaps<typename Kernel::Filter, P>;
  static constexpr int kChannelsAtOnce = kGroup;

  Box box;

  bool has(const P (&at)[Kernel::kAxes]) const {
    const PixelRange ranges[] = {box.x, box.y};
    bool inside = true;
#pragma unroll
    for (int a = 0; a < 2; ++a) {
      inside = inside & Taps::exist(at[a], static_cast<P>(ranges[a].first), static_cast<P>(ranges[a].last));
    }
    return inside;
  }

  bool misses(const P (&)[Kernel::kAxes]) const { return false; }  // a box has what lies outside too

  Start<int32_t> start(const Taps (&taps)[Kernel::kAxes]) const { return {box.place(taps[0].first, taps[1].first), 0, false}; }

  void fetch(int64_t, const Start<int32_t>& start, From (&read)[kGroup][Kernel::kCount]) const {
#pragma unroll
    for (int k = 0; k < Kernel::kCount; ++k) {
#pragma unroll
      for (int t = 0; t < kGroup; ++t) {
        read[t][k] = box.data[start.first + Box::offset(k % Kernel::kTaps, k / Kernel::kTaps, t)];
      }
    }
  }
};

// Along x, then y, then z. value(k): of tap k; where rows are `turned`, of the first two the second comes first.
template <class Kernel, class AxisTaps, class Read>
inline typename Kernel::Value tap_sum(const AxisTaps (&taps)[Kernel::kAxes], bool turned, const Read& value) {
  using Value = typename Kernel::Value;
  constexpr int kAxes = Kernel::kAxes, kTaps = Kernel::kTaps;
  if constexpr (!Kernel::kWeighted) {
    return value(0);
  } else {
    Value result = 0;
#pragma unroll
    for (int z = 0; z < Kernel::kDeep; ++z) {
      Value of_row[kTaps] = {}, of_plane = 0;
#pragma unroll
      for (int y = 0; y < kTaps; ++y) {
#pragma unroll
        for (int x = 0; x < kTaps; ++x) {
          of_row[y] = multiply_add(taps[0].weight[x], value((z * kTaps + y) * kTaps + x), of_row[y]);
        }
      }
      if (Kernel::kByTurns && turned) swap(of_row[0], of_row[1]);
#pragma unroll
      for (int y = 0; y < kTaps; ++y) of_plane = multiply_add(taps[1].weight[y], of_row[y], of_plane);
      result = kAxes == 3 ? multiply_add(taps[kAxes - 1].weight[z], of_plane, result) : of_plane;
    }
    return result;
  }
}

}  // namespace polyphase
