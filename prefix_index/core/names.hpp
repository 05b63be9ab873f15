// Map of one block size: engine's name -> node and copies, 12 bytes an entry, linear probing.
//
// An entry's second word holds the node (27 bits) and a code (5 bits) of `CopyCodes`, 0 where it is empty.
#pragma once

#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include "types.hpp"
#include "xxh3.hpp"

namespace dovecote {

class NameMap {
 public:
  static constexpr std::size_t kAbsent = ~std::size_t{0};

  explicit NameMap(std::uint64_t key = 0) : key_(key ^ 0x9E3779B97F4A7C15ull) {}

  std::size_t size() const { return size_; }
  std::size_t capacity() const { return entries_.size(); }
  std::size_t bytes() const { return entries_.capacity() * sizeof(Entry); }

  // Where the name stands, or kAbsent; void after the next insertion or removal.
  std::size_t find(Name name) const {
    if (entries_.empty()) return kAbsent;
    for (std::size_t at = home(name);; at = next(at)) {
      if (entries_[at].value == 0) return kAbsent;
      if (entries_[at].name() == name) return at;
    }
  }
  [[gnu::always_inline]] void fetch(Name name) const { fetch_line(entries_.data() + home(name)); }
  bool is_used(std::size_t at) const { return entries_[at].value != 0; }
  Name name(std::size_t at) const { return entries_[at].name(); }
  NodeId node(std::size_t at) const { return entries_[at].value & kNoNode; }
  std::uint32_t code(std::size_t at) const { return entries_[at].value >> 27; }
  void set(std::size_t at, NodeId node, std::uint32_t code) { entries_[at].value = node | code << 27; }

  // Add a name that is absent; the code is above 0.
  void insert(Name name, NodeId node, std::uint32_t code) {
    if ((size_ + 1) * 5 > entries_.size() * 4) resize(std::max<std::size_t>(16, entries_.size() * 3 / 2));
    place(Entry::make(name, node | code << 27));
    ++size_;
  }

  void erase(std::size_t hole) {
    for (std::size_t at = next(hole); entries_[at].value != 0; at = next(at)) {
      if (distance(home(entries_[at].name()), at) < distance(hole, at)) continue;
      entries_[hole] = entries_[at];
      hole = at;
    }
    entries_[hole].value = 0;
    --size_;
    // Give room back once most of it is empty, so that a holder that shrank does not cost what it once did.
    if (entries_.size() > 64 && size_ * 5 < entries_.size()) resize(entries_.size() / 2);
  }

  void clear() {
    entries_ = {};
    size_ = 0;
  }

  // For those who look over the map a little at a time and erase as they go: where the `turn`-th look falls, of
  // `turns()`; at `capacity()` or above for none. Far apart, for where all are erased on one side only, the other
  // side fills up with those that come in, and every search there is long.
  std::size_t turns() const { return (entries_.size() + kTogether - 1) / kTogether * kTogether; }
  std::size_t at_turn(std::size_t turn) const {
    return turn / kTogether * stride_ % (turns() / kTogether) * kTogether + turn % kTogether;
  }

 private:
  //: Neighbours that are looked at together, as they come into the cache together.
  static constexpr std::size_t kTogether = 16;

  struct Entry {
    std::uint32_t low, high, value;
    static Entry make(Name name, std::uint32_t value) {
      return {static_cast<std::uint32_t>(name), static_cast<std::uint32_t>(name >> 32), value};
    }
    Name name() const { return low | static_cast<Name>(high) << 32; }
  };

  std::size_t home(Name name) const {
    const std::uint64_t mixed = xxh3::fold_product(name ^ key_, 0xC2B2AE3D27D4EB4Full);
    return static_cast<std::size_t>(((mixed >> 32) * entries_.size()) >> 32);
  }
  std::size_t next(std::size_t at) const { return at + 1 == entries_.size() ? 0 : at + 1; }
  std::size_t distance(std::size_t from, std::size_t to) const {
    return to >= from ? to - from : to + entries_.size() - from;
  }
  void place(const Entry& entry) {
    std::size_t at = home(entry.name());
    while (entries_[at].value != 0) at = next(at);
    entries_[at] = entry;
  }
  void resize(std::size_t capacity) {
    std::vector<Entry> old(capacity, Entry{0, 0, 0});
    old.swap(entries_);
    const std::size_t groups = turns() / kTogether;
    stride_ = groups * 5 / 8 | 1;
    while (std::gcd(stride_, groups) != 1) stride_ += 2;
    for (const Entry& entry : old)
      if (entry.value != 0) place(entry);
  }

  std::vector<Entry> entries_;
  std::size_t size_ = 0, stride_ = 1;
  std::uint64_t key_;
};

}  // namespace dovecote
