// Table from canonical hash to node: 8-byte slots (32 bits of hash, 32 of node), linear probing.
//
// Split in parts by the hash's first bits: a part grows for itself, so no insertion moves everything.
// The bits kept in a slot are those that say where it belongs, so that no node is read when slots move.
#pragma once

#include <algorithm>
#include <array>
#include <vector>

#include "pages.hpp"
#include "types.hpp"

namespace dovecote {

class PlaceTable {
 public:
  // The node that stands at `place`; `matches(node)` compares whole hashes.
  template <typename Matches>
  NodeId find(Place place, Matches matches) const {
    const Part& part = parts_[place >> (64 - kPartBits)];
    if (part.slots.empty()) return kNoNode;
    for (std::size_t at = home(part, to_tag(place));; at = next(part, at)) {
      const std::uint64_t slot = part.slots[at];
      if (slot == 0) return kNoNode;
      if (slot >> 32 == to_tag(place) && matches(to_node(slot))) return to_node(slot);
    }
  }

  [[gnu::always_inline]] void fetch(Place place) const {
    const Part& part = parts_[place >> (64 - kPartBits)];
    fetch_line(part.slots.data() + home(part, to_tag(place)));
  }

  // Add a place that is absent.
  void insert(Place place, NodeId node) {
    Part& part = parts_[place >> (64 - kPartBits)];
    if ((part.used + 1) * 4 > part.slots.size() * 3) resize(part, std::max<std::size_t>(8, part.slots.size() * 3 / 2));
    put(part, to_tag(place) << 32 | (node + 1));
    ++part.used;
  }

  void erase(Place place, NodeId node) {
    Part& part = parts_[place >> (64 - kPartBits)];
    std::size_t hole = home(part, to_tag(place));
    while (to_node(part.slots[hole]) != node) hole = next(part, hole);
    for (std::size_t at = next(part, hole); part.slots[at] != 0; at = next(part, at)) {
      const std::size_t start = home(part, part.slots[at] >> 32);
      if (distance(part, start, at) < distance(part, hole, at)) continue;
      part.slots[hole] = part.slots[at];
      hole = at;
    }
    part.slots[hole] = 0;
    --part.used;
    // Half of a large table may be rounded up to the same pages: then nothing would be won by moving it.
    const std::size_t half = PageAllocator<std::uint64_t>::fill(part.slots.size() / 2);
    if (part.slots.size() > 64 && part.used * 8 < part.slots.size() && half < part.slots.size()) resize(part, half);
  }

  std::size_t size() const {
    std::size_t used = 0;
    for (const Part& part : parts_) used += part.used;
    return used;
  }
  std::size_t bytes() const {
    std::size_t bytes = sizeof *this;
    for (const Part& part : parts_) bytes += part.slots.capacity() * 8;
    return bytes;
  }

 private:
  static constexpr int kPartBits = 3;
  struct Part {
    std::vector<std::uint64_t, PageAllocator<std::uint64_t>> slots;
    std::size_t used = 0;
  };

  static NodeId to_node(std::uint64_t slot) { return static_cast<NodeId>(slot) - 1; }
  static std::uint64_t to_tag(Place place) { return (place >> (32 - kPartBits)) & 0xFFFFFFFF; }
  static std::size_t home(const Part& part, std::uint64_t tag) {
    return static_cast<std::size_t>((tag * part.slots.size()) >> 32);
  }
  static std::size_t next(const Part& part, std::size_t at) { return at + 1 == part.slots.size() ? 0 : at + 1; }
  static std::size_t distance(const Part& part, std::size_t from, std::size_t to) {
    return to >= from ? to - from : to + part.slots.size() - from;
  }
  static void put(Part& part, std::uint64_t slot) {
    std::size_t at = home(part, slot >> 32);
    while (part.slots[at] != 0) at = next(part, at);
    part.slots[at] = slot;
  }
  static void resize(Part& part, std::size_t capacity) {
    std::vector<std::uint64_t, PageAllocator<std::uint64_t>> old(PageAllocator<std::uint64_t>::fill(capacity), 0);
    old.swap(part.slots);
    for (const std::uint64_t slot : old)
      if (slot != 0) put(part, slot);
  }

  std::array<Part, 1 << kPartBits> parts_;
};

}  // namespace dovecote
