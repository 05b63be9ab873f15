// A shared pool: storing, removing, forgetting the oldest.

#include "pool.hpp"

namespace dovecote {
namespace {

//: Owner of slots that no holder has.
constexpr std::uint32_t kNobody = ~0u;

}  // namespace

const Group* Pool::find(const OptionalNumber& number) const {
  for (const Group& group : groups_)
    if (group.number == number) return &group;
  return nullptr;
}

void Pool::store(const Group& like, Tier tier, NodeId node) {
  Group* group = const_cast<Group*>(find(like.number));
  if (group == nullptr) {
    group = &groups_.emplace_back(Group{like.number, like.kind, like.window, like.component, {}});
  } else if (!group->is_of(like.kind, like.window)) {
    return;
  }
  TierShelf& shelf = group->tiers[tier];
  if (!shelf.is_open()) {
    shelf = {like.tiers[tier].block_tokens, static_cast<ShelfId>(stands_.size()), tree_.make_slot(kNobody, false)};
    stands_.push_back({shelf.slot, {}, {}});
  }
  if (shelf.block_tokens != like.tiers[tier].block_tokens) return;
  Stand& stand = stands_[shelf.shelf];
  size_ += tree_.add(node, stand.slot);
  stand.last[node] = ++stores_;
  stand.order.emplace_back(node, stores_);
  tidy(stand);
}

void Pool::remove(const Group& like, Tier tier, NodeId node) {
  const Group* group = find(like.number);
  if (group == nullptr || !group->tiers[tier].is_open()) return;
  Stand& stand = stands_[group->tiers[tier].shelf];
  if (stand.last.erase(node) == 0) return;
  tree_.take(node, stand.slot);
  --size_;
}

bool Pool::has(const OptionalNumber& number, Tier tier, NodeId node) const {
  const Group* group = find(number);
  return group != nullptr && group->tiers[tier].is_open() && tree_.is_resident(node, group->tiers[tier].slot);
}

bool Pool::remove_oldest() {
  Stand* fullest = nullptr;
  for (Stand& stand : stands_)
    if (fullest == nullptr || stand.last.size() > fullest->last.size()) fullest = &stand;
  while (fullest != nullptr && !fullest->order.empty()) {
    const auto [node, number] = fullest->order.front();
    fullest->order.pop_front();
    const auto found = fullest->last.find(node);
    if (found == fullest->last.end() || found->second != number) continue;
    fullest->last.erase(found);
    tree_.take(node, fullest->slot);
    tree_.free_unused(node);
    --size_;
    return true;
  }
  return false;
}

// Outdated stores go once they are most.
void Pool::tidy(Stand& stand) {
  if (stand.order.size() < 64 + 2 * stand.last.size()) return;
  std::erase_if(stand.order, [&](const auto& store) {
    const auto found = stand.last.find(store.first);
    return found == stand.last.end() || found->second != store.second;
  });
}

void Pool::clear() {
  for (Stand& stand : stands_) {
    for (const auto& [node, number] : stand.last) {
      tree_.take(node, stand.slot);
      tree_.free_unused(node);
    }
    tree_.give_back(stand.slot);
  }
  groups_.clear();
  stands_.clear();
  size_ = 0;
}

}  // namespace dovecote
