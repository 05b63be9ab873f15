// One holder: clears, doubt, eviction, accounting.

#include <unordered_map>

#include "holder.hpp"

namespace dovecote {

std::size_t Holder::clear() {
  const std::size_t counted = count();
  for (Group& group : groups_) release_all(group);
  for (Group& group : groups_) {
    if (group.device.exists()) tree_.give_back(group.device.slot());
    if (group.kept.exists()) tree_.give_back(group.kept.slot());
  }
  if (combined_ != kNoSlot) tree_.give_back(combined_);
  match_slot_ = combined_ = kNoSlot;
  groups_.clear();
  full_.clear();
  block_sizes_.clear();
  is_modelled_ = true;
  sweep_group_ = sweep_at_ = 0;
  return counted;
}

void Holder::release_all(Group& group) {
  for (std::size_t at = 0; at < group.blocks.capacity(); ++at) {
    if (!group.blocks.is_used(at) || group.blocks.node(at) == kNoNode) continue;
    const NodeId node = group.blocks.node(at);
    (group.count(at, kDevice) > 0 ? group.device : group.kept).release_of_all(tree_, node);
    if (combined_ != kNoSlot) tree_.take_from_all(node, combined_);
    tree_.free_unused(node);
  }
  for (std::size_t at = 0; at < group.doubted.capacity(); ++at) {
    if (!group.doubted.is_used(at)) continue;
    group.kept.release_of_all(tree_, group.doubted.node(at));
    tree_.free_unused(group.doubted.node(at));
  }
}

std::size_t Holder::doubt() {
  const std::size_t counted = count();
  for (Group& group : groups_) doubt_group(group);
  return counted;
}

// Move all entries with a place to the doubted ones; their nodes are kept.
void Holder::doubt_group(Group& group) {
  for (std::size_t at = 0; at < group.blocks.capacity(); ++at) {
    if (!group.blocks.is_used(at) || group.blocks.node(at) == kNoNode) continue;
    const NodeId node = group.blocks.node(at);
    const bool on_device = group.count(at, kDevice) > 0;
    if (group.doubted.size() < kMaxDoubted) {
      if (on_device) keep(group, node);
      const Name name = group.blocks.name(at);
      group.doubted.insert(name, node, 1);
      const auto [entry, is_new] = group.doubted_at.try_emplace(node, DoubtedName{name, false});
      if (!is_new) entry->second.is_shared = true;
    } else if (!on_device) {
      group.kept.release_of_all(tree_, node);
    }
    if (on_device) group.device.release_of_all(tree_, node);
    if (combined_ != kNoSlot) tree_.take_from_all(node, combined_);
    tree_.free_unused(node);
  }
  group.forget();
}

// A block and those before it are in the device cache after all.
void Holder::prove(Group& group, Name name, Delta& delta) {
  for (;;) {
    const std::size_t at = group.doubted.find(name);
    if (at == NameMap::kAbsent) return;
    const NodeId node = group.doubted.node(at);
    group.doubted.erase(at);
    const auto entry = group.doubted_at.find(node);
    if (entry != group.doubted_at.end() && !entry->second.is_shared) group.doubted_at.erase(entry);
    group.insert_proved(name, node);
    gain(group, node, delta);
    group.kept.release(tree_, node);
    const auto above = group.doubted_at.find(tree_.node(node).parent);
    if (above == group.doubted_at.end() || above->second.is_shared) return;
    name = above->second.name;
  }
}

void Holder::forget_doubted(Group& group, Name name) {
  if (group.doubted.size() == 0) return;
  const std::size_t at = group.doubted.find(name);
  if (at == NameMap::kAbsent) return;
  const NodeId node = group.doubted.node(at);
  group.doubted.erase(at);
  const auto entry = group.doubted_at.find(node);
  if (entry != group.doubted_at.end() && !entry->second.is_shared) group.doubted_at.erase(entry);
  group.kept.release(tree_, node);
  if (!tree_.is_resident(node, group.kept.slot())) group.doubted_at.erase(node);
  loose_.push_back(node);
}

std::size_t Holder::evict(std::uint8_t ticks, std::size_t wanted, std::size_t budget, bool& is_done) {
  Delta delta;
  std::size_t gone = 0;
  for (; budget > 0 && gone < wanted; --budget) {
    if (sweep_group_ >= groups_.size()) break;
    Group& group = groups_[sweep_group_];
    if (sweep_at_ >= group.blocks.capacity()) {
      ++sweep_group_;
      sweep_at_ = 0;
      continue;
    }
    const std::size_t at = sweep_at_;
    const bool is_placed = group.blocks.is_used(at) && group.blocks.node(at) != kNoNode;
    if (!is_placed || tree_.age(group.blocks.node(at)) < ticks) {
      ++sweep_at_;
      continue;
    }
    const NodeId node = group.blocks.node(at);
    if (group.count(at, kDevice) > 0)
      lose(group, node, delta);
    else
      group.kept.release(tree_, node);
    group.erase(at);
    tree_.free_unused(node);
    ++gone;
  }
  is_done = sweep_group_ >= groups_.size();
  if (is_done) sweep_group_ = sweep_at_ = 0;
  return gone;
}

std::size_t Holder::entry_count() const {
  std::size_t entries = 0;
  for (const Group& group : groups_) entries += group.blocks.size() + group.doubted.size();
  return entries;
}

std::size_t Holder::parked_count() const {
  std::size_t parked = 0;
  for (const Group& group : groups_) parked += group.parked_count();
  return parked;
}

std::size_t Holder::bytes() const {
  std::size_t bytes = sizeof *this + places_.capacity() * sizeof(Place);
  for (const Group& group : groups_) bytes += group.bytes();
  return bytes;
}

bool Holder::has_slots(const Group& group, NodeId node, std::size_t device, std::size_t kept) const {
  const bool is_on = group.device.exists() && tree_.is_resident(node, group.device.slot());
  const bool is_kept = group.kept.exists() && tree_.is_resident(node, group.kept.slot());
  return is_on == (device > 0) && is_kept == (kept > 0);
}

std::string Holder::find_contradiction() const {
  for (const Group& group : groups_) {
    std::unordered_map<NodeId, std::pair<std::size_t, std::size_t>> names;
    std::size_t unplaced = 0;
    for (std::size_t at = 0; at < group.blocks.capacity(); ++at) {
      if (!group.blocks.is_used(at)) continue;
      if (group.blocks.find(group.blocks.name(at)) != at) return "an entry is not where its name says";
      if (group.is_gone(at)) return "an entry is kept without a copy";
      if (group.doubted.find(group.blocks.name(at)) != NameMap::kAbsent) return "a block is doubted and counted";
      const NodeId node = group.blocks.node(at);
      unplaced += node == kNoNode;
      if (node != kNoNode) ++(group.count(at, kDevice) > 0 ? names[node].first : names[node].second);
    }
    for (std::size_t at = 0; at < group.doubted.capacity(); ++at)
      if (group.doubted.is_used(at)) ++names[group.doubted.node(at)].second;
    std::size_t on_device = 0, kept = 0;
    for (const auto& [node, counts] : names) {
      if (!has_slots(group, node, counts.first, counts.second)) return "a slot differs from what the names say";
      on_device += counts.first > 0;
      kept += counts.second > 0;
    }
    if (group.device.exists() && tree_.count(group.device.slot()) != on_device) return "device blocks are miscounted";
    if (group.kept.exists() && tree_.count(group.kept.slot()) != kept) return "kept blocks are miscounted";
    if (group.parked_count() > settings_.max_orphans || group.parked_count() > unplaced)
      return "parked blocks are unbounded or unknown";
  }
  return {};
}

}  // namespace dovecote
