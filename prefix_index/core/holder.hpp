// One holder: what each of its stores, removals, clears and doubts changes. The rules are those of
// `prefix_index.naive`, which the same contract suite and machine drive.
#pragma once

#include <deque>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "beliefs.hpp"
#include "identity.hpp"
#include "pool.hpp"
#include "shelf.hpp"
#include "tree.hpp"

namespace dovecote {

//: What events changed for a holder.
struct Delta {
  //: Places that came to count on the device, and that do so no more.
  std::vector<Place> stored, removed;
  //: Places that another group or tier gained or lost.
  std::vector<Place> touched;
  std::size_t orphaned = 0, unknown_removals = 0, refused = 0;

  void clear_places() {
    stored.clear();
    removed.clear();
    touched.clear();
  }
  void clear() {
    clear_places();
    orphaned = unknown_removals = refused = 0;
  }
};

struct HolderSettings {
  std::string model;
  //: A store of a known block is no second copy.
  bool is_refreshed = false;
  bool is_bigram = false;
  std::uint64_t secret = 0;
  //: Spreads names over tables.
  std::uint64_t name_key = 0;
  std::size_t max_orphans = 65'536;
  //: Domain whose host memory it can read; none for one of its own.
  std::optional<std::string> host;
  std::vector<DeclaredGroup> layout;
};

//: What all holders of an index share.
struct Commons {
  Tree tree;
  Registry registry;
  //: Holders without full attention, which no anchored slot stands for.
  std::set<std::uint32_t> rootless;
  //: By number, whether anchored slots say all of a holder.
  std::vector<std::uint8_t> plain;
};

//: One block as a snapshot tells of it. Columns of runs, see `wire.snapshot`.
struct Record {
  Name name;
  Place parent, place;
  std::uint32_t copies, position;
};

//: Records that share their group, tier and doubt; one of no copies says that the group has the tier.
struct Run {
  std::uint32_t block_tokens = 1;
  Tier tier = kDevice;
  OptionalNumber number, window;
  std::optional<std::string> kind;
  bool is_doubted = false;
  std::vector<Record> records;
};

class Holder {
 public:
  // `pools` are those it reads; it writes to the first.
  Holder(Commons& commons, std::uint32_t number, HolderSettings settings, std::vector<Pool*> pools);
  Holder(const Holder&) = delete;
  Holder& operator=(const Holder&) = delete;

  void store(const Batch& batch, const Event& event, Delta& delta);
  void remove(const Batch& batch, const Event& event, Delta& delta);
  // Its cache was cleared: forget all blocks, but not what groups the model has.
  void empty();
  // Forget all, as for a new process; says how many places counted.
  std::size_t forget();
  // The end, after it forgot all.
  void close() { tree_.give_back(kept_.slot()); }
  // Count nothing until it is proved.
  std::size_t doubt();

  std::vector<Run> dump() const;
  // Take in a run; says how many records.
  std::size_t load(const Run& run, Delta& delta);
  // The engine reused so many tokens of a prompt of which full attention has the first `full_tokens`.
  void correct(const Chains& chains, std::uint64_t full_tokens, std::uint64_t cached_tokens) {
    beliefs_.correct(chains, full_tokens, cached_tokens, commons_.registry);
  }

  // Places on the device that count: of full attention, or of any group where there is none.
  std::size_t count() const;
  // Whether anchored slots say all of it: full attention of one block size and nothing else.
  bool is_plain() const { return commons_.plain[number_] != 0; }
  // Whether full attention on the device has one block size, in all its groups.
  bool has_one_full_size() const { return is_whole_ && counted_.size() == 1; }
  const Counted* only_counted() const { return has_one_full_size() ? &counted_.front() : nullptr; }
  bool is_rootless() const { return !groups_.empty() && !has_prefix_; }
  // False once a group was seen whose rule is not known.
  bool is_modelled() const { return is_modelled_; }
  const std::deque<Group>& groups() const { return groups_; }
  const std::deque<Group>& believed() const { return beliefs_.groups(); }
  const std::vector<Pool*>& pools() const { return pools_; }
  const HolderSettings& settings() const { return settings_; }
  const std::set<std::uint32_t>& block_sizes() const { return block_sizes_; }
  std::size_t entry_count() const;
  std::size_t parked_count() const;
  std::size_t bytes() const;
  // Forget up to `wanted` entries last stored `ticks` ago or earlier, of `budget` looked at; says how many went.
  // `is_done` says that all entries were looked at and the next call begins anew.
  std::size_t evict(std::uint8_t ticks, std::size_t wanted, std::size_t& budget, bool& is_done, Delta& delta);
  // Ticks ago that so many entries were last stored, or earlier; 0 where there are not so many.
  std::uint8_t find_age(std::size_t wanted) const;
  std::string find_contradiction() const;

