// Memory for what is read at random: large pieces lie on huge pages where the system has them, which
// saves most of the address translation that such reads otherwise wait for.
#pragma once

#include <cstdlib>
#include <new>

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include "types.hpp"

namespace dovecote {

inline constexpr std::size_t kHugePage = std::size_t{2} << 20;

//: Allocator of the standard's kind. From half a huge page on it takes whole ones.
template <typename T>
struct PageAllocator {
  using value_type = T;

  PageAllocator() = default;
  template <typename U>
  PageAllocator(const PageAllocator<U>&) {}

  static bool is_large(std::size_t bytes) { return bytes >= kHugePage / 2; }
  // How many values fit the memory that `count` of them get.
  static std::size_t fill(std::size_t count) {
    const std::size_t bytes = count * sizeof(T);
    return is_large(bytes) ? (bytes + kHugePage - 1) / kHugePage * kHugePage / sizeof(T) : count;
  }

  T* allocate(std::size_t count) {
    const std::size_t bytes = fill(count) * sizeof(T);
    void* memory = is_large(bytes) ? std::aligned_alloc(kHugePage, bytes) : std::malloc(bytes);
    if (memory == nullptr) throw std::bad_alloc();
#if defined(__linux__)
    if (is_large(bytes)) madvise(memory, bytes, MADV_HUGEPAGE);
#endif
    return static_cast<T*>(memory);
  }
  void deallocate(T* memory, std::size_t) { std::free(memory); }
  bool operator==(const PageAllocator&) const { return true; }
};

}  // namespace dovecote
