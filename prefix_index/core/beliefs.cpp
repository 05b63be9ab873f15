// Groups that are believed: declaring, believing, correcting.

#include "beliefs.hpp"

namespace dovecote {

bool Beliefs::declare(const std::vector<DeclaredGroup>& layout, const Registry& registry) {
  bool is_known = true;
  for (std::size_t number = 0; number < layout.size(); ++number) {
    const DeclaredGroup& declared = layout[number];
    const OptionalNumber index{true, false, number};
    const Component component =
        registry.find(declared.kind ? std::optional<std::string_view>(*declared.kind) : std::nullopt, index,
                      declared.window);
    is_known &= component.rule != Rule::kUnknown;
    if (component.rule == Rule::kUnknown || component.rule == Rule::kPrefix) continue;
    groups_.push_back({index, declared.kind, declared.window, component, {}});
    declared_.push_back(declared);
  }
  return is_known;
}

Group* Beliefs::find(const OptionalNumber& number) {
  for (Group& group : groups_)
    if (group.number == number) return &group;
  return nullptr;
}

std::size_t Beliefs::find_reach(std::uint32_t block_tokens) const {
  std::uint64_t widest = 0;
  for (const Group& group : groups_)
    if (group.window.is_given && !group.window.is_negative) widest = std::max(widest, group.window.bits);
  return widest / block_tokens + (widest % block_tokens != 0);
}

bool Beliefs::open(Group& group, Tier tier, std::uint32_t block_tokens) {
  TierShelf& shelf = group.tiers[tier];
  if (!shelf.is_open()) shelf = {block_tokens, kNoShelf, tree_.make_slot(owner_, false)};
  return shelf.block_tokens == block_tokens;
}

void Beliefs::believe(const std::vector<StoredBlock>& run, std::size_t count, Tier tier, std::uint32_t block_tokens,
                      const Registry& registry, std::vector<Place>& touched) {
  for (std::size_t index = 0; index < groups_.size(); ++index) {
    const DeclaredGroup& declared = declared_[index];
    Group& group = groups_[index];
    if ((tier != kDevice && !declared.is_offloaded) || !open(group, tier, block_tokens)) continue;
    const std::uint64_t step = std::max<std::uint64_t>(1, declared.checkpoint_tokens);
    std::size_t last = 0;
    while (last < count && last < run.size() && run[last].end_tokens % step != 0) ++last;
    if (last >= count || last >= run.size()) continue;
    const std::uint64_t start = registry.find_start(group.component, run[last].end_tokens);
    for (; last < run.size() && run[last].end_tokens > start; ++last)
      if (tree_.add(run[last].node, group.tiers[tier].slot)) touched.push_back(tree_.node(run[last].node).place);
  }
}

void Beliefs::correct(const Chains& chains, std::uint64_t full_tokens, std::uint64_t cached_tokens,
                      const Registry& registry) {
  for (Group& group : groups_) {
    const std::uint64_t size = group.tiers[kDevice].block_tokens;
    const Chain* chain = size > 0 ? chains.find(static_cast<std::uint32_t>(size)) : nullptr;
    if (chain == nullptr) continue;
    const Slot slot = group.tiers[kDevice].slot;
    for (std::uint64_t index = cached_tokens / size; index < std::min<std::uint64_t>(full_tokens / size, chain->count); ++index)
      if (const NodeId node = tree_.find(chain->at(index)); node != kNoNode) tree_.take(node, slot);
    if (cached_tokens % size != 0 || cached_tokens > full_tokens) continue;
    const std::uint64_t first = registry.find_start(group.component, cached_tokens) / size;
    for (std::uint64_t index = first; index < std::min<std::uint64_t>(cached_tokens / size, chain->count); ++index)
      if (const NodeId node = tree_.find(chain->at(index)); node != kNoNode) tree_.add(node, slot);
  }
}

void Beliefs::end() {
  for (Group& group : groups_)
    for (TierShelf& tier : group.tiers)
      if (tier.is_open()) tree_.give_back(tier.slot);
  groups_.clear();
  declared_.clear();
}

}  // namespace dovecote