 private:
  //: An event's blocks on their way in.
  struct Arrival {
    Shelf& shelf;
    ShelfId shelf_id;
    const Name* names;
    //: Canonical hashes from the first named block on; null while the parent's place is unknown.
    const Place* places;
    std::uint32_t unlisted;
    bool adds_copy;
    const std::vector<BlockKeys>* keys;
    //: Node of the block before, while places are known.
    NodeId before;
  };

  Group* find_group(const OptionalNumber& number);
  Group* admit(const OptionalNumber& number, const std::optional<std::string_view>& kind,
               const OptionalNumber& window);
  ShelfId open_shelf(Group& group, Tier tier, std::uint32_t block_tokens, Delta& delta);
  ShelfId make_shelf(Group& group, Tier tier, std::uint32_t block_tokens);
  void join_counted(ShelfId id, std::uint32_t block_tokens, Delta& delta);
  void take_credit(Counted& counted, BlockNames& names, Delta& delta);
  void refresh();
  BlockNames& names_of(std::uint32_t block_tokens);

  void store_blocks(ShelfId id, const Batch& batch, const Event& event, Delta& delta);
  bool is_repeated(ShelfId id, const Batch& batch, const Event& event) const;
  std::optional<NodeId> find_parent(BlockNames& names, const Event& event);
  const Place* find_places(const Batch& batch, const Event& event, const KeyReading& reading, NodeId parent);
  void keep_tail(BlockNames& names, NodeId node);
  void arrive(const Batch& batch, const Event& event, Arrival& arrival, std::uint32_t index, Delta& delta);
  void arrive_known(const Batch& batch, const Event& event, Arrival& arrival, std::uint32_t index, std::size_t at,
                    Delta& delta);
  NodeId next_node(Arrival& arrival, std::uint32_t index);
  NodeId own_node(BlockNames& names, const Batch& batch, const Event& event, const Arrival& arrival,
                  std::uint32_t index);
  NodeId extend(NodeId parent, const Parked& parked, std::uint32_t block_tokens);
  Parked make_parked(const Batch& batch, const Event& event, const Arrival& arrival, std::uint32_t index) const;
  void fetch(const Event& event, const Arrival& arrival, std::uint32_t index) const;
  void link(BlockNames& names, Name parent, Delta& delta);
  void prove(ShelfId id, Name name, Delta& delta);
  void believe(ShelfId id, const Batch& batch, const Event& event, Delta& delta);
  Place seed(const Event& event, const KeyReading& reading) const;

  // Everything that an entry's change of copies and node entails; what is gone is not erased yet.
  void change(BlockNames& names, std::size_t at, const Copies& to, NodeId node, Delta& delta);
  void remove_one(ShelfId id, Name name, Delta& delta);
  void gain(Shelf& shelf, NodeId node, Delta& delta);
  void lose(Shelf& shelf, NodeId node, Delta& delta);
  bool is_kept(const Copies& copies) const;
  bool is_in_all(const Counted& counted, NodeId node) const;
  void free_loose();

  void release_entries();
  void release_entry(const Copies& copies, NodeId node);
  void doubt_entries(BlockNames& names);
  std::size_t count_any_group() const;
  bool restore(ShelfId id, const Record& record, bool is_doubted, Delta& delta);
  //: A block's position in its chain, and where its entry stands in the map.
  struct Placed {
    std::uint32_t position;
    Name name;
    std::size_t at;
  };
  using Order = std::vector<Placed>;
  void dump_names(const BlockNames& names, const Order& order, std::vector<Run>& runs) const;
  bool has_copy(const Copies& copies, Tier tier) const;
  bool has_full(NodeId node, Tier tier) const;

  Commons& commons_;
  Tree& tree_;
  std::uint32_t number_;
  HolderSettings settings_;
  std::vector<Pool*> pools_;
  std::deque<Group> groups_;
  std::deque<Shelf> shelves_;
  std::vector<Counted> counted_;
  CopyCodes codes_;
  std::deque<BlockNames> names_;
  Beliefs beliefs_;
  //: Names whose node no shelf of the holder's own keeps: doubted, in a pool, the end of a run without a name.
  Holding kept_;
  struct Tail {
    std::uint32_t block_tokens;
    NodeId node;
  };
  //: Where runs ended whose last block was not named, latest last.
  std::deque<Tail> tails_;
  std::set<std::uint32_t> block_sizes_;
  bool is_modelled_ = true, has_prefix_ = false, is_full_only_ = true, is_whole_ = true;
  //: Nodes that may have become unused during an event.
  std::vector<NodeId> loose_;
  std::vector<Place> places_;
  Place plain_seed_;
  //: Where eviction goes on.
  std::size_t sweep_names_ = 0, sweep_turn_ = 0;
};

}  // namespace dovecote
