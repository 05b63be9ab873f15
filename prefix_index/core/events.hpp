// Events of one batch as values: what was decoded from a payload or read from Python, ready to apply.
//
// Names and tokens of all events lie in two rooms of the batch; texts are views into the payload, or
// into `texts` where they were made here. The batch is reused from payload to payload.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "types.hpp"

namespace dovecote {

enum class EventKind : std::uint8_t { kStored, kRemoved, kCleared };

//: A number that need not be given: of a cache group, or a window's tokens. Negative ones are apart from the large
//: ones with equal bits.
struct OptionalNumber {
  bool is_given = false;
  bool is_negative = false;
  std::uint64_t bits = 0;
  bool operator==(const OptionalNumber&) const = default;
};

//: One of the things besides tokens that make a block's identity: an image's hash, an offset, a salt.
struct ContentKey {
  enum class Kind : std::uint8_t { kText = 1, kBytes = 2, kNumber = 3 };
  Kind kind;
  //: Of a number its decimal digits.
  std::string data;
};
using BlockKeys = std::vector<ContentKey>;

struct Event {
  EventKind kind = EventKind::kCleared;
  bool has_parent = false;
  Name parent = 0;
  std::size_t names_at = 0, tokens_at = 0;
  std::uint32_t name_count = 0, token_count = 0;
  std::uint32_t block_tokens = 0;
  Tier tier = kDevice;
  OptionalNumber group, window;
  std::optional<std::string_view> group_kind, lora_name, cache_salt;
  //: Decimal digits of the adapter's number.
  std::optional<std::string_view> lora_id;
  //: Position in Batch::keys; none where no block has keys.
  std::optional<std::size_t> keys;

  // Whether the tokens fill blocks, at least as many as are named.
  bool is_whole() const {
    return block_tokens > 0 && token_count % block_tokens == 0 && token_count / block_tokens >= name_count;
  }
  // Blocks that the event gives tokens of, before those it names.
  std::uint32_t unlisted() const { return token_count / block_tokens - name_count; }
};

struct Batch {
  //: Data-parallel rank as the batch says.
  OptionalNumber dp_rank;
  std::vector<Event> events;
  Room<Name> names;
  Room<std::uint32_t> tokens;
  //: Per event that has them, the keys of its blocks.
  std::vector<std::vector<BlockKeys>> keys;
  std::deque<std::string> texts;

  void clear() {
    dp_rank = {};
    events.clear();
    names.clear();
    tokens.clear();
    keys.clear();
    texts.clear();
  }
  std::string_view keep(std::string text) { return texts.emplace_back(std::move(text)); }
};

}  // namespace dovecote
