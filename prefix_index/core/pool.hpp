// A shared pool as one model sees it: one copy of a block, whoever reports it, in the order of their last store.
#pragma once

#include <deque>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "shelf.hpp"

namespace dovecote {

class Pool {
 public:
  explicit Pool(Tree& tree) : tree_(tree) {}
  ~Pool() { clear(); }
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  // Keep a place, as the youngest; nothing where the pool has blocks of another size or kind there.
  void store(const Group& like, Tier tier, NodeId node);
  // Drop a place; its node stays until it is freed.
  void remove(const Group& like, Tier tier, NodeId node);
  bool has(const OptionalNumber& number, Tier tier, NodeId node) const;
  // Drop the oldest place of the fullest shelf; false where there is none.
  bool remove_oldest();
  void clear();
  std::size_t size() const { return size_; }
  const std::deque<Group>& groups() const { return groups_; }
  std::size_t bytes() const { return size_ * 80; }

 private:
  struct Stand {
    Slot slot;
    //: Node -> number of its last store, and the stores in order, some of them outdated.
    std::unordered_map<NodeId, std::uint64_t> last;
    std::deque<std::pair<NodeId, std::uint64_t>> order;
  };
  const Group* find(const OptionalNumber& number) const;
  void tidy(Stand& stand);

  Tree& tree_;
  std::deque<Group> groups_;
  std::deque<Stand> stands_;
  std::uint64_t stores_ = 0;
  std::size_t size_ = 0;
};

}  // namespace dovecote
