// Names of one block size: copies of an entry, parking and unparking, doubt by place.

#include "block_names.hpp"

namespace dovecote {

void BlockNames::set(std::size_t at, NodeId node, const Copies& copies) {
  const std::uint32_t before = map.code(at), code = codes_.find(copies);
  if (code == CopyCodes::kMany)
    many_[map.name(at)] = copies;
  else if (before == CopyCodes::kMany)
    many_.erase(map.name(at));
  map.set(at, node, code);
}

void BlockNames::insert(Name name, NodeId node, const Copies& copies) {
  const std::uint32_t code = codes_.find(copies);
  if (code == CopyCodes::kMany) many_[name] = copies;
  map.insert(name, node, code);
}

void BlockNames::erase(std::size_t at) {
  if (map.code(at) == CopyCodes::kMany) many_.erase(map.name(at));
  map.erase(at);
}

void BlockNames::park(Name name, Parked parked, std::size_t max_parked) {
  if (parked_.contains(name)) return;
  parked.order = next_order_++;
  parked_tokens_ += parked.tokens.size();
  parked_order_.emplace(parked.order, name);
  waiting_[parked.parent].emplace(parked.order, name);
  parked_.emplace(name, std::move(parked));
  while (!parked_.empty() && (parked_.size() > max_parked || parked_tokens_ > kMaxParkedTokens)) forget_oldest_parked();
}

void BlockNames::forget_oldest_parked() {
  const Name oldest = parked_order_.begin()->second;
  unpark(oldest);
  erase(map.find(oldest));
}

std::optional<Parked> BlockNames::unpark(Name name) {
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

std::vector<Name> BlockNames::waiting_for(Name parent) const {
  std::vector<Name> names;
  const auto found = waiting_.find(parent);
  if (found != waiting_.end())
    for (const auto& [order, name] : found->second) names.push_back(name);
  return names;
}

void BlockNames::add_doubt(NodeId node, Name name) {
  DoubtedNames& names = doubted_[node];
  ++names.count;
  names.bits ^= name;
}

void BlockNames::take_doubt(NodeId node, Name name) {
  const auto found = doubted_.find(node);
  found->second.bits ^= name;
  if (--found->second.count == 0) doubted_.erase(found);
}

std::optional<Name> BlockNames::doubted_at(NodeId node) const {
  const auto found = doubted_.find(node);
  if (found == doubted_.end() || found->second.count != 1) return std::nullopt;
  return found->second.bits;
}

void BlockNames::clear() {
  map.clear();
  many_.clear();
  doubted_.clear();
  parked_.clear();
  parked_order_.clear();
  waiting_.clear();
  parked_tokens_ = 0;
}

std::size_t BlockNames::bytes() const {
  return sizeof *this + map.bytes() + doubted_.size() * 40 + many_.size() * 96 + parked_.size() * 320 +
         parked_tokens_ * 4;
}

std::string BlockNames::find_contradiction(std::size_t max_parked) const {
  std::size_t unplaced = 0, many = 0;
  std::unordered_map<NodeId, std::uint32_t> doubted;
  for (std::size_t at = 0; at < map.capacity(); ++at) {
    if (!map.is_used(at)) continue;
    if (map.find(map.name(at)) != at) return "an entry is not where its name says";
    if (copies(at).is_gone()) return "an entry is kept without a copy";
    const bool is_placed = map.node(at) != kNoNode;
    unplaced += !is_placed;
    many += map.code(at) == CopyCodes::kMany;
    if (is_placed == is_parked(map.name(at))) return "a block has no place and does not wait, or has one and waits";
    if (is_placed && copies(at).has_doubt()) ++doubted[map.node(at)];
  }
  if (many != many_.size()) return "copies are kept beside the map for nobody";
  if (parked_.size() != unplaced || parked_.size() > max_parked) return "parked blocks are unbounded or unknown";
  if (doubted.size() != doubted_.size()) return "doubt is kept for nobody";
  for (const auto& [node, count] : doubted)
    if (!doubted_.contains(node) || doubted_.at(node).count != count) return "doubt by place differs from the names'";
  return {};
}

}  // namespace dovecote
