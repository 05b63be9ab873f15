// The forest of blocks: making and freeing nodes, residency, and keeping anchored bits right.

#include "tree.hpp"

#include <algorithm>

namespace dovecote {

Slot Tree::make_slot(std::uint32_t owner, bool is_anchored) {
  Slot slot;
  if (free_slots_.empty()) {
    slot = static_cast<Slot>(slots_.size());
    slots_.emplace_back();
  } else {
    slot = free_slots_.back();
    free_slots_.pop_back();
  }
  slots_[slot].owner = owner;
  slots_[slot].is_anchored = is_anchored;
  return slot;
}

void Tree::give_back(Slot slot) { free_slots_.push_back(slot); }

NodeId Tree::take_number() {
  if (free_head_ != kNoNode) {
    const NodeId id = free_head_;
    free_head_ = node(id).next_sibling;
    --free_count_;
    return id;
  }
  if (used_ >> kChunkBits == chunks_.size())
    chunks_.emplace_back(PageAllocator<Node>().allocate(std::size_t{1} << kChunkBits));
  return used_++;
}

NodeId Tree::make_node(Place place, NodeId parent) {
  const NodeId id = take_number();
  at(id) = Node{place, parent, kNoNode, kNoNode, kNoNode, 0, 0, 0, tick_};
  hang(id, parent);
  table_.insert(place, id);
  touch(parent);
  return id;
}

NodeId Tree::intern_claimed(Place place, Place parent, std::uint32_t position) {
  const NodeId known = find(place);
  if (known != kNoNode && node(known).parent != kDetached) return known;
  NodeId above = kNoNode;
  if (position > 0 && (above = find(parent)) == kNoNode) {
    above = make_node(parent, kDetached);
    detached_.emplace(above, position - 1);
  }
  if (known == kNoNode) return make_node(place, above);
  set_parent(known, above);
  if (above != kNoNode) free_unused(above);
  return known;
}

// Hang a node elsewhere, with all below it; not below itself.
void Tree::set_parent(NodeId id, NodeId parent) {
  if (parent != kNoNode && is_below(parent, id)) return;
  const NodeId before = node(id).parent;
  unlink(node(id));
  detached_.erase(id);
  ++epoch_;
  at(id).parent = parent;
  at(id).next_sibling = at(id).previous_sibling = kNoNode;
  hang(id, parent);
  std::vector<Slot> changed;
  sets_.visit_difference(node(id).resident, 0, [&](Slot slot) {
    if (slots_[slot].is_anchored && follows(node(id), slot) != sets_.contains(node(id).anchored, slot))
      changed.push_back(slot);
  });
  for (const Slot slot : changed) {
    Node& moved = at(id);
    const bool has = sets_.contains(moved.anchored, slot);
    set_anchored_set(moved, has ? sets_.without(moved.anchored, slot) : sets_.with(moved.anchored, slot));
    unsettle(id, slot);
  }
  if (is_node(before)) free_unused(before);
}

bool Tree::is_below(NodeId id, NodeId above) const {
  if (id == above) return true;
  if (node(above).first_child == kNoNode) return false;
  while (is_node(id) && id != above) id = node(id).parent;
  return id == above;
}

// Put a node into the list of its parent's children.
void Tree::hang(NodeId id, NodeId parent) {
  if (!is_node(parent)) return;
  Node& above = at(parent);
  at(id).next_sibling = above.first_child;
  if (above.first_child != kNoNode) at(above.first_child).previous_sibling = id;
  above.first_child = id;
}

std::uint32_t Tree::position(NodeId id) const {
  std::uint32_t blocks = 0;
  NodeId top = id;
  for (; !knows_position(top) && is_node(node(top).parent); top = node(top).parent) ++blocks;
  std::uint32_t position = blocks;
  if (knows_position(top)) {
    position += known_position(top).position;
  } else if (const auto detached = detached_.find(top); detached != detached_.end()) {
    position += detached->second;
  }
  for (std::uint32_t above = 0; above < blocks; ++above, id = node(id).parent)
    if (above % kPositionStride == 0) known_position(id) = {id, epoch_, position - above};
  count_steps(blocks);
  return position;
}

void Tree::unlink(const Node& gone) {
  if (gone.previous_sibling != kNoNode)
    at(gone.previous_sibling).next_sibling = gone.next_sibling;
  else if (is_node(gone.parent))
    at(gone.parent).first_child = gone.next_sibling;
  if (gone.next_sibling != kNoNode) at(gone.next_sibling).previous_sibling = gone.previous_sibling;
}

void Tree::free_unused(NodeId id) {
  while (is_node(id)) {
    Node& gone = at(id);
    if (gone.parent == kFreed || gone.resident != 0 || gone.first_child != kNoNode) return;
    const NodeId parent = gone.parent;
    table_.erase(gone.place, id);
    unlink(gone);
    if (parent == kDetached) detached_.erase(id);
    if (knows_position(id)) known_position(id) = {};
    gone.parent = kFreed;
    gone.next_sibling = free_head_;
    free_head_ = id;
    ++free_count_;
    id = parent;
  }
}

void Tree::set_resident(Node& node, SetId set) {
  sets_.move_reference(node.resident, set);
  node.resident = set;
}

void Tree::set_anchored_set(Node& node, SetId set) {
  sets_.move_reference(node.anchored, set);
  node.anchored = set;
}

bool Tree::add(NodeId id, Slot slot) {
  Node& node = at(id);
  if (sets_.contains(node.resident, slot)) return false;
  const bool was_whole = node.anchored == node.resident;
  set_resident(node, sets_.with(node.resident, slot));
  ++slots_[slot].count;
  if (!slots_[slot].is_anchored) return true;
  if (!follows(node, slot)) return true;
  set_anchored_set(node, was_whole ? node.resident : sets_.with(node.anchored, slot));
  unsettle(id, slot);
  return true;
}

bool Tree::take(NodeId id, Slot slot) {
  Node& node = at(id);
  if (!sets_.contains(node.resident, slot)) return false;
  set_resident(node, sets_.without(node.resident, slot));
  --slots_[slot].count;
  if (!sets_.contains(node.anchored, slot)) return true;
  set_anchored_set(node, sets_.without(node.anchored, slot));
  unsettle(id, slot);
  return true;
}

bool Tree::take_from_all(NodeId id, Slot slot) {
  Node& node = at(id);
  if (!sets_.contains(node.resident, slot)) return false;
  set_resident(node, sets_.without(node.resident, slot));
  --slots_[slot].count;
  if (sets_.contains(node.anchored, slot)) set_anchored_set(node, sets_.without(node.anchored, slot));
  return true;
}

void Tree::unanchor_from_all(NodeId id, Slot slot) {
  Node& node = at(id);
  if (sets_.contains(node.anchored, slot)) set_anchored_set(node, sets_.without(node.anchored, slot));
}

bool Tree::needs_change(const Node& child, Slot slot, bool parent_has) const {
  const bool has = sets_.contains(child.anchored, slot);
  return has != (parent_has && (has || sets_.contains(child.resident, slot)));
}

// A node's anchored bit changed: list its edges, unless a glance shows that no child minds.
void Tree::unsettle(NodeId id, Slot slot) {
  const Node& parent = node(id);
  NodeId child = parent.first_child;
  const bool has = sets_.contains(parent.anchored, slot);
  for (int seen = 0; child != kNoNode && seen < kGlance && !needs_change(node(child), slot, has); ++seen)
    child = node(child).next_sibling;
  if (child == kNoNode) return;
  unsettled_.push_back({id, child, slot});
  if (slots_[slot].unsettled++ == 0) unsettled_slots_.push_back(slot);
}

void Tree::pop_edge() {
  const Slot slot = unsettled_.back().slot;
  unsettled_.pop_back();
  if (--slots_[slot].unsettled == 0)
    unsettled_slots_.erase(std::find(unsettled_slots_.begin(), unsettled_slots_.end(), slot));
}

void Tree::settle(std::size_t budget) {
  while (!unsettled_.empty() && budget-- > 0) {
    Edge& edge = unsettled_.back();
    const NodeId parent = edge.parent;
    const Slot slot = edge.slot;
    // A child that went, or now hangs elsewhere, means to begin again.
    if (edge.child != kNoNode && node(edge.child).parent != parent) edge.child = node(parent).first_child;
    if (edge.child == kNoNode || node(parent).parent == kFreed) {
      pop_edge();
      continue;
    }
    const NodeId child = edge.child;
    Node& below = at(child);
    edge.child = below.next_sibling;
    const bool has = sets_.contains(node(parent).anchored, slot);
    if (!needs_change(below, slot, has)) continue;
    set_anchored_set(below, has ? sets_.with(below.anchored, slot) : sets_.without(below.anchored, slot));
    if (edge.child == kNoNode) pop_edge();
    unsettle(child, slot);
  }
}

void Tree::touch(NodeId id) {
  for (; is_node(id) && node(id).age != tick_; id = node(id).parent) at(id).age = tick_;
}

std::size_t Tree::bytes() const {
  return (chunks_.size() << kChunkBits) * sizeof(Node) + table_.bytes() + sets_.bytes() +
         slots_.capacity() * sizeof(SlotState) + unsettled_.capacity() * sizeof(Edge) + sizeof positions_;
}

std::string Tree::find_contradiction() const {
  std::vector<std::size_t> counts(slots_.size(), 0);
  std::size_t live = 0;
  for (NodeId id = 0; id < used_; ++id) {
    const Node& one = node(id);
    if (one.parent == kFreed) continue;
    ++live;
    if (find(one.place) != id) return "a node is not where its hash says";
    if (one.resident == 0 && one.first_child == kNoNode) return "a node is kept that nobody needs";
    sets_.visit_difference(one.resident, 0, [&](Slot slot) { ++counts[slot]; });
    std::string found;
    sets_.visit_difference(one.anchored, one.resident, [&](Slot) { found = "anchored but not resident"; });
    const auto check = [&](Slot slot) {
      if (!slots_[slot].is_anchored || slots_[slot].unsettled != 0) return;
      if (is_anchored(id, slot) != follows(one, slot)) found = "a settled slot's anchored bit differs from its parent's";
    };
    sets_.visit_difference(one.resident, 0, check);
    if (!found.empty()) return found;
    for (NodeId child = one.first_child; child != kNoNode; child = node(child).next_sibling)
      if (node(child).parent != id) return "a child names another parent";
  }
  if (live != node_count() || live != table_.size()) return "nodes are counted wrongly";
  for (Slot slot = 0; slot < slots_.size(); ++slot)
    if (counts[slot] != slots_[slot].count) return "blocks of a slot are counted wrongly";
  return {};
}

}  // namespace dovecote
