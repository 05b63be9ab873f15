// One holder: stores and removals.

#include "holder.hpp"

#include <algorithm>

namespace dovecote {
namespace {

constexpr std::size_t kMaxGroups = 64;
//: Blocks of an event that are fetched into the cache ahead of their turn.
constexpr std::uint32_t kAhead = 12;

}  // namespace

Holder::Holder(Tree& tree, std::uint32_t owner, HolderSettings settings)
    : tree_(tree),
      owner_(owner),
      settings_(std::move(settings)),
      plain_seed_(
          namespace_seed(settings_.model, std::nullopt, std::nullopt, settings_.is_bigram, settings_.secret)) {}

Group* Holder::find_group(const GroupNumber& number) {
  for (Group& group : groups_)
    if (group.number == number) return &group;
  return nullptr;
}

// The event's group, made where it is new; null when it must not come in.
Group* Holder::admit(const Event& event) {
  Group* group = find_group(event.group);
  if (group == nullptr && groups_.size() >= kMaxGroups) {
    is_modelled_ = false;
    return nullptr;
  }
  return group != nullptr ? group : &groups_.emplace_back(event.group, settings_.secret);
}

void Holder::store(const Batch& batch, const Event& event, Delta& delta) {
  Group* group = admit(event);
  if (group == nullptr) return;
  if (group->blocks.size() + event.name_count > kMaxBlocks || tree_.is_full()) {
    delta.orphaned += event.name_count;
    return;
  }
  if (!is_full_attention(event)) {
    is_modelled_ = false;
    return add_copies(*group, batch, event, delta);
  }
  if (!group->is_full) open_full(*group, delta);
  if (event.token_count != static_cast<std::uint64_t>(event.block_tokens) * event.name_count) {
    delta.orphaned += event.name_count;
    return add_copies(*group, batch, event, delta);
  }
  block_sizes_.insert(event.block_tokens);
  store_full(*group, batch, event, nullptr, delta);
}

void Holder::store_places(const Batch& batch, const Event& event, Delta& delta) {
  Group* group = admit(event);
  if (group == nullptr) return;
  const bool is_lost = event.has_parent && tree_.find(event.parent) == kNoNode;
  if (group->blocks.size() + event.name_count > kMaxBlocks || tree_.is_full() || is_lost) {
    delta.orphaned += event.name_count;
    return;
  }
  if (!group->is_full) open_full(*group, delta);
  block_sizes_.insert(event.block_tokens);
  store_full(*group, batch, event, batch.names.data() + event.names_at, delta);
}

// Count copies of blocks whose places the event does not tell.
void Holder::add_copies(Group& group, const Batch& batch, const Event& event, Delta& delta) {
  for (std::uint32_t index = 0; index < event.name_count; ++index) {
    const Name name = batch.names.data()[event.names_at + index];
    const std::size_t at = group.blocks.find(name);
    if (at == NameMap::kAbsent) {
      forget_doubted(group, name);
      group.insert(name, kNoNode, event.medium);
      continue;
    }
    const bool was_on_device = group.count(at, kDevice) > 0;
    const NodeId node = group.blocks.node(at);
    group.add_copy(at, event.medium);
    if (node == kNoNode || was_on_device || event.medium != kDevice) continue;
    gain(group, node, delta);
    group.kept.release(tree_, node);
  }
  free_loose();
}

// A group turns out to be one that counts: from now on a place must be in it too.
void Holder::open_full(Group& group, Delta& delta) {
  group.is_full = true;
  group.device.open(tree_.make_slot(owner_, full_.empty()));
  if (full_.empty()) {
    match_slot_ = group.device.slot();
  } else {
    Group& first = *full_.front();
    const Slot counted = match_slot_;
    const auto begin = static_cast<std::ptrdiff_t>(delta.removed.size());
    for (std::size_t at = 0; at < first.blocks.capacity(); ++at) {
      if (!first.blocks.is_used(at) || first.blocks.node(at) == kNoNode) continue;
      const NodeId node = first.blocks.node(at);
      if (!tree_.is_resident(node, counted)) continue;
      delta.removed.push_back(tree_.node(node).place);
      tree_.unanchor_from_all(node, counted);
      if (counted == combined_) tree_.take_from_all(node, counted);
    }
    // Two names at one place lose it once.
    std::sort(delta.removed.begin() + begin, delta.removed.end());
    delta.removed.erase(std::unique(delta.removed.begin() + begin, delta.removed.end()), delta.removed.end());
    if (combined_ == kNoSlot) {
      tree_.set_anchored(counted, false);
      combined_ = match_slot_ = tree_.make_slot(owner_, true);
    }
  }
  full_.push_back(&group);
}

// True when the event says again what is known, without new copies; see `residency._is_repeated`.
bool Holder::is_repeated(Group& group, const Batch& batch, const Event& event) {
  if (settings_.is_refreshed) return true;
  if (event.has_parent || event.name_count < 2 || !is_modelled_) return false;
  for (std::uint32_t index = 0; index < event.name_count; ++index) {
    const std::size_t at = group.blocks.find(batch.names.data()[event.names_at + index]);
    if (at == NameMap::kAbsent || group.count(at, event.medium) == 0) return false;
  }
  return true;
}

void Holder::store_full(Group& group, const Batch& batch, const Event& event, const Place* given, Delta& delta) {
  const KeyReading reading = given == nullptr ? read_keys(event, batch) : KeyReading{};
  Arrival arrival{batch.names.data() + event.names_at, given, !is_repeated(group, batch, event), &reading.keys, kNoNode};
  if (event.medium == kDevice && event.has_parent && group.doubted.size() > 0) prove(group, event.parent, delta);
  if (event.has_parent) arrival.before = given == nullptr ? parent_node(group, event.parent) : tree_.find(event.parent);
  const bool is_placed = given != nullptr || !event.has_parent || arrival.before != kNoNode;
  if (is_placed && given == nullptr) {
    const Place parent = event.has_parent ? tree_.node(arrival.before).place : seed(event, reading);
    places_.resize(event.name_count);
    chain_with_keys(batch.tokens.data() + event.tokens_at, event.name_count, event.block_tokens, parent, reading.keys,
                    places_.data());
    arrival.places = places_.data();
  }
  for (std::uint32_t index = 0; index < kAhead; ++index) fetch(group, event, arrival, index);
  for (std::uint32_t index = 0; index < event.name_count; ++index) {
    fetch(group, event, arrival, index + kAhead);
    arrive(group, batch, event, arrival, index, delta);
  }
  for (std::uint32_t index = 0; !is_placed && index < event.name_count; ++index)
    delta.orphaned += group.is_parked(arrival.names[index]);
  if (arrival.before != kNoNode) tree_.touch(arrival.before);
  free_loose();
}

// Get ready what the event's `index`-th block will look at.
[[gnu::always_inline]] inline void Holder::fetch(const Group& group, const Event& event, const Arrival& arrival,
                                                 std::uint32_t index) const {
  if (index >= event.name_count) return;
  group.blocks.fetch(arrival.names[index]);
  if (arrival.places != nullptr) tree_.fetch(arrival.places[index]);
}

void Holder::arrive(Group& group, const Batch& batch, const Event& event, Arrival& arrival, std::uint32_t index,
                    Delta& delta) {
  const Name name = arrival.names[index];
  std::size_t at = group.blocks.find(name);
  NodeId node;
  if (at == NameMap::kAbsent) {
    forget_doubted(group, name);
    node = find_node(group, batch, event, arrival, index);
    group.insert(name, node, event.medium);
    if (node != kNoNode) settle_node(group, node, event.medium == kDevice, delta);
  } else {
    node = group.blocks.node(at);
    const bool was_on_device = group.count(at, kDevice) > 0;
    if (arrival.adds_copy || group.count(at, event.medium) == 0) group.add_copy(at, event.medium);
    if (node != kNoNode && arrival.places != nullptr && tree_.node(node).place != arrival.places[index]) {
      node = move(group, at, was_on_device, tree_.intern(arrival.places[index], arrival.before), delta);
    } else if (node != kNoNode) {
      if (event.medium == kDevice && !was_on_device) {
        gain(group, node, delta);
        group.kept.release(tree_, node);
      }
    } else if ((node = find_node(group, batch, event, arrival, index)) != kNoNode) {
      group.set_node(at, node);
      group.unpark(name);
      settle_node(group, node, group.count(at, kDevice) > 0, delta);
    }
  }
  if (node == kNoNode) return group.park(name, make_parked(batch, event, arrival, index), settings_.max_orphans);
  if (group.is_waited_for(name)) link(group, name, delta);
  arrival.before = node;
}

// The entry's block is said to stand elsewhere than before: the latest word counts.
NodeId Holder::move(Group& group, std::size_t at, bool was_on_device, NodeId to, Delta& delta) {
  const NodeId from = group.blocks.node(at);
  if (was_on_device)
    lose(group, from, delta);
  else
    group.kept.release(tree_, from);
  loose_.push_back(from);
  group.set_node(at, to);
  settle_node(group, to, group.count(at, kDevice) > 0, delta);
  return to;
}

// The node for the event's `index`-th block; kNoNode while nobody knows its parent's.
NodeId Holder::find_node(Group& group, const Batch& batch, const Event& event, const Arrival& arrival,
                         std::uint32_t index) {
  if (arrival.places != nullptr) return tree_.intern(arrival.places[index], arrival.before);
  const std::size_t known = group.blocks.find(index > 0 ? arrival.names[index - 1] : event.parent);
  const NodeId parent = known == NameMap::kAbsent ? kNoNode : group.blocks.node(known);
  if (parent == kNoNode) return kNoNode;
  const Parked own = make_parked(batch, event, arrival, index);
  Place place;
  chain_with_keys(own.tokens.data(), 1, own.tokens.size(), tree_.node(parent).place, {own.keys}, &place);
  return tree_.intern(place, parent);
}

Parked Holder::make_parked(const Batch& batch, const Event& event, const Arrival& arrival, std::uint32_t index) {
  Parked parked;
  parked.parent = index > 0 ? arrival.names[index - 1] : event.parent;
  const std::uint32_t* first = batch.tokens.data() + event.tokens_at + std::size_t{index} * event.block_tokens;
  parked.tokens.assign(first, first + event.block_tokens);
  if (index < arrival.keys->size()) parked.keys = (*arrival.keys)[index];
  return parked;
}

void Holder::remove(const Batch& batch, const Event& event, Delta& delta) {
  Group* group = find_group(event.group);
  if (group == nullptr) {
    delta.unknown_removals += event.name_count;
    return;
  }
  for (std::uint32_t index = 0; index < event.name_count; ++index) {
    const Name name = batch.names.data()[event.names_at + index];
    if (event.medium == kDevice && group->doubted.size() > 0 && group->doubted.find(name) != NameMap::kAbsent) {
      forget_doubted(*group, name);
      free_loose();
      continue;
    }
    const std::size_t at = group->blocks.find(name);
    if (at == NameMap::kAbsent || !group->take_copy(at, event.medium)) {
      ++delta.unknown_removals;
      continue;
    }
    const NodeId node = group->blocks.node(at);
    const bool is_gone = group->is_gone(at);
    if (node != kNoNode && event.medium == kDevice && group->count(at, kDevice) == 0) {
      if (!is_gone) keep(*group, node);
      lose(*group, node, delta);
    } else if (node != kNoNode && is_gone) {
      group->kept.release(tree_, node);
    }
    if (is_gone) {
      group->unpark(name);
      group->erase(at);
      if (node != kNoNode) tree_.free_unused(node);
    }
  }
}

void Holder::settle_node(Group& group, NodeId node, bool on_device, Delta& delta) {
  on_device ? gain(group, node, delta) : keep(group, node);
}

void Holder::keep(Group& group, NodeId node) {
  if (!group.kept.exists()) group.kept.open(tree_.make_slot(owner_, false));
  group.kept.hold(tree_, node);
}

void Holder::gain(Group& group, NodeId node, Delta& delta) {
  if (!group.device.hold(tree_, node)) return;
  if (full_.size() > 1 && !(is_in_all(node) && tree_.add(node, combined_))) return;
  delta.stored.push_back(tree_.node(node).place);
}

void Holder::lose(Group& group, NodeId node, Delta& delta) {
  if (!group.device.release(tree_, node)) return;
  if (full_.size() > 1 && !tree_.take(node, combined_)) return;
  delta.removed.push_back(tree_.node(node).place);
}

bool Holder::is_in_all(NodeId node) const {
  return std::all_of(full_.begin(), full_.end(),
                     [&](const Group* group) { return tree_.is_resident(node, group->device.slot()); });
}

NodeId Holder::parent_node(Group& group, Name parent) const {
  const std::size_t at = group.blocks.find(parent);
  if (at != NameMap::kAbsent) return group.blocks.node(at);
  const std::size_t doubted = group.doubted.size() > 0 ? group.doubted.find(parent) : NameMap::kAbsent;
  return doubted == NameMap::kAbsent ? kNoNode : group.doubted.node(doubted);
}

Place Holder::seed(const Event& event, const KeyReading& reading) {
  if (!event.lora_name && !event.lora_id && !reading.salt) return plain_seed_;
  return namespace_seed(settings_.model, event.lora_name ? event.lora_name : event.lora_id, reading.salt,
                        settings_.is_bigram, settings_.secret);
}

// Give everything that waits for `parent`, and for what waits for that, its place.
void Holder::link(Group& group, Name parent, Delta& delta) {
  std::vector<Name> ready{parent};
  while (!ready.empty()) {
    parent = ready.back();
    ready.pop_back();
    const NodeId above = group.blocks.node(group.blocks.find(parent));
    for (const Name name : group.waiting_for(parent)) {
      const std::optional<Parked> parked = group.unpark(name);
      const std::size_t at = group.blocks.find(name);
      Place place;
      chain_with_keys(parked->tokens.data(), 1, parked->tokens.size(), tree_.node(above).place, {parked->keys}, &place);
      const NodeId node = tree_.intern(place, above);
      group.set_node(at, node);
      settle_node(group, node, group.count(at, kDevice) > 0, delta);
      ready.push_back(name);
    }
  }
}

void Holder::free_loose() {
  for (; !loose_.empty(); loose_.pop_back()) tree_.free_unused(loose_.back());
}

}  // namespace dovecote
