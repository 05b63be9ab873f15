// Table from canonical hash to node: 8-byte slots (32 bits of hash, 32 of node), linear probing.
//
// Split by the hash's first byte, so that a part grows for itself and no insertion moves everything.
// A part's slots are as good as random: canonical hashes are.
#pragma once

#include <algorithm>
#include <array>
#include <vector>

#include "types.hpp"

namespace dovecote {

class PlaceTable {
 public:
  // The node that stands at `place`; `matches(node)` compares whole hashes.
  template <typename Matches>
  NodeId find(Place place, Matches matches) const {
    const Part& part = parts_[place >> 56];
    if (part.slots.empty()) return kNoNode;
    for (std::size_t at = home(part, place);; at = next(part, at)) {
      const std::uint64_t slot = part.slots[at];
      if (slot == 0) return kNoNode;
      if (slot >> 32 == (place & 0xFFFFFFFF) && matches(to_node(slot))) return to_node(slot);
    }
  }

  void prefetch(Place place) const {
    const Part& part = parts_[place >> 56];
    if (!part.slots.empty()) __builtin_prefetch(&part.slots[home(part, place)], 1);
  }

  // Add a place that is absent; `place_of(node)` reads a node's whole hash.
  template <typename PlaceOf>
  void insert(Place place, NodeId node, PlaceOf place_of) {
    Part& part = parts_[place >> 56];
    if ((part.used + 1) * 4 > part.slots.size() * 3) resize(part, std::max<std::size_t>(8, part.slots.size() * 3 / 2), place_of);
    put(part, place, node);
    ++part.used;
  }

  template <typename PlaceOf>
  void erase(Place place, NodeId node, PlaceOf place_of) {
    Part& part = parts_[place >> 56];
    std::size_t hole = home(part, place);
    while (to_node(part.slots[hole]) != node) hole = next(part, hole);
    for (std::size_t at = next(part, hole); part.slots[at] != 0; at = next(part, at)) {
      const std::size_t start = home(part, place_of(to_node(part.slots[at])));
      if (distance(part, start, at) < distance(part, hole, at)) continue;
      part.slots[hole] = part.slots[at];
      hole = at;
    }
    part.slots[hole] = 0;
    --part.used;
    if (part.slots.size() > 64 && part.used * 5 < part.slots.size()) resize(part, part.slots.size() / 2, place_of);
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
  struct Part {
    std::vector<std::uint64_t> slots;
    std::size_t used = 0;
  };

  static NodeId to_node(std::uint64_t slot) { return static_cast<NodeId>(slot) - 1; }
  static std::size_t home(const Part& part, Place place) {
    return static_cast<std::size_t>((((place >> 24) & 0xFFFFFFFF) * part.slots.size()) >> 32);
  }
  static std::size_t next(const Part& part, std::size_t at) { return at + 1 == part.slots.size() ? 0 : at + 1; }
  static std::size_t distance(const Part& part, std::size_t from, std::size_t to) {
    return to >= from ? to - from : to + part.slots.size() - from;
  }
  static void put(Part& part, Place place, NodeId node) {
    std::size_t at = home(part, place);
    while (part.slots[at] != 0) at = next(part, at);
    part.slots[at] = (place & 0xFFFFFFFF) << 32 | (node + 1);
  }
  template <typename PlaceOf>
  static void resize(Part& part, std::size_t capacity, PlaceOf place_of) {
    std::vector<std::uint64_t> old(capacity, 0);
    old.swap(part.slots);
    for (const std::uint64_t slot : old)
      if (slot != 0) put(part, place_of(to_node(slot)), to_node(slot));
  }

  std::array<Part, 256> parts_;
};

}  // namespace dovecote
