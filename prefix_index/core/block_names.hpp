// What a holder calls its blocks of one size: names, copies, blocks that wait for their parent, doubt by place.
//
// Equal names are one block, whatever cache groups have it. Knows places only as nodes; what a change means for the
// holder is said by `Holder`.
#pragma once

#include <map>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "copies.hpp"
#include "events.hpp"
#include "names.hpp"

namespace dovecote {

inline constexpr std::size_t kMaxParkedTokens = std::size_t{4} << 20;

//: Hash of names for the standard's maps, whose own takes a number as it is: engines could choose names that meet.
struct NameHash {
  std::uint64_t key;
  std::size_t operator()(Name name) const {
    return static_cast<std::size_t>(xxh3::avalanche(xxh3::fold_product(name ^ key, 0x9FB21C651E98DF25ull)));
  }
};
template <typename T>
using ByName = std::unordered_map<Name, T, NameHash>;

//: A block whose parent's place is unknown: tokens from the parent's end to its own, which may be several blocks.
struct Parked {
  std::uint64_t order = 0;
  Name parent = 0;
  std::vector<std::uint32_t> tokens;
  BlockKeys keys;
};

class BlockNames {
 public:
  static constexpr std::size_t kAbsent = NameMap::kAbsent;

  BlockNames(std::uint32_t block_tokens, std::uint64_t key, CopyCodes& codes)
      : block_tokens(block_tokens),
        map(key),
        codes_(codes),
        many_(0, NameHash{key}),
        parked_(0, NameHash{key}),
        waiting_(0, NameHash{key}) {}

  std::uint32_t block_tokens;
  NameMap map;

  // Copies of the entry at a position.
  const Copies& copies(std::size_t at) const {
    const std::uint32_t code = map.code(at);
    return code == CopyCodes::kMany ? many_.at(map.name(at)) : codes_.at(code);
  }
  // Node and copies of an entry that is there; there must be some copy.
  void set(std::size_t at, NodeId node, const Copies& copies);
  void insert(Name name, NodeId node, const Copies& copies);
  // The entry goes; it must not be parked.
  void erase(std::size_t at);

  // Parked blocks; each has an entry without a node. Parking forgets the oldest when there are too many.
  void park(Name name, Parked parked, std::size_t max_parked);
  std::optional<Parked> unpark(Name name);
  void forget_oldest_parked();
  bool is_parked(Name name) const { return !parked_.empty() && parked_.contains(name); }
  bool is_waited_for(Name name) const { return !waiting_.empty() && waiting_.contains(name); }
  std::vector<Name> waiting_for(Name parent) const;
  std::size_t parked_count() const { return parked_.size(); }

  // A name at a node has doubted copies, or has none any more.
  void add_doubt(NodeId node, Name name);
  void take_doubt(NodeId node, Name name);
  // The name with doubted copies at a node; none where there are several.
  std::optional<Name> doubted_at(NodeId node) const;

  // Forget everything; nodes must have been released.
  void clear();
  std::size_t bytes() const;
  // What contradicts itself, in words; empty when nothing does.
  std::string find_contradiction(std::size_t max_parked) const;

 private:
  //: Of several names only their number is known, and their bits laid over one another.
  struct DoubtedNames {
    std::uint32_t count = 0;
    Name bits = 0;
  };

  CopyCodes& codes_;
  ByName<Copies> many_;
  std::unordered_map<NodeId, DoubtedNames> doubted_;
  ByName<Parked> parked_;
  std::map<std::uint64_t, Name> parked_order_;
  //: Parent -> parked blocks that wait for it, oldest first.
  ByName<std::map<std::uint64_t, Name>> waiting_;
  std::uint64_t next_order_ = 0;
  std::size_t parked_tokens_ = 0;
};

}  // namespace dovecote
