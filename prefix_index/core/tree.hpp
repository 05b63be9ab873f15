// All known blocks as one forest by canonical hash, and which slots are resident at each.
//
// A slot is anchored at a block when it is resident there and at every block before it. That is
// monotone along a chain, so a match looks at the last block first and bisects where sets differ.
//
// A hole that opens or closes changes every descendant. Instead of doing so at once, the edges below
// it are put on a list of unsettled ones and settled a few at a time; anchored bits are right across
// every edge that is not on the list. Settling an edge twice, or one of a block that went, does no
// harm, so the list needs no upkeep. A match answers unsettled slots by walking the chain.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "places.hpp"
#include "slot_sets.hpp"
#include "types.hpp"

namespace dovecote {

struct Node {
  Place place;
  NodeId parent, first_child, next_sibling, previous_sibling;
  std::uint32_t resident : 24, unused : 8;
  std::uint32_t anchored : 24, age : 8;
};
static_assert(sizeof(Node) == 32);

class Tree {
 public:
  // Slots. A slot that is given back must be resident nowhere.
  Slot make_slot(std::uint32_t owner, bool is_anchored);
  void give_back(Slot slot);
  std::uint32_t owner(Slot slot) const { return slots_[slot].owner; }
  std::size_t count(Slot slot) const { return slots_[slot].count; }
  // Whether the slot is what counts for its holder.
  bool is_match_slot(Slot slot) const { return slots_[slot].is_anchored; }
  // A slot whose anchored bits were all taken, or which is resident nowhere, may change its kind.
  void set_anchored(Slot slot, bool is_anchored) { slots_[slot].is_anchored = is_anchored; }

  // Nodes.
  const Node& node(NodeId id) const { return chunks_[id >> kChunkBits][id & kChunkMask]; }
  NodeId find(Place place) const {
    return table_.find(place, [&](NodeId id) { return node(id).place == place; });
  }
  [[gnu::always_inline]] void fetch(Place place) const { table_.fetch(place); }
  // The node at a place, as a child of `parent` (kNoNode for a chain's first block): made where there is none, and
  // hung there where it hung elsewhere, for whoever says so has the block's content.
  NodeId intern(Place place, NodeId parent) {
    const NodeId known = find(place);
    if (known == kNoNode) return make_node(place, parent);
    if (node(known).parent != parent) [[unlikely]] set_parent(known, parent);
    return known;
  }
  // The same where `parent` is only claimed, by its place: it counts for nodes of which nobody knows better.
  NodeId intern_claimed(Place place, Place parent, std::uint32_t position);
  // The node before one, kNoNode at a chain's start and where it is not known.
  NodeId parent(NodeId id) const { return is_node(node(id).parent) ? node(id).parent : kNoNode; }
  // Blocks before one in its chain. Cost: in proportion to those before it, down from one whose position was asked for
  // lately: what grows at its end costs what it grows by.
  std::uint32_t position(NodeId id) const;
  // One above every node's number.
  NodeId node_limit() const { return used_; }
  // Forget a node that no slot is resident at and that has no child, and its ancestors likewise.
  void free_unused(NodeId id);
  bool is_full() const { return used_ - free_count_ > kMaxNodes - (1u << 18) || sets_.is_full(); }

  // Residency.
  bool is_resident(NodeId id, Slot slot) const { return sets_.contains(node(id).resident, slot); }
  bool is_anchored(NodeId id, Slot slot) const { return sets_.contains(node(id).anchored, slot); }
  // True where the slot was not resident before.
  bool add(NodeId id, Slot slot);
  // True where it was. The node stays until free_unused.
  bool take(NodeId id, Slot slot);
  // The same without settling descendants: for callers that take the slot everywhere.
  bool take_from_all(NodeId id, Slot slot);
  // Take only the anchored bit, from every node the slot is resident at.
  void unanchor_from_all(NodeId id, Slot slot);

  // Unsettled edges.
  bool is_settled() const { return unsettled_.empty(); }
  bool is_settled(Slot slot) const { return slots_[slot].unsettled == 0; }
  const std::vector<Slot>& unsettled_slots() const { return unsettled_slots_; }
  std::size_t unsettled_count() const { return unsettled_.size(); }
  // Settle up to so many edges.
  void settle(std::size_t budget);

