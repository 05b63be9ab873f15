// One group's entries: counting copies, parking and unparking.

#include "group.hpp"

namespace dovecote {
namespace {

constexpr std::uint32_t kMostDevice = kHostStep - 1, kMostHost = 3;

}  // namespace

std::uint32_t Group::count(std::size_t at, Medium medium) const {
  const std::uint32_t code = blocks.code(at);
  if (code != kManyCopies) {
    if (medium == kDevice) return code % kHostStep;
    return medium == kHost ? code / kHostStep : 0;
  }
  const ManyCopies& many = many_.at(blocks.name(at));
  if (medium == kDevice) return many.device;
  if (medium == kHost) return many.host;
  for (const auto& [other, copies] : many.others)
    if (other == medium) return copies;
  return 0;
}

bool Group::is_gone(std::size_t at) const {
  if (blocks.code(at) != kManyCopies) return blocks.code(at) == 0;
  const ManyCopies& many = many_.at(blocks.name(at));
  return many.device == 0 && many.host == 0 && many.others.empty();
}

ManyCopies& Group::make_many(std::size_t at) {
  const std::uint32_t code = blocks.code(at);
  ManyCopies& many = many_[blocks.name(at)];
  if (code != kManyCopies) {
    many.device = code % kHostStep;
    many.host = code / kHostStep;
    blocks.set(at, blocks.node(at), kManyCopies);
  }
  return many;
}

void Group::add_copy(std::size_t at, Medium medium) {
  const std::uint32_t code = blocks.code(at);
  if (code != kManyCopies) {
    if (medium == kDevice && code % kHostStep < kMostDevice) return blocks.set(at, blocks.node(at), code + 1);
    if (medium == kHost && code / kHostStep < kMostHost) return blocks.set(at, blocks.node(at), code + kHostStep);
  }
  ManyCopies& many = make_many(at);
  if (medium == kDevice) return static_cast<void>(++many.device);
  if (medium == kHost) return static_cast<void>(++many.host);
  for (auto& [other, copies] : many.others)
    if (other == medium) return static_cast<void>(++copies);
  if (many.others.size() < kMaxTiers) many.others.emplace_back(medium, 1);
}

bool Group::take_copy(std::size_t at, Medium medium) {
  if (count(at, medium) == 0) return false;
  const std::uint32_t code = blocks.code(at);
  if (code != kManyCopies) {
    const std::uint32_t left = code - (medium == kDevice ? 1 : kHostStep);
    // An entry's word must not become 0 before it is erased: the caller erases what is gone.
    blocks.set(at, blocks.node(at), left);
    return true;
  }
  ManyCopies& many = many_.at(blocks.name(at));
  if (medium == kDevice) {
    --many.device;
  } else if (medium == kHost) {
    --many.host;
  } else {
    std::erase_if(many.others, [&](auto& other) { return other.first == medium && --other.second == 0; });
  }
  return true;
}

void Group::insert(Name name, NodeId node, Medium medium) {
  if (medium == kDevice) return blocks.insert(name, node, 1);
  if (medium == kHost) return blocks.insert(name, node, kHostStep);
  blocks.insert(name, node, kManyCopies);
  many_[name].others.emplace_back(medium, 1);
}

void Group::erase(std::size_t at) {
  if (blocks.code(at) == kManyCopies) many_.erase(blocks.name(at));
  blocks.erase(at);
}

void Group::park(Name name, Parked parked, std::size_t max_parked) {
  if (parked_.contains(name)) return;
  parked.order = next_order_++;
  parked_tokens_ += parked.tokens.size();
  parked_order_.emplace(parked.order, name);
  waiting_[parked.parent].emplace(parked.order, name);
  parked_.emplace(name, std::move(parked));
  while (parked_.size() > max_parked || (parked_tokens_ > kMaxParkedTokens && parked_.size() > 1)) {
    const Name oldest = parked_order_.begin()->second;
    unpark(oldest);
    erase(blocks.find(oldest));
  }
}

std::optional<Parked> Group::unpark(Name name) {
  if (parked_.empty()) return std::nullopt;
  const auto found = parked_.find(name);
  if (found == parked_.end()) return std::nullopt;
  Parked parked = std::move(found->second);
  parked_.erase(found);
  parked_tokens_ -= parked.tokens.size();
  parked_order_.erase(parked.order);
  const auto siblings = waiting_.find(parked.parent);
  siblings->second.erase(parked.order);
  if (siblings->second.empty()) waiting_.erase(siblings);
  return parked;
}

std::vector<Name> Group::waiting_for(Name parent) const {
  std::vector<Name> names;
  const auto found = waiting_.find(parent);
  if (found != waiting_.end())
    for (const auto& [order, name] : found->second) names.push_back(name);
  return names;
}

void Group::forget() {
  blocks.clear();
  many_.clear();
  parked_.clear();
  parked_order_.clear();
  waiting_.clear();
  parked_tokens_ = 0;
}

std::size_t Group::bytes() const {
  return sizeof *this + blocks.bytes() + doubted.bytes() + doubted_at.size() * 40 + many_.size() * 96 +
         parked_.size() * 320 + parked_tokens_ * 4 + device.bytes() + kept.bytes();
}

}  // namespace dovecote
