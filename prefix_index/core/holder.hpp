// One holder's events: what each store, removal, clear and doubt changes. The rules are those of
// `prefix_index.residency`, which the same contract suite drives.
#pragma once

#include <deque>
#include <set>
#include <string>
#include <vector>

#include "group.hpp"
#include "identity.hpp"
#include "tree.hpp"

namespace dovecote {

//: What events changed in a holder's device cache.
struct Delta {
  std::vector<Place> stored, removed;
  std::size_t orphaned = 0, unknown_removals = 0;

  void clear() {
    stored.clear();
    removed.clear();
    orphaned = unknown_removals = 0;
  }
};

struct HolderSettings {
  std::string model;
  //: A store of a known block is no second copy.
  bool is_refreshed = false;
  bool is_bigram = false;
  std::uint64_t secret = 0;
  std::size_t max_orphans = 65'536;
};

class Holder {
 public:
  Holder(Tree& tree, std::uint32_t owner, HolderSettings settings);

  void store(const Batch& batch, const Event& event, Delta& delta);
  void remove(const Batch& batch, const Event& event, Delta& delta);
  // Blocks that are canonical hashes already, named by themselves; the first follows `event.parent`.
  void store_places(const Batch& batch, const Event& event, Delta& delta);
  // Forget all, slots too; says how many places counted.
  std::size_t clear();
  // Count nothing until it is proved.
  std::size_t doubt();

  // Places that count.
  std::size_t count() const { return match_slot_ == kNoSlot ? 0 : tree_.count(match_slot_); }
  Slot match_slot() const { return match_slot_; }
  bool is_modelled() const { return is_modelled_; }
  const std::set<std::uint32_t>& block_sizes() const { return block_sizes_; }
  std::size_t entry_count() const;
  std::size_t parked_count() const;
  std::size_t bytes() const;
  // Forget up to `wanted` entries last stored `ticks` ago or earlier, of `budget` looked at; says how many went.
  // `is_done` says that all entries were looked at and the next call begins anew.
  std::size_t evict(std::uint8_t ticks, std::size_t wanted, std::size_t budget, bool& is_done);
  std::string find_contradiction() const;

 private:
  //: An event's blocks on their way in.
  struct Arrival {
    const Name* names;
    //: Canonical hashes; null while the parent's place is unknown.
    const Place* places;
    bool adds_copy;
    const std::vector<BlockKeys>* keys;
    //: Node of the block before, while places are known.
    NodeId before;
  };

  Group* find_group(const GroupNumber& number);
  Group* admit(const Event& event);
  void add_copies(Group& group, const Batch& batch, const Event& event, Delta& delta);
  void open_full(Group& group, Delta& delta);
  bool is_repeated(Group& group, const Batch& batch, const Event& event);
  void store_full(Group& group, const Batch& batch, const Event& event, const Place* given, Delta& delta);
  void fetch(const Group& group, const Event& event, const Arrival& arrival, std::uint32_t index) const;
  void arrive(Group& group, const Batch& batch, const Event& event, Arrival& arrival, std::uint32_t at, Delta& delta);
  NodeId move(Group& group, std::size_t at, bool was_on_device, NodeId to, Delta& delta);
  NodeId find_node(Group& group, const Batch& batch, const Event& event, const Arrival& arrival, std::uint32_t at);
  Parked make_parked(const Batch& batch, const Event& event, const Arrival& arrival, std::uint32_t at);
  NodeId parent_node(Group& group, Name parent) const;
  Place seed(const Event& event, const KeyReading& reading);
  void link(Group& group, Name parent, Delta& delta);
  void prove(Group& group, Name name, Delta& delta);
  void forget_doubted(Group& group, Name name);
  void doubt_group(Group& group);
  void release_all(Group& group);
  void settle_node(Group& group, NodeId node, bool on_device, Delta& delta);
  void keep(Group& group, NodeId node);
  void gain(Group& group, NodeId node, Delta& delta);
  void lose(Group& group, NodeId node, Delta& delta);
  bool is_in_all(NodeId node) const;
  bool has_slots(const Group& group, NodeId node, std::size_t device, std::size_t kept) const;
  void free_loose();

  Tree& tree_;
  std::uint32_t owner_;
  HolderSettings settings_;
  std::deque<Group> groups_;
  //: Groups whose blocks count; a place is reusable when every one of them has it.
  std::vector<Group*> full_;
  //: What counts: the only full group's device copies, or a slot of its own that says "in all of them".
  Slot match_slot_ = kNoSlot, combined_ = kNoSlot;
  std::set<std::uint32_t> block_sizes_;
  bool is_modelled_ = true;
  //: Nodes that may have become unused during an event.
  std::vector<NodeId> loose_;
  std::vector<Place> places_;
  Place plain_seed_;
  //: Where eviction goes on.
  std::size_t sweep_group_ = 0, sweep_at_ = 0;
};

}  // namespace dovecote
