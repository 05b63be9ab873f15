// The index: holders, their events in, reusable blocks of a prompt out. Not synchronised; no Python.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "decode.hpp"
#include "holder.hpp"
#include "reuse.hpp"

namespace dovecote {

//: What a list of payloads changed, summed up.
struct Outcome {
  Delta delta;
  std::size_t batches = 0;
  std::array<std::size_t, 3> kinds{};
};

class Index {
 public:
  // `max_blocks` bounds the entries of all holders and places of all pools, `max_holder_blocks` those of each: above
  // it the oldest are forgotten.
  Index(std::size_t max_blocks, std::size_t max_holder_blocks, Registry registry)
      : commons_{{}, std::move(registry), {}, {}}, max_blocks_(max_blocks), max_holder_blocks_(max_holder_blocks) {}

  // Holders are numbers given by attach; a number that is not attached is refused by every verb.
  std::uint32_t attach(HolderSettings settings, const std::vector<std::string>& pools);
  void detach(std::uint32_t holder);
  Holder& holder(std::uint32_t number) { return *holders_[number]; }
  const Holder& holder(std::uint32_t number) const { return *holders_[number]; }
  bool has_holder(std::uint32_t number) const { return number < holders_.size() && holders_[number] != nullptr; }

  void apply(std::uint32_t holder, const Batch& batch, const Event& event, Delta& delta);
  std::size_t load(std::uint32_t holder, const Run& run);
  // Forget all that a holder has; says how many places counted.
  std::size_t clear(std::uint32_t holder);
  std::size_t doubt(std::uint32_t holder);
  std::size_t drop_pool(const std::string& name);
  // Decode and apply a payload; false, with nothing applied, where `wire.dialects` must read it.
  bool apply_payload(std::uint32_t holder, std::string_view payload, Outcome& outcome);

  // Visit (holder, tokens) for every holder that anchored slots do not settle and that can reuse some of the prompt
  // from its device. `found` are those with full attention of the first block, and how far that goes.
  template <typename Visit>
  void match_hybrid(const Chains& chains, std::uint64_t limit_tokens,
                    const std::map<std::uint32_t, std::uint64_t>& found, Visit visit) const {
    for (const auto& [number, tokens] : found)
      if (const std::uint64_t reused = find_device_reuse(number, chains, limit_tokens, tokens); reused > 0)
        visit(number, reused);
    for (const std::uint32_t number : commons_.rootless)
      if (const std::uint64_t reused = find_device_reuse(number, chains, limit_tokens, std::nullopt); reused > 0)
        visit(number, reused);
  }
  // See `Holder::is_plain`.
  bool is_plain(std::uint32_t holder) const { return commons_.plain[holder] != 0; }
  bool has_rootless() const { return !commons_.rootless.empty(); }
  std::uint64_t find_device_reuse(std::uint32_t holder, const Chains& chains, std::uint64_t limit_tokens,
                                  std::optional<std::uint64_t> full_tokens) const;
  std::vector<Alternative> find_alternatives(std::uint32_t holder, const Chains& chains,
                                             std::uint64_t limit_tokens) const;
  std::uint64_t correct(std::uint32_t holder, const Chains& chains, std::uint64_t limit_tokens,
                        std::uint64_t cached_tokens);

  // Visit (holder, blocks) for every holder that has at least one of the first `limit` blocks in a row.
  // `place_at(index)` reads the chain. Cost: a look-up at each end and a few for each change of the
  // holders along the chain; holders with unsettled holes cost one look-up a block.
  template <typename PlaceAt, typename Visit>
  void match(std::size_t limit, PlaceAt place_at, Visit visit);

  // Entries of all holders and places of all pools; those among them that wait; those forgotten since the start.
  std::size_t entry_count() const { return entries_ + pooled_count(); }
  std::size_t parked_count() const;
  std::size_t evicted() const { return evicted_; }
  const Tree& tree() const { return commons_.tree; }
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
  Views device_views(const Holder& holder) const;
  std::vector<Source> find_sources(const Holder& holder) const;
  std::pair<std::uint64_t, std::uint64_t> find_settled(const Holder& holder, const Chains& chains) const;
  Pool& pool(const std::string& name, const std::string& model);
  std::size_t pooled_count() const;
  void make_room(std::uint32_t storing, std::size_t before, Delta& delta);
  void make_room_at_once(std::uint32_t storing, Delta& delta);
  Pool* fullest_pool() const;
  void make_room_of(std::uint32_t storing, std::size_t came, Delta& delta);
  void make_room_in_pools(std::uint32_t storing);
  void sweep(std::uint8_t ticks, std::size_t wanted, std::size_t budget, std::uint32_t storing, Delta& delta);

  Commons commons_;
  Tree& tree_ = commons_.tree;
  //: By name and model.
  std::map<std::pair<std::string, std::string>, std::unique_ptr<Pool>> pools_;
  std::vector<std::unique_ptr<Holder>> holders_;
  std::vector<std::uint32_t> free_holders_;
  Batch batch_;
  std::size_t max_blocks_, max_holder_blocks_;
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
