// The index: holders, their events in, reusable blocks of a prompt out. Not synchronised; no Python.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "decode.hpp"
#include "holder.hpp"
#include "tree.hpp"

namespace dovecote {

//: What a list of payloads changed, summed up.
struct Outcome {
  Delta delta;
  std::size_t batches = 0;
  std::array<std::size_t, 3> kinds{};
};

class Index {
 public:
  // `max_entries` bounds the (block, holder, group) entries of all holders: above it the oldest are forgotten.
  explicit Index(std::size_t max_entries) : max_entries_(max_entries) {}

  // Holders are numbers given by attach; a number that is not attached is refused by every verb.
  std::uint32_t attach(HolderSettings settings);
  void detach(std::uint32_t holder);
  Holder& holder(std::uint32_t number) { return *holders_[number]; }
  bool has_holder(std::uint32_t number) const { return number < holders_.size() && holders_[number] != nullptr; }

  void apply(std::uint32_t holder, const Batch& batch, const Event& event, Delta& delta);
  void store_places(std::uint32_t holder, const Batch& batch, const Event& event, Delta& delta);
  std::size_t clear(std::uint32_t holder);
  std::size_t doubt(std::uint32_t holder);
  // Decode and apply a payload; false, with nothing applied, where `wire.dialects` must read it.
  bool apply_payload(std::uint32_t holder, std::string_view payload, Outcome& outcome);

  // Visit (holder, blocks) for every holder that has at least one of the first `limit` blocks in a row.
  // `place_at(index)` reads the chain. Cost: a look-up at each end and a few for each change of the
  // holders along the chain; holders with unsettled holes cost one look-up a block.
  template <typename PlaceAt, typename Visit>
  void match(std::size_t limit, PlaceAt place_at, Visit visit);

  std::size_t entry_count() const;
  std::size_t parked_count() const;
  std::size_t evicted() const { return evicted_; }
  const Tree& tree() const { return tree_; }
  std::size_t bytes() const;
  std::string find_contradiction();

 private:
  //: Edges settled for each event and match, beside those in proportion to an event's blocks.
  static constexpr std::size_t kSettleFloor = 256;
  //: Ticks of age in which as many entries come in as may be held.
  static constexpr std::size_t kTicks = 16;

  template <typename PlaceAt, typename Visit>
  void bisect(std::size_t low, SetId at_low, std::size_t high, SetId at_high, const PlaceAt& place_at, Visit& visit);
  template <typename PlaceAt, typename Visit>
  void walk_unsettled(std::size_t limit, const PlaceAt& place_at, Visit& visit);
  SetId anchored_at(Place place) const {
    const NodeId node = tree_.find(place);
    return node == kNoNode ? 0 : tree_.node(node).anchored;
  }
  void make_room(std::uint32_t storing, std::size_t before);
  void sweep(std::uint8_t ticks, std::size_t wanted, std::size_t budget);

  Tree tree_;
  std::vector<std::unique_ptr<Holder>> holders_;
  std::vector<std::uint32_t> free_holders_;
  Batch batch_;
  std::size_t max_entries_;
  std::size_t entries_ = 0, evicted_ = 0, stored_in_tick_ = 0;
  //: Holder whose entries eviction looks at next.
  std::size_t sweep_holder_ = 0;
};

template <typename PlaceAt, typename Visit>
void Index::match(std::size_t limit, PlaceAt place_at, Visit visit) {
  // As much as the walk that is saved by it would cost.
  if (!tree_.is_settled()) tree_.settle(kSettleFloor + limit);
  if (limit == 0) return;
  const SetId first = anchored_at(place_at(0));
  const SetId last = limit == 1 ? first : anchored_at(place_at(limit - 1));
  const auto visit_settled = [&](Slot slot, std::size_t blocks) {
    if (tree_.is_settled(slot)) visit(tree_.owner(slot), blocks);
  };
  tree_.sets().visit_difference(last, 0, [&](Slot slot) { visit_settled(slot, limit); });
  bisect(1, first, limit, last, place_at, visit_settled);
  if (!tree_.is_settled()) walk_unsettled(limit, place_at, visit);
}

// Slots that are anchored at block `low` - 1 and not at `high` - 1 end in between.
template <typename PlaceAt, typename Visit>
void Index::bisect(std::size_t low, SetId at_low, std::size_t high, SetId at_high, const PlaceAt& place_at,
                   Visit& visit) {
  while (at_low != at_high) {
    if (high - low <= 1) {
      tree_.sets().visit_difference(at_low, at_high, [&](Slot slot) { visit(slot, low); });
      return;
    }
    const std::size_t middle = low + (high - low) / 2;
    const SetId at_middle = anchored_at(place_at(middle - 1));
    if (at_middle == at_low) {
      low = middle;
    } else if (at_middle == at_high) {
      high = middle;
    } else {
      bisect(low, at_low, middle, at_middle, place_at, visit);
      low = middle;
      at_low = at_middle;
    }
  }
}

template <typename PlaceAt, typename Visit>
void Index::walk_unsettled(std::size_t limit, const PlaceAt& place_at, Visit& visit) {
  std::vector<Slot> alive = tree_.unsettled_slots();
  for (std::size_t depth = 0; !alive.empty(); ++depth) {
    const NodeId node = depth < limit ? tree_.find(place_at(depth)) : kNoNode;
    std::erase_if(alive, [&](Slot slot) {
      if (node != kNoNode && tree_.is_resident(node, slot)) return false;
      if (depth > 0 && tree_.is_match_slot(slot)) visit(tree_.owner(slot), depth);
      return true;
    });
  }
}

}  // namespace dovecote
