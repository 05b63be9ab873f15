// Words of the index: small names for the numbers that everything else passes around.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace dovecote {

//: An engine's own name for a block, as one number: integers as they are, bytes by their hash.
using Name = std::uint64_t;
//: Canonical hash of a block: its tokens and all before it.
using Place = std::uint64_t;
//: Number of a block in the tree.
using NodeId = std::uint32_t;
//: One bit of residency: a holder's group in a tier, or what a holder has in all its full groups.
using Slot = std::uint32_t;
//: Number of an interned set of slots; 0 is the empty one.
using SetId = std::uint32_t;

//: Node numbers fit 27 bits, so that a map's entry keeps copy counts beside one.
inline constexpr NodeId kNoNode = (1u << 27) - 1;
inline constexpr NodeId kMaxNodes = kNoNode - 1;
inline constexpr Slot kNoSlot = ~0u;

//: Where a block's bytes lie, slowest last.
enum Tier : std::uint8_t { kDevice, kHost, kDisk, kExternal, kNoTier };
inline constexpr std::size_t kTiers = 4;

//: Limits on what comes from outside, as in wire.dialects.
inline constexpr std::size_t kMaxHashes = 65'536;
inline constexpr std::size_t kMaxTokens = 1'048'576;
inline constexpr std::size_t kMaxEvents = 65'536;
inline constexpr std::size_t kMinHashBytes = 4, kMaxHashBytes = 64;

// Fetch the line at an address into the cache, ahead of its use. Inlined always: as a call of its own that
// changes nothing, GCC would leave it out.
#if defined(__GNUC__)
[[gnu::always_inline]] inline void fetch_line(const void* at) { __builtin_prefetch(at); }
#else
inline void fetch_line(const void*) {}
#endif

//: Growing room for numbers that are written right after; never filled, so that it costs nothing to reuse.
template <typename T>
class Room {
 public:
  // Where `count` more values go; earlier pointers are void.
  T* extend(std::size_t count) {
    if (size_ + count > capacity_) grow(size_ + count);
    T* at = data_.get() + size_;
    size_ += count;
    return at;
  }
  void shrink(std::size_t size) { size_ = size; }
  // One huge batch does not keep its memory for good.
  void clear() {
    size_ = 0;
    if (capacity_ <= kMaxKept) return;
    data_.reset();
    capacity_ = 0;
  }
  std::size_t size() const { return size_; }
  std::size_t bytes() const { return capacity_ * sizeof(T); }
  const T* data() const { return data_.get(); }

 private:
  static constexpr std::size_t kMaxKept = std::size_t{1} << 20;

  void grow(std::size_t needed) {
    const std::size_t capacity = needed < 512 ? 1024 : needed * 2;
    auto data = std::make_unique_for_overwrite<T[]>(capacity);
    for (std::size_t at = 0; at < size_; ++at) data[at] = data_[at];
    data_ = std::move(data);
    capacity_ = capacity;
  }
  std::unique_ptr<T[]> data_;
  std::size_t size_ = 0, capacity_ = 0;
};

}  // namespace dovecote