  SlotSets& sets() { return sets_; }
  const SlotSets& sets() const { return sets_; }
  // Sets that nobody refers to may be forgotten; only between events.
  void tidy() { sets_.tidy(); }

  // Age: the tick in which a node, or one below it, was last stored.
  std::uint8_t tick() const { return tick_; }
  void advance_tick() { ++tick_; }
  void touch(NodeId id);
  std::uint8_t age(NodeId id) const { return static_cast<std::uint8_t>(tick_ - node(id).age); }

  std::size_t node_count() const { return used_ - free_count_; }
  std::size_t bytes() const;
  // Entries, blocks and places that were looked at one after another, where an event or a match may look at many.
  std::uint64_t steps() const { return steps_; }
  void count_steps(std::size_t steps) const { steps_ += steps; }
  // What contradicts itself, in words; empty when nothing does.
  std::string find_contradiction() const;

 private:
  //: A chunk of nodes fills a huge page.
  static constexpr int kChunkBits = 16;
  static constexpr NodeId kChunkMask = (1u << kChunkBits) - 1;
  //: Parent of a node that is not in use, and of one whose parent nobody knows.
  static constexpr NodeId kFreed = kNoNode + 1, kDetached = kNoNode + 2;
  //: Children looked at right away before an edge goes on the list.
  static constexpr int kGlance = 8;
  //: Positions that are remembered, and how far apart they are kept on a long walk.
  static constexpr std::size_t kPositions = 4'096, kPositionStride = 64;

  struct SlotState {
    std::uint32_t owner = 0;
    std::uint32_t unsettled = 0;
    std::size_t count = 0;
    bool is_anchored = false;
  };
  //: A node whose children may disagree with it about a slot, and the child to go on with.
  struct Edge {
    NodeId parent;
    NodeId child;
    Slot slot;
  };

  //: A node's position, while no node hangs elsewhere than it did in that epoch.
  struct KnownPosition {
    NodeId node = kNoNode;
    std::uint32_t epoch = 0, position = 0;
  };
  KnownPosition& known_position(NodeId id) const { return positions_[id % kPositions]; }
  bool knows_position(NodeId id) const {
    return known_position(id).node == id && known_position(id).epoch == epoch_;
  }

  struct FreeChunk {
    void operator()(Node* chunk) const { PageAllocator<Node>().deallocate(chunk, 0); }
  };

  Node& at(NodeId id) { return chunks_[id >> kChunkBits][id & kChunkMask]; }
  static bool is_node(NodeId id) { return id < kNoNode; }
  // Whether a slot that is resident at the node is anchored there.
  bool follows(const Node& node, Slot slot) const {
    return node.parent == kNoNode || (is_node(node.parent) && sets_.contains(this->node(node.parent).anchored, slot));
  }
  NodeId take_number();
  NodeId make_node(Place place, NodeId parent);
  void set_parent(NodeId id, NodeId parent);
  bool is_below(NodeId id, NodeId above) const;
  void hang(NodeId id, NodeId parent);
  void unlink(const Node& gone);
  void set_resident(Node& node, SetId set);
  void set_anchored_set(Node& node, SetId set);
  bool needs_change(const Node& child, Slot slot, bool parent_has) const;
  void unsettle(NodeId id, Slot slot);
  void pop_edge();

  std::vector<std::unique_ptr<Node[], FreeChunk>> chunks_;
  NodeId used_ = 0, free_head_ = kNoNode;
  std::size_t free_count_ = 0;
  PlaceTable table_;
  SlotSets sets_;
  std::vector<SlotState> slots_;
  std::vector<Slot> free_slots_;
  std::vector<Edge> unsettled_;
  std::vector<Slot> unsettled_slots_;
  //: Position of each node whose parent nobody knows.
  std::unordered_map<NodeId, std::uint32_t> detached_;
  std::uint8_t tick_ = 0;
  std::uint32_t epoch_ = 0;
  mutable std::array<KnownPosition, kPositions> positions_;
  mutable std::uint64_t steps_ = 0;
};

}  // namespace dovecote
