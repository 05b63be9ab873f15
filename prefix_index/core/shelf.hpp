// Cache groups and shelves: where a holder's, or a pool's, blocks of one group stand in one tier.
#pragma once

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <unordered_map>

#include "block_names.hpp"
#include "component.hpp"
#include "tree.hpp"

namespace dovecote {

inline constexpr ShelfId kNoShelf = 0xFFFF;

//: One group's blocks in one tier; opened by the first block, which settles their size.
struct TierShelf {
  std::uint32_t block_tokens = 0;
  ShelfId shelf = kNoShelf;
  //: None where the places are not the group owner's own.
  Slot slot = kNoSlot;
  bool is_open() const { return block_tokens > 0; }
};

struct Group {
  OptionalNumber number;
  std::optional<std::string> kind;
  OptionalNumber window;
  Component component;
  std::array<TierShelf, kTiers> tiers;

  bool is_prefix() const { return component.rule == Rule::kPrefix; }
  bool is_known() const { return component.rule != Rule::kUnknown; }
  bool is_of(const std::optional<std::string_view>& other_kind, const OptionalNumber& other_window) const {
    return kind == other_kind && window == other_window;
  }
  // Distance of the boundaries at which its blocks end.
  std::uint64_t grain_tokens() const {
    if (tiers[kDevice].is_open()) return tiers[kDevice].block_tokens;
    std::uint64_t largest = 1;
    for (const TierShelf& tier : tiers) largest = std::max<std::uint64_t>(largest, tier.block_tokens);
    return largest;
  }
};

//: A slot of the tree that counts how many names stand at a node: one mostly, and then it costs nothing.
class Holding {
 public:
  bool exists() const { return slot_ != kNoSlot; }
  Slot slot() const { return slot_; }
  void open(Slot slot) { slot_ = slot; }
  // True for the first name at the node.
  bool hold(Tree& tree, NodeId node) {
    if (tree.add(node, slot_)) return true;
    ++more_[node];
    return false;
  }
  // True for the last one.
  bool release(Tree& tree, NodeId node) {
    if (has_more(node)) return false;
    return tree.take(node, slot_);
  }
  // The same where every node is released, so that descendants need no look.
  bool release_of_all(Tree& tree, NodeId node) {
    if (has_more(node)) return false;
    return tree.take_from_all(node, slot_);
  }
  std::size_t bytes() const { return more_.size() * 48; }

 private:
  bool has_more(NodeId node) {
    if (more_.empty()) return false;
    const auto found = more_.find(node);
    if (found == more_.end()) return false;
    if (--found->second == 0) more_.erase(found);
    return true;
  }
  Slot slot_ = kNoSlot;
  //: Names beyond the first at a node.
  std::unordered_map<NodeId, std::uint32_t> more_;
};

//: A tier of a holder's group as events fill it.
struct Shelf {
  Group* group;
  Tier tier;
  BlockNames* names;
  //: What stands there belongs to a pool that several ranks share.
  bool is_pooled = false;
  //: Code of an entry with one copy, here.
  std::uint32_t single_code = 0;
  Copies single;
  //: Which places count, for full attention on the device: index of the holder's `Counted`.
  std::optional<std::size_t> counted;
  Holding held;
};

//: Full attention on the device in one block size: a place counts when each of these shelves has it.
struct Counted {
  std::uint32_t block_tokens;
  std::vector<ShelfId> shelves;
  //: Anchored: the only shelf's slot, or one that says "in all of them".
  Slot slot = kNoSlot;
  bool is_combined() const { return shelves.size() > 1; }
};

}  // namespace dovecote
