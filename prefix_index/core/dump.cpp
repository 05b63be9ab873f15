// A holder's blocks as runs of records, and back. A parked block has none: it waits for tokens again.

#include <algorithm>

#include "holder.hpp"

namespace dovecote {
namespace {

constexpr std::uint32_t kUnknownPosition = ~0u;

//: Positions of nodes, each walk up to where one is known already.
class Positions {
 public:
  explicit Positions(const Tree& tree) : tree_(tree), known_(tree.node_limit(), kUnknownPosition) {}
  std::uint32_t find(NodeId id) {
    path_.clear();
    for (NodeId at = id; at != kNoNode && known_[at] == kUnknownPosition; at = tree_.parent(at)) path_.push_back(at);
    for (; !path_.empty(); path_.pop_back()) {
      const NodeId above = tree_.parent(path_.back());
      known_[path_.back()] = above == kNoNode ? tree_.position(path_.back()) : known_[above] + 1;
    }
    return known_[id];
  }

 private:
  const Tree& tree_;
  std::vector<std::uint32_t> known_;
  std::vector<NodeId> path_;
};

Run make_run(const Group& group, Tier tier, bool is_doubted) {
  const std::uint32_t block_tokens = std::max<std::uint32_t>(1, group.tiers[tier].block_tokens);
  return {block_tokens, tier, group.number, group.window, group.kind, is_doubted, {}};
}

}  // namespace

// Records of no copies come first: they say which groups and tiers there are, for an empty one decides hits too.
std::vector<Run> Holder::dump() const {
  std::vector<Run> runs;
  for (const Group& group : groups_)
    for (std::size_t tier = 0; tier < kTiers; ++tier) {
      // A group whose rule is not known has no shelf, and takes all credit.
      if (!group.tiers[tier].is_open() && (group.is_known() || tier != kDevice)) continue;
      runs.push_back(make_run(group, static_cast<Tier>(tier), false));
      runs.back().records.push_back({0, 0, 0, 0, 0});
    }
  Positions positions(tree_);
  std::vector<Order> orders;
  for (const BlockNames& names : names_) {
    auto& order = orders.emplace_back();
    for (std::size_t at = 0; at < names.map.capacity(); ++at)
      if (names.map.is_used(at) && names.map.node(at) != kNoNode)
        order.push_back({positions.find(names.map.node(at)), names.map.name(at), at});
    // Equal blocks give equal bytes, in whatever order they came.
    std::sort(order.begin(), order.end(), [](const Placed& one, const Placed& other) {
      return one.position != other.position ? one.position < other.position : one.name < other.name;
    });
  }
  for (std::size_t index = 0; index < names_.size(); ++index) dump_names(names_[index], orders[index], runs);
  return runs;
}

// Records of one block size, in the order given: for each shelf those that count and those that are doubted, and
// what is believed of the places that count.
void Holder::dump_names(const BlockNames& names, const Order& order, std::vector<Run>& runs) const {
  std::vector<Run> own, doubted, believed;
  std::vector<std::pair<Tier, Slot>> beliefs;
  for (const Shelf& shelf : shelves_) {
    own.push_back(make_run(*shelf.group, shelf.tier, false));
    doubted.push_back(make_run(*shelf.group, shelf.tier, true));
  }
  for (const Group& group : beliefs_.groups())
    for (std::size_t tier = 0; tier < kTiers; ++tier) {
      if (group.tiers[tier].block_tokens != names.block_tokens) continue;
      believed.push_back(make_run(group, static_cast<Tier>(tier), false));
      beliefs.emplace_back(static_cast<Tier>(tier), group.tiers[tier].slot);
    }
  for (const auto& [position, name, at] : order) {
    const NodeId node = names.map.node(at);
    const NodeId above = tree_.parent(node);
    const Place parent = above == kNoNode ? 0 : tree_.node(above).place;
    const Record record{name, parent, tree_.node(node).place, 1, position};
    const Copies& copies = names.copies(at);
    for (const Copy& copy : copies.list) {
      const Shelf& shelf = shelves_[copy.shelf];
      // Another rank may have removed it from the pool since.
      if (copy.count > 0 && shelf.is_pooled && !pools_.front()->has(shelf.group->number, shelf.tier, node)) continue;
      Record& told = (copy.is_doubted ? doubted : own)[copy.shelf].records.emplace_back(record);
      told.copies = std::max<std::uint32_t>(1, copy.count);
    }
    for (std::size_t index = 0; index < beliefs.size(); ++index)
      if (tree_.is_resident(node, beliefs[index].second) && has_copy(copies, beliefs[index].first))
        believed[index].records.push_back(record);
  }
  for (auto* part : {&own, &doubted, &believed})
    for (Run& run : *part)
      if (!run.records.empty()) runs.push_back(std::move(run));
}

bool Holder::has_copy(const Copies& copies, Tier tier) const {
  return std::any_of(copies.list.begin(), copies.list.end(),
                     [&](const Copy& copy) { return copy.count > 0 && shelves_[copy.shelf].tier == tier; });
}

std::size_t Holder::load(const Run& run, Delta& delta) {
  if (run.tier == kNoTier || run.block_tokens < 1) return 0;
  std::size_t taken = 0;
  Group* believed = run.number.is_given ? beliefs_.find(run.number) : nullptr;
  const std::optional<std::string_view> kind =
      run.kind ? std::optional<std::string_view>(*run.kind) : std::nullopt;
  if (believed != nullptr && believed->is_of(kind, run.window)) {
    for (const Record& record : run.records) {
      const NodeId node = tree_.find(record.place);
      if (record.copies == 0 || node == kNoNode || !beliefs_.open(*believed, run.tier, run.block_tokens)) continue;
      if (!has_full(node, run.tier)) continue;
      tree_.add(node, believed->tiers[run.tier].slot);
      ++taken;
    }
    return taken;
  }
  Group* group = admit(run.number, kind, run.window);
  if (group == nullptr || !group->is_known() || tree_.is_full()) return 0;
  const ShelfId id = open_shelf(*group, run.tier, run.block_tokens, delta);
  if (id == kNoShelf) return 0;
  for (std::size_t index = 0; index < run.records.size(); ++index) {
    if (index + 8 < run.records.size()) {
      shelves_[id].names->map.fetch(run.records[index + 8].name);
      tree_.fetch(run.records[index + 8].place);
    }
    taken += restore(id, run.records[index], run.is_doubted, delta);
  }
  free_loose();
  return taken;
}

bool Holder::has_full(NodeId node, Tier tier) const {
  return std::any_of(shelves_.begin(), shelves_.end(), [&](const Shelf& shelf) {
    return shelf.tier == tier && shelf.group->is_prefix() && !shelf.is_pooled &&
           tree_.is_resident(node, shelf.held.slot());
  });
}

// Put one record back; false where it cannot be, or is there already.
bool Holder::restore(ShelfId id, const Record& record, bool is_doubted, Delta& delta) {
  if (record.copies == 0) return false;
  Shelf& shelf = shelves_[id];
  BlockNames& names = *shelf.names;
  const std::size_t at = names.map.find(record.name);
  if (at == BlockNames::kAbsent) {
    const NodeId node = tree_.intern_claimed(record.place, record.parent, record.position);
    Copies copies;
    copies.set(id, record.copies);
    if (is_doubted) copies.doubt_all();
    names.insert(record.name, node, copies);
    if (is_kept(copies)) kept_.hold(tree_, node);
    is_doubted ? names.add_doubt(node, record.name) : gain(shelf, node, delta);
    if (names.is_waited_for(record.name)) link(names, record.name, delta);
    return true;
  }
  const NodeId node = names.map.node(at);
  Copies copies = names.copies(at);
  if (node == kNoNode || tree_.node(node).place != record.place) return false;
  if (copies.count(id) > 0 || copies.is_doubted(id)) return false;
  copies.add(Copy{id, is_doubted, is_doubted ? 0 : record.copies});
  change(names, at, copies, node, delta);
  return true;
}

}  // namespace dovecote
