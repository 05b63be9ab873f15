// The blocks of one cache group of one holder: names, copies by tier, parked blocks, doubted blocks.
//
// Knows places only as nodes; what a change means for the holder is said by `Holder`.
#pragma once

#include <map>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "events.hpp"
#include "names.hpp"
#include "tree.hpp"

namespace dovecote {

inline constexpr std::size_t kMaxTiers = 8;
inline constexpr std::size_t kMaxParkedTokens = std::size_t{4} << 20;
inline constexpr std::size_t kMaxBlocks = std::size_t{4} << 20;
inline constexpr std::size_t kMaxDoubted = std::size_t{1} << 20;

//: A slot of the tree that counts how many names of a group stand at a node: one mostly, and then it costs nothing.
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
  bool is_shared() const { return !more_.empty(); }
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

//: Copies of a block that do not fit an entry's code.
struct ManyCopies {
  std::uint32_t device = 0, host = 0;
  std::vector<std::pair<Medium, std::uint32_t>> others;
};

//: A block whose parent's place is unknown.
struct Parked {
  std::uint64_t order = 0;
  Name parent = 0;
  std::vector<std::uint32_t> tokens;
  BlockKeys keys;
};

//: The doubted name at a node; of several there it is not known which one a block below belongs to.
struct DoubtedName {
  Name name;
  bool is_shared;
};

class Group {
 public:
  Group(GroupNumber number, std::uint64_t key) : number(number), blocks(key), doubted(key) {}

  GroupNumber number;
  bool is_full = false;
  NameMap blocks;
  //: Device copies with a known place; and blocks whose place is kept for other reasons (host copies, doubt).
  Holding device, kept;
  //: Blocks with a place that were resident when events were lost; by name, and the name at each node.
  NameMap doubted;
  std::unordered_map<NodeId, DoubtedName> doubted_at;

  // Copies of the entry at a position.
  std::uint32_t count(std::size_t at, Medium medium) const;
  bool is_gone(std::size_t at) const;
  void add_copy(std::size_t at, Medium medium);
  bool take_copy(std::size_t at, Medium medium);
  // A new entry with one copy.
  void insert(Name name, NodeId node, Medium medium);
  void set_node(std::size_t at, NodeId node) { blocks.set(at, node, blocks.code(at)); }
  void erase(std::size_t at);
  // Exactly one device copy, as a new entry.
  void insert_proved(Name name, NodeId node) { blocks.insert(name, node, 1); }

  // Parked blocks; each has an entry without a node. Parking forgets the oldest when there are too many.
  void park(Name name, Parked parked, std::size_t max_parked);
  std::optional<Parked> unpark(Name name);
  bool is_parked(Name name) const { return !parked_.empty() && parked_.contains(name); }
  bool is_waited_for(Name name) const { return !waiting_.empty() && waiting_.contains(name); }
  std::vector<Name> waiting_for(Name parent) const;
  std::size_t parked_count() const { return parked_.size(); }

  // Forget entries and parked blocks; their nodes must have been released.
  void forget();
  std::size_t bytes() const;

 private:
  ManyCopies& make_many(std::size_t at);

  std::unordered_map<Name, ManyCopies> many_;
  std::unordered_map<Name, Parked> parked_;
  std::map<std::uint64_t, Name> parked_order_;
  //: Parent -> parked blocks that wait for it, oldest first.
  std::unordered_map<Name, std::map<std::uint64_t, Name>> waiting_;
  std::uint64_t next_order_ = 0;
  std::size_t parked_tokens_ = 0;
};

}  // namespace dovecote
