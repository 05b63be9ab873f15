// The hybrid rule: how much of a prompt can be reused, given what every cache group has. Says the same as
// `prefix_index.reuse`, which explains it.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "chains.hpp"
#include "shelf.hpp"

namespace dovecote {

//: How far a holder is; each includes those before it.
enum class Reach : std::uint8_t { kDevice, kHost, kPools };

//: Groups of one holder, and which of its tiers are meant.
struct Source {
  Reach reach;
  std::vector<const std::deque<Group>*> groups;
  std::vector<Tier> tiers;
};

//: What one group must fetch from one reach.
struct Load {
  OptionalNumber number;
  std::uint32_t component;
  Reach source;
  std::uint64_t tokens;
};

struct Alternative {
  Reach reach = Reach::kDevice;
  std::uint64_t reuse_tokens = 0, window_tokens = 0, replay_tokens = 0;
  std::vector<Load> loads;
  std::uint64_t recompute_tokens() const { return std::max(window_tokens, replay_tokens); }
};

//: A prompt against the blocks of a tree.
struct Prompt {
  const Tree& tree;
  const Registry& registry;
  const Chains& chains;
};

//: One group as a rank reads it: the shelves of every holder within reach.
class GroupView {
 public:
  explicit GroupView(const Group& group)
      : group_(&group), grain_tokens_(group.grain_tokens()) {}

  const Group& group() const { return *group_; }
  const Component& component() const { return group_->component; }
  bool is_prefix() const { return group_->is_prefix(); }
  std::uint64_t grain_tokens() const { return grain_tokens_; }
  // Shelves of one holder, the largest blocks first.
  void add(const Group& group, const Source& source);
  // The device has the prompt's first tokens, in blocks of one size. Said once all shelves are there; it saves looking
  // them up again where the group has no other size.
  void settle(std::uint64_t block_tokens, std::uint64_t tokens);

  // End of the last block that the boundary at `end_tokens` needs and no shelf has; 0 where none lacks.
  std::uint64_t find_hole(const Prompt& prompt, std::uint64_t end_tokens) const;
  // End of the unbroken run of blocks from the prompt's start.
  std::uint64_t cover(const Prompt& prompt, std::uint64_t limit_tokens) const;
  // What the boundary needs from each reach but the device.
  void find_loads(const Prompt& prompt, std::uint64_t end_tokens, std::vector<Load>& loads) const;

 private:
  struct ShelfView {
    Reach reach;
    std::uint64_t block_tokens;
    Slot slot;
  };
  std::uint64_t only_size() const;
  // The first shelf that has the block ending there; null where none has.
  const ShelfView* find_ending(const Prompt& prompt, std::uint64_t end_tokens, std::uint64_t of_tokens = 0) const;

  const Group* group_;
  std::uint64_t grain_tokens_;
  std::vector<ShelfView> shelves_;
  std::uint64_t settled_tokens_ = 0;
  //: What was asked last, and its answer: plans ask the same again.
  mutable std::optional<std::pair<std::uint64_t, std::uint64_t>> covered_;
  //: Ends of blocks that `find_hole` found without a hole, (from, to], where all are of one size: a lower boundary
  //: needs most of them too.
  struct Unbroken {
    std::uint64_t from_tokens = 0, to_tokens = 0;
  };
  mutable Unbroken unbroken_;
};

using Views = std::vector<GroupView>;

// Views of groups over holders, nearest first; none where a group's rule is not known.
Views make_views(const std::vector<Source>& sources);
// True when no reported group below the highest number is unknown yet: one of them could decide.
bool is_complete(const std::vector<const std::deque<Group>*>& reported);
// Distance of the boundaries that all groups have.
std::uint64_t find_grain(const Views& views);
// Largest multiple of `grain_tokens` up to the limit that every view allows; prefix groups only where asked.
std::uint64_t find_boundary(const std::vector<const GroupView*>& views, const Prompt& prompt,
                            std::uint64_t limit_tokens, std::uint64_t grain_tokens);
// Ways to serve a prompt within one reach, added to those already found where they are better.
void add_alternatives(const Views& views, Reach reach, const Prompt& prompt, std::uint64_t limit_tokens,
                      std::vector<Alternative>& found);

}  // namespace dovecote
