// Bytes of one batch to events: both generations, every field that decides residency.

#include "decode.hpp"

#include <string>

#include "identity.hpp"
#include "msgpack.hpp"

namespace dovecote {
namespace {

constexpr std::size_t kMaxPayload = std::size_t{64} << 20;

using OptionalText = std::optional<std::string_view>;

std::string to_digits(const Reader::Integer& value) {
  return value.is_negative ? std::to_string(static_cast<std::int64_t>(value.bits)) : std::to_string(value.bits);
}

// One event while its fields come in, in whatever order.
class EventReader {
 public:
  EventReader(Reader& reader, Batch& batch) : in_(reader), batch_(batch) {}

  void read() {
    in_.is_map() ? read_map() : read_array();
    if (!in_.has_failed()) batch_.events.push_back(event_);
  }

 private:
  void read_array() {
    const std::size_t fields = in_.array();
    if (fields == 0) return in_.fail();
    const std::string_view type = in_.text();
    std::size_t used = 1;
    if (type == "BlockStored") {
      if (fields < 5) return in_.fail();
      used = read_stored_fields(fields);
    } else if (type == "BlockRemoved") {
      if (fields < 2) return in_.fail();
      event_.kind = EventKind::kRemoved;
      names();
      if (fields > 2) medium();
      if (fields > 3) event_.group = number();
      used = fields < 4 ? fields : 4;
    } else if (type != "AllBlocksCleared") {
      return in_.fail();
    }
    while (used++ < fields && !in_.has_failed()) in_.skip();
  }

  std::size_t read_stored_fields(std::size_t fields) {
    event_.kind = EventKind::kStored;
    names();
    parent();
    tokens();
    event_.block_tokens = block_tokens();
    if (fields > 5) lora_id();
    if (fields > 6) medium();
    if (fields > 7) adapter_or_metadata();
    if (fields > 8) keys();
    if (fields > 9) event_.group = number();
    if (fields > 10) event_.group_kind = text();
    if (fields > 11) event_.window = number();
    return fields < 12 ? fields : 12;
  }

  void read_map() {
    OptionalText type;
    bool has_names = false, has_tokens = false, has_size = false;
    for (std::size_t left = in_.map(); left > 0 && !in_.has_failed(); --left) {
      const std::string_view key = in_.text();
      if (key == "type") {
        if (type) return in_.fail();
        type = in_.text();
      } else if (key == "block_hashes") {
        names();
        has_names = true;
      } else if (key == "parent_block_hash") {
        parent();
      } else if (key == "token_ids") {
        tokens();
        has_tokens = true;
      } else if (key == "block_size") {
        event_.block_tokens = block_tokens();
        has_size = true;
      } else {
        read_rare_field(key);
      }
    }
    if (type == "BlockStored" && has_names && has_tokens && has_size) {
      event_.kind = EventKind::kStored;
    } else if (type == "BlockRemoved" && has_names) {
      event_.kind = EventKind::kRemoved;
    } else if (type != "AllBlocksCleared") {
      in_.fail();
    }
  }

  void read_rare_field(std::string_view key) {
    if (key == "lora_id") return lora_id();
    if (key == "medium") return medium();
    if (key == "lora_name") return static_cast<void>(event_.lora_name = text());
    if (key == "cache_salt") return static_cast<void>(event_.cache_salt = text());
    if (key == "extra_keys") return keys();
    if (key == "group_idx") return static_cast<void>(event_.group = number());
    if (key == "kv_cache_spec_kind") return static_cast<void>(event_.group_kind = text());
    if (key == "kv_cache_spec_sliding_window") return static_cast<void>(event_.window = number());
    if (key == "session_id") return static_cast<void>(text());
    in_.skip();
  }

  void names() {
    const std::size_t count = in_.array();
    if (count > kMaxHashes || count > in_.left()) return in_.fail();
    event_.names_at = batch_.names.size();
    event_.name_count = static_cast<std::uint32_t>(count);
    Name* out = batch_.names.extend(count);
    for (std::size_t at = 0; at < count && !in_.has_failed(); ++at) out[at] = name();
  }

