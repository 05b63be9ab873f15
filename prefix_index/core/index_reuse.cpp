// The index: what holders with several groups or tiers can reuse, and what else they could get at.

#include <algorithm>

#include "index.hpp"

namespace dovecote {

Views Index::device_views(const Holder& holder) const {
  if (!holder.is_modelled() || !(holder.is_plain() || is_complete({&holder.groups()}))) return {};
  return make_views({{Reach::kDevice, {&holder.groups(), &holder.believed()}, {kDevice}}});
}

std::uint64_t Index::find_device_reuse(std::uint32_t number, const Chains& chains, std::uint64_t limit_tokens,
                                       std::optional<std::uint64_t> full_tokens) const {
  const Holder& holder = *holders_[number];
  const Views views = device_views(holder);
  if (views.empty()) return 0;
  const bool is_settled = full_tokens.has_value() && holder.has_one_full_size();
  if (is_settled) limit_tokens = std::min(limit_tokens, *full_tokens);
  std::vector<const GroupView*> open;
  for (const GroupView& view : views)
    if (!(is_settled && view.is_prefix())) open.push_back(&view);
  return find_boundary(open, {tree_, commons_.registry, chains}, limit_tokens, find_grain(views));
}

// Tokens that all groups of full attention have on the device, by the anchored slot, and the size of their blocks.
std::pair<std::uint64_t, std::uint64_t> Index::find_settled(const Holder& holder, const Chains& chains) const {
  const Counted* counted = holder.only_counted();
  const Chain* chain = counted == nullptr ? nullptr : chains.find(counted->block_tokens);
  if (chain == nullptr || !tree_.is_settled(counted->slot)) return {1, 0};
  std::size_t low = 0, high = chain->count;
  while (low < high) {
    const std::size_t middle = low + (high - low + 1) / 2;
    const NodeId node = tree_.find(chain->at(middle - 1));
    if (node != kNoNode && tree_.is_anchored(node, counted->slot))
      low = middle;
    else
      high = middle - 1;
  }
  return {counted->block_tokens, low * std::uint64_t{counted->block_tokens}};
}

// What a rank reads, nearest first.
std::vector<Source> Index::find_sources(const Holder& holder) const {
  std::vector<Source> sources{{Reach::kDevice, {&holder.groups(), &holder.believed()}, {kDevice}},
                              {Reach::kHost, {&holder.groups(), &holder.believed()}, {kHost}}};
  const HolderSettings& own = holder.settings();
  for (const auto& other : holders_) {
    if (!own.host || other == nullptr || other.get() == &holder) continue;
    if (other->settings().host == own.host && other->settings().model == own.model)
      sources.push_back({Reach::kHost, {&other->groups(), &other->believed()}, {kHost}});
  }
  if (holder.pools().empty())
    sources.push_back({Reach::kPools, {&holder.groups(), &holder.believed()}, {kDisk, kExternal}});
  for (const Pool* pool : holder.pools()) sources.push_back({Reach::kPools, {&pool->groups()}, {kDisk, kExternal}});
  return sources;
}

std::vector<Alternative> Index::find_alternatives(std::uint32_t number, const Chains& chains,
                                                  std::uint64_t limit_tokens) const {
  const Holder& holder = *holders_[number];
  std::vector<Alternative> found;
  if (!holder.is_modelled()) return found;
  const std::vector<Source> sources = find_sources(holder);
  const std::pair<std::uint64_t, std::uint64_t> settled = find_settled(holder, chains);
  for (const Reach reach : {Reach::kDevice, Reach::kHost, Reach::kPools}) {
    std::vector<Source> near;
    std::vector<const std::deque<Group>*> reported;
    for (const Source& source : sources) {
      if (source.reach > reach) continue;
      near.push_back(source);
      reported.push_back(source.groups.front());
    }
    Views views = is_complete(reported) ? make_views(near) : Views{};
    for (GroupView& view : views) view.settle(settled.first, settled.second);
    add_alternatives(views, reach, {tree_, commons_.registry, chains}, limit_tokens, found);
  }
  return found;
}

std::uint64_t Index::correct(std::uint32_t number, const Chains& chains, std::uint64_t limit_tokens,
                             std::uint64_t cached_tokens) {
  std::uint64_t full_tokens = ~std::uint64_t{0};
  const Views views = device_views(*holders_[number]);
  for (const GroupView& view : views)
    if (view.is_prefix())
      full_tokens = std::min(full_tokens, view.cover({tree_, commons_.registry, chains}, limit_tokens));
  if (full_tokens == ~std::uint64_t{0}) full_tokens = 0;
  holders_[number]->correct(chains, std::min(full_tokens, limit_tokens), cached_tokens);
  return find_device_reuse(number, chains, limit_tokens, std::nullopt);
}

}  // namespace dovecote
