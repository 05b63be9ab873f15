// Groups that a dialect does not report, believed from what the worker's layout and the reported events imply.
//
// Engines that publish only full attention still keep windows and checkpoints, at the end of what a step stored.
// The belief ends with the full-attention block, and the engine's answers correct it.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "chains.hpp"
#include "shelf.hpp"

namespace dovecote {

//: One group as a worker declares it.
struct DeclaredGroup {
  std::optional<std::string> kind;
  OptionalNumber window;
  //: Recurrent states are kept only at multiples of this; 0 where the end of every stored run has one.
  std::uint64_t checkpoint_tokens = 0;
  //: Other tiers keep its blocks too when they keep those of full attention.
  bool is_offloaded = false;
};

//: A block of a run that was stored: its node, and where it ends in tokens.
struct StoredBlock {
  NodeId node;
  std::uint64_t end_tokens;
};

class Beliefs {
 public:
  Beliefs(Tree& tree, std::uint32_t owner) : tree_(tree), owner_(owner) {}

  // Begin with what the layout declares; false where it names a kind that is not known.
  bool declare(const std::vector<DeclaredGroup>& layout, const Registry& registry);
  bool exist() const { return !groups_.empty(); }
  const std::deque<Group>& groups() const { return groups_; }
  Group* find(const OptionalNumber& number);
  // Most blocks before the end of a run that a group may ask for.
  std::size_t find_reach(std::uint32_t block_tokens) const;
  // Make room for a group's blocks in a tier; false where it has some of another size.
  bool open(Group& group, Tier tier, std::uint32_t block_tokens);

  // Full attention stored `count` blocks, the last of which and those before it are `run`: what else is kept of it.
  void believe(const std::vector<StoredBlock>& run, std::size_t count, Tier tier, std::uint32_t block_tokens,
               const Registry& registry, std::vector<Place>& touched);
  // The full-attention block at a node is gone, and with it what stood there.
  void forget(Tier tier, NodeId node) {
    for (Group& group : groups_)
      if (group.tiers[tier].is_open()) tree_.take(node, group.tiers[tier].slot);
  }
  // The same in every tier, where every node is forgotten.
  void forget_of_all(NodeId node) {
    for (Group& group : groups_)
      for (TierShelf& tier : group.tiers)
        if (tier.is_open()) tree_.take_from_all(node, tier.slot);
  }
  void correct(const Chains& chains, std::uint64_t full_tokens, std::uint64_t cached_tokens, const Registry& registry);
  // Nothing is believed any more; nodes must have been forgotten.
  void end();

 private:
  Tree& tree_;
  std::uint32_t owner_;
  std::deque<Group> groups_;
  //: What was declared of each group.
  std::deque<DeclaredGroup> declared_;
};

}  // namespace dovecote
