// Rows of bytes that are on their way to shared memory while those before them are read.
#pragma once

#include "polyphase/cuda/block.h"
#include "polyphase/cuda/places.h"

namespace polyphase {

// 16 bytes, from and to multiples of 16. They are there for the thread that asked for them when `arrived` has returned, and
// for the others behind a barrier.
struct Piece {
  static constexpr int kBytes = 16;

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  static void copy(const uint8_t* from, uint8_t* to) {
    const auto at = static_cast<uint32_t>(__cvta_generic_to_shared(to));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at), "l"(from) : "memory");
  }
  static void copy_eight(const void* from, void* to) {
    const auto at = static_cast<uint32_t>(__cvta_generic_to_shared(to));
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(at), "l"(from) : "memory");
  }
  // What was asked for so far is a group. All but the latest kLater groups have arrived.
  static void end_group() { asm volatile("cp.async.commit_group;" ::: "memory"); }
  template <int kLater>
  static void arrived() {
    asm volatile("cp.async.wait_group %0;" ::"n"(kLater) : "memory");
  }
#else
  static void copy(const uint8_t* from, uint8_t* to) {
    struct alignas(16) Words {
      uint32_t items[4];
    };
    *reinterpret_cast<Words*>(to) = *reinterpret_cast<const Words*>(from);
  }
  static void copy_eight(const void* from, void* to) { *static_cast<uint64_t*>(to) = *static_cast<const uint64_t*>(from); }
  static void end_group() {}
  template <int kLater>
  static void arrived() {}
#endif
};

// A part of every row of a plane, the same bytes of each.
struct RowBytes {
  const uint8_t* first;  // byte of row 0
  int64_t step;          // from row to row
  int length;
  const uint8_t *begin, *end;  // of all rows: what may be read

  // Bytes of a row's first piece that lie before it.
  int lead(int row) const {
    return (static_cast<int>(reinterpret_cast<uintptr_t>(first)) + row * static_cast<int>(step)) & (Piece::kBytes - 1);
  }
};

// kRows rows at a time, of at most kSpan bytes with what lies before them; kBuffers times as many are in shared memory, read
// or on their way.
template <int kRows, int kBuffers, int kSpan, int kThreads>
class StagedRows {
 public:
  static_assert(kSpan % Piece::kBytes == 0, "rows are whole pieces");

  StagedRows(uint8_t* shared, const RowBytes& rows) : shared_(shared), rows_(rows) {}

  // Of group `number`, of rows [row, row + kRows) but for those from `end` on, the thread's share.
  void fetch(int number, int row, int end, int thread) const {
    uint8_t* const to = buffer(number);
#pragma unroll
    for (int i = 0; i < kPieces; i += kThreads) {
      const int piece = i + thread;
      if (i + kThreads > kPieces && piece >= kPieces) break;
      const int r = piece / kPiecesOfRow;
      if (row + r < end) fetch_piece(row + r, (piece - r * kPiecesOfRow) * Piece::kBytes, to + piece * Piece::kBytes);
    }
    Piece::end_group();
  }

  // Before a barrier behind which group `number` is read, where those up to `number` + kBuffers - 2 were asked for.
  static void await() { Piece::arrived<kBuffers - 2>(); }

  // Where the first pieces of its rows lie, kSpan apart.
  const uint8_t* group(int number) const { return buffer(number); }

 private:
  static constexpr int kPiecesOfRow = kSpan / Piece::kBytes, kPieces = kRows * kPiecesOfRow;

  uint8_t* buffer(int number) const { return shared_ + number % kBuffers * (kRows * kSpan); }

  // The piece of a row from byte `at` on. That of the first row may begin before what may be read, that of the last end
  // behind it.
  void fetch_piece(int row, int at, uint8_t* to) const {
    const int lead = rows_.lead(row);
    if (at >= lead + rows_.length) return;
    const uint8_t* const from = rows_.first + row * rows_.step + (at - lead);
    if (from >= rows_.begin && from + Piece::kBytes <= rows_.end) {
      Piece::copy(from, to);
    } else {
      copy_within(from, to);
    }
  }

  // Those bytes of a piece that may be read, and 0 for others.
  void copy_within(const uint8_t* from, uint8_t* to) const {
#pragma unroll 1
    for (int i = 0; i < Piece::kBytes; ++i) to[i] = from + i >= rows_.begin && from + i < rows_.end ? from[i] : 0;
  }

  uint8_t* shared_;
  const RowBytes rows_;
};

}  // namespace polyphase
