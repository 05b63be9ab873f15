// One holder: removals, proof, belief, and what a change of a block's copies entails.

#include <algorithm>

#include "holder.hpp"

namespace dovecote {

void Holder::remove(const Batch& batch, const Event& event, Delta& delta) {
  Group* group = find_group(event.group);
  const bool is_open = group != nullptr && event.tier != kNoTier && group->tiers[event.tier].is_open();
  if (!is_open) {
    const bool is_ignored = group != nullptr && (!group->is_known() || event.tier == kNoTier);
    delta.unknown_removals += is_ignored ? 0 : event.name_count;
    return;
  }
  const ShelfId id = group->tiers[event.tier].shelf;
  for (std::uint32_t index = 0; index < event.name_count; ++index)
    remove_one(id, batch.names.data()[event.names_at + index], delta);
}

// One copy less. A doubted copy goes first, and counts for nothing.
void Holder::remove_one(ShelfId id, Name name, Delta& delta) {
  Shelf& shelf = shelves_[id];
  BlockNames& names = *shelf.names;
  const std::size_t at = names.map.find(name);
  if (at == BlockNames::kAbsent) return static_cast<void>(++delta.unknown_removals);
  const NodeId node = names.map.node(at);
  if (names.map.code(at) == shelf.single_code && !shelf.is_pooled && node != kNoNode) [[likely]] {
    lose(shelf, node, delta);
    names.map.erase(at);
    return tree_.free_unused(node);
  }
  Copies copies = names.copies(at);
  const std::uint32_t count = copies.count(id);
  if (count == 0 && !copies.is_doubted(id)) return static_cast<void>(++delta.unknown_removals);
  copies.set(id, count > 0 ? count - 1 : 0);
  change(names, at, copies, node, delta);
  if (copies.is_gone()) {
    names.unpark(name);
    names.erase(at);
  }
  if (node != kNoNode) tree_.free_unused(node);
}

// True where nothing of the holder's own keeps the block's node.
bool Holder::is_kept(const Copies& copies) const {
  return std::none_of(copies.list.begin(), copies.list.end(),
                      [&](const Copy& copy) { return copy.count > 0 && !shelves_[copy.shelf].is_pooled; });
}

void Holder::change(BlockNames& names, std::size_t at, const Copies& to, NodeId node, Delta& delta) {
  const Name name = names.map.name(at);
  const NodeId from = names.map.node(at);
  const Copies before = names.copies(at);
  if (!to.is_gone()) names.set(at, node, to);
  const bool was_kept = from != kNoNode && is_kept(before);
  const bool is_now_kept = node != kNoNode && !to.is_gone() && is_kept(to);
  // First what is gained is held, so that no node is without a holder in between.
  if (is_now_kept && !(was_kept && node == from)) kept_.hold(tree_, node);
  for (const Copy& copy : before.list)
    if (copy.count > 0 && from != kNoNode && (node != from || to.count(copy.shelf) == 0))
      lose(shelves_[copy.shelf], from, delta);
  for (const Copy& copy : to.list)
    if (copy.count > 0 && node != kNoNode && (node != from || before.count(copy.shelf) == 0))
      gain(shelves_[copy.shelf], node, delta);
  if (was_kept && !(is_now_kept && node == from)) kept_.release(tree_, from);
  const bool was_doubted = from != kNoNode && before.has_doubt(), is_doubted = node != kNoNode && to.has_doubt();
  if (was_doubted && !(is_doubted && node == from)) names.take_doubt(from, name);
  if (is_doubted && !(was_doubted && node == from)) names.add_doubt(node, name);
  if (from != kNoNode && from != node) loose_.push_back(from);
}

void Holder::gain(Shelf& shelf, NodeId node, Delta& delta) {
  if (shelf.is_pooled) {
    pools_.front()->store(*shelf.group, shelf.tier, node);
    return delta.touched.push_back(tree_.node(node).place);
  }
  if (!shelf.held.hold(tree_, node)) return;
  if (!shelf.counted) return delta.touched.push_back(tree_.node(node).place);
  const Counted& counted = counted_[*shelf.counted];
  if (counted.is_combined() && !(is_in_all(counted, node) && tree_.add(node, counted.slot))) return;
  delta.stored.push_back(tree_.node(node).place);
}

void Holder::lose(Shelf& shelf, NodeId node, Delta& delta) {
  if (shelf.is_pooled) {
    pools_.front()->remove(*shelf.group, shelf.tier, node);
    return delta.touched.push_back(tree_.node(node).place);
  }
  if (!shelf.held.release(tree_, node)) return;
  if (beliefs_.exist() && shelf.group->is_prefix()) beliefs_.forget(shelf.tier, node);
  const bool did_count =
      shelf.counted && (!counted_[*shelf.counted].is_combined() || tree_.take(node, counted_[*shelf.counted].slot));
  (did_count ? delta.removed : delta.touched).push_back(tree_.node(node).place);
}

bool Holder::is_in_all(const Counted& counted, NodeId node) const {
  return std::all_of(counted.shelves.begin(), counted.shelves.end(),
                     [&](ShelfId id) { return tree_.is_resident(node, shelves_[id].held.slot()); });
}

// A block and those before it are in the device cache after all. A place that several doubted names claim ends it,
// for which of them is there is not known.
void Holder::prove(ShelfId id, Name name, Delta& delta) {
  BlockNames& names = *shelves_[id].names;
  for (;;) {
    const std::size_t at = names.map.find(name);
    if (at == BlockNames::kAbsent || names.map.node(at) == kNoNode || !names.copies(at).is_doubted(id)) return;
    const NodeId node = names.map.node(at);
    Copies copies = names.copies(at);
    copies.set(id, 1);
    change(names, at, copies, node, delta);
    const NodeId above = tree_.parent(node);
    const std::optional<Name> next = above == kNoNode ? std::nullopt : names.doubted_at(above);
    if (!next) return;
    name = *next;
  }
}

// Full attention stored a run: what else the engine keeps of it, by the worker's layout.
void Holder::believe(ShelfId id, const Batch& batch, const Event& event, Delta& delta) {
  const Shelf& shelf = shelves_[id];
  if (event.group.is_given || shelf.is_pooled) return;
  const std::size_t last = shelf.names->map.find(batch.names.data()[event.names_at + event.name_count - 1]);
  NodeId node = last == BlockNames::kAbsent ? kNoNode : shelf.names->map.node(last);
  if (node == kNoNode) return;
  const std::size_t wanted = std::max<std::size_t>(event.name_count, beliefs_.find_reach(event.block_tokens));
  std::uint64_t end_tokens = (std::uint64_t{tree_.position(node)} + 1) * event.block_tokens;
  std::vector<StoredBlock> run;
  for (; node != kNoNode && run.size() < wanted && tree_.is_resident(node, shelf.held.slot()); node = tree_.parent(node)) {
    run.push_back({node, end_tokens});
    end_tokens -= event.block_tokens;
  }
  beliefs_.believe(run, event.name_count, shelf.tier, event.block_tokens, commons_.registry, delta.touched);
}

void Holder::free_loose() {
  for (; !loose_.empty(); loose_.pop_back()) tree_.free_unused(loose_.back());
}

}  // namespace dovecote