  Name name() {
    if (in_.is_bytes()) {
      const std::string_view data = in_.bytes();
      if (data.size() < kMinHashBytes || data.size() > kMaxHashBytes || data.size() % 2 != 0) in_.fail();
      return to_name(data);
    }
    const Reader::Integer value = in_.integer();
    return to_name(value.bits, value.is_negative);
  }

  void parent() {
    event_.has_parent = !in_.take_nil();
    event_.parent = event_.has_parent ? name() : 0;
  }

  void tokens() {
    const std::size_t count = in_.array();
    if (count > kMaxTokens || count > in_.left()) return in_.fail();
    event_.tokens_at = batch_.tokens.size();
    event_.token_count = static_cast<std::uint32_t>(count);
    std::uint32_t* out = batch_.tokens.extend(count);
    if (count == 0 || !in_.is_array()) return in_.tokens(count, out);
    for (std::size_t at = 0; at < count && !in_.has_failed(); ++at) {
      std::uint32_t pair[2];
      if (in_.array() != 2) return in_.fail();
      in_.tokens(2, pair);
      out[at] = pair[0];
    }
  }

  std::uint32_t block_tokens() {
    const auto size = static_cast<std::uint32_t>(in_.natural(kMaxTokens + 1));
    if (size == 0) in_.fail();
    return size;
  }

  OptionalText text() {
    if (in_.take_nil()) return std::nullopt;
    return in_.ascii();
  }

  void medium() {
    const OptionalText word = text();
    event_.tier = word ? to_tier(*word) : kDevice;
  }

  void lora_id() {
    event_.lora_id.reset();
    if (!in_.take_nil()) event_.lora_id = batch_.keep(to_digits(in_.integer()));
  }

  OptionalNumber number() {
    if (in_.take_nil()) return {};
    const Reader::Integer value = in_.integer();
    return {true, value.is_negative, value.bits};
  }

  // The eighth element: vLLM's adapter name, or SGLang's map of metadata with the salt.
  void adapter_or_metadata() {
    if (!in_.is_map()) return static_cast<void>(event_.lora_name = text());
    if (in_.map() != 1 || in_.text() != "cache_salt" || !in_.is_text()) return in_.fail();
    event_.cache_salt = in_.ascii();
  }

  void keys() {
    event_.keys.reset();
    if (in_.take_nil()) return;
    const std::size_t count = in_.array();
    if (count > kMaxTokens || count > in_.left()) return in_.fail();
    std::vector<BlockKeys> blocks(count);
    bool has_any = false;
    for (BlockKeys& block : blocks) {
      if (!in_.take_nil()) key_list(block, 8);
      if (in_.has_failed()) return;
      has_any |= !block.empty();
    }
    if (!has_any) return;
    event_.keys = batch_.keys.size();
    batch_.keys.push_back(std::move(blocks));
  }

  // Nested lists are laid flat.
  void key_list(BlockKeys& block, int depth) {
    std::size_t count = in_.array();
    if (depth == 0) return in_.fail();
    while (count-- > 0 && !in_.has_failed()) {
      if (in_.is_array()) {
        key_list(block, depth - 1);
      } else if (in_.is_text()) {
        block.push_back({ContentKey::Kind::kText, std::string(in_.ascii())});
      } else if (in_.is_bytes()) {
        block.push_back({ContentKey::Kind::kBytes, std::string(in_.bytes())});
      } else {
        block.push_back({ContentKey::Kind::kNumber, to_digits(in_.integer())});
      }
    }
  }

  Reader& in_;
  Batch& batch_;
  Event event_;
};

}  // namespace

bool decode_batch(std::string_view payload, Batch& batch) {
  batch.clear();
  if (payload.size() > kMaxPayload) return false;
  Reader reader(payload);
  std::size_t fields = reader.array();
  if (fields < 2) return false;
  reader.number();
  const std::size_t events = reader.array();
  if (events > kMaxEvents) return false;
  for (std::size_t at = 0; at < events && !reader.has_failed(); ++at) EventReader(reader, batch).read();
  if (fields > 2 && !reader.take_nil()) {
    const Reader::Integer rank = reader.integer();
    batch.dp_rank = {true, rank.is_negative, rank.bits};
  }
  for (; fields > 3 && !reader.has_failed(); --fields) reader.skip();
  return !reader.has_failed() && reader.is_at_end();
}

}  // namespace dovecote
