// Many calls of one kernel in one launch: a table of them lies on the device, and every block reads the one it is of.
#pragma once

#include "polyphase/cuda/block.h"
#include "polyphase/cuda/warp_call.h"

namespace polyphase {

// As `cuda/calls.py` packs it. planes: of the blocks from plane to plane, how many are of one call.
template <class Call>
struct Batch {
  const Call* calls;
  int64_t planes;
};

// One whose calls are cut into tiles, which blocks take one after another, of all calls: a list of them lies before the calls.
struct TileOfCall {
  int32_t call, number;
};
template <class Call>
struct TiledBatch {
  Global<const Call> calls;
  int64_t tiles;

  const TileOfCall* tile(int number) const { return reinterpret_cast<const TileOfCall*>(calls.known()) + (number - tiles); }
};

// A table that was made on the device has its precision there, before its first row.
inline void settle(Axis& axis) {
  if (axis.precision < 0) axis.precision = axis.first[-kBeforeTable];
}
inline void settle(MapsCall& call) {
  settle(call.x);
  settle(call.y);
}
inline void settle(WarpCall&) {}

// There are as many blocks for every call as the largest one needs. Its call, a block has in shared memory: in registers it
// would take too many.
template <class Run, class Call>
inline void run_one_of(const Batch<Call>& batch, Block block) {
  const auto planes = static_cast<int>(batch.planes);
  const int number = block.place_.z / planes;
  block.place_.z -= number * planes;
  block.count_.z = planes;
  Call& call = *reinterpret_cast<Call*>(block.shared());
  block.each_thread([&](int thread) {
    for (int i = thread; i < static_cast<int>(sizeof(Call) / 8); i += block.threads()) {
      reinterpret_cast<uint64_t*>(&call)[i] = reinterpret_cast<const uint64_t*>(batch.calls + number)[i];
    }
  });
  if (block.place_.x >= call.tiles) return;
  block.each_thread([&](int thread) {
    if (thread == 0) settle(call);
  });
  block.use((sizeof(Call) + 15) / 16 * 16);
  Run::run(call, block);
}

}  // namespace polyphase
