// One holder: its groups and shelves, and stores.

#include "holder.hpp"

#include <algorithm>

namespace dovecote {
namespace {

constexpr std::size_t kMaxGroups = 64;
//: Most ends of unnamed runs that are remembered, a block size.
constexpr std::size_t kMaxTails = 64;
//: Blocks of an event that are fetched into the cache ahead of their turn.
constexpr std::uint32_t kAhead = 16;
//: Blocks that are hashed in one go.
constexpr std::size_t kHashed = 4;

}  // namespace

Holder::Holder(Commons& commons, std::uint32_t number, HolderSettings settings, std::vector<Pool*> pools)
    : commons_(commons),
      tree_(commons.tree),
      number_(number),
      settings_(std::move(settings)),
      pools_(std::move(pools)),
      beliefs_(commons.tree, number),
      plain_seed_(
          namespace_seed(settings_.model, std::nullopt, std::nullopt, settings_.is_bigram, settings_.secret)) {
  forget();
}

Group* Holder::find_group(const OptionalNumber& number) {
  for (Group& group : groups_)
    if (group.number == number) return &group;
  return nullptr;
}

// The group of that number, made where it is new; null where there are too many, or it is known as another kind.
Group* Holder::admit(const OptionalNumber& number, const std::optional<std::string_view>& kind,
                     const OptionalNumber& window) {
  Group* group = find_group(number);
  if (group != nullptr) return group->is_of(kind, window) ? group : nullptr;
  if (groups_.size() >= kMaxGroups) {
    is_modelled_ = false;
    refresh();
    return nullptr;
  }
  const Component component = commons_.registry.find(kind, number, window);
  group = &groups_.emplace_back(
      Group{number, kind ? std::optional<std::string>(*kind) : std::nullopt, window, component, {}});
  is_modelled_ &= group->is_known();
  has_prefix_ |= group->is_prefix();
  is_full_only_ &= group->is_prefix();
  if (number.is_given && beliefs_.exist()) {
    // The engine numbers its groups, so it reports them all.
    for (BlockNames& names : names_)
      for (std::size_t at = 0; at < names.map.capacity(); ++at)
        if (names.map.is_used(at) && names.map.node(at) != kNoNode) beliefs_.forget_of_all(names.map.node(at));
    beliefs_.end();
  }
  refresh();
  return group;
}

// What is said of the holder as a whole, after its groups or shelves changed.
void Holder::refresh() {
  is_whole_ = true;
  for (const Group& group : groups_) is_whole_ &= !group.is_prefix() || group.tiers[kDevice].is_open();
  if (commons_.plain.size() <= number_) commons_.plain.resize(number_ + 1);
  commons_.plain[number_] = is_modelled_ && is_full_only_ && !beliefs_.exist() && has_one_full_size();
  if (is_rootless())
    commons_.rootless.insert(number_);
  else
    commons_.rootless.erase(number_);
}

BlockNames& Holder::names_of(std::uint32_t block_tokens) {
  for (BlockNames& names : names_)
    if (names.block_tokens == block_tokens) return names;
  return names_.emplace_back(block_tokens, settings_.name_key, codes_);
}

// The shelf of a group's tier, made where there is none; kNoShelf where it has blocks of another size.
ShelfId Holder::open_shelf(Group& group, Tier tier, std::uint32_t block_tokens, Delta& delta) {
  const TierShelf& known = group.tiers[tier];
  if (known.is_open()) [[likely]]
    return known.block_tokens == block_tokens ? known.shelf : kNoShelf;
  const ShelfId id = make_shelf(group, tier, block_tokens);
  if (tier == kDevice && group.is_prefix()) join_counted(id, block_tokens, delta);
  refresh();
  return id;
}

ShelfId Holder::make_shelf(Group& group, Tier tier, std::uint32_t block_tokens) {
  const auto id = static_cast<ShelfId>(shelves_.size());
  Shelf& shelf = shelves_.emplace_back(Shelf{&group, tier, &names_of(block_tokens)});
  shelf.is_pooled = tier >= kDisk && !pools_.empty();
  if (!shelf.is_pooled) shelf.held.open(tree_.make_slot(number_, false));
  shelf.single.set(id, 1);
  shelf.single_code = codes_.find(shelf.single);
  group.tiers[tier] = {block_tokens, id, shelf.held.slot()};
  block_sizes_.insert(block_tokens);
  return id;
}

// A shelf of full attention on the device: from now on a place counts only when it is there too.
void Holder::join_counted(ShelfId id, std::uint32_t block_tokens, Delta& delta) {
  Shelf& shelf = shelves_[id];
  std::size_t at = 0;
  while (at < counted_.size() && counted_[at].block_tokens != block_tokens) ++at;
  shelf.counted = at;
  if (at == counted_.size()) {
    tree_.set_anchored(shelf.held.slot(), true);
    counted_.push_back({block_tokens, {id}, shelf.held.slot()});
    return;
  }
  Counted& counted = counted_[at];
  take_credit(counted, *shelf.names, delta);
  if (!counted.is_combined()) {
    tree_.set_anchored(counted.slot, false);
    counted.slot = tree_.make_slot(number_, true);
  }
  counted.shelves.push_back(id);
}

// No place counts any more.
void Holder::take_credit(Counted& counted, BlockNames& names, Delta& delta) {
  const auto begin = static_cast<std::ptrdiff_t>(delta.removed.size());
  for (std::size_t at = 0; at < names.map.capacity(); ++at) {
    if (!names.map.is_used(at) || names.map.node(at) == kNoNode) continue;
    const NodeId node = names.map.node(at);
    if (!tree_.is_resident(node, counted.slot)) continue;
    delta.removed.push_back(tree_.node(node).place);
    tree_.unanchor_from_all(node, counted.slot);
    if (counted.is_combined()) tree_.take_from_all(node, counted.slot);
  }
  // Two names at one place lose it once.
  std::sort(delta.removed.begin() + begin, delta.removed.end());
  delta.removed.erase(std::unique(delta.removed.begin() + begin, delta.removed.end()), delta.removed.end());
}

void Holder::store(const Batch& batch, const Event& event, Delta& delta) {
  Group* group = admit(event.group, event.group_kind, event.window);
  if (group != nullptr && !group->is_known()) return;
  ShelfId shelf = kNoShelf;
  if (group != nullptr && event.tier != kNoTier && event.is_whole() && !(group->is_prefix() && event.unlisted() > 0) &&
      !tree_.is_full())
    shelf = open_shelf(*group, event.tier, event.block_tokens, delta);
  if (shelf == kNoShelf) {
    delta.refused += event.name_count;
    return;
  }
  if (event.tier == kDevice && group->is_prefix() && event.has_parent) prove(shelf, event.parent, delta);
  store_blocks(shelf, batch, event, delta);
  if (beliefs_.exist() && group->is_prefix() && event.name_count > 0) believe(shelf, batch, event, delta);
  free_loose();
}

// True when the event says again what is known, without new copies; see `naive._is_repeated`.
bool Holder::is_repeated(ShelfId id, const Batch& batch, const Event& event) const {
  const Shelf& shelf = shelves_[id];
  if (settings_.is_refreshed || shelf.is_pooled) return true;
  if (event.has_parent || event.name_count < 2 || !is_full_only_) return false;
  for (std::uint32_t index = 0; index < event.name_count; ++index) {
    const std::size_t at = shelf.names->map.find(batch.names.data()[event.names_at + index]);
    if (at == BlockNames::kAbsent || shelf.names->copies(at).count(id) == 0) return false;
  }
  return true;
}

// Node that the event's first tokens follow, kNoNode for a prompt's start; nothing where it is not known.
std::optional<NodeId> Holder::find_parent(BlockNames& names, const Event& event) {
  if (!event.has_parent) return kNoNode;
  const std::size_t at = names.map.find(event.parent);
  if (at != BlockNames::kAbsent) {
    if (names.map.node(at) == kNoNode) return std::nullopt;
    return names.map.node(at);
  }
  // Where every layer has a window, a run may have ended in a block that no event names.
  for (auto tail = tails_.rbegin(); !has_prefix_ && tail != tails_.rend(); ++tail) {
    if (tail->block_tokens != names.block_tokens) continue;
    const NodeId node = tail->node;
    tails_.erase(std::next(tail).base());
    kept_.release(tree_, node);
    loose_.push_back(node);
    return node;
  }
  return std::nullopt;
}

void Holder::keep_tail(BlockNames& names, NodeId node) {
  kept_.hold(tree_, node);
  tails_.push_back({names.block_tokens, node});
  const auto is_alike = [&](const Tail& tail) { return tail.block_tokens == names.block_tokens; };
  if (static_cast<std::size_t>(std::count_if(tails_.begin(), tails_.end(), is_alike)) <= kMaxTails) return;
  const auto oldest = std::find_if(tails_.begin(), tails_.end(), is_alike);
  kept_.release(tree_, oldest->node);
  loose_.push_back(oldest->node);
  tails_.erase(oldest);
}

// Canonical hashes of all the event's blocks.
const Place* Holder::find_places(const Batch& batch, const Event& event, const KeyReading& reading, NodeId parent) {
  const std::size_t blocks = event.token_count / event.block_tokens;
  const Place first = event.has_parent ? tree_.node(parent).place : seed(event, reading);
  const std::uint32_t* tokens = batch.tokens.data() + event.tokens_at;
  places_.resize(blocks);
  if (reading.keys.empty()) {
    // The table's lines are on their way while the next hashes are worked out.
    Place before = first;
    for (std::size_t at = 0; at < blocks; at += kHashed) {
      const std::size_t count = std::min(kHashed, blocks - at);
      chain_blocks(tokens + at * event.block_tokens, count, event.block_tokens, before, places_.data() + at);
      for (std::size_t index = at; index < at + count && index < kAhead; ++index) tree_.fetch(places_[index]);
      before = places_[at + count - 1];
    }
  } else if (event.unlisted() == 0) {
    chain_with_keys(tokens, blocks, event.block_tokens, first, reading.keys, places_.data());
  } else {
    std::vector<BlockKeys> keys(event.unlisted());
    keys.insert(keys.end(), reading.keys.begin(), reading.keys.end());
    chain_with_keys(tokens, blocks, event.block_tokens, first, keys, places_.data());
  }
  return places_.data();
}

void Holder::store_blocks(ShelfId id, const Batch& batch, const Event& event, Delta& delta) {
  Shelf& shelf = shelves_[id];
  BlockNames& names = *shelf.names;
  const KeyReading reading = read_keys(event, batch);
  const std::uint32_t unlisted = event.unlisted();
  Arrival arrival{shelf,    id,   batch.names.data() + event.names_at, nullptr,
                  unlisted, !is_repeated(id, batch, event), &reading.keys, kNoNode};
  for (std::uint32_t index = 0; index < std::min(kAhead, event.name_count); ++index)
    names.map.fetch(arrival.names[index]);
  const std::optional<NodeId> parent = find_parent(names, event);
  if (parent) {
    arrival.before = *parent;
    const Place* places = find_places(batch, event, reading, *parent);
    for (std::uint32_t index = 0; index < unlisted; ++index)
      arrival.before = tree_.intern(places[index], arrival.before);
    arrival.places = places + unlisted;
    if (unlisted > 0) loose_.push_back(arrival.before);
    if (unlisted > 0 && event.name_count == 0) keep_tail(names, arrival.before);
  }
  for (std::uint32_t index = 0; unlisted > 0 && index < kAhead; ++index) fetch(event, arrival, index);
  for (std::uint32_t index = 0; index < event.name_count; ++index) {
    fetch(event, arrival, index + kAhead);
    arrive(batch, event, arrival, index, delta);
  }
  for (std::uint32_t index = 0; !parent && index < event.name_count; ++index)
    delta.orphaned += names.is_parked(arrival.names[index]);
  tree_.touch(arrival.before);
}

// Get ready what the event's `index`-th block will look at.
[[gnu::always_inline]] inline void Holder::fetch(const Event& event, const Arrival& arrival,
                                                 std::uint32_t index) const {
  if (index >= event.name_count) return;
  arrival.shelf.names->map.fetch(arrival.names[index]);
  if (arrival.places != nullptr) tree_.fetch(arrival.places[index]);
}

void Holder::arrive(const Batch& batch, const Event& event, Arrival& arrival, std::uint32_t index, Delta& delta) {
  Shelf& shelf = arrival.shelf;
  BlockNames& names = *shelf.names;
  const Name name = arrival.names[index];
  const std::size_t at = names.map.find(name);
  if (at != BlockNames::kAbsent) return arrive_known(batch, event, arrival, index, at, delta);
  const NodeId node = arrival.places != nullptr ? next_node(arrival, index)
                                                : own_node(names, batch, event, arrival, index);
  names.insert(name, node, shelf.single);
  if (node == kNoNode) return names.park(name, make_parked(batch, event, arrival, index), settings_.max_orphans);
  if (shelf.is_pooled) kept_.hold(tree_, node);
  gain(shelf, node, delta);
  if (names.is_waited_for(name)) link(names, name, delta);
}

void Holder::arrive_known(const Batch& batch, const Event& event, Arrival& arrival, std::uint32_t index,
                          std::size_t at, Delta& delta) {
  BlockNames& names = *arrival.shelf.names;
  const Name name = arrival.names[index];
  const NodeId from = names.map.node(at);
  NodeId to = from;
  if (arrival.places != nullptr) {
    const NodeId next = next_node(arrival, index);
    if (from == kNoNode || arrival.unlisted == 0) to = next;
    if (to != next) loose_.push_back(next);
  } else if (from == kNoNode) {
    to = own_node(names, batch, event, arrival, index);
  }
  const Copies& known = names.copies(at);
  const std::uint32_t count = known.count(arrival.shelf_id);
  const bool is_new = arrival.adds_copy || count == 0;
  if (is_new || to != from) {
    Copies copies = known;
    if (is_new) copies.set(arrival.shelf_id, count + 1);
    change(names, at, copies, to, delta);
  }
  // A pool may have lost it since to another rank's removal.
  if (arrival.shelf.is_pooled && count > 0 && to == from && to != kNoNode) gain(arrival.shelf, to, delta);
  if (to == kNoNode) return names.park(name, make_parked(batch, event, arrival, index), settings_.max_orphans);
  if (from == kNoNode) names.unpark(name);
  if (to != from && names.is_waited_for(name)) link(names, name, delta);
}

// The node for the event's `index`-th named block, whose place is known; the next block follows it.
NodeId Holder::next_node(Arrival& arrival, std::uint32_t index) {
  return arrival.before = tree_.intern(arrival.places[index], arrival.before);
}

// The node of a block whose own parent's place is known although the event's is not; kNoNode where it is not.
NodeId Holder::own_node(BlockNames& names, const Batch& batch, const Event& event, const Arrival& arrival,
                        std::uint32_t index) {
  const std::size_t known = names.map.find(index > 0 ? arrival.names[index - 1] : event.parent);
  const NodeId parent = known == BlockNames::kAbsent ? kNoNode : names.map.node(known);
  if (parent == kNoNode) return kNoNode;
  return extend(parent, make_parked(batch, event, arrival, index), names.block_tokens);
}

// The node at the end of a parked block's tokens.
NodeId Holder::extend(NodeId parent, const Parked& parked, std::uint32_t block_tokens) {
  const std::size_t blocks = parked.tokens.size() / block_tokens;
  std::vector<BlockKeys> keys(parked.keys.empty() ? 0 : blocks);
  if (!keys.empty()) keys.back() = parked.keys;
  std::vector<Place> places(blocks);
  chain_with_keys(parked.tokens.data(), blocks, block_tokens, tree_.node(parent).place, keys, places.data());
  for (const Place place : places) parent = tree_.intern(place, parent);
  return parent;
}

Parked Holder::make_parked(const Batch& batch, const Event& event, const Arrival& arrival,
                           std::uint32_t index) const {
  Parked parked;
  parked.parent = index > 0 ? arrival.names[index - 1] : event.parent;
  const std::uint32_t* tokens = batch.tokens.data() + event.tokens_at;
  const std::size_t size = event.block_tokens;
  parked.tokens.assign(tokens + (index > 0 ? (arrival.unlisted + index) * size : 0),
                       tokens + (arrival.unlisted + index + 1) * size);
  if (index < arrival.keys->size()) parked.keys = (*arrival.keys)[index];
  return parked;
}

Place Holder::seed(const Event& event, const KeyReading& reading) const {
  if (!event.lora_name && !event.lora_id && !reading.salt) return plain_seed_;
  return namespace_seed(settings_.model, event.lora_name ? event.lora_name : event.lora_id, reading.salt,
                        settings_.is_bigram, settings_.secret);
}

// Give everything that waits for `parent`, and for what waits for that, its place.
void Holder::link(BlockNames& names, Name parent, Delta& delta) {
  std::vector<Name> ready{parent};
  while (!ready.empty()) {
    parent = ready.back();
    ready.pop_back();
    const NodeId above = names.map.node(names.map.find(parent));
    for (const Name name : names.waiting_for(parent)) {
      const std::optional<Parked> parked = names.unpark(name);
      const std::size_t at = names.map.find(name);
      const Copies copies = names.copies(at);
      change(names, at, copies, extend(above, *parked, names.block_tokens), delta);
      ready.push_back(name);
    }
  }
}

}  // namespace dovecote
