// The hybrid rule: views of groups, the boundary, the alternatives.

#include "reuse.hpp"

#include <algorithm>
#include <numeric>

namespace dovecote {

void GroupView::add(const Group& group, const Source& source) {
  const auto begin = static_cast<std::ptrdiff_t>(shelves_.size());
  for (const Tier tier : source.tiers)
    if (group.tiers[tier].is_open() && group.tiers[tier].slot != kNoSlot)
      shelves_.push_back({source.reach, group.tiers[tier].block_tokens, group.tiers[tier].slot});
  std::stable_sort(shelves_.begin() + begin, shelves_.end(),
                   [](const ShelfView& one, const ShelfView& other) { return one.block_tokens > other.block_tokens; });
}

const GroupView::ShelfView* GroupView::find_ending(const Prompt& prompt, std::uint64_t end_tokens,
                                                   std::uint64_t of_tokens) const {
  std::uint64_t size = 0;
  NodeId node = kNoNode;
  prompt.tree.count_steps(1);
  for (const ShelfView& shelf : shelves_) {
    if (of_tokens != 0 && shelf.block_tokens != of_tokens) continue;
    if (shelf.block_tokens != size) {
      size = shelf.block_tokens;
      const Chain* chain = prompt.chains.find(static_cast<std::uint32_t>(size));
      const std::uint64_t index = end_tokens / size;
      const bool is_end = chain != nullptr && end_tokens % size == 0 && index > 0 && index <= chain->count;
      node = is_end ? prompt.tree.find(chain->at(index - 1)) : kNoNode;
    }
    if (node != kNoNode && prompt.tree.is_resident(node, shelf.slot)) return &shelf;
  }
  return nullptr;
}

std::uint64_t GroupView::find_hole(const Prompt& prompt, std::uint64_t end_tokens) const {
  const std::uint64_t start = prompt.registry.find_start(component(), end_tokens);
  const std::uint64_t size = only_size();
  std::uint64_t place = end_tokens, hole = 0;
  const bool is_inside = end_tokens > unbroken_.from_tokens && end_tokens <= unbroken_.to_tokens;
  const bool goes_on = size > 0 && is_inside && (unbroken_.to_tokens - end_tokens) % size == 0;
  if (goes_on) place = unbroken_.from_tokens;
  while (place > start && hole == 0) {
    const ShelfView* shelf = find_ending(prompt, place);
    if (shelf == nullptr)
      hole = place;
    else
      place -= shelf->block_tokens;
  }
  if (size > 0) unbroken_ = {place, goes_on ? unbroken_.to_tokens : end_tokens};
  return hole;
}

// Tokens a block where all shelves have the same, else 0.
std::uint64_t GroupView::only_size() const {
  for (const ShelfView& shelf : shelves_)
    if (shelf.block_tokens != shelves_.front().block_tokens) return 0;
  return shelves_.empty() ? 0 : shelves_.front().block_tokens;
}

void GroupView::settle(std::uint64_t block_tokens, std::uint64_t tokens) {
  const bool is_alike = std::all_of(shelves_.begin(), shelves_.end(),
                                    [&](const ShelfView& shelf) { return shelf.block_tokens == block_tokens; });
  // Only a group that stands on the rank's own device is among those that have them.
  const bool is_on_device = !shelves_.empty() && shelves_.front().reach == Reach::kDevice;
  settled_tokens_ = is_alike && is_on_device && is_prefix() ? tokens : 0;
}

std::uint64_t GroupView::cover(const Prompt& prompt, std::uint64_t limit_tokens) const {
  if (covered_ && covered_->first == limit_tokens) return covered_->second;
  std::vector<std::uint64_t> sizes;
  for (const ShelfView& shelf : shelves_)
    if (std::find(sizes.begin(), sizes.end(), shelf.block_tokens) == sizes.end()) sizes.push_back(shelf.block_tokens);
  std::sort(sizes.begin(), sizes.end(), std::greater<>());
  std::uint64_t place = settled_tokens_;
  while (place < limit_tokens) {
    const auto size = std::find_if(sizes.begin(), sizes.end(), [&](std::uint64_t each) {
      return place % each == 0 && find_ending(prompt, place + each, each) != nullptr;
    });
    if (size == sizes.end()) break;
    place += *size;
  }
  covered_ = {limit_tokens, place};
  return place;
}

void GroupView::find_loads(const Prompt& prompt, std::uint64_t end_tokens, std::vector<Load>& loads) const {
  std::uint64_t tokens[3] = {0, 0, 0};
  // What the device has need not be fetched.
  const std::uint64_t start = std::max(settled_tokens_, prompt.registry.find_start(component(), end_tokens));
  for (std::uint64_t place = end_tokens; place > start;) {
    const ShelfView* shelf = find_ending(prompt, place);
    const std::uint64_t size = shelf == nullptr ? grain_tokens_ : shelf->block_tokens;
    tokens[shelf == nullptr ? 0 : static_cast<std::size_t>(shelf->reach)] += size;
    place -= std::min(place, size);
  }
  for (const Reach source : {Reach::kHost, Reach::kPools})
    if (const std::uint64_t count = tokens[static_cast<std::size_t>(source)]; count > 0)
      loads.push_back({group_->number, component().id, source, count});
}

Views make_views(const std::vector<Source>& sources) {
  Views views;
  for (const Source& source : sources) {
    for (const std::deque<Group>* groups : source.groups) {
      for (const Group& group : *groups) {
        if (!group.is_known()) return {};
        auto view = std::find_if(views.begin(), views.end(),
                                 [&](const GroupView& each) { return each.group().number == group.number; });
        if (view == views.end()) view = views.insert(views.end(), GroupView(group));
        view->add(group, source);
      }
    }
  }
  return views;
}

bool is_complete(const std::vector<const std::deque<Group>*>& reported) {
  std::vector<std::uint64_t> numbers;
  for (const std::deque<Group>* groups : reported)
    for (const Group& group : *groups)
      if (group.number.is_given) numbers.push_back(group.number.is_negative ? ~0ull : group.number.bits);
  std::sort(numbers.begin(), numbers.end());
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
  return numbers.empty() || numbers.back() == numbers.size() - 1;
}

std::uint64_t find_grain(const Views& views) {
  //: Beyond any prompt.
  constexpr std::uint64_t kFarthest = std::uint64_t{1} << 42;
  std::uint64_t grain = 1;
  for (const GroupView& view : views) grain = std::min(kFarthest, std::lcm(grain, view.grain_tokens()));
  return grain;
}

std::uint64_t find_boundary(const std::vector<const GroupView*>& views, const Prompt& prompt,
                            std::uint64_t limit_tokens, std::uint64_t grain_tokens) {
  for (const GroupView* view : views)
    if (view->is_prefix()) limit_tokens = std::min(limit_tokens, view->cover(prompt, limit_tokens));
  std::uint64_t end = limit_tokens / grain_tokens * grain_tokens;
  while (end > 0) {
    std::uint64_t hole = 0;
    for (const GroupView* view : views)
      if (!view->is_prefix() && hole == 0) hole = view->find_hole(prompt, end);
    if (hole == 0) return end;
    // Every boundary from the hole's end to here needs the block that is not there.
    end = (hole - 1) / grain_tokens * grain_tokens;
  }
  return 0;
}

namespace {

bool is_relaxed(const GroupView& view, unsigned relaxed) {
  return (relaxed >> static_cast<unsigned>(view.component().recovery) & 1) != 0;
}

// The boundary that is open when the groups of some kinds of recovery may be rebuilt or replayed.
Alternative plan(const Views& views, const Prompt& prompt, std::uint64_t limit_tokens, unsigned relaxed) {
  const std::uint64_t grain = find_grain(views);
  std::vector<const GroupView*> kept, replayed;
  for (const GroupView& view : views)
    if (!is_relaxed(view, relaxed)) kept.push_back(&view);
  Alternative found;
  found.reuse_tokens = find_boundary(kept, prompt, limit_tokens, grain);
  for (const GroupView* view : kept) view->find_loads(prompt, found.reuse_tokens, found.loads);
  for (const GroupView& view : views) {
    if (!is_relaxed(view, relaxed)) continue;
    if (view.component().recovery == Recovery::kReplay) {
      replayed.push_back(&view);
    } else if (view.find_hole(prompt, found.reuse_tokens) == 0) {
      view.find_loads(prompt, found.reuse_tokens, found.loads);
    } else {
      const std::uint64_t start = prompt.registry.find_start(view.component(), found.reuse_tokens);
      found.window_tokens = std::max(found.window_tokens, found.reuse_tokens - start);
    }
  }
  if (replayed.empty()) return found;
  const std::uint64_t checkpoint = find_boundary(replayed, prompt, found.reuse_tokens, grain);
  for (const GroupView* view : replayed) view->find_loads(prompt, checkpoint, found.loads);
  found.replay_tokens = found.reuse_tokens - checkpoint;
  return found;
}

}  // namespace

void add_alternatives(const Views& views, Reach reach, const Prompt& prompt, std::uint64_t limit_tokens,
                      std::vector<Alternative>& found) {
  constexpr unsigned kRebuild = 1u << static_cast<unsigned>(Recovery::kRebuild);
  constexpr unsigned kReplay = 1u << static_cast<unsigned>(Recovery::kReplay);
  unsigned recoveries = 0;
  for (const GroupView& view : views) recoveries |= 1u << static_cast<unsigned>(view.component().recovery);
  for (const unsigned relaxed : {0u, kRebuild, kReplay, kRebuild | kReplay}) {
    if (views.empty() || (relaxed & ~recoveries) != 0) continue;
    Alternative one = plan(views, prompt, limit_tokens, relaxed);
    one.reach = reach;
    const bool is_better = std::none_of(found.begin(), found.end(), [&](const Alternative& old) {
      return old.reuse_tokens >= one.reuse_tokens && old.recompute_tokens() <= one.recompute_tokens();
    });
    if (one.recompute_tokens() < one.reuse_tokens && is_better) found.push_back(std::move(one));
  }
}

}  // namespace dovecote
