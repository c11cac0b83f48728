// A block of threads, on the device and on the host.
//
// A kernel's body is a driver that is the same for all threads of its block; what one thread does stands in functions
// handed to `each_thread`, which ends with a barrier. On the host a block is a loop over its threads, forwards or
// backwards: where both give the same bits, threads do not race.
#pragma once

#include <cstdint>

namespace polyphase {

// Blocks are numbered along rows (x), down a plane (y), and from plane to plane (z). There are enough of them along x, but for
// those that take tiles (`Way.tiled`); along the others a block may have to do what more would do.
struct Triple {
  int x, y, z;
};

#ifdef __CUDACC__

extern __shared__ uint4 shared_memory[];

struct Block {
  // Where the device can, a kernel is begun before those launched before it have ended: what they write, and what it writes
  // itself, is not to be touched before this. The next is let begin only then: kernels that wait for more than the one before
  // them would take the place of blocks that have work to do.
  explicit Block(bool lets_next_begin) {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
    if (lets_next_begin) asm volatile("griddepcontrol.launch_dependents;");
#endif
  }

  Triple place_ = {int(blockIdx.x), int(blockIdx.y), int(blockIdx.z)};
  Triple count_ = {int(gridDim.x), int(gridDim.y), int(gridDim.z)};

  int used_ = 0;  // of shared memory, before what a kernel's body has

  Triple place() const { return place_; }
  Triple count() const { return count_; }
  uint8_t* shared() const { return reinterpret_cast<uint8_t*>(shared_memory) + used_; }
  void use(int bytes) { used_ += bytes; }
  int threads() const { return static_cast<int>(blockDim.x); }

  // kLast: the block has nothing more to do, and its threads need not wait for each other.
  template <bool kLast = false, class Function>
  void each_thread(const Function& function) const {
    function(static_cast<int>(threadIdx.x));
    if constexpr (!kLast) __syncthreads();
  }
};

#else

struct Block {
  Triple place_, count_;
  uint8_t* shared_;
  int threads_;
  bool backwards_;

  Triple place() const { return place_; }
  Triple count() const { return count_; }
  uint8_t* shared() const { return shared_; }
  void use(int bytes) { shared_ += bytes; }
  int threads() const { return threads_; }

  template <bool kLast = false, class Function>
  void each_thread(const Function& function) const {
    for (int t = 0; t < threads_; ++t) function(backwards_ ? threads_ - 1 - t : t);
  }
};

#endif

// What lies in shared memory is read where it is used: kept in registers from before a loop, it would only be in the way, and
// go to slower memory.
inline void read_again() {
#ifdef __CUDACC__
  asm volatile("" ::: "memory");
#endif
}

// A number that is kept in a register: one that is quickly computed would be computed again wherever it is used.
inline int32_t held(int32_t number) {
#ifdef __CUDACC__
  asm("" : "+r"(number));
#endif
  return number;
}

// What every thread keeps for itself between barriers.
template <class State, int kThreads>
class States {
 public:
#ifdef __CUDACC__
  State& of(int) { return own_; }

 private:
  State own_;
#else
  State& of(int thread) { return all_[thread]; }

 private:
  State all_[kThreads];
#endif
};

// function(y, plane) for all that is a block's to do, of `down` parts of each of so many planes.
template <class Function>
inline void each_part(const Block& block, int64_t down, int64_t planes, const Function& function) {
  for (int64_t plane = block.place().z; plane < planes; plane += block.count().z) {
    for (int64_t y = block.place().y; y < down; y += block.count().y) function(y, plane);
  }
}

// What a block makes: part y of a plane.
template <class Number>
struct Turn {
  Number y, plane;
};

// Planes one after the other, each of so many parts; as turns where `group` parts of all planes are made before those further
// down. Number: has room for all parts of all planes.
template <class Number>
inline Turn<Number> in_groups(const Turn<Number>& at, Number down, Number planes, Number group) {
  if (group >= down) return at;
  const Number number = at.y + down * at.plane, first = number / (group * planes) * group;
  const Number rest = number - first * planes, count = group < down - first ? group : down - first;
  return {first + rest % count, rest / count};
}

}  // namespace polyphase
