// Large pages for a large output: memory that is written for the first time is given by the system page by page, which
// takes as long as writing it, and a page of 2 MB at a time it takes half of that.
#pragma once

#include <sys/mman.h>

#include <cstdint>

namespace polyphase {

constexpr int64_t kHugePage = int64_t{2} << 20;
inline bool uses_huge_pages = true;  // POLYPHASE_HUGE_PAGES

// Asks for them inside of memory that is about to be written, so that no page reaches beyond it. A system that cannot give
// them says no, which changes nothing; nor does asking where the memory was written before.
inline void ask_for_huge_pages(void* memory, int64_t bytes) {
#ifdef MADV_HUGEPAGE
  if (!uses_huge_pages || bytes < 2 * kHugePage) return;  // else it may hold none that is aligned
  const uintptr_t begin = (reinterpret_cast<uintptr_t>(memory) + kHugePage - 1) / kHugePage * kHugePage;
  const uintptr_t end = (reinterpret_cast<uintptr_t>(memory) + bytes) / kHugePage * kHugePage;
  madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
#else
  (void)memory, (void)bytes;
#endif
}

}  // namespace polyphase
