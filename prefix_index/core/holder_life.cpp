// One holder: clears, doubt, eviction, accounting.

#include <array>
#include <unordered_set>

#include "holder.hpp"

namespace dovecote {

void Holder::empty() {
  release_entries();
  for (BlockNames& names : names_) names.clear();
  tails_.clear();
  sweep_names_ = sweep_turn_ = 0;
}

std::size_t Holder::forget() {
  const std::size_t counted = count();
  empty();
  for (Shelf& shelf : shelves_)
    if (shelf.held.exists()) tree_.give_back(shelf.held.slot());
  for (Counted& each : counted_)
    if (each.is_combined()) tree_.give_back(each.slot);
  if (kept_.exists()) tree_.give_back(kept_.slot());
  beliefs_.end();
  shelves_.clear();
  counted_.clear();
  groups_.clear();
  names_.clear();
  codes_ = {};
  has_prefix_ = false;
  is_full_only_ = true;
  kept_ = {};
  kept_.open(tree_.make_slot(number_, false));
  is_modelled_ = beliefs_.declare(settings_.layout, commons_.registry);
  refresh();
  return counted;
}

// Every entry's node is let go; the entries are void then.
void Holder::release_entries() {
  for (const Tail& tail : tails_) {
    kept_.release_of_all(tree_, tail.node);
    tree_.free_unused(tail.node);
  }
  for (const BlockNames& names : names_) {
    for (std::size_t at = 0; at < names.map.capacity(); ++at) {
      if (!names.map.is_used(at) || names.map.node(at) == kNoNode) continue;
      const NodeId node = names.map.node(at);
      release_entry(names.copies(at), node);
      if (is_kept(names.copies(at))) kept_.release_of_all(tree_, node);
      tree_.free_unused(node);
    }
  }
}

// What the holder's own shelves have of a block that all lose.
void Holder::release_entry(const Copies& copies, NodeId node) {
  for (const Copy& copy : copies.list) {
    Shelf& shelf = shelves_[copy.shelf];
    if (copy.count == 0 || shelf.is_pooled) continue;
    shelf.held.release_of_all(tree_, node);
    if (shelf.counted && counted_[*shelf.counted].is_combined())
      tree_.take_from_all(node, counted_[*shelf.counted].slot);
  }
  if (beliefs_.exist()) beliefs_.forget_of_all(node);
}

std::size_t Holder::doubt() {
  const std::size_t counted = count();
  for (const Tail& tail : tails_) {
    kept_.release(tree_, tail.node);
    loose_.push_back(tail.node);
  }
  tails_.clear();
  for (BlockNames& names : names_) doubt_entries(names);
  free_loose();
  return counted;
}

// Parked blocks are forgotten; of the others all copies are doubted, and their nodes are kept.
void Holder::doubt_entries(BlockNames& names) {
  while (names.parked_count() > 0) names.forget_oldest_parked();
  for (std::size_t at = 0; at < names.map.capacity(); ++at) {
    if (!names.map.is_used(at)) continue;
    const NodeId node = names.map.node(at);
    const Copies before = names.copies(at);
    Copies after = before;
    after.doubt_all();
    if (!is_kept(before)) kept_.hold(tree_, node);
    for (const Copy& copy : before.list)
      if (copy.count > 0 && shelves_[copy.shelf].is_pooled)
        pools_.front()->remove(*shelves_[copy.shelf].group, shelves_[copy.shelf].tier, node);
    release_entry(before, node);
    if (!before.has_doubt()) names.add_doubt(node, names.map.name(at));
    names.set(at, node, after);
  }
}

std::size_t Holder::evict(std::uint8_t ticks, std::size_t wanted, std::size_t& budget, bool& is_done, Delta& delta) {
  std::size_t gone = 0;
  const std::size_t before = budget;
  for (; budget > 0 && gone < wanted && sweep_names_ < names_.size(); --budget) {
    BlockNames& names = names_[sweep_names_];
    if (sweep_turn_ >= names.map.turns()) {
      ++sweep_names_;
      sweep_turn_ = 0;
      continue;
    }
    const std::size_t at = names.map.at_turn(sweep_turn_);
    const bool is_placed = at < names.map.capacity() && names.map.is_used(at) && names.map.node(at) != kNoNode;
    const NodeId node = is_placed ? names.map.node(at) : kNoNode;
    if (!is_placed || tree_.age(node) < ticks) {
      ++sweep_turn_;
      continue;
    }
    change(names, at, {}, node, delta);
    names.erase(at);
    tree_.free_unused(node);
    ++gone;
  }
  tree_.count_steps(before - budget);
  is_done = sweep_names_ >= names_.size();
  if (is_done) sweep_names_ = sweep_turn_ = 0;
  for (BlockNames& names : names_)
    for (; is_done && ticks == 0 && gone < wanted && names.parked_count() > 0; ++gone) names.forget_oldest_parked();
  return gone;
}

std::uint8_t Holder::find_age(std::size_t wanted) const {
  std::array<std::size_t, 256> entries{};
  for (const BlockNames& names : names_) {
    tree_.count_steps(names.map.capacity());
    for (std::size_t at = 0; at < names.map.capacity(); ++at)
      if (names.map.is_used(at) && names.map.node(at) != kNoNode) ++entries[tree_.age(names.map.node(at))];
  }
  int age = 255;
  for (std::size_t seen = entries[255]; age > 0 && seen < wanted;) seen += entries[--age];
  return static_cast<std::uint8_t>(age);
}

std::size_t Holder::count() const {
  if (!has_prefix_) return count_any_group();
  std::size_t places = 0;
  for (const Counted& counted : counted_) places += tree_.count(counted.slot);
  return places;
}

// Places on the device of any group.
std::size_t Holder::count_any_group() const {
  std::unordered_set<NodeId> nodes;
  for (const BlockNames& names : names_)
    for (std::size_t at = 0; at < names.map.capacity(); ++at) {
      if (!names.map.is_used(at) || names.map.node(at) == kNoNode) continue;
      for (const Copy& copy : names.copies(at).list)
        if (copy.count > 0 && shelves_[copy.shelf].tier == kDevice) nodes.insert(names.map.node(at));
    }
  return nodes.size();
}

std::size_t Holder::entry_count() const {
  std::size_t entries = 0;
  for (const BlockNames& names : names_) entries += names.map.size();
  return entries;
}

std::size_t Holder::parked_count() const {
  std::size_t parked = 0;
  for (const BlockNames& names : names_) parked += names.parked_count();
  return parked;
}

std::size_t Holder::bytes() const {
  std::size_t bytes = sizeof *this + places_.capacity() * sizeof(Place) + kept_.bytes();
  for (const BlockNames& names : names_) bytes += names.bytes();
  for (const Shelf& shelf : shelves_) bytes += sizeof shelf + shelf.held.bytes();
  return bytes;
}

std::string Holder::find_contradiction() const {
  std::vector<std::unordered_set<NodeId>> places(shelves_.size());
  std::unordered_set<NodeId> kept;
  for (const Tail& tail : tails_) kept.insert(tail.node);
  for (const BlockNames& names : names_) {
    if (std::string found = names.find_contradiction(settings_.max_orphans); !found.empty()) return found;
    for (std::size_t at = 0; at < names.map.capacity(); ++at) {
      if (!names.map.is_used(at) || names.map.node(at) == kNoNode) continue;
      for (const Copy& copy : names.copies(at).list)
        if (copy.count > 0) places[copy.shelf].insert(names.map.node(at));
      if (is_kept(names.copies(at))) kept.insert(names.map.node(at));
    }
  }
  const auto is_right = [&](Slot slot, const std::unordered_set<NodeId>& wanted) {
    if (tree_.count(slot) != wanted.size()) return false;
    for (const NodeId node : wanted)
      if (!tree_.is_resident(node, slot)) return false;
    return true;
  };
  if (!is_right(kept_.slot(), kept)) return "kept nodes differ from what the names say";
  for (std::size_t id = 0; id < shelves_.size(); ++id)
    if (!shelves_[id].is_pooled && !is_right(shelves_[id].held.slot(), places[id]))
      return "a shelf differs from what the names say";
  for (const Counted& counted : counted_) {
    std::unordered_set<NodeId> common;
    for (const NodeId node : places[counted.shelves.front()])
      if (is_in_all(counted, node)) common.insert(node);
    if (!is_right(counted.slot, common)) return "what counts is not what all groups have";
  }
  return {};
}

}  // namespace dovecote
